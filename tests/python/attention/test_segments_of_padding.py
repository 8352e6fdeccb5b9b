"""Padding becomes segments: keys that are hidden are read by nobody, and every query gets what the mask gives it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import transformers

import graphs
import mask_spellings
import tiny_models
import truth
from attending import Counted, found
from cermet.attention import readings, variants
from cermet.attention.segments import Numbered, Segments
from packing import LENGTH, as_the_mask, joined, operands
from reference_kernel import reference  # noqa: F401

KEPT = {
    "right": [(0, 9), (0, 12), (0, 1)],
    "left": [(3, 12), (0, 12), (11, 12)],
    "both": [(3, 9), (1, 12), (5, 6)],
}
named = pytest.mark.parametrize("side", KEPT)


def shown(pieces, dtype=torch.long) -> torch.Tensor:
    places = torch.arange(LENGTH)
    return torch.stack([(places >= first) & (places < behind) for first, behind in pieces]).to(dtype)


def causal(attention_mask, length):
    query, key = mask_spellings.indices(length)
    return key <= query, attention_mask.bool()[:, None, None, :]


def of_transformers(attention_mask, length):
    return mask_spellings.hf.sdpa_mask(
        attention_mask.shape[0], length, length, attention_mask=attention_mask.bool(), allow_is_causal_skip=False
    )


def of_an_encoder(attention_mask, length):
    return mask_spellings.hf.sdpa_mask(
        attention_mask.shape[0], length, length, mask_function=mask_spellings.hf.bidirectional_mask_function,
        attention_mask=attention_mask.bool(), allow_is_causal_skip=False,
    )  # fmt: skip


def by_infinity(attention_mask, length):
    triangle, keys = causal(attention_mask, length)
    return torch.zeros(keys.shape[0], 1, length, length).masked_fill(~(triangle & keys), float("-inf")).double()


def by_the_least(attention_mask, length):
    """As BERT had it for long."""
    hidden = 1.0 - attention_mask[:, None, None, :].double()
    return (hidden * torch.finfo(torch.float32).min).expand(-1, 1, length, -1)


def by_the_least_and_a_triangle(attention_mask, length):
    return by_the_least(attention_mask, length).masked_fill(~causal(attention_mask, length)[0], -1e38)


ENCODERS = (of_an_encoder, by_the_least)
SPELLINGS = (of_transformers, by_infinity, *ENCODERS)


def attending(spelling):
    def attend(query, key, value, attention_mask):
        mask = spelling(attention_mask, attention_mask.shape[-1])
        key, value = (each.repeat_interleave(query.shape[1] // key.shape[1], 1) for each in (key, value))
        return joined(F.scaled_dot_product_attention(query, key, value, attn_mask=mask))

    return attend


@named
@pytest.mark.parametrize("dtype", [torch.long, torch.bool])
@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda spelling: spelling.__name__)
def test_every_query_gets_what_the_mask_gives_it(spelling, side, dtype, reference):  # noqa: F811
    function = attending(spelling)
    compiled, counted = graphs.compiled(function, "aot"), Counted()
    pieces = KEPT[side]
    for mask in (shown(pieces, dtype), shown(pieces[1:] + pieces[:1], dtype)):
        as_the_mask(compiled, function, operands(3), mask, "calls_segmented")
    as_the_mask(compiled, function, operands(3), shown([(0, LENGTH)] * 3, dtype), "calls_unpadded")
    kept, grouped = ("full_masks", 2) if spelling in ENCODERS else ("causal_masks", 3)
    assert counted() == {
        "padding_masks": 1, "calls_segmented": 2, "calls_unpadded": 1, "grouped_attentions": grouped, kept: 1,
    }  # fmt: skip


@pytest.mark.parametrize("spelling", [of_transformers, of_an_encoder], ids=lambda spelling: spelling.__name__)
def test_what_held_last_is_asked_first(spelling, reference, monkeypatch):  # noqa: F811
    """Each question may be a wait."""
    asked: list[str] = []
    for condition in (readings.Reading, variants.Ones):

        def told(self, arguments, condition=condition, call=condition.__call__):
            asked.append(condition.__name__)
            return call(self, arguments)

        monkeypatch.setattr(condition, "__call__", told)
    function = attending(spelling)
    compiled = graphs.compiled(function, "aot")
    padded, plain = shown(KEPT["right"], torch.long), shown([(0, LENGTH)] * 3, torch.long)
    as_the_mask(compiled, function, operands(3), plain, "calls_unpadded")
    as_the_mask(compiled, function, operands(3), padded, "calls_segmented")
    for mask, calls, expected in (
        (padded, "calls_segmented", ["Reading"]),
        (plain, "calls_unpadded", ["Reading", "Ones"]),
        (plain, "calls_unpadded", ["Ones"]),
        (padded, "calls_segmented", ["Ones", "Reading"]),
    ):
        asked.clear()
        as_the_mask(compiled, function, operands(3), mask, calls)
        assert asked == expected


@named
def test_a_finite_number_that_hides_all_keys_of_a_query_hides_none(side, reference):  # noqa: F811
    function = attending(by_the_least_and_a_triangle)
    compiled = graphs.compiled(function, "aot")
    calls = "calls_segmented" if side == "right" else "calls_padded"
    as_the_mask(compiled, function, operands(3), shown(KEPT[side]), calls)


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda spelling: spelling.__name__)
def test_padding_that_is_no_one_piece_keeps_the_mask(spelling, reference):  # noqa: F811
    function = attending(spelling)
    compiled = graphs.compiled(function, "aot")
    holes, none = shown(KEPT["left"]), shown(KEPT["left"])
    holes[0, 7] = 0
    none[1] = 0
    as_the_mask(compiled, function, operands(3), holes, "calls_padded")
    if spelling is not by_infinity:  # of no keys
        as_the_mask(compiled, function, operands(3), none, "calls_padded")
    as_the_mask(compiled, function, operands(3), shown(KEPT["both"]), "calls_segmented")


def test_a_mask_of_another_kind_keeps_itself(reference):  # noqa: F811
    """Neither hidden nor shown: a factor."""

    def scaled(attention_mask, length):
        return (1.0 - attention_mask[:, None, None, :].double()) * -10.0

    answer = found(attending(scaled), *operands(3), shown(KEPT["right"]))
    assert not any(mask.kind for mask in answer.masks)


@named
def test_padding_of_a_symbolic_length(side, reference):  # noqa: F811
    function = attending(of_transformers)
    compiled, counted = graphs.compiled(function, "aot"), Counted()
    for cut in (0, 2):
        args, mask = operands(3, LENGTH - cut), shown(KEPT[side])[:, cut:]
        mask[2, -1] = 1
        mask[2, :-1] = 0
        for tensor, dimensions in ((args[0], (0, 2)), (args[1], (0, 2)), (args[2], (0, 2)), (mask, (0, 1))):
            for dimension in dimensions:
                torch._dynamo.mark_dynamic(tensor, dimension)
        torch.testing.assert_close(compiled(*args, mask), function(*args, mask))
    assert counted()["calls_segmented"] == 2, counted()


@pytest.mark.parametrize("family", ["Llama", "Qwen3", "GPTNeoX"])
@named
def test_models_with_padding_are_as_eager(family, side, reference):  # noqa: F811
    """At every place, loss and every gradient."""
    model = tiny_models.tiny(family, torch.float64, attn_implementation="sdpa")
    kept = {"logits": "keep"}  # which must then be there at every place: what is hidden stays in the graph
    compiled = torch.compile(model, backend="cermet", options={"strict": True, "remainder": "aot", **kept})
    text, mask, counted = tiny_models.words(3, LENGTH), shown(KEPT[side]), Counted()
    results = []
    for run in (compiled, model):
        model.zero_grad()
        found = run(input_ids=text, attention_mask=mask, labels=text.where(mask.bool(), -100), use_cache=False)
        found.loss.backward()
        grads = {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}
        results.append({"loss": found.loss.detach(), "logits": found.logits.detach(), **grads})
    for name, value in results[0].items():
        assert truth.relative(value, results[1][name]) < 2e-5, name
    assert counted()["padding_masks"] == tiny_models.LAYERS and counted()["calls_segmented"] == 1, counted()


@named
def test_an_encoder_with_padding_is_as_eager(side, reference):  # noqa: F811
    config = transformers.BertConfig(
        vocab_size=128, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
        attention_probs_dropout_prob=0.0, hidden_dropout_prob=0.0, attn_implementation="sdpa",
    )  # fmt: skip
    model = transformers.BertModel(config, add_pooling_layer=False)
    tiny_models.redraw(model, 0)
    model = model.double()
    compiled = torch.compile(model, backend="cermet", options={"strict": True, "remainder": "aot"})
    text, mask, counted = tiny_models.words(3, LENGTH), shown(KEPT[side]), Counted()
    results = []
    for run in (compiled, model):
        model.zero_grad()
        states = run(input_ids=text, attention_mask=mask).last_hidden_state
        (states * torch.arange(states.numel()).reshape(states.shape).sin()).sum().backward()
        grads = {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}
        results.append({"states": states.detach(), **grads})
    for name, value in results[0].items():
        limit = 1e-6 if results[1][name].norm() > 1e-9 else float("inf")  # a key's bias has no gradient but rounding
        assert truth.relative(value, results[1][name]) < limit, name
    assert counted()["padding_masks"] == 2 and counted()["calls_segmented"] == 1, counted()


@pytest.mark.parametrize("causal", [False, True])
def test_no_segment_is_empty(causal):
    """Each costs launches. A row without padding is one; keys or queries that nothing attends to are one more."""
    shown = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 1, 0]])
    kind = Segments(shown=Numbered(None, ("row", "place")), causal=causal)  # type: ignore[arg-type]
    calls = readings._of_padding(kind, shown, [], 3, 4)
    expected = [[(4, 4), (4, 2), (0, 2), (0, 1), (4, 2), (0, 1)]]
    if causal:
        before = [(4, 4), (2, 2), (2, 0), (0, 2), (1, 0), (0, 1), (2, 2), (1, 0), (0, 1)]
        expected = [before, [(4, 0), (0, 4), (2, 0), (2, 2), (0, 2), (3, 0), (0, 1), (1, 2), (0, 1)]]
    for (ends_q, ends_k, told), segments in zip(calls, expected):
        count = int(told[2])
        assert len(ends_q) == len(ends_k) == 3 * 5 + 1  # whatever they are
        lengths = zip(ends_q[: count + 1].diff().tolist(), ends_k[: count + 1].diff().tolist())
        assert list(lengths) == segments
        assert told[3:].tolist() == [max(each) for each in zip(*segments)]
