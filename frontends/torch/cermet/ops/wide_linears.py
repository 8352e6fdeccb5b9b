"""Thin linear layers in f32 on and onto tensors of sixteen bits, as adapters have them, as one call each while autograd
traces.

- `cermet_v1::wide_linear(x, weight)`: `linear(x.float(), weight)`.
- `cermet_v1::add_wide_linear(held, x, weight, factor)`: `held + linear(x, weight) * factor`, in f32 and rounded once to
  the type of `held`.
- `cermet_v1::wide_linear_forward`, `_input`, `_weight`, `add_wide_linear_forward`, `_input`, `_weight`: what those
  compute and their gradients. remainder/wide_linears.py writes other calls in their places.

`split` is how a matrix in f32 comes to the units that multiply bf16: a number of f32 is the sum of three of bf16, so its
product with one of bf16 is three products of those, and with one of f32 six: the other three are less than f32 tells of
the sum.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from ..text import Builder, TensorType
from . import regions
from .regions import NAMESPACE

EACH = (0, 1, 2)  # part of a number, the largest first
LEFT, RIGHT = (0, 1, 2, 0, 0, 1), (2, 1, 0, 0, 1, 0)  # the parts that six products are of; LEFT begins with EACH

_SCHEMAS = (
    "wide_linear(Tensor x, Tensor weight) -> Tensor",
    "wide_linear_forward(Tensor x, Tensor weight) -> Tensor",
    "wide_linear_input(Tensor cotangent, Tensor weight, ScalarType dtype) -> Tensor",
    "wide_linear_weight(Tensor cotangent, Tensor x) -> Tensor",
    "add_wide_linear(Tensor held, Tensor x, Tensor weight, float factor) -> Tensor",
    "add_wide_linear_forward(Tensor held, Tensor x, Tensor weight, float factor) -> Tensor",
    "add_wide_linear_input(Tensor cotangent, Tensor weight, float factor) -> Tensor",
    "add_wide_linear_weight(Tensor cotangent, Tensor x, float factor) -> Tensor",
)


@functools.cache
def split(columns: int, sides: tuple[int, ...], factor: float) -> int:
    """The key of the region f32 [rows, columns] -> bf16 [rows, sides x columns]: of `factor` times the numbers these
    parts, side by side."""
    return _split(("r0", columns), ("r0", 1, columns), 1, ("r0", len(sides) * columns), sides, factor)


@functools.cache
def split_down(rows: int, columns: int, sides: tuple[int, ...]) -> int:
    """The same of f32 [rows, columns] -> bf16 [sides x rows, columns], one below the other."""
    return _split((rows, columns), (1, rows, columns), 0, (len(sides) * rows, columns), sides, 1.0)


def _split(
    dims: tuple[int | str, ...],
    apart: tuple[int | str, ...],
    dim: int,
    result: tuple[int | str, ...],
    sides: tuple[int, ...],
    factor: float,
) -> int:
    """Each number is read for each of its parts in the result, where `dim` of `apart` says which that is."""
    builder = Builder("split", differentiable=False)
    x = builder.argument(TensorType(dims, "f32"), "x")
    wide = TensorType((*apart[:dim], len(sides), *apart[dim + 1 :]), "f32")
    rest = builder.convert("reshape", x, TensorType(apart, "f32"), "x")
    rest = builder.convert("broadcast", rest, wide, "x")
    if factor != 1.0:
        rest = builder.binary("mul", rest, builder.constant(factor, wide, "factor"), "scaled")
    parts = []
    for part in EACH:
        parts.append(builder.convert("cast", rest, wide.with_element("bf16"), f"part{part}"))
        if part != EACH[-1]:
            rest = builder.binary("sub", rest, builder.convert("cast", parts[-1], wide, "part"), "rest")
    place = builder.iota(dim, wide.with_element("i32"), "place")
    chosen = parts[0]
    for at, side in enumerate(sides):
        if side:
            here = builder.compare("eq", place, builder.constant(float(at), place.type, "at"), "here")
            chosen = builder.select(here, parts[side], chosen, "chosen")
    builder.result(builder.convert("reshape", chosen, TensorType(result, "bf16"), "parts"))
    return regions.register(builder.text())


def _rows(value: torch.Tensor) -> torch.Tensor:
    return value.reshape(-1, value.shape[-1])


def _forward(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.linear(x.float(), weight)


def _input(cotangent: torch.Tensor, weight: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.matmul(cotangent, weight).to(dtype)


def _weight(cotangent: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.mm(_rows(cotangent).t(), _rows(x).float())


def _add_forward(held: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, factor: float) -> torch.Tensor:
    return (held + torch.nn.functional.linear(x, weight) * factor).to(held.dtype)


def _add_input(cotangent: torch.Tensor, weight: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.matmul(cotangent.float() * factor, weight)


def _add_weight(cotangent: torch.Tensor, x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.mm((_rows(cotangent).float() * factor).t(), _rows(x))


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        of_x, of_weight = ctx.needs_input_grad
        ctx.save_for_backward(x if of_weight else None, weight if of_x else None)
        ctx.dtype = x.dtype
        ctx.set_materialize_grads(False)
        return FORWARD(x, weight)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        if cotangent is None:
            return None, None
        x, weight = ctx.saved_tensors
        of_x, of_weight = ctx.needs_input_grad
        weights = WEIGHT(cotangent, x) if of_weight else None
        return INPUT(cotangent, weight, ctx.dtype) if of_x else None, weights


class _AddLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, held: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, factor: float
    ) -> torch.Tensor:
        _, of_x, of_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if of_weight else None, weight if of_x else None)
        ctx.factor = factor
        ctx.set_materialize_grads(False)
        return ADD_FORWARD(held, x, weight, factor)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        if cotangent is None:
            return None, None, None, None
        x, weight = ctx.saved_tensors
        of_held, of_x, of_weight, _ = ctx.needs_input_grad
        weights = ADD_WEIGHT(cotangent, x, ctx.factor) if of_weight else None
        inputs = ADD_INPUT(cotangent, weight, ctx.factor) if of_x else None
        return cotangent if of_held else None, inputs, weights, None


def _recorded(*given: torch.Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given)


def _linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return _Linear.apply(x, weight) if _recorded(x, weight) else FORWARD(x, weight)


def _add_linear(held: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, factor: float) -> torch.Tensor:
    given = held, x, weight, factor
    return _AddLinear.apply(*given) if _recorded(held, x, weight) else ADD_FORWARD(*given)


def _define() -> torch.library.Library:
    ops = torch.library.Library(NAMESPACE, "FRAGMENT")
    for schema in _SCHEMAS:
        ops.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    ops.impl("wide_linear", _linear, "CompositeImplicitAutograd")
    ops.impl("add_wide_linear", _add_linear, "CompositeImplicitAutograd")
    kernels = {
        "wide_linear_forward": _forward,
        "wide_linear_input": _input,
        "wide_linear_weight": _weight,
        "add_wide_linear_forward": _add_forward,
        "add_wide_linear_input": _add_input,
        "add_wide_linear_weight": _add_weight,
    }
    for name, kernel in kernels.items():
        ops.impl(name, kernel, "CompositeExplicitAutograd")
    f32 = torch.float32
    metas = {
        "wide_linear_forward": lambda x, weight: x.new_empty((*x.shape[:-1], weight.shape[0]), dtype=f32),
        "wide_linear_input": lambda given, weight, dtype: given.new_empty(
            (*given.shape[:-1], weight.shape[1]), dtype=dtype
        ),
        "wide_linear_weight": lambda given, x: given.new_empty((given.shape[-1], x.shape[-1])),
        "add_wide_linear_forward": lambda held, x, weight, factor: held.new_empty(held.shape),
        "add_wide_linear_input": lambda given, weight, factor: given.new_empty(
            (*given.shape[:-1], weight.shape[1]), dtype=f32
        ),
        "add_wide_linear_weight": lambda given, x, factor: x.new_empty((given.shape[-1], x.shape[-1])),
    }
    for name, meta in metas.items():
        ops.impl(name, meta, "Meta")
    return ops


_library = _define()
_ops = getattr(torch.ops, NAMESPACE)
WIDE_LINEAR, ADD_WIDE_LINEAR = _ops.wide_linear.default, _ops.add_wide_linear.default
FORWARD, INPUT = _ops.wide_linear_forward.default, _ops.wide_linear_input.default
WEIGHT = _ops.wide_linear_weight.default
ADD_FORWARD, ADD_INPUT = _ops.add_wide_linear_forward.default, _ops.add_wide_linear_input.default
ADD_WEIGHT = _ops.add_wide_linear_weight.default
