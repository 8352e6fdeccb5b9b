"""What the torch frontend did in this process, beside libcermet's own counters."""

from __future__ import annotations

from . import locks

NAMES = (
    "graphs", "regions", "near_misses", "causal_masks", "full_masks", "window_masks", "document_masks", "padding_masks",
    "length_masks", "grouped_attentions", "released", "calls_unpadded", "calls_compact", "calls_segmented", "calls_padded", "fallbacks",
    "inductor_failures", "late_gradients", "checked", "refused", "cache_bypasses", "timed", "clusters", "dropouts",
    "wide_linears", "tiled_parts", "grouped_products", "written_out_attentions", "repeated_layers",
    "layers_not_traced",
)  # fmt: skip

_lock = locks.lock()
_counts = dict.fromkeys(NAMES, 0)


def count(name: str, amount: int = 1) -> None:
    """Raises KeyError for what is not among NAMES: nobody would see it."""
    with _lock:
        _counts[name] += amount


def snapshot() -> dict[str, int]:
    with _lock:
        return dict(_counts)


