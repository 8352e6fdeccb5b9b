"""A model of layers that are alike, and how many of them Dynamo is spared."""

from __future__ import annotations

import torch
from torch import nn

import cermet

LAYERS, WIDTH = 7, 8
SPARED = LAYERS - 2


class Shared:
    """What all layers have one of."""

    def __init__(self) -> None:
        self.scale, self.names = 1.0, {"scale": 2.0}


class Layer(nn.Module):
    factor = 1.0

    def __init__(self, shared: Shared) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)
        self.drop, self.act, self.shared = nn.Dropout(0.0), nn.functional.gelu, shared
        self.gate: nn.Module | None = None
        self.kind, self.negates, self.widths, self.table = "plain", False, [1, 2], {"a": 1.0}
        self.register_buffer("shift", None)
        self.offset = torch.randn(WIDTH, dtype=torch.double)
        self.spare = torch.zeros(1, dtype=torch.double)
        self.seen: list[int] = []

    def halved(self, y: torch.Tensor) -> torch.Tensor:
        return y / 2

    def forward(self, x: torch.Tensor, place: int | None = None, other: torch.Tensor | None = None) -> torch.Tensor:
        y = self.down(self.drop(self.act(self.up(self.norm(x))))) * self.factor
        y = y + self.halved(x.unsqueeze(0).squeeze(0))
        y = y * self.shared.scale + self.offset.unsqueeze(0)
        for factor in self.table.values():
            y = y * factor
        y = y * (1 if self.spare.dtype == torch.double else 7)
        y = y * len(self.widths) * self.shared.names["scale"]
        if self.shift is not None:
            y = y + self.shift
        if hasattr(self, "extra"):
            y = y * 3
        if self.kind == "other":
            y = y.tanh()
        if self.negates != (self.gate is not None):
            y = -y
        if not self.training:
            y = self.halved(y)
        if other is not None:
            y = y + other.unsqueeze(0).squeeze(0)
        return x + (y if place is None else y * (place + 1))


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shared = Shared()
        self.layers = nn.ModuleList([Layer(self.shared) for _ in range(LAYERS)])
        self.start, self.norm = nn.Parameter(torch.ones(WIDTH)), nn.LayerNorm(WIDTH)

    def called(self, layer: nn.Module, x: torch.Tensor, place: int) -> torch.Tensor:
        return layer(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x * self.start
        for place, layer in enumerate(self.layers):
            x = self.called(layer, x, place)
        return self.norm(x).pow(3).sum()


def stack(kind: type[Stack] = Stack) -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return kind().double(), torch.randn(3, WIDTH, dtype=torch.double)


def compiled(model: nn.Module, **settings):
    return torch.compile(model, backend="cermet", options={"remainder": "eager"}, **settings)


def stepped(call, model: nn.Module, *given, **named) -> list[torch.Tensor]:
    torch.manual_seed(1)
    model.zero_grad()
    out = call(*given, **named)
    out = getattr(out, "loss", out)
    out.backward()
    return [out.detach(), *(each.grad for each in model.parameters() if each.grad is not None)]


def spared(call, *given, **named) -> tuple[int, object]:
    """How many layers were not traced, and what the call gave."""
    before = cermet.counters()["layers_not_traced"]
    result = call(*given, **named)
    return cermet.counters()["layers_not_traced"] - before, result


def as_eager(call, model: nn.Module, x: torch.Tensor) -> int:
    """How many layers were not traced of a call that gives what eager gives."""
    number, ours = spared(stepped, call, model, x)
    torch.testing.assert_close(ours, stepped(model, model, x))
    return number
