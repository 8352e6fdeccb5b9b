"""Calls that only move elements: views, slices, concatenations, padding, repetition; and casts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from ...graph.nodes import example
from ...text import ELEMENT_TYPES, FLOATS, Dim, TensorType, Value
from .call import Call, Refused, element_count

_E4M3 = ELEMENT_TYPES[torch.float8_e4m3fn]
_LARGEST_E4M3 = 464.0  # what is rounded to its largest number, and not beyond
# Whether this torch's cast gives NaN beyond that. The dialect's saturates, as later ones do.
OVERFLOWS_TO_NAN = bool(torch.tensor(1e9, device="cpu").to(torch.float8_e4m3fn).float().isnan())


def _cast(call: Call) -> Value:
    """`to`, `float`, `type` and their kin: the result type says what they do; where the data went must not."""
    value = call.input()
    if example(call.node.args[0]).device != example(call.node).device:
        raise Refused("a copy to another device")
    if value.type == call.expected:
        return call.finish(value)
    if value.type.dims != call.expected.dims:
        raise Refused(f"a cast from {value.type} to {call.expected}")
    if call.element == _E4M3 and OVERFLOWS_TO_NAN:
        value = _nan_beyond(call, value, _LARGEST_E4M3)
    return call.cast(value, call.element)


def _nan_beyond(call: Call, value: Value, largest: float) -> Value:
    if value.type.element not in FLOATS or value.type.element == "f64":
        value = call.cast(value, "f32")
    is_beyond = call.compare("lt", call.constant_like(largest, value), call.unary("abs", value))
    return call.select(is_beyond, call.constant_like(math.nan, value), value)


def _reshape(call: Call) -> Value:
    value = call.input()
    if value.type.element != call.element:
        raise Refused("a view as another dtype")
    return call.shaped(value, value, call.expected.dims)


def _expand(call: Call) -> Value:
    value = call.input()
    return call.finish(value) if value.type == call.expected else call.broadcast(value, call.expected)


def _identity(call: Call) -> Value:
    value = call.input()
    if value.type != call.expected:
        raise Refused("a result of another type")
    return call.finish(value)


def _dropout(call: Call) -> Value:
    probability = call.argument(1, "p", 0.5)
    training = call.argument(2, "training", True)
    if training is False or probability == 0:
        return _identity(call)
    raise Refused("random numbers")


# --- Orders of dimensions --------------------------------------------------------------------------------------------


def _transpose(call: Call) -> Value:
    """Two dimensions change places; `t` names none and means both of a matrix."""
    value = call.input()
    order = list(range(len(value.type.dims)))
    first, second = call.argument(1, "dim0"), call.argument(2, "dim1")
    if first is None and second is None and not call.node.kwargs:
        if len(order) > 2:
            raise Refused("t of more than two dimensions")
        return call.transpose(value, order[::-1])
    first, second = (call.dimension(dim, len(order)) for dim in (first, second))
    order[first], order[second] = order[second], order[first]
    return call.transpose(value, order)


def _many(call: Call, position: int, name: str) -> list[Any]:
    """A list argument, which methods also take as several."""
    argument = call.argument(position, name)
    if isinstance(argument, (tuple, list)):
        return list(argument)
    return list(call.node.args[position:]) or [argument]


def _permute(call: Call) -> Value:
    value = call.input()
    rank = len(value.type.dims)
    order = [call.dimension(dim, rank) for dim in _many(call, 1, "dims")]
    if sorted(order) != list(range(rank)):
        raise Refused(f"dimensions {order} of rank {rank}")
    return call.transpose(value, order)


def _movedim(call: Call) -> Value:
    call.only("input", "source", "destination")
    value = call.input()
    rank = len(value.type.dims)
    places = []
    for position, name in ((1, "source"), (2, "destination")):
        argument = call.argument(position, name)
        listed = argument if isinstance(argument, (tuple, list)) else (argument,)
        places.append([call.dimension(dim, rank) for dim in listed])
    source, destination = places
    if len(set(source)) != len(source) or sorted(set(destination)) != sorted(destination):
        raise Refused("a dimension that is moved twice")
    goes = dict(zip(destination, source))
    rest = iter(dim for dim in range(rank) if dim not in source)
    return call.transpose(value, [goes[dim] if dim in goes else next(rest) for dim in range(rank)])


def _turned(every: bool) -> Callable[[Call], Value]:
    """All dimensions of at most two in the other order, or the last two."""

    def translate(call: Call) -> Value:
        call.only("input", "name")
        value = call.input()
        order = list(range(len(value.type.dims)))
        if every and len(order) <= 2:
            return call.transpose(value, order[::-1])
        if not every and len(order) >= 2:
            return call.transpose(value, [*order[:-2], order[-1], order[-2]])
        raise Refused(f"rank {len(order)}")

    return translate


_ATTRIBUTES = {"T": _turned(True), "H": _turned(True), "mT": _turned(False), "mH": _turned(False)}


def _attribute(call: Call) -> Value:
    """`x.T` and `x.mT`, which Dynamo writes as getattr, since torch 2.14 as ATen's packets."""
    name = call.argument(1, "name")
    if name not in _ATTRIBUTES:
        raise Refused(f"the attribute {name}")
    return _ATTRIBUTES[name](call)


# --- Slices ----------------------------------------------------------------------------------------------------------


def _every(call: Call, value: Value, dim: int, start: int, stop: int, step: int) -> Value:
    """Every `step`-th element from `start`: a column of the dimension split into groups of `step`."""
    dims = value.type.dims
    size = dims[dim]
    if not isinstance(size, int) or step < 1 or size % step:
        raise Refused(f"a step of {step} over {size}")
    group, column = divmod(start, step)
    count = -(-(stop - start) // step)
    split = call.reshape(value, (*dims[:dim], size // step, step, *dims[dim + 1 :]))
    taken = call.slice_along(call.slice_along(split, dim + 1, column, 1), dim, group, count)
    return call.reshape(taken, (*dims[:dim], count, *dims[dim + 1 :]))


def _plain(call: Call, bound: Any) -> int | None:
    return None if bound is None else call.integer(bound)


def _indexed(call: Call, value: Value, items: Sequence[Any]) -> Value:
    """`value[items]`, with one integer or slice for each of the first dimensions; None adds one of 1. The result has
    the expected dimensions, which also tell a slice's size where it depends on a symbol."""
    starts, sizes, kept = [0] * len(value.type.dims), list(value.type.dims), []
    steps: list[tuple[int, slice]] = []
    dim = 0
    for item in items:
        if item is None:
            kept.append(None)
            continue
        whole = value.type.dims[dim]
        if isinstance(item, slice):
            result = call.expected.dims[len(kept)] if len(kept) < len(call.expected.dims) else None
            kept.append(dim)
            if isinstance(whole, int):
                bounds = slice(*(_plain(call, part) for part in (item.start, item.stop, item.step)))
                start, stop, step = bounds.indices(whole)
                if step != 1:
                    steps.append((dim, slice(start, stop, step)))
                else:
                    starts[dim], sizes[dim] = start, stop - start
            else:
                if item.step not in (None, 1):
                    raise Refused("a step over a symbolic dimension")
                starts[dim], sizes[dim] = _plain(call, item.start) or 0, result
        else:
            start = call.integer(item)
            if isinstance(whole, int):
                start %= whole
            starts[dim], sizes[dim] = start, 1
        dim += 1
    taken = call.slice(value, starts, sizes)
    for stepped, bounds in steps:
        taken = _every(call, taken, stepped, bounds.start, bounds.stop, bounds.step)
    return call.shaped(taken, value, call.expected.dims)


def _getitem(call: Call) -> Value:
    value = call.input()
    index = call.argument(1, "index")
    items = list(index) if isinstance(index, tuple) else [index]
    for item in items:
        number = isinstance(item, int) and not isinstance(item, bool)
        if not (number or isinstance(item, slice) or item is Ellipsis or item is None):
            raise Refused("an index that selects")
    given = sum(item is not None and item is not Ellipsis for item in items)
    missing = len(value.type.dims) - given
    if missing < 0 or items.count(Ellipsis) > 1:
        raise Refused(f"{given} indices of {value.type}")
    at = items.index(Ellipsis) if Ellipsis in items else len(items)
    return _indexed(call, value, [*items[:at], *[slice(None)] * missing, *items[at + 1 :]])


def _along(call: Call, value: Value, dim: int, item: Any) -> Value:
    return _indexed(call, value, [item if i == dim else slice(None) for i in range(len(value.type.dims))])


def _slice(call: Call) -> Value:
    """aten.slice(x, dim, start, end, step)"""
    value = call.input()
    dim = call.dimension(call.argument(1, "dim", 0), len(value.type.dims))
    bounds = slice(call.argument(2, "start"), call.argument(3, "end"), call.argument(4, "step", 1))
    return _along(call, value, dim, bounds)


def _narrow(call: Call) -> Value:
    value = call.input()
    dim = call.dimension(call.argument(1, "dim"), len(value.type.dims))
    start, length = call.integer(call.argument(2, "start")), call.argument(3, "length")
    if start < 0 and isinstance(value.type.dims[dim], int):
        start += int(value.type.dims[dim])
    return _along(call, value, dim, slice(start, start + length if isinstance(length, int) else None))


def _select(call: Call) -> Value:
    value = call.input()
    dim = call.dimension(call.argument(1, "dim"), len(value.type.dims))
    return _along(call, value, dim, call.integer(call.argument(2, "index")))


Named = Callable[[int], None]  # gives what is written next the name of result i


def _pieces(dim_position: int) -> Callable[[Call, Named], list[Value]]:
    """chunk, split, tensor_split and unbind: slices one behind the other, of the sizes that tracing left."""

    def translate(call: Call, named: Named) -> list[Value]:
        call.only("input", "tensor", "dim", "chunks", "sections", "indices_or_sections", "split_size_or_sections")
        value = call.tensor(call.argument(0, "input", call.node.kwargs.get("tensor")))
        dim = call.dimension(call.argument(dim_position, "dim", 0), len(value.type.dims))
        results, start = [], 0
        for index, part in enumerate(call.parts):
            if part is None or part.element is None:
                raise Refused("a piece that is no tensor of the dialect")
            removed = len(part.dims) < len(value.type.dims)
            size: Dim = 1 if removed else part.dims[dim]
            named(index)
            piece = call.slice_along(value, dim, start, size)
            results.append(call.shaped(piece, value, part.dims))
            start = start + size if isinstance(size, int) else -1
        if len(results) > 1 and start != value.type.dims[dim]:
            raise Refused(f"{start} of {value.type.dims[dim]} elements")
        return results

    return translate


# --- Joining and repeating -------------------------------------------------------------------------------------------


def _tensors(call: Call) -> list[Value]:
    """The operands of a join in its result's type, without those that have no elements."""
    listed = call.argument(0, "tensors")
    if not isinstance(listed, (tuple, list)):
        raise Refused("operands that are not a list")
    return [call.widened(call.tensor(node), call.element) for node in listed if not _is_empty(node)]


def _is_empty(node: Any) -> bool:
    shape = getattr(example(node), "shape", ()) if isinstance(node, fx.Node) else ()
    return any(isinstance(size, int) and size == 0 for size in shape)


def _cat(call: Call) -> Value:
    call.only("tensors", "dim", "axis")
    values = _tensors(call)
    dim = call.argument(1, "dim", call.node.kwargs.get("axis", 0))
    if len(values) == 1:
        return call.finish(values[0])
    return call.concat(values, call.dimension(dim, len(call.expected.dims)))


def _stack(call: Call) -> Value:
    call.only("tensors", "dim")
    dim = call.dimension(call.argument(1, "dim", 0), len(call.expected.dims))
    values = _tensors(call)
    return call.concat([call.reshape(v, (*v.type.dims[:dim], 1, *v.type.dims[dim:])) for v in values], dim)


def _pad(value_position: int) -> Callable[[Call], Value]:
    """Constant padding: concats with constants; a negative amount is a slice. `pad` is from the last dimension on."""

    def translate(call: Call) -> Value:
        call.only("input", "pad", "mode", "value")
        if value_position == 3 and call.argument(2, "mode", "constant") != "constant":
            raise Refused("padding with other than a constant")
        amounts, number = call.argument(1, "pad"), call.argument(value_position, "value")
        if not isinstance(amounts, (tuple, list)) or len(amounts) % 2:
            raise Refused(f"padding by {amounts}")
        return _padded(call, [call.integer(amount) for amount in amounts], call.number(0 if number is None else number))

    return translate


def _padded(call: Call, amounts: Sequence[int], fill: float) -> Value:
    value = call.input()
    begin = value
    for pair in range(len(amounts) // 2):
        before, after = amounts[2 * pair : 2 * pair + 2]
        dim = len(value.type.dims) - 1 - pair
        if before == after == 0:
            continue
        size = value.type.dims[dim]
        if not isinstance(size, int):
            raise Refused("padding of a symbolic dimension")
        value = call.slice_along(value, dim, max(-before, 0), size - max(-before, 0) - max(-after, 0))
        edges = [
            TensorType((*value.type.dims[:dim], amount, *value.type.dims[dim + 1 :]), value.type.element)
            for amount in (before, after)
        ]
        parts = [call.number_as(fill, edges[0])] if before > 0 else []
        parts += [value] + ([call.number_as(fill, edges[1])] if after > 0 else [])
        value = call.concat(parts, dim) if len(parts) > 1 else value
    return call.finish(value) if value is begin else value


def _repeat_interleave(call: Call) -> Value:
    call.only("input", "repeats", "dim", "output_size")
    value = call.input()
    dims = value.type.dims
    repeats = call.integer(call.argument(1, "repeats"))
    dim = call.argument(2, "dim")
    if dim is None:
        value, dims, dim = call.reshape(value, (element_count(dims),)), (element_count(dims),), 0
    dim = call.dimension(dim, len(dims))
    apart = call.reshape(value, (*dims[: dim + 1], 1, *dims[dim + 1 :]))
    several = TensorType((*dims[: dim + 1], repeats, *dims[dim + 1 :]), value.type.element)
    return call.reshape(call.broadcast(apart, several), call.expected.dims)


def _repeat(call: Call) -> Value:
    """Each dimension as (times, size), broadcast along times."""
    value = call.input()
    times = [call.integer(count) for count in _many(call, 1, "repeats")]
    dims = (1,) * (len(times) - len(value.type.dims)) + value.type.dims
    apart: list[Dim] = []
    together: list[Dim] = []
    for count, size in zip(times, dims, strict=True):
        if count != 1 and size != 1:
            apart, together = [*apart, 1, size], [*together, count, size]
        else:
            apart, together = [*apart, size], [*together, count if size == 1 else size]
    spread = call.broadcast(call.reshape(value, apart), TensorType(tuple(together), value.type.element))
    return call.shaped(spread, value, call.expected.dims)


TRANSLATIONS: dict[str, Callable[[Call], Value]] = {
    "cast": _cast,
    "reshape": _reshape,
    "expand": _expand,
    "identity": _identity,
    "dropout": _dropout,
    "transpose": _transpose,
    "permute": _permute,
    "movedim": _movedim,
    "attribute": _attribute,
    "turned": _ATTRIBUTES["T"],
    "last_turned": _ATTRIBUTES["mT"],
    "getitem": _getitem,
    "slice": _slice,
    "narrow": _narrow,
    "select_index": _select,
    "cat": _cat,
    "stack": _stack,
    "pad": _pad(3),
    "constant_pad": _pad(2),
    "repeat_interleave": _repeat_interleave,
    "repeat": _repeat,
}

# Those that put elements elsewhere, or into another type, and compute nothing.
MOVES = "cast reshape expand identity transpose permute movedim slice narrow select_index".split()

# Calls whose result is a tuple or list.
SEVERAL: dict[str, Callable[[Call, Named], list[Value | None]]] = {
    "pieces": _pieces(2),
    "unbind": _pieces(1),
}
