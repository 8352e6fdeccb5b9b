"""Layers that Dynamo is spared, in models and of kinds that do more than call each other."""

from __future__ import annotations

import contextlib
import copy
import random

import pytest
import torch
from torch import nn

from layered import LAYERS, SPARED, WIDTH, Layer, Stack, as_eager, compiled, spared, stack, stepped


class Placed(Stack):
    def called(self, layer, x, place):
        return layer(x, place // 4)


class Crossed(Stack):
    """Other values are what a layer is given."""

    def forward(self, x):
        first, x = x * self.start, x * 2 * self.start
        for place, layer in enumerate(self.layers):
            x = layer(x, None, x if place < 4 else first * place if place < 6 else first)
        return x.square().sum()


class Halting(Stack):
    def called(self, layer, x, place):
        with torch.no_grad() if place in (2, 5) else contextlib.nullcontext():
            return layer(x)


class Cast(Stack):
    def called(self, layer, x, place):
        with torch.autocast("cpu", torch.bfloat16, enabled=place >= 4):
            return layer(x)


class Turned(Stack):
    """What layers read is written between them, as is what they hold."""

    def called(self, layer, x, place):
        if place == 3:
            self.shared.scale = 2.0
        if place == 4:
            self.shared.names["scale"] = 3.0
        if place == 5:
            layer.negates = True
        return layer(x)

    def forward(self, x):
        self.shared.scale, self.shared.names["scale"], self.layers[5].negates = 1.0, 2.0, False
        return super().forward(x)


class Noted(Stack):
    """The model writes into what layers hold."""

    def called(self, layer, x, place):
        layer.seen.append(place)
        layer.offset.mul_(2)
        return layer(x)


class Owning(Stack):
    """A layer is given what it has; a later one, what the first has."""

    def called(self, layer, x, place):
        layer.offset.mul_(place + 1)
        return layer(x, None, (layer if place < 4 else self.layers[0]).offset)


class Half(Stack):
    def called(self, layer, x, place):
        return layer(x.float().double() if place == 4 else x.t().contiguous().t() if place == 5 else x)


class Detached(Stack):
    def called(self, layer, x, place):
        return layer(x.detach() if place == 3 else x)


class Named(Stack):
    def called(self, layer, x, place):
        return layer(x=x, other=None) if place % 2 else layer(x, other=None)


class Sliced(Stack):
    def forward(self, x):
        x = x * self.start
        for layer in self.layers[1:]:
            x = layer(x)
        for layer in reversed(self.layers):
            x = layer(x)
        return x.square().sum()


class Handed(Layer):
    def forward(self, x, first, second=None):
        return super().forward(x) * first["times"]


class Handing(Stack):
    """It hands layers what was there before, and what some of it holds nobody has looked at."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Handed(self.shared) for _ in range(LAYERS)])
        self.first, self.second = {"times": 0.5}, torch.randn(3)

    def called(self, layer, x, place):
        return layer(x, self.first, second=self.second)


@pytest.mark.parametrize(
    "kind, least",
    [(Placed, 2), (Handing, SPARED), (Crossed, 1), (Halting, 1), (Cast, 2), (Turned, 0), (Noted, 0), (Owning, 0),
     (Half, 3), (Detached, 3), (Named, 3), (Sliced, SPARED)],
)  # fmt: skip
def test_what_a_model_does_with_its_layers(kind, least):
    model, x = stack(kind)
    call = compiled(model)
    twin = copy.deepcopy(model)
    for rows in (3, 4):
        given = torch.randn(rows, WIDTH, dtype=x.dtype)
        number, ours = spared(stepped, call, model, given)
        error = 2e-2 if kind is Cast else None  # what autocast rounds to bf16 lies between kernels in eager alone
        torch.testing.assert_close(ours, stepped(twin, twin, given), rtol=error, atol=error)
        assert number >= least
    assert [layer.seen for layer in model.layers] == [layer.seen for layer in twin.layers]
    assert vars(model.shared) == vars(twin.shared)
    torch.testing.assert_close([layer.offset for layer in model.layers], [layer.offset for layer in twin.layers])


class Told(Layer):
    def forward(self, pair, named):
        return super().forward(pair[0]) * named["times"] + pair[1] * named["other"]


class Telling(Stack):
    """It hands each layer a list and a dict that it made, of some layers others."""

    def called(self, layer, x, place):
        return layer([x, x.sin()], {"times": 1.0 if place < 4 else 2.0, "other": x * 0.5})


class Taking(Told):
    def forward(self, pair, named):
        pair.append(pair[0] * 2)
        return super().forward(pair, named)


class Popping(Told):
    def forward(self, pair, named):
        return super().forward(pair, {"times": named.pop("times"), **named})


class Returning(Told):
    def forward(self, pair, named):
        return super().forward(pair, named), pair


class Comparing(Layer):
    def forward(self, one, other):
        return super().forward(one[0]) * (2 if one is other else 3)


class Doubling(Stack):
    """Some layers are given one list twice, others two."""

    def called(self, layer, x, place):
        pair = [x, x]
        return layer(pair, pair if place < 4 else [x, x])


class Watching(Telling):
    def called(self, layer, x, place):
        pair, named = [x, x.sin()], {"times": 1.0, "other": x * 0.5}
        x = layer(pair, named)
        if isinstance(x, tuple):
            x[1].append(x[0])
            x = x[0]
        return x * len(pair) + len(named)


@pytest.mark.parametrize(
    "model, kind, least",
    [(Telling, Told, 3), (Doubling, Comparing, 2), (Watching, Told, SPARED), (Watching, Taking, 0),
     (Watching, Popping, 0), (Watching, Returning, 0)],
)  # fmt: skip
def test_lists_that_layers_are_given(model, kind, least):
    model, x = stack(model)
    model.layers = nn.ModuleList([kind(model.shared) for _ in range(LAYERS)]).double()
    number = as_eager(compiled(model), model, x)
    assert number >= least and bool(number) == bool(least)


class Biased(Layer):
    def forward(self, x, table):
        return super().forward(x) + table["bias"].sin()


class Changing(Stack):
    """What all layers read comes to require a gradient on the way."""

    def called(self, layer, x, place):
        if place == 4:
            self.table["bias"].add_(self.start)
        return layer(x, self.table)


def test_what_layers_read_changes():
    model, x = stack(Changing)
    model.layers = nn.ModuleList([Biased(model.shared) for _ in range(LAYERS)]).double()
    model.table = {"bias": torch.zeros(WIDTH, dtype=x.dtype)}
    twin = copy.deepcopy(model)
    number, ours = spared(stepped, compiled(model), model, x)
    torch.testing.assert_close(ours, stepped(twin, twin, x))
    assert number == 3


class Writing(Layer):
    def forward(self, x):
        self.seen.append(len(self.seen))
        self.shared.scale = self.shared.scale + 0.5
        return super().forward(x)


class Logging(Layer):
    """It writes into a list that the model made and put where layers find it."""

    def forward(self, x):
        self.shared.log.append(1)
        return super().forward(x) * len(self.shared.log)


class Reading(Layer):
    """It reads a dict into which the model writes."""

    def forward(self, x):
        return super().forward(x) * len(self.shared.names)


class Drawing(Layer):
    def forward(self, x):
        return super().forward(x) * random.randint(2, 9)


class Hooking(Layer):
    def forward(self, x):
        self.up.weight.register_hook(lambda gradient: gradient * 2)
        return super().forward(x)


class Touching(Layer):
    """What it is given requires a gradient afterwards."""

    def forward(self, x):
        return super().forward(x.mul_(self.down.bias))


class Storing(Layer):
    def forward(self, x):
        y = torch.zeros_like(x)
        y[1:] = x[:-1]
        return super().forward(x) + y.add_(1)


class Normed(Layer):
    def __init__(self, shared):
        super().__init__(shared)
        self.norm = nn.BatchNorm1d(WIDTH)


class Quiet(Layer):
    """Parts of it have no gradient, or another precision."""

    def forward(self, x):
        with torch.no_grad():
            scale = x.abs().amax()
        with torch.autocast("cpu", torch.bfloat16):
            y = self.up.weight.float() @ self.down.weight.float()
        return super().forward(x / scale) + y.double().mean()


class Turning(Layer):
    """Its values are complex numbers for a while."""

    def forward(self, x):
        factor = torch.complex(self.norm.weight[:4], self.norm.bias[:4])
        turned = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * factor
        return super().forward(torch.view_as_real(turned).flatten(-2))


class Sized(Layer):
    def forward(self, x, size=None):
        return super().forward(x) * size[0] if size is not None else self.forward(x, x.shape)


class Listing(Layer):
    def forward(self, x):
        return [super().forward(x), x + 1]


class Several(Layer):
    def forward(self, x):
        return super().forward(x), (None, x + 1)


class Calling(Stack):
    def forward(self, x):
        self.shared.log = []
        return super().forward(x)

    def called(self, layer, x, place):
        if isinstance(layer, Reading):
            self.shared.names[f"{place % 3}"] = 1.0
        given = x.detach().clone() if isinstance(layer, Touching) else x
        out = layer(given, given.shape) if isinstance(layer, Sized) else layer(given)
        if given.requires_grad:
            if isinstance(out, list):
                out.append(out.pop())
                out = out[0] * len(out) + out[1]
            out = out if torch.is_tensor(out) else out[0] + out[1][1]
            return out * 2
        return out


@pytest.mark.parametrize(
    "kind, least",
    [(Writing, 0), (Logging, 0), (Reading, 0), (Drawing, 0), (Hooking, 0), (Touching, 0), (Storing, 2), (Normed, 2),
     (Several, 2), (Listing, 2), (Quiet, 2), (Sized, 2), (Turning, 2)],
)  # fmt: skip
def test_what_layers_do(kind, least):
    model, x = stack(Calling)
    model.layers = nn.ModuleList([kind(model.shared) for _ in range(LAYERS)]).double()
    twin = copy.deepcopy(model)
    random.seed(4)
    number, ours = spared(stepped, compiled(model), model, x)
    random.seed(4)
    torch.testing.assert_close(ours, stepped(twin, twin, x))
    torch.testing.assert_close(model.state_dict(), twin.state_dict())
    assert [layer.seen for layer in model.layers] == [layer.seen for layer in twin.layers]
    assert vars(model.shared) == vars(twin.shared)
    assert number >= least
