"""What the windows of a repetition are given, or give, one each: a lane.

A lane of a whole graph has as many places as windows (or one more, where two windows read the same). In a graph without
some of the windows it has as many fewer: those behind are counted on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable


HEAD, TAIL = 3, 2  # windows that are left, of those before and behind the ones that are not


class Irregular(Exception):
    """A graph does not repeat itself as the one that it was made of does."""


@dataclasses.dataclass(frozen=True)
class Rung:
    lane: Hashable
    place: int

    def counted(self, more: int) -> Rung:
        """In the whole graph, of an input of the shortened one."""
        return self if self.place < HEAD else Rung(self.lane, self.place + more)


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
