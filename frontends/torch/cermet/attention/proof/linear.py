"""Linear integer arithmetic: forms over atoms, formulas of comparisons, and what follows from known facts.

Everything is sound and incomplete: what `Facts.decide` and `possible` rule out is impossible, what they leave open may
still be impossible. An atom is an unknown integer; two atoms of equal key are the same number.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator
from typing import Any, Union

_MAX_CONSTRAINTS = 300  # of one elimination; beyond it nothing is concluded
_MAX_SPLITS = 64  # cases of one question


@dataclasses.dataclass(frozen=True)
class Atom:
    """An unknown integer between `low` and `high` (None: no bound is known)."""

    key: Any
    low: int | None = None
    high: int | None = None


@dataclasses.dataclass(frozen=True)
class Linear:
    """`constant + sum(coefficient * atom)`; no coefficient is zero."""

    constant: int
    terms: frozenset[tuple[Atom, int]] = frozenset()

    @staticmethod
    def of(atom: Atom) -> Linear:
        return Linear(0, frozenset([(atom, 1)]))

    @property
    def fixed(self) -> bool:
        return not self.terms

    def __add__(self, other: Linear | int) -> Linear:
        if isinstance(other, int):
            return Linear(self.constant + other, self.terms)
        sums = dict(self.terms)
        for atom, coefficient in other.terms:
            sums[atom] = sums.get(atom, 0) + coefficient
        return Linear(self.constant + other.constant, frozenset(item for item in sums.items() if item[1]))

    def __mul__(self, factor: int) -> Linear:
        if factor == 0:
            return Linear(0)
        return Linear(self.constant * factor, frozenset((atom, value * factor) for atom, value in self.terms))

    def __neg__(self) -> Linear:
        return self * -1

    def __sub__(self, other: Linear | int) -> Linear:
        return self + -other


@dataclasses.dataclass(frozen=True)
class AtLeastZero:
    form: Linear


@dataclasses.dataclass(frozen=True)
class IsZero:
    form: Linear


@dataclasses.dataclass(frozen=True)
class Flag:
    """An unknown truth; equal keys, equal truth."""

    key: Any


@dataclasses.dataclass(frozen=True)
class Not:
    of: Formula


@dataclasses.dataclass(frozen=True)
class And:
    left: Formula
    right: Formula


@dataclasses.dataclass(frozen=True)
class Or:
    left: Formula
    right: Formula


Formula = Union[bool, AtLeastZero, IsZero, Flag, Not, And, Or]


def at_least_zero(form: Linear) -> Formula:
    return form.constant >= 0 if form.fixed else AtLeastZero(form)


def is_zero(form: Linear) -> Formula:
    return form.constant == 0 if form.fixed else IsZero(form)


def negated(formula: Formula) -> Formula:
    if isinstance(formula, bool):
        return not formula
    if isinstance(formula, Not):
        return formula.of
    return at_least_zero(-formula.form - 1) if isinstance(formula, AtLeastZero) else Not(formula)


def both(left: Formula, right: Formula) -> Formula:
    if isinstance(left, bool):
        return right if left else False
    if isinstance(right, bool):
        return left if right else False
    return left if left == right else And(left, right)


def either(left: Formula, right: Formula) -> Formula:
    return negated(both(negated(left), negated(right))) if isinstance(left, bool) or isinstance(right, bool) else (
        left if left == right else Or(left, right)
    )


def differ(left: Formula, right: Formula) -> Formula:
    return either(both(left, negated(right)), both(negated(left), right))


def chosen(condition: Formula, yes: Formula, no: Formula) -> Formula:
    return yes if yes == no else either(both(condition, yes), both(negated(condition), no))


def _tightened(form: Linear) -> Linear:
    """The same fact `form >= 0` of integers, with coefficients that have no common divisor."""
    divisor = math.gcd(*(value for _, value in form.terms)) if form.terms else 1
    if divisor <= 1:
        return form
    return Linear(form.constant // divisor, frozenset((atom, value // divisor) for atom, value in form.terms))


@functools.lru_cache(maxsize=20000)
def _contradictory(forms: frozenset[Linear]) -> bool:
    """Whether no integers make every form at least zero: Fourier's elimination, one atom after another."""
    known = {_tightened(form) for form in forms}
    while True:
        if any(form.fixed and form.constant < 0 for form in known):
            return True
        known = _strongest(form for form in known if not form.fixed)
        counts: dict[Atom, list[int]] = {}
        for form in known:
            for atom, coefficient in form.terms:
                counts.setdefault(atom, [0, 0])[coefficient > 0] += 1
        if not counts:
            return False
        atom = min(counts, key=lambda item: counts[item][0] * counts[item][1] - sum(counts[item]))
        below: list[tuple[Linear, int]] = []
        above: list[tuple[Linear, int]] = []
        rest: set[Linear] = set()
        for form in known:
            coefficient = dict(form.terms).get(atom, 0)
            if coefficient:
                (below if coefficient < 0 else above).append((form, abs(coefficient)))
            else:
                rest.add(form)
        for lower, m in above:
            for upper, n in below:
                rest.add(_tightened(lower * n + upper * m))
        if len(rest) > _MAX_CONSTRAINTS:
            return False
        known = rest


def _strongest(forms: Iterable[Linear]) -> set[Linear]:
    """Of facts that differ in their constant alone, the one that says most."""
    least: dict[frozenset[tuple[Atom, int]], int] = {}
    for form in forms:
        least[form.terms] = min(form.constant, least.get(form.terms, form.constant))
    return {Linear(constant, terms) for terms, constant in least.items()}


@dataclasses.dataclass(frozen=True)
class Facts:
    """What is known: forms that are at least zero, and truths of flags."""

    forms: frozenset[Linear] = frozenset()
    flags: frozenset[tuple[Flag, bool]] = frozenset()

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.forms, self.flags)))

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined]

    def within(self, form: Linear, size: Linear) -> Facts:
        """These and `0 <= form < size`."""
        return dataclasses.replace(self, forms=self.forms | {form, size - form - 1})

    def contradict(self, *more: Linear) -> bool:
        """Whether these facts and `more` cannot all hold. Only facts that are linked to each other by atoms matter."""
        pending = list(more) or list(self.forms)
        used, atoms, left = set(pending), set(), set(self.forms) - set(pending)
        while pending:
            for atom, _ in pending.pop().terms:
                if atom in atoms:
                    continue
                atoms.add(atom)
                linked = {form for form in left if any(atom == other for other, _ in form.terms)}
                if atom.low is not None:
                    linked.add(Linear.of(atom) - atom.low)
                if atom.high is not None:
                    linked.add(-Linear.of(atom) + atom.high)
                left -= linked
                used |= linked
                pending += linked
        return _contradictory(frozenset(used))

    def implies(self, form: Linear) -> bool:
        """Whether `form >= 0` follows."""
        return form.constant >= 0 if form.fixed else self.contradict(-form - 1)

    def between(self, form: Linear, low: int, high: int) -> bool:
        return self.implies(form - low) and self.implies(-form + high)

    def decide(self, formula: Formula) -> bool | None:
        """The formula's truth where it follows without telling cases apart."""
        if isinstance(formula, bool):
            return formula
        if isinstance(formula, Not):
            inner = self.decide(formula.of)
            return None if inner is None else not inner
        if isinstance(formula, (And, Or)):
            absorbing = isinstance(formula, Or)
            sides = self.decide(formula.left), self.decide(formula.right)
            return absorbing if absorbing in sides else None if None in sides else not absorbing
        if isinstance(formula, Flag):
            return True if (formula, True) in self.flags else False if (formula, False) in self.flags else None
        form = formula.form
        if isinstance(formula, AtLeastZero):
            return True if self.implies(form) else False if self.contradict(form) else None
        if self.contradict(form, -form):
            return False
        return True if self.implies(form) and self.implies(-form) else None

    def cases(self, formula: Formula, truth: bool) -> Iterator[Facts]:
        """These facts and that the formula has this truth, as cases that are each possible as far as is known."""
        if isinstance(formula, bool):
            if formula == truth:
                yield self
        elif isinstance(formula, Not):
            yield from self.cases(formula.of, not truth)
        elif isinstance(formula, (And, Or)):
            if isinstance(formula, And) == truth:
                for case in self.cases(formula.left, truth):
                    yield from case.cases(formula.right, truth)
            else:
                yield from self.cases(formula.left, truth)
                for case in self.cases(formula.left, not truth):
                    yield from case.cases(formula.right, truth)
        elif isinstance(formula, Flag):
            if (formula, not truth) not in self.flags:
                yield dataclasses.replace(self, flags=self.flags | {(formula, truth)})
        else:
            form = formula.form
            if isinstance(formula, AtLeastZero):
                choices = [[form]] if truth else [[-form - 1]]
            else:
                choices = [[form, -form]] if truth else [[form - 1], [-form - 1]]
            for more in choices:
                if not self.contradict(*more):
                    yield dataclasses.replace(self, forms=self.forms | frozenset(more))

    def assume(self, formula: Formula, truth: bool = True) -> Facts | None:
        """These and that the formula has this truth (less, where it leaves several cases); None if it cannot have."""
        cases = []
        for case in self.cases(formula, truth):
            cases.append(case)
            if len(cases) > 1:
                return self
        return cases[0] if cases else None

    def possible(self, formula: Formula) -> set[bool]:
        """The truths that the formula may have; both where the cases are too many to tell."""
        budget = [_MAX_SPLITS]
        return self._possible(formula, budget)

    def _possible(self, formula: Formula, budget: list[int]) -> set[bool]:
        known = self.decide(formula)
        if known is not None:
            return {known}
        budget[0] -= 1
        if budget[0] < 0:
            return {True, False}
        atom = next(item for item in comparisons(formula) if self.decide(item) is None)
        found: set[bool] = set()
        for truth in (True, False):
            for case in self.cases(atom, truth):
                found |= case._possible(formula, budget)
                if len(found) == 2:
                    return found
        return found


def comparisons(formula: Formula) -> Iterator[Formula]:
    """The comparisons and flags that a formula is made of."""
    if isinstance(formula, Not):
        yield from comparisons(formula.of)
    elif isinstance(formula, (And, Or)):
        yield from comparisons(formula.left)
        yield from comparisons(formula.right)
    elif not isinstance(formula, bool):
        yield formula


def divided(form: Linear, divisor: int, facts: Facts) -> tuple[Linear, Linear] | None:
    """Floor quotient and remainder by a positive number, where both are linear as far as is known."""
    quotient = Linear(form.constant // divisor, frozenset((a, c // divisor) for a, c in form.terms if c >= divisor
                                                          or c <= -divisor))
    quotient = Linear(quotient.constant, frozenset((a, c) for a, c in quotient.terms if c))
    remainder = form - quotient * divisor
    for step in (0, 1, -1):
        if facts.between(remainder - step * divisor, 0, divisor - 1):
            return quotient + step, remainder - step * divisor
    return None
