"""On a GPU, where torch's flash attention is the kernel: models over batches with padding have, by the rule for
numbers, the loss and the gradients that they have with it, and nothing of the padding is computed."""

from __future__ import annotations

import pytest
import torch
import transformers

import tiny_models
import truth
from attending import Counted

absent = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device that this torch can use")
pytestmark = [pytest.mark.gpu, absent]
ROWS, LENGTH = 4, 96


def encoder(dropped=0.0):
    config = transformers.BertConfig(
        vocab_size=128, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
        attention_probs_dropout_prob=0.0, hidden_dropout_prob=dropped, attn_implementation="sdpa",
    )  # fmt: skip
    return transformers.AutoModelForMaskedLM.from_config(config).to("cuda", torch.bfloat16)


def batch(seed):
    text = tiny_models.words(ROWS, LENGTH, "cuda", seed)
    lengths = torch.randint(2, LENGTH, (ROWS,), generator=torch.Generator().manual_seed(seed)).to("cuda")
    mask = (torch.arange(LENGTH, device="cuda") < lengths[:, None]).long()
    return {"input_ids": text, "attention_mask": mask, "labels": text.where(mask.bool(), -100)}


def trained(run, model, given):
    model.zero_grad()
    loss = run(**given).loss
    loss.backward()
    grads = {name: each.grad.detach() for name, each in model.named_parameters() if each.grad is not None}
    return {"loss": loss.detach(), **grads}


@pytest.mark.parametrize("family", ["Llama", "Qwen3", "Bert"])
def test_numbers(family):
    model = encoder() if family == "Bert" else tiny_models.tiny(family, torch.bfloat16, "cuda")
    compiled = torch.compile(model, backend="cermet", options={"strict": True})
    counted, errors = Counted(), {"ours": {}, "eager": {}}
    for seed in range(truth.EVERY_SEED):
        tiny_models.redraw(model, seed)
        given = batch(seed)
        values = {name: trained(run, model, given) for name, run in (("ours", compiled), ("eager", model))}
        wide = truth.double(model)
        with truth.Float64():
            true = trained(wide, wide, given)
        for who, found in values.items():
            for name, value in found.items():
                if true[name].norm() > 1e-9:  # a key's bias has no gradient but rounding
                    errors[who].setdefault(name, []).append(truth.relative(value, true[name]))
    truth.assert_none_is_far_from_eager(errors["ours"], errors["eager"], torch.bfloat16)
    assert counted()["calls_compact"] == truth.EVERY_SEED, counted()


def test_logits_are_those_of_every_place():
    model = tiny_models.tiny("Llama", torch.bfloat16, "cuda")
    compiled, given = torch.compile(model, backend="cermet", options={"strict": True}), batch(0)
    found = compiled(**given)
    found.loss.backward()
    with torch.no_grad():
        true = model(**given).logits
    torch.testing.assert_close(found.logits.detach(), true, rtol=5e-2, atol=5e-2)


def test_dropouts_draw_for_what_is_shown():
    model, given, counted = encoder(0.2), batch(0), Counted()
    compiled = torch.compile(model.train(), backend="cermet", options={"strict": True})
    losses = {"ours": [], "eager": []}
    for seed in [*range(32), 0]:
        for name, run in (("ours", compiled), ("eager", model)):
            torch.manual_seed(seed)
            losses[name].append(trained(run, model, given)["loss"].double().cpu())
    assert counted()["calls_compact"] == 33, counted()
    assert losses["ours"][-1] == losses["ours"][0]  # a seed decides the run
    assert len(set(map(float, losses["ours"]))) > 1
    ours, eager = (torch.stack(each[:-1]) for each in losses.values())
    assert (ours.mean() - eager.mean()).abs() < 5 * ((ours.var() + eager.var()) / 32).sqrt() + 1e-2
