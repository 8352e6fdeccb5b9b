"""Calls of an ATen graph that become launches, several for each, which the second stage joins with what is around
them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor

from .. import native
from ..graph import layouts
from ..graph.memory import wrapped
from ..graph.nodes import example
from ..ops import regions
from ..text import ELEMENT_TYPES

_aten = torch.ops.aten
_TYPES = (torch.float32, torch.bfloat16, torch.float16)
SMALLEST = 1 << 16  # bytes of what a launch only moves: below, it is the start of a kernel that takes time
PROGRAMS = native.limit("programs")  # side by side in one launch


def results_of(node: fx.Node) -> dict[int, fx.Node] | None:
    """A call's results by their numbers; None where it is read in another way."""
    results = {user.args[1]: user for user in node.users if user.target is operator.getitem}
    return results if len(results) == len(node.users) else None


def is_plain(value: Any) -> bool:
    return (
        isinstance(value, FakeTensor)
        and not wrapped(value)
        and value.layout is torch.strided
        and value.dtype in _TYPES
        and value.device.type in ("cpu", "cuda")
    )


def element_of(node: fx.Node | None) -> str:
    return "" if node is None else ELEMENT_TYPES.get(example(node).dtype, "none")


def are_lowered(x: fx.Node, *keys: int) -> bool:
    """Whether each text is kernels alone."""
    return not any(regions.not_lowered(key, example(x).device) for key in keys)


def row_major(value: torch.Tensor) -> bool:
    """By its strides as they are written, which guards nothing; no size behind the first is a symbol."""
    expected = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride())):
        if layouts.written(size) != "1" and layouts.written(stride) != str(expected):
            return False
        expected = expected * size if isinstance(size, int) else -1
    return True


def are_columns(parameters: Sequence[fx.Node], columns: int, x: fx.Node) -> bool:
    """Whether each has a number for each column, of a type that texts read."""
    values = [example(each) for each in parameters]
    device = example(x).device
    return all(is_plain(each) and each.device == device and tuple(each.shape) == (columns,) for each in values)


def write_norms(
    norms: dict[fx.Node, Any], gradients: dict[fx.Node, Any], of: Callable[[fx.Node], tuple[fx.Node, ...]]
) -> set[int]:
    """Writes norms of a graph and their gradients, by calls; None stays. Returns the keys of what is launched. `of`:
    the norms whose statistics a gradient reads, which are launches with it or not at all."""
    keys: set[int] = set()
    for node, gradient in gradients.items():
        if gradient is None:
            norms |= dict.fromkeys(of(node), None)
    exact = {}  # a norm's statistics before they are rounded for whoever reads them
    for node, norm in norms.items():
        if norm is not None:
            exact[node] = norm.write(Writer(node, keys))
    for node, gradient in gradients.items():
        if gradient is not None and all(norms[each] is not None for each in gradient.norms):
            gradient.write(Writer(node, keys), exact)
    return keys


class Writer:
    """Writes calls in the place of a node, each with what tracing left on that, and a fake value."""

    def __init__(self, node: fx.Node, keys: set[int]) -> None:
        self._node, self._keys = node, keys

    def call(self, target: Any, *arguments: Any, **keywords: Any) -> fx.Node:
        with self._node.graph.inserting_before(self._node):
            made = self._node.graph.call_function(target, arguments, keywords)
        given = [example(each) if isinstance(each, fx.Node) else each for each in arguments]
        with given[0].fake_mode, torch.no_grad():
            made.meta = {**self._node.meta, "val": target(*given, **keywords)}
        return made

    def launch(self, key: int, count: int, *operands: fx.Node) -> tuple[fx.Node, ...]:
        """The `count` results of a region."""
        self._keys.add(key)
        made = self.call(regions.launch_op(len(operands), count), *operands, key)
        if count == 1:
            return (made,)
        items = []
        for index, value in enumerate(example(made)):
            with self._node.graph.inserting_before(self._node):
                items.append(self._node.graph.call_function(operator.getitem, (made, index)))
            items[-1].meta = {**made.meta, "val": value}
        return tuple(items)

    def cast(self, value: fx.Node, dtype: torch.dtype) -> fx.Node:
        return value if example(value).dtype == dtype else self.call(_aten._to_copy.default, value, dtype=dtype)

    def put(self, made: dict[int, fx.Node], results: dict[int, fx.Node]) -> None:
        """Puts what was made in the place of the call's results. Views of those lie in their memory, so it takes their
        fake values too."""
        for index, result in results.items():
            value = made[index]
            value.meta["val"] = example(result)
            if value.target is operator.getitem:
                launch, at = value.args
                values = list(example(launch))
                values[at] = example(result)
                launch.meta["val"] = tuple(values)
            result.replace_all_uses_with(value)
            self._node.graph.erase_node(result)
        self._node.graph.erase_node(self._node)

    def dense(self, value: fx.Node) -> fx.Node:
        if row_major(example(value)):
            return value
        return self.call(_aten.clone.default, value, memory_format=torch.contiguous_format)
