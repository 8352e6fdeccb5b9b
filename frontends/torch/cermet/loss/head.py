"""The loss of a linear head as one op: the gradient of the logits is made in the forward pass, by the loss's kernel.

`loss = region(logits, ...)` with `logits = hidden @ weight.T`. The forward keeps d loss / d logits for a cotangent of
1; the backward is two products of it, scaled by the cotangent where tensors are of the hidden state's size: no pass
over memory of the logits' size, no value on the host, and what was saved is only read. (For f16, and for logits that no
plain linear makes, the region's own gradient is right: regions.py.) Where there would be many logits they come in
pieces, and the forward makes and keeps the gradients of the hidden state and of the weight instead (chunks.py).

In bf16 a cotangent of 1 or another power of two rounds where eager rounds. Any other rounds once more, after the
gradient of the logits rather than before it: 1.3 x eager's error.

- `cermet_v1::head_{n}(Tensor hidden, Tensor weight, Tensor? bias, Tensor a0, ..., int key, int position)`: operand
  `position` of the region are the logits; their gradient goes to hidden, weight and bias.
- `cermet_v1::linear_head_{n}(..., int chunk)`: the logits are not among the operands but made by the op. Nobody else
  has them, so the gradient takes their memory. It becomes `linear_launch_{n}_2`, a product and a launch (C++,
  frontends/torch/ops), or with a `chunk` above 0 `linear_rows_{n}` for pieces of at most so many rows.
- `cermet_v1::linear_head_{n}_{k}(..., Tensor? bias, Tensor h0, Tensor w0, ..., Tensor a0, ..., float f0, ..., int key,
  int position, int chunk)`: the same of logits that are a sum with `k` terms more (terms.py), in pieces only.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from ..errors import Error
from ..ops import regions, scaling
from ..ops.regions import NAMESPACE
from . import chunks, widths
from .derivation import MAX_INPUTS, derive
from .terms import MOST_TERMS, signature

# --- The ops ---------------------------------------------------------------------------------------------------------


def _gradients(
    gradient: torch.Tensor,
    hidden: torch.Tensor | None,
    weight: torch.Tensor | None,
    shape: Sequence[Any],
    bias: torch.Tensor | None,
    cotangent: torch.Tensor,
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """Of hidden (of size `shape`) where there is the weight, of the weight where there is hidden, and of the bias where
    there is one."""
    rows = gradient.reshape(-1, gradient.shape[-1])
    of_hidden = of_weight = of_bias = None
    if weight is not None:
        of_hidden = scaling.scaled(torch.mm(rows, weight), cotangent).view(shape)
    if hidden is not None:
        of_weight = torch.mm(rows.t(), scaling.scaled(hidden.reshape(-1, shape[-1]), cotangent))
    if bias is not None:
        of_bias = (rows.sum(0, dtype=torch.float32) * cotangent).to(bias.dtype)
    return of_hidden, of_weight, of_bias


def _scaled(cotangent: torch.Tensor, *values: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
    """Gradients for a cotangent of 1, for another. The second half is what they are gradients of (regions.backward)."""
    gradients = values[: len(values) // 2]
    return tuple(None if gradient is None else _times(gradient, cotangent) for gradient in gradients)


def _times(gradient: torch.Tensor, cotangent: torch.Tensor) -> torch.Tensor:
    if gradient.dim() == 1:
        return gradient * cotangent
    return scaling.scaled(gradient, cotangent)


class _Head(torch.autograd.Function):
    """A head with its gradient; `made`: the logits are not among the operands."""

    @staticmethod
    def forward(
        ctx: Any,
        key: int,
        forward: int,
        position: int,
        made: bool,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        *operands: torch.Tensor,
    ) -> torch.Tensor:
        if made:
            op = chunks.launch_op(len(operands), 2)
            product = widths.with_bias(_rows(key, position, hidden), weight, bias)
            loss, gradient = op(*product, *operands, forward, position)
        else:
            loss, gradient = regions.launch(forward, operands)
        needed = ctx.needs_input_grad[4:7]
        kept = (hidden if needed[1] else None, weight if needed[0] else None, bias if needed[2] else None)
        ctx.save_for_backward(gradient, *kept)
        ctx.key, ctx.shape, ctx.rest = key, hidden.shape, len(operands)
        return loss

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> Any:
        gradient, hidden, weight, bias = ctx.saved_tensors
        gradients = regions.backward(ctx.key, _gradients, gradient, hidden, weight, ctx.shape, bias, cotangent)
        return None, None, None, None, *gradients, *[None] * ctx.rest


class _InPieces(torch.autograd.Function):
    """A head whose logits come in pieces, with its gradient."""

    @staticmethod
    def forward(
        ctx: Any, key: int, position: int, chunk: int, factors: tuple[float, ...], *tensors: torch.Tensor | None
    ) -> torch.Tensor:
        """`tensors`: hidden, weight, bias, the terms' hidden states and weights, the region's operands."""
        products = 3 + 2 * len(factors)
        needed = ctx.needs_input_grad[4 : 4 + products]
        op = chunks.rows_op(len(tensors) - products, len(factors))
        loss, *gradients = op(*tensors, *factors, key, position, chunk, *needed)
        values = (*gradients, *tensors[:products])
        ctx.save_for_backward(*(value if need else None for value, need in zip(values, 2 * needed)))
        ctx.key, ctx.rest = key, len(tensors) - products
        return loss

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> Any:
        gradients = regions.backward(ctx.key, _scaled, cotangent, *ctx.saved_tensors)
        return None, None, None, None, *gradients, *[None] * ctx.rest


def _rows(key: int, position: int, hidden: torch.Tensor) -> torch.Tensor:
    """`hidden` with the leading dimensions that the region's logits have: its own, or all in one."""
    rank = len(regions.signature(key, hidden.device).inputs[position].dims)
    return hidden if rank == hidden.dim() else hidden.reshape(-1, hidden.shape[-1])


def _linear_head(terms: int, *arguments: Any) -> torch.Tensor:
    *rest, key, position, chunk = arguments
    if chunk == 0 and terms == 0:
        return _head(True, *arguments[:-1])
    tensors, factors = rest[: len(rest) - terms], tuple(rest[len(rest) - terms :])
    products = 3 + 2 * terms
    if _recorded(*tensors[:products]):
        return _InPieces.apply(key, position, chunk, factors, *tensors)
    op = chunks.rows_op(len(tensors) - products, terms)
    return op(*tensors, *factors, key, position, chunk, *[False] * products)[0]


def _recorded(*tensors: torch.Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def _head(made: bool, *arguments: Any) -> torch.Tensor:
    hidden, weight, bias, *operands, key, position = arguments
    forward = derive(key, position).forward
    if forward is None:
        raise Error(f"{regions.signature(key).name}: there is no gradient of a forward pass for input {position}")
    if _recorded(hidden, weight, bias):
        return _Head.apply(key, forward, position, made, hidden, weight, bias, *operands)
    if made:
        operands.insert(position, F.linear(_rows(key, position, hidden), weight, bias))
    return regions.launch(key, operands)[0]


def _linear_head_name(inputs: int, terms: int) -> str:
    return f"linear_head_{inputs}_{terms}" if terms else f"linear_head_{inputs}"


def _define() -> torch.library.Library:
    ops = torch.library.Library(NAMESPACE, "FRAGMENT")
    tags = (torch.Tag.pt2_compliant_tag,)
    for inputs in range(MAX_INPUTS + 1):
        tensors = ", ".join(["Tensor hidden, Tensor weight, Tensor? bias", *(f"Tensor a{i}" for i in range(inputs))])
        if inputs:  # the logits at least
            ops.define(f"head_{inputs}({tensors}, int key, int position) -> Tensor", tags=tags)
            ops.impl(f"head_{inputs}", functools.partial(_head, False), "CompositeImplicitAutograd")
        for terms in range(MOST_TERMS + 1):
            others, factors = signature(terms)
            given = tensors.replace("Tensor? bias", f"Tensor? bias{others}")
            name = _linear_head_name(inputs, terms)
            ops.define(f"{name}({given}{factors}, int key, int position, int chunk) -> Tensor", tags=tags)
            ops.impl(name, functools.partial(_linear_head, terms), "CompositeImplicitAutograd")
    return ops


_library = _define()


@functools.cache
def op(made: bool, inputs: int, terms: int = 0) -> torch._ops.OpOverload:
    """The outer op for `inputs` operands, and so many terms. Raises cermet.Error where there is none."""
    if not int(not made) <= inputs <= MAX_INPUTS:
        raise Error(f"a loss of {inputs} operands, expected at most {MAX_INPUTS}")
    name = _linear_head_name(inputs, terms) if made else f"head_{inputs}"
    return getattr(getattr(torch.ops, NAMESPACE), name).default
