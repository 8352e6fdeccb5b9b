"""Packed batches of transformers' models: several documents in a row, told by their positions alone, give what each gives
by itself, and no attention keeps its mask."""

from __future__ import annotations

import pytest
import torch

import tiny_models
import truth
from attending import Counted
from reference_kernel import reference  # noqa: F401

FAMILIES = [name for name, family in (tiny_models.NAMED | tiny_models.OTHERS).items() if family.sdpa]
PACKED = ([5, 8, 3], [1, 1, 14], [16])
OF_EXPERTS = ("Mixtral", "Qwen2Moe")  # whose products torch has in float32 at most; norms compute in that, too


def batch(lengths):
    text = tiny_models.words(1, sum(lengths))
    return text, torch.cat([torch.arange(length) for length in lengths])[None]


def measured(model, logits):
    """Logits, and the gradients of parameters."""
    weight = torch.randn(logits.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    model.zero_grad()
    (logits.double() * weight).sum().backward()
    grads = {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}
    return {"logits": logits.detach(), **grads}


@pytest.mark.parametrize("family", FAMILIES)
def test_documents_of_a_packed_batch_are_as_they_are_alone(family, reference):  # noqa: F811
    dtype, tolerance = (torch.float32, 2e-4) if family in OF_EXPERTS else (torch.float64, 2e-5)
    model = tiny_models.tiny(family, dtype, attn_implementation="sdpa")
    compiled = torch.compile(model, backend="cermet", options={"strict": True, "remainder": "aot"})
    counted = Counted()
    for lengths in PACKED:
        text, places = batch(lengths)
        alone = torch.cat([model(input_ids=each, use_cache=False).logits for each in text.split(lengths, 1)], 1)
        right = measured(model, alone)
        mine = measured(model, compiled(input_ids=text, position_ids=places, use_cache=False).logits)
        assert mine.keys() == right.keys()
        for name, value in mine.items():
            assert truth.relative(value, right[name]) < tolerance, (lengths, name)
    counts = counted()
    assert counts["document_masks"] == tiny_models.LAYERS and counts["calls_segmented"] == len(PACKED), counts
