"""Attention that drops weights beside documents and windows: the numbers are those of the mask with the weights that
were kept, the generator says which, and the backward and what is computed again have the same."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import cermet
import graphs
from attending import Counted
from cermet.attention import kernels, masks
from cermet.graph.decision import Declined
from cermet.ops import attending
from packing import ids, joined, triangle
from reference_kernel import NAME, kept, reference  # noqa: F401

BATCH, LENGTH, HEADS, SHARED, WIDTH, REACH, DROPPED = 2, 12, 4, 2, 8, 3, 0.5
compiled = {"backend": "cermet", "options": {"strict": True}}


def documents(number):
    return ((number[:, None, :] == number[:, :, None]) & triangle(LENGTH))[:, None]


def window(number):
    behind = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    return ((behind >= 0) & (behind < REACH))[None, None]


def attention(spelling):
    def attend(query, key, value, number):
        mask = spelling(number)
        return joined(F.scaled_dot_product_attention(query, key, value, mask, DROPPED, enable_gqa=True))

    return attend


def operands(dtype=torch.float64):
    numbers = torch.Generator().manual_seed(5)
    shapes = (BATCH, HEADS, LENGTH, WIDTH), (BATCH, SHARED, LENGTH, WIDTH), (BATCH, SHARED, LENGTH, WIDTH)
    return [torch.randn(shape, generator=numbers, dtype=dtype).requires_grad_() for shape in shapes]


def by_the_mask(query, key, value, mask, random):
    """Attention whose weights are multiplied by what the kernel draws from a state of the generator."""
    factors = kept(random, HEADS, BATCH * LENGTH, BATCH * LENGTH, DROPPED).to(query.dtype)
    rows = [factors[:, row * LENGTH : (row + 1) * LENGTH, row * LENGTH : (row + 1) * LENGTH] for row in range(BATCH)]
    key, value = (each.repeat_interleave(HEADS // SHARED, 1) for each in (key, value))
    scores = (query @ key.transpose(-1, -2) * WIDTH**-0.5).masked_fill(~mask, float("-inf"))
    return joined((torch.softmax(scores, -1) * torch.stack(rows)) @ value)


def gradients(result, args):
    weight = torch.randn(result.shape, generator=torch.Generator().manual_seed(2), dtype=result.dtype)
    return [result.detach(), *torch.autograd.grad((result * weight).sum(), args)]


SCENES = {
    documents: ([[5, 7], [1, 1, 10]], {"document_masks": 1, "calls_segmented": 2}),
    window: ([[5, 7], [12]], {"window_masks": 1}),
}
named = pytest.mark.parametrize("spelling", SCENES, ids=lambda spelling: spelling.__name__)


@named
def test_numbers_are_those_of_the_kept_weights(reference, spelling):
    rows, expected = SCENES[spelling]
    call, counted, number = torch.compile(attention(spelling), **compiled), Counted(), ids(rows)
    seen = []
    for seed in (0, 1):
        args = operands()
        torch.manual_seed(seed)
        mine = gradients(call(*args, number), args)
        state = torch.random.get_rng_state()
        torch.manual_seed(seed)
        random = torch.randint(1 << 62, (2,))
        assert torch.equal(state, torch.random.get_rng_state()), "the generator moved otherwise than by one draw"
        for one, other in zip(mine, gradients(by_the_mask(*args, spelling(number), random), args)):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
        torch.manual_seed(seed)
        assert all(map(torch.equal, mine, gradients(call(*args, number), args)))
        seen.append(mine[0])
    assert not torch.equal(*seen)
    found = counted()
    counts = {**expected, **({"calls_segmented": 4} if "calls_segmented" in expected else {})}
    assert {name: found.get(name) for name in counts} == counts and "near_misses" not in found, found


@named
@pytest.mark.parametrize("remainder", ["aot", "inductor"])
def test_what_is_computed_again_drops_the_same(reference, spelling, remainder):
    """A checkpointed body's weights are the backward's, or the gradient would be another function's."""

    def layer(query, key, value, number):
        return attention(spelling)(query.sin(), key, value, number).cos()

    def step(query, key, value, number):
        return checkpoint(layer, query, key, value, number, use_reentrant=False)

    rows, _ = SCENES[spelling]
    args, number, counted = operands(), ids(rows), Counted()
    call = graphs.compiled(step, remainder)
    torch.manual_seed(3)
    mine = gradients(call(*args, number), args)
    torch.manual_seed(3)
    random = torch.randint(1 << 62, (2,))
    query, key, value = args
    right = by_the_mask(query.sin(), key, value, spelling(number), random).cos()
    for one, other in zip(mine, gradients(right, args)):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    found = counted()
    assert found.get("document_masks", 0) + found.get("window_masks", 0) == 1, found


def test_a_model_in_evaluation_drops_nothing(reference):
    def attend(query, key, value, number, training: bool):
        p = DROPPED if training else 0.0
        return F.scaled_dot_product_attention(query, key, value, documents(number), p, enable_gqa=True)

    number, args = ids([[5, 7], [12]]), operands()
    state = torch.random.get_rng_state()
    mine = torch.compile(attend, **compiled)(*args, number, False)
    assert torch.equal(state, torch.random.get_rng_state())
    torch.testing.assert_close(mine, attend(*args, number, False), rtol=1e-12, atol=1e-12)


def test_without_a_kernel_that_drops_the_mask_stays(reference, monkeypatch):
    def refuses(*args):
        if args[-1]:
            raise RuntimeError("it drops nothing")
        return true.forward(*args)

    true = attending.KERNELS[NAME]
    monkeypatch.setitem(attending.KERNELS, NAME, dataclasses.replace(true, forward=refuses))
    (miss,) = masks.find(graphs.trace(attention(documents), *operands(), ids([[5, 7], [12]]))).near_misses
    assert miss.pattern == "document_mask" and "with dropout" in miss.condition, miss
    assert "flash: it runs on cuda" in miss.condition and "it drops nothing" in miss.condition, miss


@pytest.mark.parametrize("fault", ["backward", "share"])
def test_a_kernel_that_drops_otherwise_is_none(reference, monkeypatch, fault):
    """Another mask in the backward; another probability."""
    true = attending.KERNELS[NAME]
    form = kernels.Form(torch.device("cpu"), torch.float32, 2, WIDTH, WIDTH, attending.CAUSAL, drops=True)
    assert kernels.kernel_of(form) == NAME

    def backward(gradient, query, key, value, result, sums, random, *rest):
        return true.backward(gradient, query, key, value, result, sums, random.view(torch.int64).flip(0), *rest)

    def forward(*args):
        return true.forward(*args[:-1], args[-1] / 2)

    changed = {"backward": backward} if fault == "backward" else {"forward": forward}
    monkeypatch.setitem(attending.KERNELS, NAME, dataclasses.replace(true, **changed))
    kernels._probed.cache_clear()
    with pytest.raises(Declined, match="queries' gradients differ" if fault == "backward" else "it drops 0.1"):
        kernels.kernel_of(form)


def test_asking_for_a_kernel_moves_no_generator(reference):
    torch.manual_seed(9)
    state = torch.random.get_rng_state()
    kernels.kernel_of(kernels.Form(torch.device("cpu"), torch.float32, 1, WIDTH, WIDTH, drops=True))
    assert torch.equal(state, torch.random.get_rng_state())


def test_the_ops_are_as_torch_wants_them(reference):
    query, key, value = (each.transpose(1, 2).detach() for each in operands(torch.float32))
    ends, told = torch.tensor([0, 5, 12, 24], dtype=torch.int32), torch.tensor([3, 12, 12])
    inner = torch.ops.cermet_v1.attention_lengths_dropout.default
    checks = "test_schema", "test_faketensor"  # the others run it twice, which draws twice
    torch.library.opcheck(inner, (query, key, value, ends, ends, told, -1, 0, 1.0, NAME, DROPPED), test_utils=checks)
    assert torch.Tag.nondeterministic_seeded in inner.tags


def test_explain_says_that_no_kernel_drops_here():
    told = " ".join(str(cermet.explain(attention(documents), *operands(), ids([[5, 7], [12]]))).split())
    assert "float64 heads of 8 on cpu, causal, with dropout (flash: it runs on cuda)" in told, told
