"""Which rows of a head are multiplied: those that give anything (an ignored label, a factor of zero gives nothing).

Only the device knows how many they are. A call waits for their number where the call before it left many out, and the
first one does; else the number comes to the host behind the call, for the next, and nobody waits for it.

Who waits at the head waits for all that runs before it, and has nothing queued behind. So a graph that is given what
tells them asks first of all (`foresee`; remainder/foresight.py): by the time of the head the answer is there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch

from .. import locks
from ..ops import regions
from .derivation import derive

_FEW = 1 / 16  # of the rows: so few are not worth a copy of the others
_ASKED = 8  # answers that wait for their heads, of one region


class _Watch:
    """What is known of one region's rows on one GPU."""

    def __init__(self) -> None:
        self._lock = locks.lock()
        self._many = True  # rows were left out
        self._told: torch.Tensor | None = None  # in pinned memory, how many were kept when the event was recorded
        self._event = torch.cuda.Event()
        self._of = 0  # rows; 0 where nothing is on its way
        self._foreseen: dict[tuple[object, ...], _Foreseen] = {}

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
                self._told = torch.empty((), dtype=torch.int64, device="cpu", pin_memory=True)
            self._told.copy_(kept.sum(), non_blocking=True)
            self._event.record()
            self._of = kept.numel()

    def foresee(self, inputs: Sequence[torch.Tensor], kept: torch.Tensor) -> None:
        """Behind what was launched."""
        order = (~kept).to(torch.uint8).sort(stable=True)[1]
        told = torch.empty((), dtype=torch.int64, device="cpu", pin_memory=True)
        told.copy_(kept.sum(), non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        with self._lock:
            self._foreseen[_names(inputs)] = _Foreseen(tuple(inputs), _versions(inputs), order, told, event)
            if len(self._foreseen) > _ASKED:  # of calls that failed before their heads
                del self._foreseen[next(iter(self._foreseen))]

    def foreseen(self, inputs: Sequence[torch.Tensor]) -> _Foreseen | None:
        """What was asked of these, once; nothing where they were written since."""
        with self._lock:
            found = self._foreseen.pop(_names(inputs), None)
        return found if found is not None and found.versions == _versions(found.inputs) else None


@dataclasses.dataclass(frozen=True)
class _Foreseen:
    """An answer on its way. It holds what it was asked of, so that nothing else has that memory meanwhile."""

    inputs: tuple[torch.Tensor, ...]
    versions: tuple[int, ...]  # of the inputs, when they were read
    order: torch.Tensor  # the rows that are kept, and then the others
    told: torch.Tensor  # how many are kept, when the event was recorded
    event: torch.cuda.Event

    def places(self) -> torch.Tensor | None:
        self.event.synchronize()
        count = int(self.told)
        return self.order[:count] if _are_many(count, len(self.order)) else None


def _names(inputs: Sequence[torch.Tensor]) -> tuple[tuple[int, int], ...]:
    """What is another where a tensor is. Not its version: torch hands an operator of ours aliases at its first call,
    which have versions of their own."""
    return tuple((each.data_ptr(), each.numel()) for each in inputs)


def _versions(inputs: Sequence[torch.Tensor]) -> tuple[int, ...]:
    return tuple(each._version for each in inputs)


_lock = locks.lock()
_watches: dict[tuple[int, torch.device], _Watch] = {}


def places(key: int, inputs: Sequence[torch.Tensor], kept: Callable[[], torch.Tensor]) -> torch.Tensor | None:
    """The numbers of the rows that are kept; None where so many are that all may be.

    Args:
        key: the region's, by which calls are told apart.
        inputs: what tells them.
        kept: the truths of all rows, made of those.
    """
    if not inputs[0].is_cuda:
        return _chosen(kept())
    watch = _watch(key, inputs[0].device)
    if (foreseen := watch.foreseen(inputs)) is not None:
        chosen = foreseen.places()
    elif watch.expects_many():
        chosen = _chosen(kept())
    else:
        watch.tell(kept())
        return None
    watch.found(chosen is not None)
    return chosen


def foresee(operands: Sequence[torch.Tensor], key: int, position: int, differentiated: bool) -> None:
    """Asks which rows a head will multiply that follows. `operands`: of region `key`, but for its input `position`, the
    logits; `differentiated`: whether gradients are asked for."""
    if not any(each.is_cuda for each in operands):
        return
    derived = derive(key, position)
    parts = derived.gradient if differentiated else derived.loss
    if parts is None or parts.kept is None or any(origin != "input" for origin, _ in parts.kept.inputs):
        return
    given = [*operands[:position], None, *operands[position:]]
    inputs = [given[index] for _, index in parts.kept.inputs]
    if not inputs[0].is_cuda or not inputs[0].numel() or torch.cuda.is_current_stream_capturing():
        return
    if torch.is_inference_mode_enabled() or any(each.is_inference() for each in inputs):
        return
    watch = _watch(key, inputs[0].device)
    if watch.expects_many():
        ports = regions.signature(parts.kept.key, inputs[0].device).inputs
        inputs = [each.reshape(-1, *port.dims[1:]) for each, port in zip(inputs, ports)]
        (kept,) = regions.launch(parts.kept.key, inputs)
        watch.foresee(inputs, kept.view(-1))


def _watch(key: int, device: torch.device) -> _Watch:
    with _lock:
        if (key, device) not in _watches:
            _watches[key, device] = _Watch()
        return _watches[key, device]


def _chosen(kept: torch.Tensor) -> torch.Tensor | None:
    found = kept.nonzero().view(-1)  # on a GPU the wait
    return found if _are_many(len(found), len(kept)) else None


def _are_many(kept: int, rows: int) -> bool:
    return kept <= (1 - _FEW) * rows
