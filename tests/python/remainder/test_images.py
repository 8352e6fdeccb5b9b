"""Images lie in rows of channels where convolutions want them so, and programs see nothing of it."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from test_clusters_behind_autograd import called
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from truth import Float64, relative, spacing

import cermet
from cermet.ops import regions
from cermet.remainder.aten import images, laying, rows

OPTIONS = {"remainder": "aot", "strict": True}
_aten = torch.ops.aten
ROWS, PLANES = torch.channels_last, torch.contiguous_format


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    monkeypatch.setattr(images, "_DEVICES", {"cpu", "cuda"})


class Block(nn.Module):
    """Bottlenecks as vision has them, with a gate of numbers for each channel."""

    def __init__(self, channels, window, groups=1):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, window, padding=window // 2, groups=groups, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(channels), nn.BatchNorm2d(2 * channels)])
        self.wide, self.back = nn.Conv2d(channels, 2 * channels, 1), nn.Conv2d(2 * channels, channels, 1)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, channels, 1), nn.Hardsigmoid())

    def forward(self, x):
        y = F.relu6(self.norms[0](self.first(x)))
        y = self.back(F.silu(self.norms[1](self.wide(y))))
        return x + y * self.gate(y)


class Vision(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, channels, 7, 2, 3), nn.BatchNorm2d(channels)
        self.blocks = nn.Sequential(Block(channels, 3), Block(channels, 5, channels), Block(channels, 3, 4))
        self.groups, self.up = nn.GroupNorm(4, channels), nn.ConvTranspose2d(channels, channels, 2, 2)
        self.both = nn.Conv2d(2 * channels, channels, 3, padding=1)
        self.tokens, self.head = nn.LayerNorm(channels), nn.Linear(channels, 5)

    def forward(self, x):
        x = self.blocks(F.max_pool2d(torch.relu(self.norm(self.stem(x))), 3, 2, 1))
        y = self.up(self.groups(F.avg_pool2d(x, 2)))
        x = F.pad(self.both(torch.cat([x, y], 1)), (1, 0, 0, 1))
        return self.head(self.tokens(x.flatten(2).transpose(1, 2)).mean(1))


def step(model, call, x, autocast=False):
    """Results, gradients, and what the model holds afterwards."""
    x = x.clone().requires_grad_()
    model.zero_grad()
    with torch.autocast(x.device.type, torch.bfloat16, enabled=autocast):
        y = call(x)
    y.square().sum().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    return {"y": y.detach(), "x": x.grad, **gradients, **dict(model.named_buffers())}


@pytest.mark.parametrize("memory", [PLANES, ROWS], ids=["planes", "rows"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, None], ids=["bf16", "f32", "autocast"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
def test_a_vision_model(training, dtype, memory, device, ran):
    """Means of errors over a few steps: a norm of few numbers makes much of little."""
    torch.manual_seed(0)
    model = Vision().to(device, dtype or torch.float32).to(memory_format=memory).train(training)
    eager, true = copy.deepcopy(model), copy.deepcopy(model).double()
    call = torch.compile(model, backend="cermet", options=OPTIONS)
    before = cermet.counters()["fallbacks"]
    errors = {}
    for _ in range(4):
        x = torch.randn(4, 3, 64, 96, dtype=dtype, device=device).to(memory_format=memory)
        with Float64():
            truth = step(true, true, x.double())
        found = [step(model, call, x, dtype is None), step(eager, eager, x, dtype is None)]
        for name, value in found[0].items():
            theirs = found[1][name]
            assert (value.dtype, value.stride()) == (theirs.dtype, theirs.stride()), name
            if not value.is_floating_point():
                assert torch.equal(value, theirs), name
            elif not training or "bias" not in name:  # a bias before a norm of the batch has no gradient
                of = errors.setdefault(name, [0.0, 0.0])
                for at, each in enumerate((value, theirs)):
                    of[at] += relative(each, truth[name])
    eps = max(torch.finfo(dtype or torch.bfloat16).eps, 1e-6)
    far = {name: pair for name, pair in errors.items() if pair[0] > 1.6 * pair[1] + eps}
    assert not far, far
    assert cermet.counters()["fallbacks"] == before and len(ran) == 2
    are_planes = memory is PLANES and dtype == torch.float32
    assert any("batch_norm" in name for graph in ran for name in called(graph)) == are_planes


def rewritten(function, given, expected):
    """The module of a graph in which so many convolutions are given rows, and which gives what the function does."""
    module = make_fx(function, tracing_mode="fake")(*given)
    assert rows.lay(module.graph, set()) == expected
    module.graph.lint()
    module.recompile()
    pairs = [value if isinstance(value, (tuple, list)) else (value,) for value in (module(*given), function(*given))]
    for mine, theirs in zip(*pairs, strict=True):
        assert (mine.dtype, mine.stride()) == (theirs.dtype, theirs.stride())
        torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=2e-2)
    return module


def copies(module):
    return sum(node.target is _aten.clone.default for node in module.graph.nodes)


def operands(dtype=torch.bfloat16, memory=PLANES, groups=1, batch=2):
    torch.manual_seed(0)
    x = torch.randn(batch, 16, 12, 10).to(dtype).to(memory_format=memory)
    weight = (torch.randn(16, 16 // groups, 3, 3) / 12).to(dtype).to(memory_format=memory)
    return x, weight


def convolved(x, weight, groups=1):
    return _aten.convolution(x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], groups)


def twice(between):
    """Between two convolutions: x, the weight of both and the result are copied, and what is not given rows."""
    return lambda x, weight: convolved(between(convolved(x, weight)), weight)


BETWEEN = {
    "nothing": lambda y: y,
    "a function": torch.relu,
    "one that torch does not call elementwise": lambda y: _aten.hardtanh_backward(y, y, -0.5, 0.5),
    "two operands": lambda y: torch.relu(y) + y,
    "a number for each channel": lambda y: y * y.mean([2, 3], keepdim=True),
    "numbers without a batch": lambda y: y * torch.arange(16, dtype=y.dtype, device=y.device).view(16, 1, 1),
    "numbers of columns": lambda y: y * torch.arange(10, dtype=y.dtype, device=y.device),
    "a pool": lambda y: F.max_pool2d(y, 3, 1, 1),
    "a mean of places": lambda y: F.avg_pool2d(y, 3, 1, 1),
    "zeros around": lambda y: F.pad(y, (1, 0, 2, 1)),
    "less around": lambda y: F.pad(y, (-1, 0, 0, -2)),
    "a join, and a part of it": lambda y: torch.cat([y, torch.relu(y)], 1)[:, 8:24],
    "a part": lambda y: y[:, :, 1:, ::2],
    "what is filled": lambda y: y + torch.full_like(y, 2.0),
    "another type and back": lambda y: y.float().exp().to(y.dtype),
    "a repeated mean": lambda y: y + y.mean([2, 3], keepdim=True).expand(-1, -1, 12, 10) / 3,
}


@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_what_stands_between_is_given_rows(between):
    assert copies(rewritten(twice(between), operands(), 2)) == 3


def test_one_that_nobody_knows_is_given_planes():
    module = rewritten(twice(lambda y: y.flip(2)), operands(), 0)
    assert copies(module) == 0, "nothing is gained where both must be copied"
    several = lambda x, weight: convolved(twice(torch.relu)(x, weight).cumsum(2), weight)  # noqa: E731
    assert copies(rewritten(several, operands(), 3)) == 5


def test_rows_of_tokens_are_not_copied():
    def patches(x, weight):
        return twice(torch.relu)(x, weight).flatten(2).transpose(1, 2).clone(memory_format=PLANES) + 1

    module = rewritten(patches, operands(), 2)
    assert copies(module) == 3, "x, the weight, and the program's own, of which nothing is left behind"


def test_images_of_tokens_are_not_copied():
    def images_of(x, weight):
        tokens = x.flatten(2).transpose(1, 2).contiguous()
        return torch.relu(convolved(tokens.transpose(1, 2).reshape(2, 16, 12, 10), weight)).sum([2, 3])

    module = rewritten(images_of, operands(), 1)
    assert copies(module) == 2, "the program's own, and the weight"


@pytest.mark.parametrize("groups", [1, 4, 16])
@pytest.mark.parametrize("wanted", [(True, True, True), (False, True, True), (True, False, False), (False, False, True)])
def test_gradients(wanted, groups):
    def gradients(x, weight):
        y = torch.relu(convolved(x, weight, groups))
        found = _aten.convolution_backward(
            y, x, weight, [16], [1, 1], [1, 1], [1, 1], False, [0, 0], groups, list(wanted)
        )
        return tuple(each for each, is_wanted in zip(found, wanted) if is_wanted)

    module = rewritten(gradients, operands(groups=groups), 2)
    calls = [node for node in module.graph.nodes if node.target is _aten.convolution_backward.default]
    apart = 1 < groups < 16 and wanted[1]
    masks = [[False, True, False]] * apart + [[wanted[0], wanted[1] and not apart, False]]
    assert [list(node.args[-1]) for node in calls] == [mask for mask in masks if any(mask)], "a bias's is a sum"
    assert wanted[2] == any(node.target is _aten.sum.dim_IntList for node in module.graph.nodes)


OTHERS = {
    "f32 in planes": lambda: operands(torch.float32),
    "f64": lambda: operands(torch.float64, ROWS),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_others_stay(make):
    rewritten(twice(torch.relu), make(), 0)


def test_a_program_that_has_rows_keeps_them():
    for dtype in (torch.float32, torch.bfloat16):
        module = rewritten(twice(torch.relu), operands(dtype, ROWS), 2)
        assert copies(module) == 0


def test_rows_that_convolutions_read_are_not_laid_in_planes():
    """Whoever reads places of an image may do so faster in planes, but not so much that convolutions turn it back."""
    def function(x, weight):
        y = torch.relu(convolved(x, weight))
        pools = sum(F.avg_pool2d(y, side, 1, side // 2) for side in (3, 5, 7))
        return sum(convolved(each, weight).sum() for each in (y, y + pools, y - pools, pools))

    module = make_fx(function, tracing_mode="fake")(*operands(memory=ROWS))
    assert laying.lay(module.graph, module.graph.output_node().all_input_nodes) == 0


def test_a_batch_that_is_a_symbol(ran):
    function = lambda x, weight: torch.relu(twice(torch.relu)(x, weight))  # noqa: E731
    call = torch.compile(function, backend="cermet", dynamic=True, options=OPTIONS)
    for batch in (3, 5):
        x, weight = operands(batch=batch)
        torch._dynamo.mark_dynamic(x, 0)
        for each in (1, 2, 3):
            torch._dynamo.mark_static(x, each)
        torch.testing.assert_close(call(x, weight), function(x, weight), rtol=2e-2, atol=2e-2)
    assert len(ran) == 1 and "aten.relu.default" in called(ran[0])


def test_launches_on_rows_are_ready_before_they_run(monkeypatch, ran):
    """A kernel that is made when it is called is made by who calls it."""
    late, prepare = [], regions.prepare

    def prepared(key, device):
        made = {text for text, _ in regions._registry.loaded}
        if threading.current_thread() is threading.main_thread() and regions.text(key) not in made:
            late.append(key)
        prepare(key, device)

    monkeypatch.setattr(regions, "prepare", prepared)
    x, weight = operands()
    call = torch.compile(twice(lambda y: torch.relu(y + y * 2.125)), backend="cermet", options=OPTIONS)
    call(x, weight)
    assert any(regions.launched(node) for node in ran[0].nodes) and not late


def test_norms_of_groups_in_rows_have_their_own_gradient():
    """ATen's on a CPU expects of a cotangent that it lies as x does."""
    modules = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.GroupNorm(4, 16))
    x = torch.randn(2, 3, 16, 12).to(memory_format=ROWS)
    call = torch.compile(modules, backend="cermet", options=OPTIONS)
    mine, theirs = (torch.autograd.grad(each(x).cos().sum(), modules.parameters()) for each in (call, modules))
    exact = copy.deepcopy(modules).double()
    true = torch.autograd.grad(exact(x.double()).cos().sum(), exact.parameters())
    for one, other, each in zip(mine, theirs, true, strict=True):
        assert relative(one, each) <= 2 * relative(other, each) + spacing(torch.float32)
