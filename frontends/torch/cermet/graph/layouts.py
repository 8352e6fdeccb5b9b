"""Memory orders of what kernels write: which permutation of its dimensions a tensor is dense in.

An order lists the dimensions from outermost to innermost in memory; None stands for row-major. Kernels need the last
dimension innermost. Sizes and strides may be symbolic: they are compared as written and guard nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

Order = tuple[int, ...] | None


def written(size: Any) -> str:
    """A size or stride as text, the same for the same number or symbolic expression."""
    return str(size) if isinstance(size, int) else str(size.node.expr)


def _numbers(value: torch.Tensor) -> bool:
    return all(isinstance(size, int) for size in (*value.shape, *value.stride()))


def row_major(value: torch.Tensor) -> bool:
    """Whether it lies in row-major order without gaps, as far as numbers tell."""
    return _numbers(value) and value.is_contiguous()


def lies(value: torch.Tensor, order: Sequence[int]) -> bool:
    """Whether a tensor is dense, its dimensions in an order from outermost to innermost; one of size 1 lies anywhere."""
    expected = strides([value.shape[axis] for axis in order], None)
    return all(
        written(value.shape[axis]) == "1" or written(value.stride(axis)) == written(stride)
        for axis, stride in zip(order, expected)
    )


def _dense(value: torch.Tensor) -> tuple[int, ...] | None:
    """The permutation, the last dimension innermost, that the tensor is dense in, or None. A dimension of size 1 goes
    where its stride says, or where it stands."""
    sizes, strides = [written(size) for size in value.shape], [written(stride) for stride in value.stride()]
    rest = list(range(value.dim()))
    inner: list[int] = []
    expected: Any = 1
    while rest:
        stride = written(expected)
        fitting = [axis for axis in rest if strides[axis] == stride]
        ones = [axis for axis in fitting if sizes[axis] == "1"]
        if not inner:
            if rest[-1] not in fitting and sizes[-1] != "1":
                return None
            axis = rest[-1]
        elif fitting:
            axis = (ones or fitting)[-1]
        elif all(sizes[axis] == "1" for axis in rest):
            axis = rest[-1]
        else:
            return None
        inner.append(axis)
        rest.remove(axis)
        expected = expected * value.shape[axis] if rest else expected
    return tuple(reversed(inner))


def _row_major(order: tuple[int, ...], value: torch.Tensor) -> bool:
    """Whether an order moves nothing but dimensions of size 1."""
    moved = [axis for axis in order if written(value.shape[axis]) != "1"]
    return moved == sorted(moved)


def order_of(value: torch.Tensor) -> Order:
    """The order that gives a tensor's own strides; None also where there is no such order."""
    if value.dim() < 3 or row_major(value):
        return None  # two dimensions of which the last is innermost are row-major
    order = _dense(value)
    return None if order is None or _row_major(order, value) else order


def order_like(value: torch.Tensor) -> Order:
    """The order of the strides' sizes, for a tensor made to be read beside `value`; None where elements repeat or the
    last dimension is not innermost."""
    if value.dim() < 3 or row_major(value):
        return None
    order = _dense(value)
    if order is None:
        strides = [_hint(stride) for stride in value.stride()]
        several = [axis for axis in range(value.dim()) if written(value.shape[axis]) != "1"]
        if any(not strides[axis] for axis in several) or any(stride is None for stride in strides):
            return None
        order = tuple(sorted(range(value.dim()), key=lambda axis: -strides[axis]))  # stable: equal ones stay
        if order[-1] != value.dim() - 1:
            return None
    return None if _row_major(order, value) else order


def _hint(stride: Any) -> int | None:
    """A stride's number where it was traced."""
    if isinstance(stride, int):
        return stride
    return int(stride.node.hint) if stride.node.has_hint() else None


def strides(sizes: Sequence[Any], order: Order) -> list[Any]:
    """The strides of a dense tensor."""
    made: list[Any] = [1] * len(sizes)
    expected: Any = 1
    for axis in reversed(order or range(len(sizes))):
        made[axis] = expected
        size = sizes[axis]
        expected = expected * (max(size, 1) if isinstance(size, int) else size)
    return made


def suffix(orders: Sequence[Order]) -> str:
    """What tells a graph text with these output orders from the text alone; "" where all are row-major."""
    named = [f"{index}:{','.join(map(str, order))}" for index, order in enumerate(orders) if order is not None]
    return "".join(f"\norder {name}" for name in named)


def writable(plan: dict[str, Any], orders: Sequence[Order]) -> list[bool]:
    """For each output of a plan, whether a launch can write it in its order: dimensions that views of it make into others
    stay neighbours (docs/plan-format.md, "Outputs")."""
    outputs = [value for value in plan["values"] if value["kind"] == "output"]
    return [order is None or _keeps(value, order) for value, order in zip(outputs, orders)]


def strided(plan: dict[str, Any]) -> list[bool]:
    """For each input of a plan, whether its kernels read it well where its columns lie apart: they turn it."""
    read: dict[int, list[bool]] = {}
    for step in plan["steps"]:
        for program in step.get("programs", [step]):
            for operand in program.get("operands", ()):
                turns = program["skeleton"] == "turned" and operand.get("strided", False)
                read.setdefault(operand.get("value", -1), []).append(turns)
    values = plan["values"]
    viewed = {value["of"] for value in values if value["kind"] == "view"}
    inputs = [index for index, value in enumerate(values) if value["kind"] == "input"]
    return [index not in viewed and all(read.get(index, [False])) for index in inputs]


def _keeps(output: dict[str, Any], order: Sequence[int]) -> bool:
    several = [axis for axis in order if output["dims"][axis] != 1]
    places = [(run, several.index(run[0])) for run in output.get("together", ())]
    return all(several[at : at + len(run)] == run for run, at in places)
