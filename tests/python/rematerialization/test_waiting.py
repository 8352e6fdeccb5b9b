"""Products that wait for a kernel that writes what they read: where the peak is elsewhere, or little is held."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import torch
from tiny_models import tiny, words
from torch.fx.experimental.proxy_tensor import make_fx

from cermet.rematerialization import liveness, waiting

ROWS, COLUMNS = 512, 64


def traced(function: Callable, sizes: Iterable[tuple[int, int]]) -> torch.fx.GraphModule:
    module = make_fx(function, tracing_mode="fake")(*map(torch.randn, sizes))
    next(iter(module.graph.nodes)).target = "tangents_1"
    return module


def backward(wide: int, before: int, between: int) -> torch.fx.GraphModule:
    """Of a norm and a layer behind it that is so many times as wide as its input, with so many times as much held by
    products before and after the gradient of the layer's weight."""

    def function(tangents, x, of_layer, of_before, of_between):
        cotangent = tangents @ of_before
        of_weight = torch.tanh(x).t() @ cotangent
        of_norm = cotangent @ of_layer @ of_between @ of_between.t()
        return of_weight, (of_norm * x) @ of_layer.t()

    sizes = [(ROWS, before), (ROWS, 1), (wide, 1), (before, wide), (1, between)]
    sizes = [tuple(size if size == ROWS else size * COLUMNS for size in each) for each in sizes]
    return traced(function, sizes)


def waits(module: torch.fx.GraphModule) -> bool:
    """Whether the weight's gradient is behind the kernel that reads x, once those that wait do."""
    waiting.wait(module.graph)
    module.graph.lint()
    of_weight, behind = module.graph.output_node().all_input_nodes
    return behind.args[0] < of_weight


@pytest.mark.parametrize("before, between, expected", [(16, 1, True), (4, 16, False)])
def test_a_product_waits_where_the_peak_is_elsewhere(before, between, expected):
    module = backward(4, before, between)
    peak, _ = liveness.most(module.graph)
    assert waits(module) is expected
    assert liveness.most(module.graph)[0] == peak


def test_a_product_waits_that_holds_no_more_than_the_kernel_spares():
    assert waits(backward(1, 1, 16))


def test_products_that_read_one_value_wait_together_or_not_at_all():
    def function(tangents, x, of_layer, of_other):
        again = torch.tanh(x).t()
        small, large = tangents @ of_layer, tangents @ of_other
        weights = again @ small, again @ large
        cotangent = small @ of_layer.t() + large @ of_other.t()
        return *weights, (cotangent * x) @ of_layer

    def moved(wide: int) -> list[bool]:
        module = traced(function, [(ROWS, COLUMNS), (ROWS, COLUMNS), (COLUMNS, COLUMNS), (COLUMNS, wide * COLUMNS)])
        waiting.wait(module.graph)
        *weights, behind = module.graph.output_node().all_input_nodes
        return [behind.args[0] < weight for weight in weights]

    assert moved(1) == [True, True] and moved(16) == [False, False]


@pytest.mark.parametrize("layers, expected", [(waiting.FEW // 2, True), (waiting.FEW // 2 + 1, False)])
def test_what_many_layers_read_nobody_waits_for(layers, expected):
    """Two products each, of which those of the first would wait until the last: there is room for all."""

    def function(tangents, x, *weights):
        again, of_weights, cotangent = torch.tanh(x).t(), [], tangents
        for place in range(0, 2 * layers, 2):
            keys, values = tangents @ weights[place], tangents @ weights[place + 1]
            of_weights += [again @ keys, again @ values]
            cotangent = cotangent + keys @ weights[place].t() + values @ weights[place + 1].t()
        wide = (cotangent @ weights[-1]) @ weights[-1].t()
        return *of_weights, (wide * x) @ weights[0]

    sizes = [(ROWS, COLUMNS), (ROWS, COLUMNS), *[(COLUMNS, COLUMNS)] * (2 * layers), (COLUMNS, 64 * COLUMNS)]
    module = traced(function, sizes)
    waiting.wait(module.graph)
    *products, behind = module.graph.output_node().all_input_nodes
    assert [behind.args[0] < product for product in products] == [expected] * (2 * layers)


def test_a_norm_before_a_wide_layer_is_written_by_the_kernel_of_its_gradient(monkeypatch):
    from cermet.remainder import direct

    graphs, launches = [], []

    class Kept(direct.StraightLine):
        def __init__(self, graph, *arguments, **keywords):
            graphs.append(graph.graph)
            super().__init__(graph, *arguments, **keywords)

    monkeypatch.setattr(direct, "StraightLine", Kept)
    has_room = waiting._Room.take
    model, text = tiny("Llama", hidden_size=128, intermediate_size=512, num_hidden_layers=4).train(), words(2, 64)
    for take in (lambda *_: False, has_room):
        monkeypatch.setattr(waiting._Room, "take", take)
        torch._dynamo.reset()
        with torch._functorch.config.patch(enable_autograd_cache=False):
            call = torch.compile(model, backend="cermet", options={"remainder": "aot", "strict": True})
            call(input_ids=text, labels=text).loss.backward()
        calls = [node for node in graphs[-1].nodes if node.op == "call_function"]
        launches.append(sum("launch" in str(node.target) for node in calls))
    assert launches[1] < launches[0], launches
