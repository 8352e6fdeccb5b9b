"""Layers that have a number each, and are else alike, are windows of one repetition."""

from __future__ import annotations

import copy

import cermet
import pytest
import torch
from cermet import pipeline
from cermet.repetition import rates
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from repeating import run

WIDTH, LAYERS, ROWS = 16, 12, 64


class Layer(nn.Module):
    """Whose path is dropped for some rows, as transformers' vision models do it."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.rate = rate
        self.drawn_in: torch.dtype | None = None  # of a float64 model, that of the model beside it

    def forward(self, x):
        y = self.down(nn.functional.gelu(self.up(self.norm(x))))
        if self.rate == 0.0 or not self.training:
            return x + y
        kept = 1 - self.rate
        drawn = kept + torch.rand((x.shape[0], 1, 1), dtype=self.drawn_in or x.dtype, device=x.device)
        drawn.floor_()
        return x + y.div(kept) * (drawn if self.drawn_in is None else drawn.to(x.dtype))


class Stack(nn.Module):
    def __init__(self, numbers: list[float]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(Layer, numbers))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.float().square().mean()


def rising(layers: int = LAYERS) -> Stack:
    return Stack([0.3 * place / (layers - 1) for place in range(layers)])


def truth(model, batch, device):
    """What a step gives in float64, of the same draws."""
    model = copy.deepcopy(model).to(device)
    for layer in model.layers:
        layer.drawn_in = layer.down.weight.dtype
    torch.manual_seed(7)  # as the step beside it
    loss = model.double()(batch["x"].to(device).double())
    return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]


def apart(found, true) -> float:
    return sum((one - other).norm() / other.norm() for one, other in zip(found, true, strict=True)).item()


def lifted(monkeypatch) -> list[int]:
    """How many numbers of each graph become inputs."""
    theirs, found = rates.lift, []

    def lift(module):
        answer = theirs(module)
        found.append(0 if answer is None else len(answer[1].numbers))
        return answer

    monkeypatch.setattr(rates, "lift", lift)
    return found


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_every_bit_is_that_of_layers_that_are_compiled_alone(dtype, dynamic, device, monkeypatch):
    model, batch = rising().to(dtype), {"x": torch.randn(ROWS, 5, WIDTH, dtype=dtype)}
    settings = {"fullgraph": True, "dynamic": dynamic, "options": {"strict": True}}
    launches = [cermet.counters()["launches"]]
    ours, counts = run(model, batch, device, **settings)
    launches.append(cermet.counters()["launches"])
    monkeypatch.setattr(rates, "lift", lambda module: None)
    theirs, others = run(model, batch, device, **settings)
    launches.append(cermet.counters()["launches"])
    if device == "cpu" or dtype == torch.float32:
        error = 0 if device == "cpu" else 1e-5
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=error, atol=error)
    else:  # a kernel keeps what it does not store in f32, but for what meets a number that is an input
        true = truth(model, batch, device)
        assert apart(ours, true) <= 1.1 * apart(theirs, true)
    assert counts["repeated_layers"] > 0 == others["repeated_layers"]
    assert launches[2] - launches[1] == launches[1] - launches[0] > 0


def test_what_changes_afterwards_is_compiled_anew():
    model, x = rising().train(), torch.randn(ROWS, 5, WIDTH)
    call = torch.compile(model, backend="cermet", options={"strict": True})
    for change in ("none", "another rate", "no rates"):
        if change == "another rate":
            model.layers[4].rate = 0.9
        if change == "no rates":
            model.eval()
        found = []
        for each in (call, model):
            torch.manual_seed(5)
            found.append(each(x))
        torch.testing.assert_close(*found)


@pytest.mark.parametrize(
    "numbers, expected",
    [
        ([0.2] * LAYERS, 0),  # of one number they are alike as they are
        ([0.2, 0.4] * (LAYERS // 2), 0),
        ([0.1, 0.2, 0.3, 0.4], 0),  # too few to be left out
        ([0.01 * (place + 1) for place in range(LAYERS)], 2 * LAYERS),
    ],
)
def test_numbers_are_inputs_only_where_layers_are_windows_with_them(numbers, expected, monkeypatch):
    found = lifted(monkeypatch)
    run(Stack(numbers), {"x": torch.randn(ROWS, 5, WIDTH)}, options={"strict": True})
    assert found == [expected]


@pytest.mark.parametrize("options", [{"remainder": "eager"}, {"memory": 10**9}], ids=str)
def test_other_ways_give_the_same(options):
    model, x = rising(), torch.randn(ROWS, 5, WIDTH)
    found = []
    for call in (torch.compile(model, backend="cermet", options={"strict": True, **options}), model):
        torch.manual_seed(5)
        found.append(call(x))
    torch.testing.assert_close(*found)


def test_what_is_explained_has_the_regions_of_what_runs():
    model, x = rising(), torch.randn(ROWS, 5, WIDTH)
    before = cermet.counters()["regions"]
    told = cermet.explain(model, x)
    torch.compile(model, backend="cermet", options={"strict": True})(x)
    assert len(told.places) == cermet.counters()["regions"] - before > 0


def test_numbers_are_made_once_and_each_begins_its_memory():
    """As the kernels are told; what nobody computes with is not kept."""
    call = rates.Rates((0.5, 0.25), torch.device("cpu")).attach(lambda *arguments: arguments)
    with FakeTensorMode():
        assert all(isinstance(each, FakeTensor) for each in call())
    (given, *made), (_, *again) = call(7), call(8)
    assert given == 7 and [each.item() for each in made] == [0.5, 0.25]
    assert all(one is other for one, other in zip(made, again, strict=True))
    assert all(each.storage_offset() == 0 and each.data_ptr() % 16 == 0 for each in made)


def test_a_failure_leaves_the_numbers_in_the_graph(monkeypatch):
    def fails(module):
        raise RuntimeError("why")

    monkeypatch.setattr(pipeline.rates, "lift", fails)
    before = cermet.counters()["fallbacks"]
    _, counts = run(rising(), {"x": torch.randn(ROWS, 5, WIDTH)}, options={"strict": False})
    assert counts["repeated_layers"] == 0 and cermet.counters()["fallbacks"] > before
