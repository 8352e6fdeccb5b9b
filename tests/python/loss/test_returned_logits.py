"""Logits that are returned beside their loss, as they are or after a tail (scaled, capped, cast): made apart, with a gradient
edge of their own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import graphs
from cermet import pipeline
from cermet.loss import edges
from cermet.loss.logits import Returned
from cermet.records import Settings
from heads import ROWS, VOCABULARY, close, inputs, loss_of, returned, targets
from truth import relative


def capped_returned(hidden, weight, labels):
    logits = torch.tanh(F.linear(hidden * 1.5, weight) / 2.0) * 2.0
    return loss_of(logits, labels), logits


def scaled_returned(hidden, weight, labels):
    logits = F.linear(hidden * 1.5, weight) / 0.7
    return loss_of(logits, labels), logits


def widened_returned(hidden, weight, labels):
    logits = F.linear(hidden * 1.5, weight).view(-1, VOCABULARY).double().view(2, -1, VOCABULARY)
    return loss_of(logits, labels), logits


def widened_apart(hidden, weight, labels):
    logits = F.linear(hidden * 1.5, weight)
    return loss_of(logits, labels), logits.double()


TAILS = (capped_returned, scaled_returned, widened_returned, widened_apart)


@pytest.mark.parametrize(
    ("function", "ops"),
    [(capped_returned, ["head_2", "region_1_1"]), (scaled_returned, ["head_2"]), (widened_apart, ["head_2"])],
)
def test_what_is_returned_of_the_logits_is_made_apart(function, ops):
    assert targets(function, *inputs()) == ops


def cap_of_a_bias(hidden, weight, labels):
    logits = torch.tanh(F.linear(hidden, weight, weight[:, 0]) / 2.0) * 2.0
    return loss_of(logits, labels), logits


def cap_of_a_computed_weight(hidden, weight, labels):
    logits = torch.tanh(F.linear(hidden, weight * 2.0) / 2.0) * 2.0
    return loss_of(logits, labels), logits


def cap_read_by_another(hidden, weight, labels):
    logits = torch.tanh(F.linear(hidden, weight) / 2.0) * 2.0
    return loss_of(logits, labels) + logits.sort(-1).values[..., 0].mean(), logits


def cap_beside_the_layer(hidden, weight, labels):
    raw = F.linear(hidden, weight)
    logits = torch.tanh(raw / 2.0) * 2.0
    return loss_of(logits, labels), logits, raw


def two_tensors(hidden, weight, labels):
    logits = F.linear(hidden, weight) * hidden.sum(-1, keepdim=True)
    return loss_of(logits, labels), logits


@pytest.mark.parametrize(
    "function", [cap_of_a_bias, cap_of_a_computed_weight, cap_read_by_another, cap_beside_the_layer, two_tensors]
)
def test_what_no_edge_can_carry_is_left_together(function):
    """The graph computes what is returned once, and its gradient is autograd's."""
    arguments = inputs()
    module = graphs.trace(function, *arguments)
    before = [node.name for node in module.graph.nodes]
    decision = graphs.decided(module, returned=Returned.EDGE)
    assert [node.name for node in module.graph.nodes] == before
    assert all(region.head is None for region in decision.regions)
    results = []
    for run in (graphs.compiled(function, "aot"), function):
        loss, logits = run(*arguments)[:2]
        results.append([loss.detach(), *torch.autograd.grad(loss + logits.square().mean(), arguments[:2])])
    close(*results)


def test_without_a_callable_to_wrap_returned_logits_are_declined():
    module = graphs.trace(returned, *inputs())
    (region,) = [found for found in graphs.decided(module).regions if found.pattern == "cross_entropy"]
    assert region.head is None


@pytest.mark.parametrize("remainder", ["eager", "aot", "inductor"])
@pytest.mark.parametrize("use", ["loss", "logits", "both"])
@pytest.mark.parametrize("function", [returned, *TAILS])
def test_returned_logits_are_differentiable(function, use, remainder, device):
    hidden, weight, labels = inputs(device=device)
    cotangent = torch.randn(2, ROWS // 2, VOCABULARY, device=device)
    call = graphs.compiled(function, remainder)
    results = []
    for run in (call, function):
        loss, logits = run(hidden, weight, labels)
        assert loss.requires_grad and logits.requires_grad and logits.shape == cotangent.shape and not logits.is_leaf
        total = (loss * 3.0 if use != "logits" else 0.0) + ((logits * cotangent).sum() if use != "loss" else 0.0)
        results.append([loss.detach(), logits.detach(), *torch.autograd.grad(total, (hidden, weight))])
    close(*results)


@pytest.mark.parametrize("remainder", ["eager", "aot"])
@pytest.mark.parametrize("use", ["loss", "logits", "both"])
@pytest.mark.parametrize("family", ["Llama", "Gemma2", "Granite", "Cohere"])
def test_a_model_that_returns_its_logits(family, use, remainder):
    from tiny_models import tiny, words

    model, text = tiny(family).train(), words()
    options = {"remainder": remainder, "strict": True}
    call = torch.compile(model, backend="cermet", fullgraph=True, options=options)
    results = []
    for run in (call, model):
        out = run(input_ids=text, labels=text)
        total = (out.loss if use != "logits" else 0.0) + (out.logits.square().mean() if use != "loss" else 0.0)
        results.append([out.logits.detach(), *torch.autograd.grad(total, list(model.parameters()))])
    for ours, eager in zip(*results):
        assert relative(ours, eager.double()) < 1e-5


@pytest.mark.parametrize("remainder", ["eager", "aot"])
def test_returned_logits_may_be_written_by_their_reader(remainder):
    hidden, weight, labels = inputs()
    results = []
    for run in (graphs.compiled(returned, remainder), returned):
        loss, logits = run(hidden, weight, labels)
        logits /= 2.0
        results.append([logits.detach(), *torch.autograd.grad(loss + logits.square().mean(), (hidden, weight))])
    close(*results)


def test_an_edge_leaves_the_graphs_own_tensor_alone():
    """A recorded CUDA graph returns the same object at every call: with a history it would hold what that saved."""
    hidden, weight, _ = inputs()
    with torch.no_grad():
        logits = F.linear(hidden, weight)
    kept = logits.clone()
    call = edges.attach(lambda hidden, weight: (logits,), [edges.Edge((0,), (~0, ~1, None), (), None)], 1)
    for _ in range(2):
        (attached,) = call(hidden, weight)
        assert logits.grad_fn is None and not logits.requires_grad and attached.requires_grad
        assert attached.data_ptr() == logits.data_ptr() and not attached._is_view()
    close(torch.autograd.grad(attached.sum(), weight), torch.autograd.grad(F.linear(hidden, weight).sum(), weight))
    attached.mul_(2.0)
    close([attached.detach()], [kept * 2.0])


@pytest.mark.parametrize("function", [returned, *TAILS[:2]])
def test_unused_returned_logits_get_no_zeros_even_while_tracing(function):
    """The backward graph that AOTAutograd makes has no operation of the logits' size but views."""
    from torch._dynamo.backends.common import aot_autograd
    from functorch.compile import make_boxed_func

    hidden, weight, labels = inputs(rows=200)
    module = graphs.trace(function, hidden, weight, labels)
    done = pipeline.run(module, Settings(returned=Returned.EDGE))
    backwards = []

    def keep(graph, _):
        backwards.append(graph)
        return make_boxed_func(graph.forward)

    run = aot_autograd(fw_compiler=lambda graph, _: make_boxed_func(graph.forward), bw_compiler=keep)
    values = run(module, [hidden, weight, labels])(hidden, weight, labels)
    values[0].backward(retain_graph=True)
    assert len(done.edges) == 1 and len(values) == 3 and not values[1].requires_grad
    (graph,) = backwards
    sizes = {node.name: node.meta["val"].numel() for node in graph.graph.nodes if "val" in node.meta}
    large = [name for name, size in sizes.items() if size >= 200 * VOCABULARY]
    kinds = {node.name: (node.op, str(node.target)) for node in graph.graph.nodes}
    made = [kinds[name] for name in large if kinds[name][0] == "call_function"]
    assert all(any(word in target for word in ("view", "permute", ".t.")) for _, target in made), made
