"""The backend around the rewriting: remainders, options, dynamic shapes, recompiles, what compiling leaves ready."""

from __future__ import annotations

import re

import pytest
import torch

import cermet
import graphs
from cermet import rewriter
from tiny_models import tiny, words


def close(ours, eager):
    """Two float32 computations of one thing, each with sums of its own order."""
    for mine, theirs in zip(*((value if isinstance(value, (tuple, list)) else [value]) for value in (ours, eager))):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5 * max(1.0, theirs.abs().max().item()))


def block(x, residual, weight, gate, up):
    total = x + residual
    y = graphs.rms_norm(total, weight)
    return graphs.glu(y @ gate, y @ up), total


def block_inputs():
    return torch.randn(2, 6, 32), torch.randn(2, 6, 32), torch.randn(32), torch.randn(32, 48), torch.randn(32, 48)


@pytest.mark.parametrize("remainder", ["eager", "aot", "inductor"])
def test_remainders_give_the_same_numbers_and_run_our_kernels(remainder):
    inputs = [value.requires_grad_() for value in block_inputs()]
    before = cermet.counters()
    results = []
    for call in (graphs.compiled(block, remainder), block):
        y, total = call(*inputs)
        results.append((y, total, *torch.autograd.grad(y.pow(2).sum() + total.sum(), inputs)))
    close(results[0], results[1])
    after = cermet.counters()
    assert after["launches"] - before["launches"] == 4  # two regions, forward and backward
    assert after["regions"] - before["regions"] == 2 and after["graphs"] - before["graphs"] == 1


def test_what_a_step_runs_is_prepared_when_the_graph_is_compiled():
    from cermet import backend, regions

    module = graphs.trace(block, *[value.requires_grad_() for value in block_inputs()])
    backend.rewrite(module, strict=True)
    before = cermet.counters()
    known = len(regions._registry.executables)
    y, total = module(*[value.requires_grad_() for value in block_inputs()])[:2]
    (y.sum() + total.sum()).backward()
    after = cermet.counters()
    for name in ("plans_compiled", "plans_from_directory", "kernels_compiled", "kernels_from_directory"):
        assert after[name] == before[name], name
    assert after["late_gradients"] == before["late_gradients"] and len(regions._registry.executables) == known


def test_new_sizes_compile_no_kernel():
    call = torch.compile(block, backend="cermet", options={"remainder": "aot"})
    x, residual, *rest = block_inputs()
    call(x, residual, *rest)
    before = cermet.counters()["kernels_compiled"]
    for rows in ((1, 1), (3, 5), (7, 2), (2, 9)):
        x, residual = torch.randn(*rows, 32), torch.randn(*rows, 32)
        close(call(x, residual, *rest), block(x, residual, *rest))
    assert cermet.counters()["kernels_compiled"] == before


def test_dynamic_shapes_train():
    call = torch.compile(block, backend="cermet", fullgraph=True, options={"remainder": "aot"})
    _, _, *rest = [value.requires_grad_() for value in block_inputs()]
    before = cermet.counters()["regions"]
    for rows in ((2, 6), (3, 4), (5, 3)):
        x, residual = torch.randn(*rows, 32), torch.randn(*rows, 32)
        grads = [torch.autograd.grad(f(x, residual, *rest)[0].sum(), rest) for f in (call, block)]
        close(*grads)
    assert cermet.counters()["regions"] == before + 4  # once as numbers, once as symbols


def test_an_inductor_mode_and_option_are_passed_on(monkeypatch):
    import torch._inductor.compile_fx as compile_fx

    seen = {}

    def record(gm, inputs, config_patches):
        seen.update(config_patches)
        return gm.forward

    monkeypatch.setattr(compile_fx, "compile_fx", record)
    x, weight = torch.randn(4, 32), torch.randn(32)
    options = {"mode": "max-autotune-no-cudagraphs", "epilogue-fusion": False, "strict": True}
    close(torch.compile(graphs.rms_norm, backend="cermet", options=options)(x, weight), graphs.rms_norm(x, weight))
    assert seen["max_autotune"] is True and seen["epilogue_fusion"] is False
    torch._dynamo.reset()
    seen.clear()
    torch.compile(graphs.rms_norm, backend="cermet", mode="reduce-overhead")(x, weight)
    assert seen == {"triton.cudagraphs": True}


def test_a_graph_without_matches_is_left_alone():
    before = cermet.counters()
    call = graphs.compiled(lambda x: torch.sin(x) + 1)
    close(call(torch.ones(3)), torch.sin(torch.ones(3)) + 1)
    after = cermet.counters()
    assert after["regions"] == before["regions"] and after["graphs"] == before["graphs"] + 1


def test_under_autocast_inside_and_outside():
    model, text = tiny("Llama"), words()

    def inside(t):
        with torch.autocast("cpu", torch.bfloat16):
            return model(input_ids=t, labels=t).loss

    eager = inside(text)
    before = cermet.counters()["regions"]
    ours = torch.compile(inside, backend="cermet", options={"remainder": "aot"})(text)
    assert cermet.counters()["regions"] - before == 7
    torch.testing.assert_close(ours, eager, rtol=2e-2, atol=0)
    torch._dynamo.reset()
    with torch.autocast("cpu", torch.bfloat16):
        outside = torch.compile(model, backend="cermet", options={"remainder": "aot"})(input_ids=text, labels=text).loss
    torch.testing.assert_close(outside, eager, rtol=2e-2, atol=0)


def test_model_compile_in_place_and_training_steps():
    losses = []
    for backend in (None, "cermet"):
        model, text = tiny("Llama"), words()
        if backend:
            model.compile(backend=backend, options={"remainder": "aot"})
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        curve = []
        for _ in range(6):
            loss = model(input_ids=text, labels=text).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            curve.append(loss.item())
        losses.append(curve)
    assert losses[1][-1] < losses[1][0]
    torch.testing.assert_close(torch.tensor(losses[1]), torch.tensor(losses[0]), rtol=2e-4, atol=0)


def test_a_symbolic_eps_is_guarded():
    """`dynamic=True` makes a float argument symbolic; the fused norm holds its value, so another one compiles again."""
    call = torch.compile(graphs.rms_norm, backend="cermet", dynamic=True, options={"remainder": "aot"})
    x, weight = 0.01 * torch.randn(4, 32), torch.randn(32)
    torch._dynamo.mark_static(x, 1)
    torch._dynamo.mark_static(weight)
    compiled = []
    for eps in (1e-6, 1e-6, 0.5, 0.5, 1e-6):
        before = cermet.counters()["regions"]
        close(call(x, weight, eps), graphs.rms_norm(x, weight, eps))
        compiled.append(cermet.counters()["regions"] > before)
    assert compiled == [True, False, True, False, False]


def test_symbolic_columns_are_declined_with_a_reason():
    module = graphs.trace(graphs.glu, *torch.randn(2, 4, 32), dynamic=True)
    decision = rewriter.decide(module)
    assert decision.regions == []
    (miss,) = decision.near_misses
    assert re.fullmatch(r"the last dimension of gate is the symbol \w+, expected a number", miss.condition)


def test_a_symbolic_float_that_is_not_ours_is_not_guarded():
    call = torch.compile(lambda x, rate: x * rate, backend="cermet", dynamic=True, options={"remainder": "aot"})
    before = cermet.counters()["graphs"]
    for rate in (0.1, 0.2, 0.3):
        close(call(torch.ones(4), rate), torch.full((4,), rate))
    assert cermet.counters()["graphs"] == before + 1
