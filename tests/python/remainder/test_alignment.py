"""Products of odd widths on padded operands: the same numbers, dense results, and only where they gain."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import truth
from cermet.remainder import direct
from cermet.remainder.aten import alignment

CPU = frozenset({"cpu"})  # what a test has; no product of a CPU is padded otherwise
aten = torch.ops.aten
M, K, N = 2048, 1024, 1999


def aligned(function, *args):
    """What the padded graph returns, whose strides and shapes are those of the graph before, and how many it padded."""
    graph = make_fx(function, tracing_mode="fake")(*args)
    times = alignment.align(graph.graph, CPU)
    graph.graph.lint()
    graph.recompile()
    mine, theirs = graph(*args), function(*args)
    for one, other, node in zip(mine, theirs, graph.graph.output_node().args[0]):
        assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)
        assert node.meta["val"].stride()[-1] == 1
    return mine, times, [node.target for node in graph.graph.nodes if node.op == "call_function"]


def matrix(rows, columns, dtype=torch.bfloat16, seed=0):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def check(function, *args, times):
    mine, padded, targets = aligned(function, *args)
    true, eager = function(*(arg.double() for arg in args)), function(*args)
    assert padded == times
    for value, other, exact in zip(mine, eager, true):
        assert truth.relative(value, exact) <= 2 * truth.relative(other, exact) + truth.spacing(value.dtype)
    return targets


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_forward_product(dtype):
    x, weight = matrix(M, K, dtype), matrix(N, K, dtype, 1)
    targets = check(lambda x, weight: (torch.mm(x, weight.t()),), x, weight, times=1)
    assert targets.count(aten.constant_pad_nd.default) == 1 and aten.clone.default in targets


def test_a_bias():
    x, weight, bias = matrix(M, K), matrix(N, K, seed=1), matrix(1, N, seed=2)[0]
    check(lambda x, weight, bias: (torch.addmm(bias, x, weight.t()),), x, weight, bias, times=1)


def test_both_gradients_share_one_copy():
    g, x, weight = matrix(M, N), matrix(M, K, seed=1), matrix(N, K, seed=2)
    targets = check(lambda g, x, weight: (torch.mm(g, weight), torch.mm(g.t(), x)), g, x, weight, times=2)
    assert targets.count(aten.constant_pad_nd.default) == 2  # of g and of the weight


def test_what_a_kernel_reads_is_not_copied():
    def loss(x, weight):
        logits = torch.mm(x, weight.t()).view(2, M // 2, N)
        return (torch.log_softmax(logits.float(), -1).sum(-1),)

    assert aten.clone.default not in check(loss, matrix(M, K), matrix(N, K, seed=1), times=1)


def test_a_view_that_needs_dense_memory_gets_a_copy():
    targets = check(lambda x, weight: (torch.mm(x, weight.t()).view(-1) * 2,), matrix(M, K), matrix(N, K, seed=1), times=1)
    assert aten.clone.default in targets


def test_numbers_that_are_not_finite_stay_where_they_were():
    x, weight = matrix(M, K), matrix(N, K, seed=1)
    x[3] = float("nan")
    x[5, 7] = float("inf")
    function = lambda x, weight: (torch.mm(x, weight.t()),)
    (mine,), _, _ = aligned(function, x, weight)
    assert torch.equal(mine.isfinite(), function(x, weight)[0].isfinite())


@pytest.mark.parametrize("dynamic", [False, True])
def test_logits_of_sequences_that_a_loss_reads(monkeypatch, dynamic):
    """Behind the product stand views whose sizes are symbols."""
    padded = []
    monkeypatch.setattr(direct, "align", lambda graph: padded.append(alignment.align(graph, CPU)))
    weight = matrix(N, K, seed=1).requires_grad_()

    def loss(x, weight):
        logits = torch.nn.functional.linear(x, weight)
        return (logits.tanh() * logits.sigmoid()).float().mean()

    call = torch.compile(loss, backend="cermet", options={"remainder": "aot", "strict": True})
    for length in (M // 2, M // 2 + 3, M // 2 + 8) if dynamic else (M // 2,):
        x = matrix(2 * length, K).view(2, length, K).requires_grad_()
        if dynamic:
            torch._dynamo.mark_dynamic(x, 1)
        gradients = torch.autograd.grad(call(x, weight), (x, weight))
        wide = [value.detach().double().requires_grad_() for value in (x, weight)]
        for mine, theirs in zip(gradients, torch.autograd.grad(loss(*wide), wide)):
            assert truth.relative(mine, theirs) < 2**-6
    assert padded == [1, 2]


@pytest.mark.parametrize(
    "shapes",
    [
        ((M, K), (K, 2000)),  # whole pieces
        ((M - 1, K), (K, 2000)),  # nobody's memory runs along the rows
        ((M, 3), (3, N)),  # the copies cost as much
    ],
)
def test_others_stay(shapes):
    check(lambda a, b: (torch.mm(a, b),), *(matrix(*shape, seed=seed) for seed, shape in enumerate(shapes)), times=0)


def test_wide_numbers_stay():
    x, weight = matrix(M, K, torch.float32), matrix(N, K, torch.float32, 1)
    assert aligned(lambda x, weight: (torch.mm(x, weight.t()),), x, weight)[1] == 0


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_compiled_layer(monkeypatch, dynamic):
    """Forward and backward, returned logits and lengths that vary: one graph pads for all of them."""
    padded = []
    monkeypatch.setattr(direct, "align", lambda graph: padded.append(alignment.align(graph, CPU)))
    weight = matrix(N, K, seed=1).requires_grad_()
    call = torch.compile(torch.nn.functional.linear, backend="cermet", options={"remainder": "aot", "strict": True})
    for rows in (M, M + 3, M + 8) if dynamic else (M,):
        x = matrix(rows, K).requires_grad_()
        if dynamic:
            torch._dynamo.mark_dynamic(x, 0)
        logits = call(x, weight)
        assert logits.is_contiguous()
        gradients = torch.autograd.grad(logits, (x, weight), matrix(rows, N, seed=2))
        wide = [value.detach().double().requires_grad_() for value in (x, weight)]
        true = torch.nn.functional.linear(*wide)
        exact = torch.autograd.grad(true, wide, matrix(rows, N, torch.float64, 2))
        for mine, theirs in zip((logits, *gradients), (true, *exact)):
            assert truth.relative(mine, theirs) < 2**-7
    assert padded == [1, 2]


def test_the_other_kind_of_device_stays():
    graph = make_fx(lambda x, weight: torch.mm(x, weight.t()), tracing_mode="fake")(matrix(M, K), matrix(N, K))
    assert alignment.align(graph.graph) == 0
