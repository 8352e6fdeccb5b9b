"""Adapters in f32 of layers in bf16: no tensor of the layer's size is in f32, and numbers are as near to float64 as
eager's, whether products are made in f32 or of parts in bf16."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from test_clusters_behind_autograd import called
from truth import EVERY_SEED, Float64, assert_none_is_far_from_eager, relative

import cermet
from cermet.ops import regions, wide_linears
from cermet.remainder import wide_linears as layers

HIDDEN, WIDE, RANK = 192, 320, 8
NAMES = ("x", "down", "up", "down2", "up2")


def adapted(x, weight, bias, down, up, factor=0.5):
    y = F.linear(x, weight, bias)
    y = y + F.linear(F.linear(x.to(down.dtype), down), up) * factor
    return y.to(x.dtype)


def one(x, weights, down, up, down2, up2):
    return adapted(x, weights[0], None, down, up)


def two(x, weights, down, up, down2, up2):
    """A gated unit, whose layers share an input, and a residual."""
    wide = F.silu(adapted(x, weights[0], weights[1], down, up)) * F.linear(x, weights[0])
    return x + adapted(wide, weights[2], None, down2, up2, 1.7)


def written_otherwise(x, weights, down, up, down2, up2):
    wide = x.float()
    return torch.add(torch.mul(3, F.linear(F.linear(wide, down), up)), F.linear(x, weights[0])).bfloat16()


def apart(x, weights, down, up, down2, up2):
    """The adapter's input is no cast, and its inner values are read by others."""
    inner = F.linear(x.float().tanh(), down)
    return (F.linear(x, weights[0]) + F.linear(inner, up)).to(x.dtype) * inner.sum(-1, keepdim=True).to(x.dtype)


def router(x, weights, down, up, down2, up2):
    return F.linear(x.to(torch.float32), down).softmax(-1)


PROGRAMS = [one, two, written_otherwise, apart, router]


def given(device="cpu", seed=0, rows=256):
    torch.manual_seed(seed)
    x = torch.randn(2, rows // 2, HIDDEN, device=device).bfloat16()
    sizes = (WIDE, HIDDEN), (WIDE,), (HIDDEN, WIDE)
    weights = [(torch.randn(size, device=device) * size[-1] ** -0.5).bfloat16() for size in sizes]
    sizes = (RANK, HIDDEN), (WIDE, RANK), (RANK, WIDE), (HIDDEN, RANK)
    return x, weights, *(torch.randn(size, device=device) * size[-1] ** -0.5 for size in sizes)


def step(call, values) -> dict[str, torch.Tensor]:
    x, weights, *adapters = values
    x, *adapters = (value.detach().clone().requires_grad_() for value in (x, *adapters))
    y = call(x, weights, *adapters)
    y.backward(torch.cos(torch.arange(y.numel(), device=y.device).view(y.shape) * 3.0).to(torch.bfloat16).to(y.dtype))
    grads = {name: value.grad for name, value in zip(NAMES, (x, *adapters)) if value.grad is not None}
    return {"y": y.detach()} | grads


def double(values):
    x, weights, *adapters = values
    return x.double(), [weight.double() for weight in weights], *(value.double() for value in adapters)


@pytest.fixture(params=["f32", "parts"])
def how(request, monkeypatch, device):
    """`parts` as a GPU has them."""
    if device == "cpu" and request.param == "parts":
        monkeypatch.setattr(layers, "_DEVICES", {"cpu"})
    elif device != "cpu" and request.param == "f32":
        monkeypatch.setattr(layers, "_DEVICES", set())
    return request.param


def compiled(function):
    torch._dynamo.reset()
    return torch.compile(function, backend="cermet", options={"remainder": "aot", "strict": True})


@pytest.mark.parametrize("program", PROGRAMS)
def test_numbers_are_as_near_as_eagers(program, how, device):
    call, ours, eager = compiled(program), {}, {}
    for seed in range(EVERY_SEED):
        values = given(device, seed)
        with Float64():
            truth = step(program, double(values))
        for errors, which in ((ours, call), (eager, program)):
            for name, value in step(which, values).items():
                errors.setdefault(name, []).append(relative(value, truth[name]))
    for name in eager:
        dtype = torch.bfloat16 if name in "xy" and program is not router else torch.float32
        assert_none_is_far_from_eager({name: ours[name]}, {name: eager[name]}, dtype)
