"""Integers are sorted in the narrowest type that holds what they can be.

A GPU sorts many by their digits of eight bits, in a pass over all of them for each digit that their type has: eight for
the numbers of experts, as a mixture sorts its tokens by, where one is enough.
"""

from __future__ import annotations

import operator

import torch
import torch.fx as fx

from ...graph.numbers import SORTS, bounds, narrowest
from .rewriting import Rewriting

_aten = torch.ops.aten
_FEW = 4096  # fewer are compared with one another


def narrow(graph: fx.Graph, devices: frozenset[str] = frozenset({"cuda"})) -> int:
    """Rewrites a functional ATen graph in place, on these kinds of devices; returns how many results are of others."""
    rewriting = Rewriting(graph)
    for node in list(graph.nodes):
        if node.target in SORTS and _is_by_digits(node.args[0].meta["val"], devices):
            _narrow(rewriting, node)
    rewriting.erase_dead()
    return rewriting.times


def _is_by_digits(value: torch.Tensor, devices: frozenset[str]) -> bool:
    few = isinstance(value.numel(), int) and value.numel() <= _FEW
    return value.device.type in devices and value.dim() == 1 and not few


def _narrow(rewriting: Rewriting, node: fx.Node) -> None:
    source, *others = node.args
    dtype = source.meta["val"].dtype
    narrower = narrowest(bounds(source), dtype)
    if narrower == dtype:
        return
    with rewriting.graph.inserting_before(node):
        cast = rewriting.call(source, _aten._to_copy.default, source, dtype=narrower)
        ordered = rewriting.call(source, node.target, cast, *others, **node.kwargs)
    rewriting.idle.add(node)
    for pick in list(node.users):
        with rewriting.graph.inserting_before(pick):
            made = rewriting.call(pick, operator.getitem, ordered, pick.args[1])
            if pick.args[1] == 0:
                made = rewriting.call(pick, _aten._to_copy.default, made, dtype=dtype)
        rewriting.replace(pick, made)
