"""Layers that are as their neighbours are compiled once: what runs is what runs where each is compiled, bit by bit, and
what is not as independent as layers are is left alone."""

from __future__ import annotations

import re

import pytest
import torch
from repeating import LAYERS, WIDTH, Layer, Stack, run, same, stack
from tiny_models import tiny, words
from torch import nn
from torch._dynamo.utils import counters as torchs

import cermet
from cermet.remainder import direct
from cermet.repetition import lengthening
from cermet.repetition.lanes import HEAD, TAIL, Irregular, Ports, Rung
from cermet.repetition.repeated import Repeated


@pytest.fixture
def lines(monkeypatch):
    """The texts of what was compiled."""
    found = []
    real = direct.StraightLine.__init__

    def written(line, *arguments, **keywords):
        real(line, *arguments, **keywords)
        found.append(line.source)

    monkeypatch.setattr(direct.StraightLine, "__init__", written)
    return found


def renamed(text):
    """Functions by their first use; equal numbers are one constant in one text, and in another not."""
    names = {}
    text = re.sub(r"\bc\d+\b", "c", text)
    return re.sub(r"\bf\d+\b", lambda found: names.setdefault(found[0], f"f_{len(names)}"), text)


def test_layers_that_a_program_marks(monkeypatch):
    class Marked(Layer):
        @torch.compiler.nested_compile_region
        def forward(self, x):
            return super().forward(x)

    class Marking(Stack):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Marked() for _ in self.layers])

    assert same(*stack(Marking), monkeypatch) > 0


@pytest.mark.parametrize("family", ["Llama", "GPTNeoX"])
def test_deep_models(family, device, lines, monkeypatch):
    """The text of the forward, whose inputs are in order, is that of all layers."""
    torch.manual_seed(0)
    model, ids = tiny(family, num_hidden_layers=LAYERS).train(), words(2, 12)
    assert same(model, {"input_ids": ids, "labels": ids}, monkeypatch, device) >= LAYERS - HEAD - TAIL - 2
    ours, theirs = (renamed(text).splitlines() for text in (lines[0], lines[2]))
    assert len(lines) == 4 and (device != "cpu" or ours[1:-1] == theirs[1:-1])


def test_dropouts_have_seeds_of_their_own(device, monkeypatch):
    assert same(*stack(dropout=0.5), monkeypatch, device) > 0


def test_lengths_are_symbols(monkeypatch):
    assert same(*stack(), monkeypatch, dynamic=True) > 0


def test_checkpointed_layers(device, monkeypatch):
    class Checkpointed(Stack):
        def forward(self, x):
            for layer in self.layers:
                x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
            return x.square().sum()

    assert same(*stack(Checkpointed), monkeypatch, device) > 0


def test_two_kinds_of_layers_in_turns(monkeypatch):
    class Turns(Stack):
        def between(self, x, place):
            return x.tanh() if place % 2 else x.sigmoid()

    assert same(*stack(Turns, layers=2 * LAYERS), monkeypatch) > 0


class Choosing(Stack):
    """Of the gradient of a division its forward makes a quotient, which is small."""

    def forward(self, x):
        for layer in self.layers:
            chosen, places = layer(x).softmax(-1).topk(4)
            chosen /= chosen.sum(-1, keepdim=True)
            x = x + layer(torch.zeros_like(x).scatter(-1, places, chosen))
        return x.square().sum()


def test_what_a_forward_makes_for_its_backward_is_a_layers(monkeypatch):
    assert same(*stack(Choosing), monkeypatch) > 0


def test_without_gradients(monkeypatch):
    model, batch = stack()
    expected = model(**batch)
    before = cermet.counters()["repeated_layers"]
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="cermet")(**batch), expected)
    assert cermet.counters()["repeated_layers"] > before


def test_windows_write_what_others_gave(monkeypatch):
    assert same(*stack(Adding), monkeypatch) > 0


def test_windows_write_what_they_have_made(monkeypatch):
    class Writing(Stack):
        def between(self, x, place):
            made = torch.zeros_like(x)
            made[:, 1:] = x[:, :-1]
            return made + x

    assert same(*stack(Writing), monkeypatch) > 0


def test_frozen_layers_are_no_others_neighbours(monkeypatch):
    model, batch = stack(layers=2 * LAYERS)
    model.layers[:LAYERS].requires_grad_(False)
    assert 0 < same(model, batch, monkeypatch) <= 2 * (LAYERS - HEAD - TAIL)


class Translating(nn.Module):
    """An encoder, and a decoder all layers of which read what it gives; the program has that, too."""

    def __init__(self, encoding=LAYERS, decoding=LAYERS, **settings):
        super().__init__()
        self.encoder = nn.ModuleList([Layer(**settings) for _ in range(encoding)])
        self.decoder = nn.ModuleList([Layer(**settings) for _ in range(decoding)])
        self.keys = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(decoding)])
        self.values = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(decoding)])

    def forward(self, x):
        y = x * 2
        for layer in self.encoder:
            y = layer(y)
        y = nn.functional.layer_norm(y, (WIDTH,))
        for layer, key, value in zip(self.decoder, self.keys, self.values):
            x = layer(x) + nn.functional.scaled_dot_product_attention(x, key(y), value(y))
        return x, y


MOST_OF_ONE = LAYERS - HEAD - TAIL


def translated(given):
    x, y = given
    return x.square().sum() + y.sin().sum()


@pytest.mark.parametrize("dropout, dynamic", [(0.3, None), (0.0, True)])
def test_an_encoder_and_a_decoder(dropout, dynamic, device, monkeypatch):
    model, batch = stack(Translating, dropout=dropout)
    repeated = same(model, batch, monkeypatch, device, objective=translated, dynamic=dynamic)
    assert repeated > MOST_OF_ONE


def test_an_encoder_that_wants_no_gradients(monkeypatch):
    model, batch = stack(Translating)
    model.encoder.requires_grad_(False)
    repeated = same(model, batch, monkeypatch, objective=lambda given: given[0].square().sum())
    assert repeated > MOST_OF_ONE


def test_without_gradients_an_encoder_and_a_decoder():
    model, batch = stack(Translating)
    expected = model(**batch)
    before = cermet.counters()["repeated_layers"]
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="cermet")(**batch), expected)
    assert cermet.counters()["repeated_layers"] > before + MOST_OF_ONE


class Returning(Stack):
    """The values of all layers go into the loss."""

    def forward(self, x):
        values = [x]
        for layer in self.layers:
            values.append(layer(values[-1]))
        return torch.stack(values).square().sum()


class Skipping(Stack):
    """The last layers read the first ones', last ones first."""

    def forward(self, x):
        values = []
        for place, layer in enumerate(self.layers):
            if place >= len(self.layers) // 2:
                x = x + values[len(self.layers) - 1 - place]
            x = layer(x)
            values.append(x)
        return x.square().sum()


class Remembering(Stack):
    """A layer writes what another reads."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.register_buffer("memory", torch.zeros(WIDTH))

    def between(self, x, place):
        self.memory.add_(x.detach().mean((0, 1)))
        return x + self.memory


class Adding(Stack):
    """In place, to what the layer before gave."""

    def between(self, x, place):
        return x.add_(1)


class Growing(Stack):
    """A whole number differs from layer to layer."""

    def between(self, x, place):
        return x.roll(place, 0)


class Crossing(Stack):
    """A layer reads the bias of the one that is three before it."""

    def between(self, x, place):
        return x + self.layers[max(place - 3, 0)].down.bias


@pytest.mark.parametrize("kind", [Returning, Skipping, Remembering, Growing, Crossing])
def test_what_is_not_as_independent_as_layers_is_left_alone(kind, monkeypatch):
    assert same(*stack(kind), monkeypatch) == 0


def test_one_layer_for_all(monkeypatch):
    class Shared(Stack):
        def forward(self, x):
            for _ in self.layers:
                x = self.layers[0](x)
            return x.square().sum()

    same(*stack(Shared), monkeypatch)


def test_two_layers_of_one_weight(monkeypatch):
    model, batch = stack(layers=2 * LAYERS)
    model.layers[LAYERS].up.weight = model.layers[3].up.weight
    same(model, batch, monkeypatch)


def test_few_layers_are_compiled_each(monkeypatch):
    assert same(*stack(layers=HEAD + TAIL + 1), monkeypatch) == 0


def irregular(*arguments):
    raise Irregular("not today")


def test_what_a_graph_became_may_be_irregular(monkeypatch):
    """And is found by who tries the same again."""
    monkeypatch.setattr(lengthening.Lengthening, "whole", irregular)
    model, batch = stack()
    assert same(model, batch, monkeypatch) == 0
    batch["x"] = torch.randn(3, 7, WIDTH)  # of no other test
    expected = model(**batch)
    for hits in (0, 1):
        torch._dynamo.reset()
        before = torchs["aot_autograd"]["autograd_cache_hit"]
        torch.testing.assert_close(torch.compile(model, backend="cermet")(**batch), expected)
        assert torchs["aot_autograd"]["autograd_cache_hit"] - before == hits


def test_no_graph_is_held(monkeypatch):
    made = []
    real = Repeated.__init__
    monkeypatch.setattr(Repeated, "__init__", lambda self, short: (made.append(self), real(self, short))[1])
    assert same(*stack(), monkeypatch) > 0
    assert len(made) == 1 and not any(vars(made[0]).values())


def test_a_cache_has_all_layers():
    model, batch = stack()
    batch["x"] = torch.randn(7, 3, WIDTH)  # of no other test
    expected = model(**batch)
    for hits in (0, 1):
        torch._dynamo.reset()
        before = torchs["aot_autograd"]["autograd_cache_hit"]
        loss = torch.compile(model, backend="cermet")(**batch)
        torch.testing.assert_close(loss, expected)
        assert torchs["aot_autograd"]["autograd_cache_hit"] - before == hits


def test_compiled_autograd_takes_the_whole_backward():
    """Also of what comes from torch's cache."""
    model, batch = stack()
    batch["x"] = torch.randn(2, 9, WIDTH)
    model(**batch).backward()
    expected = [each.grad for each in model.parameters()]
    for _ in range(2):
        torch._dynamo.reset()
        model.zero_grad()
        before = cermet.counters()["repeated_layers"]
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend="cermet")):
            torch.compile(model, backend="cermet")(**batch).backward()
        assert cermet.counters()["repeated_layers"] > before
        for parameter, gradient in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad, gradient)


@pytest.mark.parametrize("place", [(lengthening.Lengthening, "whole"), (direct, "shorten")])
def test_a_failure_of_ours_compiles_each_layer(place, monkeypatch):
    def fails(*arguments):
        raise RuntimeError("broken")

    monkeypatch.setattr(*place, fails)
    model, batch = stack()
    with pytest.raises(Exception, match="broken"):
        run(model, batch)
    monkeypatch.setenv("CERMET_STRICT", "0")
    assert same(model, batch, monkeypatch) == 0


def test_inputs_of_windows_have_names_that_no_other_has():
    """What a window gives may be called as another window's would be, with the number of its place."""
    short = torch.fx.Graph()
    places = [short.placeholder(name) for name in ("launch", "launch_3")]
    whole = ((1, None), *((0, Rung("lane", place)) for place in range(5)))
    graph = torch.fx.Graph()
    made = lengthening.made_inputs(graph, places, Ports((Rung("lane", 2), None), whole))
    assert len({node.target for node in made.values()}) == len(whole)
    graph.output(tuple(made.values()))
    assert torch.fx.GraphModule({}, graph)(*range(6)) == tuple(range(6))
