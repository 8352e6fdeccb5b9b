"""Batch norms of an ATen graph whose channels lie beside one another become launches, several for each
(ops/batch_norms.py), which the second stage joins with what is around them.

What lies so is what convolutions give in rows (aten/images.py), and what was never an image. A norm over planes stays
ATen's: there its sums are of as many pieces as a batch has images.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from typing import Any

import torch
import torch.fx as fx

from .. import native
from ..graph.layouts import written
from ..graph.nodes import example
from ..ops import batch_norms as texts
from ..text import ELEMENT_TYPES
from .aten.images import in_planes, in_rows, lies_in_planes, lies_in_rows
from .launching import Writer, are_columns, are_lowered, element_of, is_plain, results_of, write_norms

_aten = torch.ops.aten
_TRAINING, _NO_STATISTICS = _aten._native_batch_norm_legit_functional.default, _aten._native_batch_norm_legit.no_stats
_INFERENCE, _BACKWARD = _aten._native_batch_norm_legit_no_training.default, _aten.native_batch_norm_backward.default
_MAX_RANK = native.limit("rank")
_HALVES = ("bf16", "f16")
_MOST_TWICE = 1 << 6  # rows from which on a second reading takes time


def spell(graph: fx.Graph) -> set[int]:
    """In place; returns the keys of what is launched. A norm and its gradient in one graph are both launches or
    neither."""
    backward = graph.find_nodes(op="call_function", target=_BACKWARD)
    for node in backward:
        if _form(example(node.args[1])) is not None:
            _ask_for_no_statistics(node)
    norms: dict[fx.Node, _Norm | None] = {}
    for target, read in ((_TRAINING, _trained), (_NO_STATISTICS, _untold), (_INFERENCE, _inferred)):
        norms |= {node: read(node) for node in graph.find_nodes(op="call_function", target=target)}
    gradients = {node: _gradient(node, norms) for node in backward}
    return write_norms(norms, gradients, _norms_of)


def _ask_for_no_statistics(backward: fx.Node) -> None:
    """Of a norm by statistics that run, which gives none, in place."""
    *given, mean, scale, training, eps, wanted = backward.args
    if not training and mean is not None:
        backward.args = (*given, None, None, training, eps, wanted)
        for item in (mean, scale):
            if item.target is operator.getitem and not item.users:
                item.graph.erase_node(item)


@dataclasses.dataclass(frozen=True)
class _Norm:
    results: dict[int, fx.Node]
    form: texts.Form
    x: fx.Node
    weight: fx.Node | None
    bias: fx.Node | None
    running: tuple[fx.Node, ...]
    momentum: float
    eps: float
    is_of_batch: bool  # whether the statistics are x's, else what runs

    def keys(self) -> tuple[int, ...]:
        """In the order of `write`."""
        weight, bias = element_of(self.weight), element_of(self.bias)
        if not self.is_of_batch:
            mean, variance = map(element_of, self.running)
            return texts.deviation(self.form, self.eps, variance), texts.norm(self.form, mean, weight, bias)
        running = tuple(map(element_of, self.running))
        statistics = texts.statistics(self.form, self.eps, self.momentum, running, self.is_read_once)
        sums = (texts.sums_about,) if self.is_read_once else (texts.sums, texts.squares)
        return *(text(self.form) for text in sums), statistics, texts.norm(self.form, "f32", weight, bias)

    @property
    def is_read_once(self) -> bool:
        """Whether both sums of x come from one reading."""
        return self.form.element in _HALVES and (self.form.rows or 0) >= _MOST_TWICE

    def write(self, write: Writer) -> tuple[fx.Node, ...]:
        """Returns mean and reciprocal deviation."""
        rows, keys = _rows(write, self.x), iter(self.keys())
        parameters = [each for each in (self.weight, self.bias) if each is not None]
        if self.is_of_batch:
            if self.is_read_once:
                probes = _probes(write, rows, self.form)
                sums = (*write.launch(next(keys), 2, rows, probes), probes)
            else:
                total, *count = write.launch(next(keys), self.form.sums(1), rows)
                (squares,) = write.launch(next(keys), 1, rows, total, *count)
                sums = (total, squares, *count)
            mean, scale, *after = write.launch(next(keys), 2 + len(self.running), *sums, *self.running)
            made = {1: mean, 2: scale, **dict(enumerate(after, 3))}
        else:
            mean, variance = self.running
            (scale,) = write.launch(next(keys), 1, variance)
            made = {}
        (y,) = write.launch(next(keys), 1, rows, mean, scale, *parameters)
        _put(write, {0: y, **made}, self.results)
        return mean, scale


def _trained(node: fx.Node) -> _Norm | None:
    x, weight, bias, mean, variance, training, momentum, eps = node.args
    if not training:
        return None
    return _norm(node, x, weight, bias, (mean, variance), momentum, eps, True)


def _untold(node: fx.Node) -> _Norm | None:
    x, weight, bias, training, momentum, eps = node.args
    return _norm(node, x, weight, bias, (), momentum, eps, True) if training else None


def _inferred(node: fx.Node) -> _Norm | None:
    x, weight, bias, mean, variance, momentum, eps = node.args
    results = results_of(node)
    if results is None or set(results) - {0}:
        return None
    return _norm(node, x, weight, bias, (mean, variance), momentum, eps, False)


def _norm(
    node: fx.Node,
    x: fx.Node,
    weight: fx.Node | None,
    bias: fx.Node | None,
    running: tuple[fx.Node, ...],
    momentum: float,
    eps: float,
    is_of_batch: bool,
) -> _Norm | None:
    results, form = results_of(node), _form(example(x))
    numbers = [each for each in (weight, bias, *running) if each is not None]
    if not results or 0 not in results or form is None or not are_columns(numbers, form.channels, x):
        return None
    y = example(results[0])
    if y.dtype != example(x).dtype or not lies_in_rows(y):
        return None
    norm = _Norm(results, form, x, weight, bias, running, float(momentum), float(eps), is_of_batch)
    return norm if are_lowered(x, *norm.keys()) else None


@dataclasses.dataclass(frozen=True)
class _Gradient:
    results: dict[int, fx.Node]
    form: texts.Form
    cotangent: fx.Node
    x: fx.Node
    weight: fx.Node | None
    statistics: tuple[fx.Node, ...]  # mean and reciprocal deviation, or mean and variance where they run
    eps: float
    norms: tuple[fx.Node, ...]  # of this graph, whose statistics they are
    is_of_batch: bool

    def keys(self) -> tuple[int, ...]:
        """In the order of `write`."""
        form, weight = self.form, element_of(self.weight)
        if self.is_of_batch:
            made = [texts.gradient_sums(form, "f32")]
            return (*made, texts.gradient(form, weight)) if 0 in self.results else tuple(made)
        mean, variance = map(element_of, self.statistics)
        made = [texts.deviation(form, self.eps, variance)]
        if 1 in self.results or 2 in self.results:
            made.append(texts.gradient_sums(form, mean))
        return (*made, texts.scaled_gradient(form, weight)) if 0 in self.results else tuple(made)

    def write(self, write: Writer, exact: dict[fx.Node, tuple[fx.Node, ...]]) -> None:
        keys = iter(self.keys())
        mean, scale = self.statistics
        for norm in self.norms:
            mean, scale = exact[norm]
        weight = () if self.weight is None else (self.weight,)
        x, cotangent = _rows(write, self.x), _rows(write, self.cotangent)
        made: dict[int, fx.Node] = {}
        if not self.is_of_batch:
            (scale,) = write.launch(next(keys), 1, scale)
        if self.is_of_batch or 1 in self.results or 2 in self.results:
            total, product, *count = write.launch(next(keys), self.form.sums(2), cotangent, x, mean, scale)
            made = {1: product, 2: total}
        if 0 in self.results:
            operands = (x, mean, scale, total, product, *count) if self.is_of_batch else (scale,)
            (made[0],) = write.launch(next(keys), 1, cotangent, *operands, *weight)
        _put(write, made, self.results)


def _gradient(node: fx.Node, norms: dict[fx.Node, _Norm | None]) -> _Gradient | None:
    results = results_of(node)
    cotangent, x, weight, mean, variance, save_mean, save_scale, training, eps, wanted = node.args
    form = _form(example(x))
    if not results or form is None or not all(wanted[index] for index in results):
        return None
    statistics, of = ((save_mean, save_scale), _norms_of(node)) if training else ((mean, variance), ())
    columns = [*statistics, *([] if weight is None else [weight])]
    if None in statistics or not are_columns(columns, form.channels, x):
        return None
    if training and not (len(of) == 1 and norms.get(of[0]) is not None or not of and _are_exact(statistics)):
        return None
    if example(cotangent).dtype != example(x).dtype or not _is_like(example(cotangent), example(x)):
        return None
    if 0 in results and (example(results[0]).dtype != example(x).dtype or not lies_in_rows(example(results[0]))):
        return None
    found = _Gradient(results, form, cotangent, x, weight, statistics, float(eps), of, bool(training))
    return found if are_lowered(x, *found.keys()) else None


def _are_exact(statistics: tuple[fx.Node, ...]) -> bool:
    return all(example(each).dtype == torch.float32 for each in statistics)


def _norms_of(node: fx.Node) -> tuple[fx.Node, ...]:
    """The norms of the graph whose statistics a gradient reads."""
    found = []
    for source in node.args[5:7]:
        while source is not None and source.target is _aten.detach.default:
            source = source.args[0]
        if source is not None and source.target is operator.getitem and _is_norm(source.args[0]):
            found.append(source.args[0])
    return tuple(dict.fromkeys(found))


def _is_norm(node: fx.Node) -> bool:
    return node.target in (_TRAINING, _NO_STATISTICS, _INFERENCE)


def _form(x: Any) -> texts.Form | None:
    """What texts of the norm are made for; None where none fits."""
    if not is_plain(x) or not 2 <= x.dim() <= _MAX_RANK or not isinstance(x.shape[1], int) or not lies_in_rows(x):
        return None
    if any(isinstance(size, int) and not size for size in x.shape):
        return None
    is_known = all(isinstance(size, int) for size in x.shape)
    rows = math.prod(x.shape) // x.shape[1] if is_known else None
    return texts.Form(x.dim(), x.shape[1], ELEMENT_TYPES[x.dtype], rows)


def _is_like(value: Any, x: torch.Tensor) -> bool:
    sizes = [[*map(written, each.shape)] for each in (value, x)]
    return is_plain(value) and value.device == x.device and sizes[0] == sizes[1]


def _probes(write: Writer, rows: fx.Node, form: texts.Form) -> fx.Node:
    """Some rows of x, away from the first and the last."""
    count = form.rows or 0
    apart = count // texts.PROBES
    first = apart // 3
    matrix = rows if form.rank == 2 else write.call(_aten.view.default, rows, [count, form.channels])
    return write.call(_aten.slice.Tensor, matrix, 0, first, first + apart * (texts.PROBES - 1) + 1, apart)


def _rows(write: Writer, value: fx.Node) -> fx.Node:
    """The rows of what lies in them, or a copy into such."""
    order = in_rows(example(value).dim())
    source = value.args[0] if value.target is _aten.permute.default else None
    if source is not None and list(value.args[1]) == in_planes(len(order)) and lies_in_planes(example(source)):
        return source
    rows = value if len(order) == 2 else write.call(_aten.permute.default, value, order)
    if lies_in_planes(example(rows)):
        return rows
    return write.call(_aten.clone.default, rows, memory_format=torch.contiguous_format)


def _put(write: Writer, made: dict[int, fx.Node], results: dict[int, fx.Node]) -> None:
    """In the place of a call's results. Who reads the rows of the first is given those, and who rounds others what was
    rounded already."""
    made = {index: value for index, value in made.items() if index in results}
    if 0 in made and (rank := example(made[0]).dim()) > 2:
        rows = made[0]
        for user in list(results[0].users):
            if user.target is _aten.permute.default and list(user.args[1]) == in_rows(rank):
                _replace(user, rows)
        made[0] = write.call(_aten.permute.default, rows, in_planes(rank))
    for index, value in made.items():
        for user in list(results[index].users) if index else ():
            if user.target is _aten._to_copy.default and user.kwargs["dtype"] == example(value).dtype:
                _replace(user, value)
        made[index] = write.cast(value, example(results[index]).dtype)
    write.put(made, results)


def _replace(node: fx.Node, value: fx.Node) -> None:
    node.replace_all_uses_with(value)
    node.graph.erase_node(node)
