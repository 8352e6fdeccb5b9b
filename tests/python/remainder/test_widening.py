"""Copies between memory orders that move sixteen bytes at a time: the same bytes, and only where rows allow it."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from cermet.remainder import direct
from cermet.remainder.aten.wide_copies import widen

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


def made(x):
    """The same bits in memory that the graph allocates."""
    return torch.cat([x[:1], x[1:]])


def row_major(x):
    return x.clone(memory_format=torch.contiguous_format)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int64, torch.uint8, torch.bool])
def test_a_slice(dtype):
    x = torch.randint(2, (ROWS, COLUMNS)).to(dtype)
    x[0, :3] = -1  # NaN's and other bits are no matter of arithmetic
    assert widened(lambda x: row_major(made(x)[:, 512:1024]), x) == (dtype.itemsize * 512 * ROWS >= 1 << 20)


def test_heads_that_are_transposed():
    x = torch.randn(2, ROWS, 32, 24).bfloat16()
    assert widened(lambda x: row_major(made(x).transpose(1, 2)), x) == 1


def test_a_piece_of_a_split_reshape():
    x = torch.randn(ROWS, COLUMNS).bfloat16()
    assert widened(lambda x: row_major(torch.ops.aten._unsafe_view(made(x), (2, -1, COLUMNS)).split(768, -1)[1]), x) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: row_major(made(x)[:, 1:513]),  # a base in the middle of sixteen bytes
        lambda x: row_major(made(x)[:, :500]),  # rows that end there
        lambda x: row_major(made(x).reshape(-1, 2, 4)[:, 1]),  # rows of eight bytes
        lambda x: row_major(made(x).t()),
        lambda x: row_major(made(x)[:, ::2]),
        lambda x: row_major(made(x)[:8, :512]),  # small
        lambda x: row_major(made(x)[:512]),  # row-major already
        lambda x: made(x)[:, :512].clone(),  # ATen chooses the order
        lambda x: row_major(x[:, :512]),  # memory of another's
        lambda x: row_major(x.mul_(1.0)[:, :512]),
    ],
)
def test_others_stay(function):
    assert widened(function, torch.randn(ROWS, COLUMNS).bfloat16()) == 0


def test_an_input_may_begin_in_the_middle_of_sixteen_bytes():
    """torch compiles once for both: no guard tells where an input begins."""
    call = torch.compile(lambda x: x.contiguous() * 2, backend="cermet", options={"remainder": "aot", "strict": True})
    x = torch.randn(ROWS, COLUMNS).bfloat16()
    for begin in (0, 1, 8):
        piece = x[:, begin : begin + 512]
        assert torch.equal(call(piece), piece * 2)


def test_a_symbolic_number_of_rows(monkeypatch):
    seen = []
    monkeypatch.setattr(direct, "widen", lambda graph: seen.append(widen(graph)))
    x = torch.randn(6, 256, 512).bfloat16()
    torch._dynamo.mark_dynamic(x, 0)
    call = torch.compile(lambda x: made(x)[:, :, :256].contiguous(), backend="cermet", options={"remainder": "aot"})
    assert torch.equal(call(x), x[:, :, :256])
    x = torch.randn(10, 256, 512).bfloat16()
    assert torch.equal(call(x), x[:, :, :256]) and seen == [1]
