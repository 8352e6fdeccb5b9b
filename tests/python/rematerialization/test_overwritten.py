"""A backward reads what an input had before its forward wrote it, whatever is kept, also behind another forward."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

MEMORY = pytest.mark.parametrize("memory", ["fast", "auto", "least"])


class Fading(nn.Module):
    """A factor that gets less with each call, of which something is computed before that."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)
        self.register_buffer("factor", torch.rand(64) + 0.5)

    def forward(self, x):
        y = self.down(F.gelu(self.up(x) * (self.factor.view(1, 64) * 1.5)))
        with torch.no_grad():
            self.factor.mul_(0.5)
        return y


def gradients(model, call, x, calls):
    model.zero_grad()
    results = [call(x) for _ in range(calls)]
    for y in results:
        y.square().sum().backward()
    return [parameter.grad for parameter in model.parameters()], [y.detach() for y in results]


@MEMORY
@pytest.mark.parametrize("calls", [1, 2])
def test_a_factor_that_fades(calls, memory):
    model = Fading()
    eager = copy.deepcopy(model)
    options = {"remainder": "aot", "strict": True, "memory": memory}
    call = torch.compile(model, backend="cermet", options=options)
    x = torch.randn(128, 16)
    mine, theirs = gradients(model, call, x, calls), gradients(eager, eager, x, calls)
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(model.factor, eager.factor, rtol=0, atol=0)


@MEMORY
def test_norms_whose_statistics_run_along(memory):
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8), nn.BatchNorm1d(8))
    eager = copy.deepcopy(model)
    call = torch.compile(model, backend="cermet", options={"remainder": "aot", "strict": True, "memory": memory})
    x = torch.randn(64, 16)
    mine, theirs = gradients(model, call, x, 2), gradients(eager, eager, x, 2)
    torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3)
    for one, other in zip(model.buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
