"""What the torch frontend did in this process, beside libcermet's own counters."""

from __future__ import annotations

import collections

from . import forking

NAMES = (
    "graphs", "regions", "near_misses", "causal_masks", "grouped_attentions", "released", "calls_unpadded",
    "calls_padded", "fallbacks", "inductor_failures", "late_gradients", "checked", "refused", "cache_bypasses",
    "timed",
)  # fmt: skip

_lock = forking.lock()
_counts: collections.Counter[str] = collections.Counter()


def count(name: str, amount: int = 1) -> None:
    with _lock:
        _counts[name] += amount


def snapshot() -> dict[str, int]:
    with _lock:
        return {name: _counts[name] for name in NAMES}


def counters() -> dict[str, int]:
    """Counters since the process began.

    libcermet's (cermet.h, cermet_counters): compiles, hits by store, launches, cache failures. The frontend's: `graphs`
    rewritten (two where the padding mask of a call chooses between variants), `regions` replaced in them,
    `near_misses`, `causal_masks` of attentions that became `is_causal`, `grouped_attentions` that no longer repeat
    heads, `released` pieces of packed products (packed.py), calls of graphs with two variants by the one they took
    (`calls_unpadded`, `calls_padded`), `fallbacks` (graphs, or single matches in them, left as they were because of a
    failure of ours), `inductor_failures` (graphs, or their backwards alone, that Inductor did not compile and that run
    by direct calls), `late_gradients` (gradients derived while tracing rather than when the graph was compiled),
    `cache_bypasses` (graphs that torch's AOTAutogradCache does not take), `timed` (regions that `autotune` measured).
    Under CERMET_CHECK=1: kernels `checked`, regions `refused`.
    """
    from . import library

    return library.context().counters() | snapshot()
