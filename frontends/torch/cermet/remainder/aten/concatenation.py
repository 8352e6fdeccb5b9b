"""Sums of the gradients of slices become one concatenation, and what is read turned is concatenated turned.

A slice's gradient is a tensor of the whole's size, zeros but for the slice; what was cut into pieces (queries, keys and
values out of one product) adds as many of them as it has pieces, and each is filled, written and read once more. So is
that of one index of a dimension.

Heads are concatenated before they are turned into rows of a product: that would copy each element a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx

from ...graph.layouts import written
from .rewriting import Rewriting

_aten = torch.ops.aten
_SUM, _JOIN = _aten.add.Tensor, _aten.cat.default
_SLICE, _INDEX = _aten.slice_backward.default, _aten.select_backward.default
_PIECES = {_SLICE, _INDEX}
_TURNED = {_aten.transpose.int, _aten.permute.default}


def join(graph: fx.Graph) -> int:
    """Makes sums of `slice_backward`s or `select_backward`s that tile a dimension `cat`s, in place. How many it did."""
    times, writing = 0, Rewriting(graph)
    for node in reversed(list(graph.nodes)):  # a whole sum before its parts
        if node.target is not _SUM or node._erased:
            continue
        terms = _terms(node)
        pieces = _tiles(terms) if terms is not None else None
        if pieces is None:
            continue
        values, dim = [piece.args[0] for piece in pieces], pieces[0].args[2]
        value = _joined(node, pieces, dim)
        if value is None:
            continue
        with graph.inserting_before(node):
            if pieces[0].target is _INDEX:
                values = [writing.call(each, _aten.unsqueeze.default, each, dim) for each in values]
            joined = graph.call_function(_JOIN, (values, dim))
        joined.meta = {**node.meta, "val": value}
        node.replace_all_uses_with(joined)
        _erase(graph, node)
        times += 1
    return times


def turn(graph: fx.Graph) -> int:
    """Makes copies of turned `cat`s that nothing else reads a `cat` of what is turned, in place; returns how many."""
    writing = Rewriting(graph)
    for node in list(graph.nodes):
        joined = _turned_before(node)
        if joined is None:
            continue
        order, dim = _order(node.args[0]), joined.args[1] if len(joined.args) > 1 else 0
        with graph.inserting_before(node):
            parts = [writing.call(each, _aten.permute.default, each, order) for each in joined.args[0]]
            writing.replace(node, writing.call(node, _JOIN, parts, order.index(dim % len(order))))
    writing.erase_dead()
    return writing.times


def _turned_before(node: fx.Node) -> fx.Node | None:
    """The `cat` that a copy into rows reads turned, both alone."""
    if node.target is not _aten.clone.default or node.kwargs.get("memory_format") is not torch.contiguous_format:
        return None
    turned = node.args[0]
    if turned.target not in _TURNED or len(turned.users) != 1:
        return None
    joined = turned.args[0]
    if joined.target is not _JOIN or len(joined.users) != 1 or joined.kwargs:
        return None
    ranks = {part.meta["val"].dim() for part in joined.args[0]}  # of one dimension, with nothing in it, any may be
    return joined if ranks == {joined.meta["val"].dim()} else None


def _order(turned: fx.Node) -> list[int]:
    rank = turned.meta["val"].dim()
    if turned.target is _aten.permute.default:
        return [dim % rank for dim in turned.args[1]]
    order = list(range(rank))
    one, other = (dim % rank for dim in turned.args[1:3])
    order[one], order[other] = other, one
    return order


def _terms(node: fx.Node) -> list[fx.Node] | None:
    """The slices' gradients that a sum adds, none of which anything else reads."""
    if node.kwargs or len(node.args) != 2:
        return None
    found: list[fx.Node] = []
    for term in node.args:
        if not isinstance(term, fx.Node) or len(term.users) != 1:
            return None
        inner = [term] if term.target in _PIECES else _terms(term) if term.target is _SUM else None
        if inner is None:
            return None
        found += inner
    return found


def _tiles(terms: Sequence[fx.Node]) -> list[fx.Node] | None:
    """The terms in the order of their slices, if those are all of one dimension."""
    first = terms[0]
    arguments = {_SLICE: 6, _INDEX: 4}[first.target]
    if any(term.target is not first.target or term.kwargs or len(term.args) != arguments for term in terms):
        return None
    if any(term.args[1:3] != first.args[1:3] for term in terms):
        return None
    size = first.args[1][first.args[2]]
    if not all(isinstance(bound, int) for bound in (size, *(bound for term in terms for bound in term.args[3:]))):
        return None
    if first.target is _INDEX:
        placed = sorted((term.args[3] % size, term.args[3] % size + 1, index) for index, term in enumerate(terms))
    elif any(term.args[5] != 1 for term in terms):
        return None
    else:
        placed = sorted((*slice(*term.args[3:5]).indices(size)[:2], index) for index, term in enumerate(terms))
    ends = [0, *(stop for _, stop, _ in placed)]
    if [start for start, _, _ in placed] != ends[:-1] or ends[-1] != size:
        return None
    return [terms[index] for _, _, index in placed]


def _joined(node: fx.Node, pieces: Sequence[fx.Node], dim: int) -> torch.Tensor | None:
    """The fake concatenation, if it can stand for the sum: a view of that may need its strides."""
    old = node.meta["val"]
    mode = getattr(old, "fake_mode", None)
    if mode is None:
        return None
    with mode:
        values = [piece.args[0].meta["val"] for piece in pieces]
        value = _JOIN([each.unsqueeze(dim) if pieces[0].target is _INDEX else each for each in values], dim)
    return value if _form(value) == _form(old) else None


def _form(value: torch.Tensor) -> tuple[Any, ...]:
    return value.dtype, *map(written, value.shape), *map(written, value.stride())


def _erase(graph: fx.Graph, node: fx.Node) -> None:
    inputs = [source for source in node.all_input_nodes if source.target is _SUM or source.target in _PIECES]
    graph.erase_node(node)
    for source in inputs:
        if source.target is _SUM:
            _erase(graph, source)
        else:
            graph.erase_node(source)
