"""Attention under masks: operands, what the finder says of a function, and its numbers beside eager's."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import cermet
import graphs
import truth
from cermet.attention import masks

BATCH, HEADS, LENGTH, WIDTH = 2, 2, 9, 8
COUNTERS = (
    "causal_masks", "full_masks", "window_masks", "document_masks", "padding_masks",
    "length_masks", "grouped_attentions", "grouped_products", "written_out_attentions", "calls_unpadded", "calls_compact", "calls_segmented", "calls_padded", "fallbacks", "near_misses",
)  # fmt: skip


def operands(length: int = LENGTH, heads: int = HEADS, batch: int = BATCH, keys: int | None = None):
    random_numbers = torch.Generator().manual_seed(length)
    lengths = (length, keys or length, keys or length)
    return [
        torch.randn(batch, heads, size, WIDTH, generator=random_numbers, requires_grad=True) for size in lengths
    ]


def attending(spelling):
    def attend(query, key, value):
        mask = spelling(query.shape[0], query.shape[2])
        mask = mask.to(query.dtype) if mask.is_floating_point() else mask
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)

    return attend


def found(function, *args, dynamic=None) -> masks.Found:
    return masks.find(graphs.trace(function, *args, dynamic=dynamic))


def gradients(function, args):
    leaves = [
        arg.detach().clone().requires_grad_() if arg.is_floating_point() else arg.clone() for arg in args
    ]
    result = function(*leaves)
    random_numbers = torch.Generator().manual_seed(7)
    weight = torch.randn(result.shape, generator=random_numbers).to(result)
    (result * weight).sum().backward()
    return {"result": result.detach()} | {
        str(index): leaf.grad for index, leaf in enumerate(leaves) if leaf.is_floating_point()
    }


def as_true(ours, function, args):
    """Result and gradients by the rule for numbers: at most 2 x eager's error and one unit in the last place."""
    eager = gradients(function, args)
    wide = [arg.detach().double() if arg.is_floating_point() else arg for arg in args]
    with truth.Float64():
        true = gradients(function, wide)
    mine = gradients(ours, args)
    for name, value in mine.items():
        limit = 2 * truth.relative(eager[name], true[name]) + truth.spacing(value.dtype)
        assert truth.relative(value, true[name]) <= limit, name
    return mine


class Counted:
    """What the counters grew by since this was made."""

    def __init__(self):
        self.before = cermet.counters()

    def __call__(self) -> dict[str, int]:
        now = cermet.counters()
        return {name: now[name] - self.before[name] for name in COUNTERS if now[name] != self.before[name]}


def with_padding(spelling):
    def attend(query, key, value, attention_mask):
        allowed = spelling(query.shape[0], key.shape[2])
        allowed = (allowed if allowed.dtype == torch.bool else allowed == 0) & attention_mask[:, None, None, :].bool()
        return F.scaled_dot_product_attention(query, key, value, attn_mask=allowed) * attention_mask[:, None, :, None]

    return attend


def attention_masks(dtype=torch.long):
    ones = torch.ones(BATCH, LENGTH, dtype=dtype)
    left, right = ones.clone(), ones.clone()
    left[0, :3], right[1, 6:] = 0, 0
    return ones, left, right
