"""Loss and every parameter's gradient of many models, with every remainder, against their float64 truth; among them
models that are no causal language models. EVERY_SEED seeds (MEDIAN_SEEDS where those
leave it to luck): how good the median is, test_numerics.py asks of six."""

from __future__ import annotations

import functools

import pytest
import torch
import transformers

import cermet
import truth
from tiny_models import FAMILIES, LAYERS, NAMED, VOCABULARY, redraw, sites, tiny, words

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
# No mixture of experts: which experts a token takes is another program in another precision.
CAUSAL = (*NAMED, "Cohere", "Exaone4", "Glm", "Glm4", "GPTNeoX", "Granite")
THROUGH_INDUCTOR = ("Gemma2", "Qwen3")



def text_classifier(seed: int) -> dict[str, torch.Tensor]:
    mask = torch.ones(2, 16, dtype=torch.int64)
    mask[1, 12:] = 0
    return {"input_ids": words(seed=seed), "attention_mask": mask, "labels": torch.tensor([seed % 3, 2])}


def image_classifier(seed: int) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return {"pixel_values": torch.randn(2, 3, 16, 16, generator=random), "labels": torch.tensor([seed % 3, 2])}


def translation(seed: int) -> dict[str, torch.Tensor]:
    return {"input_ids": words(seed=seed), "labels": words(length=8, seed=100 + seed)}


def bert() -> torch.nn.Module:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=LAYERS, num_attention_heads=4,
        max_position_embeddings=32, num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def vit() -> torch.nn.Module:
    config = transformers.ViTConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=LAYERS, num_attention_heads=4, image_size=16,
        patch_size=4, num_labels=3, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def t5(**changes) -> torch.nn.Module:
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=64, d_kv=16, d_ff=96, num_layers=LAYERS, num_heads=4, dropout_rate=0.0,
        decoder_start_token_id=0, use_cache=False, **changes,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


# How a model is made, what it is called with, and sites that it must have.
OTHERS = {
    "BERT, a classifier of texts": (bert, text_classifier, {"cross_entropy": 1}),
    "ViT, a classifier of images": (vit, image_classifier, {"cross_entropy": 1}),
    "T5": (t5, translation, {"cross_entropy": 1, "norms": 5 * LAYERS + 2}),
    "T5 with gated units": (
        functools.partial(t5, feed_forward_proj="gated-silu"),
        translation,
        {"cross_entropy": 1, "norms": 5 * LAYERS + 2, "glu": 2 * LAYERS},
    ),
}


def in_type(arguments, dtype):
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in arguments.items()}


def step(model, call, arguments):
    model.zero_grad(set_to_none=True)
    loss = call(**arguments).loss
    loss.backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    return {"loss": loss.detach()} | found


def exact(model, arguments):
    wide = truth.double(model)
    with truth.Float64():
        return step(wide, wide, arguments)


def compare(model, arguments_of, dtype, calls):
    """Every call against the truth, by the part of the rule that a few seeds can tell; where that may be luck, by all."""
    errors = measured(model, arguments_of, dtype, calls, range(truth.EVERY_SEED))
    for who in calls:
        far = truth.far_from_eager(errors[who], errors["eager"], dtype)
        if not far:
            continue
        more = measured(model, arguments_of, dtype, {who: calls[who]}, range(truth.MEDIAN_SEEDS))
        ours, eager = ({name: more[runner][name] for name in far} for runner in (who, "eager"))
        try:
            truth.assert_far_no_more_often_than_eager(ours, eager, dtype)
        except AssertionError as error:
            raise AssertionError(f"remainder {who}: {error}") from None


def measured(model, arguments_of, dtype, calls, seeds):
    """Errors by who ran and by tensor, one for each seed."""
    errors = {name: {} for name in ("eager", *calls)}
    for seed in seeds:
        redraw(model, seed)
        arguments = in_type(arguments_of(seed), dtype)
        true = exact(model, arguments)
        for who, call in {"eager": model, **calls}.items():
            values = step(model, call, arguments)
            assert values.keys() == true.keys(), f"{who}: {values.keys() ^ true.keys()}"
            for name, value in values.items():
                errors[who].setdefault(name, []).append(truth.relative(value, true[name]))
    return errors


def check(model, arguments_of, dtype, remainders, of_logits: int = 0) -> cermet.Explanation:
    """`compare`, and that every region that explain finds was replaced with each remainder and ran for every seed.
    `of_logits`: regions of returned logits, which the remainder "eager" alone makes."""
    found = cermet.explain(model, **in_type(arguments_of(0), dtype))
    assert found.graph_breaks == [] and found.graphs == 1
    before = cermet.counters()
    calls = {
        remainder: torch.compile(
            model, backend="cermet", fullgraph=True, options={"strict": True, "remainder": remainder}
        )
        for remainder in remainders
    }
    compare(model, arguments_of, dtype, calls)
    after = cermet.counters()
    regions = len(remainders) * len(found.places) + ("eager" in remainders) * of_logits
    variants = (after["graphs"] - before["graphs"]) // len(remainders)  # two where padding decides what a mask means
    assert after["regions"] - before["regions"] == variants * regions > 0
    assert after["launches"] - before["launches"] >= regions * truth.EVERY_SEED, "our kernels did not run"
    assert after["fallbacks"] == before["fallbacks"] and after["late_gradients"] == before["late_gradients"]
    return found


def causal(seed):
    return {"input_ids": words(seed=seed), "labels": words(seed=seed)}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", CAUSAL)
def test_causal_models(family, dtype):
    capped = FAMILIES[family].softcaps[1]
    model = tiny(family, DTYPES[dtype], num_hidden_layers=LAYERS if dtype == "f32" else 1).train()
    check(model, causal, DTYPES[dtype], ("eager", "aot"), capped)


@pytest.mark.parametrize("family", THROUGH_INDUCTOR)
def test_causal_models_through_inductor(family):
    check(tiny(family, torch.bfloat16).train(), causal, torch.bfloat16, ("inductor",))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", OTHERS)
def test_other_models(name, dtype):
    make, arguments_of, expected = OTHERS[name]
    found = check(make().to(DTYPES[dtype]).train(), arguments_of, DTYPES[dtype], ("eager", "aot"))
    assert sites(found.counts) == expected, str(found)
