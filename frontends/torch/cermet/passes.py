"""Passes over a record, in order. A pass is a name, what it needs of those before it, what it promises to those behind
it, and whether it may fail alone.

A pass runs for the whole record or for each of its parts; neighbours that run for each take one part after another. It
runs where everything that it needs was promised, so that one that fails takes along only those that build on it.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from typing import Protocol

_log = logging.getLogger("cermet")


class Subject(Protocol):
    """What passes run for: a record, or a part of one."""

    have: set[str]  # what passes have promised

    def failed(self, error: Exception) -> None:
        """A pass failed, and what it works on is as it was before that. May raise."""


class Record(Subject, Protocol):
    @property
    def parts(self) -> Sequence[Subject]: ...


@dataclasses.dataclass(frozen=True)
class Pass:
    """`run` takes the record, or with `each` the record and one of its parts. What it returns is the name of an earlier
    pass for each part: that part goes on from there."""

    name: str
    run: Callable[..., str | None]
    needs: frozenset[str] = frozenset()
    promises: frozenset[str] = frozenset()
    each: bool = False
    alone: bool = True  # where it fails, others go on


def run(passes: Sequence[Pass], record: Record, until: str = "", since: str = "") -> None:
    """Runs the passes from the one that is called `since` to before the one that is called `until`, or all.
    CERMET_LOG=info tells what each took."""
    taken: dict[str, float] = {}
    begun = itertools.dropwhile(lambda step: since not in ("", step.name), passes)
    chosen = itertools.takewhile(lambda step: step.name != until, begun)
    for each, group in itertools.groupby(chosen, lambda step: step.each):
        steps = list(group)
        for part in record.parts if each else (None,):
            _through(steps, record, part, taken)
    for name, seconds in taken.items():
        _log.info("pass %s: %.1f ms", name, 1e3 * seconds)


def _through(steps: Sequence[Pass], record: Record, part: Subject | None, taken: dict[str, float]) -> None:
    subject, arguments = (record, (record,)) if part is None else (part, (record, part))
    position = 0
    while position < len(steps):
        step = steps[position]
        position += 1
        if not step.needs <= record.have | subject.have:
            continue
        began = time.perf_counter()
        try:
            back = step.run(*arguments)
        except Exception as error:
            if not step.alone:
                raise
            subject.failed(error)
            continue
        finally:
            taken[step.name] = taken.get(step.name, 0.0) + time.perf_counter() - began
        subject.have |= step.promises
        if back:
            position = next(index for index, earlier in enumerate(steps) if earlier.name == back)
