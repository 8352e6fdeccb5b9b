"""Whether a tensor that a graph was given is nobody else's: what nobody can look at may be written."""

from __future__ import annotations

import sys

import torch
from torch.utils._python_dispatch import _disable_current_modes


def alone(value: torch.Tensor) -> bool:
    """Whether one local variable of the caller's is all that leads to a tensor and to its memory: no other name in
    Python, no graph of autograd's that is kept, no view."""
    return _holders(value) == _ALONE


def _holders(value: torch.Tensor) -> tuple[int, int, int]:
    return (
        sys.getrefcount(value),
        value._use_count(),
        torch._C._storage_Use_Count(value.untyped_storage()._cdata),
    )


def _called(arguments: list[torch.Tensor]) -> tuple[int, int, int]:
    (value,) = arguments
    arguments.clear()
    return _forwarded(value)


def _forwarded(value: torch.Tensor) -> tuple[int, int, int]:
    """As far from `_holders` as a caller of `alone` is."""
    return _holders(value)


def _measured() -> tuple[int, int, int]:
    """Where Dynamo watches frames, each call holds its arguments once more: then fewer would be alone, never more."""
    with _disable_current_modes():
        references, *others = _called([torch.empty(1)])
        value = torch.empty(1)
        return (min(references, sys.getrefcount(value) + 2), *others)  # this frame's, and one of each of two calls


_ALONE = _measured()
