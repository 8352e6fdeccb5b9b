"""Cumulative sums along the last dimension, which are computed in f32 (f64 for f64), integers in 64 bits, and rounded
once. A gradient's are those from each column on, which ATen spells by turning its operand and its result round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx as fx

from ... import native
from ...text import Value
from .call import Call, Refused, wide
from .reduction import last_dim

_MAX_COLUMNS = native.limit("cumsum_columns")
_MAX_OF_ONE_ROW = 1 << 14  # which one block walks over alone, where ATen's kernel shares it out to many


def _sums(call: Call, value: Value, reverse: bool) -> Value:
    columns = value.type.dims[-1]
    if not isinstance(columns, int):
        raise Refused("a cumulative sum of a symbolic number of columns")
    one = all(dim == 1 for dim in value.type.dims[:-1])
    most = _MAX_OF_ONE_ROW if one else _MAX_COLUMNS
    if columns > most:
        raise Refused(f"a cumulative sum of {columns} columns{' of one row' if one else ''}, expected at most {most}")
    if call.element == "i1":
        raise Refused("a cumulative sum in i1")
    value = call.cast(value, call.element)
    value = call.cast(value, wide(call.element) if call.expected.is_float else "i64")
    return call.cast(call.cumsum(value, reverse), call.element)


def _cumsum(call: Call) -> Value:
    call.only("input", "dim", "axis", "dtype")
    value = call.input()
    if not value.type.dims:
        raise Refused("a cumulative sum of rank 0")
    last_dim(call, call.argument(1, "dim", call.node.kwargs.get("axis")), value)
    turned = call.builder.turned
    if (source := turned.get(call.argument(0, "input"))) is not None:
        turned[call.node] = source
        call.builder.summed.add(call.node)
    return _sums(call, value, reverse=False)


def _flip(call: Call) -> Value:
    """No word of the dialect but behind such a sum of what was turned round before."""
    call.only("input", "dims")
    source: Any = call.argument(0, "input")
    value = call.input()
    dims = call.argument(1, "dims")
    if len(call.node.args) > 2 or not value.type.dims:
        raise Refused("elements in another order")
    last_dim(call, dims[0] if isinstance(dims, (tuple, list)) and len(dims) == 1 else dims, value)
    if isinstance(source, fx.Node) and source in call.builder.summed:
        return _sums(call, call.builder.turned[source], reverse=True)
    call.builder.turned[call.node] = value
    raise Refused("elements in another order")


TRANSLATIONS: dict[str, Callable[[Call], Value]] = {"cumsum": _cumsum, "flip": _flip}
