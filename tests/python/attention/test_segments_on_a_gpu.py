"""On a GPU, where torch's flash attention is the kernel: compiled attention under documents, windows and padding, and
to the keys that a buffer has so far, in the types that it takes, has the mask's numbers by the rule for numbers, and no
mask is left."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import graphs
import mask_spellings
import truth
from attending import Counted
from packing import ids, joined, positions, triangle

absent = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device that this torch can use")
pytestmark = [pytest.mark.gpu, absent]
BATCH, LENGTH, REACH = 3, 640, 96
ROWS = [[1, 300, 200, 139], [640], [5] * 128], [[128] * 5, [639, 1], [1] * 640]  # two batches


def of_documents(places, length):
    hf = mask_spellings.hf
    documents = hf.packed_sequence_mask_function(hf.find_packed_sequence_indices(places))
    function = hf.and_masks(hf.causal_mask_function, documents)
    return hf.sdpa_mask(BATCH, length, length, mask_function=function, allow_is_causal_skip=False, device=places.device)


def of_blocks(number, length):
    return (number[:, None, :] == number[:, :, None])[:, None]


def window_in_documents(number, length):
    behind = torch.arange(length, device=number.device)[:, None] - torch.arange(length, device=number.device)
    return of_blocks(number, length) & (behind >= 0) & (behind < REACH)


def window(number, length):
    behind = torch.arange(length, device=number.device)[:, None] - torch.arange(length, device=number.device)
    return (behind >= 0) & (behind < REACH)


def both_ways(number, length):
    places = torch.arange(length, device=number.device)
    return (places[:, None] - places).abs() <= REACH


def padded_triangle(shown, length):
    return triangle(length).to(shown.device) & shown[:, None, None, :].bool()


def padded(shown, length):
    return shown[:, None, None, :].bool().expand(-1, 1, length, -1)


def numbered():
    return [ids(rows) for rows in ROWS]


def placed():
    return [positions(rows) for rows in ROWS]


def shown():
    places = torch.arange(LENGTH)
    pieces = [(0, 500), (0, LENGTH), (0, 1)], [(200, LENGTH), (40, 600), (0, LENGTH)]
    return [torch.stack([(places >= first) & (places < behind) for first, behind in rows]).long() for rows in pieces]


def handed_in(mask, length):
    return mask


def masks():
    first, second = numbered()
    return [of_blocks(first, LENGTH) & triangle(LENGTH), window_in_documents(second, LENGTH)]


SCENES = {
    of_documents: (placed, {"document_masks": 1, "calls_segmented": 2}),
    of_blocks: (numbered, {"document_masks": 1, "calls_segmented": 2}),
    window_in_documents: (numbered, {"document_masks": 1, "calls_segmented": 2}),
    window: (numbered, {"window_masks": 1}),
    both_ways: (numbered, {"window_masks": 1}),
    padded_triangle: (shown, {"padding_masks": 1, "calls_segmented": 2}),
    padded: (shown, {"padding_masks": 1, "calls_segmented": 2}),
    handed_in: (masks, {"document_masks": 1, "calls_segmented": 2}),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("heads", "shared", "width"), [(8, 2, 64), (4, 4, 128), (4, 1, 96)])
@pytest.mark.parametrize("remainder", ["aot", "inductor"])
@pytest.mark.parametrize("spelling", SCENES, ids=lambda spelling: spelling.__name__)
def test_numbers_are_those_of_the_mask(spelling, remainder, heads, shared, width, dtype):
    def attend(query, key, value, number):
        mask = spelling(number, number.shape[1])
        key, value = (each.repeat_interleave(heads // shared, 1) for each in (key, value))
        return joined(F.scaled_dot_product_attention(query, key, value, attn_mask=mask))

    make, expected = SCENES[spelling]
    compiled, counted = graphs.compiled(attend, remainder), Counted()
    for number in make():
        numbers = torch.Generator().manual_seed(heads)
        args = [torch.randn(BATCH, count, LENGTH, width, generator=numbers) for count in (heads, shared, shared)]
        # As a model has them: the heads of a token beside one another.
        args = [each.to(dtype).cuda().transpose(1, 2).contiguous().transpose(1, 2) for each in args]
        measured = [
            _measured(run, given, number.cuda())
            for run, given in ((compiled, args), (attend, args), (attend, [each.double() for each in args]))
        ]
        for mine, eager, true in zip(*measured):
            assert truth.relative(mine, true) <= 2 * truth.relative(eager, true) + truth.spacing(dtype)
    found = counted()
    assert {name: found.get(name) for name in expected} == expected, found
    assert "near_misses" not in found and "calls_padded" not in found, found


def _measured(run, args, number) -> list[torch.Tensor]:
    leaves = [arg.detach().clone().requires_grad_() for arg in args]
    result = run(*leaves, number)
    weight = torch.randn(result.shape, generator=torch.Generator().manual_seed(2)).to(result)
    return [result.detach(), *torch.autograd.grad(result, leaves, weight)]


@pytest.mark.parametrize("spelling", [of_documents, window, padded_triangle], ids=lambda spelling: spelling.__name__)
def test_deterministic_algorithms_give_the_same_bits(spelling):
    """Where torch is told so; the calls are those over segments all the same."""

    def attend(query, key, value, number):
        return joined(F.scaled_dot_product_attention(query, key, value, attn_mask=spelling(number, number.shape[1])))

    make, expected = SCENES[spelling]
    compiled, counted, number = graphs.compiled(attend, "aot"), Counted(), make()[0].cuda()
    args = [torch.randn(BATCH, 4, LENGTH, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    torch.use_deterministic_algorithms(True)
    try:
        first, *others = (_measured(compiled, args, number) for _ in range(5))
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(one, two) for other in others for one, two in zip(first, other))
    found = counted()
    assert all(found.get(name) for name in expected), found


@pytest.mark.parametrize(("heads", "shared", "width"), [(8, 2, 64), (4, 4, 128), (4, 1, 96)])
@pytest.mark.parametrize("spelling", [of_documents, window, padded_triangle], ids=lambda spelling: spelling.__name__)
def test_weights_are_dropped_by_the_generator(spelling, heads, shared, width):
    """That they are the right ones is what a kernel was asked for: here, that a seed says which, and that their mean is
    attention without dropout."""

    def attend(query, key, value, number, p: float):
        key, value = (each.repeat_interleave(heads // shared, 1) for each in (key, value))
        mask = spelling(number, number.shape[1])
        return joined(F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=p))

    number, numbers, counted = SCENES[spelling][0]()[0].cuda(), torch.Generator().manual_seed(heads), Counted()
    args = [torch.randn(BATCH, each, LENGTH, width, generator=numbers) for each in (heads, shared, shared)]
    args = [each.bfloat16().cuda().transpose(1, 2).contiguous().transpose(1, 2) for each in args]
    compiled = graphs.compiled(lambda *given: attend(*given, 0.1), "aot")
    runs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        runs.append(_measured(compiled, args, number))
    assert torch.equal(runs[0][0], runs[1][0]) and not torch.equal(runs[0][0], runs[2][0])
    for one, other in zip(runs[0][1:], runs[1][1:]):  # the kernel adds gradients of queries in no order
        assert truth.relative(one, other) <= torch.finfo(torch.bfloat16).eps
    mean = torch.stack([compiled(*args, number).detach().double() for _ in range(64)]).mean(0)
    true = attend(*(each.double() for each in args), number, 0.0)
    apart = truth.relative(runs[0][0], true)
    assert apart > 0.05 and truth.relative(mean, true) < apart / 4, (apart, truth.relative(mean, true))
    found = counted()
    assert "near_misses" not in found and "calls_padded" not in found, found


def up_to(at, keys):
    return (torch.arange(keys, device=at.device) <= at[:, :, None])[:, None]


def near(at, keys):
    places = torch.arange(keys, device=at.device)
    return ((places <= at[:, :, None]) & (places > at[:, :, None] - REACH))[:, None]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("heads", "shared", "width"), [(8, 2, 64), (4, 4, 128), (8, 1, 128), (4, 1, 96), (4, 2, 256)])
@pytest.mark.parametrize("queries", [1, 4])
@pytest.mark.parametrize("spelling", [up_to, near], ids=lambda spelling: spelling.__name__)
def test_a_recorded_step_reads_the_keys_that_are_there(spelling, queries, heads, shared, width, dtype):
    """Under CUDA graphs, which are replayed with other numbers of keys than they were recorded with."""

    def attend(query, key, value, at):
        key, value = (each.repeat_interleave(heads // shared, 1) for each in (key, value))
        return joined(F.scaled_dot_product_attention(query, key, value, attn_mask=spelling(at, key.shape[2])))

    compiled = torch.compile(attend, backend="cermet", options={"mode": "reduce-overhead", "strict": True})
    counted, numbers = Counted(), torch.Generator().manual_seed(width)
    sizes = (heads, queries), (shared, 3 * LENGTH), (shared, 3 * LENGTH)
    args = [torch.randn(BATCH, *size, width, generator=numbers).to(dtype).cuda() for size in sizes]
    with torch.no_grad():
        for begin in (0, 1, 255, 256, LENGTH, 3 * LENGTH - queries, 7):
            at = begin + torch.arange(BATCH)[:, None] * 3 + torch.arange(queries)
            at = at.clamp(max=3 * LENGTH - 1).cuda()
            torch.compiler.cudagraph_mark_step_begin()
            mine, eager = compiled(*args, at).clone(), attend(*args, at)
            true = attend(*(each.double() for each in args), at)
            assert truth.relative(mine, true) <= 2 * truth.relative(eager, true) + truth.spacing(dtype), begin
    found = counted()
    assert found["length_masks"] == 1 and "near_misses" not in found, found


def padded_on_the_left(at, keys):
    return up_to(at, keys) & (torch.arange(keys, device=at.device) >= at[:, :1, None] // 3)[:, None]


def with_holes(at, keys):
    return padded_on_the_left(at, keys) & (torch.arange(keys, device=at.device) % 7 != 3)


def with_some_of_each(at, keys):
    second = (torch.arange(BATCH, device=at.device) == 1)[:, None, None, None]
    return torch.where(second, near(at, keys), with_holes(at, keys))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("heads", "shared", "width"), [(8, 2, 64), (4, 4, 128), (8, 1, 128), (4, 1, 96), (4, 2, 256)])
@pytest.mark.parametrize("queries", [1, 4])
@pytest.mark.parametrize("added", [False, True])
def test_a_recorded_step_reads_what_the_mask_says_that_it_is_handed(added, queries, heads, shared, width, dtype):
    """As above, with ranges and masks that are none in one recording; no key outside is read, whatever lies there."""

    def attend(query, key, value, mask):
        key, value = (each.repeat_interleave(heads // shared, 1) for each in (key, value))
        return joined(F.scaled_dot_product_attention(query, key, value, attn_mask=mask))

    compiled = torch.compile(attend, backend="cermet", options={"mode": "reduce-overhead", "strict": True})
    counted, numbers = Counted(), torch.Generator().manual_seed(width)
    sizes = (heads, queries), (shared, 3 * LENGTH), (shared, 3 * LENGTH)
    args = [torch.randn(BATCH, *size, width, generator=numbers).to(dtype).cuda() for size in sizes]
    with torch.no_grad():
        for begin in (20, 255, LENGTH, 3 * LENGTH - 4):
            for spelling in (up_to, near, padded_on_the_left, with_holes, with_some_of_each):
                at = begin + torch.arange(BATCH)[:, None] * 3 + torch.arange(queries)
                mask = spelling(at.clamp(max=3 * LENGTH - 1).cuda(), 3 * LENGTH)
                spans = ((mask.cumsum(-1) > 0) & (mask.flip(-1).cumsum(-1).flip(-1) > 0)).any(2).transpose(1, 2)
                poisoned = [each.masked_fill(~spans[:, None], torch.nan) for each in args[1:]]
                if added:
                    mask = torch.zeros(mask.shape, dtype=dtype, device="cuda").masked_fill(~mask, float("-inf"))
                torch.compiler.cudagraph_mark_step_begin()
                mine, eager = compiled(args[0], *poisoned, mask).clone(), attend(*args, mask)
                true = attend(*(each.double() if each.is_floating_point() else each for each in (*args, mask)))
                limit = 2 * truth.relative(eager, true) + truth.spacing(dtype)
                assert truth.relative(mine, true) <= limit, (begin, spelling.__name__)
    found = counted()
    assert found["length_masks"] == 1 and "near_misses" not in found, found
