"""Attention to ranges of keys as a torch op, for a few queries and a buffer of keys that is longer than what is in it:
`cermet_v1::attend_ranges`, which a graph calls in the place of scaled_dot_product_attention, and the one behind it.

Query `q` of row `b` attends to the keys from `first[b, q]` to `last[b, q]`, tensors of integers on the device or None,
as far as the buffer has them; without any it gets zeros. The host is told nothing, so a recorded graph may read them again each
time. There is no gradient.

`attend_masked` is told a mask instead, `[rows or 1, 1, queries or 1, keys]` of truths or of what is added to scores.
No more keys are read than lie between a query's first and last. Where it attends to all of those alike, they are a
range; where it does not, which only the device knows, another kernel adds the mask to the scores of the keys between.
Each query is without keys in one of the two, which costs a launch that ends at once.

`attention_ranges` is what a Kernel computes (attending.py): query `[segments, heads, width]` of the heads that share
one key, keys and values `[places, width]` of all rows and heads behind one another; `ends` is `0 .. segments`, `starts`
the place of a segment's first key and one number more, `used` how many it has, of which none is more than `longest`.
`attention_added` also has `added`, `[segments, places]`, whose column 0 is of a segment's first key; its rows begin at
multiples of 8 elements. What it gives a segment without keys nobody reads.
"""

from __future__ import annotations

import torch

from .attending import NEVER, kernel_called
from .regions import NAMESPACE

_ALIGNED = 8  # elements that a row of what is added is a multiple of


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    first: torch.Tensor | None, last: torch.Tensor | None, scale: float | None, kernel: str,
) -> torch.Tensor:  # fmt: skip
    keys = key.shape[2]
    places = _places(first, last, _sizes(query, key), keys, query.device)
    result = _inner(*_split(query, key, value), *places, keys, _scale(query, scale), kernel)
    return _joined(result, query, key)


def _attend_masked(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scale: float | None, kernel: str
) -> torch.Tensor:
    sizes, keys = _sizes(query, key), key.shape[2]
    mask = mask[(None,) * (4 - mask.dim())][:, 0]
    first, last, alike = _between(mask)
    ends, starts, between = _places(first, last, sizes, keys, query.device)
    alike = _of_segments(alike, sizes)
    used, others = torch.where(alike, between, 0), torch.where(alike, 0, between)
    operands, form = _split(query, key, value), (keys, _scale(query, scale), kernel)
    whole = _inner(*operands, ends, starts, used, *form)
    added = _of_segments(_added(mask, first, query.dtype), sizes)
    uneven = _inner_added(*operands, ends, starts, others, added, *form)
    return _joined(torch.where((others > 0)[:, None, None], uneven, whole), query, key)


def _sizes(query: torch.Tensor, key: torch.Tensor) -> tuple[int, int, int]:
    """Rows, heads of keys and queries: what segments are numbered by."""
    return query.shape[0], key.shape[1], query.shape[2]


def _scale(query: torch.Tensor, scale: float | None) -> float:
    return query.shape[-1] ** -0.5 if scale is None else scale


def _split(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows, heads, queries, width = query.shape
    shared = key.shape[1]
    split = query.view(rows, shared, heads // shared, queries, width).transpose(2, 3)
    return split.reshape(-1, heads // shared, width), key.reshape(-1, width), value.reshape(-1, value.shape[-1])


def _joined(result: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    rows, heads, queries, _ = query.shape
    shared = key.shape[1]
    joined = result.view(rows, shared, queries, heads // shared, -1).transpose(2, 3)
    return joined.reshape(rows, heads, queries, -1)


def _between(mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of each query, `[rows or 1, queries or 1]`, the first and the last key, and whether it attends to all between
    alike. What hides all keys by a finite number hides none."""
    keys = mask.shape[-1]
    alike = shown = mask
    if mask.dtype != torch.bool:
        alike, shown = mask == 0, ~(mask <= NEVER)
        shown = torch.where(shown.any(-1, keepdim=True), shown, mask != float("-inf"))
    places = torch.arange(keys, device=mask.device)
    first, last = torch.where(shown, places, keys).amin(-1), torch.where(shown, places, -1).amax(-1)
    return first, last, alike.sum(-1) == (last + 1 - first).clamp(min=0)


def _added(mask: torch.Tensor, first: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`[rows or 1, queries or 1, places]` of each query's keys from its first on, and anything behind the last."""
    keys = mask.shape[-1]
    places = torch.arange(-(-keys // _ALIGNED) * _ALIGNED, device=mask.device)
    found = mask.gather(-1, (first[..., None] + places).clamp(max=keys - 1))
    if found.dtype != torch.bool:
        return found
    return torch.zeros_like(found, dtype=dtype).masked_fill(~found, float("-inf"))


def _of_segments(each: torch.Tensor, sizes: tuple[int, int, int]) -> torch.Tensor:
    """What each row's queries have, of `[rows or 1, queries or 1, ...]`, of every segment."""
    rows, shared, queries = sizes
    more = each.shape[2:]
    return each[:, None].expand(rows, shared, queries, *more).reshape(-1, *more).contiguous()


def _places(
    first: torch.Tensor | None, last: torch.Tensor | None, sizes: tuple[int, int, int], keys: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ends, starts and used. All calls of a graph have the same, in as few calls as it takes."""
    rows, shared, queries = sizes
    whole = {"dtype": torch.int32, "device": device}
    ends = torch.arange(rows * shared * queries + 1, **whole)
    # Of a row's and a head's first key, and of those behind the last: no number may be left out.
    starts = torch.arange(rows * shared + 1, **whole) * keys
    used = torch.full((1, 1), keys, **whole) if last is None else (last.clamp(-1, keys - 1) + 1).int()
    if first is not None:
        begin = first.clamp(0, keys).int()
        used = (used - begin).clamp(min=0)
        begin = begin.clamp(max=keys - 1).expand(rows, queries)[:, None]
        starts = torch.cat([(starts[:-1].view(rows, shared, 1) + begin).reshape(-1), starts[:1]])
    elif queries > 1:
        starts = starts.repeat_interleave(queries)[: ends.shape[0]]
    return ends, starts, _of_segments(used, sizes)


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    ends: torch.Tensor, starts: torch.Tensor, used: torch.Tensor, longest: int, scale: float, kernel: str,
) -> torch.Tensor:  # fmt: skip
    found = kernel_called(kernel).ranged(query, key, value, ends, starts, used, longest, scale)
    return found.contiguous()


def _attention_added(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    ends: torch.Tensor, starts: torch.Tensor, used: torch.Tensor, added: torch.Tensor,
    longest: int, scale: float, kernel: str,
) -> torch.Tensor:  # fmt: skip
    found = kernel_called(kernel).added(query, key, value, ends, starts, used, added, longest, scale)
    return found.contiguous()


def _fake(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: object) -> torch.Tensor:
    return query.new_empty((*query.shape[:2], value.shape[-1]))


def _define() -> torch.library.Library:
    ops = torch.library.Library(NAMESPACE, "FRAGMENT")
    tags, operands = (torch.Tag.pt2_compliant_tag,), "Tensor query, Tensor key, Tensor value"
    ops.define(
        f"attend_ranges({operands}, Tensor? first, Tensor? last, float? scale, str kernel) -> Tensor", tags=tags
    )
    ops.define(f"attend_masked({operands}, Tensor mask, float? scale, str kernel) -> Tensor", tags=tags)
    ops.impl("attend_ranges", _attend, "CompositeImplicitAutograd")
    ops.impl("attend_masked", _attend_masked, "CompositeImplicitAutograd")
    places, form = "Tensor ends, Tensor starts, Tensor used", "SymInt longest, float scale, str kernel"
    for name, more, run in (("ranges", "", _attention), ("added", "Tensor added, ", _attention_added)):
        ops.define(f"attention_{name}({operands}, {places}, {more}{form}) -> Tensor", tags=tags)
        for key in ("CPU", "CUDA"):
            ops.impl(f"attention_{name}", run, key)
        torch.library.register_fake(f"{NAMESPACE}::attention_{name}", _fake, lib=ops)
    return ops


_library = _define()
_inner = getattr(torch.ops, NAMESPACE).attention_ranges.default
_inner_added = getattr(torch.ops, NAMESPACE).attention_added.default
ATTEND_RANGES = getattr(torch.ops, NAMESPACE).attend_ranges.default
ATTEND_MASKED = getattr(torch.ops, NAMESPACE).attend_masked.default
