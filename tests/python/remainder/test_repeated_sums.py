"""What is repeated over a product is added by whoever reads it: ATen would write it as large as the product."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from truth import assert_gradients_are_near, relative

from cermet.remainder.aten import products

aten = torch.ops.aten
HEADS, LENGTH, WIDTH = 6, 24, 8


def operands(dtype=torch.float32, added=(HEADS, 1, LENGTH)):
    made = added, (HEADS, LENGTH, WIDTH), (HEADS, WIDTH, LENGTH)
    return [torch.randn(sizes).to(dtype) for sizes in made]


def adding(graph):
    """The products that something is added to."""
    for node in graph.find_nodes(op="call_function", target=aten.baddbmm.default):
        if node.kwargs.get("beta", 1) != 0:
            yield node


def parted(function, *values):
    module = make_fx(function, tracing_mode="fake")(*values)
    times = products.part(module.graph)
    module.graph.lint()
    module.recompile()
    return module, times


@pytest.mark.parametrize("alpha", [1, 0.125])
@pytest.mark.parametrize("added", [(HEADS, 1, LENGTH), (1, LENGTH, LENGTH), (LENGTH,), (1, 1, 1)], ids=str)
def test_the_product_is_by_itself(added, alpha):
    values = operands(added=added)
    module, times = parted(lambda a, x, y: torch.baddbmm(a, x, y, alpha=alpha), *values)
    assert times == 1 and not list(adding(module.graph))
    found, wanted = module(*values), torch.baddbmm(*values, alpha=alpha)
    assert (found.shape, found.stride()) == (wanted.shape, wanted.stride())
    assert relative(found, wanted) < 1e-6


@pytest.mark.parametrize(
    "function",
    [
        lambda a, x, y: torch.baddbmm(a.expand(HEADS, LENGTH, LENGTH).contiguous(), x, y),
        lambda a, x, y: torch.baddbmm(a, x, y, beta=0.5),
        lambda a, x, y: torch.baddbmm(a, x, y, beta=0),
    ],
    ids=["as large", "another factor", "nothing"],
)
def test_others_stay(function):
    values = operands()
    module, times = parted(function, *values)
    assert not times and torch.equal(module(*values), function(*values))


def test_an_expanded_one_is_repeated():
    values = operands()
    function = lambda a, x, y: torch.baddbmm(a.expand(HEADS, LENGTH, LENGTH), x, y)  # noqa: E731
    module, times = parted(function, *values)
    assert times == 1 and relative(module(*values), function(*values)) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_product_that_its_factor_brings_into_range(dtype):
    values = [torch.randn(HEADS, 1, LENGTH).to(dtype), *((200 * each).to(dtype) for each in operands()[1:])]
    module, times = parted(lambda a, x, y: torch.baddbmm(a, x, y, alpha=0.01), *values)
    found, wanted = module(*values), torch.baddbmm(*(each.double() for each in values), alpha=0.01)
    assert times == 1 and (wanted / 0.01).abs().max() > torch.finfo(torch.float16).max
    assert found.isfinite().all() and relative(found, wanted) < 2 * torch.finfo(dtype).eps


class Biased(torch.nn.Module):
    """Attention with a bias for each key."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.baddbmm(bias, self.query(x), self.key(x).transpose(1, 2), alpha=0.3).softmax(-1) @ x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
def test_values_and_gradients(dtype, dynamic, ran, device):
    module = Biased().to(device, dtype)
    call = torch.compile(module, backend="cermet", dynamic=dynamic)
    for heads, length in [(6, 24), (4, 40), (7, 17)] if dynamic else [(6, 24)]:
        x, bias = torch.randn(heads, length, WIDTH, device=device), 8 * torch.randn(heads, 1, length, device=device)
        cotangent = torch.randn_like(x).to(dtype)
        assert_gradients_are_near(module, call, [x.to(dtype), bias.to(dtype)], cotangent)
    assert not any(node for graph in ran for node in adding(graph))
