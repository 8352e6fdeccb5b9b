"""Attention masks that are provably causal become `is_causal=True`, for which attention has kernels of its own.

`find` only looks. A mask is causal if, for all inputs, all batch entries, all heads and all sizes that the traced
symbols may have, a query attends to exactly the keys that do not come after it; that is proved by evaluating how the
graph computes the mask (index_functions.py). Where that holds as soon as some inputs are one everywhere, as the padding
mask of a batch without padding is, the mask is causal `given` those inputs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.fx as fx

from . import rewriter
from .attention import Change, arguments, attentions, changed
from .call import example
from .effects import attribute
from .index_functions import INTEGERS, Element, Functions, Real, TooComplex, is_formula, leaves
from .linear import Facts, Linear
from .replacement import erase_unused, is_pure, rewriting
from .rewriter import Declined, NearMiss, source_line

# A score plus less than this is below every other score of a row by more than any exponential can tell, unless scores
# are so large themselves that they overflow. The least number of float16 is none.
_NEVER = -1e30


@dataclasses.dataclass(frozen=True)
class Mask:
    """One attention whose mask is causal."""

    module: fx.GraphModule
    attention: fx.Node
    mask: fx.Node  # what it is called with
    given: tuple[fx.Node, ...]  # inputs of the outermost graph that must be one everywhere
    change: Change

    def __str__(self) -> str:
        given = f" where {', '.join(node.name for node in self.given)} is 1 everywhere" if self.given else ""
        return f"{source_line(self.attention)}{given}"


@dataclasses.dataclass
class Found:
    masks: list[Mask]
    near_misses: list[NearMiss]

    @property
    def given(self) -> tuple[fx.Node, ...]:
        """Every input that some mask asks to be one everywhere."""
        return tuple(dict.fromkeys(node for mask in self.masks for node in mask.given))


class _NotCausal(Exception):
    """Why a mask is not proved causal."""


def find(module: fx.GraphModule) -> Found:
    """The causal masks of a graph and of the bodies of its higher-order operators."""
    modules = list(rewriter.modules(module))
    found = Found([], [])
    masked = [
        (part, node)
        for part in modules
        for node in attentions(part)
        if isinstance(arguments(node).get("attn_mask"), fx.Node)
    ]
    if not masked:
        return found
    outer = _outer_values(modules)
    proofs: dict[tuple[Any, ...], tuple[fx.Node, ...] | _NotCausal] = {}
    values: dict[fx.Node, torch.Tensor] = {}
    for part, node in masked:
        given = arguments(node)
        mask = given["attn_mask"]
        while mask in outer:
            mask = outer[mask]
        sizes = tuple(str(example(given[name]).shape[-2]) for name in ("query", "key"))
        try:
            if (mask, sizes) not in proofs:
                proofs[mask, sizes] = _proof(modules, outer, mask, node)
            proof = proofs[mask, sizes]
            if isinstance(proof, _NotCausal):
                raise proof
            change = changed(part, node, values, False, attn_mask=None, is_causal=True)
        except (_NotCausal, Declined) as reason:
            found.near_misses.append(NearMiss("causal_mask", node.name, str(reason), source_line(node)))
            continue
        values |= change.values
        found.masks.append(Mask(part, node, given["attn_mask"], proof, change))
    return found


def _outer_values(modules: Sequence[fx.GraphModule]) -> dict[fx.Node, fx.Node]:
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
) -> tuple[fx.Node, ...] | _NotCausal:
    """The inputs that must be one everywhere for the mask to be causal, or why it is not."""
    functions = Functions(modules, outer)
    try:
        _prove(functions, mask, attention)
        return ()
    except _NotCausal as reason:
        first = reason
    for candidate in _paddings(functions, modules[0]):
        try:
            _prove(Functions(modules, outer, frozenset([candidate])), mask, attention)
            return (candidate,)
        except _NotCausal:
            continue
    return first


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


def _prove(functions: Functions, mask: fx.Node, attention: fx.Node) -> None:
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
        facts = Facts()
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
            _attends(functions.element(mask, coordinates, within), within, wanted)
    except _NotCausal:
        raise
    except TooComplex as error:
        raise _NotCausal(f"the mask is too complex: {error}") from None
    except Exception as error:  # of our own: the mask stays
        raise _NotCausal(f"the mask was not understood: {type(error).__name__}: {error}") from error


def _attends(element: Element, facts: Facts, wanted: bool) -> None:
    said = "every key up to the query is attended to" if wanted else "no key after the query is attended to"
    if is_formula(element):
        truths = facts.possible(element)  # type: ignore[arg-type]
    else:
        truths = {_attended(leaf) for leaf, _ in leaves(element, facts)}
    if truths - {wanted}:
        raise _NotCausal(f"it is not provable from the graph that {said}")


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
    modules = list(rewriter.modules(module))
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
