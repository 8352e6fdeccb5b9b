"""Packed batches of transformers' models: several documents in a row, told by their positions alone, give what each
gives by itself, and no attention keeps its mask."""

from __future__ import annotations

import pytest
import torch
import transformers

import cermet
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


WINDOWS = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]}
# What none of torch's operators for attention has, bounds of scores and sinks, transformers computes by itself.
WITHOUT_OPERATORS = {
    "Gemma2": (torch.float64, 2e-5, WINDOWS),
    "GptOss": (torch.float32, 2e-4, WINDOWS | {"num_local_experts": 4, "num_experts_per_tok": 2}),
}


@pytest.mark.parametrize("family", WITHOUT_OPERATORS)
def test_attention_that_no_operator_has_keeps_its_mask_and_numbers(family):
    dtype, tolerance, settings = WITHOUT_OPERATORS[family]
    model = tiny_models.tiny(family, dtype, attn_implementation="eager", **settings)
    compiled = torch.compile(model, backend="cermet", options={"strict": True, "remainder": "aot"})
    counted = Counted()
    for lengths in PACKED:
        text, places = batch(lengths)
        mine, right = (
            measured(model, call(input_ids=text, position_ids=places, use_cache=False).logits)
            for call in (compiled, model)
        )
        assert mine.keys() == right.keys()
        for name, value in mine.items():
            assert truth.relative(value, right[name]) < tolerance, (lengths, name)
    assert counted().get("document_masks", 0) == 0


def flattened(lengths):
    collator = transformers.DataCollatorWithFlattening(return_tensors="pt")
    text = tiny_models.words(1, sum(lengths))[0].split(lengths)
    return collator([{"input_ids": each.tolist()} for each in text])


@pytest.mark.parametrize("checkpointing", [False, True])
def test_batches_of_other_lengths_and_counts_compile_nothing_again(checkpointing, reference):  # noqa: F811
    """As transformers' collator gives them: at the second length sizes become symbols, and that is the last graph."""
    model = tiny_models.tiny("Llama", torch.float64, attn_implementation="sdpa").train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    compiled = torch.compile(model, backend="cermet", options={"strict": True, "remainder": "aot"})
    made = []
    counted = Counted()
    batches = ([5, 8, 3], [4, 4, 1, 2, 9], [30], [1] * 12 + [2], [2, 11])
    for lengths in batches:
        batch = flattened(lengths)
        assert set(batch) == {"input_ids", "labels", "position_ids"}
        mine = compiled(**batch, use_cache=False)
        alone = [model(input_ids=text, use_cache=False).logits for text in batch["input_ids"].split(lengths, 1)]
        right, mine = measured(model, torch.cat(alone, 1)), measured(model, mine.logits)
        for name, value in mine.items():
            assert truth.relative(value, right[name]) < 2e-5, (lengths, name)
        made.append(cermet.counters()["graphs"])
    assert made[1:] == made[1:2] * (len(batches) - 1), made
    assert counted()["calls_segmented"] == len(batches) and "calls_padded" not in counted(), counted()


def test_a_model_of_documents_is_checked(reference, monkeypatch):  # noqa: F811
    """Kernels beside attention over segments are compared with what they replaced."""
    monkeypatch.setenv("CERMET_CHECK", "1")
    model = tiny_models.tiny("Llama", attn_implementation="sdpa")
    compiled = torch.compile(model, backend="cermet", options={"strict": True, "remainder": "aot"})
    before, counted = cermet.counters(), Counted()
    text, places = batch([5, 8, 3])
    compiled(input_ids=text, position_ids=places, use_cache=False).logits.sum().backward()
    after = cermet.counters()
    assert counted()["calls_segmented"] == 1
    assert after["checked"] > before["checked"] and after["refused"] == before["refused"]


def test_a_loss_of_a_packed_batch(reference):  # noqa: F811
    """Labels and all, as Trainer calls a model."""
    model = tiny_models.tiny("Llama", attn_implementation="sdpa").train()
    compiled = torch.compile(model, backend="cermet", options={"strict": True})
    batch = flattened([7, 1, 6])
    results = []
    for run in (compiled, model):
        model.zero_grad()
        loss = run(**batch, use_cache=False).loss
        loss.backward()
        results.append({"loss": loss.detach(), **{name: each.grad.clone() for name, each in model.named_parameters()}})
    for name, value in results[0].items():
        assert truth.relative(value, results[1][name]) < 1e-4, name


def test_a_packed_batch_under_autocast(reference):  # noqa: F811
    """Attention gets what autocast casts."""
    model = tiny_models.tiny("Llama", attn_implementation="sdpa")
    compiled = torch.compile(model, backend="cermet", options={"strict": True, "remainder": "aot"})
    text, places = batch([5, 8, 3])
    alone = torch.cat([model.double()(input_ids=each, use_cache=False).logits for each in text.split([5, 8, 3], 1)], 1)
    right, counted = measured(model, alone), Counted()
    model.float()
    errors = []
    for run in (compiled, model):
        with torch.autocast("cpu", torch.bfloat16):
            logits = run(input_ids=text, position_ids=places, use_cache=False).logits
        errors.append({name: truth.relative(each, right[name]) for name, each in measured(model, logits).items()})
    assert counted()["calls_segmented"] == 1
    for name, error in errors[0].items():
        assert error <= 2 * errors[1][name] + truth.spacing(torch.bfloat16), name
