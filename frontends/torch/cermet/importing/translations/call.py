"""One traced call while it is being translated: its arguments as values and numbers, and operations under its name.

What a translation may rely on: operations that would change nothing are not written, shapes that do not fit are
refused, and a refusal leaves no trace in the text (importer.py rolls back).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from ...graph.nodes import example
from ...text import ELEMENT_TYPES, Builder, Dim, TensorType, Value

LOW_PRECISION = ("bf16", "f16")
DTYPES = {element: dtype for dtype, element in ELEMENT_TYPES.items()}
_MAX_EXACT_INTEGER = 1 << 53  # constants of the text are float64


class Refused(Exception):
    """This call has no exact translation; its text says why."""


def wide(element: str) -> str:
    """The type that torch computes in for operands of this element type."""
    return "f32" if element in LOW_PRECISION else element


def _limits(element: str) -> tuple[int, int]:
    limits = torch.iinfo(DTYPES[element])
    return limits.min, limits.max


def element_count(dims: Sequence[Dim]) -> int:
    """The product of static dimensions. Raises Refused where one is symbolic."""
    if not all(isinstance(dim, int) for dim in dims):
        raise Refused("a number of elements that is symbolic")
    return math.prod(int(dim) for dim in dims)


def symbolic_float(argument: Any) -> torch.SymFloat | None:
    """The traced value of an argument that is a Python float which Dynamo keeps symbolic (`dynamic=True` does)."""
    if not isinstance(argument, fx.Node):
        return None
    value = example(argument)
    return value if isinstance(value, torch.SymFloat) and value.node.has_hint() else None


def is_number(argument: Any) -> bool:
    return isinstance(argument, (bool, int, float)) or symbolic_float(argument) is not None


class Call:
    """A node, what its operands are in the text, and the types of its result (`expected`) or results (`parts`)."""

    def __init__(
        self,
        builder: Builder,
        node: fx.Node,
        values: Callable[[fx.Node], Value],
        expected: TensorType | None,
        parts: Sequence[TensorType | None] = (),
    ) -> None:
        self.builder = builder
        self.node = node
        self.parts = tuple(parts)
        self.name = node.name  # what every operation that the call becomes is named after
        self._expected = expected
        self._values = values

    @property
    def expected(self) -> TensorType:
        if self._expected is None:
            raise Refused("a result that is not one tensor")
        return self._expected

    @property
    def element(self) -> str:
        return str(self.expected.element)

    # --- Arguments ---------------------------------------------------------------------------------------------------

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        if position < len(self.node.args):
            return self.node.args[position]
        return self.node.kwargs.get(name, default)

    def only(self, *allowed: str) -> None:
        """Refuses keyword arguments that are set and not named here."""
        for name, value in self.node.kwargs.items():
            if name not in allowed and value is not None:
                raise Refused(f"argument {name}")

    def tensor(self, argument: Any) -> Value:
        if not isinstance(argument, fx.Node):
            raise Refused("an operand that is not a tensor")
        value = self._values(argument)
        if value.type.element is None:
            raise Refused("an operand of a type that the dialect does not have")
        return value

    def input(self) -> Value:
        return self.tensor(self.argument(0, "input"))

    def float_tensor(self, argument: Any) -> Value:
        value = self.tensor(argument)
        if not value.type.is_float:
            raise Refused(f"an operand of {value.type}")
        return value

    def number(self, argument: Any) -> float:
        """A number, or what a symbolic one is now: only of a positional argument, which matches.py then guards."""
        symbolic = symbolic_float(argument)
        if symbolic is not None and any(argument is item for item in self.node.args):
            return float(symbolic.node.hint)
        if not isinstance(argument, (bool, int, float)):
            raise Refused("an operand that is neither tensor nor number")
        if isinstance(argument, int) and abs(argument) > _MAX_EXACT_INTEGER:
            raise Refused(f"the integer {argument}, expected at most 2^53")
        return float(argument)

    def integer(self, argument: Any) -> int:
        if not isinstance(argument, int) or isinstance(argument, bool):
            raise Refused(f"{argument!r} where a static integer is expected")
        return argument

    def dimension(self, argument: Any, rank: int) -> int:
        """A dimension's number, counted from 0."""
        dim = self.integer(argument)
        if not -rank <= dim < rank:
            raise Refused(f"dimension {dim} of rank {rank}")
        return dim % rank

    # --- Operations --------------------------------------------------------------------------------------------------

    def unary(self, op: str, value: Value) -> Value:
        return self.builder.unary(op, value, self.name)

    def binary(self, op: str, lhs: Value, rhs: Value) -> Value:
        return self.builder.binary(op, lhs, rhs, self.name)

    def constant(self, value: float, type: TensorType) -> Value:
        if not (type.is_float or math.isfinite(value)):
            raise Refused(f"the number {value} as {type.element}")
        return self.builder.constant(value, type, self.name)

    def number_as(self, value: float, type: TensorType) -> Value:
        """A constant, where the number is one of an integer or boolean type."""
        if not type.is_float:
            low, high = (0, 1) if type.element == "i1" else _limits(str(type.element))
            if not (math.isfinite(value) and value == int(value) and low <= value <= high):
                raise Refused(f"the number {value} as {type.element}")
        return self.constant(value, type)

    def constant_like(self, number: float, value: Value) -> Value:
        return self.constant(number, value.type)

    def compare(self, predicate: str, lhs: Value, rhs: Value) -> Value:
        return self.builder.compare(predicate, lhs, rhs, self.name)

    def select(self, condition: Value, lhs: Value, rhs: Value) -> Value:
        return self.builder.select(condition, lhs, rhs, self.name)

    def iota(self, dim: int, type: TensorType) -> Value:
        return self.builder.iota(dim, type, self.name)

    def cast(self, value: Value, element: str) -> Value:
        if value.type.element == element:
            return value
        return self.builder.convert("cast", value, value.type.with_element(element), self.name)

    def widened(self, value: Value, element: str) -> Value:
        """As `cast`, for a promotion: autocast's to f32, an integer to a float. Refuses what would lose."""
        if torch.promote_types(DTYPES[str(value.type.element)], DTYPES[element]) != DTYPES[element]:
            raise Refused(f"an operand of {value.type.element} and a result of {element}")
        return self.cast(value, element)

    def broadcast(self, value: Value, type: TensorType) -> Value:
        """`value` in the shape of `type`."""
        if value.type.dims == type.dims:
            return value
        aligned = type.dims[len(type.dims) - len(value.type.dims) :]
        if len(value.type.dims) > len(type.dims) or any(a not in (1, b) for a, b in zip(value.type.dims, aligned)):
            raise Refused(f"{value.type} does not broadcast to {type}")
        return self.builder.convert("broadcast", value, type.with_element(str(value.type.element)), self.name)

    def reshape(self, value: Value, dims: Sequence[Dim]) -> Value:
        dims = tuple(dims)
        if value.type.dims == dims:
            return value
        static = all(isinstance(dim, int) for dim in (*value.type.dims, *dims))
        if static and element_count(value.type.dims) != element_count(dims):
            raise Refused(f"{value.type} and {TensorType(dims, value.type.element)} have not as many elements")
        if len(dims) > 8:
            raise Refused("more than 8 dimensions")
        return self.builder.convert("reshape", value, TensorType(dims, value.type.element), self.name)

    def finish(self, value: Value) -> Value:
        """`value` under the node's own name: an identity that the dialect folds."""
        return self.builder.convert("reshape", value, value.type, self.name)

    def shaped(self, value: Value, source: Value, dims: Sequence[Dim]) -> Value:
        """`value` in a result's shape; `finish`ed where nothing has been done to `source` so far."""
        result = self.reshape(value, dims)
        return self.finish(result) if result is source else result

    def reduce(self, op: str, value: Value) -> Value:
        """`reduce_sum`, `reduce_max` or `reduce_min` over the last dimension, which stays as 1."""
        if not value.type.dims:
            raise Refused("a reduction of rank 0")
        type = TensorType((*value.type.dims[:-1], 1), value.type.element)
        return self.builder.convert(op, value, type, self.name)

    def cumsum(self, value: Value, reverse: bool) -> Value:
        """Of each column the sum of those up to it along the last dimension, or of those from it on."""
        return self.builder.cumsum(value, reverse, self.name)

    def pick(self, rows: Value, columns: Value) -> Value:
        """Of [N, V] the element of each row at the column that [N, 1] has."""
        return self.builder.pick(rows, columns, self.name)

    def sum_rows(self, value: Value) -> Value:
        type = TensorType(value.type.dims[-1:], value.type.element)
        return self.builder.convert("sum_rows", value, type, self.name)

    def transpose(self, value: Value, permutation: Sequence[int]) -> Value:
        if list(permutation) == sorted(permutation):
            return self.finish(value)
        type = TensorType(tuple(value.type.dims[dim] for dim in permutation), value.type.element)
        return self.builder.placed("transpose", value, permutation, type, self.name)

    def slice(self, value: Value, starts: Sequence[int], dims: Sequence[Dim]) -> Value:
        """The box of sizes `dims` from `starts`; a symbolic dimension of floats must be whole (how many zeros its
        gradient would have around it is not known)."""
        if tuple(dims) == value.type.dims:
            return value
        for start, size, whole in zip(starts, dims, value.type.dims):
            if start < 0:
                raise Refused("a start that depends on a symbolic size")
            if isinstance(whole, int):
                if not isinstance(size, int) or start + size > whole:
                    raise Refused(f"{size} elements from {start} of {whole}")
            elif value.type.is_float if size != whole else start != 0:
                raise Refused("a slice of a symbolic dimension")
        type = TensorType(tuple(dims), value.type.element)
        return self.builder.placed("slice", value, starts, type, self.name)

    def slice_along(self, value: Value, dim: int, start: int, size: Dim) -> Value:
        dims = list(value.type.dims)
        dims[dim] = size
        return self.slice(value, [start if i == dim else 0 for i in range(len(dims))], dims)

    def concat(self, values: Sequence[Value], dim: int) -> Value:
        if len(values) == 1:
            return self.finish(values[0])
        first = values[0].type
        total = 0
        for value in values:
            own = value.type.dims
            beside = (*own[:dim], *own[dim + 1 :]) == (*first.dims[:dim], *first.dims[dim + 1 :])
            if len(own) != len(first.dims) or not beside or not isinstance(own[dim], int):
                raise Refused(f"{value.type} beside {first} along dimension {dim}")
            total += int(own[dim])
        dims = (*first.dims[:dim], total, *first.dims[dim + 1 :])
        return self.builder.concat(values, dim, TensorType(dims, first.element), self.name)
