"""Cross-entropy and its halves, for class indices (the score of a row's label is picked, and is NaN where there is no
such class; so is the row's gradient then; on the CPU a launch raises what eager raises), for probabilities and for
each element alone; divergence, squared and absolute error and what lies between those.

Every step rounds where torch's does: log_softmax once, the negated score is exact, a sum once, and a mean divides the
sum in f32 by how many labels count.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx as fx

from ...graph.nodes import target_name
from ...text import TensorType, Value
from .call import Call, Refused, element_count, wide
from .elementwise import log_sigmoid_of
from .reduction import log_softmax_of
from .shape import Named

_REDUCTIONS = ("none", "mean", "sum")  # in the order of ATen's numbers


class _Loss:
    """What a loss is computed from: the scores [N, V], and for each row the label and whether it counts, [N, 1]."""

    def __init__(self, call: Call, scores: Value, target: Any, ignore_index: Any, reduction: Any) -> None:
        labels = call.tensor(target)
        if len(scores.type.dims) != 2 or labels.type.dims != scores.type.dims[:1]:
            raise Refused(f"scores of {scores.type} and labels of {labels.type}, expected [N, V] and [N]")
        if labels.type.is_float or labels.type.element == "i1":
            raise Refused(f"labels of {labels.type}")
        self.reduction = _reduction_of(reduction)
        self.call = call
        self.scores = scores
        self.element = str(scores.type.element)
        self.labels = call.reshape(call.cast(labels, "i64"), (labels.type.dims[0], 1))
        self.counts = call.compare("ne", self.labels, call.constant_like(call.number(ignore_index), self.labels))
        # Of a row that does not count no label is looked for: the first class is always there.
        self.classes = call.select(self.counts, self.labels, call.constant_like(0.0, self.labels))

    def _of_rows(self, values: Value) -> Value:
        """`values` [N, 1] where the row counts, else 0."""
        return self.call.select(self.counts, values, self.call.constant_like(0.0, values))

    def nll(self) -> Value:
        """-scores[i, labels[i]], [N, 1]"""
        return self._of_rows(self.call.unary("neg", self.call.pick(self.scores, self.classes)))

    def smooth(self) -> Value:
        """-sum(scores[i]), [N, 1]"""
        return self._of_rows(self.call.unary("neg", self._row_sum(self.scores)))

    def _row_sum(self, values: Value) -> Value:
        call = self.call
        return call.cast(call.reduce("reduce_sum", call.cast(values, wide(self.element))), self.element)

    def _total(self, values: Value) -> Value:
        return self.call.sum_rows(self.call.cast(values, wide(self.element)))

    def reduced(self, values: Value, rounded_sum: bool = False) -> Value:
        """[N, 1] to [N, 1] or [1]. A mean of `rounded_sum` is a quotient of torch's own, else one kernel's."""
        call = self.call
        if self.reduction == "none":
            return values
        total = self._total(values)
        if self.reduction == "mean":
            count = self._total(call.cast(self.counts, wide(self.element)))
            if rounded_sum:
                total = call.cast(call.cast(total, self.element), wide(self.element))
            total = call.binary("div", total, count)
        return call.cast(total, self.element)

    def scaled(self, values: Value, factor: float) -> Value:
        call = self.call
        values = call.cast(values, wide(self.element))
        return call.cast(call.binary("mul", values, call.constant_like(factor, values)), self.element)


def _reduction_argument(call: Call, named_at: int, names: dict[str, int]) -> Any:
    """`reduction`; the two arguments that it replaced must not be given."""
    for name, position in names.items():
        if call.argument(position, name) is not None:
            raise Refused(f"argument {name}")
    return call.argument(named_at, "reduction", "mean")


def _reduction_of(reduction: Any) -> str:
    reduction = _REDUCTIONS[reduction] if reduction in (0, 1, 2) else reduction
    if reduction not in _REDUCTIONS:
        raise Refused(f"reduction {reduction!r}")
    return str(reduction)


def _everything(call: Call, values: Value, count: int = 1) -> Value:
    """The sum of all elements, divided by `count` where that is not 1, as one kernel of torch's has it: [1]."""
    total = call.cast(values, wide(str(values.type.element)))
    if len(total.type.dims) > 0:
        total = call.reduce("reduce_sum", total)
    if len(total.type.dims) > 1:
        total = call.sum_rows(total)
    if count != 1:
        total = call.binary("div", total, call.constant_like(float(count), total))
    return call.cast(total, str(values.type.element))


def _of_probabilities(call: Call, logits: Value, target: Value, reduction: Any, smoothing: float) -> Value:
    """Labels that are probabilities: -sum(log_softmax(logits) target), a mean over rows."""
    if target.type != logits.type:
        raise Refused(f"logits of {logits.type} and probabilities of {target.type}")
    reduction = _reduction_of(reduction)
    if smoothing:
        raise Refused("smoothed probabilities")
    products = call.binary("mul", log_softmax_of(call, logits), target)
    if reduction == "none":
        rows = call.reduce("reduce_sum", call.cast(products, wide(call.element)))
        return call.reshape(call.unary("neg", call.cast(rows, call.element)), call.expected.dims)
    total = call.unary("neg", _everything(call, products))
    if reduction == "mean":
        wider = call.cast(total, wide(call.element))
        rows = element_count(logits.type.dims[:1])
        total = call.cast(call.binary("div", wider, call.constant_like(float(rows), wider)), call.element)
    return call.reshape(total, call.expected.dims)


def _cross_entropy_of(call: Call, reduction: Any, ignore_index: Any, smoothing: Any) -> Value:
    if call.argument(2, "weight") is not None:
        raise Refused("argument weight")
    logits = call.widened(call.float_tensor(call.argument(0, "input")), call.element)
    if len(logits.type.dims) != 2:
        raise Refused(f"logits of {logits.type}, expected [N, V]")
    target = call.tensor(call.argument(1, "target"))
    if target.type.is_float and len(target.type.dims) == 2:
        return _of_probabilities(call, logits, target, reduction, call.number(smoothing))
    loss = _Loss(call, log_softmax_of(call, logits), call.argument(1, "target"), ignore_index, reduction)
    value = loss.reduced(loss.nll())
    epsilon = call.number(smoothing)
    if epsilon:
        classes = element_count(logits.type.dims[1:])
        value = loss.scaled(value, 1 - epsilon)
        smooth = loss.scaled(loss.reduced(loss.smooth(), rounded_sum=True), epsilon / classes)
        value = call.binary("add", value, smooth)
    return call.reshape(value, call.expected.dims)


def _cross_entropy(call: Call) -> Value:
    """F.cross_entropy(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing)"""
    call.only("input", "target", "ignore_index", "reduction", "label_smoothing")
    reduction = _reduction_argument(call, 6, {"size_average": 3, "reduce": 5})
    return _cross_entropy_of(
        call, reduction, call.argument(4, "ignore_index", -100), call.argument(7, "label_smoothing", 0.0)
    )


def _cross_entropy_loss(call: Call) -> Value:
    """aten.cross_entropy_loss(self, target, weight, reduction, ignore_index, label_smoothing)"""
    call.only("reduction", "ignore_index", "label_smoothing")
    reduction, ignored = call.argument(3, "reduction", 1), call.argument(4, "ignore_index", -100)
    return _cross_entropy_of(call, reduction, ignored, call.argument(5, "label_smoothing", 0.0))


def _nll_of(call: Call, expected: TensorType, reduction: Any, ignore_index: Any) -> Value:
    if call.argument(2, "weight") is not None:
        raise Refused("argument weight")
    scores = call.widened(call.float_tensor(call.argument(0, "input")), str(expected.element))
    loss = _Loss(call, scores, call.argument(1, "target"), ignore_index, reduction)
    return call.reshape(loss.reduced(loss.nll()), expected.dims)


def _nll(call: Call) -> Value:
    """F.nll_loss(input, target, weight, size_average, ignore_index, reduce, reduction)"""
    call.only("input", "target", "ignore_index", "reduction")
    reduction = _reduction_argument(call, 6, {"size_average": 3, "reduce": 5})
    return _nll_of(call, call.expected, reduction, call.argument(4, "ignore_index", -100))


def _nll_loss(call: Call) -> Value:
    """aten.nll_loss(self, target, weight, reduction, ignore_index)"""
    call.only("reduction", "ignore_index")
    return _nll_of(call, call.expected, call.argument(3, "reduction", 1), call.argument(4, "ignore_index", -100))


def _nll_loss_forward(call: Call, named: Named) -> list[Value | None]:
    """aten.nll_loss_forward: as nll_loss, and the number of labels that count."""
    named(0)
    if call.parts[0] is None:
        raise Refused("a loss that is no tensor")
    return [_nll_of(call, call.parts[0], call.argument(3, "reduction"), call.argument(4, "ignore_index")), None]


def _gather(call: Call) -> Value:
    """gather(input, dim, index) of one column a row, the score of its label: where the logarithm of the row's sum is
    made, too. Alone it is no reason to read whole rows, nor to wait for the label before what else is made of them."""
    call.only("input", "self", "dim", "index")
    if not _are_scores(call.argument(0, "input")):
        raise Refused("a column of rows that no logarithm of a sum is made of")
    source, index = call.float_tensor(call.argument(0, "input")), call.tensor(call.argument(2, "index"))
    rank = len(source.type.dims)
    if call.argument(1, "dim") not in (-1, rank - 1) or index.type.dims != (*source.type.dims[:-1], 1) or rank < 2:
        raise Refused(f"columns of {source.type} by {index.type}, expected one for each row")
    return call.finish(call.pick(source, call.cast(index, "i64")))


def _are_scores(node: Any) -> bool:
    """Whether logarithms of sums go into rows, or are made of them."""
    if not isinstance(node, fx.Node):
        return False
    around = (node, *node.all_input_nodes, *node.users)
    return any(word in target_name(each) for each in around for word in ("logsumexp", "log_softmax"))


# --- Divergence and squares ------------------------------------------------------------------------------------------


def _xlogy_of(call: Call, value: Value, other: Value) -> Value:
    """value log(other), 0 where value is 0 (its gradient too), rounded once."""
    value, other = (call.cast(item, wide(call.element)) for item in (value, other))
    zero, one = call.constant_like(0.0, value), call.constant_like(1.0, value)
    is_zero = call.compare("eq", value, zero)
    product = call.binary("mul", value, call.unary("log", call.select(is_zero, one, other)))
    return call.cast(call.select(is_zero, zero, product), call.element)


def _reduced_loss(call: Call, values: Value, reduction: str) -> Value:
    if reduction == "none":
        return call.finish(values) if values.type != call.expected else values
    dims = values.type.dims
    value = _everything(call, values, element_count(dims) if reduction == "mean" else 1)
    if reduction == "batchmean" and dims:
        wider = call.cast(value, wide(call.element))
        rows = element_count(dims[:1])
        value = call.cast(call.binary("div", wider, call.constant_like(float(rows), wider)), call.element)
    return call.reshape(value, call.expected.dims)


def _pair(call: Call) -> tuple[Value, Value]:
    """Input and target, of one type."""
    first, second = (call.float_tensor(call.argument(i, name)) for i, name in enumerate(("input", "target")))
    if first.type != second.type or first.type.element != call.element:
        raise Refused(f"an input of {first.type} and a target of {second.type}")
    return first, second


def _divergence(call: Call) -> Value:
    """F.kl_div(input, target, size_average, reduce, reduction, log_target): input is a logarithm."""
    call.only("input", "target", "reduction", "log_target")
    reduction = _reduction_argument(call, 4, {"size_average": 2, "reduce": 3})
    if reduction not in (*_REDUCTIONS, "batchmean"):
        raise Refused(f"reduction {reduction!r}")
    scores, target = _pair(call)
    if call.argument(5, "log_target", False):
        values = call.binary("mul", call.unary("exp", target), call.binary("sub", target, scores))
    else:
        own = _xlogy_of(call, target, target)
        values = call.binary("sub", own, call.binary("mul", target, scores))
    return _reduced_loss(call, values, reduction)


def _squared_error(call: Call) -> Value:
    """F.mse_loss(input, target, size_average, reduce, reduction)"""
    call.only("input", "target", "reduction")
    reduction = _reduction_of(_reduction_argument(call, 4, {"size_average": 2, "reduce": 3}))
    first, second = (call.cast(value, wide(call.element)) for value in _pair(call))
    difference = call.binary("sub", first, second)
    values = call.cast(call.binary("mul", difference, difference), call.element)
    return _reduced_loss(call, values, reduction)


def _absolute_error(call: Call) -> Value:
    """F.l1_loss(input, target, size_average, reduce, reduction): torch rounds the difference, too."""
    call.only("input", "target", "reduction", "beta")
    reduction = _reduction_of(_reduction_argument(call, 4, {"size_average": 2, "reduce": 3}))
    return _reduced_loss(call, call.unary("abs", call.binary("sub", *_pair(call))), reduction)


def _bent(call: Call, reduction: Any, bend: Any, is_divided: bool) -> Value:
    """Of d = input - target: d^2 / 2 up to the bend, from there on bend (|d| - bend / 2); both divided by the bend or
    not. With q, which is d kept within the bend, that is q (d - q / 2), whose gradient is finite where d is not."""
    bend = call.number(bend)
    first, second = (call.cast(value, wide(call.element)) for value in _pair(call))
    difference = call.binary("sub", first, second)
    near = call.binary("max", difference, call.constant_like(-bend, difference))
    near = call.binary("min", near, call.constant_like(bend, difference))
    rest = call.binary("sub", difference, call.binary("mul", call.constant_like(0.5, near), near))
    slope = call.binary("div", near, call.constant_like(bend, near)) if is_divided else near
    values = call.cast(call.binary("mul", slope, rest), call.element)
    return _reduced_loss(call, values, _reduction_of(reduction))


def _smooth_l1(call: Call) -> Value:
    """F.smooth_l1_loss(input, target, size_average, reduce, reduction, beta)"""
    call.only("input", "target", "reduction", "beta")
    beta = call.argument(5, "beta", 1.0)
    if beta == 0:
        return _absolute_error(call)
    return _bent(call, _reduction_argument(call, 4, {"size_average": 2, "reduce": 3}), beta, is_divided=True)


def _smooth_l1_loss(call: Call) -> Value:
    """aten.smooth_l1_loss(self, target, reduction, beta)"""
    call.only("reduction", "beta")
    beta = call.argument(3, "beta", 1.0)
    if beta == 0:
        raise Refused("no bend")
    return _bent(call, call.argument(2, "reduction", 1), beta, is_divided=True)


def _huber(call: Call) -> Value:
    """F.huber_loss(input, target, reduction, delta, weight), aten.huber_loss(self, target, reduction, delta)"""
    call.only("input", "target", "reduction", "delta")
    if call.argument(4, "weight") is not None:
        raise Refused("argument weight")
    return _bent(call, call.argument(2, "reduction", "mean"), call.argument(3, "delta", 1.0), is_divided=False)


def _binary_cross_entropy(call: Call, weight: Any, positive: Any, reduction: Any) -> Value:
    """(1 - target) input - w log(sigmoid(input)), w = 1 + (positive - 1) target: a composition, which rounds at each of
    its steps."""
    logits, target = _pair(call)
    one = call.constant_like(1.0, target)
    values = log_sigmoid_of(call, logits)
    if positive is not None:
        more = call.float_tensor(positive)
        more = call.broadcast(call.binary("sub", more, call.constant_like(1.0, more)), target.type)
        values = call.binary("mul", values, call.binary("add", call.binary("mul", more, target), one))
    values = call.binary("sub", call.binary("mul", call.binary("sub", one, target), logits), values)
    if weight is not None:
        values = call.binary("mul", values, call.broadcast(call.float_tensor(weight), values.type))
    return _reduced_loss(call, values, _reduction_of(reduction))


def _binary_with_logits(call: Call) -> Value:
    """F.binary_cross_entropy_with_logits(input, target, weight, size_average, reduce, reduction, pos_weight)"""
    call.only("input", "target", "weight", "reduction", "pos_weight")
    reduction = _reduction_argument(call, 5, {"size_average": 3, "reduce": 4})
    return _binary_cross_entropy(call, call.argument(2, "weight"), call.argument(6, "pos_weight"), reduction)


def _binary_with_logits_of_aten(call: Call) -> Value:
    """torch and aten.binary_cross_entropy_with_logits(self, target, weight, pos_weight, reduction)"""
    call.only("weight", "pos_weight", "reduction")
    return _binary_cross_entropy(
        call, call.argument(2, "weight"), call.argument(3, "pos_weight"), call.argument(4, "reduction", 1)
    )


TRANSLATIONS: dict[str, Callable[[Call], Value]] = {
    "kl_div": _divergence,
    "mse": _squared_error,
    "l1": _absolute_error,
    "smooth_l1": _smooth_l1,
    "smooth_l1_loss": _smooth_l1_loss,
    "huber": _huber,
    "binary_with_logits": _binary_with_logits,
    "binary_cross_entropy_with_logits": _binary_with_logits_of_aten,
    "cross_entropy": _cross_entropy,
    "cross_entropy_loss": _cross_entropy_loss,
    "gather": _gather,
    "nll": _nll,
    "nll_loss": _nll_loss,
}

SEVERAL: dict[str, Callable[[Call, Named], list[Value | None]]] = {"nll_loss_forward": _nll_loss_forward}
