"""Masks that a caller hands to a few queries of a buffer of keys: what they say is read on the device in each run, no
key that lies before a query's first or behind its last is, and every mask has its own numbers, whatever it holds."""

from __future__ import annotations

import dataclasses
import random

import pytest
import torch
import torch.nn.functional as F

import cermet
import graphs
import truth
from attending import Counted
from cermet.attention import kernels, masks
from cermet.graph.decision import Declined
from cermet.ops import attending
from cermet.ops.ranges import ATTEND_MASKED
from reference_kernel import NAME, reference  # noqa: F401

HEADS, SHARED, KEYS, WIDTH = 4, 2, 27, 8
compiled = {"backend": "cermet", "options": {"strict": True}}


def operands(rows=3, queries=2, keys=KEYS, seed=0):
    numbers = torch.Generator().manual_seed(seed)
    shapes = (rows, HEADS, queries, WIDTH), (rows, SHARED, keys, WIDTH), (rows, SHARED, keys, WIDTH)
    return [torch.randn(shape, generator=numbers) for shape in shapes]


def grouped(query, key, value, mask):
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)


def repeated(query, key, value, mask):
    key, value = (each.repeat_interleave(HEADS // SHARED, 1) for each in (key, value))
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def cut(query, key, value, mask):
    """As a model cuts a mask that is longer than the keys."""
    return grouped(query, key, value, mask[:, :, :, : key.shape[-2]].expand(query.shape[0], -1, -1, -1))


def between(rows, queries, first, last, keys=KEYS):
    """Each query's from `first` to `last`, which grow by one from query to query and from row to row."""
    place = torch.arange(rows)[:, None, None] + torch.arange(queries)[:, None]
    keys = torch.arange(keys)
    return ((keys >= first + place) & (keys <= last + place))[:, None]


def filled(rows, queries):
    return between(rows, queries, -KEYS, 5)


def padded_on_the_left(rows, queries):
    return filled(rows, queries) & (torch.arange(KEYS) >= torch.arange(rows)[:, None, None, None] * 2 + 1)


def window(rows, queries):
    return between(rows, queries, 9, 14)


def one_key(rows, queries):
    return between(rows, queries, 17, 17)


def all_keys(rows, queries):
    return torch.ones(rows, 1, queries, KEYS, dtype=torch.bool)


def with_a_hole(rows, queries):
    return between(rows, queries, 3, 16) & (torch.arange(KEYS) != 10)


def interleaved(rows, queries):
    return between(rows, queries, 4, 19) & (torch.arange(KEYS) % 3 == 1)


def with_empty_rows(rows, queries):
    mask = with_a_hole(rows, queries)
    mask[0, 0, 0] = False
    mask[-1] = False
    return mask


def of_several_kinds(rows, queries):
    kinds = (filled, with_a_hole, window, with_empty_rows, interleaved)
    return torch.stack([kinds[row % len(kinds)](rows, queries)[row] for row in range(rows)])


def for_all_rows(rows, queries):
    return with_a_hole(1, queries)


def for_all_queries(rows, queries):
    return padded_on_the_left(rows, 1)


MASKS = (
    filled, padded_on_the_left, window, one_key, all_keys, with_a_hole, interleaved, with_empty_rows, of_several_kinds,
    for_all_rows, for_all_queries,
)  # fmt: skip
INTERVALS = filled, padded_on_the_left, window, one_key, all_keys, for_all_queries


def infinity(mask):
    return torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))


def least(mask):
    return torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)


def biased(mask):
    """What is added beside what hides."""
    return infinity(mask) - torch.arange(mask.shape[-1]) * 0.25


SPELLINGS = {"truths": lambda mask: mask, "infinity": infinity, "least": least, "biased": biased}


def poisoned(key, value, mask):
    """NaN where no query of a row has a key before it and one behind it."""
    shown = mask.expand(key.shape[0], 1, -1, -1)
    spans = (shown.cumsum(-1) > 0) & (shown.flip(-1).cumsum(-1).flip(-1) > 0)
    outside = ~spans.any(2).transpose(1, 2)[:, None]
    return [each.masked_fill(outside, torch.nan) for each in (key, value)]


def as_float64(mine, function, args, dtype=torch.float32):
    """By the rule for numbers: at most 2 x eager's error and one unit in the last place."""
    eager = function(*args)
    with truth.Float64():
        true = function(*(arg.double() if arg.is_floating_point() else arg for arg in args))
    limit = 2 * truth.relative(eager, true) + truth.spacing(dtype)
    assert truth.relative(mine, true) <= limit, (truth.relative(mine, true), limit)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("queries", [1, 2])
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("said", MASKS, ids=lambda said: said.__name__)
def test_no_key_is_read_but_from_the_first_to_the_last(reference, said, spelling, queries, rows):
    truths = said(rows, queries)
    query, key, value = operands(rows, queries)
    hides_all = spelling == "least" and not truths.any(-1).all()  # which hides none then
    nan = [key, value] if hides_all else poisoned(key, value, truths)
    mask, counted = SPELLINGS[spelling](truths), Counted()
    with torch.no_grad():
        mine = torch.compile(grouped, **compiled)(query, *nan, mask)
        as_float64(mine, grouped, (query, key, value, mask))
    assert counted() == {"length_masks": 1}


@pytest.mark.parametrize("function", [grouped, repeated, cut], ids=lambda function: function.__name__)
def test_one_program_takes_whatever_a_mask_holds(reference, function):
    counted, graph = Counted(), torch._dynamo.utils.counters["stats"]
    ours, before = torch.compile(function, **compiled), graph["unique_graphs"]
    with torch.no_grad():
        for said in MASKS[: MASKS.index(for_all_rows)]:
            args = *operands(), said(3, 2)
            as_float64(ours(*args), function, args)
    found = counted()
    assert found.pop("grouped_attentions", 0) == (function is repeated) and found == {"length_masks": 1}, found
    assert graph["unique_graphs"] - before == 1


def test_a_query_without_keys_gets_what_eager_gives(reference):
    args = *operands(), torch.zeros(3, 1, 2, KEYS, dtype=torch.bool)
    with torch.no_grad():
        assert not torch.compile(grouped, **compiled)(*args).any() and not grouped(*args).any()


@pytest.mark.parametrize("said", INTERVALS, ids=lambda said: said.__name__)
def test_a_range_is_the_range_kernels_alone(reference, monkeypatch, said):
    """And what is none the other's: each segment has keys in one of the two."""
    kernel, seen = attending.KERNELS[NAME], []

    def ranged(*given):
        seen.append(given[5])
        return kernel.ranged(*given)

    def added(*given):
        seen.append(given[5])
        return kernel.added(*given)

    monkeypatch.setitem(attending.KERNELS, NAME, dataclasses.replace(kernel, ranged=ranged, added=added))
    args = *operands(), said(3, 2)
    with torch.no_grad():
        ATTEND_MASKED(*args, None, NAME)
        ATTEND_MASKED(*args[:3], with_a_hole(3, 2), None, NAME)
    of_range, beside, without, of_hole = seen
    assert (of_range > 0).all() and not beside.any() and not without.any() and (of_hole == 14).all(), seen


@pytest.mark.parametrize("seed", range(30))
def test_random_masks(reference, seed):
    chosen, numbers = random.Random(seed), torch.Generator().manual_seed(seed)
    rows, queries, keys = chosen.randint(1, 3), chosen.randint(1, 5), chosen.randint(6, 40)
    ours, counted = torch.compile(repeated, **compiled), Counted()
    with torch.no_grad():
        for _ in range(3):
            mask = torch.rand(chosen.choice([1, rows]), 1, queries, keys, generator=numbers) < chosen.choice([0.1, 0.9])
            mask &= between(1, queries, *sorted(chosen.sample(range(keys), 2)), keys=keys)
            args = *operands(rows, queries, keys, seed), SPELLINGS[list(SPELLINGS)[seed % 4]](mask)
            as_float64(ours(*args), repeated, args)
    assert counted()["length_masks"] >= 1, counted()


def test_buffers_and_batches_of_other_sizes_are_one_more_graph_each(reference):
    counted, graph = Counted(), torch._dynamo.utils.counters["stats"]
    ours, before = torch.compile(repeated, **compiled), graph["unique_graphs"]
    with torch.no_grad():
        for rows, keys in ((3, 23), (3, 24), (3, 40), (2, 40), (5, 48), (4, 17)):
            args = *operands(rows, 2, keys), between(rows, 2, 3, 8, keys)
            as_float64(ours(*args), repeated, args)
    found = counted()
    assert found == {"length_masks": 3, "grouped_attentions": 3} and graph["unique_graphs"] - before == 3, found


def test_a_mask_that_the_graph_writes_stays(reference):
    def attend(query, key, value, mask):
        mask.logical_not_()
        return grouped(query, key, value, mask)

    counted, ours = Counted(), torch.compile(attend, **compiled)
    with torch.no_grad():
        torch.testing.assert_close(ours(*operands(), ~window(3, 2)), grouped(*operands(), window(3, 2)))
    assert "length_masks" not in counted(), counted()


def test_under_the_check(reference, monkeypatch):
    monkeypatch.setenv("CERMET_CHECK", "1")
    counted, args = Counted(), (*operands(), of_several_kinds(3, 2))
    with torch.no_grad():
        as_float64(torch.compile(grouped, **compiled)(*args), grouped, args)
    assert counted() == {"length_masks": 1}


@pytest.mark.parametrize("remainder", ["aot", "inductor", "eager"])
def test_what_runs_the_rest(reference, remainder):
    options, args = {"strict": True, "remainder": remainder}, (*operands(), of_several_kinds(3, 2))
    counted = Counted()
    with torch.inference_mode():
        as_float64(torch.compile(repeated, backend="cermet", options=options)(*args), repeated, args)
    assert counted() == {"length_masks": 1, "grouped_attentions": 1}


# --- What is left alone ----------------------------------------------------------------------------------------------


def misses(function, *args):
    with torch.no_grad():
        found = masks.find(graphs.trace(function, *args))
    assert not found.masks, found
    return [(miss.pattern, miss.condition) for miss in found.near_misses]


def test_a_mask_of_each_head_is_told(reference):
    ((pattern, told),) = misses(grouped, *operands(), window(3, 2).expand(-1, HEADS, -1, -1).clone())
    assert pattern == "length_mask" and "a mask of 3, 4, 2, 27, expected one of all heads and of each key" in told, told


def test_a_mask_of_another_type_is_told(reference):
    query, key, value = (each.bfloat16() for each in operands())
    ((pattern, told),) = misses(grouped, query, key, value, infinity(window(3, 2)))
    assert pattern == "length_mask" and "a mask of torch.float32 on cpu, and the attention of torch.bfloat16" in told


def test_keys_of_which_only_data_say_how_many_are_told(reference):
    def attend(query, key, value, mask, shown):
        places = torch.nonzero(shown).view(-1)
        torch._check(len(places) > 2)
        torch._check(len(places) < KEYS)
        return grouped(query, key[:, :, places], value[:, :, places], mask)

    shown = torch.arange(KEYS) % 2 == 0
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        ((pattern, told),) = misses(attend, *operands(), torch.ones(3, 1, 2, 1, dtype=torch.bool), shown)
    assert pattern == "length_mask" and told == "attention of sizes that data say"


def test_more_queries_than_a_few_keep_their_mask(reference):
    ((pattern, _),) = misses(grouped, *operands(queries=17), window(3, 17))
    assert pattern == "causal_mask"


def test_where_no_kernel_takes_masks_it_is_told():
    counted = Counted()
    with torch.no_grad():
        told = " ".join(str(cermet.explain(grouped, *operands(), window(3, 2))).split())
    assert "no kernel takes ranges of keys under a mask of float32 heads of 8 on cpu (flash: it runs on cuda)" in told
    assert "length_masks" not in counted(), counted()


def test_a_graph_with_gradients_is_told_what_it_was(reference):
    """Of a mask that might be anything it is not said that it hides no key of a buffer."""
    query, key, value = (each.requires_grad_() for each in operands())
    found = masks.find(graphs.trace(grouped, query, key, value, window(3, 2)))
    (miss,) = found.near_misses
    assert not found.masks and miss.pattern == "causal_mask", found
    assert miss.condition == "it is not provable from the graph that every key up to the query is attended to", miss


def test_gradients_keep_their_mask(reference):
    query, key, value = (each.requires_grad_() for each in operands())
    counted, mask = Counted(), window(3, 2)
    mine, eager = (
        torch.autograd.grad(run(query, key, value, mask).square().sum(), (query, key, value))
        for run in (torch.compile(grouped, **compiled), grouped)
    )
    for one, other in zip(mine, eager):
        torch.testing.assert_close(one, other)
    assert "length_masks" not in counted(), counted()


def test_a_mask_of_all_queries_and_keys_is_one_of_documents_still(reference):
    def attend(*given):
        return grouped(*given).contiguous()

    with torch.no_grad():
        found = masks.find(graphs.trace(attend, *operands(queries=9, keys=9), between(3, 9, 0, 3, keys=9)))
    assert [mask.meaning for mask in found.masks] == [masks.Meaning.DOCUMENT], found


# --- Kernels ---------------------------------------------------------------------------------------------------------


def test_a_kernel_that_adds_nothing_is_none(reference, monkeypatch):
    form = kernels.Form(torch.device("cpu"), torch.float32, 2, WIDTH, WIDTH, ranged=True, masked=True)
    true = attending.KERNELS[NAME]

    def blind(*given):
        return true.added(*given[:6], torch.zeros_like(given[6]), *given[7:])

    assert kernels.kernel_of(form) == NAME
    for added, told in ((blind, "its results under a mask differ"), (None, "it adds no mask to scores")):
        monkeypatch.setitem(attending.KERNELS, NAME, dataclasses.replace(true, added=added))
        kernels._probed.cache_clear()
        with pytest.raises(Declined, match=f"no kernel takes ranges of keys under a mask.*{NAME}: {told}"):
            kernels.kernel_of(form)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_op_checks_against_torch(reference, spelling):
    mask = SPELLINGS[spelling](with_empty_rows(3, 2))
    for given in (mask, mask[:1], mask[0, 0], mask[0]):
        with torch.no_grad():
            torch.library.opcheck(ATTEND_MASKED, (*operands(), given, None, NAME))
