"""Comparisons of integers that have one answer for every element leave what reads them.

A mixture of experts hides the tokens of experts that another process has: those whose number is not below how many
there are. Where the numbers are those of the largest of so many, all are below, and what would have been hidden is
what it was.
"""

from __future__ import annotations

import torch
import torch.fx as fx

from ...graph.numbers import answer, bounds, is_whole, limited
from .rewriting import Rewriting

_aten = torch.ops.aten
_FILLS = {_aten.masked_fill.Scalar, _aten.masked_fill.Tensor}


def decide(graph: fx.Graph) -> int:
    """Rewrites a functional ATen graph in place; returns how many of its calls do nothing but copy."""
    rewriting = Rewriting(graph)
    for node in list(graph.nodes):
        kept = _kept(node)
        if kept is not None:
            with graph.inserting_before(node):
                copy = rewriting.call(node, _aten.clone.default, kept)
            rewriting.replace(node, copy)
    rewriting.erase_dead()
    return rewriting.times


def _kept(node: fx.Node) -> fx.Node | None:
    """The operand that a call gives as it is."""
    if node.target in _FILLS and answer(node.args[1]) is False:
        return node.args[0]
    if node.target is _aten.where.self and (chosen := answer(node.args[0])) is not None:
        return node.args[1 if chosen else 2]
    if node.target is _aten.clamp.default:
        number, least, greatest = limited(node)
        below, above = bounds(number)
        at_least = least is None or is_whole(least) and below is not None and least <= below
        at_most = greatest is None or is_whole(greatest) and above is not None and above <= greatest
        return number if at_least and at_most else None
    return None
