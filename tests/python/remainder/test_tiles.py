"""Rows of checkpointed layers in tiles: less is held, numbers are as near to float64 as eager's, and what tiles would
not spare or would compute otherwise stays whole."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint
from truth import MEDIAN_SEEDS, assert_as_good_as_eager, assert_gradients_are_near, double, relative

import cermet
import plain_products
from cermet.loss import accumulation
from cermet.remainder import tiles
from cermet.targets import devices
from cermet.targets.target import Target

HIDDEN, WIDE, BATCH, LENGTH = 32, 96, 2, 256


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(tiles, "_ROWS", 64)
    monkeypatch.setattr(tiles, "_WORTH", 0.0)


class Gated(nn.Module):
    def __init__(self, bias=False) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(HIDDEN, eps=1e-6)
        self.gate, self.up = (nn.Linear(HIDDEN, WIDE, bias=bias) for _ in range(2))
        self.down = nn.Linear(WIDE, HIDDEN, bias=bias)

    def activate(self, x):
        return F.silu(self.gate(x)) * self.up(x)

    def forward(self, x):
        return x + self.down(self.activate(self.norm(x)))


class Biased(Gated):
    def __init__(self) -> None:
        super().__init__(bias=True)


class Packed(Gated):
    """Gate and what it gates are one layer's."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Linear(HIDDEN, 2 * WIDE, bias=False)

    def activate(self, x):
        gate, up = self.both(x).chunk(2, dim=-1)
        return F.gelu(gate, approximate="tanh") * up


class Plain(Gated):
    """Without a gate, and with a cast between."""

    def activate(self, x):
        return torch.relu(self.up(x).float()).square().to(x.dtype)


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx, cotangent):
        (x,) = ctx.saved_tensors
        return cotangent * (x.sigmoid() + x * x.sigmoid() * (1 - x.sigmoid()))


class Derived(Gated):
    """The gate by the program, in a call of several results: what reads them is in tiles."""

    def activate(self, x):
        return Swish.apply(self.gate(x)) * self.up(x)


class Adapted(Gated):
    """Frozen, with adapters in f32 of two of its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.requires_grad_(False)
        sizes = (8, HIDDEN), (WIDE, 8), (8, WIDE), (HIDDEN, 8)
        self.adapters = nn.ParameterList(torch.randn(size) * size[-1] ** -0.5 for size in sizes)

    def adapt(self, layer, x, down, up):
        y = layer(x)
        return (y + F.linear(F.linear(x.to(down.dtype), down), up) * 0.5).to(x.dtype)

    def forward(self, x):
        normed = self.norm(x)
        wide = F.silu(self.gate(normed)) * self.adapt(self.up, normed, *self.adapters[:2])
        return x + self.adapt(self.down, wide, *self.adapters[2:])


class Stack(nn.Module):
    def __init__(self, kind, layers=2, dtype=torch.bfloat16) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(kind() for _ in range(layers))
        for name, parameter in self.named_parameters():
            parameter.data = parameter.data.to(torch.float32 if "adapters" in name else dtype)

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


def given(dtype=torch.bfloat16, batch=BATCH, length=LENGTH):
    return torch.randn(batch, length, HIDDEN).to(dtype)


def compiled(module, dynamic=None, **options):
    torch._dynamo.reset()
    options = {"remainder": "aot", "strict": True} | options
    return torch.compile(module, backend="cermet", dynamic=dynamic, options=options)


def tiled(module, x, **options) -> int:
    """How many parts of a module's layers are in tiles."""
    before = cermet.counters()["tiled_parts"]
    compiled(module, **options)(x.clone().requires_grad_()).float().sum().backward()
    return cermet.counters()["tiled_parts"] - before


def made_since(before) -> tuple[int, int]:
    """How many graphs, and how many parts in tiles."""
    return tuple(cermet.counters()[name] - before[name] for name in ("graphs", "tiled_parts"))


@pytest.mark.parametrize(
    "kind, batch, length",
    [
        *((kind, BATCH, LENGTH) for kind in (Gated, Biased, Packed, Plain, Derived, Adapted)),
        *((Gated, batch, length) for batch, length in ((1, 4 * LENGTH), (1, 251), (5, 101))),
    ],
)
def test_numbers_are_as_near_to_float64_as_eagers(kind, batch, length):
    module, x = Stack(kind), given(batch=batch, length=length)
    assert_gradients_are_near(module, compiled(module), [x], torch.randn_like(x))
    assert tiled(module, x) == len(module.layers)


@pytest.mark.parametrize("kind, batch, varying", [(Packed, 1, [1]), (Biased, BATCH, [1]), (Adapted, 3, [0, 1])])
def test_lengths_that_vary_are_one_graph(kind, batch, varying):
    """Short ones, too, of which a tile has two rows."""
    module = Stack(kind)
    call, before = compiled(module), cermet.counters()

    def marked(x):
        for dimension in varying:
            torch._dynamo.mark_dynamic(x, dimension)
        return call(x)

    for length in (LENGTH, 77, 4 * LENGTH, 9):
        x = given(batch=batch, length=length)
        assert_gradients_are_near(module, marked, [x], torch.randn_like(x))
    assert made_since(before) == (1, len(module.layers))


def test_a_length_of_fewer_rows_than_tiles_is_a_graph_of_its_own():
    module = Stack(Gated)
    call, before = compiled(module, dynamic=True), cermet.counters()
    for length in (LENGTH, 3, 2, 5):
        x = given(batch=1, length=length)
        assert_gradients_are_near(module, call, [x], torch.randn_like(x))
    assert made_since(before) == (2, len(module.layers))


def test_a_gradient_that_tiles_give_to_is_rounded_once():
    """By the rule for numbers, with all seeds that it needs; what is rounded for each tile fails it."""
    module, x = Stack(Gated, layers=1), given()
    call, errors = compiled(module), ({}, {})
    for seed in range(MEDIAN_SEEDS):
        torch.manual_seed(seed)
        x, cotangent = given(), given()
        wide = double(module)
        wide(x.double()).backward(cotangent.double())
        for found, which in zip(errors, (call, module)):
            module.zero_grad()
            which(x).backward(cotangent)
            for name, parameter in module.named_parameters():
                exact = wide.get_parameter(name).grad
                found.setdefault(name, []).append(relative(parameter.grad, exact))
    assert_as_good_as_eager(*errors, torch.bfloat16)


def test_less_is_held():
    plain_products.needed()
    module, x = Stack(Gated, dtype=torch.float32), given(torch.float32, length=4 * LENGTH).requires_grad_()
    small = cermet.memory(module, x, measure=True)
    whole = cermet.memory(module, x, options={"memory": "fast"})
    assert small.planned == pytest.approx(small.measured, rel=0.03)
    wide = BATCH * 4 * LENGTH * WIDE * 4
    assert whole.planned - small.planned > wide


# --- What stays whole ------------------------------------------------------------------------------------------------


class Dropping(Gated):
    def activate(self, x):
        return F.dropout(super().activate(x), 0.1)


class Scaled(Gated):
    """By learned numbers, to whose gradient each tile would give a rounded one."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(WIDE))

    def activate(self, x):
        return super().activate(x) * self.scale


class Mixing(Gated):
    """Along a row's places."""

    def activate(self, x):
        return super().activate(x).cumsum(1)


class Writing(Gated):
    """Into what it has read before and reads again."""

    def activate(self, x):
        more = torch.ones(BATCH, LENGTH, WIDE, dtype=x.dtype)
        gate = F.silu(self.gate(x)) + more
        more.mul_(2)
        return (gate + more) * self.up(x)


class Looking(Gated):
    """A layer that gives what is wide, too."""

    def forward(self, x):
        wide = self.activate(self.norm(x))
        return x + self.down(wide), wide


class Looked(Stack):
    def forward(self, x):
        x, wide = checkpoint(self.layers[0], x, use_reentrant=False)
        return x + wide[..., :HIDDEN]


@pytest.mark.parametrize("kind", [Scaled, Mixing, Writing])
def test_what_is_not_made_row_by_row_or_gives_to_others_is_whole(kind):
    assert tiled(Stack(kind), given()) == 0


def test_a_dropout_ends_what_is_in_tiles():
    module, x = Stack(Dropping), given()
    assert tiled(module, x) == 0


def test_what_is_read_outside_of_a_layer_is_whole():
    assert tiled(Looked(Looking, layers=1), given()) == 0


def test_what_is_not_checkpointed_is_whole():
    class Straight(Stack):
        def forward(self, x):
            return self.layers[0](x)

    assert tiled(Straight(Gated), given()) == 0


def test_few_rows_are_whole():
    assert tiled(Stack(Gated), given(length=32)) == 0


def test_fast_is_whole():
    assert tiled(Stack(Gated), given(), memory="fast") == 0


def test_gradients_that_would_be_larger_in_f32_than_what_is_spared_leave_it_whole(monkeypatch):
    monkeypatch.setattr(tiles, "_ROWS", 16)
    assert tiled(Stack(Gated), given(length=64)) == 0
    assert tiled(Stack(Gated, dtype=torch.float32), given(torch.float32, length=64)) == 2


def test_little_of_what_a_graph_is_given_leaves_it_whole(monkeypatch):
    monkeypatch.setattr(tiles, "_WORTH", 100.0)
    assert tiled(Stack(Gated), given()) == 0


def test_where_weights_are_frozen_the_last_layers_alone_are_in_tiles():
    """Each layer before the last holds one value less, and nothing grows: where as much is gone as tiles spare, all
    fits that fits in the last layers' tiles."""
    module = Stack(Adapted, layers=8)
    spared = 1.5 * WIDE * BATCH * LENGTH * 2
    value = HIDDEN * BATCH * LENGTH * 2 - 4 * sum(each.numel() for each in module.layers[0].adapters)
    assert 1 < tiled(module, given()) == -(-spared // value) < 8


# --- Sums of what tiles give -----------------------------------------------------------------------------------------


def summed(function, *inputs) -> tuple[int, torch.fx.GraphModule]:
    module = make_fx(function, tracing_mode="fake")(*inputs)
    times = tiles.add_up(module.graph)
    module.graph.lint()
    module.recompile()
    return times, module


def of_tiles(left, right, other):
    pieces = zip(torch.split(left, 64), torch.split(right, 64))
    first, *rest = (a.t() @ b for a, b in pieces)
    for each in rest:
        first = first + each
    return first + other


def test_what_else_is_added_stays_so():
    left, right, other = torch.randn(256, 8).half(), torch.randn(256, 16).half(), torch.randn(8, 16).half()
    times, module = summed(of_tiles, left, right, other)
    assert times == 1
    expected = (left.t().float() @ right.float()).half() + other
    torch.testing.assert_close(module(left, right, other), expected, rtol=1e-3, atol=1e-3)


def test_products_of_other_rows_are_summed_as_they_are():
    left, right, other = (torch.randn(64, 64).half() for _ in range(3))
    assert summed(lambda a, b, c: a.t() @ b + c.t() @ b, left, right, other)[0] == 0


def test_a_product_that_others_read_stays():
    def function(left, right):
        (a, b), (c, d) = torch.split(left, 64), torch.split(right, 64)
        one = a.t() @ c
        return one + b.t() @ d, one

    assert summed(function, torch.randn(128, 8).half(), torch.randn(128, 16).half())[0] == 0


def test_a_device_without_numbers_adds_nothing_in_f32():
    assert not accumulation.adds_in_f32(torch.device("cpu"), torch.bfloat16)


def test_whether_a_device_adds_in_f32_is_tried_with_real_tensors(monkeypatch):
    """As a joint graph is cut, torch's fake mode is on."""
    given = []
    monkeypatch.setattr(torch, "addmm", lambda *tensors, out, **_: given.extend([*tensors, out]))
    with FakeTensorMode():
        accumulation._tried.__wrapped__(torch.device("cpu"), torch.bfloat16)
    assert len(given) == 4 and {type(each) for each in given} == {torch.Tensor}


def test_of_a_target_that_is_captured_nothing_is_tried(monkeypatch):
    monkeypatch.setattr(accumulation, "_tried", lambda *_: pytest.fail("there is no such device"))
    with devices.capturing(Target.of("sm_90")):
        assert accumulation.adds_in_f32(torch.device("cuda"), torch.bfloat16)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device that this torch can use")
def test_fake_tensors_say_of_a_gpu_what_real_ones_do():
    device = torch.device("cuda")
    accumulation._tried.cache_clear()
    with FakeTensorMode():
        found = accumulation.adds_in_f32(device, torch.bfloat16)
    accumulation._tried.cache_clear()
    assert found == accumulation.adds_in_f32(device, torch.bfloat16)
