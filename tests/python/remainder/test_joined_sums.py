"""What attention's backward gives is joined by a launch that sums its rows, too."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from truth import assert_gradients_are_near, relative

import graphs
from cermet.ops import regions
from cermet.remainder import joined_sums

aten = torch.ops.aten
WIDTH, HEADS = 64, 4


class Attention(torch.nn.Module):
    """Queries, keys and values out of one product."""

    def __init__(self) -> None:
        super().__init__()
        self.packed = torch.nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        parts = self.packed(x).split(WIDTH, -1)
        q, k, v = (part.view(rows, length, HEADS, -1).transpose(1, 2) for part in parts)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(rows, length, WIDTH)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_packed_products_gradient_is_joined_with_its_sums(dtype, dynamic, ran, device):
    module = Attention().to(device, dtype)
    call = torch.compile(module, backend="cermet", dynamic=dynamic)
    for rows, length in [(3, 17), (2, 40), (5, 9)] if dynamic else [(3, 17)]:
        x, cotangent = (torch.randn(rows, length, WIDTH, device=device).to(dtype) for _ in range(2))
        assert_gradients_are_near(module, call, [x], cotangent)
    assert len(ran) == 2
    called = [node.target for node in ran[-1].nodes]
    assert aten.cat.default not in called and aten.sum.dim_IntList not in called
    assert [regions.launched(node) is not None for node in ran[-1].nodes].count(True) == 1


spelled = functools.partial(graphs.spelled, joined_sums.spell)


def rows_of(*sizes: int, dtype=torch.float32, dims=(5, 7)) -> list[torch.Tensor]:
    return [torch.randn(*dims, size).to(dtype) for size in sizes]


def every_sum(*parts):
    whole = torch.cat(parts, -1)
    matrix = whole.view(-1, whole.shape[-1])
    return whole, whole.sum((0, 1)), whole.sum((-3, -2), keepdim=True), matrix.sum(0), matrix.sum(0, True), matrix


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("sizes", [(1, 2), (64, 64, 64), (3, 130, 7, 1), (9,)], ids=str)
def test_each_sum_over_all_rows_is_the_launchs(sizes, dtype):
    parts = rows_of(*sizes, dtype=dtype)
    module, keys = spelled(every_sum, *parts)
    called = {node.target for node in module.graph.nodes}
    assert len(keys) == 1 and called.isdisjoint({aten.cat.default, aten.sum.dim_IntList})
    found, wanted = module(*parts), every_sum(*(part.double() for part in parts))
    assert torch.equal(found[0], torch.cat(parts, -1)) and torch.equal(found[5], wanted[5].to(dtype))
    for mine, eager, truth in zip(found[1:5], every_sum(*parts)[1:5], wanted[1:5], strict=True):
        assert (mine.shape, mine.dtype, mine.stride()) == (eager.shape, eager.dtype, eager.stride())
        assert relative(mine, truth) <= 2 * relative(eager, truth) + torch.finfo(dtype).eps


def test_parts_that_lie_apart_are_read_as_they_lie():
    wide = torch.randn(5, 7, 200)
    parts = [wide[:, :, 3:67], wide[:, :, 70:90], torch.randn(7, 5, 64).transpose(0, 1)]
    module, keys = spelled(every_sum, *parts)
    assert len(keys) == 1 and torch.equal(module(*parts)[0], torch.cat(parts, -1))


def test_no_rows_sum_to_zero():
    parts = rows_of(8, 24, dims=(0, 7))
    module, _ = spelled(every_sum, *parts)
    assert module(*parts)[0].shape == (0, 7, 32) and not module(*parts)[1].any()


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: torch.cat([a, b], -1),
        lambda a, b: torch.cat([a, b], -1).sum(0),
        lambda a, b: torch.cat([a, b], -1).sum((0, 2)),
        lambda a, b: torch.cat([a, a], 1).sum((0, 1)),
        lambda a, b: torch.cat([a, b], -1).sum((0, 1), dtype=torch.float64),
        lambda a, b: torch.cat([a, b.exp()], -1).sum((0, 1)),  # which a kernel may store where the whole has it
        lambda a, b: torch.cat([a, b.transpose(1, 2)], -1).sum((0, 1)),
        lambda a, b: torch.cat([a, b, a, b, a], -1).sum((0, 1)),
    ],
    ids=["no sum", "some rows", "other sums", "rows are joined", "another type", "made by a kernel", "turned", "many"],
)
def test_what_is_no_such_join_stays(function):
    module, keys = spelled(function, *rows_of(7, 7))
    assert not keys and any(node.target is aten.cat.default for node in module.graph.nodes)


def test_doubles_stay():
    assert not spelled(every_sum, *rows_of(7, 7, dtype=torch.float64))[1]
