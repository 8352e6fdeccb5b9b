"""Gradients of embeddings, and of rows chosen by index, become sums of rows.

Row v of such a gradient is the sum of the cotangent's rows whose token is v. ATen sorts the tokens and adds parts of
those sums to a buffer of the gradient's width, with a place for every row that a part could need, and then those to a
gradient of zeros. Where the tokens are sorted, each row of the gradient knows the places in their order where its own
begin and end: a kernel reads these and writes the row once, with what is added to it elsewhere. One before it adds the
rows of equal parts of the order, so that a token which is half of all keeps more than one block busy. Of rows chosen by
index, as each token of a mixture chooses its expert's bias, ATen adds those of equal number one after the other.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import Any

import torch
import torch.fx as fx

from ..graph.layouts import written
from ..graph.numbers import narrowest
from ..graph.traffic import judged, longest, size_of
from ..ops import bags
from .aten.gathers import ZEROS
from .aten.rewriting import Rewriting

_aten = torch.ops.aten
_DTYPES = {torch.bfloat16, torch.float16, torch.float32}
_FEWEST = 3073  # tokens: fewer are added by one kernel of ATen's, without a buffer
_SMALLEST = 1 << 20  # bytes of a gradient: what is worth a kernel of its own
_OFTEN = 32  # tokens of a row on average: what ATen adds one after the other takes longer
_FEWEST_COLUMNS = 8
_ADDITIONS = {_aten.index_put.default, _aten._unsafe_index_put.default}


@dataclasses.dataclass(frozen=True)
class _Sum:
    """Rows of `added` [*tokens, columns], each added to the row of its token."""

    added: fx.Node
    tokens: fx.Node
    rows: int
    padding: int = -1  # a token that has no row
    wraps: bool = False  # whether a token below 0 is counted from the end


def add_rows(graph: fx.Graph, is_backward: bool = True) -> int:
    """Rewrites a functional ATen graph in place; returns how many gradients are sums. What a program adds by index
    itself, elsewhere than in a backward, stays: ATen refuses an index that no row has."""
    rewriting = _Rewriting(graph)
    for node in list(graph.nodes):
        if node.target is _aten.embedding_dense_backward.default:
            found = _of_an_embedding(node)
        elif node.target in _ADDITIONS and is_backward:
            found = _of_a_choice(node)
        else:
            continue
        if found is not None and _is_worth(node, found):
            rewriting.add(node, found)
    rewriting.erase_dead()
    return rewriting.times


def _of_an_embedding(node: fx.Node) -> _Sum | None:
    cotangent, tokens, rows, padding, scales = node.args
    return None if scales or size_of(node.meta["val"]) < _SMALLEST else _Sum(cotangent, tokens, rows, padding)


def _of_a_choice(node: fx.Node) -> _Sum | None:
    """Of `x[index]`, rows of a matrix."""
    zeros, indices, added, *accumulate = node.args
    value = node.meta["val"]
    if accumulate != [True] or zeros.target not in ZEROS or len(indices) != 1 or value.dim() != 2:
        return None
    rows, columns = value.shape
    index, given = indices[0].meta["val"], added.meta["val"]
    for_each = [*map(written, index.shape), str(columns)]  # fewer rows would be added several times
    if not isinstance(rows, int) or not isinstance(columns, int) or columns < _FEWEST_COLUMNS:
        return None
    if index.dtype not in (torch.int64, torch.int32) or [*map(written, given.shape)] != for_each:
        return None
    is_often = judged(math.prod(index.shape), longest) >= _OFTEN * rows
    return _Sum(added, indices[0], rows, wraps=True) if is_often or size_of(value) >= _SMALLEST else None


def _is_worth(node: fx.Node, found: _Sum) -> bool:
    value, added, tokens = (each.meta["val"] for each in (node, found.added, found.tokens))
    is_known = value.dtype in _DTYPES and all(isinstance(size, int) for size in value.shape)
    dense = tokens.is_contiguous() and (added.is_contiguous() or all(isinstance(size, int) for size in added.shape))
    return is_known and dense and judged(math.prod(tokens.shape), longest) >= _FEWEST


@dataclasses.dataclass(frozen=True)
class _Order:
    """Places of tokens in their order: all, those where each row begins and ends, and those of equal parts."""

    places: fx.Node
    rows: tuple[fx.Node, fx.Node]
    parts: tuple[fx.Node, fx.Node]


class _Rewriting(Rewriting):
    def __init__(self, graph: fx.Graph) -> None:
        super().__init__(graph)
        self._orders: dict[tuple[Any, ...], _Order] = {}

    def add(self, node: fx.Node, found: _Sum) -> None:
        with self.graph.inserting_before(node):
            order, added = self._order(node, found), found.added
            if not added.meta["val"].is_contiguous():  # which ATen copies, too
                added = self.call(node, _aten.clone.default, added, memory_format=torch.contiguous_format)
            added = self.call(node, _aten.view.default, added, [-1, node.meta["val"].shape[1]])
            parts = self.call(node, bags.OP, added, order.places, *order.parts, None, True)
            result = self.call(node, bags.OP, added, order.places, *order.rows, parts, False)
        self.replace(node, result)

    def _order(self, node: fx.Node, found: _Sum) -> _Order:
        key = found.tokens, found.rows, found.padding, found.wraps
        if key not in self._orders:
            self._orders[key] = self._ordered(node, found)
        return self._orders[key]

    def _ordered(self, node: fx.Node, found: _Sum) -> _Order:
        def call(target: Any, *args: Any, **kwargs: Any) -> fx.Node:
            return self.call(node, target, *args, **kwargs)

        rows, like = found.rows, found.tokens.meta["val"]
        numbers = call(_aten.view.default, found.tokens, [-1])
        if found.padding >= 0:  # the last in the order, of no row
            numbers = call(_aten.masked_fill.Scalar, numbers, call(_aten.eq.Scalar, numbers, found.padding), rows)
        if found.wraps:
            from_the_end, is_negative = call(_aten.add.Tensor, numbers, rows), call(_aten.lt.Scalar, numbers, 0)
            numbers = call(_aten.where.self, is_negative, from_the_end, numbers)
        narrow = narrowest((0, rows), like.dtype)
        if narrow != like.dtype:  # which takes fewer passes (aten/sorts.py)
            numbers = call(_aten._to_copy.default, numbers, dtype=narrow)
        ordered = call(_aten.sort.stable, numbers, stable=True)
        ascending, places = (call(operator.getitem, ordered, result) for result in range(2))
        every = call(_aten.arange.default, rows + 1, dtype=narrow, device=like.device)
        edges = call(_aten.searchsorted.Tensor, ascending, every)
        begins, ends = call(_aten.slice.Tensor, edges, 0, 0, rows), call(_aten.slice.Tensor, edges, 0, 1, rows + 1)
        symbolic = not isinstance(like.numel(), int)
        count = call(_aten.sym_size.int, numbers, 0) if symbolic else like.numel()
        first = call(_aten.arange.start_step, 0, count, bags.PART, device=like.device)
        return _Order(places, (begins, ends), (first, call(_aten.add.Tensor, first, bags.PART)))
