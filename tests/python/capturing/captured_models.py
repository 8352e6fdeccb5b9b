"""Models that are captured, by tests here and by tests/gpu/bundle.sh for those on a GPU."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from tiny_models import tiny
from torch.utils.checkpoint import checkpoint


def llama() -> torch.nn.Module:
    return tiny("Llama", torch.bfloat16)


def qwen3() -> torch.nn.Module:
    return tiny("Qwen3", torch.bfloat16)


def checkpointed() -> torch.nn.Module:
    model = llama()
    model.gradient_checkpointing_enable()
    return model


def on_a_gpu() -> torch.nn.Module:
    return llama().cuda().to("cuda:0")


number = 3


def no_module() -> int:
    return number


def reads_elements() -> torch.nn.Module:
    return torch.nn.Linear(int(torch.ones(2).sum().item()), 3)


class Draws(torch.nn.Module):
    """In a checkpoint, between two norms, which are one kernel with what is drawn there."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(64) for _ in range(2))

    def layer(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norms[0](x)
        return self.norms[1](x + torch.empty_like(x).exponential_())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.layer, x, use_reentrant=False).sum()


def draws() -> torch.nn.Module:
    return Draws()


class Apart(torch.nn.Module):
    """Scores with a bias for how far apart two words are, from a table of indices that is made on the CPU."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = torch.nn.Embedding(31, 1)
        self.norm = torch.nn.RMSNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        place = torch.arange(x.shape[-1])
        apart = (place[:, None] - place[None, :]).clamp(-15, 15) + 15
        bias = torch.ops.aten.index.Tensor(self.bias.weight, [apart.view(-1)])
        return self.norm(x + bias.view(x.shape[-1], x.shape[-1]))


def apart() -> torch.nn.Module:
    return Apart()


class Chooses(torch.nn.Module):
    """Words by numbers that the program writes, behind what begins as nothing, as a cache does."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.RMSNorm(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = torch.cat([torch.tensor([], dtype=x.dtype, device=x.device), x], dim=-2)
        return self.norm(kept[:, [0, 3, 5]])


def chooses() -> torch.nn.Module:
    return Chooses()


class Breaks(torch.nn.Module):
    """Needs a number that a tensor has."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * 2 if x.sum().item() > 0 else x


def breaks() -> torch.nn.Module:
    return Breaks()
