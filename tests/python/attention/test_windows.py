"""Windows narrower than the sequence become calls over a band, alone, in documents and between layers without one."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import graphs
import mask_spellings
import tiny_models
import truth
from attending import Counted, attention_masks, found, with_padding
from cermet.attention import kernels
from cermet.attention.masks import Meaning
from cermet.ops.attending import Band
from packing import LENGTH, ROWS, as_the_mask, joined, of_documents, operands, positions
from reference_kernel import reference  # noqa: F401

REACH = 4


def ahead(batch, length):
    query, key = mask_spellings.indices(length)
    return (key <= query + 2) & (key >= query - 5)


def of_transformers(batch, length):
    function = mask_spellings.hf.sliding_window_causal_mask_function(REACH)
    return mask_spellings.hf.sdpa_mask(batch, length, length, mask_function=function, allow_is_causal_skip=False)


def of_transformers_both_ways(batch, length):
    function = mask_spellings.hf.sliding_window_bidirectional_mask_function(REACH)
    return mask_spellings.hf.sdpa_mask(batch, length, length, mask_function=function, allow_is_causal_skip=False)


def cut_from_a_triangle(batch, length):
    whole = torch.ones(length, length, dtype=torch.bool)
    return whole.tril() & ~whole.tril(-REACH)


def filled(batch, length):
    query, key = mask_spellings.indices(length)
    mask = torch.zeros(length, length, dtype=torch.float64).masked_fill(key > query, float("-inf"))
    return mask.masked_fill(query - key >= REACH, float("-inf"))


def itself_alone(batch, length):
    query, key = mask_spellings.indices(length)
    return query == key


WINDOWS = {
    mask_spellings.bidirectional_window: Band(3, 3),
    mask_spellings.bidirectional_window_of_two_sides: Band(2, 2),
    ahead: Band(5, 2),
    of_transformers: Band(REACH - 1, 0),
    of_transformers_both_ways: Band(REACH, REACH),
    cut_from_a_triangle: Band(REACH - 1, 0),
    filled: Band(REACH - 1, 0),
}
named = pytest.mark.parametrize("spelling", WINDOWS, ids=lambda spelling: spelling.__name__)


def attending(spelling):
    def attend(query, key, value, number=None):
        mask = spelling(query.shape[0], query.shape[2])
        key, value = (each.repeat_interleave(query.shape[1] // key.shape[1], 1) for each in (key, value))
        return joined(F.scaled_dot_product_attention(query, key, value, attn_mask=mask))

    return attend


@named
@pytest.mark.parametrize("remainder", ["eager", "aot", "inductor"])
def test_windows_are_found_and_give_the_numbers_of_their_mask(spelling, remainder, reference):  # noqa: F811
    mask = spelling(1, LENGTH)
    mask = (mask if mask.dtype == torch.bool else mask == 0).expand(1, 1, LENGTH, LENGTH)[0, 0]
    assert torch.equal(mask, kernels.mask_of([(LENGTH, LENGTH)], WINDOWS[spelling], LENGTH))
    if remainder == "inductor" and spelling is not of_transformers:
        return
    function, counted = attending(spelling), Counted()
    compiled = graphs.compiled(function, remainder)
    as_the_mask(compiled, function, operands(2), None, "window_masks")
    assert counted() == {"window_masks": 1, "grouped_attentions": 1}


@named
def test_windows_of_a_symbolic_length(spelling, reference):  # noqa: F811
    function = attending(spelling)
    compiled, counted = graphs.compiled(function, "aot"), Counted()
    for batch, length in ((2, 12), (3, 9), (2, 31)):
        args = operands(batch, length)
        for tensor in args:
            for dimension in (0, 2):
                torch._dynamo.mark_dynamic(tensor, dimension)
        torch.testing.assert_close(compiled(*args), function(*args))
    assert counted() == {"window_masks": 1, "grouped_attentions": 1}


def test_a_window_beside_padding(reference):  # noqa: F811
    """Of a batch without padding; another keeps the mask."""

    def attend(query, key, value, attention_mask):
        return joined(with_padding(of_transformers)(query, key, value, attention_mask))

    counted = Counted()
    compiled = graphs.compiled(attend, "aot")
    for mask in attention_masks():
        kept = "window_masks" if mask.all() else "calls_padded"
        as_the_mask(compiled, attend, operands(2, mask.shape[1], 4), mask, kept)
    assert counted() == {"window_masks": 1, "calls_unpadded": 1, "calls_padded": 2}


@pytest.mark.parametrize("spelling", [itself_alone, mask_spellings.chunks, mask_spellings.prefix],
                         ids=lambda spelling: spelling.__name__)  # fmt: skip
def test_masks_that_are_no_bands_stay(spelling, reference):  # noqa: F811
    claims = [mask.proof.band for mask in found(attending(spelling), *operands(2)).masks]
    assert claims in ([], [Band(0, 0)]), claims
    function = attending(spelling)
    torch.testing.assert_close(graphs.compiled(function, "aot")(*operands(2)), function(*operands(2)))


def test_a_window_in_documents(reference):  # noqa: F811
    hf = mask_spellings.hf

    def attend(query, key, value, places):
        packed = hf.find_packed_sequence_indices(places)
        window = hf.sliding_window_causal_mask_function(REACH)
        function = of_documents(window, places, packed)
        mask = hf.sdpa_mask(places.shape[0], LENGTH, LENGTH, mask_function=function, allow_is_causal_skip=False)
        key, value = (each.repeat_interleave(query.shape[1] // key.shape[1], 1) for each in (key, value))
        return joined(F.scaled_dot_product_attention(query, key, value, attn_mask=mask))

    (claim,) = found(attend, *operands(2), positions(ROWS[:2])).masks
    assert (claim.meaning, claim.proof.band) == (Meaning.DOCUMENT, Band(REACH - 1, 0))
    torch._dynamo.reset()
    compiled, counted = graphs.compiled(attend, "aot"), Counted()
    for rows in (ROWS[:2], ROWS[2:4], ROWS[3:5]):
        as_the_mask(compiled, attend, operands(2), positions(rows), "calls_segmented")
    assert counted() == {"document_masks": 1, "calls_segmented": 3, "grouped_attentions": 1}


ALTERNATING = {
    "Mistral": {"sliding_window": 5},
    "Qwen2": {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    "Cohere2": {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]},
    "Exaone4": {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]},
    "Olmo3": {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]},
    "Gemma3Text": {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]},
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("family", ALTERNATING)
def test_models_whose_layers_have_windows(family, packed, reference):  # noqa: F811
    model = tiny_models.tiny(family, torch.float64, attn_implementation="sdpa", **ALTERNATING[family])
    compiled = torch.compile(model, backend="cermet", options={"strict": True, "remainder": "aot"})
    counted = Counted()
    for lengths in ([5, 8, 3], [14, 2]) if packed else ([16],):
        text, places = tiny_models.words(1, 16), torch.cat([torch.arange(length) for length in lengths])[None]
        call = {"position_ids": places} if packed else {}
        mine = compiled(input_ids=text, use_cache=False, **call).logits
        right = torch.cat([model(input_ids=each, use_cache=False).logits for each in text.split(lengths, 1)], 1)
        assert truth.relative(mine.detach(), right.detach()) < 2e-5
        gradients = [torch.autograd.grad(y, list(model.parameters()), torch.cos(right.detach())) for y in (mine, right)]
        for (name, _), ours, theirs in zip(model.named_parameters(), *gradients, strict=True):
            assert truth.relative(ours, theirs) < 2e-5, name
    windows = tiny_models.LAYERS if family == "Mistral" else 1
    counts = counted()
    assert counts.get("document_masks", 0) == (tiny_models.LAYERS if packed else 0), counts
    assert counts.get("window_masks", 0) == (0 if packed else windows), counts
