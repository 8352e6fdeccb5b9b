"""CERMET_EXPLAIN: what happened to each graph that is compiled, on stderr or as pages. It never fails a compile."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import torch.fx as fx

from .. import locks
from ..fusing.replacement import Replaced
from ..graph.decision import Decision, Region
from ..rematerialization.plan import Plan
from . import runs
from .breaks import GraphBreaks
from .explanation import Explanation
from .findings import Findings
from .runs import Run

if TYPE_CHECKING:
    from ..remainder.direct import Told

_log = logging.getLogger("cermet")
_lock = locks.lock()
_pages: dict[str, int] = {}  # path -> pages written
_breaks: GraphBreaks | None = None


def describe(decision: Decision) -> Findings:
    """What is decided about a graph, before it is rewritten; what goes wrong is a warning."""
    try:
        return Findings.of(decision)
    except Exception as error:
        _not_explained(error)
        return Findings()


def describe_runs(into: list[Run], plans: list[Plan], found: Iterable[Region]) -> Told:
    """Hears of graphs behind autograd (direct.py) and adds what they run, and the plans of what is kept between them.
    `found`: the regions from before autograd."""

    def told(kind: str, module: fx.GraphModule, replaced: Replaced, planned: Callable[[], Plan] | None) -> None:
        try:
            into.append(runs.of(kind, module, replaced, runs.sources_of(found)))
            if planned is not None:
                plans.append(planned())
        except Exception as error:
            _not_explained(error)

    return told


def _not_explained(error: Exception) -> None:
    _log.warning("CERMET_EXPLAIN: a graph is not explained: %s: %s", type(error).__name__, error)


def report(found: Explanation, where: str) -> None:
    """Prints or writes one graph's explanation; what goes wrong is a warning."""
    global _breaks
    try:
        with _lock:
            _breaks = _breaks or GraphBreaks(since_start=True)
            found.graph_breaks += _breaks.new()
        if where == "-":
            print(f"cermet: {found}\n", file=sys.stderr, flush=True)
            return
        with _lock:
            _pages[where] = number = _pages.get(where, 0) + 1
        stem = where.removesuffix(".html")
        found.save(where if number == 1 else f"{stem}-{number}.html")
    except Exception as error:
        _not_explained(error)
