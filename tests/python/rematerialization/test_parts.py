"""Launches that are taken apart: what is kept of their midst, what waits, and what is put together again."""

from __future__ import annotations

import copy

import pytest
import torch
from truth import EVERY_SEED, assert_none_is_far_from_eager, double, relative

from cermet.graph.traffic import hint
from cermet.rematerialization import halves, liveness, parts, seams
from cermet.remainder import direct

ROWS, HIDDEN, INNER = 512, 64, 2048


class Adapted(torch.nn.Module):
    """A frozen linear layer and an adapter in f32, rounded as the layer is."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.base = torch.nn.Linear(inputs, outputs, bias=False, dtype=torch.bfloat16).requires_grad_(False)
        self.down = torch.nn.Parameter(torch.randn(4, inputs) * inputs**-0.5)
        self.up = torch.nn.Parameter(torch.randn(outputs, 4))

    def forward(self, x):
        base = self.base(x)
        added = torch.nn.functional.linear(torch.nn.functional.linear(x.to(self.down.dtype), self.down), self.up)
        return (base + added * 0.7).to(base.dtype)


class Gated(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = Adapted(HIDDEN, INNER), Adapted(HIDDEN, INNER)
        self.down = Adapted(INNER, HIDDEN)

    def forward(self, x):
        return x + self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))


def model(layers: int = 2) -> torch.nn.Module:
    torch.manual_seed(layers)
    return torch.nn.Sequential(*(Gated() for _ in range(layers)))


class Graphs:
    """Those that run by direct calls, as they are compiled."""

    def __init__(self, monkeypatch) -> None:
        self.seen: list[torch.fx.Graph] = []
        line = direct.StraightLine

        def kept(graph, *arguments, **keywords):
            self.seen.append(copy.deepcopy(graph.graph))
            return line(graph, *arguments, **keywords)

        monkeypatch.setattr(direct, "StraightLine", kept)

    def of(self, module: torch.nn.Module, x: torch.Tensor, dynamic: bool = False, memory: str = "auto"):
        """The forward's and the backward's graph, the result and the gradients."""
        torch._dynamo.reset()
        self.seen.clear()
        options = {"remainder": "aot", "strict": True, "memory": memory}
        self.call = torch.compile(module, backend="cermet", options=options, dynamic=dynamic)
        with torch._functorch.config.patch(enable_autograd_cache=False):
            found = values(self.call, x)
        forward, backward = self.seen[:2]
        return forward, backward, found


@pytest.fixture
def graphs(monkeypatch):
    return Graphs(monkeypatch)


def values(call, x: torch.Tensor) -> list[torch.Tensor]:
    """The result, and the gradients of its square's sum."""
    x = x.clone().requires_grad_()
    result = call(x)
    leaves = [x, *(each for each in call.parameters() if each.requires_grad)]
    return [result, *torch.autograd.grad(result.square().sum(dtype=torch.promote_types(x.dtype, torch.float32)), leaves)]


def products(graph, rows: int = ROWS, columns: int = INNER, dtype=torch.float32) -> int:
    """Those that give a tensor of a shape."""
    values = [node.meta["val"] for node in graph.nodes if "mm" in str(node.target) and node.op == "call_function"]
    return sum(value.dtype == dtype and tuple(map(int, value.shape)) == (rows, columns) for value in values)


def launches(graph) -> list:
    return [node for node in graph.nodes if node.op == "call_function" and "launch_" in str(node.target)]


def rows(count: int = ROWS) -> torch.Tensor:
    return torch.randn(count, HIDDEN).bfloat16()


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_gate_is_kept_in_place_of_what_it_is_made_of(graphs, dynamic):
    module = model()
    forward, backward, _ = graphs.of(module, rows(), dynamic)
    # A layer's backward makes one product of that shape: the cotangent that its last adapter hands on.
    assert products(forward) == 2 * 2 and products(backward) == 2
    saved = [node.meta["val"] for node in backward.find_nodes(op="placeholder")]
    wide = [value for value in saved if isinstance(value, torch.Tensor) and hint(value.numel()) == ROWS * INNER]
    assert len(wide) == 2 * 2 and all(value.dtype == torch.bfloat16 for value in wide)


def test_what_is_kept_costs_no_launch(graphs, monkeypatch):
    module, x = model(), rows()
    forward, backward, _ = graphs.of(module, x)
    monkeypatch.setattr(seams, "_shared", lambda *_: None)
    plain_forward, plain_backward, _ = graphs.of(module, x)
    assert products(plain_backward) > products(backward)
    assert len(launches(forward)) == len(launches(plain_forward))
    assert len(launches(backward)) <= len(launches(plain_backward))


@pytest.mark.parametrize("count", [ROWS, 401])
@pytest.mark.parametrize("memory", ["auto", "least"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_numbers_are_as_near_to_float64_as_eagers(graphs, dynamic, memory, count):
    module = model()
    graphs.of(module, rows(count), dynamic, memory)
    errors: list[dict[str, list[float]]] = [{}, {}]
    for _ in range(EVERY_SEED):
        x = rows(count)
        truth = values(double(module), x.double())
        for found, call in zip(errors, (graphs.call, module)):
            for index, (value, true) in enumerate(zip(values(call, x), truth, strict=True)):
                found.setdefault(f"value {index}", []).append(relative(value, true))
    assert_none_is_far_from_eager(*errors, torch.bfloat16)


@pytest.fixture
def whatever_it_takes(monkeypatch):
    monkeypatch.setattr(halves, "_PART", 100.0)
    monkeypatch.setattr(halves, "_WORTH", 0.0)


def held(graph) -> int:
    inputs = [node for node in graph.find_nodes(op="placeholder") if str(node.target).startswith("primals")]
    return liveness.most(graph, inputs)[0]


def test_a_kernel_where_most_is_held_is_taken_apart(graphs, whatever_it_takes, monkeypatch):
    module, x = model(), rows()
    forward, backward, mine = graphs.of(module, x)
    monkeypatch.setattr(halves, "_ROUNDS", 0)
    plain_forward, plain_backward, plain = graphs.of(module, x)
    assert held(backward) < held(plain_backward) and held(forward) < held(plain_forward)
    for one, other in zip(mine, plain, strict=True):
        assert torch.equal(one, other)


def test_what_gains_nothing_is_put_together_again(graphs, whatever_it_takes, monkeypatch):
    module, x, tried = model(), rows(), []
    together = parts.put_together

    def counted(graph, taken):
        tried.append(taken)
        made = together(graph, taken)
        graph.lint()
        return made

    monkeypatch.setattr(parts, "put_together", counted)
    monkeypatch.setattr(halves, "_LEAST", 2**40)
    forward, backward, mine = graphs.of(module, x)
    assert tried
    monkeypatch.setattr(halves, "_ROUNDS", 0)
    plain_forward, plain_backward, plain = graphs.of(module, x)
    for one, other in ((forward, plain_forward), (backward, plain_backward)):
        assert [str(node.target) for node in one.nodes] == [str(node.target) for node in other.nodes]
        assert [node.args[-1] for node in launches(one)] == [node.args[-1] for node in launches(other)]
    for one, other in zip(mine, plain, strict=True):
        assert torch.equal(one, other)


def test_a_second_kernel_that_takes_too_long_is_not_made(graphs, monkeypatch):
    monkeypatch.setattr(halves, "_PART", 0.0)
    module, x = model(), rows()
    *some, _ = graphs.of(module, x)
    monkeypatch.setattr(halves, "_ROUNDS", 0)
    *none, _ = graphs.of(module, x)
    assert [len(launches(graph)) for graph in some] == [len(launches(graph)) for graph in none]
