"""Linear layers that autograd traces as one call each, and not as the four of forward and the seven of backward that
ATen makes of them: AOTAutograd's tracing takes as long as there are calls.

- `cermet_v1::linear(x, weight, bias)`: what stands in Dynamo's graph; differentiable, a composition of the next.
- `cermet_v1::linear_forward`, `linear_input`, `linear_weight`, `linear_bias`: the result and the gradients, of fake
  tensors alone. No graph runs them: remainder/linears.py writes ATen's calls in their places.
"""

from __future__ import annotations

from typing import Any

import torch

from .regions import NAMESPACE

_SCHEMAS = (
    "linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor",
    "linear_forward(Tensor x, Tensor weight, Tensor? bias) -> Tensor",
    "linear_input(Tensor cotangent, Tensor weight) -> Tensor",
    "linear_weight(Tensor cotangent, Tensor x) -> Tensor",
    "linear_bias(Tensor cotangent) -> Tensor",
)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        of_x, of_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if of_weight else None, weight if of_x else None)
        ctx.input_first = bias is not None  # as autograd has it for ATen's calls
        ctx.set_materialize_grads(False)  # what nobody differentiates has no gradient of zeros
        return FORWARD(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        if cotangent is None:
            return None, None, None
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        first = INPUT(cotangent, weight) if of_x and ctx.input_first else None
        weights = WEIGHT(cotangent, x) if of_weight else None
        biases = BIAS(cotangent) if of_bias else None
        return INPUT(cotangent, weight) if of_x and first is None else first, weights, biases


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    given = (x, weight) if bias is None else (x, weight, bias)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in given):
        return _Linear.apply(x, weight, bias)
    return FORWARD(x, weight, bias)


def _define() -> torch.library.Library:
    ops = torch.library.Library(NAMESPACE, "FRAGMENT")
    for schema in _SCHEMAS:
        ops.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    ops.impl("linear", _linear, "CompositeImplicitAutograd")
    ops.impl("linear_forward", lambda x, weight, _: x.new_empty((*x.shape[:-1], weight.shape[0])), "Meta")
    ops.impl("linear_input", lambda given, weight: given.new_empty((*given.shape[:-1], weight.shape[1])), "Meta")
    ops.impl("linear_weight", lambda given, x: given.new_empty((given.shape[-1], x.shape[-1])), "Meta")
    ops.impl("linear_bias", lambda given: given.new_empty(given.shape[-1:]), "Meta")
    return ops


_library = _define()
_ops = getattr(torch.ops, NAMESPACE)
LINEAR, FORWARD, INPUT = _ops.linear.default, _ops.linear_forward.default, _ops.linear_input.default
WEIGHT, BIAS = _ops.linear_weight.default, _ops.linear_bias.default
