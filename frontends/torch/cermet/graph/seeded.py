"""Dropout whose mask is a function of a seed: what stands for torch's while regions are found, and what it computes.

An element is kept where its number is at least p 2^32. Numbers are those of `cermet.random` (docs/ir.md): of the seed,
of the row that the element is in and of its column, so that a backward makes them again and no mask is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx
import torch.nn.functional as F

SEEDS = 1 << 53  # so many: each is exact as float64, in which graph texts are interpreted
_WORD = (1 << 32) - 1


def threshold(p: float) -> int:
    """The least number of an element that is kept."""
    return round(p * (1 << 32))


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def _mixed(x: torch.Tensor, shift: int) -> torch.Tensor:
    """x ^ (x >> shift), where the sign does not spread."""
    return x ^ ((x >> shift) & ((1 << (64 - shift)) - 1))


def numbers(seed: torch.Tensor, shape: Sequence[Any]) -> torch.Tensor:
    """`cermet.random`: int64 of `shape`, from 0 to 2^32 - 1. Integers of 64 bits wrap."""
    rows, columns = shape[:-1], shape[-1] if len(shape) else 1
    count = 1
    for size in rows:
        count = count * size
    row = torch.arange(1, count + 1, device=seed.device)
    key = seed + row * _signed(0x9E3779B97F4A7C15)
    key = _mixed(key, 30) * _signed(0xBF58476D1CE4E5B9)
    key = _mixed(key, 27) * _signed(0x94D049BB133111EB)
    key = _mixed(key, 31)[:, None]
    x = (torch.arange(columns, device=seed.device) + key) & _WORD
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _WORD
    x = ((x ^ (x >> 15) ^ ((key >> 32) & _WORD)) * 0x846CA68B) & _WORD
    return (x ^ (x >> 16)).reshape(shape)


def dropout(x: torch.Tensor, p: float, seed: torch.Tensor) -> torch.Tensor:
    """As torch's with training: what is kept times 1 / (1 - p), in f32 at least, rounded once."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    kept = numbers(seed, x.shape) >= threshold(p)
    return (wide * torch.where(kept, 1 / (1 - p), 0.0).to(wide.dtype)).to(x.dtype)


def seed(number: int, device: torch.device) -> torch.Tensor:
    """A seed, int64 of rank 0; `number` tells those of a graph apart."""
    return torch.randint(SEEDS, (), dtype=torch.int64, device=device)


def as_torch(node: fx.Node) -> None:
    """Makes `dropout` torch's again."""
    x, p, _ = node.args
    node.target, node.args = F.dropout, (x, p, True)
