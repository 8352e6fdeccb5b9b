"""Masks that a caller hands in: what their data say is looked at in each call, and another mask stays what it is."""

from __future__ import annotations

import contextlib
import random

import pytest
import torch
import torch.nn.functional as F

import cermet
import tiny_models
import truth
from attending import Counted
from cermet.attention import blocks
from packing import HEADS, LENGTH, ROWS, SHARED, ids, joined, operands, triangle
from reference_kernel import reference  # noqa: F401

compiled = {"backend": "cermet", "options": {"strict": True}}


def attend(query, key, value, mask):
    key, value = (each.repeat_interleave(HEADS // SHARED, 1) for each in (key, value))
    return joined(F.scaled_dot_product_attention(query, key, value, attn_mask=mask))


def same(number):
    return (number[:, None, :] == number[:, :, None])[:, None]


def band(number, left, right):
    behind = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    return same(number) & (behind <= left) & (-behind <= right)


def added(mask):
    return torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, float("-inf"))


def least(mask):
    return torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, torch.finfo(torch.float64).min)


def gradients(call, args, mask):
    result = call(*args, mask)
    weight = torch.randn(result.shape, generator=torch.Generator().manual_seed(2), dtype=result.dtype)
    return [result.detach(), *torch.autograd.grad((result * weight).sum(), args)]


def alike(call, mask, batch):
    args = operands(batch)
    for one, other in zip(gradients(call, args, mask), gradients(attend, args, mask)):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


BANDS = {"causal": (99, 0), "full": (99, 99), "window": (3, 0), "both sides": (2, 4), "itself": (0, 0)}


@pytest.mark.parametrize("spelling", [lambda mask: mask, added, least], ids=["truths", "infinity", "least"])
def test_one_program_takes_every_band_and_every_document(reference, spelling):
    call, counted, calls = torch.compile(attend, **compiled), Counted(), 0
    for name, reach in BANDS.items():
        for rows in ([ROWS[0], ROWS[1]], [ROWS[2], ROWS[3]]):
            alike(call, spelling(band(ids(rows), *reach)), 2)
            calls += 1
    assert counted() == {"document_masks": 1, "calls_segmented": calls, "grouped_attentions": 1}


def test_one_mask_for_all_rows(reference):
    call, counted = torch.compile(attend, **compiled), Counted()
    alike(call, band(ids([ROWS[0]]), 99, 0), 3)
    torch._dynamo.reset()
    alike(torch.compile(attend, **compiled), band(ids([ROWS[0]]), 99, 0)[0, 0], 3)
    assert counted() == {"document_masks": 2, "calls_segmented": 2, "grouped_attentions": 2}


def but_for(mask, query, key):
    mask = mask.clone()
    mask[0, 0, query, key] ^= True
    return mask


CAUSAL = band(ids([ROWS[0], ROWS[3]]), 99, 0)
OTHERS = {
    "one more": but_for(CAUSAL, 1, 3),
    "one less": but_for(CAUSAL, 10, 8),
    "the first": but_for(CAUSAL, 11, 7),
    "the last": but_for(CAUSAL, 11, 11),
    "interleaved": same(torch.arange(LENGTH).expand(2, -1) % 2),
    "documents that come again": same(torch.tensor([[0] * 4 + [1] * 4 + [0] * 4] * 2)),
    "nothing attended to": CAUSAL & (torch.arange(LENGTH) > 0)[:, None],
    "two windows": torch.stack([band(ids([ROWS[1]]), 3, 0)[0], band(ids([ROWS[1]]), 4, 0)[0]]),
    "a prefix": (triangle(LENGTH) | (torch.arange(LENGTH) < 4)).expand(2, 1, -1, -1),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_mask_stays(reference, name):
    call, counted = torch.compile(attend, **compiled), Counted()
    alike(call, OTHERS[name], 2)
    alike(call, CAUSAL, 2)
    assert counted()["calls_padded"] == counted()["calls_segmented"] == 1, counted()


def test_what_is_added_and_hides_nothing_is_no_mask_of_documents(reference):
    call, counted = torch.compile(attend, **compiled), Counted()
    alike(call, added(CAUSAL) + 0.5, 2)
    alike(call, torch.where(CAUSAL, 0.0, -3.0).double(), 2)
    assert counted()["calls_padded"] == 2 and "calls_segmented" not in counted(), counted()


def test_a_mask_that_is_never_one_of_documents_is_no_longer_looked_at(reference, monkeypatch):
    looked, read = [], blocks.read
    monkeypatch.setattr(blocks, "read", lambda *given: looked.append(0) or read(*given))
    call = torch.compile(attend, **compiled)
    for _ in range(8):
        alike(call, OTHERS["interleaved"], 2)
    assert 0 < len(looked) < 6, looked


def test_a_mask_of_each_head_stays(reference):
    counted = Counted()
    alike(torch.compile(attend, **compiled), CAUSAL.expand(-1, HEADS, -1, -1).clone(), 2)
    assert "document_masks" not in counted(), counted()


def test_a_learned_mask_stays(reference):
    counted, call = Counted(), torch.compile(attend, **compiled)
    mask = torch.zeros(2, 1, LENGTH, LENGTH, dtype=torch.float64, requires_grad=True)
    call(*operands(2), mask).sum().backward()
    assert mask.grad is not None and "document_masks" not in counted(), counted()


@pytest.mark.parametrize("seed", range(60))
def test_what_is_read_is_what_the_mask_is(seed):
    """Of random masks of documents and a band or nearly: what is read gives the mask again, or tells that it is none."""
    chosen = random.Random(seed)
    length, rows = chosen.randint(1, 14), chosen.randint(1, 3)
    begins = torch.tensor([[place == 0 or chosen.random() < 0.3 for place in range(length)] for _ in range(rows)])
    number, places = begins.cumsum(-1), torch.arange(length)
    reach = [chosen.choice([0, 1, 3, length]) for _ in range(2)]
    behind = places[:, None] - places
    near = (behind <= reach[0]) & (-behind <= reach[1])
    mask = (number[:, None, :] == number[:, :, None]) & near
    changed = seed % 2 and length > 1
    if changed:
        mask[chosen.randrange(rows), chosen.randrange(length), chosen.randrange(length)] ^= True
    found, (ok, left, right) = blocks.read(mask[:, None], rows, length)
    again = found[:, None, :] == found[:, :, None]
    for side, distance in ((left, behind), (right, -behind)):
        again &= (distance <= side) | (side < 0)
    assert ok or changed
    assert not ok or torch.equal(again, mask), (mask, found, left, right)


@pytest.mark.parametrize("family", ["Llama", "Qwen3"])
def test_a_model_that_is_given_its_mask(reference, family):
    model, counted = tiny_models.tiny(family, torch.float64, attn_implementation="sdpa").train(), Counted()
    call, words = torch.compile(model, **compiled), tiny_models.words(2, LENGTH)
    for rows in ([ROWS[0], ROWS[1]], [ROWS[3], ROWS[4]]):
        given, found = {"input_ids": words, "attention_mask": band(ids(rows), 99, 0), "labels": words}, []
        for run in (call, model):
            with truth.Float64() if run is model else contextlib.nullcontext():
                model.zero_grad()
                loss = run(**given).loss
                loss.backward()
            found.append([loss.detach(), *(each.grad.clone() for each in model.parameters())])
        for one, other in zip(*found):
            assert truth.relative(one, other) < 2e-5  # norms and the loss are in float32
    counts = counted()
    assert counts["document_masks"] == tiny_models.LAYERS and counts["calls_segmented"] == 2, counts


def test_explain_says_what_must_hold(reference):
    told = " ".join(str(cermet.explain(attend, *operands(2), CAUSAL)).split())
    assert "is one of documents and a band" in told, told
