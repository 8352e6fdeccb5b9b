"""Padded tensors whose rows stay whole, as launches: an image in rows of channels with a row more at one side, as a
convolution reads it that halves the image.

ATen fills the whole and then copies into it, element by element. The launch has a program for what is padded and one
for each side that is put on, and the second stage stores what a launch before it makes where the padded tensor has it.
What cuts instead, the gradient of a pad, is a slice, which a launch reads as it lies.
"""

from __future__ import annotations

import functools
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
_Sides = tuple[tuple[int, int, int], ...]  # each dimension that is padded, and how much before and behind


def spell(graph: fx.Graph) -> set[int]:
    """Writes launches and slices in the place of pads, in place; returns the keys of what is launched."""
    rewriting, keys = Rewriting(graph), set()
    for node in graph.find_nodes(op="call_function", target=_aten.constant_pad_nd.default):
        sides = _sides(node)
        if not sides:
            continue
        with graph.inserting_before(node):
            if all(max(amounts) <= 0 for _, *amounts in sides):
                _cut(rewriting, node, sides)
            elif _is_taken(node, sides):
                source, fill = node.args[0], float(node.args[2] if len(node.args) > 2 else 0)
                strides = tuple(strides_if_not_contiguous(example(source)) or ())
                text = _text(ELEMENT_TYPES[example(node).dtype], _dims(example(source), sides), sides, fill, strides)
                key = regions.register(text)
                if not regions.not_lowered(key, example(node).device):
                    keys.add(key)
                    rewriting.replace(node, rewriting.call(node, regions.launch_op(1, 1), source, key))
    rewriting.erase_dead()
    return keys


def _sides(node: fx.Node) -> _Sides:
    """By dimension. Of the last one, or by a symbol or with one, none at all."""
    value, amounts, *fill = example(node.args[0]), *node.args[1:]
    known = all(isinstance(each, (int, float)) for each in (*amounts, *fill)) and not node.kwargs
    if not known or value.layout is not torch.strided or value.dtype not in ELEMENT_TYPES or any(amounts[:2]):
        return ()
    pairs = [(value.dim() - 1 - place, *amounts[2 * place : 2 * place + 2]) for place in range(len(amounts) // 2)]
    return tuple(sorted(pair for pair in pairs if any(pair[1:])))


def _is_taken(node: fx.Node, sides: _Sides) -> bool:
    """Whether nothing is cut, and all is known of the dimensions from the first that is padded on."""
    value, padded = example(node.args[0]), example(node)
    known = all(isinstance(size, int) and size for size in value.shape[sides[0][0] :])
    pieces = [amount for _, *amounts in sides for amount in amounts if amount]
    in_rows = value.stride(-1) == 1 and strides_if_not_contiguous(padded) is None
    return known and in_rows and min(pieces) > 0 and len(pieces) < PROGRAMS and size_of(padded, judged) >= SMALLEST


def _cut(rewriting: Rewriting, node: fx.Node, sides: _Sides) -> None:
    """A copy of a slice, for whom the slice is not enough."""
    made = node.args[0]
    for dim, before, behind in sides:
        end = behind if behind else 2**63 - 1
        made = rewriting.call(node, _aten.slice.Tensor, made, dim, -before, end)
    copy = rewriting.call(node, _aten.clone.default, made, memory_format=torch.contiguous_format)
    rewriting.replace(node, copy)


def _dims(value: torch.Tensor, sides: _Sides) -> tuple[int | str, ...]:
    first = sides[0][0]
    return (*(f"r{axis}" for axis in range(first)), *value.shape[first:])


@functools.cache
def _text(element: str, dims: Sequence[int | str], sides: _Sides, fill: float, strides: Sequence[int]) -> str:
    builder = Builder("pad")
    made: Value = builder.argument(TensorType(tuple(dims), element), "x", list(strides) or None)
    for dim, *amounts in reversed(sides):
        sizes = list(made.type.dims)
        pieces = [made]
        for place, amount in enumerate(amounts):
            if amount:
                type = TensorType((*sizes[:dim], amount, *sizes[dim + 1 :]), element)
                pieces.insert(len(pieces) * place, builder.constant(fill, type, "fill"))
        whole = (*sizes[:dim], sizes[dim] + sum(amounts), *sizes[dim + 1 :])
        made = builder.concat(pieces, dim, TensorType(whole, element), "padded")
    builder.result(made)
    return builder.text()
