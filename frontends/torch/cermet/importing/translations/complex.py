"""Products of complex numbers as arithmetic on pairs of real ones: the text has a complex `[..., n]` as `[..., n, 2]`.

torch multiplies (a + b i) (c + d i) as (a c - b d) + (a d + b c) i, each product and sum rounded.
"""

from __future__ import annotations

from collections.abc import Callable

from ...text import Dim, TensorType, Value
from .call import Call, Refused


def _part(call: Call, value: Value, index: int, dims: tuple[Dim, ...]) -> Value:
    """The real (0) or imaginary (1) parts of pairs, broadcast to a shape without the pairs."""
    apart = value.type.dims[:-1]
    part = call.reshape(call.slice_along(value, len(apart), index, 1), apart)
    return call.broadcast(part, TensorType(dims, value.type.element))


def _product(call: Call) -> Value:
    call.only("input", "other")
    lhs, rhs = (call.tensor(call.argument(i, name)) for i, name in enumerate(("input", "other")))
    if lhs.type.element != call.element or rhs.type.element != call.element:
        raise Refused(f"a complex product of {lhs.type} and {rhs.type}")
    dims = call.expected.dims[:-1]
    a, b = (_part(call, lhs, index, dims) for index in (0, 1))
    c, d = (_part(call, rhs, index, dims) for index in (0, 1))
    real = call.binary("sub", call.binary("mul", a, c), call.binary("mul", b, d))
    imaginary = call.binary("add", call.binary("mul", a, d), call.binary("mul", b, c))
    return call.concat([call.reshape(part, (*dims, 1)) for part in (real, imaginary)], len(dims))


def _pairs(call: Call) -> Value:
    """view_as_complex and view_as_real: the same pairs."""
    value = call.input()
    if value.type != call.expected:
        raise Refused(f"pairs of {value.type}, the call gives {call.expected}")
    return call.finish(value)


# The only calls on complex numbers, or with a complex result, that have a translation.
COMPLEX: dict[str, Callable[[Call], Value]] = {
    "mul": _product,
    "view_as_complex": _pairs,
    "view_as_real": _pairs,
}
