"""Products of odd widths run on tensors that are padded with zeros to whole pieces of sixteen bytes.

A GPU's matrix units are fed sixteen bytes at a time. Where a row of sixteen-bit numbers ends in the midst of them, as
over a vocabulary of 50257 words, torch's products take kernels that load two or four bytes and run at a third to a
seventh of the speed: more than a copy of every operand costs. (A longer distance between rows is not enough: the width
itself decides.)
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

from ...graph.layouts import written
from ...graph.traffic import judged

_aten = torch.ops.aten
_PRODUCT, _SUM = _aten.mm.default, _aten.addmm.default
_VIEWS = {_aten.view.default, _aten._unsafe_view.default, _aten.t.default, _aten.transpose.int, _aten.detach.default}
_BYTES = 16
_LEAST = 256  # multiplications for each byte that is copied: below, the copies may cost what the product gains


def align(graph: fx.Graph, devices: frozenset[str] = frozenset({"cuda"})) -> int:
    """Pads such products on these kinds of devices, in place; returns how many. What a graph returns stays as dense as
    it was."""
    copies: dict[tuple[fx.Node, int, int], fx.Node] = {}
    products = [node for node in graph.nodes if node.target in (_PRODUCT, _SUM) and not node.kwargs]
    return sum(_align(graph, node, copies) for node in products if node.meta["val"].device.type in devices)


def _align(graph: fx.Graph, node: fx.Node, copies: dict[tuple[fx.Node, int, int], fx.Node]) -> bool:
    *bias, left, right = node.args
    value, a, b = (item.meta["val"] for item in (node, left, right))
    if value.element_size() != 2 or (bias and bias[0].meta["val"].dim() != 1):
        return False
    by_rows = [written(item.stride(-1)) == "1" for item in (a, b)]
    if not all(rows or written(item.stride(0)) == "1" for rows, item in zip(by_rows, (a, b))):
        return False
    # How much each extent lacks, where some operand's or the result's memory runs along it.
    rows = _lack(a.shape[0]) if not by_rows[0] else 0
    inner = _lack(a.shape[1]) if by_rows[0] or not by_rows[1] else 0
    columns = _lack(b.shape[1])
    pads = ((left, rows, inner), (right, inner, columns))
    if not (rows or inner or columns):
        return False
    sizes = [int(judged(size)) for size in (a.shape[0], a.shape[1], b.shape[1])]
    copied = sum(2 * item.meta["val"].numel() for item, *pad in pads if any(pad) and (item, *pad) not in copies)
    copied += 2 * sizes[0] * sizes[2] * bool(columns)
    if sizes[0] * sizes[1] * sizes[2] < _LEAST * judged(copied):
        return False
    with graph.inserting_before(node):
        operands = [_padded(graph, item, *pad, copies) for item, *pad in pads]
        if bias and columns:
            bias = [_call(graph, _aten.constant_pad_nd.default, bias[0], [0, columns])]
        result = _call(graph, node.target, *bias, *operands)
        if rows:
            result = _call(graph, _aten.slice.Tensor, result, 0, 0, a.shape[0])
        if columns:
            result = _call(graph, _aten.slice.Tensor, result, 1, 0, b.shape[1])
            if not _takes(node, result.meta["val"]):
                result = _call(graph, _aten.clone.default, result, memory_format=torch.contiguous_format)
    result.meta = {**node.meta, "val": result.meta["val"]}
    node.replace_all_uses_with(result)
    if result.target is not _aten.clone.default:
        _renew(result)
    graph.erase_node(node)
    return True


def _lack(size: Any) -> int:
    """Numbers of sixteen bits to the next whole piece; of a size that is not known, none."""
    return -size % (_BYTES // 2) if isinstance(size, int) and size else 0


def _padded(
    graph: fx.Graph, node: fx.Node, rows: int, columns: int, copies: dict[tuple[fx.Node, int, int], fx.Node]
) -> fx.Node:
    """A matrix with so many more rows and columns of zeros, in its memory order."""
    if not (rows or columns):
        return node
    if written(node.meta["val"].stride(-1)) != "1":
        other = node.args[0] if node.target is _aten.t.default else _call(graph, _aten.t.default, node)
        return _call(graph, _aten.t.default, _padded(graph, other, columns, rows, copies))
    key = (node, rows, columns)
    if key not in copies:
        copies[key] = _call(graph, _aten.constant_pad_nd.default, node, [0, columns, 0, rows])
    return copies[key]


def _call(graph: fx.Graph, target: Any, *arguments: Any, **settings: Any) -> fx.Node:
    node = graph.call_function(target, arguments, settings)
    node.meta["val"] = _value(node, *arguments)
    return node


def _value(node: fx.Node, *arguments: Any) -> torch.Tensor:
    """What a call gives for these arguments, nodes and values, in the place of its own."""
    args, kwargs = fx.node.map_arg((arguments, node.kwargs), lambda item: item.meta["val"])
    return node.target(*args, **kwargs)


def _takes(node: fx.Node, value: torch.Tensor) -> bool:
    """Whether all that reads a node, and all that has its memory, may read `value` in its place."""
    for user in node.users:
        if user.op == "output":
            return False
        if user.target in _VIEWS:
            try:
                again = _value(user, value, *user.args[1:])
            except Exception:  # this view would need a copy
                return False
            if not _takes(user, again):
                return False
        elif not isinstance(user.target, torch._ops.OpOverload) or user.target._schema.is_mutable or user.target.is_view:
            return False
    return True


def _renew(node: fx.Node) -> None:
    """Gives what has a node's memory the strides that it has now."""
    for user in node.users:
        if user.target in _VIEWS:
            user.meta["val"] = _value(user, *user.args)
            _renew(user)
