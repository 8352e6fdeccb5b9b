"""Puts region ops into an FX graph, in place of what they replace.

A new node goes after every operand has its right version and before anything needs it, and not before all that it
replaces: what a backward makes again of its inputs alone is not held from its beginning on. It carries what tracing
leaves on a node, and what nothing reads any more is removed. On an exception the graph is as it was.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.symbolic_shapes import guard_scalar

from .. import environment
from ..graph.decision import Decision, Declined, NearMiss, Region
from ..graph import memory
from ..graph.edit import erase_unused, rewriting
from ..graph.effects import PURE, WRITE, effect_of
from ..graph.nodes import after_autograd, example
from ..importing.translations.call import symbolic_float
from ..loss import edges, given, head, values
from ..loss.edges import Edge
from ..loss.linears import linear_operands
from ..ops import regions
from . import checking

_KEPT_META = ("stack_trace", "nn_module_stack", "source_fn_stack")


@dataclasses.dataclass
class Replaced:
    """What was done to a graph: the regions that it has now and the call of each, those that found no place, edges to
    attach outside."""

    regions: list[Region] = dataclasses.field(default_factory=list)
    near_misses: list[NearMiss] = dataclasses.field(default_factory=list)
    edges: list[Edge] = dataclasses.field(default_factory=list)
    calls: list[fx.Node] = dataclasses.field(default_factory=list)


def _operands(region: Region) -> list[fx.Node]:
    """What a region's op reads."""
    if region.head is None or region.head.linear is None:
        return region.operands
    operands = list(region.operands)
    if region.head.made:
        del operands[region.head.position]
    return [*linear_operands(region.head.linear).nodes(), *operands]


def _call(
    module: fx.GraphModule, region: Region, behind_autograd: bool
) -> tuple[torch._ops.OpOverload, tuple[Any, ...]]:
    """The op that stands for a region whose nodes are still in the graph, and its arguments."""
    if environment.check():
        return checking.call(module, region)
    operands = _operands(region)
    if region.head is None:
        op = regions.launch_op if behind_autograd else regions.region_op
        return op(len(operands), len(region.results)), (*operands, region.key)
    if region.head.linear is None:
        return given.op(len(operands)), (*operands, region.key, region.head.position)
    linear, chunk = linear_operands(region.head.linear), [region.head.chunk] if region.head.made else []
    operands = operands[len(linear.nodes()) :]
    arguments = (*linear.arguments(), *operands, *linear.factors, region.key, region.head.position, *chunk)
    if region.head.of_values:
        return values.op(len(operands), len(linear.factors)), arguments
    return head.op(region.head.made, len(operands), len(linear.factors)), arguments


def _place(region: Region, dying: set[fx.Node], states: dict[fx.Node, tuple[Any, ...]]) -> fx.Node:
    """The node before which the new one goes: after every operand has its right version, before anything needs it,
    under the grad mode and autocast of what it replaces."""
    needed = [*_operands(region), *region.results]
    for node in needed:
        if node._erased:
            raise Declined(f"{node.name} went with another region")
    graph = needed[-1].graph
    root, last = graph._root, graph.output_node()
    after = max([*_operands(region), *region.since], default=root)
    first = min((node for node in region.replaced if not node._erased), default=after)
    readers = [user for node in region.results for user in node.users if user not in dying]
    before = min([*readers, *region.until], default=last)

    def state_before(node: fx.Node) -> tuple[Any, ...]:
        return states[last if node.prev is root else node.prev]

    place = first if after < first else after.next
    while place < before and (place.op == "placeholder" or state_before(place) != region.state):
        place = place.next
    if before < place:
        if not _let_wait(region, [node for node in readers if not after < node], after):
            raise Declined(f"{before.name} reads a result or writes an operand before {after.name} exists")
        return _place(region, dying, states)
    if state_before(place) != region.state:
        raise Declined(f"{before.name} runs under another grad mode or autocast than the sequence")
    return place


def _let_wait(region: Region, readers: list[fx.Node], last: fx.Node) -> bool:
    """Moves readers of results, and all that follows from them, behind the last operand, where nothing holds them: in a
    graph that autograd made, what only computes may run later, unless what it reads is written before that."""
    if not readers or not after_autograd(last.graph):
        return False
    waiting = set(readers)
    for node in _between(min(readers), last):
        if not waiting.isdisjoint(node.all_input_nodes):
            waiting.add(node)
    if waiting & {*_operands(region), *region.since, *region.until}:
        return False
    moved = sorted(waiting)
    touched = memory.memories([example(each) for node in moved for each in (node, *node.all_input_nodes)])
    module = last.graph.owning_module
    for node in _between(moved[0], last):
        effect = effect_of(node, module)
        if node in waiting and effect.kind != PURE:
            return False
        if effect.kind == WRITE and not touched.isdisjoint(memory.memories([example(each) for each in effect.written])):
            return False
    place = last
    for node in moved:
        place.append(node)
        place = node
    return True


def _between(first: fx.Node, last: fx.Node) -> Iterator[fx.Node]:
    """The nodes from one to another, both included."""
    while first is not last:
        yield first
        first = first.next
    yield last


def apply(decision: Decision) -> Replaced:
    """Rewrites the decision's graph."""
    if not decision.regions:
        return Replaced()
    with rewriting([decision.module]):
        return _apply(decision)


def _apply(decision: Decision) -> Replaced:
    graph = decision.module.graph
    behind_autograd = after_autograd(graph)
    replaced = Replaced()
    became: dict[fx.Node, fx.Node] = {}
    for region in decision.regions:
        region = dataclasses.replace(region, operands=[_current(node, became) for node in region.operands])
        dying = region.dying()
        try:
            place = _place(region, dying, decision.states)
        except Declined as reason:
            missed = NearMiss(region.pattern, region.results[0].name, str(reason), region.source)
            replaced.near_misses.append(missed)
            continue
        for node in region.replaced:
            for argument in node.args:
                scalar = symbolic_float(argument)
                if scalar is not None:
                    guard_scalar(scalar)  # the region holds this number: another one compiles again
        with graph.inserting_before(place):
            call, made = _insert(graph, region, decision.states, behind_autograd)
        became |= made
        for node in region.results:
            node.replace_all_uses_with(became[node])
        erase_unused(decision.module, sorted(dying, reverse=True))
        replaced.regions.append(region)
        replaced.calls.append(call)
    returned = [region.head for region in replaced.regions if region.head is not None and region.head.returned]
    if returned:
        replaced.edges = edges.detach(decision.module, returned, lambda node: _current(node, became))
    return replaced


def _current(node: fx.Node, became: dict[fx.Node, fx.Node]) -> fx.Node:
    while node in became:
        node = became[node]
    return node


def _insert(
    graph: fx.Graph, region: Region, states: dict[fx.Node, tuple[Any, ...]], behind_autograd: bool
) -> tuple[fx.Node, dict[fx.Node, fx.Node]]:
    """The new op, and what each result becomes: it, or of several a getitem. Each carries what tracing leaves on a
    node."""
    first = region.results[0]
    tracing = "val" if behind_autograd else "example_value"
    kept = {name: first.meta[name] for name in _KEPT_META if name in first.meta}
    call = graph.call_function(*_call(graph.owning_module, region, behind_autograd))
    call.meta = dict(kept)
    states[call] = region.state
    if len(region.results) == 1:
        call.meta[tracing] = region.values[0]
        return call, {first: call}
    call.meta[tracing] = tuple(region.values)
    became = {}
    for index, result in enumerate(region.results):
        item = graph.call_function(operator.getitem, (call, index))
        states[item] = region.state
        item.meta = {**kept, tracing: region.values[index]}
        became[result] = item
    return call, became
