"""ATen's activations that are no operations of the dialect, and their gradients. Each is computed in f32 (f64 for f64),
as ATen's kernel does, and rounded once."""

from __future__ import annotations

from collections.abc import Callable

from ...text import Value
from .backward import in_wide, number
from .call import Call, Refused
from .shape import Named


def _of(formula: Callable[[Call, Value], Value]) -> Callable[[Call], Value]:
    """An activation of one tensor; `formula` reads the call's numbers behind it."""

    def translate(call: Call) -> Value:
        x = in_wide(call, call.argument(0, "self"))
        return call.cast(formula(call, x), call.element)

    return translate


def _slope_of(formula: Callable[[Call, Value, Value], Value], position: int = 1) -> Callable[[Call], Value]:
    """The gradient of one, from the cotangent and what the forward was given (or gave)."""

    def translate(call: Call) -> Value:
        cotangent, x = in_wide(call, call.argument(0, "grad_output")), in_wide(call, call.argument(position, "self"))
        if cotangent.type != x.type:
            raise Refused(f"a cotangent of {cotangent.type} for {x.type}")
        return call.cast(formula(call, cotangent, x), call.element)

    return translate


def _told(call: Call, position: int, name: str, default: float) -> float:
    return call.number(call.argument(position, name, default))


def _mul(call: Call, value: Value, factor: float) -> Value:
    return value if factor == 1 else call.binary("mul", value, number(call, factor, value))


def _expm1(call: Call, x: Value) -> Value:
    """e^x - 1 as tanh(x / 2) (e^x + 1), which loses nothing near 0."""
    grown = call.binary("add", call.unary("exp", x), number(call, 1.0, x))
    return call.binary("mul", call.unary("tanh", _mul(call, x, 0.5)), grown)


def _is_not_above(call: Call, x: Value) -> tuple[Value, Value]:
    """Whether x is 0 or below, and x there, 0 elsewhere: what is computed of it is finite where nobody wants it."""
    zero = number(call, 0.0, x)
    below = call.compare("le", x, zero)
    return below, call.select(below, x, zero)


# --- Exponential units ---------------------------------------------------------------------------------------------


def _elu_of(call: Call, x: Value, alpha: float, scale: float, input_scale: float) -> Value:
    below, negative = _is_not_above(call, x)
    left = _mul(call, _expm1(call, _mul(call, negative, input_scale)), alpha * scale)
    return call.select(below, left, _mul(call, x, scale))


def _elu(call: Call, x: Value) -> Value:
    alpha, scale = _told(call, 1, "alpha", 1.0), _told(call, 2, "scale", 1.0)
    return _elu_of(call, x, alpha, scale, _told(call, 3, "input_scale", 1.0))


def _celu(call: Call, x: Value) -> Value:
    alpha = _told(call, 1, "alpha", 1.0)
    return _elu_of(call, x, alpha, 1.0, 1.0 / alpha)


def _elu_backward(call: Call, cotangent: Value, x: Value) -> Value:
    alpha, scale, inner = (_told(call, i, name, 1.0) for i, name in enumerate(("alpha", "scale", "input_scale"), 1))
    below, negative = _is_not_above(call, x)
    if call.argument(4, "is_result"):
        slope = _mul(call, call.binary("add", negative, number(call, alpha * scale, x)), inner)
    else:
        slope = _mul(call, call.unary("exp", _mul(call, negative, inner)), inner * alpha * scale)
    return call.binary("mul", cotangent, call.select(below, slope, number(call, scale, x)))


def _mish(call: Call, x: Value) -> Value:
    return call.binary("mul", x, call.unary("tanh", call.unary("softplus", x)))


def _mish_backward(call: Call, cotangent: Value, x: Value) -> Value:
    tanh = call.unary("tanh", call.unary("softplus", x))
    rest = call.binary("sub", number(call, 1.0, x), call.binary("mul", tanh, tanh))
    rise = call.binary("mul", call.binary("mul", x, call.unary("sigmoid", x)), rest)
    return call.binary("mul", cotangent, call.binary("add", tanh, rise))


def _softplus_backward(call: Call, cotangent: Value, x: Value) -> Value:
    scaled = _mul(call, x, _told(call, 2, "beta", 1.0))
    is_large = call.compare("gt", scaled, number(call, _told(call, 3, "threshold", 20.0), x))
    return call.select(is_large, cotangent, call.binary("mul", cotangent, call.unary("sigmoid", scaled)))


def _log_sigmoid_backward(call: Call, cotangent: Value, x: Value) -> Value:
    zero, one = number(call, 0.0, x), number(call, 1.0, x)
    small = call.unary("exp", call.unary("neg", call.unary("abs", x)))
    share = call.select(call.compare("lt", x, zero), one, small)
    return call.binary("mul", cotangent, call.binary("div", share, call.binary("add", one, small)))


# --- Pieces of lines -----------------------------------------------------------------------------------------------


def _leaky(call: Call, x: Value) -> Value:
    is_above = call.compare("gt", x, number(call, 0.0, x))
    return call.select(is_above, x, _mul(call, x, _told(call, 1, "negative_slope", 0.01)))


def _leaky_backward(call: Call, cotangent: Value, x: Value) -> Value:
    is_above = call.compare("gt", x, number(call, 0.0, x))
    return call.select(is_above, cotangent, _mul(call, cotangent, _told(call, 2, "negative_slope", 0.01)))


def _ramp(call: Call, x: Value) -> Value:
    """x + 3, no less than 0 and no more than 6."""
    raised = call.binary("max", call.binary("add", x, number(call, 3.0, x)), number(call, 0.0, x))
    return call.binary("min", raised, number(call, 6.0, x))


def _hardsigmoid(call: Call, x: Value) -> Value:
    return call.binary("div", _ramp(call, x), number(call, 6.0, x))


def _hardswish(call: Call, x: Value) -> Value:
    return call.binary("div", call.binary("mul", x, _ramp(call, x)), number(call, 6.0, x))


def _hardsigmoid_backward(call: Call, cotangent: Value, x: Value) -> Value:
    above, below = (call.compare(op, x, number(call, bound, x)) for op, bound in (("gt", -3.0), ("lt", 3.0)))
    share = call.binary("div", cotangent, number(call, 6.0, x))
    return call.select(call.binary("min", above, below), share, number(call, 0.0, x))


def _hardswish_backward(call: Call, cotangent: Value, x: Value) -> Value:
    rising = call.binary("div", x, number(call, 3.0, x))
    slope = call.binary("mul", cotangent, call.binary("add", rising, number(call, 0.5, x)))
    below, between = (call.compare(op, x, number(call, bound, x)) for op, bound in (("le", -3.0), ("lt", 3.0)))
    return call.select(below, number(call, 0.0, x), call.select(between, slope, cotangent))


def _bounds(call: Call, first: int) -> tuple[float, float]:
    return _told(call, first, "min_val", -1.0), _told(call, first + 1, "max_val", 1.0)


def _hardtanh(call: Call, x: Value) -> Value:
    low, high = _bounds(call, 1)
    return call.binary("min", call.binary("max", x, number(call, low, x)), number(call, high, x))


def _hardtanh_backward(call: Call, cotangent: Value, x: Value) -> Value:
    low, high = _bounds(call, 2)
    below, above = (call.compare(op, x, number(call, bound, x)) for op, bound in (("le", low), ("ge", high)))
    return call.select(call.binary("max", below, above), number(call, 0.0, x), cotangent)


def _threshold(call: Call, x: Value) -> Value:
    is_below = call.compare("le", x, number(call, _told(call, 1, "threshold", 0.0), x))
    return call.select(is_below, number(call, _told(call, 2, "value", 0.0), x), x)


def _prelu_backward(call: Call, named: Named) -> list[Value | None]:
    """Gradients of the input and of the slopes, the latter in the input's shape."""
    named(0)
    cotangent, x, slope = (in_wide(call, call.argument(i, "")) for i in range(3))
    is_above = call.compare("gt", x, number(call, 0.0, x))
    below = call.binary("mul", call.broadcast(slope, x.type), cotangent)
    results = [call.select(is_above, cotangent, below)]
    if call.parts[0] is None or call.parts[1] is None or call.parts[1].dims != x.type.dims:
        raise Refused("gradients of other shapes than the input's")
    results[0] = call.cast(results[0], str(call.parts[0].element))
    named(1)
    rest = call.select(is_above, number(call, 0.0, x), call.binary("mul", x, cotangent))
    return [*results, call.cast(rest, str(call.parts[1].element))]


TRANSLATIONS: dict[str, Callable[[Call], Value]] = {
    "elu": _of(_elu),
    "celu": _of(_celu),
    "mish": _of(_mish),
    "leaky_relu": _of(_leaky),
    "hardsigmoid": _of(_hardsigmoid),
    "hardswish": _of(_hardswish),
    "hardtanh": _of(_hardtanh),
    "threshold": _of(_threshold),
    "elu_backward": _slope_of(_elu_backward, position=5),
    "mish_backward": _slope_of(_mish_backward),
    "softplus_backward": _slope_of(_softplus_backward),
    "log_sigmoid_backward": _slope_of(_log_sigmoid_backward),
    "leaky_relu_backward": _slope_of(_leaky_backward),
    "hardsigmoid_backward": _slope_of(_hardsigmoid_backward),
    "hardswish_backward": _slope_of(_hardswish_backward),
    "hardtanh_backward": _slope_of(_hardtanh_backward),
}
SEVERAL: dict[str, Callable[[Call, Named], list[Value | None]]] = {"prelu_backward": _prelu_backward}
