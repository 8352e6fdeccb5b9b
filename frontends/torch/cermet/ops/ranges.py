"""Attention to ranges of keys as a torch op, for a few queries and a buffer of keys that is longer than what is in it:
`cermet_v1::attend_ranges`, which a graph calls in the place of scaled_dot_product_attention, and the one behind it.

Query `q` of row `b` attends to the keys from `first[b, q]` to `last[b, q]`, tensors of integers on the device or None,
as far as the buffer has them; without any it gets zeros. The host is told nothing, so a recorded graph may read them again each
time. There is no gradient.

`attention_ranges` is what a Kernel computes (attending.py): query `[segments, heads, width]` of the heads that share
one key, keys and values `[places, width]` of all rows and heads behind one another; `ends` is `0 .. segments`, `starts`
the place of a segment's first key and one number more, `used` how many it has, of which none is more than `longest`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from .attending import kernel_called
from .regions import NAMESPACE


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    first: torch.Tensor | None, last: torch.Tensor | None, scale: float | None, kernel: str,
) -> torch.Tensor:  # fmt: skip
    rows, heads, queries, width = query.shape
    shared, keys = key.shape[1:3]
    split = query.view(rows, shared, heads // shared, queries, width).transpose(2, 3)
    result = _inner(
        split.reshape(-1, heads // shared, width), key.reshape(-1, width), value.reshape(-1, value.shape[-1]),
        *_places(first, last, (rows, shared, queries), keys, query.device), keys,
        width**-0.5 if scale is None else scale, kernel,
    )  # fmt: skip
    joined = result.view(rows, shared, queries, heads // shared, -1).transpose(2, 3)
    return joined.reshape(rows, heads, queries, -1)


def _places(
    first: torch.Tensor | None, last: torch.Tensor | None, sizes: tuple[int, int, int], keys: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ends, starts and used. All calls of a graph have the same, in as few calls as it takes."""
    rows, shared, queries = sizes
    whole = {"dtype": torch.int32, "device": device}
    ends = torch.arange(rows * shared * queries + 1, **whole)
    # Of a row's and a head's first key, and of those behind the last: no number may be left out.
    starts = torch.arange(0, (rows * shared + 1) * keys, keys, **whole)
    used = torch.full((1, 1), keys, **whole) if last is None else (last.clamp(-1, keys - 1) + 1).int()
    if first is not None:
        begin = first.clamp(0, keys).int()
        used = (used - begin).clamp(min=0)
        begin = begin.clamp(max=keys - 1).expand(rows, queries)[:, None]
        starts = F.pad((starts[:-1].view(rows, shared, 1) + begin).reshape(-1), (0, 1))
    elif queries > 1:
        starts = starts.repeat_interleave(queries)[: ends.shape[0]]
    used = used.expand(rows, queries)[:, None].expand(rows, shared, queries)
    return ends, starts, used.reshape(-1).contiguous()  # one number for all would be a view


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    ends: torch.Tensor, starts: torch.Tensor, used: torch.Tensor, longest: int, scale: float, kernel: str,
) -> torch.Tensor:  # fmt: skip
    found = kernel_called(kernel).ranged(query, key, value, ends, starts, used, longest, scale)
    return found.contiguous()


def _fake(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: object) -> torch.Tensor:
    return query.new_empty((*query.shape[:2], value.shape[-1]))


def _define() -> torch.library.Library:
    ops = torch.library.Library(NAMESPACE, "FRAGMENT")
    tags, operands = (torch.Tag.pt2_compliant_tag,), "Tensor query, Tensor key, Tensor value"
    ops.define(
        f"attend_ranges({operands}, Tensor? first, Tensor? last, float? scale, str kernel) -> Tensor", tags=tags
    )
    places = "Tensor ends, Tensor starts, Tensor used, SymInt longest"
    ops.define(f"attention_ranges({operands}, {places}, float scale, str kernel) -> Tensor", tags=tags)
    ops.impl("attend_ranges", _attend, "CompositeImplicitAutograd")
    for key in ("CPU", "CUDA"):
        ops.impl("attention_ranges", _attention, key)
    torch.library.register_fake(f"{NAMESPACE}::attention_ranges", _fake, lib=ops)
    return ops


_library = _define()
_inner = getattr(torch.ops, NAMESPACE).attention_ranges.default
ATTEND_RANGES = getattr(torch.ops, NAMESPACE).attend_ranges.default
