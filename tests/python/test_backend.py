"""The backend around the rewriting: remainders, options, dynamic shapes, recompiles, what compiling leaves ready."""

from __future__ import annotations

import copy
import io
import json
import pickle
import re

import pytest
import torch

import cermet
import graphs
from cermet import pipeline
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
    again = remainder == "aot"  # the norm, which was not kept
    assert after["launches"] - before["launches"] == 4 + again  # two regions, forward and backward
    assert after["regions"] - before["regions"] == 2 and after["graphs"] - before["graphs"] == 1


def test_what_a_step_runs_is_prepared_when_the_graph_is_compiled():
    from cermet.ops import regions

    module = graphs.trace(block, *[value.requires_grad_() for value in block_inputs()])
    pipeline.run(module)
    before = cermet.counters()
    known = len(regions._registry.executables)
    y, total = module(*[value.requires_grad_() for value in block_inputs()])[:2]
    (y.sum() + total.sum()).backward()
    after = cermet.counters()
    for name in ("plans_compiled", "plans_from_directory", "kernels_compiled", "kernels_from_directory"):
        assert after[name] == before[name], name
    assert after["late_gradients"] == before["late_gradients"] and len(regions._registry.executables) == known


def test_bodies_are_prepared_with_their_graph_and_threads_as_asked(monkeypatch):
    from cermet import environment
    from cermet.ops import preparation, regions

    asked = []
    monkeypatch.setenv("CERMET_COMPILE_THREADS", "3")
    prepared = preparation.Preparation
    monkeypatch.setattr(preparation, "Preparation", lambda keys: prepared(asked.append(list(keys)) or ()))
    monkeypatch.setattr(regions, "_registry", regions.Registry())
    module = graphs.trace(block, *[value.requires_grad_() for value in block_inputs()])
    pipeline.run(module)
    assert len(asked[0]) == 4 and asked[1:] == [asked[0]]  # two regions, forward and backward; then each graph's own
    assert environment.compile_threads() == 3


def test_a_kernel_that_does_not_compile_is_named_and_the_others_are_ready(monkeypatch):
    from cermet.ops import library, preparation, regions

    def text(name: str, columns: int) -> str:
        from cermet.text import Builder, TensorType

        builder = Builder(name)
        x = builder.argument(TensorType(("r0", columns), "f32"), "x")
        builder.result(builder.unary("exp", x, "y"))
        return builder.text()

    keys = [regions.register(text(f"region_{columns}", columns)) for columns in (40, 41, 42, 43)]
    prepare = library.Context.prepare

    def broken(self, plan, device):
        name = json.loads(self._library.cermet_plan_json(plan))["name"]
        if name == "region_41":
            raise cermet.Error(f"{name} does not compile")
        return prepare(self, plan, device)

    monkeypatch.setattr(library.Context, "prepare", broken)
    places = [(key, torch.device("cpu")) for key in keys]
    with pytest.raises(cermet.Error, match="region_41 does not compile"):
        preparation.prepare(places)
    assert [regions.prepared(*place) for place in places] == [True, False, True, True]


def test_a_graph_whose_kernel_cannot_be_made_is_left_as_it_was(monkeypatch):
    """That is found when the graph has been traced behind autograd, which then begins again."""
    from cermet.ops import library

    prepare = library.Context.prepare

    def broken(self, plan, device):
        name = json.loads(self._library.cermet_plan_json(plan))["name"]
        if name.startswith("rms_norm"):
            raise cermet.Error(f"{name} does not compile")
        return prepare(self, plan, device)

    inputs = [torch.randn(7, 37, requires_grad=True) for _ in range(2)] + [torch.randn(37, 56) for _ in range(2)]
    inputs.append(torch.randn(37))  # as wide as no other test's: their kernels are there

    def step(call):
        y = call(*inputs)
        return y, *torch.autograd.grad(y.pow(2).sum(), inputs[:2])

    def gated(x, z, gate, up, weight):
        return graphs.glu(x @ gate, z @ up) + graphs.rms_norm(z, weight).sum()

    monkeypatch.setattr(library.Context, "prepare", broken)
    before = cermet.counters()
    options = {"remainder": "aot", "strict": False}
    close(step(torch.compile(gated, backend="cermet", options=options)), step(gated))
    after = cermet.counters()
    assert after["fallbacks"] == before["fallbacks"] + 1 and after["graphs"] == before["graphs"] + 1
    assert after["regions"] == before["regions"]
    with pytest.raises(Exception, match="rms_norm.* does not compile"):
        torch._dynamo.reset()
        torch.compile(gated, backend="cermet", options=options | {"strict": True})(*inputs)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("terminal", "seconds"), [(True, 0.0), (True, 60.0), (False, 0.0)])
def test_a_progress_line_where_a_person_waits(monkeypatch, terminal, seconds):
    from cermet.ops import preparation

    screen = _Terminal() if terminal else io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(preparation, "_SILENT_SECONDS", seconds)
    progress = preparation._Progress()
    progress.begin(2)
    progress.expect(12)
    progress.expect(19)
    progress.finish_one(12)
    progress.finish_one(19)
    written = screen.getvalue()
    if not terminal or seconds:
        assert written == ""
    else:
        assert "\r\x1b[Kcermet: 12 of 31 kernels compiled" in written and written.endswith("\r\x1b[K")


@pytest.mark.parametrize("value", ["0", "many", "-1"])
def test_a_wrong_number_of_threads_is_named(monkeypatch, value):
    from cermet import environment

    monkeypatch.setenv("CERMET_COMPILE_THREADS", value)
    with pytest.raises(cermet.Error, match=f"CERMET_COMPILE_THREADS is '{value}', expected a number from 1 to 1024"):
        environment.compile_threads()


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

    def record(gm, inputs, inner_compile, config_patches):
        seen.update(config_patches)
        return gm.forward

    monkeypatch.setattr(compile_fx, "compile_fx", record)
    x, weight = torch.randn(4, 32), torch.randn(32)
    options = {"mode": "max-autotune-no-cudagraphs", "epilogue-fusion": False, "strict": True}
    close(torch.compile(graphs.rms_norm, backend="cermet", options=options)(x, weight), graphs.rms_norm(x, weight))
    assert seen["max_autotune"] is True and seen["epilogue_fusion"] is False
    torch._dynamo.reset()
    seen.clear()
    options = {"mode": "reduce-overhead", "remainder": "inductor"}
    torch.compile(graphs.rms_norm, backend="cermet", options=options)(x, weight)
    assert seen == {"triton.cudagraphs": True}
    torch._dynamo.reset()
    torch.compile(lambda x: x.sin(), backend="cermet", mode="max-autotune-no-cudagraphs")(x)
    assert seen["max_autotune"] is True


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
    assert cermet.counters()["regions"] - before == 10  # five norms, two RoPE, two GLU, the loss
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
    decision = graphs.decided(module)
    assert decision.regions == []
    (miss,) = decision.near_misses
    assert re.fullmatch(r"the last dimension of gate is the symbol \w+, expected a number", miss.condition)


def test_a_symbolic_float_that_is_not_ours_is_not_guarded():
    call = torch.compile(lambda x, rate: x * rate, backend="cermet", dynamic=True, options={"remainder": "aot"})
    before = cermet.counters()["graphs"]
    for rate in (0.1, 0.2, 0.3):
        close(call(torch.ones(4), rate), torch.full((4,), rate))
    assert cermet.counters()["graphs"] == before + 1


# --- What a compiled module is put through ---------------------------------------------------------------------------


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(32))
        self.gate, self.up = torch.nn.Linear(32, 48), torch.nn.Linear(32, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = graphs.rms_norm(x, self.weight)
        return graphs.glu(self.gate(y), self.up(y))


def gradients(call, x, model) -> list[torch.Tensor]:
    call(x).square().mean().backward()
    grads = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    return grads


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
@pytest.mark.parametrize("in_place", [False, True], ids=["compile", "module.compile"])
def test_a_compiled_module_is_copied_and_pickled(copied, in_place):
    model, x, options = Block(), torch.randn(4, 32), {"remainder": "aot", "strict": True}
    if in_place:
        model.compile(backend="cermet", options=options)
    call = model if in_place else torch.compile(model, backend="cermet", options=options)
    expected = gradients(call, x, model)
    other = copied(call)
    close(gradients(other, x, other), expected)
    close(other(x), call(x))


def test_compiled_autograd():
    model, x, options = Block(), torch.randn(4, 32), {"remainder": "aot", "strict": True, "memory": "fast"}
    expected = gradients(model, x, model)
    call = torch.compile(model, backend="cermet", options=options)
    compiler = torch.compile(backend="cermet", options=options)
    before = cermet.counters()
    with torch._dynamo.compiled_autograd._enable(compiler):
        close(gradients(call, x, model), expected)
    after = cermet.counters()
    assert after["graphs"] == before["graphs"] + 2 and after["launches"] == before["launches"] + 4


@pytest.mark.parametrize("remainder", ["eager", "aot", "inductor"])
def test_a_retained_graph_and_accumulation_over_steps(remainder):
    model, x = Block(), torch.randn(3, 4, 32)
    call = torch.compile(model, backend="cermet", options={"remainder": remainder, "strict": True})
    results = []
    for run in (call, model):
        for step in x:
            loss = run(step).square().mean()
            loss.backward(retain_graph=True)
            loss.backward()
        results.append([parameter.grad.clone() for parameter in model.parameters()])
        model.zero_grad()
    close(*results)
