"""Rows of a head that give nothing are not multiplied: ignored labels, a mask that a loss is multiplied by."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import graphs
from cermet.loss import chunks, derivation
from cermet.loss import kept as kept_rows
from heads import VOCABULARY, close, dead, inputs
from pieces import DTYPES, LOSSES, compiled, rows_of, z_loss

ROWS = 200


def given(part: float, dtype=torch.float32, device="cpu"):
    """Inputs of which about `part` of the labels are ignored."""
    hidden, weight, labels = inputs(dtype, device, rows=ROWS)
    labels = labels.clamp(min=0)
    drawn = torch.rand(labels.shape, generator=torch.Generator().manual_seed(3)).to(labels.device)
    return hidden, weight, labels.masked_fill(drawn < part, -100)


def masked(hidden, weight, labels):
    """As trainers of preferences count: a factor for each token."""
    logits = F.linear(hidden, weight).view(-1, VOCABULARY).float()
    shown = (labels != -100).float()
    losses = F.cross_entropy(logits, labels.clamp(min=0), reduction="none")
    return (losses * shown).sum() / shown.sum()


def of_classes(hidden, weight, labels):
    logits = F.linear(hidden, weight).view(-1, VOCABULARY).float()
    return F.cross_entropy(logits, labels, weight=torch.linspace(0.5, 1.5, VOCABULARY, device=labels.device))


@pytest.fixture
def multiplied(monkeypatch):
    """How many rows of logits are made, where no call before is known of."""
    monkeypatch.setattr(kept_rows, "_watches", {})
    seen = []
    for name in ("_gradient", "_loss"):
        method = getattr(chunks.Run, name)

        def counted(self, part, rows, *others, method=method):
            seen.append(len(rows))
            return method(self, part, rows, *others)

        monkeypatch.setattr(chunks.Run, name, counted)
    return seen


@DTYPES
@pytest.mark.parametrize("part", [0.0, 0.3, 0.99])
@pytest.mark.parametrize("function", [*LOSSES, masked, of_classes])
def test_numbers(function, part, dtype, device, multiplied):
    hidden, weight, labels = given(part, dtype, device)
    results = []
    for run in (compiled(function, rows_of(32, dtype)), function):
        loss = run(hidden, weight, labels)
        results.append([loss.detach(), *torch.autograd.grad(loss, (hidden, weight))])
    close(*results, dtype)
    if function in (dead, masked):
        assert sum(multiplied) == int((labels != -100).sum())
    if function is z_loss:
        assert sum(multiplied) == ROWS


def test_few_ignored_rows_are_not_worth_a_copy(multiplied):
    hidden, weight, labels = given(0.0)
    labels[7] = -100
    compiled(dead, rows_of(32))(hidden, weight, labels)
    assert sum(multiplied) == ROWS


@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True), (False, False)])
def test_all_ignored(wanted, multiplied):
    hidden, weight, labels = given(2.0)
    hidden.requires_grad_(wanted[0]), weight.requires_grad_(wanted[1])
    leaves = [leaf for leaf in (hidden, weight) if leaf.requires_grad]
    loss = compiled(dead, rows_of(32))(hidden, weight, labels)
    assert loss.isnan() and dead(hidden, weight, labels).isnan() and not multiplied
    for gradient in torch.autograd.grad(loss, leaves) if leaves else ():
        assert not gradient.nan_to_num(1.0).all()


def summed_loss(hidden, weight, labels):
    return F.cross_entropy(F.linear(hidden, weight).view(-1, VOCABULARY).float(), labels, reduction="sum")


def test_a_sum_over_none_is_zero(multiplied):
    hidden, weight, labels = given(2.0)
    loss = compiled(summed_loss, rows_of(32))(hidden, weight, labels)
    assert loss == 0 and not multiplied
    assert not any(gradient.any() for gradient in torch.autograd.grad(loss, (hidden, weight)))


@pytest.mark.parametrize("seed", range(4))
def test_a_loss_without_gradients(seed, multiplied):
    hidden, weight, labels = (value.detach() for value in given(0.5))
    close([compiled(dead, rows_of(9 + seed))(hidden, weight, labels)], [dead(hidden, weight, labels)], torch.float32)
    assert sum(multiplied) == int((labels != -100).sum())


def test_each_call_asks_anew(multiplied):
    """What one batch ignores says nothing of the next."""
    call = compiled(dead, rows_of(32))
    for part in (0.7, 0.0, 0.3, 0.7):
        hidden, weight, labels = given(part)
        multiplied.clear()
        close([call(hidden, weight, labels).detach()], [dead(hidden, weight, labels).detach()], torch.float32)
        assert sum(multiplied) == int((labels != -100).sum())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device that this torch can use")
def test_a_gpu_waits_only_behind_a_call_that_left_many_out(multiplied):
    call, wide = compiled(dead, rows_of(32)), []
    for part in (0.0, 0.7, 0.7, 0.0, 0.0):
        hidden, weight, labels = given(part, device="cuda")
        multiplied.clear()
        close([call(hidden, weight, labels).detach()], [dead(hidden, weight, labels).detach()], torch.float32)
        wide.append(sum(multiplied) == ROWS)
        torch.cuda.synchronize()
    assert wide == [True, True, False, True, True]


def test_what_decides_is_asked_of_the_labels_alone():
    (region,) = graphs.decided(graphs.trace(dead, *inputs(rows=ROWS))).regions
    for parts in (derivation.derive(region.key, 0).gradient, derivation.derive(region.key, 0).loss):
        assert parts.kept.inputs == (("input", 1),)
