"""Logits come as one piece where the step's peak is elsewhere, and in pieces where they make it or somebody says so."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F

from cermet import options
from cermet.ops import regions
from cermet.remainder import direct

WORDS, HIDDEN, ROWS, PIECE = 2000, 64, 160, 32


class Model(torch.nn.Module):
    def __init__(self, wide: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = torch.nn.Linear(HIDDEN, wide), torch.nn.Linear(wide, HIDDEN)
        self.head = torch.nn.Linear(HIDDEN, WORDS, bias=False)
        self.bfloat16()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        y = x + self.down(self.up(x[:, :8]).relu()).sum(1, keepdim=True)
        return F.cross_entropy(self.head(y).float().flatten(0, 1), labels.flatten())


class Residual(Model):
    """A sum lies where a product was, in the forward."""

    def __init__(self, wide: int) -> None:
        super().__init__(wide)
        self.mix, self.norm = torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.RMSNorm(HIDDEN, eps=1e-6)
        self.bfloat16()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = x + self.mix(x)
        return super().forward(x + self.norm(x), labels)


def given() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    return torch.randn(2, ROWS // 2, HIDDEN).bfloat16(), torch.randint(WORDS, (2, ROWS // 2))


@pytest.fixture
def rows(monkeypatch):
    """The rows of each head's pieces, as it runs."""
    found: list[int] = []

    class Kept(direct.StraightLine):
        def become(self, other) -> None:
            found.clear()
            found.extend(other.rows)
            super().become(other)

        def __init__(self, graph, *arguments, **keywords) -> None:
            self.rows = [node.args[-4] for node in graph.graph.nodes if "linear_rows" in str(node.target)]
            self.head = next((node.args[-6] for node in graph.graph.nodes if "linear_rows" in str(node.target)), None)
            if not found:
                found.extend(self.rows)
            super().__init__(graph, *arguments, **keywords)

    monkeypatch.setattr(direct, "StraightLine", Kept)
    monkeypatch.setattr(options, "LOGITS_BYTES", PIECE * WORDS * 2)
    with torch._functorch.config.patch(enable_autograd_cache=False):
        yield found


def step(model, settings=None, **marks) -> dict[str, torch.Tensor]:
    torch._dynamo.reset()
    x, labels = given()
    for tensor in (x, labels) if marks else ():
        torch._dynamo.mark_dynamic(tensor, 1)
    model.zero_grad()
    given_options = {"remainder": "aot", "strict": True} | (settings or {})
    loss = torch.compile(model, backend="cermet", options=given_options)(x, labels)
    loss.backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    return {"loss": loss.detach()} | {name: gradient.clone() for name, gradient in gradients.items()}


@pytest.mark.parametrize("memory", ["fast", "auto"])
def test_the_peak_is_where_gradients_are(memory, rows):
    model = Model(1 << 16)
    whole = step(model, {"memory": memory})
    assert rows == [ROWS]
    rows.clear()
    pieces = step(model, {"memory": memory, "logits_bytes": options.LOGITS_BYTES})
    assert rows == [PIECE]
    for name, value in whole.items():
        torch.testing.assert_close(value, pieces[name], rtol=2**-6, atol=1e-4)


def test_the_peak_is_the_logits(rows):
    step(Model(8))
    assert rows == [PIECE]


def test_the_least_memory(rows):
    step(Model(1 << 16), {"memory": "least"})
    assert rows == [PIECE]


def test_a_bound_is_held(rows):
    step(Model(1 << 16), {"memory": "1GB"})
    assert rows == [PIECE]


def test_rows_of_a_symbolic_number(rows):
    step(Model(1 << 16), dynamic=True)
    assert rows == [PIECE]


def test_another_process_is_told_of_all_that_a_joined_forward_launches(rows, monkeypatch):
    kept = []
    settle = direct.StraightLine.settle

    def settled(self) -> None:
        settle(self)
        kept.append(self)

    monkeypatch.setattr(direct.StraightLine, "settle", settled)
    step(Residual(1 << 16))
    assert rows == [ROWS]
    (forward,) = [line for line in kept if line.head is not None]
    assert any(places for *_, places in forward._regions)
    for line in kept:
        launched = {int(key) for key in re.findall(r"\b\d{12,}\b", line.source)}
        assert launched - {regions.register(*each) for each in line._regions} <= {line.head}


def test_a_frozen_head_gains_nothing(rows):
    model = Model(1 << 16)
    model.head.requires_grad_(False)
    step(model)
    assert rows == [PIECE]
