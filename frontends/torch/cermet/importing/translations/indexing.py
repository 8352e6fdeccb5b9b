"""Tensors made from nothing (constants, ranges), masks of their indices, embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx as fx

from ...graph.nodes import example
from ...graph.numbers import never_negative
from ...text import Value
from .call import Call, Refused, is_number, wide

_PLACEMENT = ("input", "size", "dtype", "device", "layout", "pin_memory", "names", "memory_format")


def _filled(number: float | None, position: int = 0, name: str = "fill_value") -> Callable[[Call], Value]:
    """A tensor of one number: this one, or the argument that says it."""

    def translate(call: Call) -> Value:
        call.only(*_PLACEMENT, name, "requires_grad")
        given = call.argument(position, name) if number is None else number
        if not is_number(given) or call.node.kwargs.get("requires_grad"):
            raise Refused("what is no constant")
        return call.number_as(call.number(given), call.expected)

    return translate


def _arange(call: Call) -> Value:
    """start + i step, of integers that every type holds exactly until the last rounding."""
    call.only(*_PLACEMENT, "start", "end", "step")
    bounds = [argument for argument in call.node.args]
    start = call.number(call.node.kwargs.get("start", bounds[0] if len(bounds) > 1 else 0))
    step = call.number(call.node.kwargs.get("step", bounds[2] if len(bounds) > 2 else 1))
    if len(call.expected.dims) != 1 or start != int(start) or step != int(step) or call.element == "i1":
        raise Refused(f"a range from {start} by {step}")
    size = call.expected.dims[0]
    type = call.expected.with_element(wide(call.element))
    most = abs(start) + abs(step) * size if isinstance(size, int) else 0
    if call.expected.is_float and most >= 1 << 24:
        raise Refused(f"a range up to {most} in {call.element}")
    if call.expected.is_float and not isinstance(size, int) and (start, step) != (0, 1):
        raise Refused("a range of floats to a symbolic size")
    value = call.iota(0, type)
    if step != 1:
        value = call.binary("mul", value, call.number_as(step, type))
    if start != 0:
        value = call.binary("add", value, call.number_as(start, type))
    return call.cast(value, call.element)


def _triangle(predicate: str) -> Callable[[Call], Value]:
    """tril and triu: what lies on the other side of a diagonal is 0."""

    def translate(call: Call) -> Value:
        call.only("input", "diagonal")
        value, rank = call.input(), len(call.expected.dims)
        if rank < 2:
            raise Refused(f"a triangle of {value.type}")
        diagonal = call.integer(call.argument(1, "diagonal", 0))
        indices = value.type.with_element("i64")
        column, row = call.iota(rank - 1, indices), call.iota(rank - 2, indices)
        if diagonal != 0:
            row = call.binary("add", row, call.number_as(float(diagonal), indices))
        return call.select(call.compare(predicate, column, row), value, call.constant_like(0.0, value))

    return translate


def _rows(call: Call, source: Any, indices: Any, gradient_differs: bool) -> Value:
    """Rows of a table by number; a padding row, or scaled or sparse gradients, change the gradient alone."""
    table, index = call.tensor(source), call.tensor(indices)
    if gradient_differs and example(source).requires_grad:
        raise Refused("a gradient that leaves out rows, scales them or is sparse")
    if len(table.type.dims) != 2 or index.type.is_float or index.type.element == "i1":
        raise Refused(f"rows of {table.type} by {index.type}")
    return call.builder.gather(table, index, call.expected, call.name)


def _embedding(call: Call) -> Value:
    """F.embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)"""
    call.only("input", "weight", "padding_idx", "norm_type", "scale_grad_by_freq", "sparse")
    if call.argument(3, "max_norm") is not None:
        raise Refused("argument max_norm")
    differs = call.argument(2, "padding_idx") is not None
    differs |= bool(call.argument(5, "scale_grad_by_freq", False)) or bool(call.argument(6, "sparse", False))
    return _rows(call, call.argument(1, "weight"), call.argument(0, "input"), differs)


def _embedding_by_weight(call: Call) -> Value:
    """aten.embedding(weight, indices, padding_idx, scale_grad_by_freq, sparse)"""
    call.only("weight", "indices", "padding_idx", "scale_grad_by_freq", "sparse")
    differs = call.argument(2, "padding_idx", -1) != -1
    differs |= bool(call.argument(3, "scale_grad_by_freq", False)) or bool(call.argument(4, "sparse", False))
    return _rows(call, call.argument(0, "weight"), call.argument(1, "indices"), differs)


def _bag(call: Call) -> Value:
    """cermet_v1.embedding_bag(source, index, begins, ends, sums, wide)"""
    source, index, begins, ends = (call.tensor(call.argument(position, "")) for position in range(4))
    sums = call.argument(4, "sums")
    return call.builder.embedding_bag(
        source, index, begins, ends, None if sums is None else call.tensor(sums), call.expected, call.name
    )


def _chosen(call: Call) -> Value:
    """aten.index(source, [numbers]): rows by number, where none counts from the end."""
    call.only("indices")
    numbers = call.argument(1, "indices")
    if len(numbers) != 1 or not isinstance(numbers[0], fx.Node) or not never_negative(numbers[0]):
        raise Refused("an index that is not rows by number from the first on")
    return _rows(call, call.argument(0, "self"), numbers[0], False)


def _selected_rows(call: Call) -> Value:
    """aten.index_select(source, dim, numbers)"""
    call.only("index", "dim")
    if call.dimension(call.argument(1, "dim"), len(call.tensor(call.argument(0, "self")).type.dims)) != 0:
        raise Refused("a choice along another dimension than the first")
    return _rows(call, call.argument(0, "self"), call.argument(2, "index"), False)


TRANSLATIONS: dict[str, Callable[[Call], Value]] = {
    "zeros": _filled(0.0),
    "ones": _filled(1.0),
    "full": _filled(None, 1),
    "new_full": _filled(None, 2),
    "scalar": _filled(None, 0, "s"),
    "tensor": _filled(None, 0, "data"),
    "arange": _arange,
    "tril": _triangle("le"),
    "triu": _triangle("ge"),
    "embedding": _embedding,
    "embedding_by_weight": _embedding_by_weight,
    "index": _chosen,
    "index_select": _selected_rows,
    "embedding_bag": _bag,
}
