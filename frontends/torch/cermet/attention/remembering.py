"""What was asked of the device about a call's inputs, for the next call of the same ones.

Where a program breaks its graph at each layer, all layers are given one mask, and what it shows is asked once: an
answer is a wait. An input is the same if it is that tensor and nothing was written to it since, as torch counts writes;
on the CPU others write as well (NumPy), and nothing waits.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

Answer = TypeVar("Answer")
_DEVICES = frozenset({"cuda"})


class Remembered:
    """The last answer. Threads may ask at once."""

    def __init__(self) -> None:
        self._last: tuple[list[Any], list[weakref.ref[torch.Tensor]], Any] | None = None

    def ask(self, given: Sequence[Any], question: Callable[[], Answer]) -> Answer:
        """The answer for `given` tensors and numbers. Tensors of an answer belong to the stream they were made in."""
        known, last = _identity(given), self._last
        if known is None:
            return question()
        if last is not None and last[0] == known and all(input() is not None for input in last[1]):
            return last[2]
        answer = question()
        self._last = known, [weakref.ref(each) for each in given if isinstance(each, torch.Tensor)], answer
        return answer


def _identity(given: Sequence[Any]) -> list[Any] | None:
    """None where nobody could say whether they are the same again."""
    found: list[Any] = []
    for each in given:
        if not isinstance(each, torch.Tensor):
            found.append(each)
        elif each.device.type not in _DEVICES or type(each) is not torch.Tensor or each.is_inference():
            return None
        else:
            found.append((id(each), each._version, _stream(each.device)))
    return found


def _stream(device: torch.device) -> int:
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
