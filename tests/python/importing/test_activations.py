"""ATen's activations and their gradients behind autograd: as near to float64 as eager, and at kinks as eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from truth import EVERY_SEED, assert_none_is_far_from_eager, relative

import cermet

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mish": F.mish,
    "elu": F.elu,
    "elu, alpha": lambda x: F.elu(x, 0.5),
    "celu": lambda x: F.celu(x, 1.5),
    "selu": F.selu,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": lambda x: F.hardtanh(x, -1.0, 2.0),
    "relu6": F.relu6,
    "logsigmoid": F.logsigmoid,
    "softplus": F.softplus,
    "softplus, beta and threshold": lambda x: F.softplus(x, 2.0, 5.0),
    "threshold": lambda x: F.threshold(x, 0.5, 2.0),
    "clamp": lambda x: x.clamp(-0.5, 0.75),
    "clamp_min": lambda x: x.clamp_min(0.5),
    "clamp_max": lambda x: x.clamp(max=0.5),
    "clamp by tensors": lambda x: x.clamp(min=torch.full_like(x, -0.5), max=torch.ones_like(x)),
    "prelu": lambda x: F.prelu(x, torch.full((1,), 0.25, dtype=x.dtype)),
}
SHAPE = (96, 256)


def step(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> dict[str, torch.Tensor]:
    x = x.detach().clone().requires_grad_()
    y = function(x)
    y.backward(torch.cos(torch.arange(y.numel(), dtype=torch.float64)).reshape(y.shape).to(y.dtype))
    return {"y": y.detach(), "x": x.grad}


def compiled(activation: Callable[[torch.Tensor], torch.Tensor], calls: list[set[str]]) -> Callable[..., torch.Tensor]:
    """With what else a cluster wants, a product before and behind; leaves what runs beside launches."""
    from cermet.remainder import direct

    class Kept(direct.StraightLine):
        def __init__(self, graph, *arguments, **keywords):
            calls.append({str(node.target) for node in graph.graph.nodes if node.op == "call_function"})
            super().__init__(graph, *arguments, **keywords)

    def program(x: torch.Tensor) -> torch.Tensor:
        return activation(x * 1.5) * 0.5

    def run(x: torch.Tensor) -> torch.Tensor:
        before, direct.StraightLine = direct.StraightLine, Kept
        try:
            with torch._functorch.config.patch(enable_autograd_cache=False):
                return call(x)
        finally:
            direct.StraightLine = before

    call = torch.compile(program, backend="cermet", options={"remainder": "aot", "strict": True})
    run.program = program
    return run


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_is_as_near_to_float64_as_eager(name, dtype):
    calls: list[set[str]] = []
    before = cermet.counters()["fallbacks"]
    call = compiled(ACTIVATIONS[name], calls)
    ours, theirs = {}, {}
    for seed in range(EVERY_SEED):
        torch.manual_seed(seed)
        x = (2 * torch.randn(SHAPE)).to(dtype)
        truth = step(call.program, x.double())
        for errors, function in ((ours, call), (theirs, call.program)):
            for key, value in step(function, x).items():
                errors.setdefault(key, []).append(relative(value, truth[key]))
    assert_none_is_far_from_eager(ours, theirs, dtype)
    beside = set().union(*calls)
    assert {target for target in beside if target.startswith("aten.")} <= {"aten.full.default"}, beside
    assert any("launch" in target for target in beside) and cermet.counters()["fallbacks"] == before


KINKS = [0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 6.0, 0.5, -0.5, 0.75, 2.0, 2.5, 5.0]
LARGE_AND_SMALL = [20.0, 100.0, -100.0, 1e-3, -1e-3, 1e30, -1e30]
SPECIAL = [float("nan"), float("inf"), -float("inf")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_kinks_and_what_is_no_number_are_eagers(name, dtype):
    """Beside a kink the result is eager's but for rounding; at it the branch is; NaN and infinities are where eager's
    are."""
    activation = ACTIVATIONS[name]

    def program(x: torch.Tensor) -> torch.Tensor:
        return activation(x + 0.0) + 0.0

    values = torch.tensor((KINKS + LARGE_AND_SMALL + SPECIAL) * 512, dtype=dtype).reshape(-1, 512).contiguous()
    call = torch.compile(program, backend="cermet", options={"remainder": "aot", "strict": True})
    eager, ours = step(program, values), step(call, values)
    for key in eager:
        torch.testing.assert_close(ours[key], eager[key], equal_nan=True, msg=lambda text: f"{key}: {text}")
