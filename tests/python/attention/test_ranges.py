"""A few queries of a buffer of keys that is longer than what is in it read those that are there: the mask's bounds are
proved, computed on the device, and no mask is left."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import random

import pytest
import torch
import torch.nn.functional as F
import transformers

import cermet
import graphs
import tiny_models
import truth
from attending import Counted
from cermet.attention import kernels, masks
from cermet.graph.decision import Declined
from cermet.ops import attending
from cermet.ops.ranges import ATTEND_RANGES
from reference_kernel import NAME, reference  # noqa: F401

ROWS, HEADS, SHARED, QUERIES, KEYS, WIDTH = 3, 4, 2, 2, 23, 8
compiled = {"backend": "cermet", "options": {"strict": True}}


def operands(queries=QUERIES, keys=KEYS, rows=ROWS, seed=0):
    numbers = torch.Generator().manual_seed(seed)
    shapes = (rows, HEADS, queries, WIDTH), (rows, SHARED, keys, WIDTH), (rows, SHARED, keys, WIDTH)
    return [torch.randn(shape, generator=numbers) for shape in shapes]


def places(keys=KEYS):
    return torch.arange(keys)


def up_to(at):
    return (places() <= at[:, :, None])[:, None]


def fewer_than(at):
    return (places() < (at + 1)[:, :, None])[:, None]


def of_int32(at):
    return (places() <= at.to(torch.int32)[:, :, None])[:, None]


def window(at):
    behind = at.to(torch.int32)[:, :, None] - places()
    return ((behind >= 0) & (behind < 5))[:, None]


def window_of_two_comparisons(at):
    return ((places() <= at[:, :, None]) & (places() > at[:, :, None] - 5))[:, None]


def from_a_place(at):
    return ((places() <= at[:, :, None]) & (places() >= at[:, :1, None] // 2))[:, None]


def added(at):
    return torch.zeros(ROWS, 1, QUERIES, KEYS).masked_fill(places() > at[:, None, :, None], float("-inf"))


def of_every_head(at):
    return up_to(at).expand(-1, HEADS, -1, -1)


def one_place(at):
    return (places() <= at[0, 0] + torch.arange(QUERIES, dtype=torch.int32)[:, None])[None, None]


MASKS = (
    up_to, fewer_than, of_int32, window, window_of_two_comparisons, from_a_place, added, of_every_head, one_place,
)  # fmt: skip


def attention(spelling):
    def attend(query, key, value, at):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=spelling(at), enable_gqa=True)

    return attend


def beside_float64(ours, function, args, dtype=torch.float32):
    """By the rule for numbers: at most 2 x eager's error and one unit in the last place."""
    mine, eager = ours(*args), function(*args)
    with truth.Float64():
        true = function(*(arg.double() if arg.is_floating_point() else arg for arg in args))
    limit = 2 * truth.relative(eager, true) + truth.spacing(dtype)
    assert truth.relative(mine, true) <= limit, (truth.relative(mine, true), limit)


ALL = [[0, 1], [11, 12], [21, 22]]
ELSEWHERE = [[22, 0], [7, 7], [-1, 40]]  # in no order, none at all, behind the buffer's end


@pytest.mark.parametrize("spelling", MASKS, ids=lambda spelling: spelling.__name__)
def test_bounds_are_read_and_no_mask_is_left(reference, spelling):
    function, counted = attention(spelling), Counted()
    ours = torch.compile(function, **compiled)
    with torch.no_grad():
        for at in (ALL, ELSEWHERE):
            beside_float64(ours, function, (*operands(), torch.tensor(at)))
    assert counted() == {"length_masks": 1}


def interleaved(at):
    return ((places() <= at[:, :, None]) & (places() % 2 == 0))[:, None]


def but_for_one(at):
    return ((places() <= at[:, :, None]) & (places() != 3))[:, None]


def either_side(at):
    return ((places() <= at[:, :, None]) | (places() > at[:, :, None] + 3))[:, None]


def behind_a_key(at):  # a bound that is another one for each key
    return (places() <= at[:, :, None] - places() % 3)[:, None]


def finite(at):
    """Where it hides all keys of a query it hides none."""
    return torch.zeros(ROWS, 1, QUERIES, KEYS).masked_fill(places() > at[:, None, :, None], -1e35)


def biased(at):
    return torch.full((ROWS, 1, QUERIES, KEYS), 0.5).masked_fill(places() > at[:, None, :, None], float("-inf"))


def of_a_sum(at):  # which may wrap
    return (places() <= (at * 3 + at.flip(1) * 5)[:, :, None])[:, None]


REFUSED = interleaved, but_for_one, either_side, behind_a_key, finite, biased


@pytest.mark.parametrize("spelling", REFUSED, ids=lambda spelling: spelling.__name__)
def test_another_mask_stays(reference, spelling):
    function, counted = attention(spelling), Counted()
    ours = torch.compile(function, **compiled)
    with torch.no_grad():
        beside_float64(ours, function, (*operands(), torch.tensor(ALL)))
    assert "length_masks" not in counted(), counted()


def test_integers_that_wrap_are_what_the_graph_makes_of_them(reference):
    function, counted = attention(of_a_sum), Counted()
    ours = torch.compile(function, **compiled)
    with torch.no_grad():
        for at in (ALL, [[1 << 62, 1 << 61], [-(1 << 62), 3], [2, 1]]):
            beside_float64(ours, function, (*operands(), torch.tensor(at)))
    assert counted() == {"length_masks": 1}


@pytest.mark.parametrize("extreme", [torch.iinfo(torch.int64).max, torch.iinfo(torch.int64).min])
@pytest.mark.parametrize("spelling", [up_to, window_of_two_comparisons], ids=lambda spelling: spelling.__name__)
def test_no_bound_wraps(reference, spelling, extreme):
    function = attention(spelling)
    ours = torch.compile(function, **compiled)
    with torch.no_grad():
        beside_float64(ours, function, (*operands(), torch.tensor([[extreme, 3], [5, extreme], [extreme, extreme]])))


def test_more_queries_than_a_few_keep_their_mask(reference):
    def attend(query, key, value, at):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=up_to(at), enable_gqa=True)

    at, counted = torch.arange(17).expand(ROWS, 17), Counted()
    with torch.no_grad():
        beside_float64(torch.compile(attend, **compiled), attend, (*operands(queries=17), at))
    assert "length_masks" not in counted(), counted()


def test_gradients_keep_their_mask(reference):
    function, counted = attention(up_to), Counted()
    query, key, value = (each.requires_grad_() for each in operands())
    result = torch.compile(function, **compiled)(query, key, value, torch.tensor(ALL))
    mine = torch.autograd.grad(result.square().sum(), (query, key, value))
    eager = torch.autograd.grad(function(query, key, value, torch.tensor(ALL)).square().sum(), (query, key, value))
    for one, other in zip(mine, eager):
        torch.testing.assert_close(one, other)
    assert "length_masks" not in counted(), counted()


def test_keys_that_are_views_of_another_order_keep_their_mask(reference):
    def attend(query, key, value, at):
        key, value = key.transpose(1, 2), value.transpose(1, 2)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=up_to(at), enable_gqa=True)

    query, key, value = operands()
    key, value = key.transpose(1, 2).contiguous(), value.transpose(1, 2).contiguous()
    with torch.no_grad():
        (miss,) = masks.find(graphs.trace(attend, query, key, value, torch.tensor(ALL))).near_misses
    assert miss.pattern == "length_mask" and "do not lie behind one another" in miss.condition


def test_where_no_kernel_takes_ranges_it_is_told():
    function, counted = attention(up_to), Counted()
    with torch.no_grad():
        told = " ".join(str(cermet.explain(function, *operands(), torch.tensor(ALL))).split())
    assert "no kernel takes ranges of keys of float32 heads of 8 on cpu (flash: it runs on cuda)" in told, told
    assert "length_masks" not in counted(), counted()


def test_a_position_that_the_graph_moves_is_the_one_before_it_did(reference):
    def step(query, key, value, at, new):
        mask = (places() <= at)[None, None].expand(ROWS, 1, 1, KEYS)
        place = torch.zeros(1, dtype=torch.int64) + at
        at.add_(1)
        key.index_copy_(2, place, new)
        value.index_copy_(2, place, new)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)

    counted, ours = Counted(), torch.compile(step, **compiled)
    query, key, value = operands(queries=1)
    mine, eager = ([key.clone(), value.clone(), torch.tensor(4)] for _ in range(2))
    with torch.no_grad():
        for turn in range(4):
            new = torch.randn(ROWS, SHARED, 1, WIDTH, generator=torch.Generator().manual_seed(turn))
            torch.testing.assert_close(ours(query, *mine, new), step(query, *eager, new))
    assert mine[2].item() == eager[2].item() == 8 and counted() == {"length_masks": 1}


@pytest.mark.parametrize("seed", range(20))
def test_random_ranges(reference, seed):
    """Bounds of several spellings at once, in any order, against the mask itself."""
    chosen = random.Random(seed)
    queries, keys, rows = chosen.randint(1, 5), chosen.randint(6, 40), chosen.randint(1, 3)
    lasts = chosen.sample(["<=", "<", "least"], chosen.randint(1, 2))
    firsts = chosen.sample([">", "near", "from"], chosen.randint(0, 2))

    def mask(at, other):
        key = torch.arange(keys)
        here, there = at[:, :, None], other[:, None, None]
        allowed = torch.ones(rows, queries, keys, dtype=torch.bool)
        for name in (*lasts, *firsts):
            allowed = allowed & {
                "<=": lambda: key <= here, "<": lambda: key < here + 3, "least": lambda: key <= there + 2,
                ">": lambda: key > here - 7, "near": lambda: here.int() - key < 4, "from": lambda: key >= there - 9,
            }[name]()  # fmt: skip
        return allowed[:, None]

    def attend(query, key, value, at, other):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask(at, other), enable_gqa=True)

    counted, numbers = Counted(), torch.Generator().manual_seed(seed)
    ours = torch.compile(attend, **compiled)
    with torch.no_grad():
        for _ in range(3):
            at = torch.randint(-3, keys + 3, (rows, queries), generator=numbers)
            other = torch.randint(-3, keys + 12, (rows,), generator=numbers)
            beside_float64(ours, attend, (*operands(queries, keys, rows, seed), at, other))
    assert counted()["length_masks"] == 1, counted()


# --- Transformers' static cache --------------------------------------------------------------------------------------


def decoded(model, call, tokens, room=32, filled=5, each=1):
    """Logits of steps behind tokens that eager has put into a static cache."""
    cache = transformers.StaticCache(config=model.config, max_cache_len=room)
    model(input_ids=tokens[:, :filled], past_key_values=cache, use_cache=True)
    steps = range(filled, tokens.shape[1], each)
    parts = [tokens[:, step : step + each] for step in steps]
    return torch.cat([call(input_ids=part, past_key_values=cache, use_cache=True).logits for part in parts], 1)


@pytest.mark.parametrize("family", ["Llama", "Qwen3", "Phi3"])
@pytest.mark.parametrize("each", [1, 3])
def test_a_step_with_a_static_cache_reads_the_keys_that_are_there(reference, family, each):
    model, tokens = tiny_models.tiny(family).eval(), tiny_models.words(length=11)
    with torch.no_grad():
        eager = decoded(model, model, tokens, each=each)
        counted = Counted()
        mine = decoded(model, torch.compile(model, **compiled), tokens, each=each)
        with truth.Float64():
            true = decoded(model.double(), model, tokens, each=each)
    assert truth.relative(mine, true) <= 2 * truth.relative(eager, true) + truth.spacing(torch.float32)
    found = counted()
    assert found["length_masks"] == tiny_models.LAYERS and "near_misses" not in found, found


def test_a_kernel_that_counts_a_key_too_few_is_none(reference, monkeypatch):
    form, true = kernels.Form(torch.device("cpu"), torch.float32, 2, WIDTH, WIDTH, ranged=True), attending.KERNELS[NAME]

    def short(query, key, value, ends, starts, used, longest, scale):
        return true.ranged(query, key, value, ends, starts, (used - 1).clamp(min=0), longest, scale)

    assert kernels.kernel_of(form) == NAME
    monkeypatch.setitem(attending.KERNELS, NAME, dataclasses.replace(true, ranged=short))
    kernels._probed.cache_clear()
    with pytest.raises(Declined, match=f"no kernel takes ranges of keys.*{NAME}: its results differ"):
        kernels.kernel_of(form)


def test_the_op_checks_against_torch(reference):
    query, key, value = operands()
    first, last = torch.tensor([[0, 3]]), torch.tensor([[4, 9], [0, 30], [-1, 2]])
    for bounds in ((first, last), (None, last), (first, None), (None, None)):
        with torch.no_grad():
            torch.library.opcheck(ATTEND_RANGES, (query, key, value, *bounds, None, NAME))


# --- Beside others ---------------------------------------------------------------------------------------------------


def test_what_hides_nothing_beside_a_length(reference):
    """A mask of ones, as a tokenizer gives; where it hides something, the mask stays."""

    def attend(query, key, value, at, shown):
        mask = up_to(at) & shown[:, None, None, :].bool()
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)

    ones, counted, ours = torch.ones(ROWS, KEYS, dtype=torch.int64), Counted(), torch.compile(attend, **compiled)
    some = ones.clone()
    some[1, :3] = 0
    with torch.no_grad():
        for shown in (ones, some):
            beside_float64(ours, attend, (*operands(), torch.tensor(ALL), shown))
    found = counted()
    assert found["length_masks"] == found["calls_unpadded"] == found["calls_padded"] == 1, found


def test_steps_by_two_threads(reference):
    function = attention(up_to)
    ours, args = torch.compile(function, **compiled), operands()
    places = [torch.tensor([[step, step + 1]] * ROWS) for step in range(12)]

    def run(at):
        with torch.no_grad():
            return ours(*args, at)

    run(places[0])
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for at, result in zip(places * 2, pool.map(run, places * 2)):
            torch.testing.assert_close(result, function(*args, at))


def test_under_the_check(reference, monkeypatch):
    monkeypatch.setenv("CERMET_CHECK", "1")
    function, counted = attention(window_of_two_comparisons), Counted()
    with torch.no_grad():
        beside_float64(torch.compile(function, **compiled), function, (*operands(), torch.tensor(ALL)))
    assert counted() == {"length_masks": 1}


def test_a_number_on_another_device_is_told(reference):
    """As a position that the host has: torch compares with it, kernels cannot read it."""
    from torch._subclasses import FakeTensorMode

    def attend(query, key, value, at):
        mask = (torch.arange(KEYS, device=query.device) <= at)[None, None].expand(ROWS, 1, QUERIES, KEYS)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)

    module = graphs.trace(attend, *operands(), torch.tensor(4))
    (place,) = [node for node in module.graph.find_nodes(op="placeholder") if node.meta["example_value"].dim() == 0]
    with FakeTensorMode() as mode:
        place.meta["example_value"] = mode.from_tensor(torch.tensor(4)).to("meta")
    (miss,) = masks.find(module).near_misses
    assert "is on meta, and the attention on cpu" in miss.condition, miss
