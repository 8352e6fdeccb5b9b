"""Attention masks that are provably causal become `is_causal=True`, for which attention has kernels of its own.

`find` only looks. A mask is causal if, for all inputs, all batch entries, all heads and all sizes that the traced
symbols may have, a query attends to exactly the keys that do not come after it; that is proved by evaluating how the
graph computes the mask (functions.py). Where that holds as soon as some inputs are one everywhere, as the padding
mask of a batch without padding is, the mask is causal `given` those inputs.
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
from .calls import Change, arguments, attentions, changed
from .proof.elements import INTEGERS, Element, Fork, Real, is_formula, leaves
from .proof.functions import Functions, TooComplex
from .proof.linear import AtLeastZero, Facts, Linear, comparisons

# A score plus less than this is below every other score of a row by more than any exponential can tell, unless scores
# are so large themselves that they overflow. The least number of float16 is none.
_NEVER = -1e30
_MAX_LIMITS = 4


@dataclasses.dataclass(frozen=True)
class Proof:
    """Under what a mask is causal."""

    given: tuple[fx.Node, ...] = ()  # inputs of the outermost graph that must be one everywhere
    limits: tuple[torch.SymInt, ...] = ()  # sizes that must be at least zero, as they are in what was traced


@dataclasses.dataclass(frozen=True)
class Mask:
    """One attention whose mask is causal."""

    module: fx.GraphModule
    attention: fx.Node
    mask: fx.Node  # what it is called with
    proof: Proof
    change: Change

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


class _NotCausal(Exception):
    """Why a mask is not proved causal, and numbers that would have to be at least zero for it."""

    def __init__(self, reason: str, missing: Sequence[Linear] = ()) -> None:
        super().__init__(reason)
        self.missing = missing


def find(module: fx.GraphModule) -> Found:
    """The causal masks of a graph and of the bodies of its higher-order operators. One that treats keys before and
    after a query alike, as bidirectional attention's does, is no near miss."""
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
    proofs: dict[tuple[Any, ...], Proof | _NotCausal | None] = {}
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
            if isinstance(proof, _NotCausal):
                raise proof
            if proof is None:
                continue
            change = changed(part, node, values, False, attn_mask=None, is_causal=True)
        except (_NotCausal, Declined, AttributeError, IndexError) as reason:  # the last two: a call of another form
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
) -> Proof | _NotCausal | None:
    """Under what the mask is causal, or why it is not; None where it is of another kind, with or without padding."""
    functions = Functions(modules, outer)
    first = _within_limits(functions, (), mask, attention)
    if isinstance(first, Proof):
        return first
    both_ways = _both_ways(functions, mask)
    for candidate in _paddings(functions, modules[0]):
        padded = Functions(modules, outer, frozenset([candidate]))
        proof = _within_limits(padded, (candidate,), mask, attention)
        if isinstance(proof, Proof):
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


def _within_limits(
    functions: Functions, given: tuple[fx.Node, ...], mask: fx.Node, attention: fx.Node
) -> Proof | _NotCausal:
    """As `_proof`, with what is missing taken to hold if it is about sizes alone and held for those that were traced:
    a window is wide enough for all sequences that are no longer than it."""
    limits: dict[Linear, torch.SymInt] = {}
    while True:
        try:
            _prove(functions, mask, attention, frozenset(limits))
            return Proof(given, tuple(limits.values()))
        except _NotCausal as reason:
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
        and (example(node).dtype in INTEGERS or example(node).dtype == torch.bool)
    ]


def _prove(functions: Functions, mask: fx.Node, attention: fx.Node, limits: frozenset[Linear]) -> None:
    """Raises _NotCausal, with the reason, unless the mask is causal."""
    given = arguments(attention)
    if given.get("is_causal", False) is not False:
        raise _NotCausal("is_causal is given beside a mask")
    value = example(mask)
    if not isinstance(value, torch.Tensor) or value.requires_grad or value.dim() < 2:
        raise _NotCausal("the mask is learned or no matrix")
    try:
        queries, keys = (functions.size(example(given[name]).shape[-2]) for name in ("query", "key"))
        if queries != keys:
            raise _NotCausal(f"there are {_text(queries)} queries and {_text(keys)} keys")
        shape = functions.shape(mask)
        facts = Facts(limits)
        places = []
        for name, size in zip(("batch", "head", "query", "key")[-len(shape) :], (*shape[:-2], queries, keys)):
            place = functions.new(name)
            facts = facts.within(place, size)
            places.append(place)
        coordinates = tuple(Linear(0) if size == Linear(1) else place for size, place in zip(shape, places))
        behind = places[-2] - places[-1]  # how far the key lies behind the query
        for form, wanted in ((behind, True), (-behind - 1, False)):
            within = Facts(facts.forms | {form})
            if within.contradict(form):
                continue
            element = functions.element(mask, coordinates, within)
            _attends(element, within, wanted, dict(zip(places, (*shape[:-2], queries, keys))))
    except _NotCausal:
        raise
    except TooComplex as error:
        raise _NotCausal(f"the mask is too complex: {error}") from None
    except Exception as error:  # of our own: the mask stays
        raise _NotCausal(f"the mask was not understood: {type(error).__name__}: {error}") from error


def _attends(element: Element, facts: Facts, wanted: bool, sizes: dict[Linear, Linear]) -> None:
    said = "every key up to the query is attended to" if wanted else "no key after the query is attended to"
    if is_formula(element):
        truths = facts.possible(element)  # type: ignore[arg-type]
    else:
        truths = {_attended(leaf) for leaf, _ in leaves(element, facts)}
    if truths - {wanted}:
        raise _NotCausal(f"it is not provable from the graph that {said}", _missing(element, facts, sizes))


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
    """Makes these attentions causal, in the graph that they were found in, and removes what nothing reads then.

    On an exception the graph and its bodies are as they were.
    """
    if not masks:
        return
    for size in {str(size): size for mask in masks for size in mask.proof.limits}.values():
        if not size >= 0:  # a guard: another size compiles again
            raise Error(f"{size} is below zero, expected what the proof of a causal mask assumed")
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
