"""Values that a graph makes twice, so that less is held where most is held.

A backward of checkpointed parts makes a norm again for the products that read it, and once more the gradients of those
products' weights read it, when the part's backward is nearly through. In between is the peak. What it is made of is held
all that time for the norm's own gradient: so it is dropped and made a second time, where that lowers the peak and takes
next to no time.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Collection, Hashable, Sequence

import torch
import torch.fx as fx

from ..graph.effects import effect_of
from ..graph.memory import Moved, is_view
from ..graph.nodes import example
from . import liveness
from .costs import computed_again, is_product
from .liveness import Storages
from .waiting import reading

_LEAST = 2**20  # bytes: less is not worth a launch
_PART = 3e-3  # of what all calls take, that may be taken again
_HALVINGS = 6  # of what the peak is lowered by, until that is little enough


@dataclasses.dataclass(frozen=True)
class _Copy:
    """A call whose result would be dropped behind call `first` and made again before call `second`."""

    node: fx.Node
    value: fx.Node  # the call, or one of its results
    late: tuple[fx.Node, ...]  # what reads the second one
    first: int
    second: int
    bytes: int
    time: int  # as bytes that are moved


def make_twice(module: fx.GraphModule, given: Collection[fx.Node]) -> int:
    """In a functional graph, in place; returns how many calls it makes twice. `given`: inputs that the caller holds."""
    graph = module.graph
    storages = Storages(graph)
    nodes = list(graph.nodes)
    spans = liveness.spans(graph, storages, storages.of(given))
    held = liveness.profile(nodes, storages, spans)
    times = {node: computed_again(node) or 0 for node in nodes}
    copies = _copies(module, times, storages, spans, storages.of(given))
    room = _PART * sum(times.values())
    chosen: list[_Copy] = []
    gain = max(held) - max(_lowered(held, copies))
    for _ in range(_HALVINGS if gain >= _LEAST else 0):
        chosen = _enough(copies, held, max(held) - gain)
        if sum(each.time for each in chosen) <= room:
            break
        chosen, gain = [], gain // 2
    for each in chosen:
        _make(graph, each, nodes[each.second])
    return len(chosen)


def _copies(
    module: fx.GraphModule,
    times: dict[fx.Node, int],
    storages: Storages,
    spans: dict[Hashable, tuple[int, int]],
    given: frozenset[Hashable],
) -> list[_Copy]:
    """Those that could be. Each value is read by some calls and, after the widest pause, by others."""
    nodes = list(times)
    order = {node: place for place, node in enumerate(nodes)}
    calls = [node for node in nodes if node.op == "call_function"]
    written = frozenset().union(*(storages.of(effect_of(node, module).written) for node in calls))
    kept = storages.of(module.graph.output_node().all_input_nodes)
    found: list[_Copy] = []
    dropped: frozenset[Hashable] = frozenset()  # of which nothing is made again
    for node in nodes:
        time = times[node] if _is_call(node) and not is_product(node) else 0
        read = storages.of(node.all_input_nodes)
        if not time or not read.isdisjoint(written | dropped):
            continue
        until = min((spans[each][1] for each in read - given), default=len(nodes))
        is_one = isinstance(example(node), torch.Tensor)
        for value in [node] if is_one else [user for user in node.users if user.target is operator.getitem]:
            own = storages.of([value])
            if len(own) != 1 or not own.isdisjoint(kept | written):
                continue
            places = sorted({order[each] for each in reading(value)})
            pauses = [(min(until, b) - a, a, min(until, b)) for a, b in zip(places, places[1:])]
            pause, first, second = max(pauses, default=(0, 0, 0))
            size = storages.bytes(next(iter(own)))
            if pause > 1 and size >= _LEAST:
                late = tuple(each for each in reading(value) if order[each] > first)
                found.append(_Copy(node, value, late, first, second, size, time))
                dropped |= own
    return found


def _is_call(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target is not operator.getitem and not is_view(node)


def _lowered(held: Sequence[int], copies: Sequence[_Copy]) -> list[int]:
    """What is held at every call where all of these are made."""
    change = [0] * (len(held) + 1)
    for each in copies:
        change[each.first + 1] -= each.bytes
        change[each.second] += each.bytes
    return list(map(sum, zip(held, itertools.accumulate(change))))


def _enough(copies: Sequence[_Copy], held: Sequence[int], goal: int) -> list[_Copy]:
    """Copies that bring what is held at every call to the goal, those that do so for longest first."""
    now, chosen = list(held), []
    for place in range(len(now)):
        while now[place] > goal:
            useful = [each for each in copies if each not in chosen and each.first < place < each.second]
            if not useful:
                break
            best = max(useful, key=lambda each: each.bytes * (each.second - place) / each.time)
            chosen.append(best)
            now = _lowered(now, [best])
    return chosen


def _make(graph: fx.Graph, copy: _Copy, before: fx.Node) -> None:
    """Before the call that reads it, or the last that reads what it is made of."""
    again = _Again(graph, before)
    with graph.inserting_before(before):
        again.make(copy.node)
        if copy.value is not copy.node:
            again.make(copy.value)
        for reader in sorted(copy.late):
            reader.args = fx.map_arg(reader.args, again.instead)
            reader.kwargs = fx.map_arg(reader.kwargs, again.instead)
    again.erase_unread()


class _Again:
    """Copies of a call, which gives a memory of its own, and of views of what it gives, before another call."""

    def __init__(self, graph: fx.Graph, before: fx.Node) -> None:
        self._graph, self._before = graph, before
        self._made: dict[fx.Node, fx.Node] = {}
        self._moved = Moved()

    def make(self, node: fx.Node) -> None:
        made = self._made[node] = self._graph.node_copy(node, lambda each: self._made.get(each, each))
        made.meta["val"] = self._moved.of(example(node))

    def instead(self, node: fx.Node) -> fx.Node:
        """What a late reader is given: views of the copy for those of the value. No view stands before its own, where
        the sizes that it is told may not be there."""
        if node not in self._made and node.op == "call_function" and is_view(node):
            if any(self.instead(each) is not each for each in node.all_input_nodes):
                with self._graph.inserting_before(max(self._before, node.next)):
                    self.make(node)
        return self._made.get(node, node)

    def erase_unread(self) -> None:
        """The views that late readers alone read."""
        for node in sorted(self._made, reverse=True):
            if not node.users:
                self._graph.erase_node(node)
