"""Rolls are one launch, which moves each part at once."""

from __future__ import annotations

import functools

import pytest
import torch

import graphs
from cermet.ops import regions
from cermet.remainder import rolls

aten = torch.ops.aten
spelled = functools.partial(graphs.spelled, rolls.spell)


def image(dtype=torch.bfloat16):
    return (torch.randn(4, 28, 28, 96) * 50).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64])
@pytest.mark.parametrize(
    ("shifts", "dims"),
    [
        ((-3, -3), (1, 2)),
        ((3, 3), (1, 2)),
        ((2, 5), (2, 1)),
        ((31, -31), (1, 2)),
        ((3, 28), (1, 2)),
        ((3,), (-2,)),
        ((3, 5), (2, 0)),
        ((1,), (0,)),
    ],
    ids=str,
)
def test_it_is_one_launch(shifts, dims, dtype):
    x = image(dtype)
    module, keys = spelled(lambda x: torch.roll(x, shifts, dims), x)
    called = [node.target for node in module.graph.nodes]
    assert len(keys) == 1 and aten.roll.default not in called
    found, wanted = module(x), torch.roll(x, shifts, dims)
    assert torch.equal(found, wanted) and found.stride() == wanted.stride()


@pytest.mark.parametrize("of", [lambda x: x.transpose(1, 2), lambda x: x[:, 2:], lambda x: x[..., :64]],
                         ids=["turned", "rows of it", "columns of it"])  # fmt: skip
def test_it_is_read_as_it_lies(of):
    x = image()
    function = lambda x: torch.roll(of(x), (3, 4), (1, 2))  # noqa: E731
    module, keys = spelled(function, x)
    found, wanted = module(x), function(x)
    assert len(keys) == 1 and torch.equal(found, wanted) and found.stride() == wanted.stride()


@pytest.mark.parametrize(
    ("shifts", "dims"),
    [((3,), (3,)), (5, ()), ((3, 4, 5), (0, 1, 2)), ((0, 28), (1, 2)), ((3, 4), (1, 1))],
    ids=["columns", "all elements", "three dimensions", "nowhere", "one twice"],
)
def test_other_rolls_stay(shifts, dims):
    x = image()
    module, keys = spelled(lambda x: torch.roll(x, shifts, dims), x)
    assert not keys and torch.equal(module(x), torch.roll(x, shifts, dims))


def test_what_is_small_stays():
    assert not spelled(lambda x: torch.roll(x, (1, 1), (1, 2)), torch.randn(1, 4, 4, 8))[1]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
def test_forward_and_backward(dynamic, ran, device):
    call = torch.compile(lambda x: torch.roll(x * 2, (-3, -3), (1, 2)).sin(), backend="cermet", dynamic=dynamic)
    for batch in (4, 6, 3) if dynamic else (4,):
        x = torch.randn(batch, 28, 28, 96, device=device, requires_grad=True)
        if dynamic:
            torch._dynamo.mark_static(x, (1, 2, 3))
        made = call(x)
        made.sum().backward()
        assert torch.allclose(made, torch.roll(x * 2, (-3, -3), (1, 2)).sin(), atol=1e-6)
        wanted = 2 * torch.roll(torch.roll(x * 2, (-3, -3), (1, 2)).cos(), (3, 3), (1, 2))
        assert torch.allclose(x.grad, wanted, atol=1e-5)
    for graph in ran:
        assert aten.roll.default not in [node.target for node in graph.nodes]
        assert any(regions.launched(node) is not None for node in graph.nodes)
