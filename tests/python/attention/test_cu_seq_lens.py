"""Documents that a caller tells by where they end, as flash attention's callers do (`cu_seq_lens`)."""

from __future__ import annotations

import pytest
import torch
import transformers

import tiny_models
import truth
from attending import Counted
from packing import LENGTH, attending, operands, same_as_alone, triangle
from reference_kernel import reference  # noqa: F401

ROWS = [[4, 3, 5], [12], [1, 10, 1], [11, 1], [1] * 12, [2, 10]]
compiled = {"backend": "cermet", "options": {"strict": True}}


def ends(row: list[int]) -> torch.Tensor:
    return torch.tensor([0, *row], dtype=torch.int32).cumsum(0, dtype=torch.int32)


def of(number):
    return ((number[:, None] == number) & triangle(LENGTH))[None, None]


def searched(cu):
    return of(torch.searchsorted(cu, torch.arange(LENGTH, dtype=torch.int32), right=True))


def in_buckets(cu):
    return of(torch.bucketize(torch.arange(LENGTH, dtype=torch.int32), cu, right=True))


def counted(cu):
    return of((cu[1:, None] <= torch.arange(LENGTH)).sum(0))


def scattered(cu):
    return of(torch.zeros(LENGTH + 1, dtype=torch.int32).scatter(0, cu[1:-1].long(), 1).cumsum(0)[:LENGTH])


SPELLINGS = searched, in_buckets, counted, scattered


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda spelling: spelling.__name__)
def test_each_document_is_as_it_is_alone(reference, spelling):
    """And how many there are compiles nothing again, once torch has seen that it varies."""
    function = attending(lambda cu, _: spelling(cu))
    call, found = torch.compile(function, **compiled), Counted()
    for row in ROWS:
        same_as_alone(call, [row], operands(1), ends(row))
    counts = found()
    assert counts["document_masks"] <= 4 and counts["calls_segmented"] == len(ROWS), counts  # none and one are apart
    assert "calls_padded" not in counts, counts


def test_what_transformers_collator_gives_beside_positions(reference):
    """With `return_flash_attn_kwargs` it gives both; attention that reads positions heeds the others not."""
    collate = transformers.DataCollatorWithFlattening(return_tensors="pt", return_flash_attn_kwargs=True)
    model, found = tiny_models.tiny("Llama", torch.float64, attn_implementation="sdpa"), Counted()
    call = torch.compile(model, **compiled)
    for lengths in ([4, 3, 5], [6, 6], [1, 10, 1], [2, 3, 7]):
        texts = tiny_models.words(1, LENGTH)[0].split(lengths)
        batch = collate([{"input_ids": each.tolist()} for each in texts])
        assert {"cu_seq_lens_q", "max_length_q"} <= batch.keys()
        mine = call(**batch, use_cache=False).loss
        alone = [each[None] for each in texts if len(each) > 1]
        losses = [model(input_ids=each, labels=each).loss * (each.shape[1] - 1) for each in alone]
        right = sum(losses) / sum(len(each) - 1 for each in texts)
        assert truth.relative(mine.detach(), right.detach()) < 2e-5, lengths
    counts = found()
    assert counts["calls_segmented"] == 4 and "calls_padded" not in counts, counts
    assert counts["document_masks"] <= 3 * tiny_models.LAYERS, counts
