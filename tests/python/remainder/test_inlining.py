"""Layers that are traced once run as those that are traced each: kernels go across their borders."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.source import AttrSource, LocalSource

import cermet.backend
import steps
import truth
from cermet import patching
from cermet.tracing import repeated_regions
from cermet.remainder import direct
from tiny_models import tiny, words

LAYERS = 4


@pytest.fixture
def lines(monkeypatch):
    """The graphs that run."""
    seen = []
    line = direct.StraightLine

    def made(graph, *arguments, **keywords):
        seen.append(graph)
        return line(graph, *arguments, **keywords)

    monkeypatch.setattr(direct, "StraightLine", made)
    return seen


def marked(model: torch.nn.Module) -> torch.nn.Module:
    """Its layers, to be traced once."""
    region = torch.compiler.nested_compile_region(type(model.model.layers[0]).forward)
    for layer in model.model.layers:
        layer.forward = region.__get__(layer)
    return model


def launched(model: torch.nn.Module, text: torch.Tensor) -> tuple[dict[str, torch.Tensor], int]:
    call = torch.compile(model, backend="cermet", options={"strict": True})
    steps.step(call, model, text)
    before = cermet.counters()["launches"]
    return steps.step(call, model, text), cermet.counters()["launches"] - before


@pytest.mark.parametrize("family", ["Llama", "Qwen3", "Phi3"])
def test_a_model_runs_no_more_kernels(family, lines):
    text = words(2, 24)
    plain, expected = launched(tiny(family, num_hidden_layers=LAYERS).train(), text)
    torch.compiler.reset()
    lines.clear()
    model = tiny(family, num_hidden_layers=LAYERS).train()
    ours, count = launched(marked(model), text)
    assert count <= expected
    assert not any("invoke_subgraph" in str(node.target) for graph in lines for node in graph.graph.nodes)
    exact = steps.exact(tiny(family, num_hidden_layers=LAYERS).train(), text)
    for name, true in exact.items():
        assert truth.relative(ours[name], true) <= 2 * truth.relative(plain[name], true) + truth.spacing(torch.float32)


def test_layers_of_a_marked_class():
    """Which torch traces once for all, since 2.13."""
    text = words(2, 24)
    model = tiny("Llama", num_hidden_layers=LAYERS).train()
    exact = steps.exact(tiny("Llama", num_hidden_layers=LAYERS).train(), text)
    plain, _ = launched(model, text)
    torch.compiler.reset()
    layer = type(model.model.layers[0])
    region = torch.compiler.nested_compile_region(layer.forward)
    marked_layer = type(layer.__name__, (layer,), {"forward": region, "__module__": layer.__module__})
    for each in model.model.layers:
        each.__class__ = marked_layer
    ours, _ = launched(model, text)
    for name, true in exact.items():
        assert truth.relative(ours[name], true) <= 2 * truth.relative(plain[name], true) + truth.spacing(torch.float32)


@pytest.mark.parametrize("backend", [cermet.backend.compile, torch._dynamo.lookup_backend("eager")])
@pytest.mark.parametrize("reached", ["by its argument", "by another name", "by none"])
def test_a_region_is_kept_for_other_calls_where_its_inputs_are_its_arguments(backend, reached):
    """Else other calls are given the first one's weights."""
    layer = AttrSource(LocalSource("model"), "layer")
    argument = layer if reached == "by its argument" else AttrSource(AttrSource(layer, "forward"), "__self__")
    lifted = [SimpleNamespace(index=0), SimpleNamespace(source=AttrSource(layer, "weight"))]
    kept = []
    keep = repeated_regions._keeping(lambda tx, fingerprint, p_args: kept.append(p_args), lambda *given: lifted)
    tx = SimpleNamespace(output=SimpleNamespace(compiler_fn=backend))
    fingerprint = SimpleNamespace(arg_sources=[None] if reached == "by none" else [None, argument], flat_vts=[])
    keep(tx, fingerprint, p_args=())
    assert len(kept) == (reached != "by another name" or backend is not cermet.backend.compile)


def test_torch_asks_before_it_keeps_a_region():
    module = pytest.importorskip("torch._dynamo.variables.invoke_subgraph", reason="torch before 2.13 keeps none")
    assert hasattr(module.save_reuse_entry, patching._OURS)


def test_inference(lines):
    model = marked(tiny("Llama", num_hidden_layers=LAYERS).eval())
    text = words(2, 24)
    call = torch.compile(model, backend="cermet", options={"strict": True})
    with torch.no_grad():
        torch.testing.assert_close(call(input_ids=text).logits, model(input_ids=text).logits, rtol=1e-4, atol=1e-5)
    assert not any("invoke_subgraph" in str(node.target) for graph in lines for node in graph.graph.nodes)


def test_regions_in_regions(lines):
    inner = torch.compiler.nested_compile_region(lambda x, w: F.silu(F.linear(x, w)) * x)
    outer = torch.compiler.nested_compile_region(lambda x, w, v: inner(inner(x, w), v).sin() + x)

    def function(x, w, v):
        return outer(outer(x, w, v), v, w).square().sum()

    args = [torch.randn(3, 5, 8, requires_grad=True), *(torch.randn(8, 8, requires_grad=True) for _ in range(2))]
    found = torch.autograd.grad(torch.compile(function, backend="cermet")(*args), args)
    for one, other in zip(found, torch.autograd.grad(function(*args), args)):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_who_reads_results_is_asked_of_the_graph_and_not_of_a_region(monkeypatch):
    """Of the one result of the region, whose graph is cut first, nothing follows for the three of the graph."""
    counts, real = [], direct.lay
    monkeypatch.setattr(direct, "lay", lambda graph, results: (counts.append(len(results)), real(graph, results))[1])
    region = torch.compiler.nested_compile_region(lambda x, w: F.silu(F.linear(x, w)))

    def function(x, w):
        y = region(region(x, w), w)
        return y, y.sin(), y.cos()

    args = [torch.randn(3, 7, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)]
    torch.testing.assert_close(torch.compile(function, backend="cermet")(*args), function(*args))
    assert counts[-1] == 3


def test_what_is_drawn_in_a_region_is_drawn_each_time(lines):
    """Equal calls become one, but not those that draw."""
    region = torch.compiler.nested_compile_region(lambda x: F.dropout(x, 0.5))
    x = torch.ones(64, 64, requires_grad=True)
    result = torch.compile(lambda x: (region(x), region(x)), backend="cermet")(x)
    assert not torch.equal(*result)
    (gradient,) = torch.autograd.grad(result[0].sum() + 2 * result[1].sum(), x)
    torch.testing.assert_close(gradient, result[0] + 2 * result[1])
