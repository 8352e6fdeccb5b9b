"""What single torch calls do to the elements of functions.py: a table from operation to a function of `At`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx

from ...importing.translations.operators import spelling
from ...text import INTEGERS
from . import linear
from .arithmetic import ARITHMETIC, read_as
from .elements import At, Element, Entry, Unsupported, fork, leaves, lifted
from .linear import Facts, Linear
from .views import VIEWS

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
        found.append(read_as(at, operand, at.dtype, facts=within))
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
        zero = read_as(at, False, at.dtype)
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
        return read_as(at, given, at.dtype, () if isinstance(given, fx.Node) else None)

    return entry


def _scalar(at: At) -> Element:
    given = at.argument(0, "data", at.argument(0, "s"))
    while isinstance(given, (list, tuple)) and len(given) == 1:
        given = given[0]
    if not isinstance(given, (bool, int, float)):
        raise Unsupported("a tensor of data")
    return read_as(at, given, at.dtype)


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
    element = at.read(operand, at.elsewhere(dimension, place), facts)
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
            found.append((here, read_as(at, part, at.dtype, at.elsewhere(dimension, place - begins), within)))
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
    return read_as(at, at.argument(0, "input"), at.dtype)


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
    outside = read_as(at, value, at.dtype)
    within = at.facts.assume(inside)
    if known is False or within is None:
        return outside
    element = at.read(operand, tuple(coordinates), within)
    return element if known else fork(inside, element, outside)


_TABLE: dict[str, Entry] = {
    **VIEWS,
    **ARITHMETIC,
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
