"""Cumulative sums are part of the kernels around them, forward and backward, and as near to float64 as eager's."""

from __future__ import annotations

import pytest
import torch
from test_clusters_behind_autograd import called, launches
from truth import EVERY_SEED, Float64, assert_none_is_far_from_eager, relative

import cermet

ROWS, COLUMNS = 96, 333


def top_p(x):
    chances = x.softmax(-1, dtype=torch.float32)
    return torch.where(chances.cumsum(-1) - chances > 0.9, 0.0, chances).to(x.dtype)


def positions(x):
    """Of a float mask."""
    return x * ((x > 0).to(x.dtype).cumsum(-1) - 1).clamp(min=0) / COLUMNS


def exclusive(x):
    y = x.tanh()
    return y.cumsum(-1) - y


def first_seven(x):
    return torch.where((x > 0).cumsum(-1) <= 7, x, x.exp())


def turned(x):
    return x.sigmoid().flip(-1).cumsum(-1).flip(-1) * x


def normed(x):
    y = x.cumsum(-1)
    return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1)


def step(function, x, dynamic=False) -> dict[str, torch.Tensor]:
    x = x.detach().clone().requires_grad_()
    if dynamic:
        torch._dynamo.mark_dynamic(x, 0)
    y = function(x)
    y.backward(torch.cos(x.detach() * 3))
    return {"y": y.detach(), "x": x.grad}


def left(graphs) -> set[str]:
    return {name for graph in graphs for name in called(graph) if "cumsum" in name or "flip" in name}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("function", [top_p, positions, exclusive, first_seven, turned, normed])
def test_none_is_left_to_aten(function, dtype, dynamic, device, ran):
    before = cermet.counters()
    call = torch.compile(function, backend="cermet", options={"remainder": "aot", "strict": True})
    ours, eager = {}, {}
    for seed in range(EVERY_SEED):
        torch.manual_seed(seed)
        x = torch.randn(ROWS + seed * dynamic, COLUMNS).to(device, dtype)
        with Float64():
            truth = step(function, x.double())
        for errors, which in ((ours, call), (eager, function)):
            for name, value in step(which, x, dynamic).items():
                errors.setdefault(name, []).append(relative(value, truth[name]))
    assert_none_is_far_from_eager(ours, eager, dtype)
    after = cermet.counters()
    assert after["regions"] + after["clusters"] > before["regions"] + before["clusters"]
    assert after["fallbacks"] == before["fallbacks"]
    assert len(ran) == 2 and not left(ran), [called(graph) for graph in ran]


@pytest.mark.parametrize("rows, columns", [(512, 1024), (9, 70001)])
def test_a_large_one_alone_is_a_kernel_and_so_is_its_gradient(rows, columns, device, ran):
    call = torch.compile(lambda x: x.cumsum(-1), backend="cermet", options={"remainder": "aot", "strict": True})
    x = torch.randn(rows, columns, device=device, requires_grad=True)
    cotangent = torch.randn(rows, columns, device=device)
    y = call(x)
    (gradient,) = torch.autograd.grad(y, x, cotangent)
    for mine, given in ((y.detach(), x.detach()), (gradient.flip(-1), cotangent.flip(-1))):
        truth = given.double().cumsum(-1)
        errors = ({"sums": [relative(each, truth)]} for each in (mine, given.cumsum(-1)))
        assert_none_is_far_from_eager(*errors, torch.float32)
    assert not left(ran) and [launches(graph) for graph in ran] == [1, 1]


def test_integers_are_exact(device, ran):
    def counted(x, n):
        sums = n.cumsum(-1)
        return sums, torch.where(sums % 2 == 0, x.exp(), x.tanh())

    x, n = torch.randn(ROWS, COLUMNS, device=device), torch.randint(-(1 << 31), 1 << 31, (ROWS, COLUMNS), device=device)
    call = torch.compile(counted, backend="cermet", options={"remainder": "aot", "strict": True})
    for numbers in (n, n.int(), n * (1 << 31)):
        assert torch.equal(call(x, numbers)[0], numbers.cumsum(-1))


def test_columns_may_lie_apart(device, ran):
    call = torch.compile(lambda x: x.exp().cumsum(-1).tanh(), backend="cermet", options={"remainder": "aot", "strict": True})
    x = (torch.randn(COLUMNS, ROWS, device=device) - 4).mT
    assert relative(call(x), x.double().exp().cumsum(-1).tanh()) < 1e-6
    assert not left(ran)


@pytest.mark.parametrize("at", [0, 200, COLUMNS - 1])
@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_what_is_no_number_reaches_the_columns_behind_it(number, at, device):
    call = torch.compile(lambda x: (x * 2).cumsum(-1) + 1, backend="cermet", options={"remainder": "aot", "strict": True})
    x = torch.randn(ROWS, COLUMNS, device=device)
    x[5, at] = number
    finite = torch.ones_like(x, dtype=torch.bool)
    finite[5, at:] = False
    assert torch.equal(call(x).isfinite(), finite)


@pytest.mark.parametrize("given", ["another dimension", "a symbolic number of columns", "columns beyond a kernel's", "one row"])
def test_what_is_left_to_aten_is_told_why(given, ran):
    dim = 0 if given == "another dimension" else -1
    shape = {"columns beyond a kernel's": (8, 1 << 19), "one row": (1, 1 << 15)}.get(given, (ROWS, COLUMNS))

    def function(x):
        return x.exp().cumsum(dim).tanh() * x

    x = torch.randn(shape, dtype=torch.float32)
    if given == "a symbolic number of columns":
        torch._dynamo.mark_dynamic(x, 1)
    reasons = {
        "another dimension": "dimension 0 of rank 2, expected the last",
        "a symbolic number of columns": "a cumulative sum of a symbolic number of columns",
        "one row": "a cumulative sum of 32768 columns of one row, expected at most 16384",
        "columns beyond a kernel's": "a cumulative sum of 524288 columns, expected at most 262144",
    }
    call = torch.compile(function, backend="cermet", options={"remainder": "aot", "strict": True})
    assert relative(call(x), function(x.double())) < 1e-5
    assert left(ran) == {"aten.cumsum.default"}
    misses = cermet.explain(function, x).near_misses
    assert reasons[given] in {miss.condition for miss in misses}, misses
