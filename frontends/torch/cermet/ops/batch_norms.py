"""Batch norms and their gradients as graph texts, of x [..., C] in rows of channels: sums over rows, and numbers of
columns.

All is computed in f32 and rounded once. How many rows there are is a number of the text, or where a symbol counts them
a sum of ones, which the sums give besides, for each channel.

The variance is a sum of squares about the mean, by a second reading of x: what one reading gives of both sums cancels
where the mean is large. Of a half type one reading is enough, about a number near the mean: the median, by channel, of
PROBES rows of x. What is lost is the square of how far that is from the mean, in deviations, of f32's rounding, and x
is rounded by 2^13 or 2^16 times as much.
"""

from __future__ import annotations

import dataclasses
import functools

from ..text import TensorType, Value
from .texts import Text

PROBES = 3  # rows of x, whose median is near the mean whatever one of them is


@dataclasses.dataclass(frozen=True)
class Form:
    """What texts of one norm are made for."""

    rank: int  # of x
    channels: int
    element: str
    rows: int | None  # how many x has, if that is known

    @property
    def dims(self) -> tuple[int | str, ...]:
        return (*(f"r{axis}" for axis in range(self.rank - 1)), self.channels)

    def sums(self, count: int) -> int:
        """Results of a text that gives so many sums."""
        return count + (not self.rows)


class _Text(Text):
    """Of one norm."""

    def __init__(self, name: str, form: Form) -> None:
        super().__init__(name)
        self.form = form

    def tensor(self, name: str) -> Value:
        return self.operand(name, self.form.dims, self.form.element)

    def column(self, name: str, element: str = "f32") -> Value:
        return self.operand(name, (self.form.channels,), element)

    def along(self, value: Value) -> Value:
        """A number for each channel, repeated along the rows."""
        return self.broadcast(value, self.form.dims)

    def count(self) -> list[Value]:
        """How many rows there are, for each channel, as an operand of a text that needs to be told."""
        return [] if self.form.rows else [self.column("count")]

    def ones(self) -> None:
        """The count as the last result, where others need to be told."""
        if not self.form.rows:
            one = self.builder.constant(1.0, TensorType(self.form.dims, "f32"), "one")
            self.result(self.sum_rows(one), (self.form.channels,))

    def probed(self) -> Value:
        """The median of some rows of x, for each channel."""
        columns = self.form.channels
        rows = self.builder.argument(TensorType((PROBES, columns), self.form.element), "rows")
        type = TensorType((1, columns), self.form.element)
        given = (self.builder.placed("slice", rows, (row, 0), type, "row") for row in range(PROBES))
        low, high, other = (self.cast(self.reshape(row, (columns,)), "f32") for row in given)
        low, high = self.binary("min", low, high), self.binary("max", low, high)
        return self.binary("max", low, self.binary("min", high, other))

    def over_rows(self, value: Value, count: list[Value]) -> Value:
        """Divided by how many rows there are."""
        if self.form.rows:
            return self.divided(value, float(self.form.rows))
        return self.binary("div", value, self.broadcast(count[0], value.type.dims))

    def unbiased(self, squares: Value, count: list[Value]) -> Value:
        """Divided by one less than the rows; of one row as they are."""
        if self.form.rows:
            return self.divided(squares, float(max(self.form.rows - 1, 1)))
        one = self.number(1.0, squares)
        return self.binary("div", squares, self.binary("max", self.binary("sub", count[0], one), one))

    def normalized(self, x: Value, mean: Value, scale: Value) -> Value:
        return self.binary("mul", self.binary("sub", x, self.along(mean)), self.along(scale))


@functools.cache
def sums(form: Form) -> int:
    """x -> the sum of each channel (the count)."""
    text = _Text("batch_sums", form)
    text.result(text.sum_rows(text.tensor("x")), (form.channels,))
    text.ones()
    return text.key()


@functools.cache
def squares(form: Form) -> int:
    """x, the sums (the count) -> the sum of squares of each channel about its mean."""
    text = _Text("batch_squares", form)
    x, total, count = text.tensor("x"), text.column("sum"), text.count()
    centred = text.binary("sub", x, text.over_rows(text.along(total), count))
    text.result(text.sum_rows(text.binary("mul", centred, centred)), (form.channels,))
    return text.key()


@functools.cache
def sums_about(form: Form) -> int:
    """x, some rows of x -> of each channel the sum of what x is beyond their median, and that of its squares."""
    text = _Text("batch_sums", form)
    x, probed = text.tensor("x"), text.probed()
    beyond = text.binary("sub", x, text.along(probed))
    text.result(text.sum_rows(beyond), (form.channels,))
    text.result(text.sum_rows(text.binary("mul", beyond, beyond)), (form.channels,))
    return text.key()


@functools.cache
def statistics(form: Form, eps: float, momentum: float, running: tuple[str, ...], probed: bool) -> int:
    """The sums and the sums of squares (the count; `probed`: some rows of x, about whose median they are) (the running
    mean and variance, of these types) -> mean, reciprocal deviation (both running ones after this batch)."""
    text = _Text("batch_statistics", form)
    total, squares, count = text.column("sum"), text.column("squares"), text.count()
    mean = text.over_rows(total, count)
    if probed:
        lost = text.binary("mul", mean, total)
        squares = text.binary("max", text.binary("sub", squares, lost), text.number(0.0, squares))
        mean = text.binary("add", text.probed(), mean)
    variance = text.over_rows(squares, count)
    text.result(mean, (form.channels,))
    text.result(text.reciprocal_deviation(variance, eps), (form.channels,))
    unbiased = text.unbiased(squares, count)
    for index, (new, element) in enumerate(zip((mean, unbiased), running)):
        old = text.column(f"running{index}", element)
        after = text.binary("add", text.scaled(new, momentum), text.scaled(old, 1.0 - momentum))
        text.result(after, (form.channels,), element)
    return text.key()


@functools.cache
def deviation(form: Form, eps: float, element: str) -> int:
    """A variance -> the reciprocal deviation."""
    text = _Text("batch_deviation", form)
    text.result(text.reciprocal_deviation(text.column("variance", element), eps), (form.channels,))
    return text.key()


@functools.cache
def norm(form: Form, mean: str, weight: str, bias: str) -> int:
    """x, mean of this type, reciprocal deviation, and those of weight and bias that have an element type -> y."""
    text = _Text("batch_norm", form)
    x, centre, scale = text.tensor("x"), text.column("mean", mean), text.column("scale")
    y = text.normalized(x, centre, scale)
    if weight:
        y = text.binary("mul", y, text.along(text.column("weight", weight)))
    if bias:
        y = text.binary("add", y, text.along(text.column("bias", bias)))
    text.result(y, form.dims, form.element)
    return text.key()


@functools.cache
def gradient_sums(form: Form, mean: str) -> int:
    """Cotangent, x, mean, reciprocal deviation -> of each channel the sum of the cotangent, and that of its products
    with the normalized x (the count)."""
    text = _Text("batch_norm_sums", form)
    cotangent, x = text.tensor("cotangent"), text.tensor("x")
    centre, scale = text.column("mean", mean), text.column("scale")
    text.result(text.sum_rows(cotangent), (form.channels,))
    text.result(text.sum_rows(text.binary("mul", cotangent, text.normalized(x, centre, scale))), (form.channels,))
    text.ones()
    return text.key()


@functools.cache
def gradient(form: Form, weight: str) -> int:
    """Cotangent, x, mean, reciprocal deviation, both sums (the count) (weight) -> the gradient of x where the
    statistics are x's."""
    text = _Text("batch_norm_gradient", form)
    cotangent, x, mean, scale = text.tensor("cotangent"), text.tensor("x"), text.column("mean"), text.column("scale")
    columns = [text.along(text.column(name)) for name in ("sum", "product")]
    count = text.count()
    total, product = (text.over_rows(column, count) for column in columns)
    rest = text.binary("sub", cotangent, total)
    rest = text.binary("sub", rest, text.binary("mul", text.normalized(x, mean, scale), product))
    factor = text.along(scale)
    if weight:
        factor = text.binary("mul", factor, text.along(text.column("weight", weight)))
    text.result(text.binary("mul", rest, factor), form.dims, form.element)
    return text.key()


@functools.cache
def scaled_gradient(form: Form, weight: str) -> int:
    """Cotangent, reciprocal deviation (weight) -> the gradient of x where the statistics are others'."""
    text = _Text("batch_norm_scaled_gradient", form)
    cotangent, factor = text.tensor("cotangent"), text.along(text.column("scale"))
    if weight:
        factor = text.binary("mul", factor, text.along(text.column("weight", weight)))
    text.result(text.binary("mul", cotangent, factor), form.dims, form.element)
    return text.key()
