"""Autocast's implicit casts become operations, whether it is entered in the graph or around it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from executed import executed
from graphs import traced

FUNCTIONS = {
    "a product of matrices, then f32 functions": lambda x, w: (F.linear(x, w).softmax(-1), torch.mm(x, w).exp()),
    "powers": lambda x, w: ((x @ w).pow(3), (x @ w).abs() ** 0.5, torch.rsqrt((x @ w) ** 2 + 1)),
    "sums": lambda x, w: ((x @ w).sum(-1), (x @ w).mean(-1), torch.logsumexp(x @ w, -1)),
    "joins of two types": lambda x, w: (torch.cat([x @ w, x]), torch.stack([x, x @ w], -1)),
    "norms": lambda x, w: (F.layer_norm(x @ w, (6,), w[0], w[1]), F.rms_norm(x @ w, (6,))),
    "losses": lambda x, w: F.cross_entropy(x @ w, torch.arange(4)) + F.nll_loss(x @ w, torch.arange(4)),
    "residual": lambda x, w: x + x @ w,
    "gelu": lambda x, w: (F.gelu(x @ w), F.silu(x @ w), torch.tanh(x @ w)),
}


@pytest.mark.parametrize("inside", [False, True], ids=["ambient", "entered"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_autocast(name, inside):
    function = FUNCTIONS[name]
    x, w = torch.randn(4, 6), torch.randn(6, 6)

    def entered(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            return function(x, w)

    if inside:
        module, given = traced(entered, x, w)
        run = executed(module, given, exact=False)
    else:
        with torch.autocast("cpu", torch.bfloat16):
            module, given = traced(function, x, w)
            run = executed(module, given, exact=False)
    assert not run.imported.refusals, f"{run.imported.refusals}\n{run.imported.text}"
    assert "bf16" in run.imported.text
