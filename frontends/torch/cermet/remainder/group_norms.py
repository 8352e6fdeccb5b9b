"""Group norms of an ATen graph become launches, several for each (ops/group_norms.py), which the second stage joins with
what is around them.

ATen's own call stands between its neighbours whatever these are, reads x twice in either direction, and what it takes to
make it again is not known; of launches all of that is. One whose memory, type or sizes no kernel of ours has stays.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor

from ..graph import layouts
from ..graph.memory import wrapped
from ..graph.nodes import example
from ..ops import group_norms as texts
from ..ops import regions
from ..text import ELEMENT_TYPES

_aten = torch.ops.aten
_FORWARD, _BACKWARD = _aten.native_group_norm.default, _aten.native_group_norm_backward.default
_TYPES = (torch.float32, torch.bfloat16, torch.float16)
_MAX_RANK = 8


def spell(module: fx.GraphModule) -> set[int]:
    """In place; returns the keys of what is launched."""
    spelling = _Spelling(module.graph)
    for node in [node for node in module.graph.nodes if node.target in (_FORWARD, _BACKWARD)]:
        results = {user.args[1]: user for user in node.users}
        if all(user.target is operator.getitem for user in node.users) and len(results) == len(node.users):
            (spelling.forward if node.target is _FORWARD else spelling.backward)(node, results)
    return spelling.keys


class _Spelling:
    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.keys: set[int] = set()
        self._exact: dict[fx.Node, fx.Node] = {}  # statistics as a forward rounded them: the ones before

    def forward(self, node: fx.Node, results: dict[int, fx.Node]) -> None:
        x, weight, bias, *_, groups, eps = node.args
        form = _form(example(x), groups, weight is not None or bias is not None)
        parameters = [each for each in (weight, bias) if each is not None]
        if form is None or not _fit(parameters, form, x) or not _fits(example(node)[0], x):
            return
        statistics, norm = texts.statistics(form, float(eps)), texts.norm(form, _element(weight), _element(bias))
        if not _lowered(x, statistics, norm):
            return
        self._put(node, results, self._forward(node, x, parameters, statistics, norm))

    def _forward(
        self, node: fx.Node, x: fx.Node, parameters: Sequence[fx.Node], statistics: int, norm: int
    ) -> list[fx.Node | None]:
        write = _Writer(node, self.keys)
        made = write.launch(statistics, 2, x)
        (y,) = write.launch(norm, 1, x, *made, *parameters)
        rounded = []
        for exact, given in zip(made, example(node)[1:]):
            rounded.append(write.cast(exact, given.dtype))
            self._exact[rounded[-1]] = exact
        return [y, *rounded]

    def backward(self, node: fx.Node, results: dict[int, fx.Node]) -> None:
        cotangent, x, mean, scale, weight, *_, groups, wanted = node.args
        wanted = [bool(each) and index in results for index, each in enumerate(wanted)]
        form = _form(example(x), groups, weight is not None or any(wanted[1:]))
        parameters = [each for each in (weight,) if each is not None]
        if form is None or not all(wanted[index] for index in results) or not _fit(parameters, form, x) or not _same(example(cotangent), x):
            return
        mean, scale = map(self._before, (mean, scale))
        if _element(mean) != _element(scale) or any(example(each).dtype not in _TYPES for each in (mean, scale)):
            return
        values = example(node)
        if wanted[0] and not _fits(values[0], x):
            return
        products, element = wanted[0] or wanted[1], _element(mean)
        keys = [texts.channel_sums(form, element, products)]
        if wanted[0]:
            if weight is not None or form.channels > 1:
                keys.append(texts.group_sums(form, _element(weight)))
            keys.append(texts.gradient(form, element, _element(weight)))
        if any(wanted[1:]):
            kinds = tuple(ELEMENT_TYPES[values[index].dtype] for index in (1, 2) if wanted[index])
            keys.append(texts.parameters(form, kinds))
        if _lowered(x, *keys):
            self._put(node, results, self._backward(node, form, keys, [cotangent, x, mean, scale], parameters, wanted))

    def _backward(
        self,
        node: fx.Node,
        form: texts.Form,
        keys: Sequence[int],
        operands: Sequence[fx.Node],
        parameters: Sequence[fx.Node],
        wanted: Sequence[bool],
    ) -> list[fx.Node | None]:
        write, made = _Writer(node, self.keys), iter(keys)
        cotangent, *rest = operands
        cotangent = write.dense(cotangent)
        sums = write.launch(next(made), 2, cotangent, *rest) if wanted[0] or wanted[1] else ()
        sums = sums or write.launch(next(made), 1, cotangent)
        found: list[fx.Node | None] = [None, None, None]
        if wanted[0]:
            of_groups = sums
            if parameters or form.channels > 1:
                of_groups = write.launch(next(made), 2, *sums, *parameters)
            (found[0],) = write.launch(next(made), 1, cotangent, *rest, *of_groups, *parameters)
        places = [index for index in (1, 2) if wanted[index]]
        if places:
            of = [sums[2 - index] for index in places]
            for index, value in zip(places, write.launch(next(made), len(of), *of)):
                found[index] = value
        return found

    def _before(self, statistics: fx.Node) -> fx.Node:
        """What a forward's launch has given, before it was rounded for the backward."""
        source = statistics
        while source.target is _aten.detach.default:
            source = source.args[0]
        return self._exact.get(source, statistics)

    def _put(self, node: fx.Node, results: dict[int, fx.Node], made: Sequence[fx.Node | None]) -> None:
        for index, result in results.items():
            _take_value(made[index], result)
            result.replace_all_uses_with(made[index])
            self.graph.erase_node(result)
        self.graph.erase_node(node)


def _take_value(made: fx.Node, result: fx.Node) -> None:
    """Gives a node the fake value of what it stands for: views of that lie in its memory."""
    made.meta["val"] = example(result)
    if made.target is operator.getitem:
        launch, index = made.args
        launch.meta["val"] = tuple(example(result) if at == index else each for at, each in enumerate(example(launch)))


class _Writer:
    """Writes calls in the place of a node, each with what tracing left on that, and a fake value."""

    def __init__(self, node: fx.Node, keys: set[int]) -> None:
        self._node, self._keys = node, keys

    def _call(self, target: Any, *arguments: Any, **keywords: Any) -> fx.Node:
        with self._node.graph.inserting_before(self._node):
            made = self._node.graph.call_function(target, arguments, keywords)
        given = [example(each) if isinstance(each, fx.Node) else each for each in arguments]
        with given[0].fake_mode, torch.no_grad():
            made.meta = {**self._node.meta, "val": target(*given, **keywords)}
        return made

    def launch(self, key: int, count: int, *operands: fx.Node) -> tuple[fx.Node, ...]:
        """The `count` results of a region."""
        self._keys.add(key)
        made = self._call(regions.launch_op(len(operands), count), *operands, key)
        if count == 1:
            return (made,)
        items = []
        for index, value in enumerate(example(made)):
            with self._node.graph.inserting_before(self._node):
                items.append(self._node.graph.call_function(operator.getitem, (made, index)))
            items[-1].meta = {**made.meta, "val": value}
        return tuple(items)

    def cast(self, value: fx.Node, dtype: torch.dtype) -> fx.Node:
        return value if example(value).dtype == dtype else self._call(_aten._to_copy.default, value, dtype=dtype)

    def dense(self, value: fx.Node) -> fx.Node:
        if _row_major(example(value)):
            return value
        return self._call(_aten.clone.default, value, memory_format=torch.contiguous_format)


def _form(x: Any, groups: int, affine: bool) -> texts.Form | None:
    """What texts of the norm are made for; None where none fits: one number for each channel has no rows of channels."""
    if not _plain(x) or not 2 <= x.dim() <= _MAX_RANK or not _row_major(x):
        return None
    dims = tuple(x.shape[1:])
    if not all(isinstance(size, int) and size > 0 for size in (groups, *dims)) or x.shape[:1] == (0,) or dims[0] % groups:
        return None
    form = texts.Form(dims, ELEMENT_TYPES[x.dtype], groups, dims[0] // groups if affine else 1)
    return form if form.group > form.channels else None


def _plain(value: Any) -> bool:
    return (
        isinstance(value, FakeTensor)
        and not wrapped(value)
        and value.layout is torch.strided
        and value.dtype in _TYPES
        and value.device.type in ("cpu", "cuda")
    )


def _row_major(value: torch.Tensor) -> bool:
    """By its strides as they are written, which guards nothing; no size behind the first is a symbol."""
    expected = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride())):
        if layouts.written(size) != "1" and layouts.written(stride) != str(expected):
            return False
        expected = expected * size if isinstance(size, int) else -1
    return True


def _same(value: Any, x: fx.Node) -> bool:
    """Whether a value is one of x's type, sizes and device."""
    like = example(x)
    return (
        _plain(value)
        and (value.dtype, value.device) == (like.dtype, like.device)
        and list(map(layouts.written, value.shape)) == list(map(layouts.written, like.shape))
    )


def _fits(value: Any, x: fx.Node) -> bool:
    """Whether a launch gives a value as ATen would have."""
    return _same(value, x) and _row_major(value)


def _fit(parameters: Sequence[fx.Node], form: texts.Form, x: fx.Node) -> bool:
    values = [example(each) for each in parameters]
    device = example(x).device
    return all(_plain(each) and each.device == device and tuple(each.shape) == form.dims[:1] for each in values)


def _element(node: fx.Node | None) -> str:
    return "" if node is None else ELEMENT_TYPES.get(example(node).dtype, "none")


def _lowered(x: fx.Node, *keys: int) -> bool:
    """Whether each text is kernels alone."""
    return not any(regions.not_lowered(key, example(x).device) for key in keys)
