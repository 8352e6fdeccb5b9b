"""Heads whose linear layer has a bias, as encoders' have."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import transformers

import graphs
from cermet.loss.lazy import Logits
from heads import VOCABULARY, inputs, loss_of, targets
from pieces import DTYPES, rows_of
from tiny_models import words
from truth import MEDIAN_SEEDS, Float64, assert_as_good_as_eager, relative

ROWS = 200
# Pieces of so many rows that a product of one is no other kernel than that of all.
BUDGETS = {"whole": rows_of(ROWS), "pieces": rows_of(72)}


def biased(hidden, weight, bias, labels):
    return loss_of(F.linear(hidden, weight, bias), labels)


def returned(hidden, weight, bias, labels):
    logits = F.linear(hidden * 1.5, weight, bias)
    return loss_of(logits, labels), logits


def capped(hidden, weight, bias, labels):
    logits = torch.tanh(F.linear(hidden * 1.5, weight, bias) / 3.0) * 3.0
    return loss_of(logits, labels), logits


def given(dtype=torch.float32, device="cpu", seed=0):
    torch.manual_seed(seed)
    hidden, weight, labels = inputs(dtype, device, rows=ROWS)
    bias = torch.randn(VOCABULARY, device=device).to(dtype).requires_grad_()
    return hidden, weight, bias, labels


def test_they_are_heads():
    hidden, weight, bias, labels = given()
    assert targets(biased, hidden, weight, bias, labels) == ["linear_head_1"]


@DTYPES
@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("remainder", ["eager", "aot", "inductor"])
def test_numbers(remainder, budget, dtype, device):
    call = graphs.compiled(biased, remainder, logits_bytes=BUDGETS[budget])
    errors: dict[str, dict[str, list[float]]] = {"ours": {}, "eager": {}}
    for seed in range(MEDIAN_SEEDS):
        *leaves, labels = given(dtype, device, seed)
        with Float64():
            wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
            exact = biased(*wide, labels)
            truth = [exact.detach(), *torch.autograd.grad(exact, wide)]
        for name, run in (("ours", call), ("eager", biased)):
            loss = run(*leaves, labels)
            values = [loss.detach(), *torch.autograd.grad(loss, leaves)]
            for tensor, value, true in zip(("loss", "hidden", "weight", "bias"), values, truth):
                errors[name].setdefault(tensor, []).append(relative(value, true))
    if (remainder, budget) == ("inductor", "whole"):  # where the bias's gradient is a sum that Inductor writes
        del errors["ours"]["bias"]
    assert_as_good_as_eager(errors["ours"], errors["eager"], dtype)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("wanted", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (0, 1, 1)])
def test_frozen_operands(wanted, budget):
    *leaves, labels = given()
    for leaf, want in zip(leaves, wanted):
        leaf.requires_grad_(bool(want))
    trained = [leaf for leaf in leaves if leaf.requires_grad]
    call = graphs.compiled(biased, "aot", logits_bytes=BUDGETS[budget])
    found, expected = (torch.autograd.grad(0.25 * run(*leaves, labels), trained) for run in (call, biased))
    for one, other in zip(found, expected):
        assert one.stride() == other.stride()
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("function", [returned, capped])
@pytest.mark.parametrize("logits", ["lazy", "keep"])
def test_returned_logits(logits, function):
    *leaves, labels = given()
    results = []
    for run in (graphs.compiled(function, "aot", logits=logits), function):
        loss, made = run(*leaves, labels)
        if run is not function:
            assert isinstance(made, Logits) == (logits == "lazy")
        total = loss + made.square().mean()
        results.append([loss.detach(), made.detach() + 0, *torch.autograd.grad(total, leaves)])
    for one, other in zip(*results):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_a_bias_that_was_written_is_named():
    *leaves, labels = given()
    _, logits = graphs.compiled(returned, "aot")(*leaves, labels)
    with torch.no_grad():
        leaves[2] += 1
    with pytest.raises(Exception, match="the bias that they are made of has been written"):
        logits.sum()


def test_an_encoder_that_predicts_masked_words():
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.BertConfig(**sizes, vocab_size=128, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model, text = transformers.BertForMaskedLM(config).train(), words(3, 40)
    drawn = torch.rand(text.shape, generator=torch.Generator().manual_seed(0))
    labels = text.masked_fill(drawn > 0.2, -100)
    call = torch.compile(model, backend="cermet", options={"strict": True, "logits_bytes": rows_of(20, columns=128)})
    found, logits = [], None
    for run in (call, model):
        model.zero_grad()
        output = run(input_ids=text, labels=labels)
        output.loss.backward()
        logits = output.logits if logits is None else logits
        found.append({name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None})
    assert isinstance(logits, Logits) and found[0].keys() == found[1].keys()
    for name, value in found[1].items():
        torch.testing.assert_close(found[0][name], value, rtol=1e-3, atol=1e-5)
