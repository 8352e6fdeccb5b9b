"""ATen's own calls for gradients, as they stand in a backward graph. Each is computed in f32 (f64 for f64) and rounded
once, as its kernel does."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...text import Value
from .call import Call, Refused, wide
from .reduction import last_dim
from .shape import Named


def in_wide(call: Call, argument: object) -> Value:
    value = call.float_tensor(argument)
    return call.cast(value, wide(str(value.type.element)))


def number(call: Call, number: float, like: Value) -> Value:
    return call.constant_like(number, like)


def _of_two(formula: Callable[[Call, Value, Value], Value]) -> Callable[[Call], Value]:
    """A gradient from a cotangent and one tensor of its shape: the operand or the result of the forward."""

    def translate(call: Call) -> Value:
        cotangent, value = (in_wide(call, call.argument(i, "")) for i in range(2))
        if cotangent.type != value.type:
            raise Refused(f"a cotangent of {cotangent.type} for {value.type}")
        return call.cast(formula(call, cotangent, value), call.element)

    return translate


def _sigmoid(call: Call, cotangent: Value, y: Value) -> Value:
    rest = call.binary("sub", number(call, 1.0, y), y)
    return call.binary("mul", cotangent, call.binary("mul", rest, y))


def _tanh(call: Call, cotangent: Value, y: Value) -> Value:
    return call.binary("mul", cotangent, call.binary("sub", number(call, 1.0, y), call.binary("mul", y, y)))


def _silu(call: Call, cotangent: Value, x: Value) -> Value:
    sigmoid = call.unary("sigmoid", x)
    one = number(call, 1.0, x)
    slope = call.binary("add", one, call.binary("mul", x, call.binary("sub", one, sigmoid)))
    return call.binary("mul", cotangent, call.binary("mul", sigmoid, slope))


def _gelu(call: Call, cotangent: Value, x: Value) -> Value:
    kind = call.argument(2, "approximate", "none")
    half, one = number(call, 0.5, x), number(call, 1.0, x)
    if kind == "none":
        erf = call.unary("erf", call.binary("mul", x, number(call, math.sqrt(0.5), x)))
        below = call.binary("mul", half, call.binary("add", one, erf))
        square = call.binary("mul", call.binary("mul", x, x), number(call, -0.5, x))
        density = call.binary("mul", call.unary("exp", square), number(call, 1 / math.sqrt(2 * math.pi), x))
        slope = call.binary("add", below, call.binary("mul", x, density))
    elif kind == "tanh":
        scale, cubic = math.sqrt(2 / math.pi), 0.044715
        square = call.binary("mul", x, x)
        inner = call.binary("add", x, call.binary("mul", number(call, cubic, x), call.binary("mul", square, x)))
        tanh = call.unary("tanh", call.binary("mul", number(call, scale, x), inner))
        left = call.binary("mul", half, call.binary("add", one, tanh))
        inner = call.binary("add", one, call.binary("mul", number(call, 3 * cubic, x), square))
        inner = call.binary("mul", number(call, scale, x), inner)
        rise = call.binary("mul", call.binary("sub", one, call.binary("mul", tanh, tanh)), inner)
        slope = call.binary("add", left, call.binary("mul", call.binary("mul", half, x), rise))
    else:
        raise Refused(f"approximate={kind!r}")
    return call.binary("mul", cotangent, slope)


def _threshold(call: Call, cotangent: Value, x: Value) -> Value:
    limit = number(call, call.number(call.argument(2, "threshold")), x)
    return call.select(call.compare("le", x, limit), number(call, 0.0, cotangent), cotangent)


def _softmax(call: Call, cotangent: Value, y: Value) -> Value:
    last_dim(call, call.argument(2, "dim"), y)
    product = call.binary("mul", cotangent, y)
    total = call.broadcast(call.reduce("reduce_sum", product), y.type)
    return call.binary("sub", product, call.binary("mul", y, total))


def _log_softmax(call: Call, cotangent: Value, y: Value) -> Value:
    last_dim(call, call.argument(2, "dim"), y)
    total = call.broadcast(call.reduce("reduce_sum", cotangent), y.type)
    return call.binary("sub", cotangent, call.binary("mul", call.unary("exp", y), total))


def _dropout(call: Call) -> Value:
    cotangent, mask = in_wide(call, call.argument(0, "")), call.tensor(call.argument(1, "mask"))
    if mask.type.element != "i1" or mask.type.dims != cotangent.type.dims:
        raise Refused(f"a mask of {mask.type} for {cotangent.type}")
    scaled = call.binary("mul", cotangent, number(call, call.number(call.argument(2, "scale")), cotangent))
    return call.cast(call.select(mask, scaled, number(call, 0.0, cotangent)), call.element)


def _layer_norm(call: Call, named: Named) -> list[Value | None]:
    """Gradients of input, weight and bias, those that are wanted, from the statistics that the forward gave."""
    mask = call.argument(7, "output_mask")
    named(0 if mask[0] else 1 if mask[1] else 2)
    cotangent, x = in_wide(call, call.argument(0, "")), in_wide(call, call.argument(1, "input"))
    if len(call.argument(2, "normalized_shape")) != 1:
        raise Refused("a norm over several dimensions")
    mean, scale = (call.broadcast(in_wide(call, call.argument(i, "")), x.type) for i in (3, 4))
    normed = call.binary("mul", call.binary("sub", x, mean), scale)

    def gradient(index: int, value: Value) -> Value:
        part = call.parts[index]
        assert part is not None
        return call.reshape(call.cast(value, str(part.element)), part.dims)

    results: list[Value | None] = [None, None, None]
    if mask[0]:
        named(0)
        weight = call.argument(5, "weight")
        inner = cotangent
        if weight is not None:
            inner = call.binary("mul", cotangent, call.broadcast(in_wide(call, weight), x.type))
        columns = x.type.dims[-1]
        if not isinstance(columns, int):
            raise Refused("a norm of symbolic columns")

        def mean_of(value: Value) -> Value:
            total = call.reduce("reduce_sum", value)
            return call.broadcast(call.binary("div", total, number(call, float(columns), total)), x.type)

        along = call.binary("mul", normed, mean_of(call.binary("mul", inner, normed)))
        rest = call.binary("sub", call.binary("sub", inner, mean_of(inner)), along)
        results[0] = gradient(0, call.binary("mul", scale, rest))
    if mask[1]:
        named(1)
        results[1] = gradient(1, call.sum_rows(call.binary("mul", cotangent, normed)))
    if mask[2]:
        named(2)
        results[2] = gradient(2, call.sum_rows(cotangent))
    return results


TRANSLATIONS: dict[str, Callable[[Call], Value]] = {
    "sigmoid_backward": _of_two(_sigmoid),
    "tanh_backward": _of_two(_tanh),
    "silu_backward": _of_two(_silu),
    "gelu_backward": _of_two(_gelu),
    "threshold_backward": _of_two(_threshold),
    "softmax_backward": _of_two(_softmax),
    "log_softmax_backward": _of_two(_log_softmax),
    "dropout_backward": _dropout,
}
SEVERAL: dict[str, Callable[[Call, Named], list[Value | None]]] = {"layer_norm_backward": _layer_norm}
