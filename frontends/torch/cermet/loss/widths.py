"""What a head's products take, in the form that makes them quick: rows of whole pieces of sixteen bytes, and a bias as
a column of the weight."""

from __future__ import annotations

import torch
import torch.nn.functional as F

BYTES = 16  # what a GPU's products take at once of a row (remainder/aten/alignment.py)
_PADDED = {"cuda"}


def with_bias(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """What gives logits with a bias by a product without one: the bias is a column of the weight, for a hidden state
    that goes on with ones, and is added in f32. As many columns as keep rows aligned."""
    return (hidden, weight) if bias is None else (going_on(hidden), widened(weight, bias))


def going_on(hidden: torch.Tensor) -> torch.Tensor:
    return F.pad(hidden, (0, BYTES // hidden.element_size()), value=1.0)


def widened(weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    bias = F.pad(bias[:, None], (0, BYTES // weight.element_size() - 1, 0, len(weight) - len(bias)))
    return torch.cat([weight, bias], 1)


def aligned(weight: torch.Tensor) -> torch.Tensor:
    """A weight with rows of zeros behind its own, where products of its number of rows would be slow: their logits are
    zeros, and so is the gradient of those."""
    lacking = -len(weight) % (BYTES // weight.element_size())
    slow = lacking and weight.element_size() == 2 and weight.device.type in _PADDED
    return F.pad(weight, (0, 0, 0, lacking)) if slow else weight
