"""Copies between memory orders that move sixteen bytes at a time: the same bytes, and only where rows allow it."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from cermet import direct
from cermet.widening import widen

ROWS, COLUMNS = 1024, 3 * 512


def widened(function, x):
    graph = make_fx(function, tracing_mode="fake")(x)
    times = widen(graph.graph)
    graph.graph.lint()
    graph.recompile()
    mine, theirs = graph(x), function(x)
    assert mine.dtype == theirs.dtype and mine.stride() == theirs.stride()
    assert torch.equal(mine.view(torch.uint8), theirs.view(torch.uint8))
    made = graph.graph.output_node().args[0].meta["val"]
    assert made.shape == theirs.shape and made.stride() == theirs.stride() and made.dtype == theirs.dtype
    return times


def row_major(x):
    return x.clone(memory_format=torch.contiguous_format)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int64, torch.uint8, torch.bool])
def test_a_slice(dtype):
    x = torch.randint(2, (ROWS, COLUMNS)).to(dtype)
    x[0, :3] = -1  # NaN's and other bits are no matter of arithmetic
    assert widened(lambda x: row_major(x[:, 512:1024]), x) == (dtype.itemsize * 512 * ROWS >= 1 << 20)


def test_heads_that_are_transposed():
    x = torch.randn(2, ROWS, 32, 24).bfloat16()
    assert widened(lambda x: row_major(x.transpose(1, 2)), x) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: row_major(x[:, 1:513]),  # a base in the middle of sixteen bytes
        lambda x: row_major(x[:, :500]),  # rows that end there
        lambda x: row_major(x.reshape(-1, 2, 4)[:, 1]),  # rows of eight bytes
        lambda x: row_major(x.t()),
        lambda x: row_major(x[:, ::2]),
        lambda x: row_major(x[:8, :512]),  # small
        lambda x: row_major(x[:512]),  # row-major already
        lambda x: x[:, :512].clone(),  # ATen chooses the order
    ],
)
def test_others_stay(function):
    assert widened(function, torch.randn(ROWS, COLUMNS).bfloat16()) == 0


def test_a_symbolic_number_of_rows(monkeypatch):
    seen = []
    monkeypatch.setattr(direct, "widen", lambda graph: seen.append(widen(graph)))
    x = torch.randn(6, 256, 512).bfloat16()
    torch._dynamo.mark_dynamic(x, 0)
    call = torch.compile(lambda x: x[:, :, :256].contiguous(), backend="cermet", options={"remainder": "aot"})
    assert torch.equal(call(x), x[:, :, :256])
    x = torch.randn(10, 256, 512).bfloat16()
    assert torch.equal(call(x), x[:, :, :256]) and seen == [1]
