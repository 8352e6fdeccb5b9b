"""Calls on turned matrices are turned behind them, and give what they gave; so is the largest of all elements."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from cermet.remainder.aten.turning import turn

ROWS, COLUMNS = 48, 64
E4M3 = torch.float8_e4m3fn


def turned(function, *inputs, mode="fake"):
    """How many calls were written otherwise, and how many calls of each name there are."""
    graph = make_fx(function, tracing_mode=mode)(*inputs)
    times = turn(graph.graph)
    graph.graph.lint()
    graph.recompile()
    mine, theirs = graph(*inputs), function(*inputs)
    assert mine.dtype == theirs.dtype and mine.shape == theirs.shape and mine.stride() == theirs.stride()
    torch.testing.assert_close(mine.float(), theirs.float(), rtol=0, atol=0, equal_nan=True)
    made = graph.graph.output_node().args[0].meta["val"]
    assert (made.dtype, made.shape, made.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
    for node in graph.graph.nodes:  # nothing but views reads a turned matrix where all was turned
        value = node.meta.get("val")
        if times and node.op == "call_function" and len(value.shape) == 2 and not node.target.is_view:
            assert value.is_contiguous()
    return times, Counter(str(node.target).removeprefix("aten.") for node in graph.graph.nodes)


def matrix(dtype=torch.bfloat16):
    return torch.randn(ROWS, COLUMNS).to(dtype)


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("turn_by", [lambda x: x.t(), lambda x: x.transpose(0, 1), lambda x: x.permute(1, 0)])
def test_a_matrix_is_scaled_and_cast(turn_by, mode):
    scale = torch.tensor(3.0)
    times, calls = turned(lambda x, s: (turn_by(x).float() * s).clamp(-448, 448).to(E4M3), matrix(), scale, mode=mode)
    assert times == 4 and calls["t.default"] == 1


VECTORS = {
    "of rows": lambda: torch.randn(COLUMNS, 1),
    "of columns": lambda: torch.randn(1, ROWS),
    "of columns, without a dimension of one": lambda: torch.randn(ROWS),
    "one number in a matrix": lambda: torch.randn(1, 1),
}


@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_is_turned_with_a_matrix(name):
    assert turned(lambda x, s: x.t() * s, matrix(torch.float32), VECTORS[name]())[0] == 1


def test_matrices_that_are_all_turned():
    assert turned(lambda x, y: torch.where(x.t() > 0, x.t(), y.t()), matrix(), matrix())[0] == 2


STAYS = {
    "one that is not turned": (lambda x, y: x.t() + y.t().contiguous(), matrix),
    "rows of which some are left out": (lambda x, y: x[:, :32].t().exp(), matrix),
    "what is drawn": (lambda x, y: torch.ops.aten.bernoulli.p(x.t(), 0.0), matrix),
    "a batch": (lambda x, y: x.view(2, -1, COLUMNS).transpose(1, 2).exp(), matrix),
    "a copy that says how it lies": (
        lambda x, y: torch.ops.aten._to_copy(x.t(), dtype=torch.float32, memory_format=torch.contiguous_format), matrix
    ),
    "the largest of few": (lambda x, y: x[:, :8].contiguous().max(), matrix),
    "the largest of a row": (lambda x, y: x[0].max(), matrix),
    "the largest of integers": (lambda x, y: x.max(), lambda: torch.randint(9, (ROWS, COLUMNS))),
}  # fmt: skip


@pytest.mark.parametrize("name", STAYS)
def test_what_stays(name):
    function, make = STAYS[name]
    assert turned(function, make(), make())[0] == 0


@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("largest", [torch.max, torch.min])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_largest_of_all(dtype, largest, nan):
    x = matrix(dtype)
    x[7, 5] = float("nan") if nan else 100
    name = largest.__name__
    for function in (lambda x: largest(x.abs()), lambda x: largest(x.t().abs())):
        _, calls = turned(function, x)
        assert calls[f"a{name}.default"] == calls[f"{name}.default"] == 1 and calls["t.default"] == 0
    assert turned(lambda x: largest(x.view(2, 2, -1, COLUMNS).abs()), x)[1][f"a{name}.default"] == 1


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1, -2])
def test_the_largest_of_each_column(dim, keepdim):
    times, calls = turned(lambda x: x.t().abs().amax(dim, keepdim), matrix())
    assert times == 2 and calls["t.default"] == 0
