"""Attention masks that provably say what attention has kernels of its own for: causal ones become `is_causal=True`, and
full ones, which let every query attend to every key, are left out.

`find` only looks. A mask has a meaning if, for all inputs, all batch entries, all heads and all sizes that the traced
symbols may have, a query attends to exactly the keys that the meaning names; that is proved by evaluating how the
graph computes the mask (functions.py). Where that holds as soon as some inputs are one everywhere, as the padding
mask of a batch without padding is, the mask has that meaning `given` those inputs.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.fx as fx

from ..errors import Error
from ..graph import nodes
from ..graph.decision import Declined, NearMiss
from ..graph.edit import erase_unused, is_pure, rewriting
from ..graph.nodes import attribute, example, source_line
from ..text import INTEGERS
from .calls import Change, arguments, attentions, changed
from .proof.elements import Element, Fork, Real, is_formula, leaves
from .proof.functions import Functions, TooComplex
from .proof.linear import AtLeastZero, Facts, Linear, comparisons

# A score plus less than this is below every other score of a row by more than any exponential can tell, unless scores
# are so large themselves that they overflow. The least number of float16 is none.
_NEVER = -1e30
_MAX_LIMITS = 4


class Meaning(enum.Enum):
    """Which keys a query attends to, by the name of the sites in a report."""

    CAUSAL = "causal_mask"  # those that do not come after it
    FULL = "full_mask"  # all

    def __str__(self) -> str:
        return self.name.lower()


@dataclasses.dataclass(frozen=True)
class Proof:
    """What a mask means, and under what."""

    meaning: Meaning
    given: tuple[fx.Node, ...] = ()  # inputs of the outermost graph that must be one everywhere
    limits: tuple[torch.SymInt, ...] = ()  # sizes that must be at least zero, as they are in what was traced


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

    def where(self) -> str:
        """What must hold of the inputs, as a part of a sentence; "" where nothing must."""
        return f" where {', '.join(node.name for node in self.given)} is 1 everywhere" if self.given else ""

    def __str__(self) -> str:
        return f"{source_line(self.attention)}{self.where()}"


@dataclasses.dataclass
class Found:
    masks: list[Mask]
    near_misses: list[NearMiss]

    @property
    def given(self) -> tuple[fx.Node, ...]:
        """Every input that some mask asks to be one everywhere."""
        return tuple(dict.fromkeys(node for mask in self.masks for node in mask.given))


class _Unproved(Exception):
    """Why a mask is proved neither causal nor full, and numbers that would have to be at least zero for it."""

    def __init__(self, reason: str, missing: Sequence[Linear] = ()) -> None:
        super().__init__(reason)
        self.missing = missing


def find(module: fx.GraphModule) -> Found:
    """The masks with a meaning of a graph and of the bodies of its higher-order operators. Another one that treats keys
    before and after a query alike, as a window of bidirectional attention does, is no near miss."""
    modules = list(nodes.modules(module))
    found = Found([], [])
    masked = [
        (part, node)
        for part in modules
        for node in attentions(part)
        if isinstance(arguments(node).get("attn_mask"), fx.Node)
    ]
    if not masked:
        return found
    outer = outer_values(modules)
    proofs: dict[tuple[Any, ...], Proof | _Unproved | None] = {}
    values: dict[fx.Node, torch.Tensor] = {}
    for part, node in masked:
        try:
            given = arguments(node)
            mask = given["attn_mask"]
            while mask in outer:
                mask = outer[mask]
            sizes = tuple(str(example(given[name]).shape[-2]) for name in ("query", "key"))
            if (mask, sizes) not in proofs:
                proofs[mask, sizes] = _proof(modules, outer, mask, node)
            proof = proofs[mask, sizes]
            if isinstance(proof, _Unproved):
                raise proof
            if proof is None:
                continue
            causal = proof.meaning is Meaning.CAUSAL
            change = changed(part, node, values, False, attn_mask=None, is_causal=causal)
        except (_Unproved, Declined, AttributeError, IndexError) as reason:  # the last two: a call of another form
            found.near_misses.append(NearMiss("causal_mask", node.name, str(reason), source_line(node)))
            continue
        values |= change.values
        found.masks.append(Mask(part, node, given["attn_mask"], proof, change))
    return found


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


# --- The proof -------------------------------------------------------------------------------------------------------


def _proof(
    modules: Sequence[fx.GraphModule], outer: dict[fx.Node, fx.Node], mask: fx.Node, attention: fx.Node
) -> Proof | _Unproved | None:
    """What the mask means, or why that is not known; None where it is of another kind, with or without padding."""
    functions = Functions(modules, outer)
    first = _within_limits(functions, (), mask, attention)
    if isinstance(first, Proof):
        return first
    both_ways = _both_ways(functions, mask)
    for candidate in _paddings(functions, modules[0]):
        padded = Functions(modules, outer, frozenset([candidate]))
        proof = _within_limits(padded, (candidate,), mask, attention)
        if isinstance(proof, Proof) and (proof.meaning is Meaning.CAUSAL or _of_keys(functions, mask)):
            return proof
        both_ways = both_ways or _both_ways(padded, mask)
    return None if both_ways else first


def _both_ways(functions: Functions, mask: fx.Node) -> bool:
    """Whether, for every query, keys that are equally far before and after it are provably treated alike."""
    try:
        shape = functions.shape(mask)
        places = [functions.new(name) for name in ("batch", "head", "query")[-len(shape) + 1 :]]
        distance = functions.new("distance")
        query, keys = places[-1], shape[-1]
        facts = functions.inside(Facts(frozenset({distance - 1})), tuple(places), (*shape[:-2], keys))
        facts = functions.inside(facts, (query + distance, query - distance), (keys, keys))
        outer = tuple(Linear(0) if size == Linear(1) else place for size, place in zip(shape, places))
        after, before = (functions.element(mask, (*outer, key), facts) for key in (query + distance, query - distance))
        return keys != Linear(1) and after == before
    except Exception:  # nothing is known then, which the reason that is reported says
        return False


def _of_keys(functions: Functions, mask: fx.Node) -> bool:
    """Whether a mask is the same for every query, as one of padding is and one of positions is not."""
    shape = functions.shape(mask)
    places = tuple(functions.new("place") for _ in shape)
    other = (*places[:-2], functions.new("query"), places[-1])
    facts = functions.inside(Facts(), (*places, other[-2]), (*shape, shape[-2]))
    first, second = (
        functions.element(mask, tuple(Linear(0) if size == Linear(1) else place for size, place in zip(shape, at)), facts)
        for at in (places, other)
    )
    return first == second


def _within_limits(
    functions: Functions, given: tuple[fx.Node, ...], mask: fx.Node, attention: fx.Node
) -> Proof | _Unproved:
    """As `_proof`, with what is missing taken to hold if it is about sizes alone and held for those that were traced:
    a window is wide enough for all sequences that are no longer than it."""
    limits: dict[Linear, torch.SymInt] = {}
    while True:
        try:
            return Proof(_meaning(functions, mask, attention, frozenset(limits)), given, tuple(limits.values()))
        except _Unproved as reason:
            fitting = {form: size for form in reason.missing if (size := _as_size(functions, form)) is not None}
            if not fitting.keys() - limits.keys() or len(limits) >= _MAX_LIMITS:
                return reason
            limits |= fitting


def _as_size(functions: Functions, form: Linear) -> torch.SymInt | None:
    """A form over symbols as a traced number, if that is at least zero."""
    total: Any = form.constant
    hint = form.constant
    for atom, factor in form.terms:
        size = functions.symbols.get(atom)
        if size is None or not size.node.has_hint():
            return None
        total = total + size * factor
        hint += size.node.hint * factor
    if form.fixed:
        return None
    return total if hint >= 0 else None


def _paddings(functions: Functions, module: fx.GraphModule) -> list[fx.Node]:
    """Inputs of the outermost graph that the proof came upon and that can be a padding mask."""
    return [
        node
        for node in module.graph.nodes
        if node.op == "placeholder"
        and node in functions.reached
        and not functions.writes(node)
        and example(node).dim() <= 2
        and example(node).dtype in (*INTEGERS, torch.bool)
    ]


def _meaning(functions: Functions, mask: fx.Node, attention: fx.Node, limits: frozenset[Linear]) -> Meaning:
    """What the mask means. Raises _Unproved, with the reason, where it is neither causal nor full."""
    given = arguments(attention)
    if given.get("is_causal", False) is not False:
        raise _Unproved("is_causal is given beside a mask")
    value = example(mask)
    if not isinstance(value, torch.Tensor) or value.requires_grad or value.dim() < 2:
        raise _Unproved("the mask is learned or no matrix")
    try:
        queries, keys = (functions.size(example(given[name]).shape[-2]) for name in ("query", "key"))
        shape = functions.shape(mask)
        facts = Facts(limits)
        places = []
        for name, size in zip(("batch", "head", "query", "key")[-len(shape) :], (*shape[:-2], queries, keys)):
            place = functions.new(name)
            facts = facts.within(place, size)
            places.append(place)
        coordinates = tuple(Linear(0) if size == Linear(1) else place for size, place in zip(shape, places))
        sizes = dict(zip(places, (*shape[:-2], queries, keys)))
        behind = places[-2] - places[-1]  # how far the key lies behind the query

        def attended(form: Linear) -> tuple[set[bool | None], list[Linear]]:
            """What the mask may say of a key for which the form is at least zero, and what would decide it."""
            within = Facts(facts.forms | {form})
            if within.contradict(form):
                return set(), []
            element = functions.element(mask, coordinates, within)
            if is_formula(element):
                truths = set(within.possible(element))  # type: ignore[arg-type]
            else:
                truths = {_attended(leaf) for leaf, _ in leaves(element, within)}
            return truths, _missing(element, within, sizes) if len(truths) > 1 else []

        before, missing = attended(behind)
        if before - {True}:
            raise _Unproved("it is not provable from the graph that every key up to the query is attended to", missing)
        after, missing = attended(-behind - 1)
        if after == {True}:
            return Meaning.FULL
        if after - {False}:
            raise _Unproved("it is not provable from the graph that no key after the query is attended to", missing)
        if queries != keys:
            raise _Unproved(f"there are {_text(queries)} queries and {_text(keys)} keys")
        return Meaning.CAUSAL
    except _Unproved:
        raise
    except TooComplex as error:
        raise _Unproved(f"the mask is too complex: {error}") from None
    except Exception as error:  # of our own: the mask stays
        raise _Unproved(f"the mask was not understood: {type(error).__name__}: {error}") from error


def _missing(element: Element, facts: Facts, sizes: dict[Linear, Linear]) -> list[Linear]:
    """What would decide the open comparisons at all places, as numbers that must be at least zero."""
    if not is_formula(element):
        return _missing(element.condition, facts, sizes) if isinstance(element, Fork) else []
    found = []
    for comparison in comparisons(element):  # type: ignore[arg-type]
        if isinstance(comparison, AtLeastZero) and facts.decide(comparison) is None:
            least = Linear(comparison.form.constant)
            for atom, factor in comparison.form.terms:
                size = sizes.get(Linear.of(atom))
                least += Linear.of(atom) * factor if size is None else (size - 1) * min(factor, 0)
            found.append(least)
    return found


def _attended(leaf: Element) -> bool | None:
    """What a number added to a score means."""
    if not isinstance(leaf, Real):
        return None
    return True if leaf.value == 0.0 else False if leaf.value <= _NEVER else None


def _text(size: Linear) -> str:
    terms = [f"{coefficient} * {atom.key[-1]}" if coefficient != 1 else str(atom.key[-1])
             for atom, coefficient in size.terms]
    return " + ".join([*terms, *([str(size.constant)] if size.constant or not terms else [])])


# --- The rewrite -----------------------------------------------------------------------------------------------------

def apply(module: fx.GraphModule, masks: Sequence[Mask]) -> None:
    """Takes these attentions' masks from them, in the graph that they were found in, and removes what nothing reads then.

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
    for mask in masks:
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


def _operands_dropped(
    modules: Sequence[fx.GraphModule], body: fx.GraphModule, place: fx.Node
) -> list[tuple[fx.GraphModule, fx.Node]]:
    """Takes a placeholder that nothing reads from a body and from its calls; returns what they passed."""
    calls = [
        (module, node, operands)
        for module in modules
        for node in module.graph.nodes
        for other, operands in _bodies(module, node)
        if other is body
    ]
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
