"""The order of independent calls: less is held, the numbers are the same, and what must keep its place does."""

from __future__ import annotations

import operator
import random

import pytest
import torch
from tiny_models import tiny, words
from torch.fx.experimental.proxy_tensor import make_fx

import cermet
from cermet.rematerialization import liveness, ordering

aten = torch.ops.aten
SIDE = 1024  # of a tensor of 4 MB in f32: more than what is worth a move


def traced(function, *inputs):
    return make_fx(function, tracing_mode="fake")(*inputs)


def names(module):
    return [node.target.overloadpacket.__name__ for node in module.graph.nodes if node.op == "call_function"]


def test_what_frees_more_than_it_makes_runs_as_soon_as_it_can():
    def function(x):
        large = torch.sin(x)
        other = torch.cos(x)
        other = torch.exp(other)
        return other, large.sum()

    module = traced(function, torch.randn(SIDE, SIDE))
    before = liveness.step(module).peak.bytes
    assert ordering.order(module) == 1
    assert names(module) == ["sin", "sum", "cos", "exp"]
    assert liveness.step(module).peak.bytes < before


def test_what_makes_more_than_it_frees_runs_as_late_as_it_can():
    def function(x):
        large = x.expand(SIDE, SIDE) * 2
        other = torch.cos(x.expand(SIDE, SIDE) * 3).sum()
        return other, large.sum() + other

    module = traced(function, torch.randn(SIDE))
    assert ordering.order(module)
    assert [name for name in names(module) if name != "expand"] == ["mul", "cos", "sum", "mul", "sum", "add"]


def test_a_view_whose_size_is_known_later_stays_behind_that():
    def function(x):
        large = x.expand(SIDE, SIDE) * 2
        other = torch.cos(x).sum()
        return other, large[: SIDE // 2].sum()

    module = traced(function, torch.randn(SIDE))
    large = next(node for node in module.graph.nodes if node.target is aten.mul.Tensor)
    half = next(node for node in module.graph.nodes if node.target is aten.slice.Tensor)
    with module.graph.inserting_before(half):
        count = module.graph.call_function(aten.sym_size.int, (large, 0))
        count.meta["val"] = SIDE
        border = module.graph.call_function(operator.floordiv, (count, 2))
        border.meta["val"] = SIDE // 2
    half.update_arg(3, border)
    assert ordering.order(module)
    module.graph.lint()
    assert large.next is count, "it is needed there first"


def test_nothing_passes_what_writes_or_draws():
    def function(x):
        large = torch.sin(x)
        noise = torch.rand_like(x)
        more = torch.rand_like(x)
        return (noise * more), large.sum()

    module = traced(function, torch.randn(SIDE, SIDE))
    ordering.order(module)
    assert names(module) == ["sin", "rand_like", "rand_like", "sum", "mul"]

    def writes(x):
        large = torch.sin(x)
        other = torch.cos(x)
        large.add_(other)
        return torch.exp(other), large.sum()

    module = traced(writes, torch.randn(SIDE, SIDE))
    ordering.order(module)
    assert names(module).index("add_") < names(module).index("sum")


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_hold_no_more_and_give_the_same(seed):
    choose = random.Random(seed)
    plan = [(choose.randrange(7), choose.random(), choose.random()) for _ in range(24)]

    def function(x, y):
        values = [x, y]
        for kind, first, second in plan:
            one, other = (values[int(place * len(values))] for place in (first, second))
            if kind == 0:
                made = one.sum(0, keepdim=True).expand(SIDE, SIDE)
            elif kind == 1:
                made = one.t()
            elif kind == 2:
                made = torch.stack([one, other]).amax(0)
            elif kind == 3:
                made = one.split(SIDE // 2)[1].repeat(2, 1)
            elif kind == 4:
                made = one.clone().add_(other)
            else:
                made = torch.sin(one) + other * 0.5
            values.append(made)
        return values[-1], values[-3].sum(), values[-5][:3]

    inputs = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    module = traced(function, *inputs)
    before, expected = liveness.step(module).peak.bytes, module(*inputs)
    ordering.order(module)
    module.graph.lint()
    module.recompile()
    assert liveness.step(module).peak.bytes <= before
    torch.testing.assert_close(module(*inputs), expected, rtol=0, atol=0)


@pytest.mark.parametrize("family", ["Llama", "Gemma2", "Mixtral"])
def test_a_step_holds_no_more(monkeypatch, family):
    model, text = tiny(family, hidden_size=1024, intermediate_size=2048).train(), words(2, 256)

    def planned():
        torch._dynamo.reset()
        return cermet.memory(model, input_ids=text, labels=text).peak.bytes

    ordered = planned()
    monkeypatch.setattr(ordering, "order", lambda module: 0)
    assert ordered <= planned()
