"""Losses of given logits: one kernel makes loss and gradient, and the backward multiplies in its memory."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import cermet
import graphs
from cermet.ops import scaling
from heads import loss_of, targets
from pieces import DTYPES
from truth import MEDIAN_SEEDS, Float64, assert_as_good_as_eager, relative

ROWS, COLUMNS = 24, 131


def given(dtype=torch.float32, device="cpu", seed=0, columns=COLUMNS):
    generator = torch.Generator().manual_seed(seed)
    logits = (3 * torch.randn(ROWS, columns, generator=generator)).to(device, dtype).requires_grad_()
    labels = torch.randint(columns, (ROWS,), generator=generator)
    labels[::5] = -100
    return logits, labels.to(device)


def loss_of_double(logits, labels):
    return F.cross_entropy(logits, labels)


def twice(logits, labels):
    return loss_of(logits, labels), loss_of(logits, labels)


def test_they_are_found():
    assert targets(loss_of, *given()) == ["given_2"]
    assert targets(lambda logits, labels: loss_of(logits.view(4, 6, -1), labels), *given()) == ["given_2"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_of_other_types_they_are_regions_or_nobodys(dtype):
    assert not any(name.startswith("given") for name in targets(loss_of, *given(dtype)))


@DTYPES
@pytest.mark.parametrize("remainder", ["eager", "aot", "inductor"])
@pytest.mark.parametrize("cotangent", [1.0, 0.25])
def test_numbers(cotangent, remainder, dtype, device):
    call = graphs.compiled(loss_of, remainder)
    errors: dict[str, dict[str, list[float]]] = {"ours": {}, "eager": {}}
    for seed in range(MEDIAN_SEEDS):
        logits, labels = given(dtype, device, seed)
        with Float64():
            wide = logits.detach().double().requires_grad_()
            exact = loss_of(wide, labels)
            truth = [exact.detach(), *torch.autograd.grad(cotangent * exact, wide)]
        for name, run in (("ours", call), ("eager", loss_of)):
            loss = run(logits, labels)
            values = [loss.detach(), *torch.autograd.grad(cotangent * loss, logits)]
            for tensor, value, true in zip(("loss", "logits"), values, truth):
                errors[name].setdefault(tensor, []).append(relative(value, true))
    assert_as_good_as_eager(errors["ours"], errors["eager"], dtype)


def test_another_cotangent_rounds_once_more(device):
    """Two roundings are sqrt(2) times as far from the truth as one."""
    logits, labels = given(torch.bfloat16, device)
    wide = logits.detach().double().requires_grad_()
    truth, ours, eager = (
        torch.autograd.grad(3.7 * run(*arguments), arguments[0])[0]
        for run, arguments in (
            (loss_of_double, (wide, labels)),
            (graphs.compiled(loss_of, "aot"), (logits, labels)),
            (loss_of, (logits, labels)),
        )
    )
    assert relative(ours, truth) < 1.6 * relative(eager, truth)


def launches(run):
    before = cermet.counters()["launches"]
    run()
    return cermet.counters()["launches"] - before


def test_a_forward_and_a_backward_are_a_launch_each(device):
    logits, labels = given(torch.bfloat16, device)
    call = graphs.compiled(loss_of, "aot")
    loss = call(logits, labels)
    assert launches(lambda: call(logits, labels)) == 1
    assert launches(lambda: loss.backward()) == 1


def test_a_kept_graph_gives_the_same_again(device):
    logits, labels = given(torch.bfloat16, device)
    call = graphs.compiled(loss_of, "aot")
    loss = call(logits, labels)
    first = torch.autograd.grad(loss, logits, torch.tensor(3.0, device=device), retain_graph=True)[0]
    second = torch.autograd.grad(loss, logits, torch.tensor(3.0, device=device), retain_graph=True)[0]
    last = torch.autograd.grad(loss, logits, torch.tensor(3.0, device=device))[0]
    assert torch.equal(first, second) and torch.equal(first, last)
    assert len({first.data_ptr(), second.data_ptr(), last.data_ptr()}) == 3


def test_the_last_backward_writes_what_the_forward_made(device):
    """No memory of the logits' size but their gradient's: what is saved is what is returned."""
    logits, labels = given(torch.bfloat16, device)
    saved = []
    call = graphs.compiled(loss_of, "aot")
    call(logits, labels)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append((t.shape, t.data_ptr())) or t, lambda t: t):
        loss = call(logits, labels)
    (made,) = [place for shape, place in saved if shape == logits.shape]
    loss.backward()
    assert logits.grad.data_ptr() == made


def test_equal_losses_have_cotangents_of_their_own(device):
    logits, labels = given(torch.float32, device)
    call = graphs.compiled(twice, "aot")
    for weights in ((1.0, 2.0), (0.5, -3.0)):
        ours, eager = (
            torch.autograd.grad(sum(w * loss for w, loss in zip(weights, run(logits, labels))), logits)[0]
            for run in (call, twice)
        )
        assert relative(ours, eager) < 1e-5


def test_what_a_hook_for_saved_tensors_keeps_is_not_written(device):
    logits, labels = given(torch.bfloat16, device)
    call = graphs.compiled(loss_of, "aot")
    call(logits, labels)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append((t, t.clone())) or t, lambda t: t):
        loss = call(logits, labels)
    torch.autograd.grad(loss, logits, torch.tensor(3.0, device=device))
    assert any(tensor.shape == logits.shape for tensor, _ in kept)
    assert all(torch.equal(tensor, copy) for tensor, copy in kept)


def test_what_is_scaled_stays(device):
    value, scale = torch.randn(6, 5, 32, device=device), torch.tensor(0.5, device=device)
    kept = value.clone()
    made = scaling.scaled(value, scale)
    assert torch.equal(value, kept) and torch.equal(made, kept * 0.5)


def test_double_backward_is_refused(device):
    logits, labels = given(torch.float32, device)
    loss = graphs.compiled(loss_of, "eager")(logits, labels)
    (gradient,) = torch.autograd.grad(loss, logits, create_graph=True)
    with pytest.raises(cermet.Error, match="double backward is not supported"):
        gradient.sum().backward()


def test_without_a_gradient_nothing_is_made(device):
    logits, labels = given(torch.float32, device)
    call = graphs.compiled(loss_of, "aot")
    with torch.no_grad():
        found = call(logits, labels)
    assert relative(found, F.cross_entropy(logits.detach().double(), labels)) < 1e-6
