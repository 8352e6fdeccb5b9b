"""`requires_grad_()` of a value within a graph ends no graph of Cermet's, and its parameters' gradients are eager's."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.nn as nn
from torch._dynamo.utils import clear_compilation_metrics, counters, get_compilation_metrics

import cermet
from tiny_models import tiny, words

LENGTHS = 48, 33, 64


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    counters.clear()


class Adapted(nn.Module):
    """A linear layer with a low-rank adapter, which alone is trained."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer
        self.down = nn.Linear(layer.in_features, 4, bias=False, dtype=layer.weight.dtype)
        self.up = nn.Linear(4, layer.out_features, bias=False, dtype=layer.weight.dtype)

    def forward(self, x):
        return self.layer(x) + self.up(self.down(x))


def adapted(**settings) -> nn.Module:
    """As PEFT and transformers have it: what the first layer reads is asked to require a gradient, in a hook."""
    model = tiny("Llama", torch.float64, **settings).requires_grad_(False)
    torch.manual_seed(0)
    for layer in model.model.layers:
        layer.self_attn.q_proj, layer.mlp.down_proj = Adapted(layer.self_attn.q_proj), Adapted(layer.mlp.down_proj)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    return model.train()


def numbers(model, call, text) -> list[torch.Tensor]:
    model.zero_grad()
    loss = call(input_ids=text, labels=text).loss
    loss.backward()
    return [loss.detach(), *(each.grad for each in model.parameters() if each.requires_grad)]


@pytest.mark.parametrize("door", ["backend", "enable"])
def test_adapters_under_a_checkpoint_are_one_graph(door):
    model, before = adapted(), cermet.counters()
    clear_compilation_metrics()
    with cermet.enable() if door == "enable" else torch.enable_grad():
        call = torch.compile(model, dynamic=True, **({} if door == "enable" else {"backend": "cermet"}))
        for tokens in LENGTHS:
            text = words(2, tokens)
            torch.testing.assert_close(numbers(model, call, text), numbers(model, model, text))
    after = cermet.counters()
    assert counters["stats"]["unique_graphs"] == after["graphs"] - before["graphs"] == 1
    assert not counters["graph_break"] and after["fallbacks"] == before["fallbacks"]
    assert not any(each.restart_reasons for each in get_compilation_metrics())  # nor traced twice


def test_what_cannot_be_compiled_is_told_at_once():
    model, text = adapted(), words(2, 48)
    clear_compilation_metrics()
    call = torch.compile(model, backend="cermet", options={"remainder": "aot", "memory": 1.0})
    with pytest.raises(Exception, match="option memory is"):
        call(input_ids=text, labels=text)
    assert not any(each.restart_reasons for each in get_compilation_metrics())


def test_a_step_that_differentiates_ends_one_graph():
    model, text = adapted(), words(2, 48)

    def step(**given):
        loss = model(**given).loss
        loss.backward()
        return loss

    model.zero_grad()
    loss = torch.compile(step, backend="cermet")(input_ids=text, labels=text)
    made = [loss.detach(), *(each.grad for each in model.parameters() if each.requires_grad)]
    torch.testing.assert_close(made, numbers(model, model, text))
    assert counters["stats"]["unique_graphs"] == 1


def test_what_else_breaks_a_whole_graph_is_told():
    def function(x, weight):
        made = x.detach().sin().requires_grad_()
        loss = (made * weight).sum()
        torch._dynamo.graph_break()
        return loss

    with pytest.raises(torch._dynamo.exc.Unsupported, match="graph_break"):
        torch.compile(function, backend="cermet", fullgraph=True)(torch.randn(4), torch.randn(4, requires_grad=True))


def test_without_gradients():
    model = adapted()
    call = torch.compile(model, backend="cermet", dynamic=True, fullgraph=True)
    with torch.no_grad():
        for tokens in LENGTHS:
            made, true = (each(words(2, tokens)).logits.float() for each in (call, model))  # norms are of that type
            torch.testing.assert_close(made, true)


def test_what_a_caller_gave_is_asked_as_ever():
    def function(x, weight):
        return x.requires_grad_() * weight

    made, true = torch.randn(4), torch.randn(4)
    true.copy_(made)
    weight = torch.randn(4)
    torch.compile(function, backend="cermet")(made, weight).sum().backward()
    function(true, weight).sum().backward()
    assert made.requires_grad
    torch.testing.assert_close(made.grad, true.grad)


def test_no_gradient_is_asked_for_as_ever():
    def function(x, weight):
        return (x * weight).detach().requires_grad_(False) * x

    x, weight = torch.randn(4, requires_grad=True), torch.randn(4)
    made, true = torch.compile(function, backend="cermet")(x, weight), function(x, weight)
    torch.testing.assert_close(made, true)
    torch.testing.assert_close(*(torch.autograd.grad(each.sum(), x) for each in (made, true)))


def within(x, weight):
    """Forces, as of a potential's places."""
    made = (x * weight).detach().requires_grad_()
    return torch.autograd.grad((made**3).sum(), made)[0]


def trained(x, weight):
    made = (x * weight).detach().requires_grad_()
    (made**3 * weight).sum().backward()
    return made.grad


def hooked(x, weight):
    made = (x * weight).detach().requires_grad_()
    made.register_hook(lambda gradient: gradient * 2)
    return made.detach() * 2, (made * weight).sum()


def returned(x, weight):
    made = (x * weight).detach().requires_grad_()
    return made, (made * weight).sum()


def behind(x, weight):
    """A result requires a gradient because of the value alone."""
    made = x.detach().sin().requires_grad_()
    return made.exp(), (made * weight).sum()


def told(x, weight):
    """The program does one thing or another."""
    made = x.detach().sin().requires_grad_()
    return (made * weight).sum(), (made * (2.0 if made.requires_grad else 1.0) * weight).sum()


def told_later(x, weight):
    made = x.detach().sin().requires_grad_().exp()
    return (made * weight).sum(), (made * (2.0 if made.requires_grad else 1.0) * weight).sum()


def differentiating(within_graphs: bool):
    """Whether what differentiates is in a graph, as some torch can have it, or ends it."""
    if hasattr(torch._dynamo.config, "trace_autograd_ops"):
        return torch._dynamo.config.patch(trace_autograd_ops=within_graphs)
    return contextlib.nullcontext()


@pytest.mark.parametrize("function", [within, trained, hooked, returned, behind, told, told_later])
@pytest.mark.parametrize("differentiates", [False, True], ids=["apart", "in a graph"])
@pytest.mark.parametrize("remainder", ["auto", "eager"])
def test_where_it_makes_a_difference_it_is_eagers(function, remainder, differentiates):
    x, weight = torch.randn(8), torch.randn(8, requires_grad=True)
    found = []
    for call in (torch.compile(function, backend="cermet", options={"remainder": remainder}), function):
        with differentiating(differentiates):
            made = call(x, weight)
        if function is hooked:
            made = torch.autograd.grad(made[1], weight)
        elif function not in (within, trained):
            assert all(each.requires_grad for each in made)
            made = *made, *torch.autograd.grad(made[1], [*made[: function is returned], weight])
        found.append(made)
    torch.testing.assert_close(*found)


def test_other_backends_have_what_torch_gives_them():
    model = adapted()
    text = words(2, 48)
    call = torch.compile(model, backend="aot_eager")
    torch.testing.assert_close(numbers(model, call, text), numbers(model, model, text))
    assert counters["graph_break"]
