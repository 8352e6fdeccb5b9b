"""Pads of whole rows are one launch, and what cuts them off again is a slice."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F

import graphs
from cermet.ops import regions
from cermet.remainder import pads

aten = torch.ops.aten
spelled = functools.partial(graphs.spelled, pads.spell)


def image(dtype=torch.bfloat16):
    return (torch.randn(4, 28, 28, 96) * 50).to(dtype)


SIDES = [(0, 0, 0, 1, 0, 1), (0, 0, 2, 1), (0, 0, 0, 0, 3, 0), (0, 0, 1, 0, 1, 0), (0, 0, 0, 1, 0, 0, 1, 0)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64])
@pytest.mark.parametrize("sides", SIDES, ids=str)
@pytest.mark.parametrize("fill", [0.0, 3.0])
def test_it_is_one_launch(sides, fill, dtype):
    x = image(dtype)
    module, keys = spelled(lambda x: F.pad(x, sides, value=fill), x)
    called = [node.target for node in module.graph.nodes]
    assert len(keys) == 1 and aten.constant_pad_nd.default not in called
    found, wanted = module(x), F.pad(x, sides, value=fill)
    assert torch.equal(found, wanted) and found.stride() == wanted.stride()


@pytest.mark.parametrize(("dtype", "fill"), [(torch.float32, float("-inf")), (torch.bool, True), (torch.uint8, 3)])
def test_it_is_filled_with_what_the_type_has(dtype, fill):
    x = image().to(dtype)
    module, keys = spelled(lambda x: F.pad(x, SIDES[0], value=fill), x)
    found, wanted = module(x), F.pad(x, SIDES[0], value=fill)
    assert len(keys) == 1 and found.dtype == dtype and torch.equal(found, wanted)


def test_what_is_filled_with_a_symbol_stays():
    def function(x, fill):
        return F.pad(x * 2, SIDES[0], value=fill) + 1

    call = torch.compile(function, backend="cermet", dynamic=True, options={"remainder": "aot", "strict": True})
    for fill in (0.5, 1.5, 2.5):
        x = image(torch.float32)
        torch._dynamo.mark_static(x)
        assert torch.equal(call(x, fill), function(x, fill))


@pytest.mark.parametrize("of", [lambda x: x.transpose(1, 2), lambda x: x[:, 2:], lambda x: x[..., :64]],
                         ids=["turned", "rows of it", "columns of it"])  # fmt: skip
def test_it_is_read_as_it_lies(of):
    x = image()
    function = lambda x: F.pad(of(x), (0, 0, 0, 1, 1, 0))  # noqa: E731
    module, keys = spelled(function, x)
    found, wanted = module(x), function(x)
    assert torch.equal(found, wanted) and found.stride() == wanted.stride()
    assert len(keys) == 1 or wanted.stride() != torch.empty(wanted.shape).stride()


@pytest.mark.parametrize("sides", [(0, 0, 0, -1, 0, -1), (0, 0, -2, -1), (0, 0, 0, 0, -3, 0)], ids=str)
def test_what_is_cut_is_a_slice(sides):
    x = image()
    module, keys = spelled(lambda x: F.pad(x, sides), x)
    called = [node.target for node in module.graph.nodes]
    assert not keys and aten.constant_pad_nd.default not in called and aten.slice.Tensor in called
    found, wanted = module(x), F.pad(x, sides)
    assert torch.equal(found, wanted) and found.stride() == wanted.stride()


@pytest.mark.parametrize(
    "sides", [(1, 0), (0, 1, 0, 1), (0, 0, 1, -1), (0, 0, 1, 1, 1, 1)], ids=["columns", "both", "cut", "all around"]
)
def test_other_pads_stay(sides):
    x = image()
    module, keys = spelled(lambda x: F.pad(x, sides), x)
    assert not keys and torch.equal(module(x), F.pad(x, sides))
    assert aten.constant_pad_nd.default in [node.target for node in module.graph.nodes]


def test_what_is_small_stays():
    assert not spelled(lambda x: F.pad(x, (0, 0, 1, 0)), torch.randn(1, 4, 4, 8))[1]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
def test_forward_and_backward(dynamic, ran, device):
    """What is computed before is stored where the padded tensor has it, and the gradient is read where it lies."""
    function = lambda x: F.pad(torch.relu(x * 2), (0, 0, 0, 1, 0, 1)).sin()  # noqa: E731
    whole = lambda x: function(x).unflatten(-1, (3, 32)).transpose(1, 3)  # noqa: E731
    call = torch.compile(whole, backend="cermet", dynamic=dynamic)
    for batch in (4, 6, 3) if dynamic else (4,):
        x = torch.randn(batch, 28, 28, 96, device=device, requires_grad=True)
        other = x.detach().clone().requires_grad_()
        if dynamic:
            torch._dynamo.mark_static(x, (1, 2, 3))
        made, wanted = call(x), whole(other)
        cotangent = torch.randn_like(wanted)
        torch.autograd.backward([made, wanted], [cotangent, cotangent])
        torch.testing.assert_close(made, wanted, atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(x.grad, other.grad, atol=1e-5, rtol=1e-5)
    for graph in ran:
        called = [node.target for node in graph.nodes]
        assert aten.constant_pad_nd.default not in called
        assert sum(regions.launched(node) is not None for node in graph.nodes) >= 1
