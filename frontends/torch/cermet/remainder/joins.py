"""Joins of what products gave, as launches that read each part as it lies in memory.

The gradients of queries, keys and values of attention that a program writes out come out of three products, a matrix
for each head, and are joined for the product that made all three. ATen turns each of them into rows, and scales it, and
copies the rows once more where they are joined; and the keys' come turned, since what they were multiplied with was.
Here the product gives them the other way round, and the launch has a program for each part, side by side, which reads
it once, scales it, and stores it where the whole has it.

Joins of what lies in rows already are ATen's, and those of what kernels compute are the engine's.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx

from ..graph.nodes import example
from ..graph.traffic import judged, size_of
from ..importing.importer import strides_if_not_contiguous
from ..ops import regions
from ..ops.texts import Text
from ..text import ELEMENT_TYPES, TensorType
from .aten.rewriting import Rewriting
from .joined_sums import DTYPES, is_made, takes
from .launching import PROGRAMS, SMALLEST

_aten = torch.ops.aten
_RESHAPES = {_aten.view.default, _aten.reshape.default, _aten._unsafe_view.default}
_VIEWS = {_aten.transpose.int, _aten.permute.default, _aten.unsqueeze.default, _aten.view.default}
_PRODUCTS = {_aten.bmm.default, _aten.mm.default}


@dataclasses.dataclass(frozen=True)
class _Part:
    """A value that is joined: a product's, behind calls that are written once more without the factor between them."""

    product: fx.Node
    calls: tuple[fx.Node, ...]  # views, the outermost first
    factor: float | None
    copied: bool  # into rows

    @classmethod
    def of(cls, node: fx.Node) -> _Part:
        rows, node = node, _rows_of(node)
        copied, calls, factor = node is not rows, [], None
        while True:
            if node.target in _VIEWS:
                calls.append(node)
            elif node.target is _aten.mul.Scalar and factor is None and len(node.users) == 1:
                factor = float(node.args[1])
            else:
                return cls(node, tuple(calls), factor, copied)
            node = node.args[0]

    def is_a_kernels(self) -> bool:
        return self.product.target not in _PRODUCTS and is_made(self.product)

    def is_read_at_once(self) -> bool:
        """Whether nothing but the join reads it: then a product may give it the other way round."""
        return len(self.product.users) == 1 and all(len(call.users) == 1 for call in self.calls)

    def written(self, rewriting: Rewriting, outer: Sequence[Any], heads: int | None) -> fx.Node:
        """As it lies, its columns as rows of `heads`; a product's the other way round where its columns are apart."""
        may_turn = self.product.target is _aten.bmm.default and self.is_read_at_once()
        value = self._behind(rewriting, self.product)
        if may_turn and example(value).stride(-1) != 1:
            lhs, rhs = (rewriting.call(self.product, _aten.transpose.int, each, 1, 2) for each in self.product.args)
            turned = rewriting.call(self.product, _aten.bmm.default, rhs, lhs)
            value = self._behind(rewriting, rewriting.call(turned, _aten.transpose.int, turned, 1, 2))
        if heads is None or example(value).shape[-1] == heads:
            return value
        sizes = [*outer, example(value).shape[-1] // heads, heads]
        return rewriting.call(value, _aten.view.default, value, sizes)

    def _behind(self, rewriting: Rewriting, value: fx.Node) -> fx.Node:
        for call in reversed(self.calls):
            value = rewriting.call(call, call.target, value, *call.args[1:])
        return value


def spell(graph: fx.Graph) -> set[int]:
    """Writes launches in the place of such joins, in place; returns their keys."""
    keys = set()
    for node in list(graph.nodes):
        if node.target is not _aten.cat.default or not _may_be(node):
            continue
        parts = [_Part.of(part) for part in node.args[0]]
        spared = any(part.copied or part.factor for part in parts)  # more than a launch that sums the rows, too, spares
        if any(part.is_a_kernels() for part in parts) or not (spared or any(part.calls for part in parts)):
            continue
        if not spared and takes(node):
            continue
        rewriting = Rewriting(graph)
        with graph.inserting_before(node):
            key = _launched(rewriting, node, parts)
        if key is not None:
            keys.add(key)
        rewriting.erase_dead()
    return keys


def _may_be(join: fx.Node) -> bool:
    value, values = example(join), [example(part) for part in join.args[0]]
    if value.dtype not in DTYPES or strides_if_not_contiguous(value) is not None or len(values) > PROGRAMS:
        return False
    known = all(isinstance(size, int) for each in values for size in each.shape[_dim(join):])
    alike = all((each.dtype, each.device, each.dim()) == (value.dtype, value.device, value.dim()) for each in values)
    return known and alike and 0 < _dim(join) and size_of(value, judged) >= SMALLEST


def _dim(join: fx.Node) -> int:
    return (join.args[1] if len(join.args) > 1 else 0) % example(join).dim()


def _launched(rewriting: Rewriting, join: fx.Node, parts: Sequence[_Part]) -> int | None:
    """The key of the launch that stands for the join, where there can be one."""
    dim, value = _dim(join), example(join)
    split = [(_columns(part), node.args[1][:-1]) for part, node in zip(parts, join.args[0]) if _splits(part, node)]
    heads, outer = split[0] if dim == value.dim() - 1 and split else (None, [])
    try:
        written = [part.written(rewriting, outer, heads) for part in parts]
    except RuntimeError:  # columns that are no rows of so many, or views that a product's other way round has not
        return None
    read = [example(each) for each in written]
    rank, trailing = value.dim() + (heads is not None), read[0].shape[dim + 1:]
    if any(each.dim() != rank or each.shape[dim + 1:] != trailing or each.stride(-1) != 1 for each in read):
        return None
    sizes = tuple(tuple(each.shape[dim:]) for each in read)
    strides = tuple(tuple(strides_if_not_contiguous(each) or ()) for each in read)
    factors = tuple(part.factor for part in parts)
    apart = [each for each, *other in zip(read, strides, factors) if any(other)]
    if 2 * sum(size_of(each, judged) for each in apart) < size_of(value, judged):  # ATen's is as good
        return None
    key = regions.register(_text(ELEMENT_TYPES[value.dtype], dim, sizes, strides, factors))
    if regions.not_lowered(key, value.device):
        return None
    launch = rewriting.call(join, regions.launch_op(len(parts), 1), *written, key)
    if heads is not None:
        launch = rewriting.call(launch, _aten.view.default, launch, [*outer, value.shape[-1]])
    rewriting.replace(join, launch)
    return key


def _rows_of(node: fx.Node) -> fx.Node:
    """What a call copies into rows, of several columns each where it joins them."""
    made = node
    if made.target in _RESHAPES and len(made.users) == 1 and _is_split(example(made.args[0]), example(made)):
        made = made.args[0]
    if made.target is _aten.clone.default and len(made.users) == 1:
        return made.args[0]
    return made if made is not node and strides_if_not_contiguous(example(made)) is not None else node


def _is_split(value: torch.Tensor, joined: torch.Tensor) -> bool:
    """Whether two dimensions, the last, of the one are the last of the other."""
    return value.dim() == joined.dim() + 1 and value.shape[:-2] == joined.shape[:-1]


def _splits(part: _Part, node: fx.Node) -> bool:
    return part.copied and node.target in _RESHAPES and _is_split(example(node.args[0]), example(node))


def _columns(part: _Part) -> int:
    return example(part.calls[0] if part.calls else part.product).shape[-1]


@functools.cache
def _text(
    element: str,
    dim: int,
    sizes: Sequence[Sequence[int]],
    strides: Sequence[Sequence[int]],
    factors: Sequence[float | None],
) -> str:
    text = Text("joined")
    rows, parts = tuple(f"r{axis}" for axis in range(dim)), []
    for index, (size, stride, factor) in enumerate(zip(sizes, strides, factors, strict=True)):
        part = text.builder.argument(TensorType((*rows, *size), element), f"part{index}", list(stride) or None)
        if factor is not None:
            part = text.cast(text.scaled(text.cast(part, "f32"), factor), element)
        parts.append(part)
    total = sum(size[0] for size in sizes)
    text.builder.result(text.builder.concat(parts, dim, TensorType((*rows, total, *sizes[0][1:]), element), "whole"))
    return text.builder.text()
