"""Fusions that do not gain are not made: what was measured of a region beside what would run in its place.

A table per architecture holds the regions that Inductor's own kernels beat; it counts only where Inductor gets what
remains. With `options={"autotune": True}` a region is timed here once instead, beside the operations that it replaces
(timing.py). What does not gain is a near miss with both times.
"""

from __future__ import annotations

import dataclasses

from ..graph.decision import Decision, NearMiss, Region
from ..graph.nodes import example
from ..graph.traffic import judged, size_of
from ..targets.devices import target_of
from . import timing

_MARGIN = 1.02  # ours may be this much slower: two runs of one kernel differ by as much


@dataclasses.dataclass(frozen=True)
class Measured:
    """Times of one region, in microseconds, and the regions that they stand for."""

    pattern: str
    training: bool  # forward and backward together
    columns: tuple[int, int]  # from and to: the last dimension of the result with most elements
    at_least: int  # bytes of operands and results; smaller ones were not measured
    ours: float
    inductor: float


# From bench/results/fusions.json (bf16, 8192 rows).
_TABLES = {
    "sm_90": (
        Measured("rope", False, (129, 256), 64_000_000, 28.6, 27.6),
        Measured("softcap", False, (8192, 1 << 20), 64_000_000, 283.0, 251.3),
        Measured("softcap", True, (8192, 1 << 20), 64_000_000, 647.7, 612.3),
    )
}


def drop(decision: Decision, inductor: bool, autotune: bool) -> None:
    """Leaves alone the regions of a decision that do not gain. `inductor`: it would run them otherwise; `autotune`:
    what is not known is measured."""
    kept = []
    for region in decision.regions:
        reason = ""
        if region.head is None:  # a head does more than its region's kernels tell
            reason = _measured(decision, region) if autotune else _known(region) if inductor else ""
        if reason:
            decision.near_misses.append(NearMiss(region.pattern, region.results[0].name, reason, region.source))
        else:
            kept.append(region)
    decision.regions[:] = kept


def _known(region: Region) -> str:
    """What the table has against a region, or ""."""
    tensors = [example(node) for node in [*dict.fromkeys(region.operands), *region.results]]
    widest = max((example(node) for node in region.results), key=size_of)
    columns = judged(widest.shape[-1]) if widest.dim() else 1
    target = target_of(region.device)
    for entry in _TABLES.get(target, ()):
        low, high = entry.columns
        if (entry.pattern, entry.training) != (region.pattern, region.wanted is not None) or not low <= columns <= high:
            continue
        if sum(map(size_of, tensors)) >= entry.at_least and entry.ours > _MARGIN * entry.inductor:
            times = f"{entry.ours:.1f} us, Inductor's kernels {entry.inductor:.1f} us"
            return f"it does not gain on {target}: {times}, as measured for {low} to {high} columns"
    return ""


def _measured(decision: Decision, region: Region) -> str:
    times = timing.times(decision.module, region)
    if times is None or times.ours <= _MARGIN * times.unfused:
        return ""
    return f"it does not gain here: {times.ours:.1f} us, the operations it replaces {times.unfused:.1f} us"
