"""What an ATen graph says of tensors of integers that number rows: which are permutations, and which are never
negative."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx as fx

from .layouts import written
from .nodes import example

_aten = torch.ops.aten
_SAME = {_aten.alias.default, _aten.detach.default, _aten.clone.default}
_VIEWS = {_aten.view.default, _aten._unsafe_view.default, _aten.unsqueeze.default, _aten.squeeze.dim}
_SORTS = {_aten.sort.default, _aten.sort.stable}
_EMPTY = {_aten.empty_like.default, _aten.empty.memory_format, _aten.new_empty.default}
_NEVER_NEGATIVE = "numbers of rows"  # in meta: a backward graph is given what a forward graph computed


def sizes(node: fx.Node) -> list[str]:
    return [written(size) for size in example(node).shape]


def plain(node: fx.Node) -> fx.Node:
    """The node behind calls that give the same tensor, or a copy of it."""
    while node.target in _SAME:
        node = node.args[0]
    return node


def is_permutation(node: Any) -> bool:
    """Whether a tensor of one dimension has each of 0, 1, ... once, by what makes it."""
    if not isinstance(node, fx.Node) or not isinstance(example(node), torch.Tensor) or example(node).dim() != 1:
        return False
    node = plain(node)
    return _sorted(node) is not None or is_permutation(_scattered(node))


def known_inverse(node: fx.Node) -> fx.Node | None:
    """The inverse of a permutation, if the graph has it."""
    node = plain(node)
    inverted = _scattered(node) or _sorted(node)
    if is_permutation(inverted):
        return plain(inverted)
    for user in node.users:
        sorting = [pick for pick in user.users if _sorted(pick) is node] if user.target in _SORTS else []
        for found in (user, *sorting):
            if _scattered(found) is node or found in sorting:
                return found
    return None


def quotient(node: fx.Node) -> tuple[fx.Node, int] | None:
    """The permutation, and by what positive number `node` has it divided, rounded down."""
    node = plain(node)
    floor = node.target is _aten.floor_divide.default
    floor |= node.target is _aten.div.Tensor_mode and node.kwargs.get("rounding_mode") in ("floor", "trunc")
    if not floor or not is_permutation(node.args[0]):
        return None
    by = node.args[1]
    return (plain(node.args[0]), by) if isinstance(by, int) and by > 0 else None


def never_negative(node: fx.Node) -> bool:
    """Whether no element of a tensor of integers can be below 0, as it can where numbers count from the end."""
    node = plain(node)
    if node.meta.get(_NEVER_NEGATIVE, False) or is_permutation(node) or quotient(node) is not None:
        return True
    if node.target in _VIEWS:
        return never_negative(node.args[0])
    if node.target is operator.getitem and node.args[0].target is _aten.topk.default:
        return node.args[1] == 1
    return node.target in (_aten.argmax.default, _aten.argmin.default) or _counts_up(node)


def note_numbers(graph: fx.Graph) -> None:
    """Leaves on what is never negative that it is, for graphs that are given it."""
    for node in graph.nodes:
        value = example(node)
        if isinstance(value, torch.Tensor) and value.dtype in (torch.int64, torch.int32) and never_negative(node):
            node.meta[_NEVER_NEGATIVE] = True


def _sorted(node: fx.Node) -> fx.Node | None:
    """What a tensor has the order of, if that has one dimension."""
    if node.target is not operator.getitem or node.args[1] != 1 or node.args[0].target not in _SORTS:
        return None
    source = node.args[0].args[0]
    return plain(source) if example(source).dim() == 1 else None


def _scattered(node: fx.Node) -> fx.Node | None:
    """The numbers p, as many as `node` has, in whose places `node` has 0, 1, ...: x[p] = arange(n)."""
    if node.target is not _aten.index_put.default or len(node.args) != 3 or len(node.args[1]) != 1:
        return None
    target, (places,), values = node.args
    if not isinstance(places, fx.Node) or target.target not in _EMPTY or not _counts_up(values, first=0):
        return None
    return plain(places) if sizes(node) == sizes(places) == sizes(values) and len(sizes(node)) == 1 else None


def _counts_up(node: fx.Node, first: int | None = None) -> bool:
    """Whether it is start, start + 1, ... of integers, none of them negative."""
    if node.target is _aten.arange.default:
        start = 0
    elif node.target is _aten.arange.start:
        start = node.args[0]
    elif node.target is _aten.arange.start_step and (len(node.args) < 3 or node.args[2] == 1):
        start = node.args[0]
    else:
        return False
    value = example(node)
    is_whole = isinstance(start, int) and start >= 0 and not value.dtype.is_floating_point
    return is_whole and (first is None or start == first)
