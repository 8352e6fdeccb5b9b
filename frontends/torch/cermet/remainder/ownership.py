"""Whether a tensor that a graph was given is nobody else's: what nobody can look at may be written.

A graph takes its arguments in a list of its own. What is asked of a place in that list is the same whoever asks: a
local variable would be held by a frame more, or not, as the interpreter and Dynamo call functions.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch


def alone(arguments: Sequence[torch.Tensor], place: int) -> bool:
    """Whether a list is all that leads to a tensor and to its memory: no other name in Python, no graph of autograd's
    that is kept, no view."""
    return _holders(arguments, place) == _ALONE


def _holders(arguments: Sequence[torch.Tensor], place: int) -> tuple[int, int, int]:
    return (
        sys.getrefcount(arguments[place]),
        arguments[place]._use_count(),
        torch._C._storage_Use_Count(arguments[place].untyped_storage()._cdata),
    )


_ALONE = _holders([torch.empty(1)], 0)
