"""Attention masks that provably say what attention has kernels of its own for: causal ones become `is_causal=True`,
full ones, which let every query attend to every key, are left out, windows, documents and padding become calls over
segments (lengths.py), and those of a static cache calls to ranges of keys (ranged.py). So do masks that a caller hands
to a few queries, of which nothing needs to be proved: the device reads them.

`find` only looks; meanings.py says what a mask means. Where that holds under a condition of the graph's inputs only,
the mask has that meaning in a variant of the graph (variants.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.fx as fx

from ..errors import Error
from ..graph import nodes
from ..graph.decision import Declined, NearMiss
from ..graph.edit import erase_unused, is_pure, rewriting
from ..graph.nodes import attribute, example, source_line
from ..ops.attending import CAUSAL
from . import lengths, written_out
from .blocks import path
from .calls import Change, arguments, attentions, changed
from .lengths import Attending, attending
from .meanings import Meaning, Proof, proofs
from .proof.functions import Functions
from .questions import Unproved
from .ranged import Known, Ranging, masking, ranging
from .readings import Kind, is_readable


@dataclasses.dataclass(frozen=True)
class Mask:
    """One attention whose mask has a meaning."""

    module: fx.GraphModule
    attention: fx.Node
    mask: fx.Node  # what it is called with
    proof: Proof
    change: Change

    @property
    def meaning(self) -> Meaning:
        return self.proof.meaning

    @property
    def given(self) -> tuple[fx.Node, ...]:
        return self.proof.given

    @property
    def kind(self) -> Kind | None:
        """What the call must be told of its segments."""
        if self.proof.segments is None:
            return None
        batch, _, length, _ = example(arguments(self.attention)["query"]).shape
        return Kind(self.proof.segments, batch, length)

    def compact(self) -> Mask:
        """For a graph of shown places alone."""
        segments = dataclasses.replace(self.proof.segments, compact=True)
        return dataclasses.replace(self, proof=dataclasses.replace(self.proof, segments=segments))

    def where(self) -> str:
        """What must hold of the inputs, as a part of a sentence; "" where nothing must."""
        if self.given:
            return f" where {', '.join(node.name for node in self.given)} is 1 everywhere"
        if self.proof.segments is None:
            return ""
        return f" where {self.proof.segments}"

    def __str__(self) -> str:
        return f"{source_line(self.attention)}{self.where()}"


@dataclasses.dataclass
class Found:
    """An attention may have two masks: one with a meaning `given` ones, and one by segments."""

    masks: list[Mask]
    near_misses: list[NearMiss]

    @property
    def given(self) -> tuple[fx.Node, ...]:
        """Every input that some mask asks to be one everywhere."""
        return tuple(dict.fromkeys(node for mask in self.masks for node in mask.given))

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """All that calls over segments must be told."""
        return tuple(_by_segments(self.masks).values())

    def compact(self) -> Found:
        """Those of padding, for a graph of shown places alone."""
        shown = [mask for mask in self.masks if mask.meaning is Meaning.PADDING]
        return Found([mask.compact() for mask in shown], self.near_misses)


def _by_segments(masks: Sequence[Mask]) -> dict[Any, Kind]:
    """Kinds of segments, by what tells two apart."""
    found = {}
    for mask in masks:
        if (kind := mask.kind) is not None:
            found.setdefault(_key(kind), kind)
    return found


def _key(kind: Kind) -> tuple[Any, ...]:
    return kind.segments, str(kind.rows), str(kind.length)


def find(module: fx.GraphModule) -> Found:
    """The masks with a meaning of a graph and of the bodies of its higher-order operators. Another one that treats keys
    before and after a query alike is no near miss."""
    modules = list(nodes.modules(module))
    found = Found([], [])
    masked = [
        (part, node)
        for part in modules
        for node in (*attentions(part), *written_out.with_sinks(part))
        if isinstance(arguments(node).get("attn_mask"), fx.Node)
    ]
    if not masked:
        return found
    outer = outer_values(modules)
    functions = Functions(modules, outer)
    known: dict[tuple[Any, ...], list[Proof] | Unproved | None] = {}
    # What calls become whose strides differ: where masks go that ask nothing of segments, and where others go, too.
    values: tuple[dict[fx.Node, torch.Tensor], ...] = {}, {}
    for part, node in masked:
        untaken: Declined | None = None  # why a mask that is handed in is not read as a buffer's
        try:
            given = arguments(node)
            mask = given["attn_mask"]
            while mask in outer:
                mask = outer[mask]
            try:
                handed_in = None if "sinks" in given else path(mask, functions)
                if (change := masking(part, node, handed_in, values[False])) is not None:
                    found.masks.append(Mask(part, node, given["attn_mask"], Proof(Meaning.LENGTH), change))
                    for before in values:
                        before.update(change.values)
                    continue
            except Declined as reason:
                untaken = reason
            sizes = tuple(str(example(given[name]).shape[-2]) for name in ("query", "key"))
            if (mask, sizes) not in known:
                known[mask, sizes] = proofs(functions, mask, node)
            proved = known[mask, sizes]
            if isinstance(proved, Unproved):
                raise proved
        except (Unproved, AttributeError, IndexError) as reason:  # the last two: a call of another form
            meaning = Meaning.CAUSAL if untaken is None else Meaning.LENGTH
            found.near_misses.append(_near_miss(meaning, node, untaken or reason))
            continue
        here: list[Mask] = []
        declined: list[NearMiss] = []
        for proof in proved or ():
            try:
                change = _change(module, functions, part, node, proof, values[proof.segments is not None])
            except (Declined, AttributeError, IndexError) as reason:
                declined.append(_near_miss(proof.meaning, node, reason))
                continue
            here.append(Mask(part, node, given["attn_mask"], proof, change))
        if any(mask.meaning is Meaning.DOCUMENT for mask in here):  # which a call whose numbers are all one has, too
            here = [mask for mask in here if mask.meaning is Meaning.DOCUMENT]
        found.masks += here
        # What is left of documents where all numbers are one is no reason to be silent about the others.
        found.near_misses += [miss for miss in declined if not here or miss.pattern == Meaning.DOCUMENT.value][:1]
        for by_segments, before in enumerate(values):
            taken = [each for each in here if each.proof.always or by_segments == (each.proof.segments is not None)]
            before.update(taken[0].change.values if taken else {})
    return found


def _near_miss(meaning: Meaning, node: fx.Node, reason: Exception) -> NearMiss:
    return NearMiss(meaning.value, node.name, str(reason), source_line(node))


def _change(
    module: fx.GraphModule,
    functions: Functions,
    part: fx.GraphModule,
    node: fx.Node,
    proof: Proof,
    values: dict[fx.Node, torch.Tensor],
) -> Change:
    """What becomes of an attention whose mask has a meaning. Raises Declined."""
    if "sinks" in arguments(node):
        if proof.segments is not None or proof.ranges is not None:
            raise Declined("its heads have sinks, expected a mask that is a band: what is hidden here is in the data")
        band = CAUSAL if proof.meaning is Meaning.CAUSAL else proof.band
        return attending(part, node, dataclasses.replace(proof, band=band), values)
    if proof.meaning in (Meaning.CAUSAL, Meaning.FULL):
        return changed(part, node, values, False, attn_mask=None, is_causal=proof.meaning is Meaning.CAUSAL)
    if proof.ranges is not None:
        return ranging(part, node, proof, values)
    for tensor in proof.segments.tensors if proof.segments is not None else ():
        if not is_readable(tensor, functions, module):
            raise Declined(f"{tensor.node.name} is not there before the graph runs")
    return attending(part, node, proof, values)


def outer_values(modules: Sequence[fx.GraphModule]) -> dict[fx.Node, fx.Node]:
    """Which value of the graph around it a placeholder of a body is, where every call passes the same one."""
    found: dict[fx.Node, set[fx.Node | None]] = {}
    for module in modules:
        for node in module.graph.nodes:
            for body, operands in _bodies(module, node):
                places = [item for item in body.graph.nodes if item.op == "placeholder"]
                for index, place in enumerate(places):
                    operand = operands[index] if len(operands) == len(places) else None
                    found.setdefault(place, set()).add(operand if isinstance(operand, fx.Node) else None)
    return {
        place: operand
        for place, operands in found.items()
        if len(operands) == 1 and (operand := next(iter(operands))) is not None
    }


def _bodies(module: fx.GraphModule, node: fx.Node) -> Iterator[tuple[fx.GraphModule, list[Any]]]:
    """The bodies that a higher-order operator runs, each with its operands."""
    if not isinstance(node.target, torch._ops.HigherOrderOperator):
        return
    bodies = {
        argument: body
        for argument in node.args
        if isinstance(argument, fx.Node)
        and argument.op == "get_attr"
        and isinstance(body := attribute(module, argument.target), fx.GraphModule)
    }
    operands = [argument for argument in node.args if argument not in bodies and not isinstance(argument, str)]
    for body in bodies.values():
        yield body, operands if len(bodies) == 1 else []


# --- The rewrite -----------------------------------------------------------------------------------------------------

def apply(module: fx.GraphModule, masks: Sequence[Mask]) -> None:
    """Takes these attentions' masks from them, in the graph that they were found in, and removes what nothing reads
    then.

    On an exception the graph and its bodies are as they were.
    """
    if not masks:
        return
    for size in {str(size): size for mask in masks for size in mask.proof.limits}.values():
        if not size >= 0:  # a guard: another size compiles again
            raise Error(f"{size} is below zero, expected what the proof of a mask assumed")
    modules = list(nodes.modules(module))
    with rewriting(modules):
        _apply(module, modules, masks)


def _apply(module: fx.GraphModule, modules: Sequence[fx.GraphModule], masks: Sequence[Mask]) -> None:
    ends: dict[Any, list[lengths.Ends]] = {}
    for mask in masks:
        kind = mask.kind
        if kind is not None and _key(kind) not in ends:
            ends[_key(kind)] = lengths.add_inputs(module, mask.attention, kind)
    within: dict[tuple[fx.GraphModule, fx.Node], fx.Node] = {}
    bounds: Known = {}
    for mask in masks:
        if isinstance(mask.change, Attending):
            calls = ends[_key(mask.kind)] if mask.kind is not None else []
            here = [[_within(modules, module, mask.module, each, within) for each in call] for call in calls]
            mask.change.apply([(queries, keys, told) for queries, keys, told in here])
        elif isinstance(mask.change, Ranging):
            mask.change.apply(bounds)
        else:
            mask.change.apply()
    unread = list(dict.fromkeys((mask.module, mask.mask) for mask in masks))
    while unread:
        owner, node = unread.pop()
        if node.users:
            continue
        if node.op == "placeholder" and owner is not module:
            unread += _operands_dropped(modules, owner, node)
        elif is_pure(node, owner):
            erase_unused(owner, [node])


def _within(
    modules: Sequence[fx.GraphModule],
    outermost: fx.GraphModule,
    body: fx.GraphModule,
    value: fx.Node,
    known: dict[tuple[fx.GraphModule, fx.Node], fx.Node],
) -> fx.Node:
    """A value of the outermost graph in a body, which is given it by its calls. Raises Error where they are unknown."""
    if body is outermost:
        return value
    if (body, value) in known:
        return known[body, value]
    places = [node for node in body.graph.nodes if node.op == "placeholder"]
    calls = _calls(modules, body)
    if not calls or any(len(operands) != len(places) for _, _, operands in calls):
        raise Error("a body's calls are not known, expected each to hand over as many operands as it has inputs")
    with body.graph.inserting_after(places[-1]):
        known[body, value] = place = body.graph.placeholder(f"{value.name}_given")
    place.meta = dict(value.meta)
    for module, node, _ in calls:
        node.args = (*node.args, _within(modules, outermost, module, value, known))
    return place


def _calls(
    modules: Sequence[fx.GraphModule], body: fx.GraphModule
) -> list[tuple[fx.GraphModule, fx.Node, list[Any]]]:
    """Who runs a body, with which operands."""
    return [
        (module, node, operands)
        for module in modules
        for node in module.graph.nodes
        for other, operands in _bodies(module, node)
        if other is body
    ]


def _operands_dropped(
    modules: Sequence[fx.GraphModule], body: fx.GraphModule, place: fx.Node
) -> list[tuple[fx.GraphModule, fx.Node]]:
    """Takes a placeholder that nothing reads from a body and from its calls; returns what they passed."""
    calls = _calls(modules, body)
    places = [node for node in body.graph.nodes if node.op == "placeholder"]
    if any(len(operands) != len(places) for _, _, operands in calls):
        return []
    passed = []
    for module, node, operands in calls:
        position = len(node.args) - len(operands) + places.index(place)
        operand = node.args[position]
        node.args = (*node.args[:position], *node.args[position + 1 :])
        if isinstance(operand, fx.Node):
            passed.append((module, operand))
    body.graph.erase_node(place)
    return passed
