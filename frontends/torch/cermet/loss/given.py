"""The loss of given logits as one op: its kernel makes their gradient for a cotangent of 1 in the forward pass, which
reads the logits once, and the backward multiplies that by the cotangent (ops/scaling.py). In bf16 a cotangent of 1 or
another power of two rounds where eager rounds; any other rounds once more, which is 1.4 x eager's error.

- `cermet_v1::given_{n}(Tensor a0, ..., int key, int position)`: region `key`, which differentiates operand `position`.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from ..errors import Error
from ..ops import regions, scaling
from ..ops.regions import NAMESPACE
from .derivation import MAX_INPUTS, derive


def _times(gradient: torch.Tensor, cotangent: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
    return scaling.scaled(gradient, cotangent)


class _Given(torch.autograd.Function):
    """A loss with the gradient of its logits."""

    @staticmethod
    def forward(ctx: Any, key: int, forward: int, position: int, *operands: torch.Tensor) -> torch.Tensor:
        loss, gradient = regions.launch(forward, operands)
        ctx.save_for_backward(gradient)
        ctx.key, ctx.place = key, (position, len(operands))
        return loss

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> Any:
        (gradient,) = ctx.saved_tensors
        position, count = ctx.place
        # What is recorded (create_graph=True) follows from the logits, which nothing here reads.
        logits = [torch.empty(0, requires_grad=True)] if torch.is_grad_enabled() else []
        found = regions.backward(ctx.key, _times, gradient, cotangent, *logits)
        return None, None, None, *(found if index == position else None for index in range(count))


def _given(*arguments: Any) -> torch.Tensor:
    *operands, key, position = arguments
    forward = derive(key, position).forward
    if forward is None:
        raise Error(f"{regions.signature(key).name}: there is no gradient of a forward pass for input {position}")
    if torch.is_grad_enabled() and operands[position].requires_grad:
        return _Given.apply(key, forward, position, *operands)
    return regions.launch(key, operands)[0]


def _define() -> torch.library.Library:
    ops = torch.library.Library(NAMESPACE, "FRAGMENT")
    tags = (torch.Tag.pt2_compliant_tag,)
    for inputs in range(1, MAX_INPUTS + 1):
        tensors = ", ".join(f"Tensor a{i}" for i in range(inputs))
        ops.define(f"given_{inputs}({tensors}, int key, int position) -> Tensor", tags=tags)
        ops.impl(f"given_{inputs}", _given, "CompositeImplicitAutograd")
    return ops


_library = _define()


@functools.cache
def op(inputs: int) -> torch._ops.OpOverload:
    """The outer op for `inputs` operands. Raises cermet.Error where there is none."""
    if not 1 <= inputs <= MAX_INPUTS:
        raise Error(f"a loss of {inputs} operands, expected at most {MAX_INPUTS}")
    return getattr(getattr(torch.ops, NAMESPACE), f"given_{inputs}").default
