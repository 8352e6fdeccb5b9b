"""What every layer gives its caller, keys and values or states, keeps nobody from compiling a few of them."""

from __future__ import annotations

import pytest
import torch
from repeating import LAYERS, WIDTH, Stack, run, same, stack
from tiny_models import tiny, words
from torch._dynamo.utils import counters as torchs

import cermet
from cermet.repetition import repeated
from cermet.repetition.lanes import HEAD, TAIL

LEFT_OUT = LAYERS - HEAD - TAIL - 1


def weighed(values):
    """Each value has its own part in a loss."""
    return sum((place + 1) * value.square().mean() for place, value in enumerate(values) if value.requires_grad)


class States(Stack):
    """All states, the first one's input too."""

    def forward(self, x):
        states = [x * 2]
        for place, layer in enumerate(self.layers):
            states.append(layer(self.between(states[-1], place)))
        return states


@pytest.mark.parametrize("dynamic", [False, True])
def test_states_of_all_layers(dynamic, device, monkeypatch):
    assert same(*stack(States), monkeypatch, device, objective=weighed, dynamic=dynamic) >= LEFT_OUT


class Two(Stack):
    """Two values of each layer."""

    def forward(self, x):
        kept = []
        for layer in self.layers:
            up = layer.up(layer.norm(x))
            kept += [up * 2, up.sin()]
            x = x + layer.down(up.relu())
        return [x, *kept]


@pytest.mark.parametrize("kind", [States, Two])
def test_what_stands_for_the_values_of_many_layers_is_no_layer(kind, monkeypatch):
    """It repeats itself, too."""
    assert same(*stack(kind, layers=24), monkeypatch, objective=weighed) >= 24 - HEAD - TAIL - 1


def test_states_in_any_order(monkeypatch):
    class Turned(States):
        def forward(self, x):
            states = super().forward(x)
            return states[::2] + states[1::2][::-1]

    assert same(*stack(Turned), monkeypatch, objective=weighed) >= LEFT_OUT


def test_states_without_the_last_ones(monkeypatch):
    class Normed(States):
        def forward(self, x):
            *states, last = super().forward(x)
            return *states, torch.nn.functional.layer_norm(last, (WIDTH,))

    assert same(*stack(Normed), monkeypatch, objective=weighed) >= LEFT_OUT


def test_several_values_of_each_layer(monkeypatch):
    """Of which one wants no gradient, and one no cotangent."""

    class Several(Stack):
        def forward(self, x):
            given = []
            for layer in self.layers:
                x = layer(x)
                given += [x.exp(), x.detach() * 2, x > 0]
            return x.square().sum(), *given

    def objective(given):
        loss, *values = given
        return loss + weighed(values[0::3]) + sum(value.mean() * loss for value in values[1::3])

    assert same(*stack(Several), monkeypatch, objective=objective) >= LEFT_OUT


def test_nobody_asks_for_their_gradients(monkeypatch):
    assert same(*stack(States), monkeypatch, objective=lambda states: states[-1].sum()) >= LEFT_OUT


def test_values_that_the_next_layer_changes(monkeypatch):
    """What a caller has is what became of it."""

    class Adding(States):
        def between(self, x, place):
            return x.mul_(1.5)

    assert same(*stack(Adding), monkeypatch, objective=weighed) > 0


def test_without_gradients():
    model, batch = stack(States)
    expected = model(**batch)
    before = cermet.counters()["repeated_layers"]
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="cermet")(**batch), expected)
    assert cermet.counters()["repeated_layers"] >= before + LEFT_OUT


@pytest.mark.parametrize("asked", [{"use_cache": True}, {"output_hidden_states": True}])
def test_models(asked, device, monkeypatch):
    torch.manual_seed(0)
    model, ids = tiny("Llama", num_hidden_layers=LAYERS).train(), words(2, 12)
    model.config.update(asked)

    def objective(given):
        states = given.hidden_states or [
            value for layer in given.past_key_values.layers for value in (layer.keys, layer.values)
        ]
        assert len(states) >= LAYERS
        return given.loss + weighed(states)

    assert same(model, {"input_ids": ids, "labels": ids}, monkeypatch, device, objective=objective) >= LEFT_OUT - 1


def test_a_cache_has_all_values():
    model, batch = stack(States)
    batch["x"] = torch.randn(6, 3, WIDTH)  # of no other test
    expected, _ = run(model, batch, objective=weighed)
    for hits in (0, 1):
        torch._dynamo.reset()
        model.zero_grad()
        before = torchs["aot_autograd"]["autograd_cache_hit"]
        loss = weighed(torch.compile(model, backend="cermet")(**batch))
        loss.backward()
        torch.testing.assert_close([loss] + [each.grad for each in model.parameters()], expected)
        assert torchs["aot_autograd"]["autograd_cache_hit"] - before == hits


class Views(Stack):
    """All values are views of what the layers make."""

    def forward(self, x):
        states = []
        for layer in self.layers:
            x = layer(x)
            states.append(x.transpose(0, 1))
        return states


class Some(States):
    """Of every other layer."""

    def forward(self, x):
        return super().forward(x)[::2]


@pytest.mark.parametrize("kind", [Views, Some])
def test_what_torch_returns_in_another_way_is_left_alone(kind, monkeypatch):
    assert same(*stack(kind), monkeypatch, objective=weighed) == 0


def test_torch_describes_results_in_another_way(monkeypatch):
    """Then nobody knows which is whose."""
    monkeypatch.setattr(repeated, "_number", lambda description: None)
    assert same(*stack(States), monkeypatch, objective=weighed) == 0
