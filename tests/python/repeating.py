"""Models of equal layers, and how what Cermet compiles once for several is compared with each compiled alone."""

from __future__ import annotations

import copy

import torch
from torch import nn

from cermet import counting
from cermet.remainder import direct

LAYERS = 10
WIDTH = 16


def run(model, batch, device="cpu", objective=lambda given: getattr(given, "loss", given), **compiled):
    """Loss and gradients of the first step, and what was counted. `objective`: of what the model gives."""
    model, batch = copy.deepcopy(model).to(device), {name: value.to(device) for name, value in batch.items()}
    torch._dynamo.reset()
    torch.manual_seed(7)
    before = counting.snapshot()
    with torch._functorch.config.patch(enable_autograd_cache=False):
        loss = objective(torch.compile(model, backend="cermet", **compiled)(**batch))
        loss.backward()
    counts = {name: number - before[name] for name, number in counting.snapshot().items()}
    return [loss.detach()] + [each.grad for each in model.parameters()], counts


def same(model, batch, monkeypatch, device="cpu", **compiled):
    """How many layers were put back, where what runs gives what runs where each is compiled."""
    ours, counts = run(model, batch, device, **compiled)
    with monkeypatch.context() as patch:
        patch.setattr(direct, "_shortened", lambda *_: None)
        theirs, others = run(model, batch, device, **compiled)
    error = 0 if device == "cpu" else 1e-5  # a GPU's attention adds up in any order
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=error, atol=error)
    repeated = counts.pop("repeated_layers")
    others.pop("repeated_layers")
    counts.pop("fallbacks")  # failures of this, which not all tests do without
    others.pop("fallbacks")
    assert counts == others
    return repeated


class Layer(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        return x + self.drop(self.down(nn.functional.gelu(self.up(self.norm(x)))))


class Stack(nn.Module):
    def __init__(self, layers=LAYERS, **settings):
        super().__init__()
        self.layers = nn.ModuleList([Layer(**settings) for _ in range(layers)])

    def between(self, x, place):
        return x

    def forward(self, x):
        x = x * 2
        for place, layer in enumerate(self.layers):
            x = layer(self.between(x, place))
        return x.square().sum()


def stack(kind=Stack, **settings):
    torch.manual_seed(0)
    return kind(**settings), {"x": torch.randn(3, 5, WIDTH)}
