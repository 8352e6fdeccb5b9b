"""In which order independent calls run, so that little lives at once.

A call that makes much more than it frees runs as late as it can, and one that frees much more than it makes as early:
between its old place and its new one less is held, and the same kernels run. While it runs there, a little more is held
than before; where that is the peak, all stays as it was. Nothing passes what draws numbers, sends or waits, nor what
writes memory that it touches.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Hashable, Iterable

import torch
import torch.fx as fx

from ..graph.effects import PURE, WRITE, effect_of
from ..graph.memory import is_view
from . import liveness
from .liveness import Storages

_WORTH = 2**20  # bytes; less is not worth a move
_MUCH = 8  # times as much


def order(module: fx.GraphModule) -> int:
    """Moves calls of a graph that runs as it is, in place; returns how many."""
    graph, calls = module.graph, _Calls(module)
    before, (most, _) = list(graph.nodes), liveness.most(graph, calls.given)
    moved = {call for call in reversed(calls.all) if calls.sink(call)}
    moved |= {call for call in calls.all if calls.hoist(call)}
    if moved and liveness.most(graph, calls.given)[0] > most:
        for one, other in itertools.pairwise(before):
            one.append(other)
        moved.clear()
    return len(moved)


def _reads_only(node: fx.Node) -> bool:
    """What is no call of its own: it stands beside what it reads, or what reads it."""
    writes = isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
    return node.target is operator.getitem or (is_view(node) and not writes)


class _Calls:
    """The calls of a graph, what each has to wait for, and the storages that they read and make."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.all = [node for node in module.graph.nodes if node.op in ("call_function", "get_attr")]
        self.all = [node for node in self.all if not _reads_only(node)]
        self._storages = Storages(module.graph)
        self.given = given(module.graph)
        self._kept = self._storages.of((*self.given, *module.graph.output_node().all_input_nodes))
        self._sizes: dict[Hashable, int] = {}
        self._before: dict[fx.Node, set[fx.Node]] = {node: set() for node in self.all}
        self._behind: dict[fx.Node, set[fx.Node]] = {node: set() for node in self.all}
        self._touched: dict[fx.Node, frozenset[Hashable]] = {}  # storages that a call reads or makes
        self._made: dict[fx.Node, list[Hashable]] = {node: [] for node in self.all}
        self._touching: dict[Hashable, set[fx.Node]] = {}
        self._link(module)

    def _link(self, module: fx.GraphModule) -> None:
        writer: dict[Hashable, fx.Node] = {}  # of a storage, the last
        since: dict[Hashable, list[fx.Node]] = {}  # what touched it since then
        fence: fx.Node | None = None
        passed: list[fx.Node] = []  # since the last fence
        for node in self.all:
            effect = effect_of(node, module)
            self._touched[node] = self._storages.of((node, *node.all_input_nodes))
            for source in calls_of(node):
                self._waits(node, source)
            for each in self._touched[node]:
                self._touching.setdefault(each, set()).add(node)
                self._waits(node, writer.get(each))
                since.setdefault(each, []).append(node)
                if self._storages.owner[each] is node:
                    self._made[node].append(each)
            self._waits(node, fence)
            if effect.kind not in (PURE, WRITE):
                for each in passed:
                    self._waits(node, each)
                fence, passed = node, []
            for each in self._storages.of(effect.written):
                for other in since.get(each, ()):
                    self._waits(node, other)
                writer[each], since[each] = node, [node]
            passed.append(node)

    def _waits(self, node: fx.Node, other: fx.Node | None) -> None:
        if other in self._behind and other is not node:
            self._before[node].add(other)
            self._behind[other].add(node)

    def sink(self, node: fx.Node) -> bool:
        """Moves a call before the first that needs it, where less is held until then."""
        first = min(self._behind[node], default=None)
        made = self._made[node]
        if first is None or not made or not self._kept.isdisjoint(made):
            return False
        freed = [each for each in self._read(node) if not self._lasts(each, node, behind=first.prev)]
        if not self._is_worth(made, freed):
            return False
        move_before(node, first)
        return True

    def hoist(self, node: fx.Node) -> bool:
        """Moves a call behind the last that it needs, or a later one, where less is held from then on."""
        ends = [each for each in self._read(node) if not self._lasts(each, node, behind=node)]
        after = max(self._before[node], default=None)
        for place in sorted({after, *(self._last(each, node) for each in ends)} - {None}):
            if after is not None and place < after:
                continue
            freed = [each for each in ends if not self._lasts(each, node, behind=place)]
            if self._is_worth(freed, self._made[node]):
                move_behind(node, place)
                return True
        return False

    def _read(self, node: fx.Node) -> list[Hashable]:
        return [each for each in self._touched[node] if each not in self._kept and each not in self._made[node]]

    def _last(self, storage: Hashable, without: fx.Node) -> fx.Node | None:
        return max(self._touching[storage] - {without}, default=None)

    def _lasts(self, storage: Hashable, without: fx.Node, behind: fx.Node) -> bool:
        """Whether another call touches a storage behind a place."""
        last = self._last(storage, without)
        return last is not None and behind < last

    def _is_worth(self, less: Iterable[Hashable], more: Iterable[Hashable]) -> bool:
        return sum(map(self._bytes, less)) >= max(_MUCH * sum(map(self._bytes, more)), _WORTH)

    def _bytes(self, storage: Hashable) -> int:
        if storage not in self._sizes:
            self._sizes[storage] = self._storages.bytes(storage)
        return self._sizes[storage]


def given(graph: fx.Graph) -> list[fx.Node]:
    """Inputs that stay when they have been read: all but what a backward is given."""
    inputs = graph.find_nodes(op="placeholder")
    return [node for node in inputs if str(node.target).startswith(("primals", "arg"))]


def move_before(node: fx.Node, place: fx.Node) -> None:
    """A call, with what is read through its results before that place. Others stay: they may read what is there."""
    for each in (node, *(view for view in _views_behind(node) if view < place)):
        place.prepend(each)


def move_behind(node: fx.Node, place: fx.Node) -> None:
    """A call, with what it reads through."""
    place = _with_items(place)
    for each in (*_views_before(node, place), node):
        place.append(each)
        place = each


def advance(node: fx.Node) -> None:
    """Moves a call as early as can be, with what it reads through: behind the last that it needs, or all inputs."""
    inputs = node.graph.find_nodes(op="placeholder")
    move_behind(node, max([*inputs[-1:], *calls_of(node)]))


def calls_of(node: fx.Node) -> set[fx.Node]:
    """What a node's operands are of, through views and what is read of results."""
    found: set[fx.Node] = set()
    pending = list(node.all_input_nodes)
    while pending:
        each = pending.pop()
        if each.op == "call_function" and _reads_only(each):
            pending += each.all_input_nodes
        else:
            found.add(each)
    return found


def _with_items(node: fx.Node) -> fx.Node:
    """The last of what is read of a call's results right behind it."""
    while node.next.target is operator.getitem:
        node = node.next
    return node


def _views_behind(node: fx.Node) -> list[fx.Node]:
    found = [node]
    for each in found:
        found += [user for user in each.users if user.op == "call_function" and _reads_only(user) and user not in found]
    return sorted(found[1:])


def _views_before(node: fx.Node, place: fx.Node) -> list[fx.Node]:
    """What a node reads through, as far as it stands behind a place."""
    found: list[fx.Node] = []
    pending = list(node.all_input_nodes)
    while pending:
        each = pending.pop()
        if each.op == "call_function" and _reads_only(each) and place < each and each not in found:
            found.append(each)
            pending += each.all_input_nodes
    return sorted(found)
