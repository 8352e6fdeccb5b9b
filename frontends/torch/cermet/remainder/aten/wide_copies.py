"""Copies that change the order of rows in memory move sixteen bytes at a time.

ATen copies a strided tensor element by element, and elements of two bytes far below what memory gives. Where a tensor's
rows lie in whole pieces of sixteen bytes, the same bytes are copied as elements of that size. Only of memory that the
graph itself allocates: what it is given may begin in the middle of sixteen bytes at the next call.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ...graph.layouts import row_major

_aten = torch.ops.aten
_WIDE = torch.complex128
_SMALLEST = 1 << 20  # bytes: below, two more calls cost more than they save


def widen(graph: fx.Graph) -> int:
    """Makes such copies of `clone`s into row-major memory, in place; returns how many."""
    copies = [node for node in graph.nodes if _is_copy(node) and _is_made(node.args[0])]
    copies = [node for node in copies if _is_wide(node.args[0].meta.get("val"))]
    for node in copies:
        with graph.inserting_before(node):
            wide = _call(_aten.view.dtype, node.args[0], _WIDE)
            copied = _call(_aten.clone.default, wide, memory_format=torch.contiguous_format)
            result = _call(_aten.view.dtype, copied, node.meta["val"].dtype)
        result.meta = {**node.meta, "val": result.meta["val"]}
        node.replace_all_uses_with(result)
        graph.erase_node(node)
    return len(copies)


def _call(target: Any, source: fx.Node, *arguments: Any, **settings: Any) -> fx.Node:
    node = source.graph.call_function(target, (source, *arguments), settings)
    node.meta["val"] = target(source.meta["val"], *arguments, **settings)
    return node


def _is_copy(node: fx.Node) -> bool:
    return node.target is _aten.clone.default and node.kwargs.get("memory_format") is torch.contiguous_format


def _is_made(node: fx.Node) -> bool:
    """Whether a tensor lies in memory that an operation of the graph allocated."""
    while shares_memory(node.target):
        node = node.args[0]
    return isinstance(node.target, torch._ops.OpOverload)


def shares_memory(target: Any) -> bool:
    """Whether a result is its first operand or a view of it."""
    if target is operator.getitem or target is _aten._unsafe_view.default:
        return True
    return isinstance(target, torch._ops.OpOverload) and (target.is_view or target._schema.is_mutable)


def _is_wide(value: Any) -> bool:
    """Whether a tensor's rows are whole elements of sixteen bytes, not in row-major order already."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.dim() < 2 or row_major(value):
        return False
    sizes, strides = value.shape, value.stride()
    if all(isinstance(size, int) for size in sizes) and value.numel() * value.element_size() < _SMALLEST:
        return False
    many = _WIDE.itemsize // value.element_size()
    whole = (sizes[-1], *strides[:-1], value.storage_offset())
    return statically_known_true(strides[-1] == 1) and all(statically_known_true(each % many == 0) for each in whole)
