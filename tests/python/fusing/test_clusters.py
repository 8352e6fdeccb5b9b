"""Losses, lengths and statistics over rows that no pattern names: one region each, forward and backward, as good as eager
against float64; and what keeps one from being a region is said."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import cermet
import graphs
import truth
from cermet.importing.translations import elementwise

ROWS, COLUMNS = 64, 512
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def softmax(x):
    return F.softmax(x, -1)


def log_softmax(x):
    return F.log_softmax(x, -1)


def entropy(x):
    return -(softmax(x) * log_softmax(x)).sum(-1)


def mixed(x, y):
    """Jensen and Shannon's divergence."""
    p, q = softmax(x), softmax(y)
    middle = 0.5 * (p + q)
    return 0.5 * (p * (p.log() - middle.log())).sum(-1) + 0.5 * (q * (q.log() - middle.log())).sum(-1)


def cosine(x, y):
    return (x * y).sum(-1) / (x.pow(2).sum(-1).sqrt() * y.pow(2).sum(-1).sqrt())


OF_ONE: dict[str, Callable[..., torch.Tensor]] = {
    "entropy": entropy,
    "entropy, a column": lambda x: -(softmax(x) * log_softmax(x)).sum(-1, keepdim=True),
    "entropy, a mean": lambda x: entropy(x).mean(),
    "entropy of probabilities": lambda x: (lambda p: -(p * p.log()).sum(-1))(softmax(x)),
    "entropy of logarithms": lambda x: (lambda l: -(l.exp() * l).sum(-1))(log_softmax(x)),
    "softmax times values": lambda x: (softmax(x) * x).sum(-1),
    "z-loss": lambda x: torch.logsumexp(x * 1.5, -1).pow(2),
    "normalised": lambda x: F.normalize(x * 1.5, dim=-1),
    "normalised by hand": lambda x: x / x.norm(dim=-1, keepdim=True).clamp_min(1e-6),
    "a length": lambda x: torch.linalg.vector_norm(x * 1.5, dim=-1),
    "standardised": lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6),
    "standardised, rows without a column": lambda x: (x - x.mean(-1)[:, None]) / x.var(-1).add(1e-6).sqrt()[:, None],
    "softplus": lambda x: F.softplus(x * 3).mean(-1),
    "bits": lambda x: -(torch.sigmoid(x) * F.logsigmoid(x) + torch.sigmoid(-x) * F.logsigmoid(-x)).sum(-1),
    "root mean square": lambda x: x.pow(2).mean(-1).add(1e-6).sqrt(),
}
OF_TWO: dict[str, Callable[..., torch.Tensor]] = {
    "divergence": lambda x, y: F.kl_div(log_softmax(x), softmax(y), reduction="batchmean"),
    "divergence, rows": lambda x, y: F.kl_div(log_softmax(x), softmax(y), reduction="none").sum(-1),
    "divergence of logarithms": lambda x, y: F.kl_div(log_softmax(x), log_softmax(y), log_target=True, reduction="sum"),
    "divergence by hand": lambda x, y: (softmax(y) * (log_softmax(y) - log_softmax(x))).sum(-1),
    "distillation": lambda x, y: F.kl_div(log_softmax(x / 2.0), softmax(y / 2.0), reduction="batchmean") * 4.0,
    "soft labels": lambda x, y: -(softmax(y) * log_softmax(x)).sum(-1).mean(),
    "cross_entropy of probabilities": lambda x, y: F.cross_entropy(x, softmax(y)),
    "cosine": cosine,
    "cosine_similarity": lambda x, y: F.cosine_similarity(x * 1.5, y, dim=-1),
    "difference of logsumexp": lambda x, y: torch.logsumexp(x, -1) - torch.logsumexp(y, -1),
    "mixed divergence": mixed,
    "preferences": lambda x, y: -F.logsigmoid(0.1 * (x - y)).mean(-1),
    "binary cross-entropy": lambda x, y: F.binary_cross_entropy_with_logits(x, softmax(y)),
    "smooth_l1": lambda x, y: F.smooth_l1_loss(x * 1.5, y),
    "huber": lambda x, y: F.huber_loss(x * 1.5, y, delta=0.7),
    "learnt slopes": lambda x, y: F.prelu(x * 1.5, y[0]),
    "squared error, rows": lambda x, y: ((x - y) ** 2).mean(-1),
    "squared error of probabilities": lambda x, y: F.mse_loss(softmax(x), softmax(y)),
}
CASES = OF_ONE | OF_TWO


def inputs(name: str, dtype: torch.dtype, seed: int = 0) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(ROWS, COLUMNS, generator=random).to(dtype) for _ in range(1 + (name in OF_TWO))]


def values_and_gradients(function, arguments, cotangent):
    arguments = [argument.clone().requires_grad_() for argument in arguments]
    result = function(*arguments)
    result.backward(cotangent.to(result.dtype))
    return [result.detach(), *(argument.grad for argument in arguments)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_it_is_one_region_and_as_good_as_eager(name, dtype):
    function, dtype = CASES[name], DTYPES[dtype]
    found = cermet.explain(function, *(value.requires_grad_() for value in inputs(name, dtype)))
    assert found.counts["cluster"] == 1, str(found)
    call = graphs.compiled(function, remainder="aot")
    ours, eager = {}, {}
    before = cermet.counters()["launches"]

    def compare(seed):
        arguments = inputs(name, dtype, seed)
        shape = function(*arguments).shape
        cotangent = torch.randn(shape, generator=torch.Generator().manual_seed(99 + seed)).to(dtype)
        with truth.Float64():
            true = values_and_gradients(function, [value.double() for value in arguments], cotangent.double())
        for errors, runner in ((ours, call), (eager, function)):
            for index, value in enumerate(values_and_gradients(runner, arguments, cotangent)):
                errors.setdefault(f"value {index}", []).append(truth.relative(value, true[index]))
        return shape.numel()

    numbers = [compare(seed) for seed in range(truth.EVERY_SEED)]
    assert cermet.counters()["launches"] >= before + 2 * truth.EVERY_SEED, "our kernels did not run"
    if numbers[0] == 1 and truth.far_from_eager(ours, eager, dtype) == ["value 0"]:  # of one number that may be luck
        for seed in range(truth.EVERY_SEED, truth.MEDIAN_SEEDS):
            compare(seed)
        truth.assert_far_no_more_often_than_eager({"value 0": ours.pop("value 0")}, eager, dtype)
    truth.assert_none_is_far_from_eager(ours, eager, dtype)


def test_a_symbolic_number_of_rows_is_no_reason():
    x = torch.randn(ROWS, COLUMNS)
    torch._dynamo.mark_dynamic(x, 0)
    assert cermet.explain(entropy, x).counts["cluster"] == 1


def test_a_row_of_zeros_has_eagers_gradient():
    x = torch.randn(ROWS, COLUMNS)
    x[3] = 0
    for function in (OF_ONE["normalised"], OF_ONE["a length"]):
        torch._dynamo.reset()
        cotangent = torch.randn(function(x).shape)
        ours = values_and_gradients(graphs.compiled(function), [x], cotangent)
        for mine, theirs in zip(ours, values_and_gradients(function, [x], cotangent)):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5 * theirs.abs().max().item())


SPECIAL = [math.inf, -math.inf, math.nan, 0.0, -0.0, 100.0, -100.0, 88.8, -88.8, 20.0, -20.0, 1e-30, -1e-30, 0.5, -0.5]
OF_SPECIALS: dict[str, Callable[..., torch.Tensor]] = {
    "softplus": lambda x, y: F.softplus(x) * 2,
    "logsigmoid": lambda x, y: F.logsigmoid(x) * 2,
    "prelu": lambda x, y: F.prelu(x, y[1]) * 2,
    "smooth_l1": lambda x, y: F.smooth_l1_loss(x, y * 0, beta=0.5, reduction="none") * 2,
    "huber": lambda x, y: F.huber_loss(x, y * 0, delta=0.5, reduction="none") * 2,
    "binary": lambda x, y: F.binary_cross_entropy_with_logits(x, y.abs().clamp(max=1), reduction="none") * 2,
}


@pytest.mark.parametrize("name", OF_SPECIALS)
def test_specials_are_eagers(name):
    x, y = torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)
    x[0, : len(SPECIAL)] = torch.tensor(SPECIAL)
    x[2, ::7] = math.inf
    cotangent = torch.randn(ROWS, COLUMNS)
    function = OF_SPECIALS[name]
    assert cermet.explain(function, x.clone().requires_grad_(), y.clone().requires_grad_()).counts["cluster"] == 1
    ours = values_and_gradients(graphs.compiled(function), [x, y], cotangent)
    eager = values_and_gradients(function, [x, y], cotangent)
    for mine, theirs in zip(ours, eager, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize(
    ("function", "condition"),
    [
        (lambda x: -(x.softmax(0) * x.log_softmax(0)).sum(0), "dimension 0 of rank 2, expected the last"),
        (lambda x: (x * 2.0).norm(p=3, dim=-1), "a norm of order 3"),
    ],
)
def test_what_is_no_region_says_why(function, condition):
    found = cermet.explain(function, torch.randn(ROWS, COLUMNS))
    assert any(condition in miss.condition for miss in found.near_misses), str(found)


def test_what_does_not_gain_enough_says_what_it_moves():
    def products(x, y, z):
        first = x * y
        return first, first * z

    found = cermet.explain(products, *(torch.randn(ROWS, COLUMNS) for _ in range(3)))
    size = ROWS * COLUMNS * 4
    reason = f"one kernel moves {5 * size} bytes where its operations move {6 * size}, expected at most 80 %"
    assert found.counts["cluster"] == 0
    assert [(miss.pattern, miss.condition) for miss in found.near_misses] == [("cluster", reason)], str(found)


@pytest.mark.parametrize(
    "bounded",
    [
        lambda x, bound: x.clamp(-1.0, 2.0),
        lambda x, bound: torch.clamp_max(x, 2.0),
        lambda x, bound: x.clamp(min=bound),
    ],
    ids=["numbers", "one number", "a tensor"],
)
def test_a_bound_that_is_reached_has_eagers_gradient(bounded):
    def function(x, bound):
        return (bounded(x, bound) * 3.0).exp().sum(-1)

    x = torch.randint(-3, 4, (ROWS, COLUMNS)).float()
    x[0, 0] = math.nan
    bound, cotangent = torch.randint(-3, 4, (COLUMNS,)).float(), torch.randn(ROWS)
    assert cermet.explain(function, x.clone().requires_grad_(), bound).counts["cluster"] == 1
    value, gradient, *_ = values_and_gradients(graphs.compiled(function), [x, bound], cotangent)
    expected, theirs, *_ = values_and_gradients(function, [x, bound], cotangent)
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6, equal_nan=True)
    torch.testing.assert_close(gradient[1:], theirs[1:], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("bounds", ["a number", "a tensor", "two tensors"])
def test_a_bound_that_is_reached_has_the_share_of_the_gradient_that_torch_gives(bounds, shares, monkeypatch):
    """Before 2.14 all of it; since, none at a number, half at a tensor, and all where two are one and reached."""
    monkeypatch.setattr(elementwise, "SHARES_TIES", shares)
    x, least, more = (torch.randint(-3, 4, size).float() for size in ((ROWS, COLUMNS), (COLUMNS,), (COLUMNS,)))
    most = least + more.abs()

    def function(x, least, most):
        kinds = {
            "a number": lambda: x.clamp(min=-1.0),
            "a tensor": lambda: x.clamp(min=least),
            "two tensors": lambda: x.clamp(least, most),
        }
        return (kinds[bounds]() * 3.0).sin().sum(-1)

    cotangent = torch.randn(ROWS)
    value, gradient, *_ = values_and_gradients(graphs.compiled(function), [x, least, most], cotangent)
    torch.testing.assert_close(value, function(x, least, most), rtol=1e-5, atol=1e-5)
    least = torch.tensor(-1.0) if bounds == "a number" else least
    most = most if bounds == "two tensors" else torch.tensor(math.inf)
    at_bound = 1.0 if not shares else 0.0 if bounds == "a number" else torch.where(least == most, 1.0, 0.5)
    share = torch.where((x == least) | (x == most), at_bound, ((x > least) & (x < most)).float())
    torch.testing.assert_close(gradient, share * 3.0 * (3.0 * x).cos() * cotangent[:, None], rtol=1e-5, atol=1e-5)


def test_a_result_that_no_gradient_depends_on_wants_none():
    """Else what reads it would be given a gradient that nobody checked."""

    def function(x, mask):
        shares = mask.to(x.dtype) / mask.sum(-1, keepdim=True)
        mixed = torch.lerp(softmax(x.masked_fill(mask, -30.0)), shares, 0.25)
        return mixed, shares

    x, mask = torch.randn(ROWS, COLUMNS, requires_grad=True), torch.rand(ROWS, COLUMNS) < 0.3
    before = cermet.counters()["late_gradients"]
    assert cermet.explain(function, x, mask).counts["cluster"] == 1
    mixed, shares = graphs.compiled(function)(x, mask)
    assert mixed.requires_grad and not shares.requires_grad
    assert cermet.counters()["late_gradients"] == before
