"""Which torch calls the dialect has words for: two tables of spellings (torch level, ATen) into one of translations.

A translation writes a call as dialect operations that round where torch rounds: scalars are constants, promotion and
broadcasting are explicit. Whatever it cannot say exactly it refuses, and the importer keeps the call opaque.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx
import torch.nn.functional as F

from .text import Builder, TensorType, Value

_LOW_PRECISION = ("bf16", "f16")
_DTYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


class Refused(Exception):
    """This call has no exact translation; its text says why."""


class Call:
    """One call being translated: its arguments as values and numbers, its result type, and names for its operations."""

    def __init__(
        self, builder: Builder, node: fx.Node, values: Callable[[fx.Node], Value], expected: TensorType
    ) -> None:
        self.builder = builder
        self.node = node
        self.expected = expected
        self._values = values

    @property
    def name(self) -> str:
        """What every operation that the call becomes is named after."""
        return self.node.name

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

    def float_tensor(self, argument: Any) -> Value:
        value = self.tensor(argument)
        if not value.type.is_float:
            raise Refused(f"an operand of {value.type}")
        return value

    # Operations, skipped where they would change nothing, refused where tracing left shapes that do not fit.
    def cast(self, value: Value, element: str) -> Value:
        if value.type.element == element:
            return value
        return self.builder.convert("cast", value, value.type.with_element(element), self.name)

    def broadcast(self, value: Value, type: TensorType) -> Value:
        if value.type.dims == type.dims:
            return value
        aligned = type.dims[len(type.dims) - len(value.type.dims) :]
        if len(value.type.dims) > len(type.dims) or any(a not in (1, b) for a, b in zip(value.type.dims, aligned)):
            raise Refused(f"{value.type} does not broadcast to {type}")
        return self.builder.convert("broadcast", value, type.with_element(str(value.type.element)), self.name)

    def finish(self, value: Value) -> Value:
        """`value` under the node's own name: an identity that the dialect folds."""
        return self.builder.convert("reshape", value, value.type, self.name)


def _static_last(type: TensorType) -> int:
    if not type.dims or not isinstance(type.dims[-1], int):
        raise Refused("the last dimension is symbolic")
    return type.dims[-1]


def symbolic_float(argument: Any) -> torch.SymFloat | None:
    """The traced value of an argument that is a Python float which Dynamo keeps symbolic (`dynamic=True` does)."""
    if not isinstance(argument, fx.Node):
        return None
    value = argument.meta.get("example_value", argument.meta.get("val"))
    return value if isinstance(value, torch.SymFloat) and value.node.has_hint() else None


def _number(argument: Any) -> float:
    """A number, or what a symbolic one is now; who relies on that must guard it (rewriter.py does)."""
    symbolic = symbolic_float(argument)
    if symbolic is not None:
        return float(symbolic.node.hint)
    if isinstance(argument, (bool, int, float)):
        return float(argument)
    raise Refused("an operand that is neither tensor nor number")


def _is_number(argument: Any) -> bool:
    return not isinstance(argument, fx.Node) or symbolic_float(argument) is not None


def _representable(value: float, element: str) -> bool:
    return math.isnan(value) or torch.tensor(value, dtype=torch.float64).to(_DTYPES[element]).item() == value


def _elementwise(call: Call, op: str, arguments: list[Any]) -> Value:
    """A binary operation on tensors and numbers, as TensorIterator computes it: operands cast to the common dtype,
    numbers kept in the arithmetic's own precision, one rounding at the end."""
    operands = [_number(argument) if _is_number(argument) else call.tensor(argument) for argument in arguments]
    tensors = [operand for operand in operands if isinstance(operand, Value)]
    ranked = [value for value in tensors if value.type.dims] or tensors
    element = str(call.expected.element)
    if not call.expected.is_float:
        raise Refused(f"a result of {call.expected}")
    promoted = None
    for value in ranked:
        if value.type.is_float:
            dtype = _DTYPES[str(value.type.element)]
            promoted = dtype if promoted is None else torch.promote_types(promoted, dtype)
    if promoted is None or promoted != _DTYPES[element]:
        raise Refused(f"operands that promote to {promoted}, a result of {element}")
    numbers = [operand for operand in operands if isinstance(operand, float)]
    arithmetic = element
    if element in _LOW_PRECISION and not all(_representable(value, element) for value in numbers):
        arithmetic = "f32"
    wide = call.expected.with_element(arithmetic)
    written = []
    for index, operand in enumerate(operands):
        if isinstance(operand, Value):
            value = call.cast(operand, element)
            value = call.cast(value, arithmetic)
            written.append(call.broadcast(value, wide))
        else:
            written.append(call.builder.constant(operand, wide, call.name))
    if arithmetic == element:
        return call.builder.binary(op, written[0], written[1], call.name)
    value = call.builder.binary(op, written[0], written[1], call.name)
    return call.builder.convert("cast", value, call.expected, call.name)


def _binary(op: str) -> Callable[[Call], Value]:
    def translate(call: Call) -> Value:
        call.only("input", "other", "alpha")
        if call.argument(2, "alpha", 1) != 1:  # a third positional argument is alpha, or something unknown
            raise Refused("alpha")
        return _elementwise(call, op, [call.argument(0, "input"), call.argument(1, "other")])

    return translate


def _unary(op: str) -> Callable[[Call], Value]:
    def translate(call: Call) -> Value:
        call.only("input", "inplace")
        value = call.float_tensor(call.argument(0, "input"))
        value = call.cast(value, str(call.expected.element))  # autocast's, where the result is wider
        return call.builder.unary(op, value, call.name)

    return translate


def _pow(call: Call) -> Value:
    call.only("input", "exponent")
    exponent = _number(call.argument(1, "exponent"))
    value = call.float_tensor(call.argument(0, "input"))
    value = call.cast(value, str(call.expected.element))
    if exponent == 2:
        return call.builder.binary("mul", value, value, call.name)
    if exponent == -0.5:
        return call.builder.unary("rsqrt", value, call.name)
    raise Refused(f"exponent {exponent}")


def _square(call: Call) -> Value:
    value = call.float_tensor(call.argument(0, "input"))
    return call.builder.binary("mul", value, value, call.name)


def _reciprocal(call: Call) -> Value:
    value = call.float_tensor(call.argument(0, "input"))
    one = call.builder.constant(1.0, value.type, call.name)
    return call.builder.binary("div", one, value, call.name)


def _reduction(mean: bool) -> Callable[[Call], Value]:
    def translate(call: Call) -> Value:
        call.only("input", "dim", "keepdim", "dtype")
        value = call.float_tensor(call.argument(0, "input"))
        dim = call.argument(1, "dim")
        dims = [dim] if isinstance(dim, int) else list(dim or ())
        rank = len(value.type.dims)
        if rank == 0 or len(dims) != 1 or dims[0] % rank != rank - 1:
            raise Refused(f"a reduction over {dims}")
        columns = _static_last(value.type)
        element = str(call.expected.element)
        value = call.cast(value, element)
        wide = "f32" if element in _LOW_PRECISION else element
        value = call.cast(value, wide)
        row = TensorType((*value.type.dims[:-1], 1), wide)
        keepdim = bool(call.argument(2, "keepdim", False))
        value = call.builder.convert("reduce_sum", value, row, call.name)
        if mean:
            count = call.builder.constant(float(columns), row, call.name)
            value = call.builder.binary("div", value, count, call.name)
        value = call.cast(value, element)
        return value if keepdim else call.builder.convert("reshape", value, call.expected, call.name)

    return translate


def _cast(call: Call) -> Value:
    """`to`, `float`, `type` and their kin: the result type says what they do; where the data went must not."""
    value = call.tensor(call.argument(0, "input"))
    source = call.node.args[0].meta.get("example_value", call.node.args[0].meta.get("val"))
    result = call.node.meta.get("example_value", call.node.meta.get("val"))
    if source.device != result.device:
        raise Refused("a copy to another device")
    if value.type == call.expected:
        return call.finish(value)
    if not call.expected.is_float or value.type.dims != call.expected.dims:
        raise Refused(f"a cast from {value.type.element} to {call.expected.element}")
    return call.builder.convert("cast", value, call.expected, call.name)


def _reshape(call: Call) -> Value:
    value = call.tensor(call.argument(0, "input"))
    if value.type.element != call.expected.element:
        raise Refused("a view as another dtype")
    sizes = [[dim for dim in type.dims if isinstance(dim, int)] for type in (value.type, call.expected)]
    static = all(len(numbers) == len(type.dims) for numbers, type in zip(sizes, (value.type, call.expected)))
    if static and math.prod(sizes[0]) != math.prod(sizes[1]):
        raise Refused(f"{value.type} and {call.expected} have not as many elements")
    return call.builder.convert("reshape", value, call.expected, call.name)


def _expand(call: Call) -> Value:
    value = call.tensor(call.argument(0, "input"))
    if value.type == call.expected:
        return call.finish(value)
    return call.broadcast(value, call.expected)


def _identity(call: Call) -> Value:
    value = call.tensor(call.argument(0, "input"))
    if value.type != call.expected:
        raise Refused("a result of another type")
    return call.finish(value)


def _getitem(call: Call) -> Value:
    """Only what selects everything: slices from the start without a step, `...` and `None`."""
    index = call.argument(1, "index")
    for item in index if isinstance(index, tuple) else (index,):
        whole = isinstance(item, slice) and item.start in (None, 0) and item.step in (None, 1)
        if not (whole or item is Ellipsis or item is None):
            raise Refused("an index that selects")
    value = call.tensor(call.argument(0, "input"))
    if [dim for dim in value.type.dims if dim != 1] != [dim for dim in call.expected.dims if dim != 1]:
        raise Refused("a slice that shortens")
    return _reshape(call)


def _dropout(call: Call) -> Value:
    probability = call.argument(1, "p", 0.5)
    training = call.argument(2, "training", True)
    if training is False or probability == 0:
        return _identity(call)
    raise Refused("random numbers")


def _matmul(transpose_rhs: bool) -> Callable[[Call], Value]:
    def translate(call: Call) -> Value:
        call.only("input", "weight", "other", "mat2", "bias")
        if transpose_rhs and call.argument(2, "bias") is not None:
            raise Refused("a bias")
        rhs_name = "weight" if transpose_rhs else ("mat2" if "mat2" in call.node.kwargs else "other")
        lhs = call.float_tensor(call.argument(0, "input"))
        rhs = call.float_tensor(call.argument(1, rhs_name))
        if len(lhs.type.dims) < 2 or len(rhs.type.dims) != 2:
            raise Refused("operands that are not a matrix on the right of matrices")
        inner, columns = rhs.type.dims if not transpose_rhs else reversed(rhs.type.dims)
        if lhs.type.dims[-1] != inner or call.expected.dims != (*lhs.type.dims[:-1], columns):
            raise Refused("shapes that do not fit")
        element = str(call.expected.element)
        lhs, rhs = call.cast(lhs, element), call.cast(rhs, element)
        return call.builder.matmul(lhs, rhs, call.expected, transpose_rhs, call.name)

    return translate


TRANSLATIONS: dict[str, Callable[[Call], Value]] = {
    "add": _binary("add"),
    "sub": _binary("sub"),
    "mul": _binary("mul"),
    "div": _binary("div"),
    "neg": _unary("neg"),
    "exp": _unary("exp"),
    "rsqrt": _unary("rsqrt"),
    "sigmoid": _unary("sigmoid"),
    "silu": _unary("silu"),
    "pow": _pow,
    "square": _square,
    "reciprocal": _reciprocal,
    "mean": _reduction(mean=True),
    "sum": _reduction(mean=False),
    "cast": _cast,
    "reshape": _reshape,
    "expand": _expand,
    "identity": _identity,
    "getitem": _getitem,
    "dropout": _dropout,
    "linear": _matmul(transpose_rhs=True),
    "matmul": _matmul(transpose_rhs=False),
}

# Spellings at the torch level. Tensor methods by name:
_ARITHMETIC = "add sub mul div neg exp rsqrt sigmoid pow square reciprocal mean sum".split()
_METHODS = {name: name for name in [*_ARITHMETIC, "matmul", "expand"]}
_METHODS |= {name: name.strip("_") for name in "__add__ __sub__ __mul__ __matmul__ __pow__ __neg__".split()}
_METHODS |= {"__truediv__": "div", "true_divide": "div", "divide": "div", "multiply": "mul", "subtract": "sub"}
_METHODS |= {"negative": "neg", "mm": "matmul", "__getitem__": "getitem", "contiguous": "identity", "clone": "identity"}
_METHODS |= {name: "cast" for name in "to float half bfloat16 double type type_as".split()}
_METHODS |= {name: "reshape" for name in "view reshape flatten unsqueeze squeeze unflatten view_as reshape_as".split()}
_METHODS |= {"expand_as": "expand"}

# Functions by object:
_FUNCTIONS: dict[Any, str] = {
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.truediv: "div",
    operator.neg: "neg",
    operator.pow: "pow",
    operator.matmul: "matmul",
    operator.getitem: "getitem",
    torch.clone: "identity",
    torch.mm: "matmul",
    torch._C._nn.linear: "linear",
    F.silu: "silu",
    torch._C._nn.silu: "silu",
    F.sigmoid: "sigmoid",
    F.dropout: "dropout",
}
_FUNCTIONS |= {getattr(torch, name): _METHODS[name] for name in [*_ARITHMETIC, "matmul"]}
_FUNCTIONS |= {
    getattr(torch, name): _METHODS[name]
    for name in "true_divide divide multiply subtract negative reshape flatten unsqueeze squeeze unflatten".split()
}

# ATen, by packet: the overloads differ in what the translations read anyway.
_ATEN = {name: name for name in [*_ARITHMETIC, "silu", "expand"]}
_ATEN |= {"mm": "matmul", "matmul": "matmul", "linear": "linear", "clone": "identity", "alias": "identity"}
_ATEN |= {name: "reshape" for name in "view reshape _unsafe_view flatten unsqueeze squeeze".split()}
_ATEN |= {"_to_copy": "cast", "to": "cast"}


def translation(node: fx.Node) -> Callable[[Call], Value] | None:
    """How to write `node`, or None where no table knows its target."""
    target = node.target
    if node.op == "call_method":
        return TRANSLATIONS.get(_METHODS.get(str(target), ""))
    if node.op != "call_function":
        return None
    if isinstance(target, torch._ops.OpOverload):
        return TRANSLATIONS.get(_ATEN.get(target.overloadpacket.__name__, "")) if target.namespace == "aten" else None
    try:
        return TRANSLATIONS.get(_FUNCTIONS.get(target, ""))
    except TypeError:  # an unhashable callable
        return None
