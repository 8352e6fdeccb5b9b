"""Functions of logits that give numbers of rows, or of some rows each (a sequence's score), whose cotangents nobody
knows in the forward pass: what a preference or a policy is trained by.

With their cotangents they are a loss: L = sum(values * cotangents), whose gradient for a cotangent of 1 is that of the
values for these. So what libcermet derives of losses holds for them, too (derivation.py): L in parts gives the values,
and L's gradient in parts theirs.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

from .. import locks
from ..errors import Error
from ..ops import regions
from ..ops.signatures import Gradient, Port
from ..ops.slices import Function
from ..text import ELEMENT_TYPES, TensorType
from .derivation import Derived, derive

_lock = locks.lock()
_known: dict[int, int] = {}


def weighted(key: int) -> int:
    """L of region `key`, which has one result; its last input are the cotangents. Raises cermet.Error where a region is
    no such function."""
    with _lock:
        found = _known.get(key)
    if found is None:
        found = regions.register(_weighted(regions.text(key), regions.signature(key).outputs[0]))
        with _lock:
            _known[key] = found
    return found


def _weighted(text: str, value: Port) -> str:
    function = Function.read(text)
    given = TensorType(value.dims, ELEMENT_TYPES[value.dtype])
    wide, one = given.with_element("f32"), TensorType((), "f32")
    each, row = TensorType((*value.dims, 1), "f32"), TensorType((1,), "f32")
    (result, _), *_ = function.results
    arguments = [*function.arguments, ("%cotangents", str(given))]
    factors = [result, "%cotangents"]
    lines = [line for _, line in function.lines]
    if given != wide:
        lines += [f"%w{index} = cermet.cast {name} : {given} to {wide}" for index, name in enumerate(factors)]
        factors = ["%w0", "%w1"]
    lines += [
        f"%w2 = cermet.mul {', '.join(factors)} : {wide}",
        f"%w3 = cermet.reshape %w2 : {wide} to {each}",
        f"%w4 = cermet.sum_rows %w3 : {each} to {row}",
        f"%w5 = cermet.reshape %w4 : {row} to {one}",
    ]
    rows = [
        function.before,
        f"  func.func @{function.name}({', '.join(f'{name}: {type}' for name, type in arguments)}) -> {one} {{",
        *(f"    {line}" for line in lines),
        f"    return %w5 : {one}",
        "  }",
        "}",
    ]
    return "\n".join(rows) + "\n"


@dataclasses.dataclass(frozen=True)
class Values:
    """What gives them, and their gradient, in pieces of rows."""

    key: int  # of L
    derived: Derived  # of L
    last: Gradient | None  # of what L makes of all rows' numbers, by the cotangents; None: the numbers are they

    def keys(self, recorded: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What a forward launches, and what a backward does."""
        last = () if self.last is None else (self.last.forward, self.last.backward)
        return (*self.derived.loss.keys(), *last), self.derived.gradient.keys() if recorded else ()


@functools.cache
def values(key: int, position: int) -> Values | None:
    """Of region `key`, whose input `position` the logits are. None where there are none in pieces."""
    what = regions.signature(key)
    try:
        whole = weighted(key)
    except Error:
        return None
    derived, given = derive(whole, position), ("input", len(what.inputs))
    if derived.loss is None or derived.gradient is None:
        return None
    rows, after = derived.loss.rows, derived.loss.after
    if given in after.inputs and given not in rows.inputs:
        return Values(whole, derived, regions.gradient(after.key, tuple(origin == given for origin in after.inputs)))
    is_number = after.inputs == (("rows", 0),) and rows.outputs == 1
    if not is_number or _counted(what.outputs[0].dims) != _counted(what.inputs[position].dims[:-1]):
        return None
    return Values(whole, derived, None)


def _counted(dims: Sequence[int | str]) -> tuple[int | str, ...]:
    """Dimensions as far as how many elements they have follows from them."""
    numbers = math.prod(dim for dim in dims if isinstance(dim, int))
    return numbers, *sorted(dim for dim in dims if isinstance(dim, str))
