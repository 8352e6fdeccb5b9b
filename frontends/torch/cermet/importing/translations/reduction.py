"""Reductions, softmax and norms. Whatever reduces is computed in f32 (f64 for f64) and rounded once at the end, which
is what torch's kernels do; logsumexp alone is a composition in torch too, and rounds at each of its steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ...text import TensorType, Value
from .call import DTYPES, Call, Refused, element_count, wide
from .shape import Named


_MAX_PARTS = 16  # of a sum, each an operand


def reduced_dims(call: Call, argument: Any, rank: int) -> list[int]:
    """The dimensions that a `dim` argument means, in order; None and [] mean all."""
    listed = [argument] if isinstance(argument, int) else list(argument or range(rank))
    return sorted({call.dimension(dim, rank) for dim in listed})


def _dim(call: Call) -> Any:
    return call.argument(1, "dim", call.node.kwargs.get("axis"))


def _sum_over(call: Call, value: Value, dims: list[int]) -> Value:
    """The sum over these dimensions, in any shape of that many elements."""
    rank = len(value.type.dims)
    if rank and dims == list(range(rank)):
        rows = call.reduce("reduce_sum", value)
        return rows if rank == 1 else call.sum_rows(rows)
    if rank and dims == [rank - 1]:
        return call.reduce("reduce_sum", value)
    if rank > len(dims) and dims == list(range(len(dims))):
        rest = value.type.dims[len(dims) :]
        return call.sum_rows(call.reshape(value, (*value.type.dims[: len(dims)], element_count(rest))))
    if len(dims) == 1 and rank > 1 and not call.builder.differentiable:
        return _sum_of_parts(call, value, dims[0])
    raise Refused(f"a reduction over {dims}")


def _sum_of_parts(call: Call, value: Value, dim: int) -> Value:
    """Over a few elements of a dimension in the midst: a gradient would be one tensor for each of them."""
    count = value.type.dims[dim]
    if not isinstance(count, int) or count > _MAX_PARTS:
        raise Refused(f"a sum over dimension {dim} of {value.type}")
    rest = (*value.type.dims[:dim], *value.type.dims[dim + 1 :])
    total = None
    for index in range(count):
        part = call.reshape(call.slice_along(value, dim, index, 1), rest)
        total = part if total is None else call.binary("add", total, part)
    assert total is not None
    return total


def _reduction(mean: bool) -> Callable[[Call], Value]:
    def translate(call: Call) -> Value:
        call.only("input", "dim", "axis", "keepdim", "dtype")
        if not call.expected.is_float:
            raise Refused(f"a sum of {call.expected}")
        value = call.input()
        dims = reduced_dims(call, _dim(call), len(value.type.dims))
        count = element_count([value.type.dims[dim] for dim in dims]) if mean else 0
        value = call.cast(call.cast(value, call.element), wide(call.element))
        value = _sum_over(call, value, dims)
        if mean:
            value = call.binary("div", value, call.constant_like(float(count), value))
        return call.reshape(call.cast(value, call.element), call.expected.dims)

    return translate


def _extreme_value(call: Call, op: str, dims: list[int]) -> Value:
    value = call.float_tensor(call.argument(0, "input"))
    if not value.type.dims or dims != [len(value.type.dims) - 1]:
        raise Refused(f"a reduction over {dims}")
    return call.reduce(op, value)


def _extreme(op: str) -> Callable[[Call], Value]:
    """amax and amin."""

    def translate(call: Call) -> Value:
        call.only("input", "dim", "axis", "keepdim")
        rank = len(call.input().type.dims)
        value = _extreme_value(call, op, reduced_dims(call, _dim(call), rank))
        return call.reshape(value, call.expected.dims)

    return translate


def _extreme_along(op: str) -> Callable[[Call, Named], list[Value | None]]:
    """The values of `max(x, dim)` and `min(x, dim)`; their places have no words."""

    def translate(call: Call, named: Named) -> list[Value | None]:
        call.only("input", "dim", "axis", "keepdim")
        rank = len(call.input().type.dims)
        named(0)
        value = _extreme_value(call, op, [call.dimension(_dim(call), rank)])
        if call.parts[0] is None:
            raise Refused("values that are no tensor")
        return [call.reshape(value, call.parts[0].dims), None]

    return translate


# --- Softmax ---------------------------------------------------------------------------------------------------------


def last_dim(call: Call, dim: Any, value: Value) -> None:
    """Refuses any dimension but the last."""
    rank = len(value.type.dims)
    if call.dimension(dim, rank) != rank - 1:
        raise Refused(f"dimension {dim} of rank {rank}, expected the last")


def log_softmax_of(call: Call, value: Value) -> Value:
    """Over the last dimension, computed in f32, rounded once to the value's type."""
    element = str(value.type.element)
    shifted, total = _exponentials(call, value)[1:]
    logarithm = call.broadcast(call.unary("log", total), shifted.type)
    return call.cast(call.binary("sub", shifted, logarithm), element)


def _exponentials(call: Call, value: Value) -> tuple[Value, Value, Value]:
    """e^(x - max), x - max, and the sum of the exponentials, all in f32."""
    value = call.cast(value, wide(str(value.type.element)))
    largest = call.broadcast(call.reduce("reduce_max", value), value.type)
    shifted = call.binary("sub", value, largest)
    exponentials = call.unary("exp", shifted)
    return exponentials, shifted, call.reduce("reduce_sum", exponentials)


def _softmax(logarithm: bool) -> Callable[[Call], Value]:
    def translate(call: Call) -> Value:
        call.only("input", "dim", "dtype", "_stacklevel")
        value = call.float_tensor(call.argument(0, "input"))
        last_dim(call, call.argument(1, "dim"), value)
        value = call.cast(value, call.element)  # dtype=, or autocast's f32
        if logarithm:
            return log_softmax_of(call, value)
        exponentials, _, total = _exponentials(call, value)
        quotient = call.binary("div", exponentials, call.broadcast(total, exponentials.type))
        return call.cast(quotient, call.element)

    return translate


def _safe_softmax(call: Call) -> Value:
    """Of attention that is spelled out: a row of which nothing is shown, -inf everywhere, has only zeros."""
    shares = _softmax(logarithm=False)(call)
    value = call.float_tensor(call.argument(0, "input"))
    largest = call.reduce("reduce_max", value)
    is_hidden = call.compare("eq", largest, call.constant_like(-math.inf, largest))
    return call.select(call.broadcast(is_hidden, shares.type.with_element("i1")), call.constant_like(0.0, shares), shares)


def _logsumexp(call: Call) -> Value:
    call.only("input", "dim", "keepdim")
    value = call.widened(call.float_tensor(call.argument(0, "input")), call.element)
    rank = len(value.type.dims)
    if reduced_dims(call, _dim(call), rank) != [rank - 1] or rank == 0:
        raise Refused(f"a reduction over {_dim(call)}")
    largest = call.reduce("reduce_max", value)
    zero = call.constant_like(0.0, largest)
    infinite = call.compare("eq", call.unary("abs", largest), call.constant_like(math.inf, largest))
    largest = call.select(infinite, zero, largest)
    exponentials = call.unary("exp", call.binary("sub", value, call.broadcast(largest, value.type)))
    total = call.reduce("reduce_sum", call.cast(exponentials, wide(call.element)))
    logarithm = call.unary("log", call.cast(total, call.element))
    return call.reshape(call.binary("add", logarithm, largest), call.expected.dims)


# --- Lengths ---------------------------------------------------------------------------------------------------------


def _length(call: Call, value: Value) -> Value:
    """The Euclidean length of each row, [..., 1], in the value's type. A row of zeros has the gradient 0, as torch's:
    the root is taken of 1 there, and not chosen."""
    element = str(value.type.element)
    wider = call.cast(value, wide(element))
    total = call.reduce("reduce_sum", call.binary("mul", wider, wider))
    zero = call.constant_like(0.0, total)
    is_zero = call.compare("eq", total, zero)
    root = call.unary("sqrt", call.select(is_zero, call.constant_like(1.0, total), total))
    return call.cast(call.select(is_zero, zero, root), element)


def _rows_to_measure(call: Call, argument: Any, dim: Any) -> Value:
    """An operand whose length over its last dimension is wanted."""
    value = call.widened(call.float_tensor(argument), call.element)
    rank = len(value.type.dims)
    if rank == 0 or dim is None or reduced_dims(call, dim, rank) != [rank - 1]:
        raise Refused(f"a reduction over {dim}")
    return value


def _norm(order: int, dim: int) -> Callable[[Call], Value]:
    """Of the functions that have `ord` or `p` and `dim` at these positions, those of vectors of order 2."""

    def translate(call: Call) -> Value:
        call.only("input", "A", "x", "p", "ord", "dim", "axis", "keepdim", "dtype")
        kind = call.argument(order, "p", call.node.kwargs.get("ord"))
        dims = call.argument(dim, "dim", call.node.kwargs.get("axis"))
        if kind not in (None, 2, "fro"):
            raise Refused(f"a norm of order {kind}")
        source = call.argument(0, "input", call.node.kwargs.get("A", call.node.kwargs.get("x")))
        return call.reshape(_length(call, _rows_to_measure(call, source, dims)), call.expected.dims)

    return translate


def _unit(call: Call, value: Value, eps: float) -> Value:
    """value / max(length, eps), rounded at each step."""
    length = _length(call, value)
    length = call.binary("max", length, call.constant_like(eps, length))
    return call.binary("div", value, call.broadcast(length, value.type))


def _normalize(call: Call) -> Value:
    """F.normalize(input, p, dim, eps)"""
    call.only("input", "p", "dim", "eps")
    if call.argument(1, "p", 2.0) != 2:
        raise Refused(f"a norm of order {call.argument(1, 'p')}")
    value = _rows_to_measure(call, call.argument(0, "input"), call.argument(2, "dim", 1))
    return _unit(call, value, call.number(call.argument(3, "eps", 1e-12)))


def _cosine_similarity(call: Call) -> Value:
    """cosine_similarity(x1, x2, dim, eps): the sum of the products of unit vectors. Between 0 and eps, where torch has
    a length's own gradient though it took eps for it, the gradient is that of the value."""
    call.only("x1", "x2", "dim", "eps")
    operands = [call.widened(call.float_tensor(call.argument(i, f"x{i + 1}")), call.element) for i in (0, 1)]
    if operands[0].type != operands[1].type:
        raise Refused(f"operands of {operands[0].type} and {operands[1].type}")
    rank = len(operands[0].type.dims)
    dim = call.argument(2, "dim", 1)
    if rank == 0 or reduced_dims(call, dim, rank) != [rank - 1]:
        raise Refused(f"a reduction over {dim}")
    eps = call.number(call.argument(3, "eps", 1e-8))
    product = call.binary("mul", *(_unit(call, operand, eps) for operand in operands))
    total = call.reduce("reduce_sum", call.cast(product, wide(call.element)))
    return call.reshape(call.cast(total, call.element), call.expected.dims)


# --- Norms -----------------------------------------------------------------------------------------------------------


def _mean(call: Call, value: Value) -> Value:
    total = call.reduce("reduce_sum", value)
    return call.binary("div", total, call.constant_like(float(element_count(value.type.dims[-1:])), total))


def _reciprocal_deviation(call: Call, value: Value, eps: float) -> Value:
    """1 / sqrt(mean(value^2) + eps) of each row"""
    variance = _mean(call, call.binary("mul", value, value))
    return call.unary("rsqrt", call.binary("add", variance, call.constant_like(eps, variance)))


def _normalised(call: Call, value: Value, eps: float) -> Value:
    """value / sqrt(mean(value^2) + eps)"""
    return call.binary("mul", value, call.broadcast(_reciprocal_deviation(call, value, eps), value.type))


def _norm_input(call: Call, expected: TensorType) -> Value:
    """The operand in the type that the norm computes in. Raises Refused for more than the last dimension."""
    value = call.float_tensor(call.argument(0, "input"))
    shape = call.argument(1, "normalized_shape")
    if not isinstance(shape, (tuple, list)) or len(shape) != 1 or not value.type.dims:
        raise Refused(f"a norm over {shape}")
    return call.cast(call.widened(value, str(expected.element)), wide(str(expected.element)))


def _parameter(call: Call, argument: Any, value: Value) -> Value:
    """A weight or bias beside the normalised value."""
    return call.broadcast(call.widened(call.float_tensor(argument), str(value.type.element)), value.type)


def _rms_norm_of(call: Call, expected: TensorType) -> Value:
    call.only("input", "normalized_shape", "weight", "eps")
    value = _norm_input(call, expected)
    eps, weight = call.argument(3, "eps"), call.argument(2, "weight")
    eps = torch.finfo(DTYPES[str(value.type.element)]).eps if eps is None else call.number(eps)
    result = _normalised(call, value, eps)
    if weight is not None:
        result = call.binary("mul", result, _parameter(call, weight, result))
    return call.cast(result, str(expected.element))


def _layer_norm_of(call: Call, expected: TensorType, named: Named = lambda _: None) -> tuple[Value, Value, Value]:
    """The norm, and of each row the mean and the reciprocal deviation, in the type that it is computed in."""
    call.only("input", "normalized_shape", "weight", "bias", "eps")
    named(1)
    value = _norm_input(call, expected)
    weight, bias = call.argument(2, "weight"), call.argument(3, "bias")
    mean = _mean(call, value)
    named(2)
    centred = call.binary("sub", value, call.broadcast(mean, value.type))
    root = _reciprocal_deviation(call, centred, call.number(call.argument(4, "eps", 1e-5)))
    named(0)
    result = call.binary("mul", centred, call.broadcast(root, value.type))
    if weight is not None:
        result = call.binary("mul", result, _parameter(call, weight, result))
    if bias is not None:
        result = call.binary("add", result, _parameter(call, bias, result))
    return call.cast(result, str(expected.element)), mean, root


def _layer_norm_with_statistics(call: Call, named: Named) -> list[Value | None]:
    expected, *statistics = call.parts
    if expected is None:
        raise Refused("a norm that is no tensor")
    result: list[Value | None] = []
    values = _layer_norm_of(call, expected, named)
    for index, (value, part) in enumerate(zip(values[1:], statistics), 1):
        named(index)
        result.append(None if part is None else call.shaped(call.cast(value, str(part.element)), value, part.dims))
    return [values[0], *result]


def _first_of(translate: Callable[[Call, TensorType], Value]) -> Callable[[Call, Named], list[Value | None]]:
    """An ATen norm that also returns its statistics, where only the norm is read."""

    def first(call: Call, named: Named) -> list[Value | None]:
        named(0)
        if call.parts[0] is None:
            raise Refused("a norm that is no tensor")
        return [translate(call, call.parts[0]), *[None] * (len(call.parts) - 1)]

    return first


def _variance(root: bool) -> Callable[[Call], Value]:
    def translate(call: Call) -> Value:
        call.only("input", "dim", "unbiased", "keepdim", "correction")
        value = call.float_tensor(call.argument(0, "input"))
        dim, positional = _dim(call), call.argument(2, "unbiased", True)
        rank = len(value.type.dims)
        if dim is None or isinstance(dim, bool) or not isinstance(positional, bool):
            raise Refused("a variance over no dimension")
        correction = call.node.kwargs.get("correction", None)
        correction = call.number(int(positional) if correction is None else correction)
        if rank == 0 or reduced_dims(call, dim, rank) != [rank - 1]:
            raise Refused(f"a reduction over {dim}")
        count = element_count(value.type.dims[-1:]) - correction
        if count <= 0:
            raise Refused(f"a variance of {value.type.dims[-1]} elements")
        value = call.cast(call.widened(value, call.element), wide(call.element))
        centred = call.binary("sub", value, call.broadcast(_mean(call, value), value.type))
        total = call.reduce("reduce_sum", call.binary("mul", centred, centred))
        result = call.binary("div", total, call.constant_like(count, total))
        result = call.unary("sqrt", result) if root else result
        return call.reshape(call.cast(result, call.element), call.expected.dims)

    return translate


TRANSLATIONS: dict[str, Callable[[Call], Value]] = {
    "mean": _reduction(mean=True),
    "sum": _reduction(mean=False),
    "amax": _extreme("reduce_max"),
    "amin": _extreme("reduce_min"),
    "softmax": _softmax(logarithm=False),
    "safe_softmax": _safe_softmax,
    "log_softmax": _softmax(logarithm=True),
    "logsumexp": _logsumexp,
    "norm": _norm(1, 2),
    "vector_norm": _norm(1, 2),
    "normalize": _normalize,
    "cosine_similarity": _cosine_similarity,
    "rms_norm": lambda call: _rms_norm_of(call, call.expected),
    "layer_norm": lambda call: _layer_norm_of(call, call.expected)[0],
    "var": _variance(root=False),
    "std": _variance(root=True),
}

SEVERAL: dict[str, Callable[[Call, Named], list[Value | None]]] = {
    "max_along": _extreme_along("reduce_max"),
    "min_along": _extreme_along("reduce_min"),
    "rms_norm_first": _first_of(_rms_norm_of),
    "layer_norm_with_statistics": _layer_norm_with_statistics,
}
