"""What a forward keeps for its backward, for whom and why, and what the backward makes again: a plan as it is told.

noting.py makes one; nothing here needs a graph.
"""

from __future__ import annotations

import dataclasses

OWN, STORE, WITHIN = "by a call of its own", "a further store of", "inside of"  # where a value is made again
_BYTES_PER_MICROSECOND = 4e6  # that a GPU moves: about what an H200 reaches


@dataclasses.dataclass(frozen=True)
class Call:
    """A call that reads or makes a value, in the graph that runs."""

    name: str  # of the operation, or of what a launch computes
    source: str  # `file:line: code` of the user's program; "" where nobody knows


@dataclasses.dataclass(frozen=True)
class Saved:
    """Memory that the forward hands to the backward. Two that differ only in which layer they are of compare equal."""

    made_by: Call
    value: str  # `bf16[8, 2048, 4096]`
    bytes: int
    readers: tuple[Call, ...]  # of the backward
    again: int | None  # bytes that are moved in the time that it would take to make it again; None: it cannot be
    why: str  # it is kept
    at: str = dataclasses.field(compare=False)  # the joint graph's node

    @property
    def microseconds(self) -> float | None:
        return microseconds(self.again)


@dataclasses.dataclass(frozen=True)
class Again:
    """What the backward makes again. Two that differ only in which layer they are of compare equal."""

    made_by: Call  # in the forward
    values: tuple[str, ...]
    spared: int  # bytes of its results that the backward reads elsewhere, and that would be kept otherwise
    moved: int | None  # bytes that are moved in the time that this takes; None where nobody knows
    asked: bool  # by torch.utils.checkpoint
    where: str  # OWN, STORE or WITHIN
    kernel: Call  # which does that
    at: str = dataclasses.field(compare=False)

    @property
    def microseconds(self) -> float | None:
        return microseconds(self.moved)


@dataclasses.dataclass(frozen=True)
class Plan:
    """Of one forward and its backward; sizes are those that they were traced with."""

    memory: str  # the option
    price: float | None  # bytes that must be saved for each byte that is moved again, where the option holds one
    saved: tuple[Saved, ...]  # the most bytes first
    again: tuple[Again, ...]  # likewise
    inputs: int  # bytes of the forward's inputs that the backward reads, too, which are there anyway
    peak: int  # bytes that are held at the most, as cermet.memory plans them

    @property
    def saved_bytes(self) -> int:
        return sum(each.bytes for each in self.saved)

    @property
    def spared_bytes(self) -> int:
        return sum(each.spared for each in self.again)

    @property
    def microseconds(self) -> float:
        """What making again adds, as far as it is known."""
        return sum(each.microseconds or 0.0 for each in self.again)


def microseconds(moved: int | None) -> float | None:
    """On a GPU that moves 4 TB a second."""
    return None if moved is None else moved / _BYTES_PER_MICROSECOND
