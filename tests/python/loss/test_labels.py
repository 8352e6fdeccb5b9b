"""A label that is no class: what eager raises on the CPU, with its row under CERMET_CHECK=1; never a plausible loss."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import cermet
from cermet.fusing import checking
from tiny_models import VOCABULARY, tiny, words

N, V = 7, 11
REMAINDERS = ("eager", "aot", "inductor")


def compiled(function, remainder: str = "aot"):
    torch._dynamo.reset()
    return torch.compile(function, backend="cermet", options={"strict": True, "remainder": remainder})


def of_eager(function, *arguments) -> str:
    with pytest.raises(IndexError) as raised:
        function(*arguments)
    return str(raised.value)


LOSSES = {
    "mean": lambda x, y: F.cross_entropy(x * 2, y),
    "sum": lambda x, y: F.cross_entropy(x * 2, y, reduction="sum"),
    "none": lambda x, y: F.cross_entropy(x * 2, y, reduction="none"),
    "smoothed": lambda x, y: F.cross_entropy(x * 2, y, label_smoothing=0.1),
    "capped": lambda x, y: F.cross_entropy(torch.tanh(x / 30) * 30, y),
    "ignoring a class": lambda x, y: F.cross_entropy(x * 2, y, ignore_index=3),
    "nll": lambda x, y: F.nll_loss(F.log_softmax(x * 2, -1), y),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_raises_what_eager_raises(name):
    x, labels = torch.randn(N, V, requires_grad=True), torch.randint(0, V, (N,))
    function = compiled(LOSSES[name])
    launches = cermet.counters()["launches"]
    function(x, labels)
    assert cermet.counters()["launches"] > launches  # a region, not the operations
    for wrong in (V + 5, V, -1, 10**6, 2**40):
        labels[4] = wrong
        message = of_eager(LOSSES[name], x, labels)
        for values in (x, x.detach()):
            with pytest.raises(IndexError) as raised:
                function(values, labels)
            assert str(raised.value) == message
    labels[4] = 0
    assert torch.isfinite(function(x, labels)).all()


@pytest.mark.parametrize("remainder", REMAINDERS)
@pytest.mark.parametrize("wrong", (VOCABULARY + 5, -1, 2**40))
def test_a_model_raises_what_eager_raises(remainder, wrong):
    model, text = tiny("Llama"), words()
    labels = text.clone()
    labels[1, 3] = wrong
    message = of_eager(lambda: model(input_ids=text, labels=labels))
    call = compiled(model, remainder)
    assert torch.isfinite(call(input_ids=text, labels=text).loss)
    with pytest.raises(IndexError) as raised:
        call(input_ids=text, labels=labels)
    assert str(raised.value) == message
    call(input_ids=text, labels=text).loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("ignored", (-100, 3, V + 7))
@pytest.mark.parametrize("reduction", ("mean", "sum", "none"))
@pytest.mark.parametrize("smoothing", (0.0, 0.1))
def test_labels_that_are_ignored_may_be_any_number(ignored, reduction, smoothing):
    def loss(x, labels):
        return F.cross_entropy(x * 2, labels, ignore_index=ignored, reduction=reduction, label_smoothing=smoothing)

    x, labels = torch.randn(N, V, requires_grad=True), torch.randint(0, V, (N,))
    labels[2] = labels[5] = ignored
    ours = compiled(loss)(x, labels)
    cotangent = torch.randn_like(ours)
    (gradient,) = torch.autograd.grad(ours, x, cotangent)
    wide = x.detach().double().requires_grad_()
    truth = loss(wide, labels)
    (true_gradient,) = torch.autograd.grad(truth, wide, cotangent.double())
    torch.testing.assert_close(ours.double(), truth, rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(gradient.double(), true_gradient, rtol=2e-6, atol=2e-6)
    assert (gradient[labels == ignored] == 0).all()


@pytest.mark.parametrize("remainder", REMAINDERS)
def test_a_check_names_row_label_and_vocabulary(remainder, monkeypatch):
    monkeypatch.setenv("CERMET_CHECK", "1")
    monkeypatch.setattr(checking, "_record", checking._Record())
    x, labels = torch.randn(N, V, requires_grad=True), torch.randint(0, V, (N,))
    labels[1] = -100
    function = compiled(LOSSES["mean"], remainder)
    assert torch.isfinite(function(x, labels))
    labels[4], labels[6] = 2**40, -1
    with pytest.raises(IndexError, match=rf"Target {2**40} is out of bounds: .*test_labels\.py.*, row 4; expected 0 to 10 "
                       r"\(a vocabulary of 11\), or ignore_index, -100"):
        function(x, labels)
