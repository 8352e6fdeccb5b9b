"""The rule by which a kernel's results are right: as near to float64 as the operations that it replaced."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence

import torch

_log = logging.getLogger("cermet")
WIDE = (torch.float64, torch.float32)  # what a truth is computed in; the second where the first does not run


@dataclasses.dataclass(frozen=True)
class Mismatch:
    """One tensor that is wrong. Errors are relative: the norm of the difference by the norm of the truth."""

    index: int
    error: float
    unfused_error: float
    limit: float
    wide: torch.dtype

    def __str__(self) -> str:
        against = str(self.wide).removeprefix("torch.")
        return (
            f"{self.index} has an error of {self.error:.2e} against {against}, the unfused graph has "
            f"{self.unfused_error:.2e}, expected at most {self.limit:.2e}"
        )


def compare(
    ours: Sequence[torch.Tensor], run: Callable[[torch.dtype | None], Sequence[torch.Tensor]]
) -> list[Mismatch] | None:
    """What is wrong in `ours`; None where there is no truth to compare with.

    `run` computes the same tensors by the unfused graph: as traced (None), or in a wider floating type.
    """
    unfused = run(None)
    for wide in WIDE:
        try:
            truth = run(wide)
            break
        except Exception as error:
            _log.debug("the unfused graph does not run in %s: %s", wide, error)
    else:
        return None
    found = []
    for index, (mine, theirs, true) in enumerate(zip(ours, unfused, truth)):
        error, unfused_error, limit = _errors(mine, theirs, true)
        if not error <= limit:
            found.append(Mismatch(index, error, unfused_error, limit, wide))
    return found


def _errors(mine: torch.Tensor, theirs: torch.Tensor, truth: torch.Tensor) -> tuple[float, float, float]:
    """Our error, the unfused graph's, and how large ours may be."""
    if not mine.is_floating_point():
        wrong = (mine != theirs).double().mean().item() if mine.numel() else 0.0
        return wrong, 0.0, 0.0
    wide = truth.dtype
    known = theirs.isfinite()  # where the unfused graph overflows, or has no value, there is nothing to be near to
    true = torch.where(known, truth, 0)
    size = true.norm().item() or 1.0
    error = (torch.where(known, mine.to(wide), 0) - true).norm().item() / size
    unfused_error = (torch.where(known, theirs.to(wide), 0) - true).norm().item() / size
    return error, unfused_error, 2 * unfused_error + torch.finfo(mine.dtype).eps
