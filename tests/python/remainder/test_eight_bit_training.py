"""Training in floats of eight bits, as torchao spells it: every operand of a layer's three products is scaled by its
largest element and cast. No call of ATen's does that work, and the numbers are eager's."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import cermet
import truth
from cermet.importing.translations import shape
from cermet.remainder import turned_copies
from cermet.text import STORED

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
WIDTH, HIDDEN, TOKENS = 64, 160, 96


def cast(value: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor in eight bits, and what it was multiplied by."""
    largest = value.abs().max().to(torch.float64)
    limit = torch.finfo(dtype).max
    scale = (limit / largest.clamp(min=1e-12)).to(torch.float32)
    return (value.to(torch.float32) * scale).clamp(-limit, limit).to(dtype), scale


def product(left, right, dtype):
    """Of rows of both, as a GPU's product takes them: the first in the order of rows, the second in that of columns."""
    (left, by), (right, and_by) = left, right
    assert left.is_contiguous() and right.t().is_contiguous()
    return ((left.to(torch.float32) @ right.to(torch.float32)) * (by.reciprocal() * and_by.reciprocal())).to(dtype)


def turned(value):
    return value[0].t().contiguous(), value[1]


class Eight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return product(cast(x, E4M3), cast(weight.t(), E4M3), x.dtype)

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        given, of = cast(gradient, E5M2), cast(weight.t(), E4M3)
        columns, scale = turned((of[0].t(), of[1]))
        to_x = product(given, (columns.t(), scale), x.dtype)
        columns, scale = turned(cast(x, E4M3))
        return to_x, product(turned(given), (columns.t(), scale), x.dtype)


class Linear(nn.Linear):
    def forward(self, x):
        if x.dtype == torch.float64:
            return super().forward(x)
        return Eight.apply(x.reshape(-1, x.shape[-1]), self.weight).reshape(*x.shape[:-1], -1)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.gate, self.up = (Linear(WIDTH, HIDDEN, bias=False) for _ in range(2))
        self.down = Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(Layer() for _ in range(2))).bfloat16()


def step(call, module, x):
    module.zero_grad()
    loss = call(x).float().square().mean()
    loss.backward()
    return [loss.detach(), x.grad, *(each.grad for each in module.parameters())]


def assert_as_near_as_eager(**settings):
    """Of a step in float64 that rounds nothing."""
    x = torch.randn(2, TOKENS // 2, WIDTH, generator=torch.Generator().manual_seed(1)).bfloat16()
    true = step(wide := model().double(), wide, x.double().requires_grad_())
    module = model()
    call = torch.compile(module, backend="cermet", options={"strict": True}, **settings)
    ours, eager = (step(each, module, x.clone().requires_grad_()) for each in (call, module))
    for mine, theirs, exact in zip(ours, eager, true, strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        errors = [truth.relative(each, exact) for each in (mine, theirs)]
        assert errors[0] <= 1.2 * errors[1] + 1e-3, errors


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_layers_casts_are_kernels(dynamic, ran):
    assert_as_near_as_eager(dynamic=dynamic)
    left = Counter()
    for graph in ran:
        for node in graph.nodes:
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor) and value.dim() > 1 and str(node.target).startswith("aten."):
                left[str(node.target).removeprefix("aten.")] += not node.target.is_view
                if value.dtype in STORED:
                    assert node.target.is_view or node.target is torch.ops.aten.clone.default, node
    assert not any(left[name] for name in ("abs.default", "amax.default", "clamp.default", "add.Tensor")), left


def test_copies_of_turned_matrices_are_launches(monkeypatch, ran):
    monkeypatch.setattr(turned_copies, "_DEVICES", {"cpu"})
    monkeypatch.setattr(turned_copies, "SMALLEST", 1)
    before = cermet.counters()["launches"]
    assert_as_near_as_eager()
    assert cermet.counters()["launches"] > before
    assert not any(graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default) for graph in ran)


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_what_is_cast_is_what_torch_casts(dtype, device):
    """Of every number in sixteen bits."""
    x = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int16).view(torch.bfloat16).view(256, 256)

    def f(x, s):
        return (x.float() * s).to(dtype), (x.float() * s).to(dtype).float() * 2

    given = x.to(device), torch.tensor(1.0, device=device)
    before = cermet.counters()["launches"]
    ours = torch.compile(f, backend="cermet", options={"strict": True})(*given)
    assert cermet.counters()["launches"] > before
    for mine, theirs in zip(ours, f(*given)):
        torch.testing.assert_close(mine.float(), theirs.float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("given", [torch.bfloat16, torch.float16, torch.float32])
def test_a_torch_whose_cast_gives_nan_beyond_the_largest_number(given, monkeypatch):
    monkeypatch.setattr(shape, "OVERFLOWS_TO_NAN", True)
    x = torch.tensor([0, 448, 460, 464, 464.5, 465, 480, 1e4, float("inf"), float("nan")], dtype=given).repeat(4096, 4)
    x = torch.cat([x, -x])

    def f(x):
        return (x * 1).to(E4M3), (x * 1 + 0).to(E4M3).float() * 2

    before = cermet.counters()["launches"]
    casts = torch.compile(f, backend="cermet", options={"strict": True})(x)
    assert cermet.counters()["launches"] > before
    true = torch.where(x.float().abs() > 464, torch.nan, x.float()).to(E4M3).float()
    for mine, factor in zip(casts, (1, 2)):
        torch.testing.assert_close(mine.float(), true * factor, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [E4M3, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("sizes", [(300, 520), (129, 1000), (3, 130, 260), (2, 65, 1001)])
def test_a_turned_matrix_is_copied_as_it_lies(sizes, dtype, device, monkeypatch, ran):
    """On a GPU without a copy that makes it dense first."""
    monkeypatch.setattr(turned_copies, "_DEVICES", {device})
    x, scale = torch.randn(sizes, device=device), torch.tensor(2.0, device=device)

    def f(x, scale):
        y = (x * scale).to(dtype)
        return y, y.transpose(-2, -1).contiguous()

    call = torch.compile(f, backend="cermet", options={"strict": True}, dynamic=False)
    for mine, theirs in zip(call(x, scale), f(x, scale)):
        assert mine.stride() == theirs.stride() and torch.equal(mine.float(), theirs.float())
    assert not any(graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default) for graph in ran)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        results = call(x, scale)
        assert torch.cuda.max_memory_allocated() - before < 1.2 * sum(each.nbytes for each in results) + 4096
