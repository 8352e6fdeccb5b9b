"""What a checkpoint draws is drawn again by the same generator; what draws nothing as it is called needs none."""

from __future__ import annotations

import pytest
import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

from cermet.remainder import direct
from cermet.remainder.straight import StraightLine


@torch.library.custom_op("cermet_tests::omits", mutates_args=(), tags=(torch.Tag.nondeterministic_seeded,))
def omits(x: torch.Tensor, dropout_p: float = 0.0) -> torch.Tensor:
    return x * (torch.rand_like(x) >= dropout_p) * x


@omits.register_fake
def _(x, dropout_p=0.0):
    return torch.empty_like(x)


def keep(ctx, inputs, output):
    ctx.save_for_backward(output)


omits.register_autograd(lambda ctx, gradient: (2 * gradient * ctx.saved_tensors[0].sqrt(), None), setup_context=keep)


class Dropping(nn.Module):
    """Of positive numbers: each that is not dropped is squared, so the gradient shows which those were."""

    def __init__(self, *probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, x):
        return checkpoint(lambda x: omits(x, *self.probability).cos(), x, use_reentrant=False)


@pytest.mark.parametrize("probability, wrapped", [((), False), ((0.0,), False), ((0.5,), True)])
def test_only_what_draws_is_given_a_generator(probability, wrapped, monkeypatch):
    torch._dynamo.reset()
    seen: list[str] = []

    def line(graph, *arguments):
        seen.extend(str(node.target) for node in graph.graph.nodes)
        return StraightLine(graph, *arguments)

    monkeypatch.setattr(direct, "StraightLine", line)
    x = torch.rand(64, 64).add_(0.5).requires_grad_()
    with torch._functorch.config.patch(enable_autograd_cache=False):
        made = torch.compile(Dropping(*probability), backend="cermet", options={"strict": True})(x)
    made.sum().backward()
    dropped = made.detach() == 1.0
    assert dropped.any() == wrapped
    torch.testing.assert_close(x.grad, torch.where(dropped, 0, -2 * x * (x * x).sin()).detach())
    assert any("rng" in name for name in seen) == wrapped, seen
    assert sum("omits" in name for name in seen) == 2 * (not wrapped), seen  # the forward's and the backward's own
