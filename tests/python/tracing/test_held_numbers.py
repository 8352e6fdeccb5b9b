"""Floats that modules and globals hold are constants under `dynamic=True` in Cermet's graphs; a change is seen."""

from __future__ import annotations

import functools
import math
from unittest import mock

import pytest
import torch
from torch._dynamo.backends.distributed import DDPOptimizer
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters

import cermet
from cermet import backend, patching
from tiny_models import tiny, words


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.epsilon = 0.5, 1e-3

    def forward(self, x: torch.Tensor, factor: float) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * self.scale * factor / math.pi


def floats(graph: torch.fx.GraphModule) -> list[torch.fx.Node]:
    values = [(node, node.meta.get("example_value")) for node in graph.graph.nodes if node.op == "placeholder"]
    return [node for node, value in values if torch.is_tensor(value) and value.dtype == torch.float64]


def test_a_model_is_traced_once():
    counters.clear()
    before = cermet.counters()["fallbacks"]
    model = tiny("Llama")
    call = torch.compile(model, backend="cermet", dynamic=True, options={"remainder": "aot"})
    for tokens in (8, 12, 5):
        given = words(2, tokens)
        loss = call(input_ids=given, labels=given).loss
        loss.backward()
        torch.testing.assert_close(loss, model(input_ids=given, labels=given).loss)
    assert counters["aot_autograd"]["total"] == 1, "AOTAutograd traced it again"
    assert counters["stats"]["unique_graphs"] == 1
    assert cermet.counters()["fallbacks"] == before


def test_one_that_changes_is_what_it_is_then():
    module, x = Scaled(), torch.randn(3, 16)
    call = torch.compile(module, backend="cermet", dynamic=True)
    for module.scale, module.epsilon in ((0.5, 1e-3), (0.25, 1e-3), (2.0, 1.0), (-1.0, 0.5)):
        torch.testing.assert_close(call(x, 1.0), module(x, 1.0))


def test_what_a_call_gives_stays_a_symbol():
    counters.clear()
    module, x = Scaled(), torch.randn(3, 16)
    call = torch.compile(module, backend="cermet", dynamic=True)
    for factor in (0.5, 0.25, 3.0):
        torch.testing.assert_close(call(x, factor), module(x, factor))
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("theirs", ["eager", "aot_eager"])
def test_other_backends_have_what_torch_gives_them(theirs):
    others = CompileCounterWithBackend(theirs)
    torch.compile(Scaled(), backend=others, dynamic=True)(torch.randn(3, 16), 0.5)
    assert [len(floats(graph)) for graph in others.graphs] == [4], "expected epsilon, scale, factor and pi as symbols"


PARTIAL = functools.partial(functools.partial(backend.compile, mode="default"), options={})


@pytest.mark.parametrize("named", ["cermet", backend.compile, PARTIAL])
def test_however_the_backend_is_named(named, monkeypatch):
    seen, run = [], backend.pipeline.run

    def listening(graph, *arguments, **keywords):
        seen.append(len(floats(graph)))
        return run(graph, *arguments, **keywords)

    monkeypatch.setattr(backend.pipeline, "run", listening)
    torch.compile(Scaled(), backend=named, dynamic=True)(torch.randn(3, 16), 0.5)
    assert seen == [1], "expected the factor alone as a symbol"


def test_under_ddp():
    """Whose optimizer stands between Dynamo and the backend."""
    translators = mock.Mock(), mock.Mock()
    for translator, compiler in zip(translators, (backend.compile, print)):
        translator.output.compiler_fn = DDPOptimizer(1 << 30, backend_compile_fn=compiler).compile_fn
    assert [patching.traces_for_us(each) for each in translators] == [True, False]


def test_what_inductor_hands_over():
    torch._dynamo.reset()
    counters.clear()
    model, text = tiny("Llama"), words(2, 8)
    with cermet.enable():
        loss = torch.compile(model, dynamic=True)(input_ids=text, labels=text).loss
    torch.testing.assert_close(loss, model(input_ids=text, labels=text).loss)
    assert counters["aot_autograd"]["total"] == 1, "AOTAutograd traced it again"
