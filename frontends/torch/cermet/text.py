"""Graph text: Cermet's public text form (docs/ir.md), written from tensor types and values.

A `Builder` collects one function. Every operation carries its location's name, which is how answers about the graph
(`match`) name values. Nothing here knows FX or torch beyond dtypes.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Hashable, Sequence

import torch

from . import native

_ROWS = {getattr(torch, row["array_name"]): row for row in native.facts()["element_types"]}
# A dtype that is not among them has no tensor type and is written `none`.
ELEMENT_TYPES: dict[torch.dtype, str] = {dtype: row["graph_name"] for dtype, row in _ROWS.items()}
# Floats of eight bits, which memory has: nothing is computed with them.
STORED = tuple(dtype for dtype, row in _ROWS.items() if row["class"] == "real" and row["bytes"] == 1)
REALS, INTEGERS = (
    tuple(dtype for dtype, row in _ROWS.items() if row["class"] == kind and dtype not in STORED)
    for kind in ("real", "integer")
)
FLOATS = tuple(ELEMENT_TYPES[dtype] for dtype in REALS)
_REALS = {ELEMENT_TYPES[dtype]: _ROWS[dtype] for dtype in REALS}

Dim = int | str  # a number, or a symbol's name


@dataclasses.dataclass(frozen=True)
class TensorType:
    """Shape and element type; `element` is None for what the dialect has no tensor of (then it prints as `none`)."""

    dims: tuple[Dim, ...]
    element: str | None

    def __str__(self) -> str:
        if self.element is None:
            return "none"
        shape = "".join(f"{dim}x" if isinstance(dim, int) else "?x" for dim in self.dims)
        symbols = [dim for dim in self.dims if isinstance(dim, str)]
        suffix = f", #cermet.symbols<[{', '.join(map(quote, symbols))}]>" if symbols else ""
        return f"tensor<{shape}{self.element}{suffix}>"

    @property
    def is_float(self) -> bool:
        return self.element in FLOATS

    def with_element(self, element: str) -> TensorType:
        return TensorType(self.dims, element)


@dataclasses.dataclass(frozen=True)
class Value:
    """An SSA value of the text."""

    ssa: str
    type: TensorType


def quote(text: str) -> str:
    """A string literal that MLIR's lexer reads back to the same bytes."""
    out = []
    for byte in text.encode():
        printable = 32 <= byte < 127 and byte not in (0x22, 0x5C)
        out.append(chr(byte) if printable else f"\\{byte:02X}")
    return '"' + "".join(out) + '"'


def number(value: float, element: str) -> str:
    """A literal of a constant: decimal where that is exact to read back, the element type's bits for infinities and NaN,
    which only reals have."""
    if math.isfinite(value):
        mantissa, _, exponent = repr(float(value)).partition("e")
        if "." not in mantissa:
            mantissa += ".0"
        return mantissa + (f"e{exponent}" if exponent else "")
    row = _REALS[element]
    fraction, whole = row["digits"] - 1, 8 * row["bytes"]
    exponent = (1 << whole - 1) - (1 << fraction)
    bits = exponent | (1 << fraction - 1 if math.isnan(value) else 0) | (1 << whole - 1 if value < 0 else 0)
    return f"0x{bits:0{whole // 4}X}"


# Operations that compute nothing for each element, or are no work of ours.
_FOREIGN = {"opaque", "matmul"}
_MOVING = _FOREIGN | set("constant iota random broadcast reshape transpose slice concat gather".split())


def _private(text: str, name: str) -> str:
    """The function of a graph text, under another name, as one that others of its module may name."""
    function = text[text.index("func.func @") : text.rindex("}")].rstrip()
    return "  " + re.sub(r"^func\.func @[\w$.]+", f"func.func private @{name}", function)


class Builder:
    """One function of a graph text, in order. Values are never checked here: the library's verifiers do that."""

    def __init__(self, name: str, differentiable: bool = True) -> None:
        """`differentiable`: somebody may want a gradient of it."""
        self.differentiable = differentiable
        self.sizes: dict[str, int] = {}  # of symbols for now, by which bytes are judged
        # By whatever a frontend calls them: the values that are one with its columns in the opposite order, or the
        # cumulative sums of one in that order, and which those are.
        self.turned: dict[Hashable, Value] = {}
        self.summed: set[Hashable] = set()
        self._attributes = "cermet.version = 1 : i64" + ("" if differentiable else ", cermet.no_gradient")
        self._name = re.sub(r"\W", "_", name) or "graph"
        self._arguments: list[str] = []
        self._body: list[str] = []
        self._operations: list[tuple[str, str]] = []  # of each line of the body: what it is, and its name
        self._results: list[Value] = []
        self._bodies: dict[str, str] = {}  # graph texts, as private functions of these names
        self._next = 0

    def argument(self, type: TensorType, name: str, strides: Sequence[int] | None = None) -> Value:
        value = Value(f"%arg{len(self._arguments)}", type)
        attributes = ""
        if strides is not None:
            attributes = f" {{cermet.strides = array<i64: {', '.join(map(str, strides))}>}}"
        self._arguments.append(f"{value.ssa}: {type}{attributes} loc({quote(name)})")
        return value

    def _line(self, result: str, op: str, text: str, name: str) -> None:
        self._body.append(f"    {result}cermet.{op} {text} loc({quote(name)})")
        self._operations.append((op if result else "", name))

    def _fresh(self) -> str:
        self._next += 1
        return f"%{self._next - 1}"

    def _result(self, op: str, text: str, type: TensorType, name: str) -> Value:
        """The one result of an operation whose operands and types are `text`."""
        value = Value(self._fresh(), type)
        self._line(f"{value.ssa} = ", op, text, name)
        return value

    def unary(self, op: str, operand: Value, name: str) -> Value:
        return self._result(op, f"{operand.ssa} : {operand.type}", operand.type, name)

    def binary(self, op: str, lhs: Value, rhs: Value, name: str) -> Value:
        return self._result(op, f"{lhs.ssa}, {rhs.ssa} : {lhs.type}", lhs.type, name)

    def convert(self, op: str, operand: Value, type: TensorType, name: str) -> Value:
        """cast, broadcast, reshape, reductions: one operand and a result type of its own."""
        return self._result(op, f"{operand.ssa} : {operand.type} to {type}", type, name)

    def constant(self, value: float, type: TensorType, name: str) -> Value:
        return self._result("constant", f"{number(value, str(type.element))} : {type}", type, name)

    def placed(self, op: str, operand: Value, places: Sequence[int], type: TensorType, name: str) -> Value:
        """slice, transpose: one operand, a list of integers and a result type of its own."""
        return self._result(op, f"{operand.ssa} {list(places)} : {operand.type} to {type}", type, name)

    def compare(self, predicate: str, lhs: Value, rhs: Value, name: str) -> Value:
        type = lhs.type.with_element("i1")
        return self._result("compare", f"{quote(predicate)}, {lhs.ssa}, {rhs.ssa} : {lhs.type} to {type}", type, name)

    def select(self, condition: Value, lhs: Value, rhs: Value, name: str) -> Value:
        operands = f"{condition.ssa}, {lhs.ssa}, {rhs.ssa}"
        return self._result("select", f"{operands} : {condition.type}, {lhs.type}", lhs.type, name)

    def iota(self, dim: int, type: TensorType, name: str) -> Value:
        return self._result("iota", f"{dim} : {type}", type, name)

    def concat(self, operands: Sequence[Value], dim: int, type: TensorType, name: str) -> Value:
        names, types = (", ".join(part) for part in zip(*((item.ssa, str(item.type)) for item in operands)))
        return self._result("concat", f"{names} {{dim = {dim} : i64}} : {types} to {type}", type, name)

    def gather(self, source: Value, index: Value, type: TensorType, name: str) -> Value:
        text = f"{source.ssa}, {index.ssa} : {source.type}, {index.type} to {type}"
        return self._result("gather", text, type, name)

    def embedding_bag(
        self,
        source: Value,
        index: Value,
        begins: Value,
        ends: Value,
        sums: Value | None,
        type: TensorType,
        name: str,
    ) -> Value:
        operands = ", ".join(value.ssa for value in (source, index, begins, ends))
        of_sums, type_of_sums = ("", "") if sums is None else (f" sums {sums.ssa}", f" sums {sums.type}")
        text = f"{operands}{of_sums} : {source.type}, {index.type}, {begins.type}{type_of_sums} to {type}"
        return self._result("embedding_bag", text, type, name)

    def cumsum(self, operand: Value, reverse: bool, name: str) -> Value:
        attribute = " {reverse}" if reverse else ""
        return self._result("cumsum", f"{operand.ssa}{attribute} : {operand.type}", operand.type, name)

    def pick(self, rows: Value, index: Value, name: str) -> Value:
        type = TensorType((*rows.type.dims[:-1], 1), rows.type.element)
        return self._result("pick", f"{rows.ssa}, {index.ssa} : {rows.type}, {index.type} to {type}", type, name)

    def matmul(self, lhs: Value, rhs: Value, type: TensorType, transpose_rhs: bool, name: str) -> Value:
        attribute = " {transpose_rhs}" if transpose_rhs else ""
        text = f"{lhs.ssa}, {rhs.ssa}{attribute} : {lhs.type}, {rhs.type} to {type}"
        return self._result("matmul", text, type, name)

    def opaque(
        self,
        target: str,
        operands: Sequence[Value],
        types: Sequence[TensorType],
        name: str,
        effect: str = "pure",
        versions: int = 0,
        body: str = "",
        dense: Sequence[int] = (),
    ) -> list[Value]:
        """`body`: the text of a graph that computes the same, where one is known; `dense`: the results that are
        contiguous."""
        count = len(types)
        values = [Value(self._fresh(), types[0])] if count == 1 else []
        prefix = f"{values[0].ssa} = " if values else ""
        if count > 1:
            pack = self._fresh()
            values = [Value(f"{pack}#{i}", type) for i, type in enumerate(types)]
            prefix = f"{pack}:{count} = "
        attributes = [f"effect = {quote(effect)}"] if effect != "pure" else []
        attributes += [f"versions = {versions} : i64"] if versions else []
        attributes += [f"cermet.body = @{self._bodies.setdefault(body, f'body_{len(self._bodies)}')}"] if body else []
        attributes += [f"cermet.dense = array<i64: {', '.join(map(str, dense))}>"] if dense else []
        attribute_text = f" {{{', '.join(attributes)}}}" if attributes else ""
        inputs = ", ".join(str(operand.type) for operand in operands)
        outputs = ", ".join(map(str, types))
        outputs = outputs if count == 1 else f"({outputs})"
        arguments = ", ".join(operand.ssa for operand in operands)
        type = f"({inputs}) -> {outputs}"
        self._line(prefix, "opaque", f"{quote(target)}({arguments}){attribute_text} : {type}", name)
        return values

    def mark(self) -> int:
        """A place to roll back to."""
        return len(self._body)

    def rollback(self, mark: int) -> None:
        """Forgets every operation after `mark`; nothing may use their values."""
        del self._body[mark:], self._operations[mark:]

    def computing(self) -> frozenset[str]:
        """The names under which something is computed for each element, or reduced, and nothing that no pattern knows:
        kernels of others come with the casts that autocast puts before them."""
        foreign = {name for op, name in self._operations if op in _FOREIGN}
        return frozenset(name for op, name in self._operations if op and op not in _MOVING) - foreign

    def result(self, value: Value) -> None:
        self._results.append(value)

    def text(self) -> str:
        types = ", ".join(str(value.type) for value in self._results)
        values = ", ".join(value.ssa for value in self._results)
        last = f"    return {values} : {types}" if self._results else "    return"
        signature = f"({', '.join(self._arguments)})" + (f" -> ({types})" if self._results else "")
        sizes = ", ".join(f"{quote(symbol)} = {size} : i64" for symbol, size in self.sizes.items())
        attributes = self._attributes + (f", cermet.sizes = {{{sizes}}}" if sizes else "")
        lines = [
            f"module attributes {{{attributes}}} {{",
            f"  func.func @{self._name}{signature} {{",
            *self._body,
            last,
            "  }",
            *(_private(text, name) for text, name in self._bodies.items()),
            "}",
            "",
        ]
        return "\n".join(lines)
