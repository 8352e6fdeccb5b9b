"""Values that all layers read and that want a gradient: each layer adds its part to the sum, as its neighbours do, and
so they are compiled once."""

from __future__ import annotations

import pytest
import torch
from repeating import LAYERS, WIDTH, Stack
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint
from truth import assert_gradients_are_near

import cermet
from cermet.importing.importer import import_graph
from cermet.ops import stand_ins
from cermet.remainder import direct, tiles
from cermet.repetition.lanes import HEAD, TAIL

MOST = LAYERS - HEAD - TAIL
HEADS, PLACES = 2, 64


class Summing(Stack):
    """All layers add what the first one gives."""

    def forward(self, x):
        first = self.layers[0](x)
        for layer in self.layers:
            x = layer(x) + first
        return x


class Spread(Stack):
    """All layers add one row of what the first one gives: each part is a sum itself."""

    def forward(self, x):
        first = self.layers[0](x)[:1].sin()
        for layer in self.layers:
            x = layer(x) + first
        return x


def attending(layer, x, bias):
    heads = layer.norm(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
    return layer(x + scaled_dot_product_attention(heads, heads, heads, bias).transpose(1, 2).flatten(2))


class Biased(Stack):
    """All layers attend with one bias, which is made of a table."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.table = nn.Embedding(PLACES, HEADS)

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device)
        apart = (places - places[:, None]).abs() % PLACES
        bias = self.table(apart).permute(2, 0, 1)[None].contiguous()
        for layer in self.layers:
            x = attending(layer, x, bias)
        return x


class Both(Stack):
    """Layers read two values, one of them by a linear layer too, and so does what comes behind them."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.shift, self.inner = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        shift, factor = self.shift(x).sin(), self.inner(x).sigmoid()
        for layer in self.layers:
            x = (layer(x) + shift) * factor + self.inner(shift)
        return x + shift


class Alternating(Stack):
    """Two layers in turns: all windows read their weights."""

    def forward(self, x):
        for place in range(3 * len(self.layers)):
            x = self.layers[place % 2](x)
        return x


class Learnt(Stack):
    """All layers attend with one parameter as their bias."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.bias = nn.Parameter(torch.randn(1, HEADS, PLACES, PLACES))

    def forward(self, x):
        for layer in self.layers:
            x = attending(layer, x, self.bias)
        return x


class Casting(Stack):
    """The gradient is a sum of casts."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.first = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        first = self.first(x).exp()
        for layer in self.layers:
            x = layer(x) + (first.double() * layer.down.bias).to(x.dtype)
        return x


class Parts(Stack):
    """All layers read both parts of one value."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.first = nn.Linear(WIDTH, 2 * WIDTH)

    def forward(self, x):
        factor, shift = self.first(x).chunk(2, -1)
        for layer in self.layers:
            x = layer(x) * factor + shift
        return x


class Writing(Summing):
    """All layers write the value that they read, and what comes behind them reads it."""

    def forward(self, x):
        first = self.layers[0](x)
        for layer in self.layers:
            first.add_(0.25)
            x = layer(x) + first
        return x * first.sin()


class Measuring(Summing):
    """What all layers begin with asks for no gradients, and in the first one something else as well."""

    def forward(self, x):
        first = self.layers[0](x)
        with torch.no_grad():
            x = x * 2
            small = x.sin()
            size = x.abs().mean()
        for layer in self.layers:
            x = layer(x) / (1 + size) + first
            with torch.no_grad():
                size = x.abs().mean()
        return x * small


class Checkpointed(Summing):
    """What a layer gives is made again for its gradient."""

    def forward(self, x):
        first = self.layers[0](x)
        for layer in self.layers:
            x = checkpoint(lambda x, layer=layer: layer(x) * first, x, use_reentrant=False)
        return x


def near(kind, device, dtype=torch.float32, **compiled):
    """How many layers were put back, where results and gradients are as near to float64 as eager's."""
    torch.manual_seed(0)
    model, x = kind().to(device, dtype), torch.randn(3, PLACES, WIDTH, device=device, dtype=dtype)
    before = cermet.counters()["repeated_layers"]
    with torch._functorch.config.patch(enable_autograd_cache=False):
        call = torch.compile(model, backend="cermet", **compiled)
        assert_gradients_are_near(model, call, [x], torch.randn_like(x))
    return cermet.counters()["repeated_layers"] - before


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("kind", [Summing, Biased, Both, Casting, Learnt, Alternating])
def test_each_layer_adds_its_part(kind, dynamic, device):
    assert near(kind, device, dynamic=dynamic) >= MOST - 2


@pytest.mark.parametrize("kind", [Summing, Spread, Biased])
def test_in_half_precision(kind, device):
    assert near(kind, device, torch.bfloat16) >= MOST - 2


@pytest.mark.parametrize("kind", [Parts, Writing, Measuring, Checkpointed])
def test_what_nobody_can_hand_on_is_left_alone(kind, device):
    assert near(kind, device) == 0


def test_nothing_of_it_is_left_in_what_runs(monkeypatch):
    texts = []
    real = direct.StraightLine.__init__

    def written(line, graph, *arguments, **keywords):
        real(line, graph, *arguments, **keywords)
        texts.append([str(node.target) for node in graph.graph.nodes])

    monkeypatch.setattr(direct.StraightLine, "__init__", written)
    assert near(Summing, "cpu") > 0 and len(texts) == 2
    assert not [each for text in texts for each in text if "pass" in each or "added_to" in each or "stand_in" in each]


def chain(summed):
    """Three sums of rows, added to each other; the first two may be a gradient that was handed on."""
    graph = torch.fx.Graph()
    given = [graph.placeholder(f"given_{place}") for place in range(3)]
    terms = [graph.call_function(torch.ops.aten.sum.dim_IntList, (each, [0], True)) for each in given]
    first = graph.call_function(torch.ops.aten.add.Tensor, (terms[0], terms[1]))
    second = graph.call_function(torch.ops.aten.add.Tensor, (first, terms[2]))
    graph.output((second,))
    with FakeTensorMode():
        for node in (*given, *terms, first, second):
            node.meta["val"] = torch.empty(64 if node in given else 1, 64, dtype=torch.bfloat16)
    if summed:
        first.meta[stand_ins.SUMMED] = True
    return torch.fx.GraphModule(torch.nn.Module(), graph), first


def test_a_gradient_that_is_added_to_is_made_where_it_stands():
    """Whoever reads it reads memory: of a sum of sums no kernel reads all that it is made of."""
    module, first = chain(True)
    plain, ended = (import_graph(module, ends=lambda node: made and node is first) for made in (False, True))
    assert "made" not in plain.text and ended.text.count('cermet.opaque "made"') == 1
    names = [name for name, each in ended.definitions.items() if each.node is first]
    assert names == [first.name, f"{first.name}#made"]


@pytest.mark.parametrize("summed", [False, True])
def test_what_tiles_give_is_another_sum(summed):
    assert tiles.add_up(chain(summed)[0].graph) == (not summed)


def test_no_gradient_is_asked_for():
    torch.manual_seed(0)
    model, x = Summing(), torch.randn(3, PLACES, WIDTH)
    before = cermet.counters()["repeated_layers"]
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(model, backend="cermet")(x), model(x))
    assert cermet.counters()["repeated_layers"] > before
