"""Comparisons of integers that have one answer for every element leave what reads them.

A mixture of experts hides the tokens of experts that another process has: those whose number is not below how many
there are. Where the numbers are those of the largest of so many, all are below, and what would have been hidden is
what it was. A launch that reads such a comparison computes without it.
"""

from __future__ import annotations

import torch
import torch.fx as fx

from ...errors import Error
from ...graph.nodes import examples
from ...graph.numbers import answer, bounds, is_whole, limited
from ...ops import regions
from ...ops.slices import decided, unbound
from .rewriting import Rewriting

_aten = torch.ops.aten
_FILLS = {_aten.masked_fill.Scalar, _aten.masked_fill.Tensor}


def decide(graph: fx.Graph, launches: set[int] | None = None) -> int:
    """Rewrites a functional ATen graph in place; returns how many of its calls do nothing but copy, or are others. The
    keys of launches that are there then are added to `launches`; without it launches stay as they are."""
    rewriting = Rewriting(graph)
    for node in list(graph.nodes):
        with graph.inserting_before(node):
            if (kept := _kept(node)) is not None:
                rewriting.replace(node, rewriting.call(node, _aten.clone.default, kept))
            elif launches is not None and (key := regions.launched(node)) is not None:
                _leave_out(rewriting, node, key, launches)
    rewriting.erase_dead()
    return rewriting.times


def _leave_out(rewriting: Rewriting, node: fx.Node, key: int, launches: set[int]) -> None:
    """Of a launch the operands that are the same truth everywhere."""
    truths = {place: truth for place, it in enumerate(node.args[:-1]) if (truth := answer(it)) is not None}
    if not truths:
        return
    ((text, orders, over),) = regions.kept([key])
    if over:
        return
    try:
        text, places = decided(text, truths)
    except Error:
        return
    if not places or unbound(text):
        return
    operands, results = [node.args[place] for place in places], len(examples(node))
    key = regions.register(text, orders)
    rewriting.replace(node, rewriting.call(node, regions.launch_op(len(operands), results), *operands, key))
    launches.add(key)


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
