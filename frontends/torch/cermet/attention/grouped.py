"""Heads of keys and values that are repeated for attention become grouped queries (`enable_gqa=True`).

A repetition is whatever gives every group of query heads the head that it shares, however it is spelled: the repeated
tensor and the one before it are compared element by element (functions.py). Where torch would have no kernel of its own
for the grouped call, as on CUDA beside a mask or in float32, a single query of each head (a decoding step) can still be
one of several queries of the head that it shares; anything else is left alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.fx as fx

from ..graph import nodes
from ..graph.decision import Declined
from ..graph.edit import erase_unused, is_pure, rewriting
from ..graph.effects import WRITE, effect_of
from ..graph.layouts import written
from ..graph.memory import memories
from ..graph.nodes import example
from ..ops.attending import ATTEND, ATTEND_DROPPING, ATTEND_SINKING, FULL, KINDS, TOLD, Band
from ..ops.ranges import ATTEND_MASKED, ATTEND_RANGES
from .calls import Change, arguments, attentions, changed, consequences, traced
from .kernels import Form, kernel_of
from .masks import outer_values
from .proof.elements import Unsupported
from .proof.functions import Functions, TooComplex
from .proof.linear import Facts, Linear

_STEPS = 8  # calls between a tensor and its repetition
_Writes = dict[fx.Graph, list[tuple[fx.Node, tuple[fx.Node, ...]]]]  # of each graph


def apply(module: fx.GraphModule) -> int:
    """Groups the queries of a graph's and its bodies' attentions where that is the same; returns of how many.

    On an exception the graph and its bodies are as they were.
    """
    modules = list(nodes.modules(module))
    attends = any(True for part in modules for _ in (*attentions(part), *_over_segments(part)))
    changes = list(_changes(modules)) if attends else []
    if not changes:
        return 0
    with rewriting(modules):
        for change in changes:
            before = dict(zip(("query", "key", "value"), change.node.args)) | arguments(change.node)
            change.apply()
            for node in dict.fromkeys((before["key"], before["value"])):
                if not node.users and is_pure(node, change.module):
                    erase_unused(change.module, [node])
    return len(changes)


def _changes(modules: Sequence[fx.GraphModule]) -> Iterator[Change]:
    shared = Shared(modules)
    values: dict[fx.Node, torch.Tensor] = {}
    for module in modules:
        for node in attentions(module):
            given = arguments(node)
            if given.get("enable_gqa", False) is not False:
                continue
            sources = shared.sources(given)
            for change_of in (_grouped, _beside_each_other) if sources is not None else ():
                try:
                    change = change_of(module, node, values, *sources)
                except Declined:
                    continue
                values |= change.values
                yield change
                break
        for node in _over_segments(module):
            sources = shared.sources(dict(zip(("query", "key", "value"), node.args)))
            if sources is None:
                continue
            try:
                yield _SharedBySegments.of(module, node, *sources)
            except Declined:
                continue


def _over_segments(module: fx.GraphModule) -> list[fx.Node]:
    calls = ATTEND, ATTEND_DROPPING, ATTEND_SINKING, ATTEND_RANGES, ATTEND_MASKED
    return [node for target in calls for node in module.graph.find_nodes(op="call_function", target=target)]


@dataclasses.dataclass(frozen=True)
class _SharedBySegments(Change):
    """A call over segments whose keys and values are those that heads share; its result is what it was."""

    @classmethod
    def of(cls, module: fx.GraphModule, node: fx.Node, key: fx.Node, value: fx.Node) -> _SharedBySegments:
        query, masked = example(node.args[0]), node.target is ATTEND_MASKED
        ranged = masked or node.target is ATTEND_RANGES
        band, kernel = (FULL, node.args[-1]) if ranged else (Band(*node.args[6:8]), node.args[9])
        shared, drops = query.shape[1] // example(key).shape[1], node.target is ATTEND_DROPPING
        one_sided = not ranged and node.args[3] is not node.args[4]  # the ends of queries and of keys
        widths = query.shape[3], example(value).shape[3]
        if ranged and not (example(key).is_contiguous() and example(value).is_contiguous()):
            raise Declined("keys or values of a head do not lie behind one another")
        forms = [
            Form(query.device, query.dtype, shared, *widths, each, one_sided, ranged, drops, masked)
            for each in (KINDS if band == TOLD else (band,))
        ]
        if any(kernel_of(form) != kernel for form in forms):
            raise Declined("another kernel would take it")
        return cls(module, node, {"query": node.args[0], "key": key, "value": value}, {})

    def apply(self) -> None:
        self.node.args = (*self.arguments.values(), *self.node.args[3:])


def _grouped(
    module: fx.GraphModule, node: fx.Node, values: dict[fx.Node, torch.Tensor], key: fx.Node, value: fx.Node
) -> Change:
    return changed(module, node, values, True, key=key, value=value, enable_gqa=True)


@dataclasses.dataclass(frozen=True)
class _BesideEachOther(Change):
    """The single queries of the heads that share one, as that head's queries."""

    queries: torch.Tensor  # fake values: of those, of what attention makes of them, and of that as it was
    attended: torch.Tensor
    result: torch.Tensor

    def apply(self) -> None:
        graph, given = self.node.graph, self.arguments
        name = "val" if "val" in self.node.meta else "example_value"
        with graph.inserting_before(self.node):
            queries = graph.call_method("reshape", (given["query"], *_beside(given)))
        with graph.inserting_after(self.node):
            result = graph.call_method("reshape", (self.node, *_apart(given)))
        self.node.replace_all_uses_with(result, delete_user_cb=lambda user: user is not result)
        queries.meta = {**given["query"].meta, name: self.queries}
        result.meta = {**self.node.meta, name: self.result}
        values = {**self.values, self.node: self.attended}
        Change(self.module, self.node, {**given, "query": queries}, values).apply()


def _beside_each_other(
    module: fx.GraphModule, node: fx.Node, values: dict[fx.Node, torch.Tensor], key: fx.Node, value: fx.Node
) -> Change:
    given = {**arguments(node), "key": key, "value": value}
    query, mask = example(given["query"]), given.get("attn_mask")
    if written(query.shape[-2]) != "1" or given.get("dropout_p") or given.get("is_causal"):
        raise Declined("more than one query, a random number for each, or its place")
    if not isinstance(query.shape[-1], int) or (mode := getattr(query, "fake_mode", None)) is None:
        raise Declined("a width that is not known")
    if mask is not None and any(written(size) != "1" for size in example(mask).shape[-3:-1]):
        raise Declined("a mask of each head's own")
    with mode:
        queries = query.reshape(_beside(given))
    with node.graph.inserting_before(node):
        asked = node.graph.call_method("reshape", (given["query"], *_beside(given)))
    asked.meta["example_value"] = queries
    try:
        attended, kernel = traced(node, {**given, "query": asked})
    finally:
        node.graph.erase_node(asked)
    if kernel is None:
        raise Declined("attention has no kernel for it")
    with mode:
        result = attended.reshape(_apart(given))
    return _BesideEachOther(
        module, node, given, consequences(module, node, result, values), queries, attended, result
    )


def _beside(given: dict[str, Any]) -> tuple[int, ...]:
    heads, all_heads, width = example(given["key"]).shape[-3], *example(given["query"]).shape[-3::2]
    return -1, heads, all_heads // heads, width


def _apart(given: dict[str, Any]) -> tuple[int, ...]:
    return -1, example(given["query"]).shape[-3], 1, example(given["value"]).shape[-1]


class Shared:
    """What finds the heads that others are repetitions of, in a graph and its bodies."""

    def __init__(self, modules: Sequence[fx.GraphModule]) -> None:
        self._functions = Functions(modules, outer_values(modules))
        self._writes: _Writes = {module.graph: _writes(module) for module in modules}

    def source(self, repeated: fx.Node, query: torch.Tensor) -> fx.Node | None:
        """The tensor whose heads, each as often as queries share it, are this one's."""
        if not isinstance(repeated, fx.Node) or example(repeated).dim() != 4:
            return None
        node, between = repeated, []
        for _ in range(_STEPS):
            inputs = [item for item in node.all_input_nodes if isinstance(example(item), torch.Tensor)]
            if not inputs or node.op == "placeholder":
                return None
            between.append(node)
            node = inputs[0]
            settled = [*between, node] if self._reads_alone(between, node) else []
            try:
                with self._functions.settled(settled):
                    if _repeats(self._functions, repeated, node, query):
                        return node
            except (Unsupported, TooComplex):
                return None
        return None

    def sources(self, given: dict[str, Any]) -> list[fx.Node] | None:
        """Those of an attention's keys and values, if both are repeated alike."""
        query = example(given["query"])
        key, value = (self.source(given[name], query) for name in ("key", "value"))
        if key is None or value is None or example(key).shape[-3] != example(value).shape[-3]:
            return None
        return [key, value]

    def _reads_alone(self, between: Sequence[fx.Node], source: fx.Node) -> bool:
        """Whether nothing writes a source's memory from the first of these, which lie between it and its repetition,
        on: a cache has got its rows by then."""
        first, memory = min(between), memories(example(source))
        behind = [target for node, targets in self._writes[source.graph] if not node < first for target in targets]
        return all(memory.isdisjoint(memories(example(target))) for target in behind)


def _writes(module: fx.GraphModule) -> list[tuple[fx.Node, tuple[fx.Node, ...]]]:
    """A graph's nodes that write, and what they write."""
    effects = [(node, effect_of(node, module)) for node in module.graph.nodes]
    return [(node, effect.written) for node, effect in effects if effect.kind == WRITE]


def _repeats(functions: Functions, repeated: fx.Node, source: fx.Node, query: torch.Tensor) -> bool:
    """Whether head `g * h + r` of one is head `h` of the other, for `g` of query's heads to each."""
    if example(source).dim() != 4 or query.dim() != 4 or example(source).dtype != example(repeated).dtype:
        return False
    heads, all_heads = example(source).shape[-3], query.shape[-3]
    if not isinstance(heads, int) or not isinstance(all_heads, int) or not 0 < heads < all_heads or all_heads % heads:
        return False
    group = all_heads // heads
    shape = functions.shape(source)
    batch, _, row, column = shape
    if functions.shape(repeated) != (batch, Linear(all_heads), row, column):
        return False
    names = ("batch", "head", "row", "column")
    places = [functions.new(name) if size != Linear(1) else Linear(0) for name, size in zip(names, shape)]
    member = functions.new("member")
    facts = functions.inside(Facts(), (*places, member), (*shape, Linear(group)))
    inner = (places[0], places[1] * group + member, *places[2:])
    return functions.element(repeated, inner, facts) == functions.element(source, tuple(places), facts)
