"""Fake values of one layer as another layer's: in memory of its own, shared as the one's are.

They are made as they are known to be. To call what makes them, under the fakes' mode, takes ten times as long.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ..graph import fakes, memory
from .calls import Unlike


class MovedValues:
    def __init__(self) -> None:
        self._moved = memory.Moved()
        self._became: dict[int, Any] = {}  # by the one's identity, whose nodes keep them
        self._taken: set[int] = set()
        self._wants = torch.zeros((), device="cpu", requires_grad=True)

    def given(self, one: Any, other: Any) -> None:
        """What lies where `one` does lies where `other` does."""
        self._moved.given(one, other)
        self._became[id(one)] = other
        self._taken.add(id(other))

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
        made = self._moved.of(value)
        if id(made) in self._taken:  # by another value that lies as this one does
            made = fakes.view(made, made.shape, made.stride())
        self._taken.add(id(made))
        made.requires_grad_(False)  # as what it is a view of does
        if value.is_leaf:
            return made.requires_grad_(value.requires_grad)
        with torch.enable_grad():
            return _Made.apply(made, self._wants)


class _Made(torch.autograd.Function):
    """A tensor that is not what a gradient ends at."""

    @staticmethod
    def forward(ctx: Any, made: torch.Tensor, wants: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(made)
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise AssertionError("a fake tensor has no gradient")
