"""Numbers of rows that a region makes of a linear layer's logits, and their gradient, in pieces of rows: those of a
loss that is computed behind them, such as a preference's. Never more than one piece of logits exists.

The cotangents are known in the backward alone. So the forward keeps what the logits are made of, and the backward makes
them once more, a piece at a time, and their gradient over them (chunks.py): a fourth product beside the three.

- `cermet_v1::linear_values_{n}_{k}(Tensor hidden, Tensor weight, Tensor? bias, Tensor h0, Tensor w0, ..., Tensor a0,
  ..., float f0, ..., int key, int position, int chunk)`: what region `key` makes of its operands, of which number
  `position` are the logits, with `k` terms (terms.py); in pieces of at most `chunk` rows. It becomes
  `linear_row_values_{n}_{k}` of the same, and in the backward a `linear_rows` (chunks.py) of one operand more, the
  cotangents.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import torch

from ..errors import Error
from ..ops import regions
from ..ops.regions import NAMESPACE
from . import chunks, cotangents
from .chunks import Call, Run
from .derivation import MAX_INPUTS
from .terms import MOST_TERMS, signature


def _call(terms: int, arguments: tuple[Any, ...]) -> Call:
    return Call.of(terms, (*arguments, *[False] * (3 + 2 * terms)))


def taken(name: str, *arguments: Any) -> int:
    """The bytes that the op of that name takes while it runs, beside its result."""
    return chunks.taken_by(_call(int(name.split(".")[1].rsplit("_", 1)[1]), arguments))


def _run(terms: int, *arguments: Any) -> torch.Tensor:
    call = _call(terms, arguments)
    with torch.no_grad(), torch.autocast(call.hidden.device.type, enabled=False):
        return _made(call)


def _made(call: Call) -> torch.Tensor:
    found = cotangents.values(call.key, call.position)
    if found is None:
        raise Error(f"{regions.signature(call.key).name}: its rows need one another, expected values of rows")
    run = Run(dataclasses.replace(call, key=found.key, operands=[*call.operands, None]))
    given = regions.signature(found.key).inputs[-1]
    sizes = run.sizes()
    shape = [sizes.get(dim, dim) for dim in given.dims]
    run.operands[-1] = run.rows.new_ones((), dtype=given.dtype).expand(shape)
    parts = found.derived.loss
    early, numbers, _ = run.walked(parts, *call.wanted)
    if found.last is None:
        return numbers[0].to(given.dtype).view(shape)
    one = run.rows.new_ones((), dtype=torch.float32)
    inputs = run.inputs_of(parts.after, early, numbers)
    kept = found.last.kept(inputs, regions.launch(found.last.forward, inputs))
    results = regions.launch(found.last.backward, found.last.arguments(kept, lambda _: one))
    return next(each for each in found.last.of_inputs(results, len(inputs)) if each is not None)


def _fake(terms: int, *arguments: Any) -> torch.Tensor:
    return chunks.fake_result(_call(terms, arguments))


class _Values(torch.autograd.Function):
    """Values with their gradient."""

    @staticmethod
    def forward(
        ctx: Any, key: int, position: int, chunk: int, factors: tuple[float, ...], *tensors: torch.Tensor | None
    ) -> torch.Tensor:
        """`tensors`: hidden, weight, bias, the terms' hidden states and weights, the region's operands."""
        ctx.needed = ctx.needs_input_grad[4 : 7 + 2 * len(factors)]
        ctx.save_for_backward(*tensors)
        ctx.key, ctx.place, ctx.factors = key, (position, chunk), factors
        op = linear_op(len(tensors) - len(ctx.needed), len(factors))
        return op(*tensors, *factors, key, position, chunk)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> Any:
        tensors = ctx.saved_tensors
        operands = len(tensors) - len(ctx.needed)
        op, key = chunks.rows_op(operands + 1, len(ctx.factors)), cotangents.weighted(ctx.key)

        def run(cotangent: torch.Tensor, *tensors: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
            _, *made = op(*tensors, cotangent, *ctx.factors, key, *ctx.place, *ctx.needed)
            return tuple(gradient if need else None for gradient, need in zip(made, ctx.needed))

        gradients = regions.backward(ctx.key, run, cotangent, *tensors)
        return None, None, None, None, *gradients, *[None] * operands


def _linear_values(terms: int, *arguments: Any) -> torch.Tensor:
    *rest, key, position, chunk = arguments
    tensors, factors = rest[: len(rest) - terms], tuple(rest[len(rest) - terms :])
    products = tensors[: 3 + 2 * terms]
    if torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in products):
        return _Values.apply(key, position, chunk, factors, *tensors)
    return linear_op(len(tensors) - len(products), terms)(*arguments)


def _define() -> torch.library.Library:
    ops = torch.library.Library(NAMESPACE, "FRAGMENT")
    tags = (torch.Tag.pt2_compliant_tag,)
    for inputs in range(MAX_INPUTS):  # the backward's have one more
        for terms in range(MOST_TERMS + 1):
            others, factors = signature(terms)
            given = f"Tensor hidden, Tensor weight, Tensor? bias{others}"
            given += "".join(f", Tensor a{i}" for i in range(inputs)) + factors
            for kind in ("linear_values", "linear_row_values"):
                schema = f"{kind}_{inputs}_{terms}({given}, int key, int position, int chunk) -> Tensor"
                ops.define(schema, tags=tags)
            head, linear = f"linear_values_{inputs}_{terms}", f"linear_row_values_{inputs}_{terms}"
            ops.impl(head, functools.partial(_linear_values, terms), "CompositeImplicitAutograd")
            ops.impl(linear, functools.partial(_fake, terms), "Meta")
            for device in ("CPU", "CUDA"):
                ops.impl(linear, functools.partial(_run, terms), device)
    return ops


_library = _define()


def op(inputs: int, terms: int) -> torch._ops.OpOverload:
    """`linear_values` for `inputs` operands and so many terms. Raises cermet.Error where there is none."""
    return _op("linear_values", inputs, terms)


def linear_op(inputs: int, terms: int) -> torch._ops.OpOverload:
    """`linear_row_values`, likewise."""
    return _op("linear_row_values", inputs, terms)


@functools.cache
def _op(kind: str, inputs: int, terms: int) -> torch._ops.OpOverload:
    if not 0 <= inputs < MAX_INPUTS:
        raise Error(f"values of {inputs} operands, expected at most {MAX_INPUTS - 1}")
    return getattr(getattr(torch.ops, NAMESPACE), f"{kind}_{inputs}_{terms}").default
