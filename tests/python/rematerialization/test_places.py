"""Results in the place of operands: less is held, the numbers are the same to the bit, and what anybody else may look
at is never written."""

from __future__ import annotations

import gc

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from tiny_models import tiny, words

import cermet
from cermet.rematerialization import places
from cermet.remainder import ownership
from cermet.remainder.ownership import alone

OPTIONS = {"remainder": "aot", "strict": True}


class Gated(nn.Module):
    """A gated unit, whose gate, up and product are larger than all else."""

    def __init__(self, width: int = 64, inner: int = 512) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return (self.down(F.silu(self.gate(x)) * self.up(x)) ** 2).sum()


class Shown(Gated):
    """It returns what it saves."""

    def forward(self, x):
        gate, up = self.gate(x), self.up(x)
        return (self.down(F.silu(gate) * up) ** 2).sum(), gate, up


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch._functorch.config.patch(enable_autograd_cache=False):  # which would give what another test made
        yield


@pytest.fixture
def nowhere(monkeypatch):
    """Compiles what comes from then on without it."""

    def without() -> None:
        torch._dynamo.reset()
        monkeypatch.setattr(places, "place", lambda module, given: {})

    return without


def compiled(model, **options):
    return torch.compile(model, backend="cermet", options=OPTIONS | options)


def gradients(model):
    found = [each.grad for each in model.parameters()]
    model.zero_grad(set_to_none=True)
    return found


def equal(ours, theirs) -> bool:
    return len(ours) == len(theirs) and all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("family", ["Llama", "Qwen3", "Phi3", "Gemma2"])
def test_the_numbers_are_the_same_to_the_bit(family, checkpointing, nowhere):
    model, text = tiny(family, dtype=torch.bfloat16).train(), words(2, 48)
    if checkpointing:
        model.gradient_checkpointing_enable()

    def step():
        loss = compiled(model)(input_ids=text, labels=text).loss
        loss.backward()
        return [loss.detach(), *gradients(model)]

    found = step()
    nowhere()
    assert equal(found, step())


@pytest.mark.parametrize("memory", ["fast", "auto", "least"])
def test_a_gated_units_gradients_take_no_memory(memory, nowhere):
    """Nearly as much as gate and up have, then another call holds the most: planned, and by an allocator's count."""
    model, x = Gated(), torch.randn(2048, 64)
    options = {"memory": memory}
    found = cermet.memory(model, x, measure=True, options=options)
    nowhere()
    before = cermet.memory(model, x, measure=True, options=options)
    assert before.planned - found.planned >= 1.8 * 2048 * 512 * 4
    for each in (found, before):
        assert each.planned == pytest.approx(each.measured, rel=0.03)


def test_a_checkpointed_body_holds_less(nowhere):
    model, text = tiny("Llama", hidden_size=64, intermediate_size=1024).train(), words(4, 256)
    model.gradient_checkpointing_enable()
    found = cermet.memory(model, input_ids=text, labels=text, measure=True)
    nowhere()
    before = cermet.memory(model, input_ids=text, labels=text, measure=True)
    assert before.planned - found.planned >= 2 * 4 * 256 * 1024 * 4 * 0.9
    assert found.planned == pytest.approx(found.measured, rel=0.03)


@pytest.mark.parametrize("memory", ["fast", "auto"])
def test_several_backwards_of_a_kept_graph(memory):
    model, x = Gated(), torch.randn(64, 64)
    loss = compiled(model, memory=memory)(x)
    found = []
    for kept in (True, True, False):
        loss.backward(retain_graph=kept)
        found.append(gradients(model))
    assert equal(found[0], found[1]) and equal(found[0], found[2])


def test_what_a_hook_for_saved_tensors_keeps_is_not_written():
    """The tensor itself, a view of it, or a detached one."""
    model, x = Gated(), torch.randn(64, 64)
    call = compiled(model)
    call(x).backward()
    expected = gradients(model)
    for keep in (lambda value: value, lambda value: value.view(-1), lambda value: value.detach()):
        kept = []

        def pack(value, keep=keep, kept=kept):
            kept.append((keep(value), value.clone()))
            return value

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda value: value):
            loss = call(x)
        loss.backward()
        assert equal(gradients(model), expected)
        assert len(kept) > 2 and all(torch.equal(value.view(-1), copy.view(-1)) for value, copy in kept)


def test_what_the_graph_returned_is_not_written():
    model, x = Shown(), torch.randn(64, 64)
    call = compiled(model, memory="fast")
    loss, gate, up = call(x)
    before = gate.clone(), up.clone()
    loss.backward()
    assert torch.equal(gate, before[0]) and torch.equal(up, before[1])
    expected = gradients(model)
    loss, gate, up = call(x)
    del gate, up
    loss.backward()
    assert equal(gradients(model), expected)


def test_what_the_caller_gave_is_not_written():
    """A cotangent is somebody else's, and so is what the graph was called with."""

    def function(gate, up):
        return F.silu(gate) * up

    gate, up = (torch.randn(64, 256, requires_grad=True) for _ in range(2))
    cotangent = torch.randn(64, 256)
    copies = [each.detach().clone() for each in (gate, up, cotangent)]
    call = compiled(function)
    torch.autograd.backward(call(gate, up), cotangent)
    assert equal([each.detach() for each in (gate, up, cotangent)], copies)
    found = gate.grad, up.grad
    gate.grad = up.grad = None
    function(gate, up).backward(copies[2])
    for ours, eager in zip(found, (gate.grad, up.grad)):
        torch.testing.assert_close(ours, eager)


def test_operands_that_are_read_later_stay():
    """Another reader, a view that another reads, and the same operand twice."""

    def function(x, weight):
        hidden = x @ weight
        first = torch.sigmoid(hidden) * hidden + 1
        return first @ weight, hidden.view(-1)[:3] * 2

    x, weight = torch.randn(128, 128), torch.randn(128, 128) / 11
    with torch.no_grad():
        found = compiled(function)(x, weight)
    for ours, eager in zip(found, function(x, weight)):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4)


def test_who_holds_a_tensor():
    assert alone([torch.ones(3)], 0)
    held = torch.ones(3)
    assert not alone([held], 0)
    assert not alone([held.detach()], 0) and not alone([held[:2]], 0)
    saved = (torch.ones(3, requires_grad=True) * held).grad_fn
    arguments = [held]
    del held
    assert not alone(arguments, 0)
    del saved
    gc.collect()
    assert alone(arguments, 0)


def test_who_holds_a_tensor_is_the_same_where_dynamo_watches_frames():
    """Then each call holds its arguments once more."""
    found = []

    def asked(arguments):
        return alone(arguments, 0)

    def backend(module, _):
        found.append((asked([torch.ones(3)]), ownership._holders([torch.empty(1)], 0)))
        return module

    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert found == [(True, ownership._ALONE)]


def test_a_failure_leaves_the_graph_as_it_was(monkeypatch):
    def fails(*_):
        raise ValueError("no answer")

    monkeypatch.setattr(places.regions, "may_take", fails)
    model, x = Gated(), torch.randn(64, 64)
    compiled(model, strict=False)(x).backward()
    found = gradients(model)
    model(x).backward()
    for ours, eager in zip(found, gradients(model)):
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-4)
