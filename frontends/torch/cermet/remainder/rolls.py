"""Rolled tensors, as launches: windows that are shifted over an image, forth and back.

ATen rolls one dimension after the other, element by element, each a kernel that reads and writes the whole. What is
rolled over two dimensions is four parts of the tensor in other places: the launch has a program for each, side by side,
which moves whole vectors from where the part lies to where it goes.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import torch
import torch.fx as fx

from ..graph.nodes import example
from ..graph.traffic import judged, size_of
from ..importing.importer import strides_if_not_contiguous
from ..ops import regions
from ..text import ELEMENT_TYPES, Builder, TensorType, Value
from .aten.rewriting import Rewriting
from .launching import PROGRAMS, SMALLEST

_aten = torch.ops.aten
_Axes = tuple[tuple[int, int], ...]  # each dimension that is rolled, and its first index that comes to the front


def spell(graph: fx.Graph) -> set[int]:
    """Writes launches in the place of rolls, in place; returns their keys."""
    rewriting, keys = Rewriting(graph), set()
    for node in graph.find_nodes(op="call_function", target=_aten.roll.default):
        axes = _axes(node)
        if not axes or not _is_taken(node, axes):
            continue
        with graph.inserting_before(node):
            parts = [_part(rewriting, node, axes, place) for place in itertools.product((0, 1), repeat=len(axes))]
            value = example(node)
            strides = tuple(tuple(strides_if_not_contiguous(example(part)) or ()) for part in parts)
            text = _text(ELEMENT_TYPES[value.dtype], _sizes(value, axes), tuple(axes.items()), strides)
            key = regions.register(text)
            if not regions.not_lowered(key, value.device):
                keys.add(key)
                rewriting.replace(node, rewriting.call(node, regions.launch_op(len(parts), 1), *parts, key))
    rewriting.erase_dead()
    return keys


def _axes(node: fx.Node) -> dict[int, int]:
    """The dimensions that are rolled, each with the first index that comes to the front."""
    value = example(node.args[0])
    if value.layout is not torch.strided or value.dtype not in ELEMENT_TYPES:
        return {}
    shifts, dims = node.args[1], node.args[2] if len(node.args) > 2 else ()
    axes: dict[int, int] = {}
    for shift, dim in zip(shifts, dims):
        axis, size = dim % value.dim(), value.shape[dim]
        if axis in axes or not isinstance(shift, int) or not isinstance(size, int) or not size:
            return {}
        axes[axis] = -shift % size
    return {axis: axes[axis] for axis in sorted(axes) if axes[axis]}


def _is_taken(node: fx.Node, axes: dict[int, int]) -> bool:
    """Whether rows stay whole, and all is known of the dimensions from the first that is rolled on."""
    value, rolled = example(node.args[0]), example(node)
    known = all(isinstance(size, int) for size in value.shape[min(axes):])
    in_rows = value.stride(-1) == 1 and strides_if_not_contiguous(rolled) is None
    is_large = size_of(rolled, judged) >= SMALLEST
    return known and in_rows and value.dim() - 1 not in axes and 1 << len(axes) <= PROGRAMS and is_large


def _part(rewriting: Rewriting, node: fx.Node, axes: dict[int, int], place: Sequence[int]) -> fx.Node:
    """What lies at a place of the result, by dimension the front or the rest of it."""
    part = node.args[0]
    for (axis, first), is_rest in zip(axes.items(), place):
        size = example(part).shape[axis]
        part = rewriting.call(node, _aten.slice.Tensor, part, axis, *((0, first) if is_rest else (first, size)))
    return part


def _sizes(value: torch.Tensor, axes: dict[int, int]) -> tuple[int | str, ...]:
    return (*(f"r{axis}" for axis in range(min(axes))), *value.shape[min(axes):])


@functools.cache
def _text(element: str, sizes: Sequence[int | str], axes: _Axes, strides: Sequence[Sequence[int]]) -> str:
    builder, given = Builder("roll"), iter(strides)

    def joined(sizes: Sequence[int | str], axes: _Axes) -> Value:
        """Of these sizes, of which what is rolled is to be joined."""
        type = TensorType(tuple(sizes), element)
        if not axes:
            return builder.argument(type, "part", list(next(given)) or None)
        (axis, first), *others = axes
        lengths = (sizes[axis] - first, first)
        halves = [joined((*sizes[:axis], length, *sizes[axis + 1:]), tuple(others)) for length in lengths]
        return builder.concat(halves, axis, type, "rolled")

    builder.result(joined(sizes, axes))
    return builder.text()
