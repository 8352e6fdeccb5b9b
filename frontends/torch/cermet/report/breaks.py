"""Where Dynamo broke a program into graphs."""

from __future__ import annotations

import collections

import torch


class GraphBreaks:
    """Dynamo's count of graph breaks in this process, from where it was left."""

    def __init__(self, since_start: bool = False) -> None:
        self._seen = {} if since_start else dict(self._now())

    @staticmethod
    def _now() -> collections.Counter[str]:
        return torch._dynamo.utils.counters["graph_break"]

    def new(self) -> list[str]:
        """The reasons of the breaks since the last call."""
        now, seen = dict(self._now()), self._seen
        self._seen = now
        return [reason for reason, times in now.items() for _ in range(times - seen.get(reason, 0))]
