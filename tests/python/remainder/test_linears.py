"""Linear layers that AOTAutograd traces as one call each: what runs is ATen's calls."""

from __future__ import annotations

import collections
import contextlib

import pytest
import torch
from torch.nn.functional import linear

from cermet.ops.linears import LINEAR
from cermet.remainder import direct, linears


@pytest.fixture
def ran(monkeypatch):
    """How often each call stands in the graphs that direct calls run, and how many layers were one call before."""
    calls, joined = collections.Counter(), []
    line, layers = direct.StraightLine, linears._layers

    def written(graph, *arguments, **keywords):
        targets = (str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        calls.update(target.replace("_unsafe_view", "view") for target in targets)  # which, differs between versions
        return line(graph, *arguments, **keywords)

    def found(graph):
        joined.extend(layers(graph))
        return layers(graph)

    monkeypatch.setattr(direct, "StraightLine", written)
    monkeypatch.setattr(linears, "_layers", found)
    torch._functorch.config.patch(enable_autograd_cache=False).__enter__()
    yield calls, joined
    torch._functorch.config.enable_autograd_cache = True


def operands(**without_grad) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    made = {"x": torch.randn(3, 6, 8), "w": torch.randn(16, 8), "v": torch.randn(8, 16), "b": torch.randn(8)}
    return {name: value.requires_grad_(without_grad.get(name, True)) for name, value in made.items()}


def step(run, given) -> list[torch.Tensor]:
    """The result and all gradients."""
    made = run(**given)
    if made.requires_grad:
        made.backward(torch.cos(torch.arange(made.numel(), dtype=made.dtype)).view(made.shape))
    return [made.detach(), *(value.grad for value in given.values() if value.grad is not None)]


def two(x, w, v, b):
    return linear(torch.tanh(linear(x, w)), v, b)


def shared(x, w, v, b):
    return linear(linear(linear(x, w), v) + x, w).mul(2)


def turned(x, w, v, b):
    return linear(linear(x, w).transpose(0, 1), v).transpose(0, 1)


def adapted(x, w, v, b):
    return linear(x, w) + linear(linear(x, v.detach()[:, :8] * 2), w.detach())


def twice_as_many(x, w, v, b):
    """Rows of which no input of the graph is the number."""
    return linear(torch.tanh(linear(torch.cat([x, x * 2]), w)), v, b)


_PROGRAMS = (two, 2), (shared, 3), (turned, 1), (adapted, 3), (twice_as_many, 2)
PROGRAMS = {each.__name__: (each, layers) for each, layers in _PROGRAMS}


SIZES = {"aten.sym_size.int", "<built-in function mul>"}


def compiled(program, given, **settings):
    torch._dynamo.reset()
    return step(torch.compile(program, backend="cermet", options={"remainder": "aot"}, **settings), given)


@pytest.mark.parametrize("symbols", [(), (1,), (0, 1)])
@pytest.mark.parametrize("frozen", ["", "w", "x", "wv", "wvb", "xwvb"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_are_those_of_atens_calls_and_no_call_runs_more_often(ran, monkeypatch, name, frozen, symbols):
    calls, joined = ran
    program, layers = PROGRAMS[name]
    given = operands(**{each: False for each in frozen})
    torch._dynamo.mark_dynamic(given["x"], symbols)
    made = compiled(program, given)
    assert len(joined) == layers
    mine = dict(calls)
    calls.clear()
    monkeypatch.setattr(linears, "_layers", lambda graph: [])
    given = operands(**{each: False for each in frozen})
    torch._dynamo.mark_dynamic(given["x"], symbols)
    expected = compiled(program, given)
    more = {call: times for call, times in mine.items() if times > calls[call] and call not in SIZES}
    assert not more, f"more often than ATen's: {more}, of {dict(calls)}"
    doubles = {key: value.detach().double().requires_grad_(value.requires_grad) for key, value in given.items()}
    truth = step(program, doubles)
    assert len(made) == len(expected) == len(truth)
    for mine, theirs, right in zip(made, expected, truth):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
        torch.testing.assert_close(mine.double(), right, rtol=1e-4, atol=1e-4)


def test_the_graph_is_as_it_was_behind_it():
    module = torch.fx.symbolic_trace(lambda x, w: linear(x, w))
    mode = torch._subclasses.FakeTensorMode()
    for node, size in zip(module.graph.nodes, ((2, 3, 4), (5, 4))):
        node.meta["example_value"] = mode.from_tensor(torch.empty(size))
    before = str(module.graph)
    with pytest.raises(ValueError), linears.joined(module):
        assert [node.target for node in module.graph.nodes if node.op == "call_function"] == [LINEAR]
        raise ValueError
    assert str(module.graph) == before


@pytest.mark.parametrize("why", ["autocast", "two dimensions", "another order", "another type", "no tensor"])
def test_layers_of_which_aten_makes_other_calls_stay(ran, why):
    calls, joined = ran
    given = operands()
    context = torch.autocast("cpu", torch.bfloat16) if why == "autocast" else contextlib.nullcontext()
    programs = {
        "autocast": two,
        "two dimensions": lambda x, w, v, b: linear(x[0], w),
        "another order": lambda x, w, v, b: linear(x.transpose(0, 1), w),
        "another type": lambda x, w, v, b: linear(x.double(), w.double()).float(),
        "no tensor": lambda x, w, v, b: linear(x, w[0]),
    }
    with context:
        made = compiled(programs[why], given)
        expected = step(programs[why], operands())
    assert len(joined) == (1 if why == "another type" else 0)  # doubles are of one type
    for mine, right in zip(made, expected):
        torch.testing.assert_close(mine, right, rtol=2e-2, atol=2e-2)


def test_nothing_is_traced_for_a_gradient_where_none_is_asked_for(ran):
    calls, joined = ran
    with torch.no_grad():
        made = compiled(two, operands())
        torch.testing.assert_close(made[0], two(**operands()))
    assert len(joined) == 2 and not any("linear" in call for call in calls), calls
