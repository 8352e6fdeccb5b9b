"""Convolutions along sequences, of long windows in groups of channels, become products.

cuDNN has kernels for such windows that are right for a picture's three by three and take twenty times as long here: a
positional embedding of 128 places, as models of speech have it, takes longer than all layers together. Which windows
are meant, and that products then never take much longer, was measured (docs/performance.md).

One product makes several places beside one another of all channels of a group, `places` of them:

    row m of the left factor        x[m * places .. m * places + places - 1 + window - 1] of the group's channels
    column (p, o) of the right one  the weights of channel o, p places further down, between zeros

so the left factor holds each number of x not `window` times but `(places - 1 + window) / places` times. The gradient of
what is convolved is such a product of the cotangent with the weights in the opposite order. The weights' gradient,
which is a long sum, and what else a convolution's backward gives stay the convolution's.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import torch
import torch.fx as fx

from .rewriting import Rewriting

_aten = torch.ops.aten
_FORWARD, _BACKWARD = _aten.convolution.default, _aten.convolution_backward.default
_DEVICES = {"cuda"}
_DTYPES = {torch.bfloat16, torch.float16}
_SHORTEST = 64  # windows
_ALIGNED = 8  # channels of a group
_PLACES = (4, 8, 16)
_LARGEST = 1 << 28  # bytes of both factors, of as many groups as are one product


def spell(graph: fx.Graph) -> int:
    """Rewrites a functional ATen graph in place; returns how many convolutions are products."""
    rewriting = _Rewriting(graph)
    for node in list(graph.nodes):
        if node.target is _FORWARD:
            rewriting.forward(node)
        elif node.target is _BACKWARD:
            rewriting.backward(node)
    rewriting.erase_dead()
    return rewriting.times


@dataclasses.dataclass(frozen=True)
class _Form:
    """Of a convolution by products: `length` numbers of a channel, `padding` zeros before them."""

    batch: int
    groups: int
    inner: int  # channels of a group, of what is convolved and of what comes of it
    outer: int
    window: int
    padding: int
    length: int
    result: int  # its length
    places: int

    @property
    def rows(self) -> int:
        return -(-self.result // self.places)

    @property
    def reach(self) -> int:
        """Places of what is convolved that a row has."""
        return self.places - 1 + self.window

    @property
    def bytes(self) -> int:
        """Of a group's factors."""
        left, right = self.batch * self.rows, self.places * self.outer
        return 2 * self.reach * self.inner * (left + right)

    @property
    def together(self) -> int:
        """Groups that are one product."""
        return min(self.groups, _LARGEST // self.bytes)


def _form(x: torch.Tensor, weight: torch.Tensor, padding: int, groups: int, inner: int, outer: int) -> _Form | None:
    """With the fewest bytes, if one group's are few enough."""
    batch, _, length = x.shape
    window = weight.shape[2]
    result = length + 2 * padding - window + 1
    forms = [_Form(batch, groups, inner, outer, window, padding, length, result, places) for places in _PLACES]
    best = min(forms, key=lambda form: form.bytes)
    return best if 0 <= padding < window and result > 0 and best.bytes <= _LARGEST else None


def _convolved(x: torch.Tensor, weight: torch.Tensor, strides: Any, dilations: Any, turned: bool, groups: int) -> bool:
    """Whether it is one of those."""
    if x.device.type not in _DEVICES or x.dtype not in _DTYPES or weight.dtype != x.dtype or x.dim() != 3 or turned:
        return False
    sizes = [*x.shape, *weight.shape]
    if not all(isinstance(size, int) and size > 0 for size in sizes) or list(strides) != [1] or list(dilations) != [1]:
        return False
    channels = weight.shape[0] // groups, weight.shape[1]
    return groups > 1 and weight.shape[2] >= _SHORTEST and all(size % _ALIGNED == 0 for size in channels)


class _Rewriting(Rewriting):
    def forward(self, node: fx.Node) -> None:
        x, weight, bias, strides, padding, dilations, turned, _, groups = node.args
        given, weights = x.meta["val"], weight.meta["val"]
        if not _convolved(given, weights, strides, dilations, turned, groups):
            return
        form = _form(given, weights, padding[0], groups, weights.shape[1], weights.shape[0] // groups)
        if form is None:
            return
        with self.graph.inserting_before(node):
            grouped = self.call(node, _aten.view.default, weight, [groups, form.outer, form.inner, form.window])
            by_places = self.call(node, _aten.permute.default, grouped, [0, 3, 2, 1])
            result = self._products(node, form, x, by_places)
            if bias is not None:
                result = self.call(node, _aten.add.Tensor, result, self.call(node, _aten.unsqueeze.default, bias, 1))
        self.replace(node, result)

    def backward(self, node: fx.Node) -> None:
        cotangent, x, weight, biases, strides, padding, dilations, turned, more, groups, wanted = node.args
        results = {user.args[1]: user for user in node.users if user.target is operator.getitem}
        given, weights = cotangent.meta["val"], weight.meta["val"]
        if not wanted[0] or 0 not in results or len(results) < len(node.users):
            return
        if not _convolved(given, weights, strides, dilations, turned, groups):
            return
        outer, window = weights.shape[0] // groups, weights.shape[2]
        form = _form(given, weights, window - 1 - padding[0], groups, outer, weights.shape[1])
        if form is None:
            return
        with self.graph.inserting_before(node):
            grouped = self.call(node, _aten.view.default, weight, [groups, form.inner, form.outer, window])
            by_places = self.call(node, _aten.permute.default, grouped, [0, 3, 1, 2])
            opposite = self.call(node, _aten.flip.default, by_places, [1])
            result = self._products(results[0], form, cotangent, opposite)
        before = self.times
        self.replace(results[0], result)
        if self.times > before:
            arguments = (*node.args[:-1], [False, *wanted[1:]])
            self.idle.update(results.values())
            if any(wanted[1:]):
                self._without_first(node, arguments, results)

    def _without_first(self, node: fx.Node, arguments: tuple[Any, ...], results: dict[int, fx.Node]) -> None:
        with self.graph.inserting_before(node):
            rest = self.graph.call_function(_BACKWARD, arguments)
            rest.meta = {**node.meta, "val": (None, *node.meta["val"][1:])}
            for index, result in results.items():
                if index > 0:
                    item = self.graph.call_function(operator.getitem, (rest, index))
                    item.meta = dict(result.meta)
                    result.replace_all_uses_with(item)
        self.idle.add(node)

    def _product(self, like: fx.Node, form: _Form, groups: int, length: int, x: fx.Node, between: fx.Node) -> fx.Node:
        """Of `groups` of x [groups, batch, length, inner] and of the weights with zeros around them."""

        def matrix(of: fx.Node, sizes: list[int], steps: list[int], rows: int, columns: int) -> fx.Node:
            seen = self.call(like, _aten.as_strided.default, of, sizes, steps)
            copy = self.call(like, _aten.clone.default, seen, memory_format=torch.contiguous_format)
            return self.call(like, _aten.view.default, copy, [groups, rows, columns])

        batch, rows, places, inner, outer = form.batch, form.rows, form.places, form.inner, form.outer
        depth, each = form.reach * inner, inner * outer  # each: the weights of a place
        steps = [batch * length * inner, length * inner, places * inner, 1]
        left = matrix(x, [groups, batch, rows, depth], steps, batch * rows, depth)
        steps = [(form.window + 2 * (places - 1)) * each, each, outer, each, 1]
        sizes = [groups, form.reach, inner, places, outer]  # the last place first
        right = matrix(between, sizes, steps, depth, places * outer)
        return self.call(like, _aten.bmm.default, left, right)

    def _products(self, like: fx.Node, form: _Form, x: fx.Node, weights: fx.Node) -> fx.Node:
        """The convolution of x by weights [groups, window, inner, outer], as a dense [batch, channels, length]."""

        def call(target: Any, *args: Any, **keywords: Any) -> fx.Node:
            return self.call(like, target, *args, **keywords)

        groups, batch, rows, places = form.groups, form.batch, form.rows, form.places
        dense = {"memory_format": torch.contiguous_format}
        in_rows = x if x.meta["val"].is_contiguous() else call(_aten.clone.default, x, **dense)
        apart = call(_aten.view.default, in_rows, [batch, groups, form.inner, form.length])
        by_places = call(_aten.permute.default, apart, [1, 0, 3, 2])
        padded = form.padding + form.length
        length = max(rows * places - 1 + form.window, padded)
        padded_x = call(_aten.constant_pad_nd.default, by_places, [0, 0, form.padding, length - padded], 0.0)
        padded_x = call(_aten.clone.default, padded_x, **dense)
        between = call(_aten.constant_pad_nd.default, weights, [0, 0, 0, 0, places - 1, places - 1], 0.0)
        between = call(_aten.clone.default, between, **dense)
        made = []
        for first in range(0, groups, form.together):
            count = min(form.together, groups - first)
            of_x = call(_aten.slice.Tensor, padded_x, 0, first, first + count)
            of_weights = call(_aten.slice.Tensor, between, 0, first, first + count)
            made.append(self._product(like, form, count, length, of_x, of_weights))
        product = made[0] if len(made) == 1 else call(_aten.cat.default, made)
        apart = call(_aten.view.default, product, [groups, batch, rows, places, form.outer])
        ordered = call(_aten.flip.default, apart, [3])
        ordered = call(_aten.view.default, ordered, [groups, batch, rows * places, form.outer])
        result = call(_aten.slice.Tensor, ordered, 2, 0, form.result)
        by_channels = call(_aten.clone.default, call(_aten.permute.default, result, [1, 0, 3, 2]), **dense)
        return call(_aten.view.default, by_channels, [batch, groups * form.outer, form.result])

