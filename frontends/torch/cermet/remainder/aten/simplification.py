"""What tracing leaves in an ATen graph that runs as it is: views of views, and copies that nobody needs, of handles and
of memory. A dropout of 0 is one, and so is what is joined to nothing, the first keys of a cache, or padded with that.

A graph that a compiler lowers pays nothing for them; one whose operations are called pays the dispatcher's time each.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable
from typing import Any

import torch
import torch.fx as fx

from ...graph import memory
from ...graph.layouts import row_major, strides, written
from ...graph.traffic import hint

_aten = torch.ops.aten
_SAME = {_aten.detach.default, _aten.alias.default}
_RESHAPES = {_aten.view.default, _aten._unsafe_view.default}


def drop_copies(graph: fx.Graph) -> None:
    """Those of memory, in place; of a joint graph, so that none is planned for as if it were something of its own."""
    outside = _outside(graph)

    def in_vain(node: fx.Node) -> bool:
        _join_nothing(node)
        _pad_nothing(node)
        _cut_zeros(node)
        return _copies_in_vain(node, outside)

    memory.leave_out(graph, in_vain)


def simplify(graph: fx.Graph) -> None:
    """In place; every output keeps its node, so that results share memory only where they did."""
    returned = set(graph.output_node().all_input_nodes)
    outside = _outside(graph)
    for node in list(graph.nodes):
        if node.target in _RESHAPES and _sums_alone(node):
            _keep_no_ones(node.args[0], node)
            _sum_unreshaped(node.args[0])
        _sum_unreshaped(node)
        source = node.args[0] if _copies_in_vain(node, outside) else _equal(node)
        if source is not None and node not in returned:
            node.replace_all_uses_with(source)
        elif node.target in _RESHAPES and _contiguous(base := _reshaped(node)):
            node.args = (base, *node.args[1:])
    idle = _SAME | _RESHAPES | {_aten.t.default, _aten.clone.default}
    for node in reversed(list(graph.nodes)):
        if not node.users and node.target in idle:
            graph.erase_node(node)


def _outside(graph: fx.Graph) -> frozenset[Hashable]:
    """The memory of what a graph is given and of what it returns."""
    nodes = (*graph.output_node().all_input_nodes, *graph.find_nodes(op="placeholder"))
    return memory.memories([node.meta.get("val") for node in nodes])


def _join_nothing(node: fx.Node) -> None:
    """Makes a copy of what is joined to empty tensors, of which torch takes those of one dimension for any."""
    if node.target is not _aten.cat.default:
        return
    parts = [part for part in node.args[0] if not _is_empty(part.meta["val"])]
    if len(parts) != 1 or len(node.args[0]) == 1:
        return
    part, whole = parts[0].meta["val"], node.meta["val"]
    if part.dtype == whole.dtype and _lies_in_rows(whole) and [*map(written, part.shape)] == _sizes(node):
        node.target, node.args = _aten.clone.default, (parts[0],)
        node.kwargs = {"memory_format": torch.contiguous_format}


def _pad_nothing(node: fx.Node) -> None:
    """Makes a copy of what is padded on no side, as a program does that pads to whole windows of any image."""
    if node.target is _aten.constant_pad_nd.default and not any(node.args[1]):
        node.target, node.args, node.kwargs = _aten.clone.default, node.args[:1], {}


def _cut_zeros(node: fx.Node) -> None:
    """Makes a copy of what is cut to what zeros were put around, as in the gradient of what was padded and cut, where
    attention wants aligned rows."""
    if node.target is not _aten.constant_pad_nd.default or node.args[0].target is not _aten.slice_backward.default:
        return
    cut, sizes, dim, start, end, step = node.args[0].args
    dim %= len(sizes)
    if step != 1 or not all(isinstance(each, int) for each in (sizes[dim], start, end)):
        return
    start, end = (min(each + sizes[dim] * (each < 0), sizes[dim]) for each in (start, end))
    sides = [0] * (2 * len(sizes))
    at = 2 * (len(sizes) - 1 - dim)  # the last dimension's are the first
    sides[at : at + 2] = -start, end - sizes[dim]
    padding = [*node.args[1], *[0] * (len(sides) - len(node.args[1]))]
    if all(isinstance(each, int) for each in padding) and padding == sides and _lies_in_rows(node.meta["val"]):
        node.target, node.args = _aten.clone.default, (cut,)
        node.kwargs = {"memory_format": torch.contiguous_format}
        if all(user.target is _aten.sum.dim_IntList for user in node.users) and _is_in_order(cut.meta["val"]):
            node.replace_all_uses_with(cut)  # whose sums lie as those of the copy do


def _is_in_order(value: torch.Tensor) -> bool:
    """Whether its dimensions lie in memory as they stand, with gaps or without."""
    strides = list(map(hint, value.stride()))
    return strides == sorted(strides, reverse=True)


def _is_empty(value: torch.Tensor) -> bool:
    return any(isinstance(size, int) and not size for size in value.shape)


def _lies_in_rows(value: torch.Tensor) -> bool:
    return [*map(written, value.stride())] == [*map(written, strides(value.shape, None))]


def _copies_in_vain(node: fx.Node, outside: frozenset[Hashable]) -> bool:
    """Whether a copy lies as what it copies does, and neither is in memory that others have: nothing writes them. Or
    what it copies was made for it alone: then they may have that."""
    if node.target is not _aten.clone.default:
        return False
    copy, copied = node.meta["val"], node.args[0].meta["val"]
    if [*map(written, _place(copy))] != [*map(written, _place(copied))]:
        return False
    return outside.isdisjoint(memory.memories([copied] if _is_made_for_one(node.args[0]) else [copy, copied]))


def _is_made_for_one(node: fx.Node) -> bool:
    """Whether a value has memory of its own, and one reader."""
    call = node.args[0] if node.target is operator.getitem else node
    given = memory.memories([operand.meta.get("val") for operand in call.all_input_nodes])
    return call.op == "call_function" and len(node.users) == 1 and given.isdisjoint(memory.memories(node.meta["val"]))


def _place(value: torch.Tensor) -> tuple[Any, ...]:
    return (*value.stride(), value.storage_offset())


def _equal(node: fx.Node) -> fx.Node | None:
    """An earlier node that is the same tensor."""
    if node.target in _SAME:
        return node.args[0]
    if node.target is _aten.t.default and node.args[0].target is _aten.t.default:
        return node.args[0].args[0]
    if node.target in _RESHAPES and _contiguous(base := _reshaped(node)) and _sizes(base) == _sizes(node):
        return base
    return None


def _sums_alone(node: fx.Node) -> bool:
    """Whether a reshape does nothing but drop the ones that a sum has kept for it: a bias gradient's."""
    total = node.args[0]
    if total.target is not _aten.sum.dim_IntList or len(total.users) != 1 or len(total.args) < 3 or not total.args[2]:
        return False
    rank = total.args[0].meta["val"].dim()
    dims = {dim % rank for dim in total.args[1]} if total.args[1] else set(range(rank))
    return [size for dim, size in enumerate(_sizes(total)) if dim not in dims] == _sizes(node)


def _keep_no_ones(total: fx.Node, reshape: fx.Node) -> None:
    total.args = (*total.args[:2], False, *total.args[3:])
    total.meta["val"] = reshape.meta["val"]


def _sum_unreshaped(total: fx.Node) -> None:
    """A sum over all rows reads what a reshape made one dimension of: in a bias gradient that is a product of symbols,
    which no kernel would be given."""
    if total.target is not _aten.sum.dim_IntList:
        return
    viewed, dims, *rest = total.args
    rank = viewed.meta["val"].dim()
    if any(rest) or sorted(dim % rank for dim in dims or ()) != [*range(rank - 1)]:
        return
    base = viewed
    while base.target in _RESHAPES and len(sizes := _sizes(base.args[0])) > 1 and sizes[-1] == _sizes(viewed)[-1]:
        base = base.args[0]
    total.args = (base, [*range(len(_sizes(base)) - 1)], *rest)


def _reshaped(node: fx.Node) -> fx.Node:
    """What a chain of reshapes begins with."""
    source = node.args[0]
    while source.target in _RESHAPES and _contiguous(source.args[0]):
        source = source.args[0]
    return source


def _sizes(node: fx.Node) -> list[str]:
    return [written(size) for size in node.meta["val"].shape]


def _contiguous(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and row_major(value)
