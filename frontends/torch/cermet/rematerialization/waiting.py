"""Products that wait in a backward, so that what they read may be a further store of a kernel behind them.

The gradient of a weight reads a value that is made again of saved ones, which a later kernel reads too. In autograd's
order the product comes first, and so the value must be there before that kernel runs. Where nothing but an output
follows from the product, it may run behind that kernel, which then writes what it reads anyway.

What else the product reads is held until then. That is worth it where it is no more than the kernel spares, or where
the backward's peak is elsewhere, and if all wait that read the value. Nobody waits for what all layers of a decoder
read: the first would until the last.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

import torch.fx as fx

from ..graph.memory import is_view
from ..ops import regions
from . import liveness, ordering
from .costs import computed_again, is_product, written

FEW = 8  # products that wait for one kernel
ADDED_UP = "cermet_added_up"  # notes a call that makes, adds up or rounds what tiles give to a gradient


def wait(graph: fx.Graph) -> None:
    """In place; `graph` is functional, a backward."""
    order = {node: index for index, node in enumerate(graph.nodes)}
    behind = following(graph)
    ends = last(graph, behind)
    room = _Room(graph, order)
    together: dict[frozenset[fx.Node], list[_Waiting]] = {}  # by what is made again for them
    for node in graph.nodes:
        if node in ends and not is_view(node) and node.target is not operator.getitem:
            if (found := _candidate(node, order, behind, ends)) is not None:
                together.setdefault(found.again, []).append(found)
    for group in together.values():  # what one of them reads early is not written late
        if len(group) > FEW:
            continue
        large = [each for each in group if not each.is_small]
        if large and not room.take((_bytes(each.held), each.node, each.kernel) for each in large):
            continue
        for each in group:
            _move(each, order)


def _move(waiting: _Waiting, order: dict[fx.Node, int]) -> None:
    items = [user for user in waiting.kernel.users if user.target is operator.getitem]
    place = max([waiting.kernel, *items], key=order.__getitem__)
    for moved in [*_views_before(waiting.node), *_through(waiting.node)]:
        place.append(moved)
        place = moved


class _Waiting(NamedTuple):
    """A product that may wait."""

    node: fx.Node
    kernel: fx.Node  # behind which
    again: frozenset[fx.Node]  # what it reads that the kernel could write
    held: frozenset[fx.Node]  # what else it reads, until then
    is_small: bool  # whether that is no more than is read once instead of twice


class _Room:
    """What a backward may hold beside what it holds anyway, without holding more at its most.

    Of what only elementwise calls read and make nothing is counted: it is in no memory once they share kernels.
    """

    def __init__(self, graph: fx.Graph, order: dict[fx.Node, int]) -> None:
        self._graph = graph
        self._order = order
        self._held: list[int] = []  # while each call runs; empty until somebody asks
        self._most = 0

    def take(self, asked: Iterable[tuple[int, fx.Node, fx.Node]]) -> bool:
        """Whether there is room for so many bytes each, behind one call and through another, which then are held."""
        if not self._held:
            self._held = self._profile()
            self._most = max(self._held)
        more: Counter[int] = Counter()  # by place
        for size, since, until in asked:
            more.update(dict.fromkeys(range(self._order[since] + 1, self._order[until] + 1), size))
        if any(self._held[place] + size > self._most for place, size in more.items()):
            return False
        for place, size in more.items():
            self._held[place] += size
        return True

    def _profile(self) -> list[int]:
        nodes, storages = list(self._graph.nodes), liveness.Storages(self._graph)
        real = storages.of(
            each
            for node in nodes
            if node.op == "placeholder" or is_product(node) or regions.launched(node) is not None
            for each in (node, *node.all_input_nodes)
        )
        spans = liveness.spans(self._graph, storages, storages.of(ordering.given(self._graph)))
        return liveness.profile(nodes, storages, {each: span for each, span in spans.items() if each in real})


def following(graph: fx.Graph) -> set[fx.Node]:
    """What follows from a cotangent."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        if (node.op == "placeholder" and "tangents" in str(node.target)) or found & set(node.all_input_nodes):
            found.add(node)
    return found


def last(graph: fx.Graph, following: Collection[fx.Node]) -> set[fx.Node]:
    """Products that nothing but views, outputs and other such products' sum follow."""
    ends: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "call_function" and node in following and node.users:
            if all(user.op == "output" or (user in ends and _passes_on(user)) for user in node.users):
                ends.add(node)
    return ends


def _passes_on(node: fx.Node) -> bool:
    return is_view(node) or ADDED_UP in node.meta


def _views_before(node: fx.Node) -> list[fx.Node]:
    """The views that a node reads and nothing else does, in order."""
    found: list[fx.Node] = []
    pending = list(node.all_input_nodes)
    while pending:
        each = pending.pop()
        if each.op == "call_function" and is_view(each) and len(each.users) == 1:
            found.insert(0, each)
            pending += each.all_input_nodes
    return found


def _through(node: fx.Node) -> list[fx.Node]:
    """A node, the views behind it, and what rounds it, in order."""
    found = [node]
    for each in found:
        for user in each.users:
            if user.op == "call_function" and user not in found and len(user.all_input_nodes) == 1:
                found.append(user)
    return found


def base(node: fx.Node) -> fx.Node:
    """The call or input that a value is of."""
    node = viewed(node)
    return base(node.all_input_nodes[0]) if node.target is operator.getitem else node


def viewed(node: fx.Node) -> fx.Node:
    """The tensor that a value is a view of."""
    while node.op == "call_function" and is_view(node):
        node = node.all_input_nodes[0]
    return node


def _made_of(node: fx.Node, following: set[fx.Node], ends: set[fx.Node]) -> set[fx.Node]:
    """What a value is made of again without a product between: inputs, and what a later kernel reads too."""
    found: set[fx.Node] = set()
    pending = [node]
    while pending:
        each = base(pending.pop())
        if each in following:
            return set()
        kept = any(reader in following and reader not in ends for reader in readers([each]))
        if each.op == "placeholder" or (kept and each is not base(node)):
            found.add(each)
        elif is_product(each):
            return set()
        elif each.op == "call_function":
            pending += each.all_input_nodes
    return found


def _candidate(
    node: fx.Node, order: dict[fx.Node, int], following: set[fx.Node], ends: set[fx.Node]
) -> _Waiting | None:
    """A product, if a kernel behind it could write what the product reads."""
    again = [source for source in node.all_input_nodes if base(source) not in following]
    again = [source for source in again if base(source).op == "call_function"]
    sources = set().union(*(_made_of(source, following, ends) for source in again)) if again else set()
    if not sources:
        return None
    behind = [each for each in readers(sources) if each in following and order[each] > order[node]]
    behind.sort(key=order.__getitem__)
    for kernel in behind:
        if kernel in ends or not computed_again(kernel) or is_product(kernel):
            continue
        sums = [reader for each in _through(node) for reader in each.users if len(reader.all_input_nodes) > 1]
        if any(order[reader] < order[kernel] for reader in sums if reader.op == "call_function"):
            return None  # what another tile gives is added before
        shared = sources & {base(source) for source in kernel.all_input_nodes}
        held = {viewed(source) for source in node.all_input_nodes if base(source) in following}
        held = {value for value in held if not any(order[user] > order[kernel] for user in readers([value]))}
        is_small = _bytes(held) <= _bytes(shared)
        return _Waiting(node, kernel, frozenset(map(base, again)), frozenset(held), is_small)
    return None


def readers(sources: Iterable[fx.Node]) -> set[fx.Node]:
    """What reads values, or views of them."""
    found: set[fx.Node] = set()
    pending = list(sources)
    while pending:
        for user in pending.pop().users:
            if user.op == "call_function" and user not in found:
                found.add(user)
                if user.target is operator.getitem or is_view(user):
                    pending.append(user)
    return found


def reading(value: fx.Node) -> list[fx.Node]:
    """The calls that read a value, or views of it, but no view."""
    found: list[fx.Node] = []
    for user in value.users:
        found += reading(user) if user.op == "call_function" and is_view(user) else [user]
    return found


def _bytes(nodes: Iterable[fx.Node]) -> int:
    return sum(map(written, set(nodes)))
