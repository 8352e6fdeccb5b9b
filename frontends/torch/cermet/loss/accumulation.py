"""The gradient of a weight, summed over pieces of rows in f32 and rounded once.

Half of the sum lies in the memory of the gradient itself, the other half is given back at the end: so it costs four
bytes a weight, and never six.
"""

from __future__ import annotations

import functools

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._python_dispatch import _disable_current_modes

from ..targets import devices

_EVEN = 8  # in so many rows of a weight both halves of its sum begin at whole pieces of sixteen bytes
_COPIED = 16  # one in so many numbers is rounded through a copy (round_in_place)


class WeightGradient:
    """The sum over pieces of their gradient of the weight, rounded once."""

    def __init__(self, weight: torch.Tensor, rows: int, pieces: int, factor: float = 1.0) -> None:
        """`rows`: how many of the weight's count; `pieces`: how many products are added; `factor`: of their sum."""
        self.weight, self.rows, self.factor = weight, rows, factor
        self.first = True
        self.sums: list[torch.Tensor] = []
        self.made: torch.Tensor | None = None
        if pieces <= 1:  # one product rounds for itself
            return
        self.made = torch.empty(weight.shape, dtype=weight.dtype, device=weight.device)[:rows]
        if self.made.dtype == torch.float32:
            self.sums = [self.made]
            return
        # Of the sum's rows those that fit lie in the memory of the result.
        split = inner_rows(rows)
        inner = self.made.flatten()[: 2 * split * weight.shape[1]].view(torch.float32).view(split, weight.shape[1])
        self.sums = [inner, weight.new_empty((len(weight) - split, weight.shape[1]), dtype=torch.float32)]

    def add(self, gradient: torch.Tensor, rows: torch.Tensor) -> None:
        """`gradient` [piece, rows of the weight], `rows` of the hidden state."""
        if not self.sums:
            made = product(gradient.t(), rows, self.factor)[: self.rows]
            self.made = made.to(self.weight.dtype)
            return
        start = 0
        for into in self.sums:
            add_product(into, gradient[:, start : start + len(into)].t(), rows, self.first, self.factor)
            start += len(into)
        self.first = False

    def result(self) -> torch.Tensor:
        if self.made is None:  # no rows
            return torch.zeros(self.weight.shape, dtype=self.weight.dtype, device=self.weight.device)[: self.rows]
        if len(self.sums) == 2:
            inner, outer = self.sums
            round_in_place(inner.flatten(), self.made.flatten())
            self.made[len(inner) :].copy_(outer[: self.rows - len(inner)])
        self.sums = []
        return self.made


def product(
    left: torch.Tensor, right: torch.Tensor, factor: float = 1.0, into: torch.Tensor | None = None
) -> torch.Tensor:
    """`factor` times a product, rounded once, into `into` where there is one."""
    if factor == 1.0:
        return torch.mm(left, right, out=into)
    into = left.new_empty(len(left), right.shape[1]) if into is None else into
    return torch.addmm(into, left, right, beta=0, alpha=factor, out=into)


def add_product(
    into: torch.Tensor, left: torch.Tensor, right: torch.Tensor, first: bool, factor: float = 1.0
) -> None:
    """Adds `factor` times a product to an f32 matrix, or with `first` overwrites it, and rounds nothing else."""
    beta = 0 if first else 1
    if left.dtype == torch.float32 or left.device.type != "cuda":
        torch.addmm(into, left.float(), right.float(), beta=beta, alpha=factor, out=into)
    elif adds_in_f32(left.device, left.dtype):
        torch.addmm(into, left, right, out_dtype=torch.float32, beta=beta, alpha=factor, out=into)
    elif first:
        torch.mm(left, right, out_dtype=torch.float32, out=into).mul_(factor)
    else:
        into.add_(torch.mm(left, right, out_dtype=torch.float32), alpha=factor)


def adds_in_f32(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this torch adds a product of two narrow matrices to a wide one without a product of its own in memory."""
    if device.type != "cuda":
        return False
    return hasattr(torch.ops.aten.addmm, "dtype_out") if devices.captured() else _tried(device, dtype)


@functools.cache
def _tried(device: torch.device, dtype: torch.dtype) -> bool:
    """Tried, with real tensors also while a graph is compiled: of fake ones torch says that it cannot."""
    with unset_fake_temporarily(), _disable_current_modes(), torch.no_grad():
        narrow, wide = (torch.ones(16, 16, dtype=each, device=device) for each in (dtype, torch.float32))
        try:
            torch.addmm(wide, narrow, narrow, out_dtype=torch.float32, out=wide)
        except (RuntimeError, TypeError):
            return False
    return True


def round_in_place(wide: torch.Tensor, narrow: torch.Tensor) -> None:
    """Rounds f32 numbers to the front of their own memory, `narrow`. What is read and what is written never overlap:
    each part goes where the one before it was read, and the first through a copy."""
    done = -(-len(wide) // _COPIED)
    narrow[:done] = wide[:done].to(narrow.dtype)
    while done < len(wide):
        until = min(2 * done, len(wide))
        narrow[done:until].copy_(wide[done:until])
        done = until


def inner_rows(rows: int) -> int:
    """Of a weight's sum in f32: those that lie in the memory of the rounded gradient."""
    return rows // 2 - rows // 2 % _EVEN
