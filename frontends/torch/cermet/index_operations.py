"""What single torch calls do to the elements of index_functions.py: a table from operation to a function of `At`."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch.utils._python_dispatch import _disable_current_modes

from . import linear
from .call import example
from .effects import target_name
from .index_functions import (
    INTEGERS, At, Element, Real, Unsupported, fork, is_formula, leaves, lifted,
)  # fmt: skip
from .index_views import VIEWS
from .linear import Facts, Formula, Linear
from .operators import spelling

Entry = Callable[[At], Element]

# --- Types -----------------------------------------------------------------------------------------------------------


def cast(at: At, element: Element, old: torch.dtype, new: torch.dtype, facts: Facts) -> Element:
    """An element of one type as one of another, rounded or refused where it might wrap."""
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


def _operands(at: At, *given: Any) -> tuple[list[Element], torch.dtype]:
    """Elements of operands in the type that torch computes in. Raises Unsupported where a number does not fit it."""
    samples = []
    with _disable_current_modes():
        for operand in given:
            value = example(operand) if isinstance(operand, fx.Node) else operand
            if isinstance(value, torch.Tensor):
                samples.append(torch.empty((1,) * value.dim(), dtype=value.dtype))
            elif isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
                samples.append(1)
            elif isinstance(value, (bool, float)):
                samples.append(value)
            else:
                raise Unsupported(f"an operand that is a {type(value).__name__}")
        dtype = samples[0].dtype if len(samples) == 1 else torch.result_type(*samples)
    elements = []
    for operand in given:
        element, kind = at.read(operand), at.dtype_of(operand)
        elements.append(cast(at, element, kind, dtype, at.facts))
        if isinstance(element, Real) and not isinstance(operand, fx.Node) and elements[-1] != element:
            raise Unsupported(f"{operand} in {dtype}: torch may compute with more digits")
    return elements, dtype


# --- Arithmetic ------------------------------------------------------------------------------------------------------


def _arithmetic(integers: Callable[[Linear, Linear], Linear | None], reals: Callable[..., Any]) -> Entry:
    def entry(at: At) -> Element:
        if at.argument(2, "alpha", 1) != 1 or at.node.kwargs.get("rounding_mode") is not None:
            raise Unsupported("a scaled operand")
        operands, dtype = _operands(at, at.argument(0, "input"), at.argument(1, "other"))
        if dtype != at.dtype or dtype == torch.bool:
            raise Unsupported(f"arithmetic of {dtype}")

        def compute(facts: Facts, left: Element, right: Element) -> Element:
            if isinstance(left, Linear) and isinstance(right, Linear):
                form = integers(left, right)
                return at.opaque() if form is None else at.fit(form, facts)
            if isinstance(left, Real) and isinstance(right, Real):
                return _constant(reals, dtype, left, right)
            return at.opaque()

        return lifted(compute, at.facts, *operands)

    return entry


def _constant(function: Callable[..., Any], dtype: torch.dtype, *values: Real) -> Real:
    with _disable_current_modes():
        return Real(function(*(torch.tensor([value.value], dtype=dtype) for value in values)).item())


def _product(left: Linear, right: Linear) -> Linear | None:
    if left.fixed:
        return right * left.constant
    return left * right.constant if right.fixed else None


def _negative(at: At) -> Element:
    (operand,), dtype = _operands(at, at.argument(0, "input"))

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
        operands, dtype = _operands(at, at.argument(0, "input"), at.argument(1, "other"))
        if dtype not in INTEGERS or dtype != at.dtype:
            raise Unsupported(f"an extremum of {dtype}")

        def compute(facts: Facts, left: Element, right: Element) -> Element:
            assert isinstance(left, Linear) and isinstance(right, Linear)
            first = linear.at_least_zero(left - right)
            return fork(first, left, right) if larger else fork(first, right, left)

        return lifted(compute, at.facts, *operands)

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
        operands, dtype = _operands(at, at.argument(0, "input"), at.argument(1, "other"))
        if dtype not in INTEGERS or dtype != at.dtype:
            raise Unsupported(f"a division of {dtype}")

        def compute(facts: Facts, left: Element, right: Element) -> Element:
            assert isinstance(left, Linear) and isinstance(right, Linear)
            if right.fixed and right.constant > 0:
                found = linear.divided(left, right.constant, facts)
                if found is not None:
                    return found[part]
            return at.opaque()

        return lifted(compute, at.facts, *operands)

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
        operands, dtype = _operands(at, at.argument(0, "input"), at.argument(1, "other"))
        if dtype == torch.bool:
            operands = [fork(item, Linear(1), Linear(0)) for item in operands]  # type: ignore[arg-type]

        def compute(facts: Facts, left: Element, right: Element) -> Element:
            if isinstance(left, Linear) and isinstance(right, Linear):
                formula = form(left, right)
                known = facts.decide(formula)
                return formula if known is None else known
            if isinstance(left, Real) and isinstance(right, Real):
                return reals(left.value, right.value)
            return at.opaque()

        return lifted(compute, at.facts, *operands)

    return entry


def _logic(combine: Callable[[Any, Any], Formula], bitwise: Callable[[int, int], int] | None) -> Entry:
    """Of truths; bitwise also of integer constants, as a mask of ones and zeros is."""

    def entry(at: At) -> Element:
        given = at.argument(0, "input"), at.argument(1, "other")
        if bitwise is None or at.dtype == torch.bool:
            kinds = [at.dtype_of(item) for item in given]
            if at.dtype != torch.bool or bitwise is not None and set(kinds) != {torch.bool}:
                raise Unsupported(f"logic of {kinds}")
            return combine(*(cast(at, at.read(item), kind, torch.bool, at.facts) for item, kind in zip(given, kinds)))
        operands, dtype = _operands(at, *given)
        if dtype != at.dtype or dtype not in INTEGERS:
            raise Unsupported(f"bits of {dtype}")

        def compute(facts: Facts, left: Element, right: Element) -> Element:
            if isinstance(left, Linear) and isinstance(right, Linear) and left.fixed and right.fixed:
                return Linear(bitwise(left.constant, right.constant))
            return at.opaque()

        return lifted(compute, at.facts, *operands)

    return entry


def _negation(at: At) -> Element:
    operand = at.argument(0, "input")
    dtype = at.dtype_of(operand)
    if at.dtype != torch.bool or (dtype != torch.bool and not target_name(at.node).endswith("logical_not")):
        raise Unsupported(f"the bits of {dtype}")
    return linear.negated(cast(at, at.read(operand), dtype, torch.bool, at.facts))  # type: ignore[arg-type]


# --- Selection -------------------------------------------------------------------------------------------------------


def _select(at: At, condition: Any, yes: Any, no: Any) -> Element:
    if at.dtype_of(condition) != torch.bool:
        raise Unsupported(f"a condition of {at.dtype_of(condition)}")
    formula = at.read(condition)
    possible = at.facts.possible(formula)  # type: ignore[arg-type]
    found = []
    for truth, operand in ((True, yes), (False, no)):
        within = at.facts.assume(formula, truth) if truth in possible else None  # type: ignore[arg-type]
        if within is None:
            found.append(None)
            continue
        element = at.read(operand, facts=within)
        kind = at.dtype_of(operand)
        if isinstance(element, Real) and not isinstance(operand, fx.Node):
            found.append(_rounded(element.value, at.dtype))
        else:
            found.append(cast(at, element, kind, at.dtype, within))
    if found[0] is None or found[1] is None:
        return found[1] if found[0] is None else found[0]  # type: ignore[return-value]
    return fork(formula, *found)  # type: ignore[arg-type]


def _where(at: At) -> Element:
    return _select(at, at.argument(0, "condition"), at.argument(1, "input"), at.argument(2, "other"))


def _where_method(at: At) -> Element:
    return _select(at, at.argument(1, "condition"), at.argument(0, "self"), at.argument(2, "other"))


def _masked_fill(at: At) -> Element:
    return _select(at, at.argument(1, "mask"), at.argument(2, "value"), at.argument(0, "input"))


def _triangle(lower: bool) -> Entry:
    def entry(at: At) -> Element:
        row, column = at.coordinates[-2:]
        behind = row + at.number(at.argument(1, "diagonal", 0)) - column  # at least 0 on and below the diagonal
        kept = linear.at_least_zero(behind if lower else -behind)
        operand = at.argument(0, "input")
        zero = cast(at, False, torch.bool, at.dtype, at.facts)
        within = at.facts.assume(kept)
        if within is None:
            return zero
        known = at.facts.decide(kept)
        return fork(kept if known is None else known, at.read(operand, facts=within), zero)

    return entry


# --- Sources ---------------------------------------------------------------------------------------------------------


def _arange(at: At) -> Element:
    bounds = list(at.node.args)
    start = at.number(at.node.kwargs.get("start", bounds[0] if len(bounds) > 1 else 0))
    step = at.number(at.node.kwargs.get("step", bounds[2] if len(bounds) > 2 else 1))
    if not step.fixed or at.dtype not in INTEGERS:
        raise Unsupported(f"a range of {at.dtype} by a step that is no number")
    return at.fit(start + at.coordinates[0] * step.constant, at.facts)


def _filled(value: float | None, position: int = 1) -> Entry:
    def entry(at: At) -> Element:
        given = at.argument(position, "fill_value") if value is None else value
        if isinstance(given, fx.Node) and at.shape_of(given) != ():
            raise Unsupported("a value that is no scalar")
        return cast(at, at.read(given, () if isinstance(given, fx.Node) else None), at.dtype_of(given), at.dtype,
                    at.facts)

    return entry


def _scalar(at: At) -> Element:
    given = at.argument(0, "data", at.argument(0, "s"))
    while isinstance(given, (list, tuple)) and len(given) == 1:
        given = given[0]
    if not isinstance(given, (bool, int, float)):
        raise Unsupported("a tensor of data")
    return cast(at, at.read(given), at.dtype_of(given), at.dtype, at.facts)


# --- Running sums and differences ------------------------------------------------------------------------------------


def _cumsum(at: At) -> Element:
    """Of what is the same at every place before: that many times itself."""
    operand = at.argument(0, "input")
    shape = at.shape_of(operand)
    dimension = at.argument(1, "dim", at.node.kwargs.get("axis")) % len(shape)
    if at.dtype not in INTEGERS:
        raise Unsupported(f"a running sum of {at.dtype}")
    last = at.coordinates[dimension]
    place = at.functions.new("place")
    facts = at.facts.within(place, last + 1)
    coordinates = (*at.coordinates[:dimension], place, *at.coordinates[dimension + 1 :])
    element = at.read(operand, coordinates, facts)
    if at.dtype_of(operand) == torch.bool:
        element = fork(element, Linear(1), Linear(0))  # type: ignore[arg-type]
    values = {leaf for leaf, _ in leaves(element, facts)}
    if len(values) != 1 or not isinstance(value := values.pop(), Linear) or not value.fixed:
        raise Unsupported("a running sum of different numbers")
    return at.fit((last + 1) * value.constant, at.facts)


def _difference(at: At) -> Element:
    """Of neighbours along one dimension, of several tensors behind one another."""
    operand, dimension = at.argument(0, "input"), at.argument(2, "dim", -1) % len(at.shape)
    if at.argument(1, "n", 1) != 1 or at.dtype not in INTEGERS:
        raise Unsupported(f"differences of {at.dtype}")
    parts = [at.argument(3, "prepend"), operand, at.argument(4, "append")]
    parts = [part for part in parts if part is not None]
    if any(at.dtype_of(part) != at.dtype for part in parts):
        raise Unsupported("differences of several types")
    first = at.coordinates[dimension]
    values = [joined(at, parts, dimension, first + offset) for offset in (1, 0)]

    def subtract(facts: Facts, left: Element, right: Element) -> Element:
        return at.fit(left - right, facts)  # type: ignore[operator]

    return lifted(subtract, at.facts, *values)


def joined(at: At, parts: Sequence[Any], dimension: int, place: Linear) -> Element:
    """The element at `place` of tensors that lie behind one another along a dimension."""
    begins, facts, found = Linear(0), at.facts, []
    for part in parts:
        size = at.shape_of(part)[dimension]
        here = linear.at_least_zero(begins + size - place - 1)
        within = facts.assume(here)
        if within is not None:
            coordinates = (*at.coordinates[:dimension], place - begins, *at.coordinates[dimension + 1 :])
            element = at.read(part, coordinates, within)
            found.append((here, cast(at, element, at.dtype_of(part), at.dtype, within)))
        beyond = facts.assume(here, False)
        if beyond is None:
            break
        facts, begins = beyond, begins + size
    if not found:
        raise Unsupported("an element beyond the last part")
    element = found[-1][1]
    for here, value in reversed(found[:-1]):
        element = fork(here, value, element)
    return element


def _cat(at: At) -> Element:
    parts = at.argument(0, "tensors")
    dimension = at.argument(1, "dim", at.node.kwargs.get("axis", 0)) % len(at.shape)
    if any(len(at.shape_of(part)) != len(at.shape) for part in parts):  # torch skips empty vectors
        raise Unsupported("parts of several ranks")
    return joined(at, parts, dimension, at.coordinates[dimension])


def _cast(at: At) -> Element:
    operand = at.argument(0, "input")
    return cast(at, at.read(operand), at.dtype_of(operand), at.dtype, at.facts)


def _pad(at: At) -> Element:
    operand, amounts = at.argument(0, "input"), at.argument(1, "pad")
    if at.argument(2, "mode", "constant") != "constant":
        raise Unsupported("a pad of the tensor's own elements")
    value = at.argument(3, "value")
    return _padded(at, operand, amounts, 0 if value is None else value)


def _constant_pad(at: At) -> Element:
    return _padded(at, at.argument(0, "input"), at.argument(1, "pad"), at.argument(2, "value", 0))


def _padded(at: At, operand: Any, amounts: Sequence[Any], value: Any) -> Element:
    coordinates, inside = list(at.coordinates), True
    shape = at.shape_of(operand)
    for place in range(len(amounts) // 2):
        dimension = len(shape) - 1 - place
        coordinates[dimension] = coordinates[dimension] - at.number(amounts[2 * place])
        for bound in (coordinates[dimension], shape[dimension] - coordinates[dimension] - 1):
            inside = linear.both(inside, linear.at_least_zero(bound))
    known = at.facts.decide(inside)
    outside = cast(at, at.read(value), at.dtype_of(value), at.dtype, at.facts)
    within = at.facts.assume(inside)
    if known is False or within is None:
        return outside
    element = at.read(operand, tuple(coordinates), within)
    return element if known else fork(inside, element, outside)


_TABLE: dict[str, Entry] = {
    **VIEWS,
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
    "where": _where,
    "where_method": _where_method,
    "masked_fill": _masked_fill,
    "tril": _triangle(True),
    "triu": _triangle(False),
    "arange": _arange,
    "zeros": _filled(0),
    "ones": _filled(1),
    "full": _filled(None),
    "new_full": _filled(None, 2),
    "scalar": _scalar,
    "tensor": _scalar,
    "cumsum": _cumsum,
    "diff": _difference,
    "cat": _cat,
    "cast": _cast,
    "pad": _pad,
    "constant_pad": _constant_pad,
}
# What the importer's tables have no name for: methods, functions of torch and ATen packets alike.
_MORE = set(
    "cumsum diff floor_divide floordiv remainder mod index index_select gather take_along_dim flip detach"
    " add_batch_dim remove_batch_dim".split()
)


def operation(node: fx.Node) -> Entry | None:
    """The table's entry for what a node calls, by the importer's tables of spellings."""
    if node.op not in ("call_function", "call_method"):
        return None
    return _TABLE.get(spelling(node) or _other_spelling(node.target))


def _other_spelling(target: Any) -> str:
    if isinstance(target, str):
        name = target
    elif isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        packet = getattr(target, "overloadpacket", target)
        name = packet.__name__ if packet._qualified_op_name.startswith("aten::") else ""
    else:
        module = (getattr(target, "__module__", None) or "torch").split(".")[0].strip("_")
        name = getattr(target, "__name__", "") if module in ("torch", "operator") else ""
    name = "" if name.endswith("_") and not name.startswith("__") else name.strip("_")
    return name if name in _MORE else ""
