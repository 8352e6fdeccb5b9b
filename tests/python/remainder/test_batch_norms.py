"""Batch norms of rows of channels are kernels of the engine's, forward and backward, with what is around them."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from test_clusters_behind_autograd import called as called_in
from test_clusters_behind_autograd import launches
from test_group_norms import compare, cotangent
from torch import nn

OPTIONS = {"remainder": "aot", "strict": True}
NORMS = {
    "aten._native_batch_norm_legit_functional.default", "aten._native_batch_norm_legit.no_stats",
    "aten._native_batch_norm_legit_no_training.default", "aten.native_batch_norm_backward.default",
}  # fmt: skip
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])


def called(graphs):
    return set().union(*map(called_in, graphs))


def in_rows(x):
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


SHAPES = {"numbers": (37, 12), "images": (4, 24, 5, 7), "narrow": (5, 3, 4, 4), "many": (2, 40, 33, 31)}


def operands(shape, dtype, affine="wb", mean=0.0):
    x = in_rows(torch.randn(shape) * 2 + mean).to(dtype)
    return [x, *(torch.randn(shape[1]).to(dtype) if each in affine else None for each in "wb")]


@DTYPES
@pytest.mark.parametrize("affine", ["wb", "w", ""], ids=lambda affine: affine or "plain")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_numbers_and_gradients(shape, affine, dtype, ran):
    def function(x, weight, bias):
        return F.relu(F.batch_norm(x, None, None, weight, bias, True, 0.1, 1e-4))

    compare(function, lambda: operands(shape, dtype, affine, 1.0), dtype)
    assert len(ran) == 2 and not NORMS & called(ran), called(ran)


@DTYPES
@pytest.mark.parametrize("shape", [SHAPES["numbers"], SHAPES["images"]], ids=["numbers", "images"])
def test_statistics_that_ran(shape, dtype, ran):
    mean, variance = torch.randn(shape[1]).to(dtype), (torch.rand(shape[1]) + 0.5).to(dtype)

    def function(x, weight, bias):
        running = mean.to(x.dtype), variance.to(x.dtype)
        return F.silu(F.batch_norm(x, *running, weight, bias, False, 0.1, 1e-4))

    compare(function, lambda: operands(shape, dtype), dtype)
    assert not NORMS & called(ran), called(ran)


def test_a_mean_far_from_zero(ran):
    """Squares about the mean, and not about zero."""
    function = lambda *given: F.batch_norm(given[0], None, None, *given[1:], True)  # noqa: E731
    compare(function, lambda: operands((4, 8, 16, 16), torch.float32, mean=3e3), torch.float32)
    assert not NORMS & called(ran)


def far(x):
    return x + 300.0


def of_one_number(x):
    return torch.full_like(x, 7.0)


def one_row_far_away(x):
    """And it is one of those about whose median sums are."""
    x = x.clone(memory_format=torch.preserve_format)
    rows = x.movedim(1, -1).reshape(-1, x.shape[1])
    rows[len(rows) // 3 // 3] = 3e4
    return rows.view(x.movedim(1, -1).shape).movedim(-1, 1)


def first_half_far_away(x):
    return torch.where(torch.arange(x.shape[0])[:, None, None, None] < x.shape[0] // 2, x - 500.0, x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "f16"])
@pytest.mark.parametrize("change", [far, of_one_number, one_row_far_away, first_half_far_away])
def test_both_sums_of_one_reading(change, dtype, ran):
    """Forward: sums, statistics, norm."""

    def make():
        x, *parameters = operands((4, 8, 33, 31), torch.float32)
        return [in_rows(change(x)).to(dtype), *(each.to(dtype) for each in parameters)]

    compare(lambda *given: F.batch_norm(given[0], None, None, *given[1:], True), make, dtype)
    assert not NORMS & called(ran) and launches(ran[0]) == 3


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_what_is_no_number_is_none_in_eagers_places(number, ran):
    """In rows that the median is of, too: of each channel or of none."""
    x = torch.randn(256, 16).bfloat16()
    x[37, 3] = x[100:102, 5] = x[256 // 3 // 3, 7] = number
    function = lambda x: F.batch_norm(x, None, None, None, None, True)  # noqa: E731
    mine, eager = torch.compile(function, backend="cermet", options=OPTIONS)(x), function(x)
    assert torch.equal(mine.isnan(), eager.isnan()) and torch.equal(mine.isfinite(), eager.isfinite())
    assert not NORMS & called(ran) and launches(ran[0]) == 3


def test_few_rows_are_read_twice(ran):
    call = torch.compile(nn.BatchNorm1d(8).to(torch.bfloat16), backend="cermet", options=OPTIONS)
    call(torch.randn(40, 8, dtype=torch.bfloat16, requires_grad=True))
    assert not NORMS & called(ran) and launches(ran[0]) == 4


def test_parameters_of_another_type_than_x(ran):
    def make():
        x, *parameters = operands(SHAPES["images"], torch.bfloat16)
        return [x, *(each.float() for each in parameters)]

    compare(lambda *given: F.batch_norm(given[0], None, None, *given[1:], True), make, torch.bfloat16)
    assert not NORMS & called(ran)


@pytest.mark.parametrize(
    ("dtype", "held"),
    [(torch.float32, torch.float32), (torch.bfloat16, torch.float32), (torch.bfloat16, torch.bfloat16)],
    ids=["f32", "bf16, held in f32", "bf16"],
)
def test_what_runs_along_is_written_where_it_is(dtype, held, ran):
    """As eager writes it, and by the launch that makes it: no copy is left; and batches are counted by one call."""
    norms = nn.ModuleList(nn.BatchNorm1d(12, momentum=0.3).to(held) for _ in range(3))
    other = nn.ModuleList(nn.BatchNorm1d(12, momentum=0.3).to(held) for _ in range(3))

    def chain(norms):
        return lambda x: norms[2](torch.tanh(norms[1](torch.tanh(norms[0](x)))))

    call = torch.compile(chain(norms), backend="cermet", options=OPTIONS)
    for _ in range(3):
        x = (torch.randn(64, 12) + 1).to(dtype).requires_grad_()
        y = call(x)
        y.backward(cotangent(y.detach()))
        theirs = chain(other)(x.detach())
        eps = torch.finfo(dtype).eps
        torch.testing.assert_close(y, theirs, rtol=4 * eps, atol=4 * eps)
    for mine, theirs in zip(norms.buffers(), other.buffers(), strict=True):
        tolerance = 4 * torch.finfo(held if dtype == torch.float32 else dtype).eps
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance)
    assert not ({"aten.copy_.default", "aten._to_copy.default"} | NORMS) & called(ran[:1]), called(ran[:1])
    assert sum(str(node.target) == "aten._foreach_add_.Scalar" for node in ran[0].nodes) == 1


def test_statistics_that_others_read(ran):
    """What they were, and what they have become."""
    norm = nn.BatchNorm1d(8)
    other = copy.deepcopy(norm)

    def function(x, norm):
        before = norm.running_mean * 2
        y = norm(x)
        return y, before, norm.running_var + 1

    call = torch.compile(function, backend="cermet", options=OPTIONS)
    for _ in range(2):
        x = torch.randn(40, 8) + 1
        torch.testing.assert_close(call(x, norm), function(x, other), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close([*norm.buffers()], [*other.buffers()], rtol=1e-5, atol=1e-5)


def test_what_is_around_a_norm_joins_its_kernels(ran):
    """Forward: sums, squares, statistics, norm and activation. Backward: the activation's gradient with both sums, that
    of x."""
    function = lambda x, weight, bias: F.relu(F.batch_norm(x, None, None, weight, bias, True))  # noqa: E731
    call = torch.compile(function, backend="cermet", options=OPTIONS)
    x, weight, bias = (each.requires_grad_() for each in operands((32, 64, 16, 16), torch.float32))
    call(x, weight, bias).sum().backward()
    assert [launches(graph) for graph in ran] == [4, 2] and not NORMS & called(ran)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_rows_that_a_symbol_counts(dtype, ran):
    norm = nn.BatchNorm2d(8).to(dtype)
    other = copy.deepcopy(norm)
    call = torch.compile(lambda x: F.silu(norm(x)), backend="cermet", dynamic=True, options=OPTIONS)
    for sizes in ((3, 8, 6, 7), (5, 8, 9, 4), (2, 8, 30, 31)):
        given = in_rows(torch.randn(sizes) + 1).to(dtype)
        found = []
        for norms, function in ((norm, call), (other, lambda x: F.silu(other(x)))):
            x = given.clone(memory_format=torch.preserve_format).requires_grad_()
            y = function(x)
            norms.zero_grad()
            y.backward(cotangent(y.detach()))
            found.append([y.detach(), x.grad, norms.weight.grad, norms.bias.grad, *norms.buffers()])
        eps = torch.finfo(dtype).eps
        for mine, theirs in zip(*found, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=8 * eps, atol=8 * eps * theirs.abs().max().item())
    assert len(ran) == 2 and not NORMS & called(ran), called(ran)


DECLINED = {
    "planes": lambda: [torch.randn(3, 12, 5, 7), torch.randn(12), torch.randn(12)],
    "f64": lambda: [each.double() for each in operands(SHAPES["images"], torch.float32)],
}


@pytest.mark.parametrize("make", DECLINED.values(), ids=DECLINED)
def test_what_no_kernel_takes_stays(make, ran):
    compare(lambda *given: F.batch_norm(given[0], None, None, *given[1:], True), make, torch.float32, seeds=2)
    assert NORMS & called(ran)


def test_a_graph_that_is_kept_for_another_backward(ran):
    """Statistics are the forward's, and run along once."""
    norm = nn.BatchNorm1d(8)
    call = torch.compile(lambda x: norm(x).square(), backend="cermet", options=OPTIONS)
    x = torch.randn(40, 8, requires_grad=True)
    y = call(x)
    found = [torch.autograd.grad(y, x, torch.ones_like(y), retain_graph=True)[0] for _ in range(2)]
    assert torch.equal(*found) and norm.num_batches_tracked == 1
