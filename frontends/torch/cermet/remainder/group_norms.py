"""Group norms of an ATen graph become launches, several for each (ops/group_norms.py), which the second stage joins
with what is around them.

ATen's own call stays by itself whatever its neighbours are, and what it takes to make it again is not known; a launch
joins them, and is made again where that takes less than to keep its result. A norm whose memory, type or sizes no
kernel of ours has stays.
"""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import torch
import torch.fx as fx

from .. import native
from ..graph import layouts
from ..graph.nodes import example
from ..ops import group_norms as texts
from ..text import ELEMENT_TYPES
from .launching import Writer, are_columns, are_lowered, element_of, is_plain, results_of, row_major, write_norms

_aten = torch.ops.aten
_FORWARD, _BACKWARD = _aten.native_group_norm.default, _aten.native_group_norm_backward.default
_MAX_RANK = native.limit("rank") - 1  # a text has one more


def spell(module: fx.GraphModule) -> set[int]:
    """In place; returns the keys of what is launched. A norm and its gradient in one graph are both launches or
    neither: where x and its weight are of two types, ATen's statistics have another type than tracing says."""
    norms = {node: _norm(node) for node in module.graph.find_nodes(op="call_function", target=_FORWARD)}
    backward = module.graph.find_nodes(op="call_function", target=_BACKWARD)
    gradients = {node: _gradient(node, norms) for node in backward}
    return write_norms(norms, gradients, _statistics_of)


@dataclasses.dataclass(frozen=True)
class _Norm:
    results: dict[int, fx.Node]
    x: fx.Node
    parameters: tuple[fx.Node, ...]
    statistics: int
    norm: int

    def write(self, write: Writer) -> tuple[fx.Node, ...]:
        """Returns the statistics."""
        made = write.launch(self.statistics, 2, self.x)
        (y,) = write.launch(self.norm, 1, self.x, *made, *self.parameters)
        read = [(index, each) for index, each in enumerate(made, 1) if index in self.results]
        rounded = {index: write.cast(each, example(self.results[index]).dtype) for index, each in read}
        write.put({0: y, **rounded}, self.results)
        return made


def _norm(node: fx.Node) -> _Norm | None:
    results = results_of(node)
    x, weight, bias, *_, groups, eps = node.args
    form = _form(example(x), groups, weight is not None or bias is not None)
    parameters = tuple(each for each in (weight, bias) if each is not None)
    if results is None or form is None or not are_columns(parameters, form.dims[0], x) or not _fits(example(node)[0], x):
        return None
    keys = texts.statistics(form, float(eps)), texts.norm(form, element_of(weight), element_of(bias))
    return _Norm(results, x, parameters, *keys) if are_lowered(x, *keys) else None


@dataclasses.dataclass(frozen=True)
class _Gradient:
    results: dict[int, fx.Node]
    form: texts.Form
    operands: tuple[fx.Node, ...]  # cotangent, x and the statistics
    weight: fx.Node | None
    norms: tuple[fx.Node, ...]  # of this graph, whose statistics they are

    @property
    def element(self) -> str:
        """Of the statistics."""
        return "f32" if self.norms else element_of(self.operands[2])

    def keys(self) -> tuple[int, ...]:
        """In the order of `write`."""
        form, weight = self.form, element_of(self.weight)
        made = [texts.channel_sums(form, self.element, 0 in self.results or 1 in self.results)]
        if 0 in self.results:
            if self.weights_groups():
                made.append(texts.group_sums(form, weight))
            made.append(texts.gradient(form, self.element, weight, element_of(self.results[0])))
        if kinds := tuple(element_of(self.results[index]) for index in (1, 2) if index in self.results):
            made.append(texts.parameters(form, kinds))
        return tuple(made)

    def weights_groups(self) -> bool:
        """Whether the sums of groups are others than those of channels."""
        return self.weight is not None or self.form.channels > 1

    def write(self, write: Writer, exact: dict[fx.Node, tuple[fx.Node, ...]]) -> None:
        keys = iter(self.keys())
        cotangent, x, *statistics = self.operands
        for norm in self.norms:
            statistics = exact[norm]
        cotangent, rest = write.dense(cotangent), (x, *statistics)
        weight = () if self.weight is None else (self.weight,)
        if 0 in self.results or 1 in self.results:
            sums = write.launch(next(keys), 2, cotangent, *rest)
        else:
            sums = write.launch(next(keys), 1, cotangent)
        made: dict[int, fx.Node] = {}
        if 0 in self.results:
            of_groups = write.launch(next(keys), 2, *sums, *weight) if self.weights_groups() else sums
            (made[0],) = write.launch(next(keys), 1, cotangent, *rest, *of_groups, *weight)
        places = [index for index in (1, 2) if index in self.results]
        if places:  # the weight's is of the second sums, the bias's of the first
            made |= zip(places, write.launch(next(keys), len(places), *(sums[2 - index] for index in places)))
        write.put(made, self.results)


def _gradient(node: fx.Node, norms: dict[fx.Node, _Norm | None]) -> _Gradient | None:
    results = results_of(node)
    cotangent, x, mean, scale, weight, *_, groups, wanted = node.args
    if not results or not all(wanted[index] for index in results):
        return None
    of = _statistics_of(node)
    form = _form(example(x), groups, weight is not None or 1 in results or 2 in results)
    parameters = () if weight is None else (weight,)
    if form is None or not are_columns(parameters, form.dims[0], x) or not _same(example(cotangent), x):
        return None
    if len(of) > 1 or any(norms.get(each) is None for each in of):
        return None
    if not of and (element_of(mean) != element_of(scale) or not (is_plain(example(mean)) and is_plain(example(scale)))):
        return None
    if 0 in results and not (is_plain(value := example(results[0])) and row_major(value)):
        return None
    found = _Gradient(results, form, (cotangent, x, mean, scale), weight, of)
    return found if are_lowered(x, *found.keys()) else None


def _statistics_of(node: fx.Node) -> tuple[fx.Node, ...]:
    """The norms of the graph whose statistics a gradient reads."""
    found = []
    for source in node.args[2:4]:
        while source.target is _aten.detach.default:
            source = source.args[0]
        if source.target is operator.getitem and source.args[0].target is _FORWARD:
            found.append(source.args[0])
    return tuple(dict.fromkeys(found))


def _form(x: Any, groups: int, affine: bool) -> texts.Form | None:
    """What texts of the norm are made for; None where none fits: channels of one element are no rows."""
    if not is_plain(x) or not 2 <= x.dim() <= _MAX_RANK or not row_major(x):
        return None
    dims = tuple(x.shape[1:])
    known = all(isinstance(size, int) and size > 0 for size in (groups, *dims))
    if not known or x.shape[:1] == (0,) or dims[0] % groups:
        return None
    form = texts.Form(dims, ELEMENT_TYPES[x.dtype], groups, dims[0] // groups if affine else 1)
    return form if form.group > form.channels else None


def _same(value: Any, x: fx.Node) -> bool:
    """Whether a value is one of x's type, sizes and device."""
    like = example(x)
    return (
        is_plain(value)
        and (value.dtype, value.device) == (like.dtype, like.device)
        and list(map(layouts.written, value.shape)) == list(map(layouts.written, like.shape))
    )


def _fits(value: Any, x: fx.Node) -> bool:
    """Whether a launch gives a value as ATen would have."""
    return _same(value, x) and row_major(value)
