"""What a mask says of a query and a key, at symbolic coordinates and under assumptions.

A Question has a mask's coordinates and the facts that place them inside of it; `ask` tells which truths the mask may
have there, None standing for a number of another kind, under further forms that are at least zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.fx as fx

from ..graph.nodes import example
from ..ops.attending import NEVER
from .calls import arguments
from .proof.elements import Element, Fork, Real, is_formula, leaves
from .proof.functions import Functions, TooComplex
from .proof.linear import AtLeastZero, Facts, Flag, Formula, Linear, comparisons


class Unproved(Exception):
    """Why a mask is not proved to mean something, and numbers that would have to be at least zero for it."""

    def __init__(self, reason: str, missing: Sequence[Linear] = ()) -> None:
        super().__init__(reason)
        self.missing = missing


class Question:
    """A mask of one attention. `limits`: forms that are taken to be at least zero. Raises Unproved for what is none."""

    def __init__(
        self, functions: Functions, mask: fx.Node, attention: fx.Node, limits: frozenset[Linear] = frozenset()
    ) -> None:
        given = arguments(attention)
        if given.get("is_causal", False) is not False:
            raise Unproved("is_causal is given beside a mask")
        value = example(mask)
        if not isinstance(value, torch.Tensor) or value.requires_grad or value.dim() < 2:
            raise Unproved("the mask is learned or no matrix")
        self.functions, self.mask = functions, mask
        self.queries, self.keys = (functions.size(example(given[name]).shape[-2]) for name in ("query", "key"))
        shape = functions.shape(mask)
        facts, places = Facts(limits), []
        sizes = (*shape[:-2], self.queries, self.keys)
        for name, size in zip(("batch", "head", "query", "key")[-len(shape) :], sizes):
            place = functions.new(name)
            facts = facts.within(place, size)
            places.append(place)
        self.facts = facts
        self.sizes = dict(zip(places, sizes))
        self.coordinates = tuple(Linear(0) if size == Linear(1) else place for size, place in zip(shape, places))
        self.row = places[0] if len(places) == 4 else None
        self.query, self.key = places[-2:]
        self.behind = self.query - self.key  # how far the key lies behind the query
        self.ends_rows = True  # whether every number that hides a key so far is minus infinity

    def element(self, within: Facts) -> Element:
        """The mask's. Raises Unproved where it is not understood."""
        try:
            return self.functions.element(self.mask, self.coordinates, within)
        except TooComplex as error:
            raise Unproved(f"the mask is too complex: {error}") from None

    def ask(self, *forms: Linear, flags: frozenset[tuple[Flag, bool]] = frozenset()) -> set[bool | None]:
        """What the mask may say of a key for which these are at least zero, and these flags are so."""
        return self.answer(*forms, flags=flags)[0]

    def answer(
        self, *forms: Linear, flags: frozenset[tuple[Flag, bool]] = frozenset()
    ) -> tuple[set[bool | None], list[Linear]]:
        """As `ask`, and what would decide it, as numbers that would have to be at least zero."""
        within = Facts(self.facts.forms | set(forms), self.facts.flags | flags)
        if forms and within.contradict(*forms):
            return set(), []
        element = self.element(within)
        if is_formula(element):
            truths: set[bool | None] = set(within.possible(element))  # type: ignore[arg-type]
        else:
            truths = {self._attended(leaf) for leaf, _ in leaves(element, within)}
        return truths, self._missing(element, within) if len(truths) > 1 else []

    def _attended(self, leaf: Element) -> bool | None:
        """What a number added to a score means."""
        if not isinstance(leaf, Real) or leaf.value != 0.0 and not leaf.value <= NEVER:
            return None
        if leaf.value != 0.0 and leaf.value != float("-inf"):
            self.ends_rows = False
        return leaf.value == 0.0

    def _missing(self, element: Element, facts: Facts) -> list[Linear]:
        """What would decide the open comparisons at all places, as numbers that must be at least zero."""
        found = []
        for comparison in _open(element):
            if isinstance(comparison, AtLeastZero) and facts.decide(comparison) is None:
                least = Linear(comparison.form.constant)
                for atom, factor in comparison.form.terms:
                    size = self.sizes.get(Linear.of(atom))
                    least += Linear.of(atom) * factor if size is None else (size - 1) * min(factor, 0)
                found.append(least)
        return found

    def comparisons(self, *forms: Linear) -> list[Formula]:
        """All that the mask depends on, at any place where these are at least zero."""
        return list(dict.fromkeys(_all(self.element(Facts(self.facts.forms | set(forms), self.facts.flags)))))


def _open(element: Element) -> Iterator[Formula]:
    """Of a formula, or of the first thing that a fork asks."""
    if is_formula(element):
        yield from comparisons(element)  # type: ignore[arg-type]
    elif isinstance(element, Fork):
        yield from _open(element.condition)


def _all(element: Element) -> Iterator[Formula]:
    if isinstance(element, Fork):
        yield from _all(element.condition)
        yield from _all(element.yes)
        yield from _all(element.no)
    elif is_formula(element):
        yield from comparisons(element)  # type: ignore[arg-type]
