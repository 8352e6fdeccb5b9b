"""Values that are made twice: less is held where most is, the numbers are the same, and what would cost more stays."""

from __future__ import annotations

import random

import pytest
import torch
from tiny_models import tiny, words
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import cermet
from cermet.rematerialization import liveness, twice

SIDE = 1024  # of a tensor of 4 MB in f32


@pytest.fixture
def free(monkeypatch):
    """Whatever it takes."""
    monkeypatch.setattr(twice, "_PART", 100.0)


def traced(function, *inputs):
    return make_fx(function, tracing_mode="fake")(*inputs)


def count(module, name):
    return sum(name in str(node.target) for node in module.graph.nodes if node.op == "call_function")


def made(module):
    """How often something is made twice, after which the graph still runs."""
    found = twice.make_twice(module, module.graph.find_nodes(op="placeholder"))
    module.graph.lint()
    module.recompile()
    return found


def pausing(x, weight):
    """exp(x) is read before and behind the peak."""
    early = torch.exp(x)
    wide = (early @ weight).repeat(1, 4)
    return ((wide * wide).sum() + early.view(-1).sum(),)


def test_what_is_read_on_both_sides_of_the_peak_is_dropped_there(free):
    inputs = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    module = traced(pausing, *inputs)
    before, expected = liveness.step(module).peak.bytes, module(*inputs)
    assert made(module) == 1
    assert count(module, "aten.exp") == 2 and count(module, "aten.mm") == 1
    assert before - liveness.step(module).peak.bytes == 4 * SIDE * SIDE
    torch.testing.assert_close(module(*inputs), expected, rtol=0, atol=0)


def test_a_view_stands_behind_the_sizes_that_it_is_told(free):
    """Though another reader of the copy stands before them."""

    def function(x, weight):
        early = torch.exp(x)
        wide = (early @ weight).repeat(1, 4)
        total = (wide * wide).sin().cos().sin().cos().sum() + early.sum()
        return (total + early[: x.shape[0] // 2 * 2].cos().sum(),)

    inputs = torch.randn(SIDE + 1, SIDE), torch.randn(SIDE, SIDE)
    module = make_fx(function, tracing_mode="symbolic")(*inputs)
    assert made(module) == 1
    assert count(module, "aten.exp") == 2 and count(module, "aten.slice") == 1
    torch.testing.assert_close(module(*inputs), function(*inputs), rtol=0, atol=0)


@pytest.mark.parametrize("rest", [0, 1, 2])
def test_a_copy_asks_nothing_of_a_size(free, rest):
    """What torch would like to know of one, whether it is 0 or 1, would bind the graph to the answer."""

    def function(x, weight):
        early = torch.exp(x)
        wide = (early @ weight).repeat(1, 4)
        return ((wide * wide).sum() + torch.reshape(early[x.shape[0] // 32 * 32 :].t(), [-1]).cos().sum(),)

    env = ShapeEnv()
    mode = FakeTensorMode(shape_env=env)
    x, weight = mode.from_tensor(torch.randn(SIDE + rest, SIDE)), torch.randn(SIDE, SIDE)
    with env.suppress_guards():
        module = make_fx(function)(x, mode.from_tensor(weight, static_shapes=True))
    known = len(env.guards), dict(env.replacements)
    assert made(module) == 1
    assert count(module, "aten.exp") == 2
    assert (len(env.guards), env.replacements) == known


def test_what_takes_longer_than_it_is_worth_stays():
    assert made(traced(pausing, torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE))) == 0


def test_what_a_call_takes_that_nobody_knows_is_not_taken_again(free):
    def function(x, weight):
        wide, *_ = torch.ops.aten.native_layer_norm(x, [SIDE], None, None, 1e-5)
        large = (wide @ weight).repeat(1, 4)
        return (large * large).sum() + wide.sum()

    assert made(traced(function, torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE))) == 0


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: (lambda y: ((y @ w).repeat(1, 4).exp().sum(), y))(torch.exp(x)),
        lambda x, w: (lambda y: (y @ w).repeat(1, 4).exp().sum() + y.sum())(torch.exp(torch.cos(x))),
        lambda x, w: (lambda y: (y @ w).repeat(1, 4).exp().sum() + y.sum())(torch.rand_like(x)),
        lambda x, w: (lambda y: (y @ w).repeat(1, 4).exp().sum() + y.sum())(x @ w),
    ],
    ids=["what is returned", "of what is dropped", "what is drawn", "a product"],
)
def test_what_cannot_be_dropped_stays(free, function):
    assert made(traced(function, torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE))) == 0


def test_of_what_is_written_meanwhile_nothing_is_made_again(free):
    def function(x, weight):
        source = x * 2
        early = torch.exp(source)
        wide = (early @ weight).repeat(1, 4)
        total = (wide * wide).sum()
        source.add_(1)
        return total + early.sum() + source.sum()

    assert made(traced(function, torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE))) == 0


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_hold_no_more_and_give_the_same(free, seed):
    choose = random.Random(seed)
    plan = [(choose.randrange(6), choose.random(), choose.random()) for _ in range(24)]

    def function(x, y):
        values = [x, y]
        for kind, first, second in plan:
            one, other = (values[int(place * len(values))] for place in (first, second))
            if kind == 0:
                value = one.sum(0, keepdim=True).expand(SIDE, SIDE)
            elif kind == 1:
                value = one.t()
            elif kind == 2:
                value = torch.stack([one, other]).amax(0)
            elif kind == 3:
                value = one.clone().add_(other)
            else:
                value = torch.sin(one) + other * 0.5
            values.append(value)
        return values[-1], values[-3].sum(), values[-5][:3]

    inputs = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    module = traced(function, *inputs)
    before, expected = liveness.step(module).peak.bytes, module(*inputs)
    times = made(module)
    assert (liveness.step(module).peak.bytes < before) == (times > 0)
    torch.testing.assert_close(module(*inputs), expected, rtol=0, atol=0)


def checkpointed(family, dtype=torch.bfloat16, **sizes):
    model = tiny(family, dtype=dtype, **sizes).train()
    model.gradient_checkpointing_enable()
    return model


def test_a_checkpointed_body_drops_its_norms(monkeypatch, free):
    """Which are read by the products that are made again, and by the gradients of their weights."""
    sizes = {"dtype": torch.float32, "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 2}
    text, options = words(4, 512), {"logits_bytes": 1 << 20}

    def step():
        torch._dynamo.reset()
        torch.manual_seed(0)
        model = checkpointed("Llama", **sizes)
        call = torch.compile(model, backend="cermet", options={**options, "strict": True})
        with torch._functorch.config.patch(enable_autograd_cache=False):
            call(input_ids=text, labels=text).loss.backward()
        planned = cermet.memory(model, input_ids=text, labels=text, options=options, measure=True)
        return planned, {name: parameter.grad for name, parameter in model.named_parameters()}

    found, gradients = step()
    assert found.planned == pytest.approx(found.measured, rel=0.03)
    monkeypatch.setattr(twice, "make_twice", lambda *_: 0)
    before, expected = step()
    assert before.planned - found.planned >= 0.9 * 4 * 512 * 256 * 4
    for name, gradient in gradients.items():
        assert torch.equal(gradient, expected[name]), name


def test_what_leaves_a_checkpoint_is_not_made_again():
    """The last layer's result, which the last norm's gradient reads."""
    sizes = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2}
    text = words(2, 64)
    (plan,) = cermet.explain(checkpointed("Llama", **sizes), input_ids=text, labels=text).plans
    products = [again for again in plan.again if again.made_by.name == "aten.mm"]
    assert len(products) == 2 * 6  # of each layer all but the last, whose result is the layer's
