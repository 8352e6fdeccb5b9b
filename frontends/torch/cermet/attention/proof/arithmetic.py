"""Arithmetic, comparisons and logic of the elements of functions.py, and their conversion between types."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ...graph.nodes import target_name
from ...text import INTEGERS
from . import linear
from .elements import (
    At, Coordinates, Element, Entry, Real, Unsupported, fork, is_formula, is_number, lifted, value_of,
)  # fmt: skip
from .linear import Facts, Formula, Linear

# --- Types -----------------------------------------------------------------------------------------------------------


def read_as(
    at: At, operand: Any, new: torch.dtype, coordinates: Coordinates | None = None, facts: Facts | None = None
) -> Element:
    """An operand's element (`At.read`) as one of another type, rounded or refused where it might wrap."""
    facts = at.facts if facts is None else facts
    element, old = at.read(operand, coordinates, facts), at.dtype_of(operand)
    if old == new:
        return element
    if is_formula(element):
        if new in INTEGERS:
            return fork(element, Linear(1), Linear(0))  # type: ignore[arg-type]
        return fork(element, Real(1.0), Real(0.0))  # type: ignore[arg-type]

    def convert(facts: Facts, leaf: Element) -> Element:
        if isinstance(leaf, Linear):
            if new == torch.bool:
                return linear.negated(linear.is_zero(leaf))
            if new in INTEGERS:
                limits = torch.iinfo(new)
                if facts.between(leaf, limits.min, limits.max):
                    return leaf
            elif leaf.fixed and abs(leaf.constant) < 1 << 53:
                return _rounded(float(leaf.constant), new)
            elif (truth := next((truth for truth in (0, 1) if facts.between(leaf, truth, truth)), None)) is not None:
                return _rounded(float(truth), new)
        elif isinstance(leaf, Real):
            if new == torch.bool:
                return leaf.value != 0.0
            if new.is_floating_point:
                return _rounded(leaf.value, new)
            if new in INTEGERS and math.isfinite(leaf.value) and abs(leaf.value) < torch.iinfo(new).max:
                return Linear(math.trunc(leaf.value))
        raise Unsupported(f"a cast from {old} to {new}")

    return lifted(convert, facts, element)


def _rounded(value: float, dtype: torch.dtype) -> Real:
    with _disable_current_modes():
        return Real(torch.tensor(value, dtype=torch.float64).to(dtype).item())


def operands(at: At, *given: Any) -> tuple[list[Element], torch.dtype]:
    """Elements of operands in the type that torch computes in. Raises Unsupported where a number does not fit it."""
    samples = []
    with _disable_current_modes():
        for operand in given:
            value = value_of(operand)
            if isinstance(value, torch.Tensor):
                samples.append(torch.empty((1,) * value.dim(), dtype=value.dtype))
            elif is_number(operand):
                samples.append(1)
            elif isinstance(value, (bool, float)):
                samples.append(value)
            else:
                raise Unsupported(f"an operand that is a {type(value).__name__}")
        dtype = samples[0].dtype if len(samples) == 1 else torch.result_type(*samples)
    elements = []
    for operand in given:
        elements.append(read_as(at, operand, dtype))
        if isinstance(operand, (int, float)) and isinstance(elements[-1], Real) and elements[-1].value != operand:
            raise Unsupported(f"{operand} in {dtype}: torch may compute with more digits")
    return elements, dtype


def _two(at: At) -> tuple[list[Element], torch.dtype]:
    return operands(at, at.argument(0, "input"), at.argument(1, "other"))


def _two_integers(at: At, what: str) -> list[Element]:
    found, dtype = _two(at)
    if dtype not in INTEGERS or dtype != at.dtype:
        raise Unsupported(f"{what} of {dtype}")
    return found


# --- Arithmetic ------------------------------------------------------------------------------------------------------


def _arithmetic(integers: Callable[[Linear, Linear], Linear | None], reals: Callable[..., Any]) -> Entry:
    def entry(at: At) -> Element:
        if at.argument(2, "alpha", 1) != 1 or at.node.kwargs.get("rounding_mode") is not None:
            raise Unsupported("a scaled operand")
        found, dtype = _two(at)
        if dtype != at.dtype or dtype == torch.bool:
            raise Unsupported(f"arithmetic of {dtype}")

        def compute(facts: Facts, left: Element, right: Element) -> Element:
            if isinstance(left, Linear) and isinstance(right, Linear):
                form = integers(left, right)
                return at.opaque() if form is None else at.fit(form, facts)
            if isinstance(left, Real) and isinstance(right, Real):
                return _constant(reals, dtype, left, right)
            return at.opaque()

        return lifted(compute, at.facts, *found)

    return entry


def _constant(function: Callable[..., Any], dtype: torch.dtype, *values: Real) -> Real:
    with _disable_current_modes():
        return Real(function(*(torch.tensor([value.value], dtype=dtype) for value in values)).item())


def _product(left: Linear, right: Linear) -> Linear | None:
    if left.fixed:
        return right * left.constant
    return left * right.constant if right.fixed else None


def _negative(at: At) -> Element:
    (operand,), dtype = operands(at, at.argument(0, "input"))

    def compute(facts: Facts, leaf: Element) -> Element:
        if isinstance(leaf, Linear):
            return at.fit(-leaf, facts)
        return _constant(torch.neg, dtype, leaf) if isinstance(leaf, Real) else at.opaque()

    return lifted(compute, at.facts, operand)


def _absolute(at: At) -> Element:
    operand = at.read(at.argument(0, "input"))

    def compute(facts: Facts, leaf: Element) -> Element:
        if not isinstance(leaf, Linear):
            return at.opaque()
        if facts.implies(leaf):
            return leaf
        negative = at.fit(-leaf, facts)
        return negative if facts.implies(-leaf) else fork(linear.at_least_zero(leaf), leaf, negative)

    return lifted(compute, at.facts, operand)


def _extremum(larger: bool) -> Entry:
    def entry(at: At) -> Element:
        found = _two_integers(at, "an extremum")

        def compute(facts: Facts, left: Element, right: Element) -> Element:
            assert isinstance(left, Linear) and isinstance(right, Linear)
            first = linear.at_least_zero(left - right)
            return fork(first, left, right) if larger else fork(first, right, left)

        return lifted(compute, at.facts, *found)

    return entry


def _clamp(at: At) -> Element:
    low, high = at.argument(1, "min"), at.argument(2, "max")
    element = at.read(at.argument(0, "input"))
    if at.dtype not in INTEGERS or at.dtype_of(at.argument(0, "input")) != at.dtype:
        raise Unsupported(f"a clamp of {at.dtype}")
    for bound, sign in ((low, 1), (high, -1)):
        if bound is None:
            continue
        limit = at.number(bound)

        def compute(facts: Facts, leaf: Element, limit: Linear = limit, sign: int = sign) -> Element:
            return fork(linear.at_least_zero((leaf - limit) * sign), leaf, at.fit(limit, facts))  # type: ignore

        element = lifted(compute, at.facts, element)
    return element


def _division(part: int) -> Entry:
    """Floor quotient (0) or its remainder (1), of integers by a positive number."""

    def entry(at: At) -> Element:
        found = _two_integers(at, "a division")

        def compute(facts: Facts, left: Element, right: Element) -> Element:
            assert isinstance(left, Linear) and isinstance(right, Linear)
            if facts.implies(left) and facts.implies(right - left - 1):
                return (Linear(0), left)[part]
            if right.fixed and right.constant > 0:
                found = linear.divided(left, right.constant, facts)
                if found is not None:
                    return found[part]
            return at.opaque()

        return lifted(compute, at.facts, *found)

    return entry


def _rounded_division(at: At) -> Element:
    if at.node.kwargs.get("rounding_mode") != "floor":
        return _arithmetic(lambda left, right: None, torch.div)(at)
    return _division(0)(at)


# --- Comparisons and logic -------------------------------------------------------------------------------------------


def _comparison(form: Callable[[Linear, Linear], Formula], reals: Callable[[float, float], bool]) -> Entry:
    def entry(at: At) -> Element:
        if at.dtype != torch.bool:
            raise Unsupported(f"a comparison that gives {at.dtype}")
        found, dtype = _two(at)
        if dtype == torch.bool:
            found = [fork(item, Linear(1), Linear(0)) for item in found]  # type: ignore[arg-type]

        def compute(facts: Facts, left: Element, right: Element) -> Element:
            if isinstance(left, Linear) and isinstance(right, Linear):
                formula = form(left, right)
                known = facts.decide(formula)
                return formula if known is None else known
            if isinstance(left, Real) and isinstance(right, Real):
                return reals(left.value, right.value)
            return at.opaque()

        return lifted(compute, at.facts, *found)

    return entry


def _logic(combine: Callable[[Any, Any], Formula], bitwise: Callable[[int, int], int] | None) -> Entry:
    """Of truths; bitwise also of integer constants, as a mask of ones and zeros is."""

    def entry(at: At) -> Element:
        given = at.argument(0, "input"), at.argument(1, "other")
        if bitwise is None or at.dtype == torch.bool:
            kinds = [at.dtype_of(item) for item in given]
            if at.dtype != torch.bool or bitwise is not None and set(kinds) != {torch.bool}:
                raise Unsupported(f"logic of {kinds}")
            return combine(*(read_as(at, item, torch.bool) for item in given))
        found = _two_integers(at, "bits")

        def compute(facts: Facts, left: Element, right: Element) -> Element:
            if isinstance(left, Linear) and isinstance(right, Linear) and left.fixed and right.fixed:
                return Linear(bitwise(left.constant, right.constant))
            return at.opaque()

        return lifted(compute, at.facts, *found)

    return entry


def _negation(at: At) -> Element:
    operand = at.argument(0, "input")
    dtype = at.dtype_of(operand)
    if at.dtype != torch.bool or (dtype != torch.bool and not target_name(at.node).endswith("logical_not")):
        raise Unsupported(f"the bits of {dtype}")
    return linear.negated(read_as(at, operand, torch.bool))  # type: ignore[arg-type]


ARITHMETIC: dict[str, Entry] = {
    "add": _arithmetic(operator.add, torch.add),
    "sub": _arithmetic(operator.sub, torch.sub),
    "rsub": _arithmetic(lambda left, right: right - left, torch.rsub),
    "mul": _arithmetic(_product, torch.mul),
    "div": _rounded_division,
    "neg": _negative,
    "abs": _absolute,
    "maximum": _extremum(True),
    "minimum": _extremum(False),
    "clamp": _clamp,
    "floor_divide": _division(0),
    "floordiv": _division(0),
    "remainder": _division(1),
    "mod": _division(1),
    "eq": _comparison(lambda a, b: linear.is_zero(a - b), operator.eq),
    "ne": _comparison(lambda a, b: linear.negated(linear.is_zero(a - b)), operator.ne),
    "le": _comparison(lambda a, b: linear.at_least_zero(b - a), operator.le),
    "ge": _comparison(lambda a, b: linear.at_least_zero(a - b), operator.ge),
    "lt": _comparison(lambda a, b: linear.at_least_zero(b - a - 1), operator.lt),
    "gt": _comparison(lambda a, b: linear.at_least_zero(a - b - 1), operator.gt),
    "bitwise_and": _logic(linear.both, operator.and_),
    "bitwise_or": _logic(linear.either, operator.or_),
    "bitwise_xor": _logic(linear.differ, operator.xor),
    "logical_and": _logic(linear.both, None),
    "logical_or": _logic(linear.either, None),
    "logical_xor": _logic(linear.differ, None),
    "bitwise_not": _negation,
    "logical_not": _negation,
}
