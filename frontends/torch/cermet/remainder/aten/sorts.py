"""Integers are sorted in the narrowest type that holds what they can be.

A GPU sorts many by their digits of eight bits, in a pass over all of them for each digit that their type has: eight for
the numbers of experts, as a mixture sorts its tokens by, where one is enough.

How many of them are at most 0, 1, ... is where each of these would stand behind its equals: one search, where a program
casts what it sorted, counts how many there are of each and adds those up.
"""

from __future__ import annotations

import operator

import torch
import torch.fx as fx

from ...graph.numbers import SORTS, bounds, holds, narrowest
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


def search(graph: fx.Graph) -> int:
    """Rewrites a functional ATen graph in place; returns how many sums over counts are searches."""
    rewriting = Rewriting(graph)
    wanted: dict[tuple[int, torch.dtype, torch.device], fx.Node] = {}
    for node in graph.find_nodes(op="call_function", target=_aten.cumsum.default):
        ordered, bins = _summed(node) or (None, 0)
        if ordered is None:
            continue
        dtype, device = ordered.meta["val"].dtype, ordered.meta["val"].device
        with graph.inserting_before(node):
            if (key := (bins, dtype, device)) not in wanted:
                wanted[key] = rewriting.call(node, _aten.arange.default, bins, dtype=dtype, device=device)
            is_short = node.meta["val"].dtype == torch.int32
            numbers = ordered, wanted[key]
            made = rewriting.call(node, _aten.searchsorted.Tensor, *numbers, out_int32=is_short, right=True)
        rewriting.replace(node, made)
    rewriting.erase_dead()
    return rewriting.times


def _summed(node: fx.Node) -> tuple[fx.Node, int] | None:
    """The integers in ascending order, none of them negative, of which `node` has how many are at most 0, 1, ... below
    how many."""
    counts = node.args[0]
    if node.meta["val"].dtype not in (torch.int32, torch.int64) or counts.target is not _aten.histc.default:
        return None
    values, *ends = counts.args
    bins = ends[0] if ends else 0  # or as many as torch likes
    if not isinstance(bins, int) or bins < 2 or ends[1:] != [0, bins - 1]:  # without ends they are those of the values
        return None
    while values.target is _aten._to_copy.default:  # to types that hold them
        if not holds(values.meta["val"].dtype, *bounds(values.args[0])):
            return None
        values = values.args[0]
    found, dtype = bounds(values), values.meta["val"].dtype
    is_known = found[0] is not None and found[0] >= 0 and _is_ascending(values)
    return (values, bins) if is_known and holds(dtype, bins - 1) else None


def _is_ascending(node: fx.Node) -> bool:
    if node.target is not operator.getitem or node.args[1] != 0 or node.args[0].target not in SORTS:
        return False
    call = node.args[0]
    names = [argument.name for argument in call.target._schema.arguments]
    return not (dict(zip(names, call.args)) | call.kwargs).get("descending") and node.meta["val"].dim() == 1
