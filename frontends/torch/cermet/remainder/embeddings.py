"""Gradients of embeddings become sums of rows.

Row v of such a gradient is the sum of the cotangent's rows whose token is v. ATen sorts the tokens and adds parts of
those sums to a buffer of the gradient's width, with a place for every row that a part could need, and then those to a
gradient of zeros. Where the tokens are sorted, each row of the gradient knows the places in their order where its own
begin and end: a kernel reads these and writes the row once, with what is added to it elsewhere. One before it adds the rows of
equal parts of the order, so that a token which is half of all keeps more than one block busy.
"""

from __future__ import annotations

import math
import operator

import torch
import torch.fx as fx

from ..graph.numbers import narrowest
from ..graph.traffic import judged, longest, size_of
from ..ops import bags
from .aten.rewriting import Rewriting

_aten = torch.ops.aten
_DTYPES = {torch.bfloat16, torch.float16, torch.float32}
_FEWEST = 3073  # tokens: fewer are added by one kernel of ATen's, without a buffer
_SMALLEST = 1 << 20  # bytes of a gradient: what is worth a kernel of its own


def add_rows(graph: fx.Graph) -> int:
    """Rewrites a functional ATen graph in place; returns how many gradients are sums."""
    rewriting = Rewriting(graph)
    for node in list(graph.nodes):
        if node.target is _aten.embedding_dense_backward.default and _is_worth(node):
            _add_rows(rewriting, node)
    rewriting.erase_dead()
    return rewriting.times


def _is_worth(node: fx.Node) -> bool:
    cotangent, tokens, _, _, scales = node.args
    value, count = node.meta["val"], judged(math.prod(tokens.meta["val"].shape), longest)
    is_known = value.dtype in _DTYPES and all(isinstance(size, int) for size in value.shape)
    dense = cotangent.meta["val"].is_contiguous() and tokens.meta["val"].is_contiguous()
    return is_known and dense and not scales and count >= _FEWEST and size_of(value) >= _SMALLEST


def _add_rows(rewriting: Rewriting, node: fx.Node) -> None:
    cotangent, tokens, rows, padding, _ = node.args
    like = tokens.meta["val"]
    symbolic = not isinstance(like.numel(), int)
    with rewriting.graph.inserting_before(node):
        numbers = rewriting.call(node, _aten.view.default, tokens, [-1])
        if padding >= 0:  # the last in the order, of no row
            is_padding = rewriting.call(node, _aten.eq.Scalar, numbers, padding)
            numbers = rewriting.call(node, _aten.masked_fill.Scalar, numbers, is_padding, rows)
        narrow = narrowest((0, rows), like.dtype)
        if narrow != like.dtype:  # which takes fewer passes (aten/sorts.py)
            numbers = rewriting.call(node, _aten._to_copy.default, numbers, dtype=narrow)
        ordered = rewriting.call(node, _aten.sort.stable, numbers, stable=True)
        ascending = rewriting.call(node, operator.getitem, ordered, 0)
        places = rewriting.call(node, operator.getitem, ordered, 1)
        every = rewriting.call(node, _aten.arange.default, rows + 1, dtype=narrow, device=like.device)
        edges = rewriting.call(node, _aten.searchsorted.Tensor, ascending, every)
        begins = rewriting.call(node, _aten.slice.Tensor, edges, 0, 0, rows)
        ends = rewriting.call(node, _aten.slice.Tensor, edges, 0, 1, rows + 1)
        added = rewriting.call(node, _aten.view.default, cotangent, [-1, node.meta["val"].shape[1]])
        count = rewriting.call(node, _aten.sym_size.int, numbers, 0) if symbolic else like.numel()
        first = rewriting.call(node, _aten.arange.start_step, 0, count, bags.PART, device=like.device)
        last = rewriting.call(node, _aten.add.Tensor, first, bags.PART)
        parts = rewriting.call(node, bags.OP, added, places, first, last, None, True)
        result = rewriting.call(node, bags.OP, added, places, begins, ends, parts, False)
    rewriting.replace(node, result)
