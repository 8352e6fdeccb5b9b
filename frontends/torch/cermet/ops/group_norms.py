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

from ..text import Value
from .texts import Text

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


class _Text(Text):
    """Of one norm."""

    def __init__(self, name: str, form: Form) -> None:
        super().__init__(name)
        self.form = form

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

    def over_group(self, value: Value) -> Value:
        """Divided by the number of elements of a group."""
        return self.divided(value, float(self.form.group))


@functools.cache
def statistics(form: Form, eps: float) -> int:
    """x -> mean, reciprocal deviation."""
    text = _Text("group_statistics", form)
    x = text.reshape(text.operand("x", (_ROWS, *form.dims), form.element), (*form.of_groups, form.group))
    mean = text.over_group(text.total(x))
    centred = text.binary("sub", x, text.broadcast(mean, x.type.dims))
    variance = text.over_group(text.total(text.binary("mul", centred, centred)))
    scale = text.reciprocal_deviation(variance, eps)
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
        text.result(text.sum_rows(value), form.of_channels[1:], element)
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
