"""Sums of the gradients of slices become one concatenation.

A slice's gradient is a tensor of the whole's size, zeros but for the slice; what was cut into pieces (queries, keys and
values out of one product) adds as many of them as it has pieces, and each is filled, written and read once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx

from ...graph.layouts import written

_aten = torch.ops.aten
_SUM, _PIECE, _JOIN = _aten.add.Tensor, _aten.slice_backward.default, _aten.cat.default


def join(graph: fx.Graph) -> int:
    """Makes sums of `slice_backward`s whose slices tile a dimension a `cat`, in place; returns how many."""
    times = 0
    for node in reversed(list(graph.nodes)):  # a whole sum before its parts
        if node.target is not _SUM or node._erased:
            continue
        terms = _terms(node)
        pieces = _tiles(terms) if terms is not None else None
        if pieces is None:
            continue
        values, dim = [piece.args[0] for piece in pieces], pieces[0].args[2]
        value = _joined(node, values, dim)
        if value is None:
            continue
        with graph.inserting_before(node):
            joined = graph.call_function(_JOIN, (values, dim))
        joined.meta = {**node.meta, "val": value}
        node.replace_all_uses_with(joined)
        _erase(graph, node)
        times += 1
    return times


def _terms(node: fx.Node) -> list[fx.Node] | None:
    """The slices' gradients that a sum adds, none of which anything else reads."""
    if node.kwargs or len(node.args) != 2:
        return None
    found: list[fx.Node] = []
    for term in node.args:
        if not isinstance(term, fx.Node) or len(term.users) != 1:
            return None
        inner = [term] if term.target is _PIECE else _terms(term) if term.target is _SUM else None
        if inner is None:
            return None
        found += inner
    return found


def _tiles(terms: Sequence[fx.Node]) -> list[fx.Node] | None:
    """The terms in the order of their slices, if those are all of one dimension."""
    if any(term.kwargs or len(term.args) != 6 for term in terms):
        return None
    first = terms[0]
    if any(term.args[1:3] != first.args[1:3] or term.args[5] != 1 for term in terms):
        return None
    size = first.args[1][first.args[2]]
    if not all(isinstance(bound, int) for bound in (size, *(bound for term in terms for bound in term.args[3:5]))):
        return None
    placed = sorted((*slice(*term.args[3:5]).indices(size)[:2], index) for index, term in enumerate(terms))
    ends = [0, *(stop for _, stop, _ in placed)]
    if [start for start, _, _ in placed] != ends[:-1] or ends[-1] != size:
        return None
    return [terms[index] for _, _, index in placed]


def _joined(node: fx.Node, values: Sequence[fx.Node], dim: int) -> torch.Tensor | None:
    """The fake concatenation, if it can stand for the sum: a view of that may need its strides."""
    old = node.meta["val"]
    mode = getattr(old, "fake_mode", None)
    if mode is None:
        return None
    with mode:
        value = _JOIN([piece.meta["val"] for piece in values], dim)
    return value if _form(value) == _form(old) else None


def _form(value: torch.Tensor) -> tuple[Any, ...]:
    return value.dtype, *map(written, value.shape), *map(written, value.stride())


def _erase(graph: fx.Graph, node: fx.Node) -> None:
    inputs = [source for source in node.all_input_nodes if source.target in (_SUM, _PIECE)]
    graph.erase_node(node)
    for source in inputs:
        if source.target is _SUM:
            _erase(graph, source)
        else:
            graph.erase_node(source)
