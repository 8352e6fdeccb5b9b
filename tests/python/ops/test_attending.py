"""Attention over segments: `cermet_v1::attend_lengths` and the kernels that compute it, against the mask that says what
segments mean."""

from __future__ import annotations

import random

import pytest
import torch

import truth
from cermet.attention import kernels
from cermet.attention.kernels import Form, kernel_of
from cermet.errors import Error
from cermet.graph.decision import Declined
from cermet.ops import attending
from cermet.ops.attending import ATTEND, CAUSAL, FULL, Band, Kernel
from reference_kernel import NAME, reference  # noqa: F401

BANDS = (CAUSAL, FULL, Band(3, 0), Band(40, 0), Band(2, 5))


def random_segments(seed: int, places: int, kinds: str):
    """Queries and keys of each, which are as many of both: "documents", or also some that have one of them alone."""
    numbers, segments, left = random.Random(seed), [], places
    while left:
        size = min(left, numbers.choice([1, 2, 3, numbers.randint(1, places)]))
        sides = numbers.choice(["both", "both", "apart"]) if kinds == "one-sided" else "both"
        segments += [(size, size)] if sides == "both" else [(size, 0), (0, size)]
        left -= size
    return segments


def told(segments, device):
    ends = [[sum(pair[side] for pair in segments[:count]) for count in range(len(segments) + 1)] for side in (0, 1)]
    numbers = [len(segments), *(max(pair[side] for pair in segments) for side in (0, 1))]
    # As a graph gets them: ends behind the last segment say nothing.
    return *(torch.tensor([*each, 7, -1], dtype=torch.int32, device=device) for each in ends), torch.tensor(numbers)


def operands(dtype, device, heads=4, shared=2, length=24, width=8, rows=2):
    numbers = torch.Generator().manual_seed(heads * length)
    return [
        torch.randn(rows, count, length, width, generator=numbers).to(dtype).to(device).requires_grad_()
        for count in (heads, shared, shared)
    ]


def measured(run, args):
    result = run(*args)
    weight = torch.randn(result.shape, generator=torch.Generator().manual_seed(1)).to(result.dtype).to(result.device)
    return [result.detach(), *torch.autograd.grad(result, args, weight)]


def by_mask(segments, band, length):
    """The same of rows that lie behind one another."""

    def run(query, key, value):
        rows = query.shape[0]
        flat = [each.transpose(0, 1).flatten(1, 2)[None] for each in (query, key, value)]
        mask = kernels.mask_of(segments, band, rows * length).to(query.device)
        return kernels.masked(*flat, mask)[0].unflatten(1, (rows, length)).transpose(0, 1)

    return run


@pytest.mark.parametrize("band", BANDS, ids=str)
@pytest.mark.parametrize("kinds", ["documents", "one-sided"])
def test_segments_mean_what_their_mask_says(band, kinds, reference):  # noqa: F811
    for seed in range(6):
        segments = random_segments(seed, 48, kinds)
        args, given = operands(torch.float64, "cpu"), told(segments, "cpu")
        mine = measured(lambda *each: ATTEND(*each, *given, band.left, band.right, None, NAME), args)
        right = measured(by_mask(segments, band, 24), args)
        for one, other in zip(mine, right):
            torch.testing.assert_close(one, other)


def test_rows_are_segments_where_none_are_told(reference):  # noqa: F811
    args = operands(torch.float64, "cpu")
    mine = measured(lambda *each: ATTEND(*each, None, None, None, 3, 0, 0.5, NAME), args)
    wide = measured(
        lambda query, key, value: by_mask([(24, 24)] * 2, Band(3, 0), 24)(query * 0.5 * 8**0.5, key, value), args
    )
    for one, other in zip(mine, wide):
        torch.testing.assert_close(one, other)


def test_no_segments_give_zeros():
    args = operands(torch.float32, "cpu")
    ends = torch.zeros(4, dtype=torch.int32)
    for each in measured(lambda *each: ATTEND(*each, ends, ends, torch.zeros(3).long(), -1, 0, None, "flash"), args):
        assert not each.any()


def test_a_kernel_that_is_not_there_is_an_error():
    args, given = operands(torch.float32, "cpu"), told([(24, 24)] * 2, "cpu")
    with pytest.raises(Error, match="no kernel for attention over segments is called other, expected one of flash"):
        ATTEND(*args, *given, -1, 0, None, "other")


def test_a_gradient_of_a_gradient_is_refused(reference):  # noqa: F811
    args, given = operands(torch.float64, "cpu"), told([(24, 24)] * 2, "cpu")
    result = ATTEND(*args, *given, -1, 0, None, NAME)
    (gradient,) = torch.autograd.grad(result.sum(), args[:1], create_graph=True)
    with pytest.raises(Error, match="double backward is not supported"):
        gradient.sum().backward()


# --- Which kernel there is -------------------------------------------------------------------------------------------


def form(device="cpu", dtype=torch.float64, heads=2, width=8, band=CAUSAL, one_sided=False, value_width=None):
    return Form(torch.device(device), dtype, heads, width, value_width or width, band, one_sided)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("one_sided", [False, True])
@pytest.mark.parametrize("band", BANDS, ids=str)
def test_a_right_kernel_is_found(band, one_sided, dtype, reference):  # noqa: F811
    assert kernel_of(form(dtype=dtype, band=band, one_sided=one_sided)) == NAME


def _wrong(what):
    right = attending.KERNELS[NAME]

    def forward(query, key, value, segments, band, scale, dropout_p):
        band = {"band": Band(band.left, 1), "window": Band(2, band.right)}.get(what, band)
        result, *rest = right.forward(query, key, value, segments, band, scale, dropout_p)
        return result * float("nan") if what == "nothing" else result, *rest

    def backward(*given):
        found = right.backward(*given)
        return (found[0], found[1] * 1.5, found[2]) if what == "gradients" else found

    return Kernel(forward, backward, ("cpu",))


@pytest.mark.parametrize(("what", "said"), [("band", "results differ"), ("window", "results differ"),
                                            ("nothing", "results differ"), ("gradients", "keys' gradients differ")])
def test_a_wrong_kernel_is_none(what, said, reference, monkeypatch):  # noqa: F811
    monkeypatch.setitem(attending.KERNELS, NAME, _wrong(what))
    with pytest.raises(Declined, match=said):
        kernel_of(form())


def test_what_a_kernel_raises_is_told(reference, monkeypatch):  # noqa: F811
    def refuse(*_):
        raise RuntimeError("heads of 8 are not taken")

    monkeypatch.setitem(attending.KERNELS, NAME, Kernel(refuse, refuse, ("cpu",)))
    with pytest.raises(Declined, match="flash: it runs on cuda; reference: RuntimeError: heads of 8 are not taken"):
        kernel_of(form())
    with pytest.raises(Declined, match="values have a width of 16"):
        kernel_of(form(value_width=16))


def test_asking_moves_no_generator(reference):  # noqa: F811
    before = torch.get_rng_state()
    kernel_of(form(width=16))
    assert torch.equal(torch.get_rng_state(), before)


# --- On a GPU --------------------------------------------------------------------------------------------------------

absent = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device that this torch can use")
HEADS = [(4, 4, 64), (8, 2, 64), (4, 1, 128), (6, 2, 80), (2, 2, 20), (4, 2, 256)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kinds", ["documents", "one-sided"])
@pytest.mark.parametrize("band", BANDS, ids=str)
@pytest.mark.parametrize(("heads", "shared", "width"), HEADS)
@pytest.mark.gpu
@absent
def test_flash_gives_the_numbers_of_the_mask(heads, shared, width, band, kinds, dtype):
    assert kernel_of(form("cuda", dtype, heads // shared, width, band, kinds == "one-sided")) == "flash"
    segments = random_segments(3, 2 * 512, kinds)
    args, given = operands(dtype, "cuda", heads, shared, 512, width), told(segments, "cuda")
    mine = measured(lambda *each: ATTEND(*each, *given, band.left, band.right, None, "flash"), args)
    eager = measured(by_mask(segments, band, 512), args)
    wide = [each.detach().double().requires_grad_() for each in args]
    for one, other, true in zip(mine, eager, measured(by_mask(segments, band, 512), wide)):
        assert truth.relative(one, true) <= 2 * truth.relative(other, true) + truth.spacing(dtype)


def test_what_is_told_lies_on_the_cpu_of_whatever_device(reference):  # noqa: F811
    with torch._subclasses.FakeTensorMode():
        query, key, value = (torch.empty(2, heads, 24, 8, device="cuda") for heads in (4, 2, 2))
        ends, said = torch.empty(5, dtype=torch.int32, device="cuda"), torch.empty(3, dtype=torch.int64)
        result = ATTEND(query, key, value, ends, ends, said, -1, 0, None, NAME)
    assert result.device == query.device and result.shape == query.shape
