"""Fake values of one layer as another layer's: in memory of its own, shared as the one's are.

They are made as they are known to be. To call what makes them, under the fakes' mode, takes ten times as long.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ..graph import fakes
from .calls import Unlike


class MovedValues:
    def __init__(self) -> None:
        self._became: dict[int, Any] = {}  # by the one's identity, whose nodes keep them
        self._bases: dict[int, FakeTensor] = {}  # by the one's memory
        self._wants = torch.zeros((), device="cpu", requires_grad=True)

    def given(self, one: Any, other: Any) -> None:
        """What lies where `one` does lies where `other` does."""
        if isinstance(one, FakeTensor):
            self._became[id(one)] = other
            self._bases.setdefault(_memory(one), other)

    def of(self, value: Any) -> Any:
        """Raises Unlike where it is neither a tensor of sizes and strides nor numbers."""
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.of, value))
        if not isinstance(value, torch.Tensor):
            return value
        if id(value) not in self._became:
            self._became[id(value)] = self._made(value)
        return self._became[id(value)]

    def _made(self, value: torch.Tensor) -> torch.Tensor:
        if type(value) is not FakeTensor or value.layout is not torch.strided or value.is_conj() or value.is_neg():
            raise Unlike
        base = self._bases.get(_memory(value))
        if base is None:
            made = self._bases[_memory(value)] = fakes.fresh(value, value.shape, value.stride(), value.dtype)
        else:
            if base.dtype is not value.dtype:
                with base.fake_mode, torch.no_grad():
                    base = base.view(value.dtype)
            behind = value.storage_offset() - base.storage_offset()
            made = fakes.view(base, value.shape, value.stride(), behind).requires_grad_(False)  # or as the base does
        if value.is_leaf:
            return made.requires_grad_(value.requires_grad)
        with torch.enable_grad():
            return _Made.apply(made, self._wants)


def _memory(value: torch.Tensor) -> int:
    return value.untyped_storage()._cdata


class _Made(torch.autograd.Function):
    """A tensor that is not what a gradient ends at."""

    @staticmethod
    def forward(ctx: Any, made: torch.Tensor, wants: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(made)
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise AssertionError("a fake tensor has no gradient")
