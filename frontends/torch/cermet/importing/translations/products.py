"""Products of matrices: each an operation of its own, which somebody else runs.

But for those of one row, where autograd is done: there each number that the matrix holds is multiplied once, so that
the product takes as long as the matrix takes to be read, and is a sum over each row of it like others (a decoding step
has no other products). Those of narrow types: they are summed in f32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...graph.nodes import example
from ...text import Value
from .call import LOW_PRECISION, Call, Refused

_DEVICES = {"cuda"}  # elsewhere a library's threads share a row's columns, too
_MAX_COLUMNS = 1 << 16  # of a row, which one group of threads sums


def _matmul(transpose_rhs: bool) -> Callable[[Call], Value]:
    def translate(call: Call) -> Value:
        call.only("input", "weight", "other", "mat2", "bias")
        if transpose_rhs and call.argument(2, "bias") is not None:
            raise Refused("a bias")
        rhs_name = "weight" if transpose_rhs else ("mat2" if "mat2" in call.node.kwargs else "other")
        left, right = call.argument(0, "input"), call.argument(1, rhs_name)
        lhs, rhs = call.float_tensor(left), call.float_tensor(right)
        if len(lhs.type.dims) < 2 or len(rhs.type.dims) != 2:
            raise Refused("operands that are not a matrix on the right of matrices")
        inner, columns = rhs.type.dims if not transpose_rhs else reversed(rhs.type.dims)
        if lhs.type.dims[-1] != inner or call.expected.dims != (*lhs.type.dims[:-1], columns):
            raise Refused("shapes that do not fit")
        lhs, rhs = call.cast(lhs, call.element), call.cast(rhs, call.element)
        if _is_one_row(call, lhs, right, transpose_rhs):
            return _of_a_row(call, lhs, rhs, transpose_rhs)
        return call.builder.matmul(lhs, rhs, call.expected, transpose_rhs, call.name)

    return translate


def _addmm(call: Call) -> Value:
    """aten.addmm(bias, row, matrix)"""
    call.only("mat1", "mat2")
    bias, right = call.float_tensor(call.argument(0, "self")), call.argument(2, "mat2")
    lhs, rhs = call.float_tensor(call.argument(1, "mat1")), call.float_tensor(right)
    if len(bias.type.dims) != 1 or bias.type.dims != call.expected.dims[1:]:
        raise Refused(f"a sum with {bias.type}")
    if {each.type.element for each in (bias, lhs, rhs)} != {call.element} or not _is_one_row(call, lhs, right, False):
        raise Refused("a product of several rows, and a sum")
    return _of_a_row(call, lhs, rhs, False, bias)


def _is_one_row(call: Call, lhs: Value, right: Any, transpose_rhs: bool) -> bool:
    """Whether a product behind autograd has one row, and lies where what it sums lies side by side."""
    if call.builder.differentiable or call.element not in LOW_PRECISION:
        return False
    if any(size != 1 for size in lhs.type.dims[:-1]):
        return False
    matrix = example(right)
    order = slice(None) if transpose_rhs else slice(None, None, -1)
    (columns, inner), strides = matrix.shape[order], matrix.stride()[order]
    return (
        matrix.device.type in _DEVICES
        and all(isinstance(size, int) for size in (columns, inner, *strides))
        and 1 < inner <= _MAX_COLUMNS
        and columns > 1
        and strides == (inner, 1)
    )


def _of_a_row(call: Call, row: Value, matrix: Value, transpose_rhs: bool, bias: Value | None = None) -> Value:
    """Of [1, K] and [K, N], or [N, K] where that is `transpose_rhs`."""
    if not transpose_rhs:
        matrix = call.transpose(matrix, (1, 0))
    rows, columns = matrix.type.dims
    row = call.cast(call.reshape(row, (columns,)), "f32")
    matrix = call.cast(matrix, "f32")
    total = call.reduce("reduce_sum", call.binary("mul", matrix, call.broadcast(row, matrix.type)))
    if bias is not None:
        total = call.binary("add", total, call.reshape(call.cast(bias, "f32"), (rows, 1)))
    # Last a cast: of reshapes in a row one is left, which has no node's name but its own.
    return call.cast(call.reshape(total, call.expected.dims), call.element)


TRANSLATIONS: dict[str, Callable[[Call], Value]] = {
    "addmm": _addmm,
    "linear": _matmul(transpose_rhs=True),
    "matmul": _matmul(transpose_rhs=False),
}
