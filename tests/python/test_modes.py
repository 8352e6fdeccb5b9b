"""What a training loop does with a compiled model: other lengths, checkpoints, accumulated and retained gradients,
compiled autograd, copies, export, and a gradient of a gradient, which is refused by name."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch

import cermet
import graphs
from cermet import pipeline
from tiny_models import LAYERS, NAMED, tiny, words

LENGTHS = (16, 24, 9, 33, 2, 48, 17, 31)
RECOMPILES = 2
REMAINDERS = ("eager", "aot", "inductor")


def compiled(model, remainder="aot", **settings):
    return torch.compile(model, backend="cermet", options={"remainder": remainder, "strict": True}, **settings)


def gradients(model) -> dict[str, torch.Tensor]:
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def step(call, model, text) -> dict[str, torch.Tensor]:
    """The loss and every gradient of one step."""
    model.zero_grad(set_to_none=True)
    loss = call(input_ids=text, labels=text).loss
    loss.backward()
    return {"loss": loss.detach()} | gradients(model)


def close(ours: dict[str, torch.Tensor], eager: dict[str, torch.Tensor]) -> None:
    """Two float32 computations of one thing, each with sums of its own order."""
    assert ours.keys() == eager.keys()
    for name, value in eager.items():
        limit = 1e-5 * max(1.0, value.abs().max().item())
        torch.testing.assert_close(ours[name], value, rtol=1e-4, atol=limit, msg=lambda text: f"{name}: {text}")


# --- Lengths ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("family", ["Llama", "Qwen3", "Phi3"])
def test_eight_lengths_are_at_most_three_graphs(family, training):
    model = tiny(family).train(training)
    call = compiled(model, fullgraph=True)
    graph_count, kernels = [], []
    for length in LENGTHS:
        text = words(length=length)
        if training:
            close(step(call, model, text), step(model, model, text))
        else:
            with torch.no_grad():
                close({"logits": call(input_ids=text).logits}, {"logits": model(input_ids=text).logits})
        after = cermet.counters()
        graph_count.append(after["graphs"])
        kernels.append(after["kernels_compiled"])
    assert graph_count[-1] - graph_count[0] <= RECOMPILES, graph_count
    assert kernels[-1] == kernels[RECOMPILES], f"kernels compiled, by length: {kernels}"


# --- Steps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("remainder", REMAINDERS[:2])
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_layers(remainder, reentrant):
    model, text = tiny("Gemma2").train(), words()
    plain = step(model, model, text)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    call = compiled(model, remainder, fullgraph=not reentrant)
    before = cermet.counters()["regions"]
    close(step(call, model, text), plain)
    assert cermet.counters()["regions"] - before >= NAMED["Gemma2"].norms_of() + 2 * LAYERS


@pytest.mark.parametrize("remainder", REMAINDERS[:2])
def test_gradients_accumulate_over_steps(remainder):
    model = tiny("Llama").train()
    call = compiled(model, remainder, fullgraph=True)
    items = torch.tensor(3 * 30)
    results = []
    for run in (call, model):
        model.zero_grad()
        for seed in range(3):
            text = words(seed=seed)
            run(input_ids=text, labels=text, num_items_in_batch=items).loss.backward()
        results.append(gradients(model))
    close(*results)


@pytest.mark.parametrize("remainder", REMAINDERS)
def test_a_retained_graph_gives_the_same_gradients_again(remainder):
    model, text = tiny("Qwen3").train(), words()
    loss = compiled(model, remainder, fullgraph=True)(input_ids=text, labels=text).loss
    passes = []
    for _ in range(3):
        model.zero_grad()
        loss.backward(retain_graph=True)
        passes.append(gradients(model))
    for later in passes[1:]:
        for name, value in passes[0].items():
            assert torch.equal(later[name], value), name
    close({"loss": loss.detach()} | passes[0], step(model, model, text))


def test_compiled_autograd():
    model, text = tiny("Llama").train(), words()
    expected = step(model, model, text)
    call = compiled(model, fullgraph=True)
    before = cermet.counters()
    with torch._dynamo.compiled_autograd._enable(compiled(None)):
        close(step(call, model, text), expected)
    after = cermet.counters()
    assert after["graphs"] == before["graphs"] + 2 and after["fallbacks"] == before["fallbacks"]


@pytest.mark.parametrize("remainder", REMAINDERS)
def test_a_double_backward_is_refused_by_name(remainder):
    model, text = tiny("Llama", attn_implementation="eager").train(), words()
    loss = compiled(model, remainder, fullgraph=True)(input_ids=text, labels=text).loss
    parameters = [parameter for parameter in model.parameters() if parameter.dim() == 1]
    with pytest.raises(Exception, match="double backward"):
        first = torch.autograd.grad(loss, parameters, create_graph=True)
        torch.autograd.grad(sum(grad.square().sum() for grad in first), parameters)


# --- Copies and exports ----------------------------------------------------------------------------------------------


def pickled(module):
    return pickle.loads(pickle.dumps(module))


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
@pytest.mark.parametrize("in_place", [False, True], ids=["compile", "module.compile"])
def test_a_compiled_model_is_copied_and_pickled(copied, in_place):
    model, text = tiny("Llama").train(), words()
    if in_place:
        model.compile(backend="cermet", options={"remainder": "aot", "strict": True})
    call = model if in_place else compiled(model)
    expected = step(call, model, text)
    model.zero_grad(set_to_none=True)
    other = copied(call)
    if in_place:  # torch leaves what was compiled behind
        other.compile(backend="cermet", options={"remainder": "aot", "strict": True})
    before = cermet.counters()["launches"]
    close(step(other, getattr(other, "_orig_mod", other), text), expected)
    assert cermet.counters()["launches"] > before


def test_a_rewritten_model_is_exported():
    model, text = tiny("Gemma2").eval(), words()
    module, arguments = graphs.traced(lambda t: model(input_ids=t).logits, text)
    regions = pipeline.run(module).regions
    assert len(regions) >= NAMED["Gemma2"].norms_of()
    program = torch.export.export(module, tuple(arguments))
    ours = [node for node in program.graph.nodes if "cermet_v1" in str(node.target)]
    assert len(ours) == len(regions)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for exported in (program, torch.export.load(file)):
        (logits,) = exported.module()(*arguments)
        close({"logits": logits}, {"logits": model(input_ids=text).logits})
