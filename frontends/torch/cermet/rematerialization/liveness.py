"""How much memory a graph that runs by direct calls holds at its most, and whose: the life of each storage, call by call.

A straight line (remainder/straight.py) drops a value behind the last call that reads it, and its inputs with them, if
nobody else holds those. So what lives at each call follows from the graph: what was made and is still to be read, what
the call gives, and what it takes for itself meanwhile. Sizes are those that the graph was traced with.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx

from ..graph import memory, traffic
from ..graph.nodes import example, source_line, target_name
from ..loss import chunks, values

_BLOCK = 512  # what torch's allocator rounds to
_NOT_SAVED = ("tangents", "bwd_rng_state")  # what a backward takes beside: cotangents, and generators of CUDA's
WEIGHT, INPUT, SAVED, GRADIENT, RESULT, TRANSIENT = "weight", "input", "saved", "gradient", "result", "transient"


@dataclasses.dataclass(frozen=True)
class Held:
    """Some memory at the peak."""

    kind: str  # one of those above
    bytes: int
    value: str  # `bf16[8, 2048, 4096]`
    made_by: str  # the call
    source: str  # `file:line: code` of the user's program; "" where nobody knows


@dataclasses.dataclass(frozen=True)
class Peak:
    """What is held on a device while one call runs."""

    bytes: int
    call: str
    held: tuple[Held, ...]  # the largest first

    def of(self, kind: str) -> int:
        return sum(each.bytes for each in self.held if each.kind == kind)


@dataclasses.dataclass(frozen=True)
class Step:
    """A forward, and its backward if there is one, where the caller keeps what the forward returns."""

    peak: Peak
    inputs: tuple[Held, ...]  # all the time
    saved: tuple[Held, ...] = ()  # from the forward's end on until the backward has read it
    gradients: tuple[Held, ...] = ()  # from the backward's end on


def step(
    forward: fx.GraphModule, backward: fx.GraphModule | None = None, weights: Collection[int] = frozenset()
) -> Step:
    """Where nothing else runs between the two. `weights`: which of the forward's inputs, by their places, are called so."""
    inputs = [node for node in forward.graph.nodes if node.op == "placeholder"]
    storages = Storages(forward.graph)
    given = storages.of(inputs)
    parameters = {node for place, node in enumerate(inputs) if place in weights}
    fixed = [storages.held(each, WEIGHT if storages.owner[each] in parameters else INPUT) for each in given]
    held = tuple(fixed)
    if backward is None:
        return Step(_peak(forward.graph, storages, given, (), fixed), held)
    returned, saved = crossing(forward.graph, backward.graph)
    kept = storages.of(ours for ours, _ in saved)
    peaks = [_peak(forward.graph, storages, given, kept, fixed)]

    theirs = Storages(backward.graph)
    known = [place for ours, place in saved if storages.of([ours]) <= given]
    alive = storages.of(returned) - given - kept
    fixed += [storages.held(each, RESULT) for each in alive]
    peaks.append(_peak(backward.graph, theirs, theirs.of(known), (), fixed))
    return Step(
        max(peaks, key=lambda peak: peak.bytes),
        held,
        tuple(storages.held(each, SAVED) for each in kept - given),
        tuple(theirs.held(each, GRADIENT) for each in theirs.of(_nodes(backward.graph.output_node().args[0]))),
    )


def crossing(forward: fx.Graph, backward: fx.Graph) -> tuple[list[fx.Node], list[tuple[fx.Node, fx.Node]]]:
    """What a forward returns to its caller, and each tensor that it hands to its backward, as a node of both."""
    saved = [node for node in backward.find_nodes(op="placeholder") if not str(node.target).startswith(_NOT_SAVED)]
    outputs = list(forward.output_node().args[0])
    border = len(outputs) - len(saved)
    # Both list the tensors in one order; sizes come last of what a forward returns, first of what a backward takes.
    return _nodes(outputs[:border]), list(zip(_tensors(outputs[border:]), _tensors(saved)))


class Storages:
    """The storages of a graph's values, each named by the first node that has it."""

    def __init__(self, graph: fx.Graph) -> None:
        self.owner: dict[Hashable, fx.Node] = {}
        self._of: dict[fx.Node, frozenset[Hashable]] = {}
        self._tensors: dict[Hashable, torch.Tensor] = {}
        for node in graph.nodes:
            if node.op == "output":
                continue
            found, written, seen = memory.memories(example(node)), _written(node), _viewed(node)
            if written is not None and found.isdisjoint(self.owner):
                found = self._of[written]
            if seen is not None and self._of[seen] and found.isdisjoint(self._of[seen]):
                found = self._of[seen]
            self._of[node] = found - {memory.HIDDEN}
            for each in self._of[node]:
                self.owner.setdefault(each, node)

    def of(self, nodes: Iterable[fx.Node]) -> frozenset[Hashable]:
        return frozenset().union(*(self._of[node] for node in nodes))

    def held(self, storage: Hashable, kind: str) -> Held:
        """As something that is there."""
        node, value = self.owner[storage], self.tensor(storage)
        made_by = re.sub(r"(_\d+)+$", "", str(node.target)) if node.op == "placeholder" else target_name(node)
        return Held(kind, _bytes(value), traffic.describe(value), made_by, source_line(node))

    def bytes(self, storage: Hashable) -> int:
        return _bytes(self.tensor(storage))

    def tensor(self, storage: Hashable) -> torch.Tensor:
        """The value that names a storage."""
        if storage not in self._tensors:
            of_owner = _flat(example(self.owner[storage]))
            self._tensors[storage] = next(each for each in of_owner if storage in memory.memories(each))
        return self._tensors[storage]


def weight(name: str, value: torch.Tensor) -> Held:
    """One that is there whether or not a graph reads it."""
    return Held(WEIGHT, _bytes(value), traffic.describe(value), name, "")


def spans(graph: fx.Graph, storages: Storages, given: frozenset[Hashable]) -> dict[Hashable, tuple[int, int]]:
    """Of each storage but the `given` ones, by their places, the call that makes it (the first, of an input) and the last
    that reads it through any of its values."""
    nodes = list(graph.nodes)
    last = {source: index for index, node in enumerate(nodes) for source in node.all_input_nodes}
    found: dict[Hashable, tuple[int, int]] = {}
    for index, node in enumerate(nodes):
        for storage in storages.of([node] if node.op != "output" else ()) - given:
            begin, until = found.get(storage, (0 if node.op == "placeholder" else index, index))
            found[storage] = (begin, max(until, last.get(node, index)))
    return found


def profile(
    nodes: Sequence[fx.Node], storages: Storages, spans: dict[Hashable, tuple[int, int]]
) -> list[int]:
    """The bytes that are held while each call runs; 0 where nothing runs."""
    change = [0] * (len(nodes) + 1)
    for storage, (begin, until) in spans.items():
        change[begin] += storages.bytes(storage)
        change[until + 1] -= storages.bytes(storage)
    held = itertools.accumulate(change)
    return [0 if node.op in ("placeholder", "output") else now + _taken(node) for node, now in zip(nodes, held)]


def _highest(
    graph: fx.Graph, storages: Storages, found: dict[Hashable, tuple[int, int]]
) -> tuple[int, fx.Node | None, frozenset[Hashable]]:
    """The most bytes, the call while which they are held, and the storages, of which `found` are the spans."""
    nodes = list(graph.nodes)
    held = profile(nodes, storages, found)
    most = max(held, default=0)
    if most == 0:
        return 0, None, frozenset()
    place = held.index(most)
    return most, nodes[place], frozenset(each for each, (begin, until) in found.items() if begin <= place <= until)


def most(
    graph: fx.Graph, given: Collection[fx.Node] = (), placed: Mapping[fx.Node, Mapping[int, int]] = {}
) -> tuple[int, fx.Node | None]:
    """The most bytes that one graph holds by itself, and the call while which it does. `given`: inputs that are the
    caller's all the time; `placed`: of calls, in the graph's order, the results that will lie where operands do."""
    storages = Storages(graph)
    found = spans(graph, storages, storages.of(given))
    moved: dict[Hashable, Hashable] = {}
    for node, places in placed.items():
        for result, place in places.items():
            (own,) = memory.memories(example(node)[result] if isinstance(example(node), tuple) else example(node))
            (there,) = storages.of([node.args[place]])
            there = moved[own] = moved.get(there, there)
            _, last = found.pop(own)
            if there in found:  # else it is the caller's
                begin, until = found[there]
                found[there] = (begin, max(until, last))
    return _highest(graph, storages, found)[:2]


def _peak(
    graph: fx.Graph,
    storages: Storages,
    given: frozenset[Hashable],
    kept: Collection[Hashable],
    fixed: list[Held],
) -> Peak:
    """Of one graph. `given`: what the caller holds all the time; `kept`: of its results, what is saved; `fixed`: what is
    held beside all that."""
    _, when, there = _highest(graph, storages, spans(graph, storages, given))
    if when is None:
        return Peak(sum(each.bytes for each in fixed), "", tuple(fixed))
    results = storages.of(_nodes(graph.output_node().args[0]))
    held = [*fixed]
    for storage in there:
        owner = storages.owner[storage]
        of_backward = owner.op == "placeholder"
        kind = SAVED if of_backward or storage in kept else TRANSIENT
        if kind == TRANSIENT and storage in results:
            kind = RESULT if kept else GRADIENT
        held.append(storages.held(storage, kind))
    if _taken(when):
        held.append(Held(TRANSIENT, _taken(when), "inside of the call", target_name(when), source_line(when)))
    held.sort(key=lambda each: -each.bytes)
    return Peak(sum(each.bytes for each in held), target_name(when), tuple(held))


# --- Sizes -----------------------------------------------------------------------------------------------------------


def _bytes(value: torch.Tensor) -> int:
    """Of a value's storage."""
    size = traffic.hint(value.untyped_storage().nbytes())
    return -(-size // _BLOCK) * _BLOCK


def _taken(node: fx.Node) -> int:
    """What a call takes beside its results, as far as it is worth counting."""
    name = target_name(node)
    if name.startswith("cermet_v1.linear_rows_"):
        return chunks.taken_by(chunks.call_of(name, *(_hinted(argument) for argument in node.args)))
    if name.startswith("cermet_v1.linear_row_values_"):
        return values.taken(name, *(_hinted(argument) for argument in node.args))
    if "attention_backward" in name and "cpu" not in name:
        query = example(node.args[1])  # whose gradient is summed in f32
        return 4 * query.numel() if isinstance(query.numel(), int) else 0
    return 0


def _hinted(argument: Any) -> Any:
    return example(argument) if isinstance(argument, fx.Node) else argument


# --- Values ----------------------------------------------------------------------------------------------------------


def _written(node: fx.Node) -> fx.Node | None:
    """The operand that a call writes and gives again, whose fake value may be of its own."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    schema = node.target._schema
    if len(schema.returns) != 1 or schema.returns[0].alias_info is None or not schema.returns[0].alias_info.is_write:
        return None
    for argument, value in zip(schema.arguments, node.args):
        if argument.alias_info is not None and argument.alias_info.is_write and isinstance(value, fx.Node):
            return value
    return None


def _viewed(node: fx.Node) -> fx.Node | None:
    """The operand that a call gives a view of, whose fake value may be of its own: a pass that put another call into a
    graph gave new values to what it replaced, not to their views."""
    target = node.target
    if target is operator.getitem or target is torch.ops.aten._unsafe_view.default:
        return node.args[0]
    if not isinstance(target, torch._ops.OpOverload) or not target.is_view:
        return None
    aliased = (each for each, argument in zip(node.args, target._schema.arguments) if argument.alias_info is not None)
    return next((each for each in aliased if isinstance(each, fx.Node)), None)


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in _flat(item)]
    return [value] if isinstance(value, torch.Tensor) else []


def _nodes(items: Any) -> list[fx.Node]:
    return [item for item in items if isinstance(item, fx.Node)]


def _tensors(items: Any) -> list[fx.Node]:
    return [node for node in _nodes(items) if isinstance(example(node), torch.Tensor)]
