"""What the windows of a repetition are given, or give, one each: a lane.

A lane of a whole graph has as many places as windows (or one more, where two windows read the same). In a graph without
some of the windows it has as many fewer: those behind are counted on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable


HEAD, TAIL = 3, 2  # windows that are left, of those before and behind the ones that are not


MADE, GIVEN = "made", "given"  # lanes of results: by where windows make them, or by the inputs that they are
RETURNED, COTANGENT = "returned", "cotangent"  # lanes of a program's results, and of what a backward is given for them


class Irregular(Exception):
    """A graph does not repeat itself as the one that it was made of does."""


@dataclasses.dataclass(frozen=True)
class Rung:
    lane: Hashable
    place: int

    @property
    def last(self) -> int:
        """The place of its lane behind which windows are left out: of what windows make, the second one's."""
        return 1 if isinstance(self.lane, tuple) and self.lane[0] == MADE else HEAD - 1

    def counted(self, more: int) -> Rung:
        """The same in the whole graph."""
        return self if self.place <= self.last else Rung(self.lane, self.place + more)


@dataclasses.dataclass(frozen=True)
class Ports:
    """What a graph is given, or gives, in order."""

    short: tuple[Rung | None, ...]  # of the graph without some of the windows: whose each is
    whole: tuple[tuple[int, Rung | None], ...]  # of the whole one: which of the short one's is like it, and whose it is


@dataclasses.dataclass(frozen=True)
class Seeds:
    """Which results windows read of one call that draws seeds."""

    count: int  # results of the call
    short: dict[int, Rung]  # in the shortened graph
    whole: dict[Rung, int]
