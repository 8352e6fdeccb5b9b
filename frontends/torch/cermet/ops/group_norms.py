"""Group norms and their gradients as graph texts, each of rows that one kernel walks.

Of x [N, C, ...] a group is a row of C / groups channels. Its statistics are sums over that row; a channel's weight is
one number for a piece of it. So what reads weights has channels as rows, and the statistics are numbers of those rows:
one kernel makes them, another reads x once more. Without weights a group is one channel. All is computed in f32 and
rounded once.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

from ..text import Builder, TensorType, Value
from . import regions

_ROWS = "r0"  # how many x has: another number of them is the same text


@dataclasses.dataclass(frozen=True)
class Form:
    """What texts of one norm are made for."""

    dims: tuple[int, ...]  # of x, behind its first
    element: str
    groups: int
    channels: int  # of a group, each of them with a weight or a bias; else 1

    @property
    def group(self) -> int:
        """Elements of a group."""
        return math.prod(self.dims) // self.groups

    @property
    def of_groups(self) -> tuple[int | str, ...]:
        """The shape of a number for each group."""
        return (_ROWS, self.groups)

    @property
    def of_channels(self) -> tuple[int | str, ...]:
        """The shape of a number for each channel."""
        return (_ROWS, self.groups * self.channels)

    @property
    def apart(self) -> tuple[int | str, ...]:
        """The shape in which a channel is a row."""
        return (_ROWS, self.groups, self.channels, self.group // self.channels)


class _Text:
    """A text being written, whose operands are f32 once they are read."""

    def __init__(self, name: str, form: Form) -> None:
        self.form = form
        self.builder = Builder(name)

    def operand(self, name: str, dims: Sequence[int | str], element: str = "f32") -> Value:
        value = self.builder.argument(TensorType(tuple(dims), element), name)
        return self.cast(value, "f32")

    def tensor(self, name: str) -> Value:
        """One of the shape of x, its channels apart."""
        return self.reshape(self.operand(name, (_ROWS, *self.form.dims), self.form.element), self.form.apart)

    def of_groups(self, name: str, element: str = "f32") -> Value:
        """A number for each group, repeated along it."""
        return self.along(self.reshape(self.operand(name, self.form.of_groups, element), (*self.form.of_groups, 1, 1)))

    def parameter(self, name: str, element: str) -> Value:
        """A number for each channel, the same for all rows of x."""
        value = self.operand(name, (self.form.groups * self.form.channels,), element)
        return self.along(self.reshape(value, (self.form.groups, self.form.channels, 1)))

    def along(self, value: Value) -> Value:
        return self.broadcast(value, self.form.apart)

    def cast(self, value: Value, element: str) -> Value:
        if value.type.element == element:
            return value
        return self.builder.convert("cast", value, value.type.with_element(element), "cast")

    def reshape(self, value: Value, dims: Sequence[int | str]) -> Value:
        if value.type.dims == tuple(dims):
            return value
        return self.builder.convert("reshape", value, TensorType(tuple(dims), value.type.element), "reshape")

    def broadcast(self, value: Value, dims: Sequence[int | str]) -> Value:
        if value.type.dims == tuple(dims):
            return value
        return self.builder.convert("broadcast", value, TensorType(tuple(dims), "f32"), "broadcast")

    def binary(self, op: str, lhs: Value, rhs: Value) -> Value:
        return self.builder.binary(op, lhs, rhs, op)

    def total(self, value: Value) -> Value:
        """The sum over the last dimension, which stays as 1."""
        type = TensorType((*value.type.dims[:-1], 1), "f32")
        return self.builder.convert("reduce_sum", value, type, "sum")

    def over_group(self, value: Value) -> Value:
        """Divided by the number of elements of a group."""
        return self.binary("div", value, self.number(float(self.form.group), value))

    def number(self, number: float, like: Value) -> Value:
        return self.builder.constant(number, like.type, "number")

    def result(self, value: Value, dims: Sequence[int | str], element: str = "f32") -> None:
        self.builder.result(self.reshape(self.cast(value, element), dims))

    def key(self) -> int:
        return regions.register(self.builder.text())


@functools.cache
def statistics(form: Form, eps: float) -> int:
    """x -> mean, reciprocal deviation."""
    text = _Text("group_statistics", form)
    x = text.reshape(text.operand("x", (_ROWS, *form.dims), form.element), (*form.of_groups, form.group))
    mean = text.over_group(text.total(x))
    centred = text.binary("sub", x, text.broadcast(mean, x.type.dims))
    variance = text.over_group(text.total(text.binary("mul", centred, centred)))
    scale = text.builder.unary("rsqrt", text.binary("add", variance, text.number(eps, variance)), "rsqrt")
    text.result(mean, form.of_groups)
    text.result(scale, form.of_groups)
    return text.key()


@functools.cache
def norm(form: Form, weight: str, bias: str) -> int:
    """x, mean, reciprocal deviation, and those of weight and bias that have an element type -> y."""
    text = _Text("group_norm", form)
    x, mean, scale = text.tensor("x"), text.of_groups("mean"), text.of_groups("scale")
    y = text.binary("mul", text.binary("sub", x, mean), scale)
    if weight:
        y = text.binary("mul", y, text.parameter("weight", weight))
    if bias:
        y = text.binary("add", y, text.parameter("bias", bias))
    text.result(y, (_ROWS, *form.dims), form.element)
    return text.key()


@functools.cache
def channel_sums(form: Form, statistics: str, products: bool) -> int:
    """Cotangent (x, mean, reciprocal deviation) -> of each channel the sum of the cotangent (and of its products with
    the normalised x)."""
    text = _Text("group_norm_sums", form)
    cotangent = text.tensor("cotangent")
    text.result(text.total(cotangent), form.of_channels)
    if products:
        x, mean, scale = text.tensor("x"), text.of_groups("mean", statistics), text.of_groups("scale", statistics)
        normed = text.binary("mul", text.binary("sub", x, mean), scale)
        text.result(text.total(text.binary("mul", cotangent, normed)), form.of_channels)
    return text.key()


@functools.cache
def group_sums(form: Form, weight: str) -> int:
    """Both sums of channels (weight) -> the sums of each group's, as its weights have them."""
    text = _Text("group_norm_groups", form)
    rows = (*form.of_groups, form.channels)
    sums = [text.reshape(text.operand(name, form.of_channels), rows) for name in ("sum", "product")]
    if weight:
        factor = text.reshape(text.operand("weight", (form.groups * form.channels,), weight), rows[1:])
        sums = [text.binary("mul", each, text.broadcast(factor, rows)) for each in sums]
    for each in sums:
        text.result(text.total(each), form.of_groups)
    return text.key()


@functools.cache
def parameters(form: Form, elements: tuple[str, ...]) -> int:
    """As many sums of channels -> their sums over rows, of these types."""
    text = _Text("group_norm_parameters", form)
    for index, element in enumerate(elements):
        value = text.operand(f"sum{index}", form.of_channels)
        type = TensorType(form.of_channels[1:], "f32")
        text.result(text.builder.convert("sum_rows", value, type, "rows"), type.dims, element)
    return text.key()


@functools.cache
def gradient(form: Form, statistics: str, weight: str, element: str) -> int:
    """Cotangent, x, mean, reciprocal deviation, both sums of groups (weight) -> the gradient of x, of this type."""
    text = _Text("group_norm_gradient", form)
    cotangent, x = text.tensor("cotangent"), text.tensor("x")
    mean, scale = (text.of_groups(name, statistics) for name in ("mean", "scale"))
    total, product = (text.over_group(text.of_groups(name)) for name in ("sum", "product"))
    normed = text.binary("mul", text.binary("sub", x, mean), scale)
    if weight:
        cotangent = text.binary("mul", cotangent, text.parameter("weight", weight))
    rest = text.binary("sub", text.binary("sub", cotangent, total), text.binary("mul", normed, product))
    text.result(text.binary("mul", scale, rest), (_ROWS, *form.dims), element)
    return text.key()
