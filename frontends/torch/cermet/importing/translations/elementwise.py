"""Elementwise calls as dialect operations, rounded as torch's TensorIterator rounds: operands are cast to the common
dtype, bf16 and f16 are computed in f32, and the result is rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx

from ...graph.nodes import example
from ...text import ELEMENT_TYPES, FLOATS, Value
from .call import DTYPES, LOW_PRECISION, Call, Refused, is_number, wide
from .promotion import Operand, common_dtype
from .shape import Named

_KEPT = ("add", "sub", "mul", "div")  # operations whose numbers keep the precision of the arithmetic
# Whether clamp gives a value that lies at its bound none of the gradient, or half where that is a tensor, and not all.
SHARES_TIES = torch.__version__ >= (2, 14)
_ALL, _HALF, _NONE = 1.0, 0.5, 0.0


def _operands(call: Call, arguments: list[Any]) -> list[Operand]:
    return [call.number(argument) if is_number(argument) else call.tensor(argument) for argument in arguments]


def _representable(value: float, element: str) -> bool:
    return math.isnan(value) or torch.tensor(value, dtype=torch.float64).to(DTYPES[element]).item() == value


def _keeps_precision(call: Call, op: str, position: int, arguments: list[Any], value: Value) -> bool:
    """Whether a wider tensor of rank 0 is, as a number would be, not rounded to the common dtype: of a CPU tensor both
    CUDA's kernels do so and the CPU's products and quotients by it."""
    element = str(value.type.element)
    if value.type.dims or element not in FLOATS or element == call.element or call.element not in LOW_PRECISION:
        return False
    if example(arguments[position]).device.type != "cpu":
        return False
    return example(call.node).device.type != "cpu" or (op in ("mul", "div") and position == 1)


def elementwise(call: Call, op: str, arguments: list[Any], autocast: bool = False) -> Value:
    """An operation on one or two tensors and numbers. `autocast` says that autocast computes it in f32."""
    operands = _operands(call, arguments)
    element = call.element
    promoted = common_dtype(arguments, operands)
    if op == "div" and not promoted.is_floating_point:
        promoted = torch.get_default_dtype()
    if promoted != DTYPES[element] and not (autocast and element == "f32" and promoted.is_floating_point):
        raise Refused(f"operands that promote to {promoted}, a result of {element}")
    kept = [
        op in _KEPT and isinstance(operand, float) and element in LOW_PRECISION and not _representable(operand, element)
        or op in _KEPT and isinstance(operand, Value) and _keeps_precision(call, op, position, arguments, operand)
        for position, operand in enumerate(operands)
    ]
    arithmetic = wide(element) if any(kept) else element
    type = call.expected.with_element(arithmetic)
    written = []
    for operand, keeps in zip(operands, kept):
        if isinstance(operand, float):
            written.append(call.number_as(operand, type))
        else:
            value = operand if keeps else call.cast(operand, element)
            written.append(call.broadcast(call.cast(value, arithmetic), type))
    return call.cast(_of_booleans(call, op, written) if element == "i1" else _apply(call, op, written), element)


def _apply(call: Call, op: str, values: list[Value]) -> Value:
    return call.unary(op, values[0]) if len(values) == 1 else call.binary(op, values[0], values[1])


def _of_booleans(call: Call, op: str, values: list[Value]) -> Value:
    ops = {"add": "max", "mul": "min", "max": "max", "min": "min"}
    if op not in ops:
        raise Refused(f"{op} of booleans")
    return call.binary(ops[op], values[0], values[1])


def _power_of_two(value: float) -> bool:
    return value != 0 and math.isfinite(value) and abs(math.frexp(value)[0]) == 0.5 and abs(math.frexp(value)[1]) <= 16


def _sum(op: str, reverse: bool = False) -> Callable[[Call], Value]:
    """add, sub and rsub. torch fuses `alpha` into the addition; a power of two is exact either way."""

    def translate(call: Call) -> Value:
        call.only("input", "other", "alpha")
        arguments = [call.argument(0, "input"), call.argument(1, "other")]
        alpha = call.argument(2, "alpha", 1)
        if reverse:
            arguments.reverse()
        if alpha == 1 and not isinstance(alpha, fx.Node):
            return elementwise(call, op, arguments)
        factor = call.number(alpha) if not isinstance(alpha, fx.Node) else math.nan
        scaled = call.tensor(arguments[0 if reverse else 1])
        if not (_power_of_two(factor) and call.expected.is_float and scaled.type.element == call.element):
            raise Refused("alpha")
        other = call.tensor(arguments[1 if reverse else 0])
        if other.type.element != call.element:
            raise Refused("alpha")
        scaled, other = (call.broadcast(call.cast(v, wide(call.element)), call.expected) for v in (scaled, other))
        scaled = call.binary("mul", scaled, call.constant_like(factor, scaled))
        pair = (scaled, other) if reverse else (other, scaled)
        return call.cast(call.binary(op, *pair), call.element)

    return translate


def _binary(op: str, autocast: bool = False) -> Callable[[Call], Value]:
    def translate(call: Call) -> Value:
        call.only("input", "other")
        if len(call.node.args) > 2:
            raise Refused("a third argument")
        return elementwise(call, op, [call.argument(0, "input"), call.argument(1, "other")], autocast)

    return translate


def _unary(op: str) -> Callable[[Call], Value]:
    def translate(call: Call) -> Value:
        call.only("input", "inplace")
        value = call.widened(call.input(), call.element)  # autocast's f32, or an integer's
        if op not in ("neg", "abs") and not value.type.is_float or value.type.element == "i1":
            raise Refused(f"{op} of {value.type}")
        return call.unary(op, value)

    return translate


def _gelu(call: Call) -> Value:
    call.only("input", "approximate")
    kinds = {"none": "gelu", "tanh": "gelu_tanh"}
    approximate = call.argument(1, "approximate", "none")
    if approximate not in kinds:
        raise Refused(f"approximate {approximate!r}")
    return call.unary(kinds[approximate], call.widened(call.float_tensor(call.argument(0, "input")), call.element))


def log_sigmoid_of(call: Call, value: Value) -> Value:
    """log(sigmoid(value)), rounded once."""
    wider = call.cast(value, wide(str(value.type.element)))
    result = call.unary("neg", call.unary("softplus", call.unary("neg", wider)))
    return call.cast(result, str(value.type.element))


def _log_sigmoid(call: Call) -> Value:
    call.only("input")
    return log_sigmoid_of(call, call.widened(call.float_tensor(call.argument(0, "input")), call.element))


def _log_sigmoid_forward(call: Call, named: Named) -> list[Value | None]:
    """aten.log_sigmoid_forward: with what its gradient reads, e^-|x|, where that is of the input's size."""
    named(0)
    value = call.float_tensor(call.argument(0, "input"))
    if call.parts[0] is None:
        raise Refused("a logarithm that is no tensor")
    logarithm = log_sigmoid_of(call, value)
    if call.parts[1] != value.type:
        return [logarithm, None]
    named(1)
    wider = call.cast(value, wide(str(value.type.element)))
    small = call.unary("exp", call.unary("neg", call.unary("abs", wider)))
    return [logarithm, call.cast(small, str(value.type.element))]


def _softplus(call: Call) -> Value:
    """log(1 + e^(beta x)) / beta, and x where beta x is above the threshold."""
    call.only("input", "beta", "threshold")
    beta, threshold = call.number(call.argument(1, "beta", 1)), call.number(call.argument(2, "threshold", 20))
    value = call.widened(call.float_tensor(call.argument(0, "input")), call.element)
    value = call.cast(value, wide(call.element))
    scaled = value if beta == 1 else call.binary("mul", value, call.constant_like(beta, value))
    result = call.unary("softplus", scaled)
    if beta != 1:
        result = call.binary("div", result, call.constant_like(beta, result))
    is_large = call.compare("gt", scaled, call.constant_like(threshold, scaled))
    return call.cast(call.select(is_large, value, result), call.element)


def _prelu(call: Call) -> Value:
    """Slopes below 0: one, one for each of dimension 1, or, in ATen's kernel, of a shape that broadcasts."""
    call.only("input", "weight")
    value, slope = (call.float_tensor(call.argument(i, name)) for i, name in enumerate(("input", "weight")))
    if value.type != call.expected or slope.type.element != call.element:
        raise Refused(f"an input of {value.type} and slopes of {slope.type}")
    if len(slope.type.dims) == 1 and slope.type.dims != (1,):
        if len(value.type.dims) < 2:
            raise Refused(f"slopes of {slope.type} for {value.type}")
        slope = call.reshape(slope, (*slope.type.dims, *[1] * (len(value.type.dims) - 2)))
    zero = call.constant_like(0.0, value)
    is_above = call.compare("gt", value, zero)
    below = call.select(is_above, zero, value)  # so that a slope's gradient has nothing of an infinity above
    return call.select(is_above, value, call.binary("mul", call.broadcast(slope, value.type), below))


def _pow(call: Call) -> Value:
    """Some exponents are operations of their own; 3 and -2 are products that round at each step, as torch's are."""
    call.only("input", "exponent", "self")
    base, exponent = call.argument(0, "input"), call.argument(1, "exponent")
    if not is_number(exponent) or not isinstance(base, fx.Node) or is_number(base):
        if not call.expected.is_float:
            raise Refused(f"a power of {call.expected}")
        return elementwise(call, "pow", [base, exponent], autocast=True)
    number = call.number(exponent)
    value = call.widened(call.tensor(base), call.element)
    one = lambda: call.constant_like(1.0, value)
    if value.type.element == "i1" or not value.type.is_float and number not in (2, 3):
        raise Refused(f"exponent {number} of {value.type}")
    if number == 2:
        return call.binary("mul", value, value)
    if number == 3:
        return call.binary("mul", call.binary("mul", value, value), value)
    if number == 0.5:
        return call.unary("sqrt", value)
    if number == -0.5:
        return call.unary("rsqrt", value)
    if number == -1:
        return call.binary("div", one(), value)
    if number == -2:
        square = call.binary("mul", value, value)
        return call.binary("div", one(), square)
    return call.binary("pow", value, call.constant_like(number, value))


def _square(call: Call) -> Value:
    value = call.widened(call.input(), call.element)
    return call.binary("mul", value, value)


def _reciprocal(call: Call) -> Value:
    value = call.widened(call.input(), call.element)
    return call.binary("div", call.constant_like(1.0, value), value)


def _clamp(low: int | None, high: int | None) -> Callable[[Call], Value]:
    """Bounds at these positions of the arguments: numbers or tensors."""

    def translate(call: Call) -> Value:
        call.only("input", "min", "max")
        lower, upper = call.argument(low, "min") if low else None, call.argument(high, "max") if high else None
        bounds = {"max": lower, "min": upper}
        given = value = call.broadcast(call.widened(call.input(), call.element), call.expected)
        limits = {op: _limit(call, bound) for op, bound in bounds.items() if bound is not None}
        if not limits:
            raise Refused("no bound")
        share = _ALL if not SHARES_TIES else _NONE if any(map(is_number, bounds.values())) else _HALF
        for op, limit in limits.items():
            value = _bounded(call, op, value, limit, share)
        if share == _HALF and len(limits) == 2 and call.builder.differentiable and value.type.is_float:
            least, most = limits.values()  # where they are one, that or the value has all of the gradient
            beyond = call.select(call.compare("lt", given, least), least, given)
            beyond = call.select(call.compare("gt", given, most), most, beyond)
            return call.select(call.compare("eq", least, most), beyond, value)
        return value

    return translate


def _limit(call: Call, bound: Any) -> Value:
    if is_number(bound):
        return call.number_as(call.number(bound), call.expected)
    return call.broadcast(call.widened(call.tensor(bound), call.element), call.expected)


def _bounded(call: Call, op: str, value: Value, limit: Value, share: float) -> Value:
    """`max` or `min`, of whose gradient the value has this share where it is the limit, as clamp's. Without halves one
    alone has the gradient, and neither where one is NaN."""
    if not call.builder.differentiable or not value.type.is_float or share == _HALF:
        return call.binary(op, value, limit)
    if share == _ALL:
        inside, beyond = ("ge", "lt") if op == "max" else ("le", "gt")
    else:
        inside, beyond = ("gt", "le") if op == "max" else ("lt", "ge")
    rest = call.select(call.compare(beyond, value, limit), limit, call.constant_like(math.nan, value))
    return call.select(call.compare(inside, value, limit), value, rest)


def _comparison(predicate: str) -> Callable[[Call], Value]:
    def translate(call: Call) -> Value:
        call.only("input", "other")
        arguments = [call.argument(0, "input"), call.argument(1, "other")]
        operands = _operands(call, arguments)
        element = ELEMENT_TYPES.get(common_dtype(arguments, operands))
        if element is None or call.element != "i1":
            raise Refused(f"a comparison of {element} with a result of {call.element}")
        type = call.expected.with_element(element)
        written = []
        for operand in operands:
            if isinstance(operand, float):
                written.append(call.number_as(operand, type))
            else:
                written.append(call.broadcast(call.cast(operand, element), type))
        return call.compare(predicate, *written)

    return translate


def _truths(call: Call, bitwise: bool) -> list[Value]:
    """The operands as booleans of the result's shape."""
    if call.element != "i1":
        raise Refused(f"bits of {call.element}")
    values = [call.tensor(argument) for argument in call.node.args]
    if call.node.kwargs or bitwise and any(value.type.element != "i1" for value in values):
        raise Refused("operands that are not booleans")
    return [call.broadcast(call.cast(value, "i1"), call.expected) for value in values]


def _logical(op: str, bitwise: bool) -> Callable[[Call], Value]:
    def translate(call: Call) -> Value:
        lhs, rhs = _truths(call, bitwise)
        return call.compare("ne", lhs, rhs) if op == "xor" else call.binary(op, lhs, rhs)

    return translate


def _not(bitwise: bool) -> Callable[[Call], Value]:
    def translate(call: Call) -> Value:
        (value,) = _truths(call, bitwise)
        return call.compare("eq", value, call.constant_like(0.0, value))

    return translate


def _selected(call: Call, condition: Any, lhs: Any, rhs: Any, promoting: bool = True) -> Value:
    mask = call.tensor(condition)
    if mask.type.element != "i1":
        raise Refused(f"a condition of {mask.type}")
    arguments = [lhs, rhs]
    operands = _operands(call, arguments)
    if promoting and DTYPES[call.element] != common_dtype(arguments, operands):
        raise Refused(f"operands that promote to {common_dtype(arguments, operands)}, a result of {call.element}")
    written = []
    for operand in operands:
        if isinstance(operand, float):
            written.append(call.number_as(operand, call.expected))
        else:
            written.append(call.broadcast(call.cast(operand, call.element), call.expected))
    return call.select(call.broadcast(mask, call.expected), *written)


def _where(call: Call) -> Value:
    call.only("condition", "input", "self", "other")
    lhs = call.argument(1, "input", call.node.kwargs.get("self"))
    return _selected(call, call.argument(0, "condition"), lhs, call.argument(2, "other"))


def _where_method(call: Call) -> Value:
    """`x.where(condition, other)`."""
    call.only("condition", "other")
    return _selected(call, call.argument(1, "condition"), call.node.args[0], call.argument(2, "other"))


def _masked_fill(call: Call) -> Value:
    call.only("input", "mask", "value")
    source, value = call.argument(0, "input"), call.argument(2, "value")
    if call.tensor(source).type.element != call.element:
        raise Refused("a result of another type")
    if not is_number(value) and call.tensor(value).type.dims:
        raise Refused("a value that is not one number")
    return _selected(call, call.argument(1, "mask"), value, source, promoting=False)


TRANSLATIONS: dict[str, Callable[[Call], Value]] = {
    "add": _sum("add"),
    "sub": _sum("sub"),
    "rsub": _sum("sub", reverse=True),
    "mul": _binary("mul"),
    "div": _binary("div"),
    "maximum": _binary("max"),
    "minimum": _binary("min"),
    "pow": _pow,
    "square": _square,
    "reciprocal": _reciprocal,
    "clamp": _clamp(1, 2),
    "clamp_min": _clamp(1, None),
    "clamp_max": _clamp(None, 1),
    "gelu": _gelu,
    "log_sigmoid": _log_sigmoid,
    "softplus": _softplus,
    "prelu": _prelu,
    "where": _where,
    "where_method": _where_method,
    "masked_fill": _masked_fill,
    "logical_and": _logical("min", bitwise=False),
    "logical_or": _logical("max", bitwise=False),
    "logical_xor": _logical("xor", bitwise=False),
    "logical_not": _not(bitwise=False),
    "bitwise_and": _logical("min", bitwise=True),
    "bitwise_or": _logical("max", bitwise=True),
    "bitwise_xor": _logical("xor", bitwise=True),
    "bitwise_not": _not(bitwise=True),
}
UNARY = ("neg", "abs", "exp", "log", "sqrt", "rsqrt", "tanh", "erf", "relu", "sigmoid", "silu")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
TRANSLATIONS |= dict(zip(UNARY, map(_unary, UNARY))) | dict(zip(COMPARISONS, map(_comparison, COMPARISONS)))
POINTWISE = {*TRANSLATIONS} - {"prelu"}  # of an element wherever it stands; a PReLU's number is a channel's
SEVERAL: dict[str, Callable[[Call, Named], list[Value | None]]] = {"log_sigmoid_forward": _log_sigmoid_forward}
