"""Which rows of a head are multiplied: those that give anything (an ignored label, a factor of zero gives nothing).

Only the device knows how many they are. A call waits for their number where the call before it left many out, and the
first one does; else the number comes to the host behind the call, for the next, and nobody waits for it.
"""

from __future__ import annotations

import torch

from .. import locks

_FEW = 1 / 16  # of the rows: so few are not worth a copy of the others


class _Watch:
    """What is known of one region's rows on one GPU."""

    def __init__(self) -> None:
        self._lock = locks.lock()
        self._many = True  # rows were left out
        self._told: torch.Tensor | None = None  # in pinned memory, how many were kept when the event was recorded
        self._event = torch.cuda.Event()
        self._of = 0  # rows; 0 where nothing is on its way

    def expects_many(self) -> bool:
        with self._lock:
            if self._of and self._event.query():
                self._many, self._of = _are_many(int(self._told), self._of), 0
            return self._many

    def found(self, many: bool) -> None:
        with self._lock:
            self._many = many

    def tell(self, kept: torch.Tensor) -> None:
        """Behind what was launched; nothing where an answer is on its way."""
        with self._lock:
            if self._of:
                return
            if self._told is None:
                self._told = torch.empty((), dtype=torch.int64, pin_memory=True)
            self._told.copy_(kept.sum(), non_blocking=True)
            self._event.record()
            self._of = kept.numel()


_lock = locks.lock()
_watches: dict[tuple[int, torch.device], _Watch] = {}


def places(key: int, kept: torch.Tensor) -> torch.Tensor | None:
    """The numbers of the rows that are kept, of the truths of all; None where so many are that all may be. `key`: the
    region's, by which calls are told apart."""
    if not kept.is_cuda:
        return _chosen(kept)
    with _lock:
        watch = _watches.setdefault((key, kept.device), _Watch())
    if not watch.expects_many():
        watch.tell(kept)
        return None
    chosen = _chosen(kept)
    watch.found(chosen is not None)
    return chosen


def _chosen(kept: torch.Tensor) -> torch.Tensor | None:
    found = kept.nonzero().view(-1)  # on a GPU the wait
    return found if _are_many(len(found), len(kept)) else None


def _are_many(kept: int, rows: int) -> bool:
    return kept <= (1 - _FEW) * rows
