"""What products give and a program joins is one launch, which reads the parts as they lie."""

from __future__ import annotations

import functools

import pytest
import torch
from truth import assert_gradients_are_near, relative

import graphs
from cermet.ops import regions
from cermet.remainder import joins

aten = torch.ops.aten
ROWS, LENGTH, HEADS, WIDTH = 2, 48, 4, 16
FORMS = ["rows", "heads"]  # how a program lays queries, keys and values of one product: behind one another, or by head


class Written(torch.nn.Module):
    """Attention that is written out, of one product's queries, keys and values."""

    def __init__(self, form: str, scale: float = 0.25) -> None:
        super().__init__()
        self.packed = torch.nn.Linear(HEADS * WIDTH, 3 * HEADS * WIDTH)
        self.form, self.scale = form, scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, _ = x.shape
        packed = self.packed(x)
        if self.form == "rows":
            parts = (each.view(rows, length, HEADS, WIDTH) for each in packed.chunk(3, -1))
        else:
            parts = packed.view(rows, length, HEADS, 3, WIDTH).unbind(3)
        q, k, v = (each.transpose(1, 2).reshape(rows * HEADS, length, WIDTH) for each in parts)
        weights = torch.baddbmm(torch.zeros(1, 1, length, dtype=x.dtype, device=x.device), q, k.transpose(1, 2),
                                alpha=self.scale).softmax(-1)
        made = torch.bmm(weights, v).view(rows, HEADS, length, WIDTH)
        return made.transpose(1, 2).reshape(rows, length, HEADS * WIDTH)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("form", FORMS)
def test_gradients_of_written_out_attention(form, dtype, dynamic, ran, device, monkeypatch):
    monkeypatch.setattr(joins, "SMALLEST", 0)
    module = Written(form).to(device, dtype)
    call = torch.compile(module, backend="cermet", dynamic=dynamic)
    for rows, length in [(2, 48), (3, 40), (5, 17)] if dynamic else [(2, 48)]:
        x, cotangent = (torch.randn(rows, length, HEADS * WIDTH, device=device).to(dtype) for _ in range(2))
        assert_gradients_are_near(module, call, [x], cotangent)
    assert len(ran) == 2
    assert aten.cat.default not in [node.target for node in ran[-1].nodes]


spelled = functools.partial(graphs.spelled, joins.spell)


def operands(length=256, dtype=torch.bfloat16):
    """Of the products of a backward: queries, the cotangent of scores, keys."""
    heads = ROWS * HEADS
    made = ((heads, length, WIDTH), (heads, length, length), (heads, length, WIDTH))
    return [torch.randn(sizes).to(dtype) for sizes in made]


def in_rows(product):
    by_head = product.view(ROWS, HEADS, -1, WIDTH).transpose(1, 2)
    return by_head.reshape(ROWS, by_head.shape[1], HEADS * WIDTH)


def one_behind_another(q, scores, k):
    keys = torch.bmm(q.transpose(1, 2), scores).view(ROWS, HEADS, WIDTH, -1).transpose(-1, -2).transpose(1, 2)
    return torch.cat([in_rows(torch.bmm(scores, k)), keys.reshape(ROWS, -1, HEADS * WIDTH)], 2)


def by_head(q, scores, k):
    queries = aten.mul.Scalar(torch.bmm(scores, k), 0.125).view(ROWS, HEADS, -1, WIDTH)
    keys = aten.mul.Scalar(torch.bmm(q.transpose(1, 2), scores), 0.125).transpose(-1, -2).view(ROWS, HEADS, -1, WIDTH)
    joined = torch.cat([each.transpose(1, 2).unsqueeze(3) for each in (queries, keys)], 3)
    return joined.view(joined.shape[0] * joined.shape[1], -1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", [one_behind_another, by_head])
def test_parts_are_read_as_they_lie(function, dtype):
    values = operands(dtype=dtype)
    module, keys = spelled(function, *values)
    called = [node.target for node in module.graph.nodes]
    assert len(keys) == 1 and called.count(aten.bmm.default) == 2
    assert not {aten.cat.default, aten.clone.default, aten.mul.Scalar} & set(called)
    found, wanted = module(*values), function(*values)
    assert (found.shape, found.stride(), found.dtype) == (wanted.shape, wanted.stride(), wanted.dtype)
    assert relative(found, wanted) <= (1e-6 if dtype == torch.float32 else 0)


def test_a_product_that_others_read_stays_as_it_is():
    """And so does a join of it, whose columns are apart."""

    def function(q, scores, k):
        keys = torch.bmm(q.transpose(1, 2), scores)
        by_head = keys.view(ROWS, HEADS, WIDTH, -1).transpose(-1, -2).transpose(1, 2)
        rows = by_head.reshape(ROWS, -1, HEADS * WIDTH)
        return torch.cat([in_rows(torch.bmm(scores, k)), rows], 2), keys

    values = operands()
    module, keys = spelled(function, *values)
    assert not keys and all(torch.equal(*each) for each in zip(module(*values), function(*values)))


@pytest.mark.parametrize(
    "function",
    [
        lambda q, s, k: torch.cat([torch.bmm(s, k), q], 2),
        lambda q, s, k: torch.cat([in_rows(torch.bmm(s, k)), in_rows(q.exp())], 2),
        lambda q, s, k: torch.cat([in_rows(torch.bmm(s, k)), in_rows(q)[..., :10]], 2),
        lambda q, s, k: torch.cat([in_rows(torch.bmm(s, k))] * 5, 2),
        lambda q, s, k: torch.cat([in_rows(torch.bmm(s, k)), in_rows(q)], 0),
        lambda q, s, k: torch.cat([s.view(ROWS, HEADS, -1, WIDTH), q.view(ROWS, -1, HEADS, WIDTH).transpose(1, 2)], 2),
    ],
    ids=["in rows already", "of what a kernel computes", "other columns", "many", "of batches", "behind many in rows"],
)
def test_other_joins_stay(function):
    values = operands()
    module, keys = spelled(function, *values)
    assert not keys and torch.equal(module(*values), function(*values))


@pytest.mark.parametrize("copied", [True, False])
def test_a_join_that_is_summed(copied):
    """The launch that sums its rows, too, has it unless parts would be copied for that."""

    def function(q, scores, k):
        part = torch.bmm(scores, k)
        rows = in_rows(part) if copied else part[:, 1:]
        joined = torch.cat([rows, rows], -1)
        return joined, joined.sum((0, 1))

    values = operands()
    module, keys = spelled(function, *values)
    assert bool(keys) == copied
    for mine, theirs in zip(module(*values), function(*values), strict=True):
        assert torch.equal(mine, theirs)


def test_what_is_small_stays():
    assert not spelled(one_behind_another, *operands(length=8))[1]


def test_a_factor_is_applied_once(monkeypatch):
    """Two factors in a row are two roundings: one of them stays a call."""
    values = operands()

    def function(q, scores, k):
        made = aten.mul.Scalar(aten.mul.Scalar(torch.bmm(scores, k), 0.3), 0.7)
        return torch.cat([in_rows(made), in_rows(torch.bmm(scores, q))], 2)

    module, keys = spelled(function, *values)
    assert torch.equal(module(*values), function(*values))
    assert [regions.launched(node) is not None for node in module.graph.nodes].count(True) == len(keys)
