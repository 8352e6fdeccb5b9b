"""Attention masks that are causal become `is_causal`, full ones are left out, however they are spelled; others stay, and no
number changes."""

from __future__ import annotations

import dataclasses
import logging
import random

import pytest
import torch
import torch.nn.functional as F

import cermet
import graphs
import mask_spellings
from attending import BATCH, LENGTH, Counted, as_true, attending, attention_masks, found, operands, with_padding
from cermet.attention import calls, masks
from cermet.attention.proof import functions
from cermet.errors import Error
from mask_spellings import BIDIRECTIONAL, CAUSAL, FULL, OTHERS


# --- What is causal --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", CAUSAL, ids=lambda spelling: spelling.__name__)
def test_causal_masks_are_found_and_are_causal(spelling):
    for length in (2, 3, LENGTH):
        mask = spelling(BATCH, length)
        allowed = mask if mask.dtype == torch.bool else mask == 0
        assert torch.equal(allowed.expand(BATCH, 1, length, length)[0, 0], torch.ones(length, length).tril().bool())
    for dynamic in (False, True):
        torch._dynamo.reset()
        answer = found(attending(spelling), *operands(), dynamic=dynamic)
        assert len(answer.masks) == 1 and not answer.masks[0].given, answer.near_misses
        assert not answer.near_misses


@pytest.mark.parametrize("spelling", CAUSAL, ids=lambda spelling: spelling.__name__)
def test_causal_masks_give_the_same_numbers(spelling):
    function, counted = attending(spelling), Counted()
    compiled = graphs.compiled(function)
    as_true(compiled, function, operands())
    assert counted() == {"causal_masks": 1}


@pytest.mark.parametrize("spelling", OTHERS, ids=lambda spelling: spelling.__name__)
def test_other_masks_stay(spelling):
    function, args = attending(spelling), operands()
    for dynamic in (False, True):
        torch._dynamo.reset()
        answer = found(function, *args, dynamic=dynamic)
        assert not answer.masks and len(answer.near_misses) == 1
        assert "mask_spellings.py" in answer.near_misses[0].source or "attending.py" in answer.near_misses[0].source
    counted = Counted()
    ours = graphs.compiled(function)(*args)
    torch.testing.assert_close(ours, function(*args), rtol=0, atol=0, equal_nan=True)
    assert counted() == {"near_misses": 1}


# --- What is full ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", FULL, ids=lambda spelling: spelling.__name__)
def test_full_masks_are_left_out(spelling):
    function, counted = attending(spelling), Counted()
    for dynamic in (False, True):
        torch._dynamo.reset()
        answer = found(function, *operands(), dynamic=dynamic)
        assert [mask.meaning for mask in answer.masks] == [masks.Meaning.FULL] and not answer.masks[0].given
        assert not answer.near_misses
    module = graphs.trace(function, *operands())
    masks.apply(module, masks.find(module).masks)
    given = calls.arguments(*calls.attentions(module))
    assert (given["attn_mask"], given["is_causal"]) == (None, False)
    as_true(graphs.compiled(function), function, operands())
    assert counted() == {"full_masks": 1}


@pytest.mark.parametrize("spelling", FULL, ids=lambda spelling: spelling.__name__)
def test_full_masks_beside_padding(spelling):
    function, counted = with_padding(spelling), Counted()
    compiled = graphs.compiled(function, "aot")
    for mask in attention_masks():
        as_true(compiled, function, [*operands(), mask])
    assert counted() == {"full_masks": 1, "calls_unpadded": 1, "calls_padded": 2}


def test_a_full_mask_of_other_keys_is_left_out():
    """As a decoder that looks at an encoder's keys has it."""

    def attend(query, key, value):
        mask = torch.ones(query.shape[0], 1, query.shape[2], key.shape[2], dtype=torch.bool)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)

    counted = Counted()
    as_true(graphs.compiled(attend), attend, operands(4, keys=7))
    assert counted() == {"full_masks": 1}


def test_a_full_mask_that_hides_one_key_stays():
    def attend(query, key, value):
        rows, columns = torch.arange(query.shape[2])[:, None], torch.arange(key.shape[2])[None, :]
        return F.scaled_dot_product_attention(query, key, value, attn_mask=(columns != 3) | (rows != 5))

    counted = Counted()
    compiled = graphs.compiled(attend)
    torch.testing.assert_close(compiled(*operands()), attend(*operands()), rtol=0, atol=0)
    assert counted() == {"near_misses": 1}


def test_explain_tells_of_full_masks():
    explained = cermet.explain(with_padding(mask_spellings.full), *operands(), attention_masks()[0])
    assert explained.counts["full_mask"] == 1 and explained.counts["causal_mask"] == 0
    assert "full masks:" in str(explained) and "where l_attention_mask_ is 1 everywhere" in str(explained)
    assert "Full masks" in explained.html()


@pytest.mark.parametrize("spelling", BIDIRECTIONAL, ids=lambda spelling: spelling.__name__)
def test_bidirectional_windows_say_that_they_have_no_kernel(spelling):
    for dynamic in (False, True):
        torch._dynamo.reset()
        answer = found(attending(spelling), *operands(), dynamic=dynamic)
        (near_miss,) = answer.near_misses
        assert not answer.masks and near_miss.pattern == "window_mask"
        assert ("heads that are not known" if dynamic else "no kernel takes") in near_miss.condition


def symmetric(batch, length):
    """No window: it has holes."""
    query, key = mask_spellings.indices(length)
    return (query - key).abs() != 3


def test_masks_of_two_sides_that_mean_nothing_are_no_near_misses():
    for function, args in (
        (attending(symmetric), operands()),
        (with_padding(symmetric), [*operands(), attention_masks()[0]]),
    ):
        for dynamic in (False, True):
            torch._dynamo.reset()
            answer = found(function, *args, dynamic=dynamic)
            assert not answer.masks and not answer.near_misses, answer.near_misses


def test_a_graph_is_looked_through_once_for_all_that_is_asked_of_it(monkeypatch):
    """Which is long where layers are many, and a mask without a meaning is asked for each."""
    written, looked = functions._written, []
    monkeypatch.setattr(functions, "_written", lambda module: looked.append(module) or written(module))
    assert not found(with_padding(symmetric), *operands(), attention_masks()[0]).masks
    assert len(looked) == 1


def test_rows_and_columns_of_other_numbers_stay():
    def short(query, key, value):
        rows, columns = torch.arange(query.shape[2])[:, None], torch.arange(key.shape[2])[None, :]
        return F.scaled_dot_product_attention(query, key, value, attn_mask=columns <= rows)

    answer = found(short, *operands(4, keys=6))
    assert not answer.masks and "4 queries and 6 keys" in answer.near_misses[0].condition
    assert not found(short, *operands(4, keys=6), dynamic=True).masks
    assert not found(short, *operands(1, keys=6)).masks


def test_a_mask_that_is_passed_in_or_learned_stays():
    query, key, value = operands()
    mask = torch.ones(LENGTH, LENGTH).tril().bool()

    def attend(query, key, value, mask):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)

    assert not found(attend, query, key, value, mask).masks
    bias = torch.zeros(LENGTH, LENGTH, requires_grad=True)
    assert not found(attend, query, key, value, bias).masks


def test_positions_that_are_passed_in_stay():
    def attend(query, key, value, positions):
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=(positions[:, None, :] <= positions[:, :, None])[:, None]
        )

    assert not found(attend, *operands(), torch.arange(LENGTH).expand(BATCH, -1).contiguous()).masks


def test_arguments_by_position_and_by_name_are_kept():
    def attend(query, key, value):
        mask = mask_spellings.comparison(BATCH, LENGTH)
        first = F.scaled_dot_product_attention(query, key, value, mask, 0.0, False, scale=0.25)
        return F.scaled_dot_product_attention(first, key=key, value=value, attn_mask=mask, scale=0.5)

    module = graphs.trace(attend, *operands())
    masks.apply(module, masks.find(module).masks)
    first, second = calls.attentions(module)
    for node, scale in ((first, 0.25), (second, 0.5)):
        given = calls.arguments(node)
        assert (given["attn_mask"], given["is_causal"], given["scale"]) == (None, True, scale)
    as_true(graphs.compiled(attend), attend, operands())


def test_dropout_stays():
    def attend(query, key, value):
        mask = mask_spellings.comparison(BATCH, LENGTH)
        return F.scaled_dot_product_attention(query, key, value, mask, 0.5)

    module = graphs.trace(attend, *operands())
    masks.apply(module, masks.find(module).masks)
    assert all(calls.arguments(node)["dropout_p"] == 0.5 for node in calls.attentions(module))


def test_other_users_of_the_mask_see_it():
    def attend(query, key, value):
        mask = mask_spellings.comparison(BATCH, LENGTH)
        return F.scaled_dot_product_attention(query, key, value, mask) * mask.sum(), mask

    query, key, value = operands()
    ours, mask = graphs.compiled(attend)(query, key, value)
    torch.testing.assert_close(ours, attend(query, key, value)[0])
    assert torch.equal(mask, mask_spellings.comparison(BATCH, LENGTH))


def test_what_only_fed_the_mask_is_gone():
    module = graphs.trace(attending(mask_spellings.packed_in_one), *operands())
    masks.apply(module, masks.find(module).masks)
    assert [node.op for node in module.graph.nodes] == ["placeholder"] * 3 + ["call_function", "output"]


def test_a_failure_leaves_the_graph_as_it_was(monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(masks, "erase_unused", broken)
    function, args = attending(mask_spellings.comparison), operands()
    counted = Counted()
    with caplog.at_level(logging.DEBUG, "cermet"):
        ours = torch.compile(
            function, backend="cermet", fullgraph=True, options={"strict": False, "remainder": "aot"}
        )(*args)
    torch.testing.assert_close(ours, function(*args))
    assert counted() == {"fallbacks": 1} and "broken on purpose" in caplog.text
    torch._dynamo.reset()
    with pytest.raises(Exception, match="broken on purpose"):
        graphs.compiled(function)(*args)


# --- Sizes -----------------------------------------------------------------------------------------------------------


def test_a_window_of_a_symbolic_length_is_guarded():
    def attend(query, key, value):
        rows, columns = mask_spellings.indices(query.shape[2])
        return F.scaled_dot_product_attention(query, key, value, (columns <= rows) & (rows - columns < 12))

    counted = Counted()
    compiled = torch.compile(
        attend, backend="cermet", fullgraph=True, dynamic=True, options={"strict": True, "remainder": "eager"}
    )
    for length in (9, 12, 13, 20):
        query, key, value = operands(length)
        torch.testing.assert_close(compiled(query, key, value), attend(query, key, value))
    assert counted() == {"causal_masks": 1, "near_misses": 1}


def test_every_length_of_a_dynamic_mask():
    compiled = torch.compile(
        attending(mask_spellings.packed_in_one), backend="cermet", dynamic=True, options={"remainder": "eager"}
    )
    counted = Counted()
    for length in (9, 2, 3, 17):
        args = operands(length)
        torch.testing.assert_close(compiled(*args), attending(mask_spellings.packed_in_one)(*args))
    assert counted() == {"causal_masks": 1}


def test_one_head_of_keys_for_all_queries_binds_no_length(device):
    """No kernel has it: torch makes it of products, which ask for more than a symbol says."""

    def attend(query, key, value):
        rows, columns = mask_spellings.indices(query.shape[2])
        mask = (columns <= rows).to(query.device)
        return F.scaled_dot_product_attention(query, key, value, mask)

    compiled = graphs.compiled(attend, "aot")
    for length in (64, 48):
        torch.manual_seed(0)
        query = torch.randn(2, 4, length, 32, device=device, requires_grad=True)
        key, value = (torch.randn(2, 1, length, 32, device=device) for _ in range(2))
        for tensor in (query, key, value):
            torch._dynamo.mark_dynamic(tensor, 2)
        torch.testing.assert_close(compiled(query, key, value), attend(query, key, value), rtol=1e-4, atol=1e-5)


def test_an_assumed_size_that_does_not_hold_is_an_error():
    module = graphs.trace(attending(mask_spellings.comparison), *operands())
    (mask,) = masks.find(module).masks
    false = dataclasses.replace(mask, proof=masks.Proof(masks.Meaning.CAUSAL, limits=(-1,)))
    with pytest.raises(Error, match="below zero"):
        masks.apply(module, [false])


# --- Claims about random masks ---------------------------------------------------------------------------------------


def random_formula(numbers: random.Random, depth: int):
    """A formula of comparisons of shifted and scaled indices, most often nearly causal."""
    kind = numbers.choice(["leaf"] * 3 + ["and", "or", "not", "where", "xor"]) if depth else "leaf"
    if kind == "leaf":
        shift = numbers.randint(-1, 1) if numbers.random() < 0.2 else 0
        return kind, numbers.randrange(5), numbers.choice([1, 1, 2]), shift
    return kind, *(random_formula(numbers, depth - 1) for _ in range(3))


def evaluated(formula, query, key):
    kind, *rest = formula
    if kind == "leaf":
        form, factor, shift = rest
        left, right = key * factor + shift, query * factor
        return (left <= right, ~(left > right), left < right + 1, left - right <= 0, key >= 0)[form]
    first, second, third = (evaluated(part, query, key) for part in rest)
    if kind == "not":
        return ~first | second
    if kind == "where":
        return torch.where(first, second, third)
    return {"and": first & second, "or": first | second, "xor": first ^ second ^ third}[kind]


def random_mask(seed: int):
    formula = random_formula(random.Random(seed), 2)
    return lambda batch, length: evaluated(formula, *mask_spellings.indices(length))


def test_claims_about_random_masks_are_true_and_complete():
    holding = []
    for seed in range(60):
        mask = random_mask(seed)
        torch._dynamo.reset()
        claimed = [claim.meaning for claim in found(attending(mask), *operands(5)).masks]
        meanings = {masks.Meaning.CAUSAL: torch.ones(5, 5).tril().bool(), masks.Meaning.FULL: torch.ones(5, 5).bool()}
        holds = [meaning for meaning, true in meanings.items() if torch.equal(mask(1, 5).expand(5, 5), true)]
        assert claimed == holds, f"seed {seed}: claimed {claimed}, but it is {holds}"
        holding += holds
    assert 5 < holding.count(masks.Meaning.CAUSAL) < 50 and holding.count(masks.Meaning.FULL)
