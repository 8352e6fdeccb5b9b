"""The plan of a cut (plan.py), told of its decision and not derived again.

While a joint graph is cut, what was decided about each value is noted by its name there. What both graphs then run says
the rest: the memory of what is kept, the calls that read it, and the kernels that what is made again became a part of.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping

import torch
import torch.fx as fx
from torch._functorch.partitioners import must_recompute

from ..graph import traffic
from ..graph.decision import Region
from ..graph.nodes import example, source_line
from ..ops import regions
from . import costs, liveness, parts
from .plan import OWN, STORE, WITHIN, Again, Call, Plan, Saved
from .waiting import base, following, readers

_KEPT_BY_TORCH = "torch's partitioner keeps it"
_ADDED = "torch adds it for what torch.utils.checkpoint makes again"
_NO_GAIN = "to make it again costs more than its memory"

Found = tuple[int | None, str]  # bytes that are moved in the time that a call takes, if it may be made again; why not

# --- While the graph is cut ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Noted:
    """What was decided, by names of the joint graph."""

    price: float | None
    joint: fx.Graph
    kept: frozenset[str]  # what the backward is given
    again: frozenset[str]  # what it has of the forward's calls
    own: frozenset[str]  # its other calls
    judged: Mapping[str, Found]  # what the cut found of calls


def noted(
    joint: fx.Graph, forward: fx.Graph, backward: fx.Graph, judged: Mapping[str, Found], price: float | None
) -> Noted:
    """To be asked before the two graphs are rewritten. Marks in the backward what it makes again."""
    nodes = {node.name: node for node in joint.nodes}
    made = {node.name for node in forward.nodes if node.op == "call_function"}
    again, own = set(), set()
    for node in backward.nodes:
        if node.op != "call_function":
            continue
        name = _stands_for(node, nodes)
        if name in made or (name != node.name and must_recompute(nodes[name])):
            again.add(name)
            node.meta[parts.AGAIN] = name
        else:
            own.add(name)
            if parts.AGAIN in base(node).meta:  # a view of it
                node.meta[parts.AGAIN] = base(node).meta[parts.AGAIN]
    kept = frozenset(node.name for node in backward.find_nodes(op="placeholder"))
    return Noted(price, joint, kept, frozenset(again), frozenset(own), judged)


def _stands_for(node: fx.Node, nodes: Mapping[str, fx.Node]) -> str:
    """The name in the joint graph of a backward's call. Where torch put one of its own, as it does for numbers that are
    drawn again, its readers tell."""
    for user in node.users if node.name not in nodes else ():
        if user.op == "call_function" and user.name in nodes:
            return nodes[user.name].all_input_nodes[user.all_input_nodes.index(node)].name
    return node.name


class _Cut:
    """The joint graph, and what was decided about its nodes."""

    def __init__(self, noted: Noted) -> None:
        self._noted = noted
        self.nodes = {node.name: node for node in noted.joint.nodes}
        made = (self.made_by(name) for name in noted.again if name in self.nodes)
        self.again = sorted({node for node in made if node is not None})
        kept = [node for node in noted.joint.nodes if node.name in noted.kept]
        self._there = {*map(base, kept), *self.again}  # in the backward

    def made_by(self, name: str) -> fx.Node | None:
        """The call that a value which the backward has of the forward is of; None for a view of what is kept."""
        node = self.nodes[name]
        while node.name not in self._noted.kept and not _computes(node) and node.all_input_nodes:
            node = node.all_input_nodes[0]
        return node if _computes(node) and node.name not in self._noted.kept else None

    def alone(self, node: fx.Node) -> Found:
        """Of one call."""
        if node.name in self._noted.judged:
            return self._noted.judged[node.name]
        computing = costs.computing(node)
        return (None, computing) if isinstance(computing, str) else (computing, "")

    def together(self, node: fx.Node) -> Found:
        """Of a call that is kept, with all before it that is not there."""
        moved, pending, seen = 0, [node], set()
        while pending:
            each = pending.pop()
            if each in seen or each.op == "placeholder" or (each in self._there and each is not node):
                continue
            seen.add(each)
            cost, why = self.alone(each)
            if cost is None:
                return None, why if each is node else f"{_name(each)} before it: {why}"
            moved += cost
            pending += map(base, each.all_input_nodes)
        return moved, self.alone(node)[1] or (_NO_GAIN if self._noted.price is not None else _KEPT_BY_TORCH)

    def results(self, node: fx.Node) -> list[fx.Node]:
        """The tensors that a call gives, as far as something reads them."""
        if isinstance(example(node), (tuple, list)):
            return [user for user in node.users if user.target is operator.getitem]
        return [node]

    def is_read(self, node: fx.Node) -> bool:
        """Whether the backward's own calls read a value."""
        return any(each.name in self._noted.own and _computes(each) for each in readers([node]))


# --- Of what runs ----------------------------------------------------------------------------------------------------


def of(
    noted: Noted,
    memory: str | int,
    forward: fx.GraphModule,
    backward: fx.GraphModule,
    replaced: Iterable[tuple[Region, fx.Node]],
) -> Plan:
    """The plan that two graphs carry out. `replaced`: the regions that were put into the backward, and their calls."""
    cut, storages = _Cut(noted), liveness.Storages(forward.graph)
    given = storages.of(forward.graph.find_nodes(op="placeholder"))
    crossing: dict[Hashable, list[tuple[fx.Node, fx.Node]]] = {}
    for pair in liveness.crossing(forward.graph, backward.graph)[1]:
        for storage in storages.of(pair[:1]):
            crossing.setdefault(storage, []).append(pair)
    saved = [_saved(cut, pairs, storages.tensor(each)) for each, pairs in crossing.items() if each not in given]
    places = _places(cut, backward.graph, replaced)
    again = [_again(cut, node, *places[node]) for node in cut.again if node in places]
    return Plan(
        memory if isinstance(memory, str) else f"{memory:,} bytes",
        noted.price,
        tuple(sorted(saved, key=lambda each: -each.bytes)),
        tuple(sorted(again, key=lambda each: (-each.spared, -(each.moved or 0)))),
        sum(_bytes(storages.tensor(each)) for each in crossing if each in given),
        liveness.step(forward, backward).peak.bytes,
    )


def _saved(cut: _Cut, pairs: list[tuple[fx.Node, fx.Node]], held: torch.Tensor) -> Saved:
    """Of what the forward returns, and the backward's inputs, that lie in one memory."""
    ours, theirs = pairs[0]
    known = cut.nodes.get(theirs.name)
    made_by = base(ours if known is None else known)
    calls = tuple(_call(user) for user in sorted(readers(theirs for _, theirs in pairs)) if _computes(user))
    return Saved(
        _call(made_by),
        traffic.describe(held),
        _bytes(held),
        calls or (Call("a gradient", ""),),  # is what was kept
        *(cut.together(made_by) if known is not None else (None, _ADDED)),
        made_by.name,
    )


def _places(
    cut: _Cut, graph: fx.Graph, replaced: Iterable[tuple[Region, fx.Node]]
) -> dict[fx.Node | None, tuple[str, fx.Node]]:
    """Where the calls of the joint graph that are made again are, and by which call."""

    def marked(nodes: Iterable[fx.Node]) -> Iterator[tuple[fx.Node, fx.Node | None]]:
        return ((node, cut.made_by(node.meta[parts.AGAIN])) for node in nodes if parts.AGAIN in node.meta)

    behind, places = following(graph), {}
    for region, call in replaced:
        stored = {again for _, again in marked(region.results)}
        for _, again in marked(region.replaced):
            joins = STORE if again in stored else WITHIN
            places[again] = (joins if call in behind else OWN, call)
    for node, again in marked(graph.nodes):
        places.setdefault(again, (OWN, base(node)))
    return places


def _again(cut: _Cut, node: fx.Node, where: str, kernel: fx.Node) -> Again:
    results = cut.results(node)
    stored = sum(traffic.size_of(example(each)) for each in results)
    moved = {OWN: cut.alone(node)[0], STORE: stored, WITHIN: 0}[where]
    return Again(
        _call(node),
        tuple(traffic.describe(example(each)) for each in results),
        sum(traffic.size_of(example(each)) for each in results if cut.is_read(each)),
        moved,
        must_recompute(node),
        where,
        _call(kernel),
        node.name,
    )


def _computes(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target is not operator.getitem and not costs.is_view(node)


def _call(node: fx.Node) -> Call:
    return Call(_name(node), source_line(node))


def _name(node: fx.Node) -> str:
    """Of a launch what it computes."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return str(node.target)
    if regions.launched(node) is None:
        return str(node.target.overloadpacket)
    found = re.search(r"func\.func @([\w$.]+)", regions.text(parts.whole_key(node)))
    return found[1] if found else "a launch"


def _bytes(held: torch.Tensor) -> int:
    return traffic.hint(held.untyped_storage().nbytes())
