"""Zeros around what a convolution reads are its own padding."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from cermet.remainder.aten import padding

_aten = torch.ops.aten


def operands():
    torch.manual_seed(0)
    return torch.randn(2, 4, 9, 8, dtype=torch.float64), torch.randn(6, 4, 3, 3, dtype=torch.float64)


def rewritten(function, expected):
    given = operands()
    module = make_fx(function, tracing_mode="fake")(*given)
    assert padding.absorb(module.graph) == expected
    module.graph.lint()
    module.recompile()
    for mine, theirs in zip(module(*given), function(*given), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)
    return sum(node.target is _aten.constant_pad_nd.default for node in module.graph.nodes)


def convolution(x, weight, own=(0, 1)):
    return _aten.convolution(x, weight, None, [1, 2], list(own), [1, 1], False, [0, 0], 1)


def with_gradients(sides, cut=None, value=0.0):
    def function(x, weight):
        padded = F.pad(x, sides, value=value)
        y = convolution(padded, weight)
        gradients = _aten.convolution_backward(
            y, padded, weight, [0], [1, 2], [0, 1], [1, 1], False, [0, 0], 1, [True, True, False]
        )
        return y, F.pad(gradients[0], [-side for side in cut or sides]), gradients[1]

    return function


@pytest.mark.parametrize("sides", [(1, 1, 2, 2), (1, 1), (0, 0, 1, 1), (2, 2, 0, 0)])
def test_both_directions(sides):
    assert rewritten(with_gradients(sides), 3) == 0


def test_a_compiled_convolution_pads_by_itself(ran):
    layer = torch.nn.Conv2d(4, 6, 3).double()
    function = lambda x: layer(F.pad(x, (1, 1, 2, 2)))  # noqa: E731
    call = torch.compile(function, backend="cermet", options={"remainder": "aot", "strict": True})
    x = operands()[0].requires_grad_()
    mine, theirs = (torch.autograd.grad(each(x).exp().sum(), [x, layer.weight]) for each in (call, function))
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)
    assert len(ran) == 2 and not any(node.target is _aten.constant_pad_nd.default for each in ran for node in each.nodes)


@pytest.mark.parametrize("sides", [(0, 1, 0, 1), (-1, -1, 1, 1)])
def test_sides_that_differ_stay(sides):
    assert rewritten(with_gradients(sides), 0) == 2


def test_another_number_stays():
    assert rewritten(with_gradients((1, 1, 1, 1), value=1.0), 0) == 2


def test_a_gradient_of_which_less_is_read_stays():
    assert rewritten(with_gradients((2, 2, 2, 2), (2, 2, 2, 1)), 1) == 2


def test_what_others_read_too_is_written():
    def function(x, weight):
        padded = F.pad(x, (1, 1, 1, 1))
        return convolution(padded, weight), padded.exp()

    assert rewritten(function, 1) == 1


@pytest.mark.parametrize("turned", [True, False])
def test_what_symbols_cut_lies_in_rows(turned):
    """A gradient of a pad by a symbol cuts, and what ATen cuts lies as it did; torch traces a pad's result."""

    def function(x, length):
        y = x.transpose(1, 2) if turned else x
        cut = _aten.constant_pad_nd(y + 1, [0, 0, 0, 0, 0, -length.shape[0]])
        return cut.view(cut.shape[0], cut.shape[1], 32)

    given = torch.randn(2, 4, 9, 8) if turned else torch.randn(2, 9, 4, 8)
    module = make_fx(function, tracing_mode="symbolic")(given, torch.zeros(5))
    assert padding.settle(module.graph) == turned
    module.graph.lint()
    module.recompile()
    x = given.transpose(1, 2) if turned else given
    for cut in (5, 3):
        assert torch.equal(module(given, torch.zeros(cut)), (x + 1)[:, : 9 - cut].reshape(2, -1, 32))


def test_known_cuts_stay():
    module = make_fx(lambda x: F.pad(x.transpose(1, 2) + 1, [0, 0, 0, -2]), tracing_mode="symbolic")(operands()[0])
    assert not padding.settle(module.graph)


def test_a_compiled_gradient_of_a_pad_by_a_symbol():
    """What attention in blocks does: rows are padded to whole blocks, and their heads turned."""
    torch.manual_seed(0)
    module = torch.nn.Linear(32, 32)

    def function(x):
        heads = module(x).view(x.shape[0], -1, 4, 8)
        blocks = F.pad(heads, (0, 0, 0, 0, 0, -heads.shape[1] % 16)).transpose(1, 2)
        return blocks @ blocks.transpose(-1, -2)

    call = torch.compile(function, backend="cermet", dynamic=True)
    for length in (21, 13, 33):
        x, gradients = torch.randn(2, length, 32), []
        for each in (call, function):
            module.zero_grad()
            each(x).sin().sum().backward()
            gradients.append(module.weight.grad.clone())
        torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
