"""Graph texts as norms write them: all is computed in f32 and rounded once."""

from __future__ import annotations

from collections.abc import Sequence

from ..text import Builder, TensorType, Value
from . import regions

Dims = Sequence[int | str]


class Text:
    """A text being written, whose operands are f32 once they are read."""

    def __init__(self, name: str) -> None:
        self.builder = Builder(name)

    def operand(self, name: str, dims: Dims, element: str = "f32") -> Value:
        value = self.builder.argument(TensorType(tuple(dims), element), name)
        return self.cast(value, "f32")

    def cast(self, value: Value, element: str) -> Value:
        if value.type.element == element:
            return value
        return self.builder.convert("cast", value, value.type.with_element(element), "cast")

    def reshape(self, value: Value, dims: Dims) -> Value:
        if value.type.dims == tuple(dims):
            return value
        return self.builder.convert("reshape", value, TensorType(tuple(dims), value.type.element), "reshape")

    def broadcast(self, value: Value, dims: Dims) -> Value:
        if value.type.dims == tuple(dims):
            return value
        return self.builder.convert("broadcast", value, TensorType(tuple(dims), "f32"), "broadcast")

    def binary(self, op: str, lhs: Value, rhs: Value) -> Value:
        return self.builder.binary(op, lhs, rhs, op)

    def total(self, value: Value) -> Value:
        """The sum over the last dimension, which stays as 1."""
        type = TensorType((*value.type.dims[:-1], 1), "f32")
        return self.builder.convert("reduce_sum", value, type, "sum")

    def sum_rows(self, value: Value) -> Value:
        """The sum over all dimensions but the last."""
        return self.builder.convert("sum_rows", value, TensorType(value.type.dims[-1:], "f32"), "rows")

    def number(self, number: float, like: Value) -> Value:
        return self.builder.constant(number, like.type, "number")

    def scaled(self, value: Value, factor: float) -> Value:
        return self.binary("mul", value, self.number(factor, value))

    def divided(self, value: Value, number: float) -> Value:
        return self.binary("div", value, self.number(number, value))

    def reciprocal_deviation(self, variance: Value, eps: float) -> Value:
        return self.builder.unary("rsqrt", self.binary("add", variance, self.number(eps, variance)), "rsqrt")

    def result(self, value: Value, dims: Dims, element: str = "f32") -> None:
        self.builder.result(self.reshape(self.cast(value, element), dims))

    def key(self) -> int:
        return regions.register(self.builder.text())
