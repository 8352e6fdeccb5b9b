"""Masks of documents that lie behind one another: attention gets their boundaries, however they are spelled, and gives
what it gives of each document by itself."""

from __future__ import annotations

import concurrent.futures
import functools
import itertools
import random

import pytest
import torch
import torch.nn.functional as F
import transformers.masking_utils as hf

import cermet
import graphs
from attending import Counted, found
from cermet import pipeline
from cermet.attention import kernels
from cermet.attention.masks import Meaning
from cermet.options import parse as options_of
from cermet.records import Settings
from packing import (
    HEADS, LENGTH, ROWS, SHARED, WIDTH, as_the_mask, attending, ids, joined, marked, of_documents, operands, positions,
    same_as_alone, triangle,
)  # fmt: skip
from reference_kernel import reference  # noqa: F401

# --- Spellings: (numbers, length) -> mask ----------------------------------------------------------------------------


def of_transformers(places, length):
    packed = hf.find_packed_sequence_indices(places)
    function = of_documents(hf.causal_mask_function, places, packed)
    return hf.sdpa_mask(places.shape[0], length, length, mask_function=function, allow_is_causal_skip=False)


def of_starts(places, length):
    number = (places == 0).cumsum(-1)
    return ((number[:, None, :] == number[:, :, None]) & triangle(length))[:, None]


def of_ids(number, length):
    return (number[:, None, :, None] == number[:, None, None, :]) & triangle(length)


def of_ids_lower(number, length):
    return (number.unsqueeze(1) == number.unsqueeze(2)).tril()[:, None]


def of_gathered_ids(number, length):
    rows, query, key = torch.arange(number.shape[0])[:, None, None], torch.arange(length)[:, None], torch.arange(length)
    return (~(number[rows, query[None]] != number[rows, key[None, None]]) & (key <= query))[:, None]


def of_ids_added(number, length):
    same = (number[:, None, :] == number[:, :, None]) & triangle(length)
    return torch.zeros(same.shape, dtype=torch.float64).masked_fill(~same, torch.finfo(torch.float32).min)[:, None]


def of_ids_infinite(number, length):
    other = number[:, None, :] != number[:, :, None]
    above = torch.full((length, length), float("-inf"), dtype=torch.float64).triu(1)
    return torch.where(other, float("-inf"), above)[:, None]


def of_int32_ids(number, length):
    return of_ids(number.to(torch.int32), length)


BY_POSITIONS, BY_IDS = (of_transformers, of_starts), (
    of_ids, of_ids_lower, of_gathered_ids, of_ids_added, of_ids_infinite, of_int32_ids,
)  # fmt: skip
SPELLINGS = [(spelling, positions) for spelling in BY_POSITIONS] + [(spelling, ids) for spelling in BY_IDS]
named = pytest.mark.parametrize(("spelling", "numbers"), SPELLINGS, ids=[each.__name__ for each, _ in SPELLINGS])


# --- What is found ---------------------------------------------------------------------------------------------------


@named
@pytest.mark.parametrize("remainder", ["eager", "aot"])
def test_each_document_is_as_it_is_alone(spelling, numbers, remainder, reference):  # noqa: F811
    """And nothing is compiled again where they differ."""
    compiled, counted = graphs.compiled(attending(spelling), remainder), Counted()
    batches = [pair for pair in itertools.combinations(ROWS, 2)]
    for rows in batches:
        same_as_alone(compiled, rows, operands(2), numbers(rows))
    assert counted() == {"document_masks": 1, "calls_segmented": len(batches), "grouped_attentions": 1}


@named
def test_documents_of_symbolic_sizes(spelling, numbers, reference):  # noqa: F811
    compiled, counted = graphs.compiled(attending(spelling), "aot"), Counted()
    for rows in (ROWS[:2], ROWS[1:4], [[3, 4], [7, 0], [2, 5]], [[5, 12], [16, 1]]):
        args, number = operands(len(rows), sum(rows[0])), numbers([[size for size in row if size] for row in rows])
        same_as_alone(functools.partial(marked, compiled), rows, args, number)
    assert counted() == {"document_masks": 1, "calls_segmented": 4, "grouped_attentions": 1}


def test_documents_under_inductor(reference):  # noqa: F811
    compiled, counted = graphs.compiled(attending(of_transformers), "inductor"), Counted()
    for rows in (ROWS[:2], ROWS[2:4]):
        same_as_alone(compiled, rows, operands(2), positions(rows))
    assert counted() == {"document_masks": 1, "calls_segmented": 2, "grouped_attentions": 1}


def test_documents_without_a_triangle(reference):  # noqa: F811
    def blocks(number, length):
        return (number[:, None, :] == number[:, :, None])[:, None]

    compiled, counted = graphs.compiled(attending(blocks), "aot"), Counted()
    for rows in (ROWS[:2], ROWS[2:4]):
        same_as_alone(compiled, rows, operands(2), ids(rows), causal=False)
    assert counted() == {"document_masks": 1, "calls_segmented": 2, "grouped_attentions": 1}


def test_documents_that_all_rows_share(reference):  # noqa: F811
    def shared(number, length):
        return (number[None, :] == number[:, None]) & triangle(length)

    compiled, counted = graphs.compiled(attending(shared), "aot"), Counted()
    for row in ROWS:
        same_as_alone(compiled, [row] * 3, operands(3), ids([row])[0])
    assert counted()["calls_segmented"] == len(ROWS)


# --- What is refused -------------------------------------------------------------------------------------------------


def test_numbers_may_fall_but_not_come_again(reference):  # noqa: F811
    function = attending(of_ids)
    compiled = graphs.compiled(function, "aot")
    for row, calls in (
        ([9, 9, 9, 4, 4, 4, 4, 4, 6, 6, 6, 6], "calls_segmented"),
        ([0, 0, 0, -1, -1, -1, -1, -1, 0, 0, 0, 0], "calls_padded"),  # interleaved
        ([1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2], "calls_padded"),
        ([5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 1 << 40], "calls_segmented"),
    ):
        as_the_mask(compiled, function, operands(2), torch.tensor([row, [7] * 6 + [8] * 6]), calls)


def test_positions_that_do_not_count_within_a_document_keep_the_mask(reference):  # noqa: F811
    """A document by its own numbers, and a causal mask or a window by positions that begin again inside of it."""

    def by_positions(reach):
        def spelling(both, length):
            number, place = both[:, 0], both[:, 1]
            behind = place[:, :, None] - place[:, None, :]
            same = number[:, None, :] == number[:, :, None]
            return (same & (behind >= 0) & (behind < reach))[:, None]

        return spelling

    number = ids([[4, 8], [6, 6]])
    right, wrong = positions([[4, 8], [6, 6]]), positions([[4, 3, 5], [6, 6]])
    for reach in (3, 100):
        torch._dynamo.reset()
        function = attending(by_positions(reach))
        compiled = graphs.compiled(function, "aot")
        for place, calls in (
            (right, "calls_segmented"),
            (right + 100, "calls_segmented"),
            (wrong, "calls_padded"),
            (right * 2, "calls_padded"),
            (right + (1 << 40), "calls_padded"),  # which nothing is proved of
        ):
            as_the_mask(compiled, function, operands(2), torch.stack([number, place], 1), calls)


def but_for_one_element(number, length):
    return of_ids(number, length) | ((torch.arange(length)[:, None] == 9) & (torch.arange(length) == 1))


def with_a_prefix(number, length):
    return of_ids(number, length) | (torch.arange(length)[None, :] < 1)


def of_other_rows(number, length):
    return of_ids(number.flip(0), length)


def of_shifted_keys(number, length):
    return (number[:, None, :, None] == number.roll(1, 1)[:, None, None, :]) & triangle(length)


def at_least(number, length):
    return (number[:, None, :, None] >= number[:, None, None, :]) & triangle(length)


def finite(number, length):
    return torch.where(of_ids(number, length), 0.0, -100.0).double()


@pytest.mark.parametrize("spelling", [but_for_one_element, with_a_prefix, of_shifted_keys, at_least, finite],
                         ids=lambda spelling: spelling.__name__)  # fmt: skip
def test_masks_that_are_nearly_of_documents_stay(spelling, reference):  # noqa: F811
    number = ids(ROWS[:2])
    answer = found(attending(spelling), *operands(2), number)
    assert not [mask for mask in answer.masks if mask.meaning is Meaning.DOCUMENT], answer
    function = attending(spelling)
    torch.testing.assert_close(graphs.compiled(function, "aot")(*operands(2), number), function(*operands(2), number))


def test_documents_of_other_rows_keep_the_mask(reference):  # noqa: F811
    function = attending(of_other_rows)
    compiled = graphs.compiled(function, "aot")
    as_the_mask(compiled, function, operands(2), ids(ROWS[:2]), "calls_padded")


def test_numbers_that_the_graph_writes_stay(reference):  # noqa: F811
    def attend(query, key, value, number):
        number = number.clone()
        number[0, 3] += 1
        return attending(of_ids)(query, key, value, number)

    answer = found(attend, *operands(2), ids(ROWS[:2]))
    assert not answer.masks and len(answer.near_misses) == 1


def test_numbers_that_are_learned_stay(reference):  # noqa: F811
    def attend(query, key, value, number):
        drawn = (query[:, 0, :, 0] > 0).cumsum(-1)
        return attending(of_ids)(query, key, value, drawn + number)

    answer = found(attend, *operands(2), ids(ROWS[:2]))
    assert not answer.masks and "before the graph runs" in answer.near_misses[0].condition


def test_without_a_kernel_the_mask_stays_and_says_so():
    """As on this device, where no test adds one."""
    function, counted = attending(of_transformers), Counted()
    compiled = graphs.compiled(function, "aot")
    args, number = operands(2), positions(ROWS[:2])
    torch.testing.assert_close(compiled(*args, number), function(*args, number))
    assert counted() == {"near_misses": 1, "grouped_attentions": 1}
    explained = cermet.explain(function, *args, number)
    (near_miss,) = explained.near_misses
    assert near_miss.pattern == "document_mask" and "flash: it runs on cuda" in near_miss.condition


# --- Where it is -----------------------------------------------------------------------------------------------------


def test_documents_of_checkpointed_bodies(reference):  # noqa: F811
    from torch.utils.checkpoint import checkpoint

    def layers(query, key, value, number):
        mask = of_ids(number, LENGTH)

        def layer(query, key, value, mask):
            key, value = (each.repeat_interleave(HEADS // SHARED, 1) for each in (key, value))
            attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
            return attended.transpose(1, 2).contiguous().transpose(1, 2)

        for _ in range(2):
            query = checkpoint(layer, query, key, value, mask, use_reentrant=False)
        return joined(query)

    compiled, counted = graphs.compiled(layers, "aot"), Counted()
    for rows in (ROWS[:2], ROWS[2:4]):
        as_the_mask(compiled, layers, operands(2), ids(rows), "calls_segmented")
    assert counted() == {"document_masks": 2, "calls_segmented": 2, "grouped_attentions": 2}


def test_two_kinds_of_documents_in_one_graph(reference):  # noqa: F811
    def attend(query, key, value, both):
        first = attending(of_ids)(query, key, value, both[:, 0])
        second = attending(of_starts)(query, key, value, both[:, 1])
        return first + 2 * second + attending(of_ids)(query, key, value, both[:, 0])

    compiled, counted = graphs.compiled(attend, "aot"), Counted()
    for one, other in ((ROWS[:2], ROWS[1:3]), (ROWS[2:4], ROWS[3:5])):
        both = torch.stack([ids(one), positions(other)], 1)
        as_the_mask(compiled, attend, operands(2), both, "calls_segmented")
    assert counted() == {"document_masks": 3, "calls_segmented": 2, "grouped_attentions": 3}


def test_numbers_that_are_one_everywhere_are_one_document(reference):  # noqa: F811
    """And no variant of its own."""
    function = attending(of_ids)
    compiled, counted = graphs.compiled(function, "aot"), Counted()
    for number in (torch.ones(2, LENGTH, dtype=torch.long), ids(ROWS[:2])):
        as_the_mask(compiled, function, operands(2), number, "calls_segmented")
    assert counted() == {"document_masks": 1, "calls_segmented": 2, "grouped_attentions": 1}


def test_documents_by_two_threads(reference):  # noqa: F811
    function = attending(of_transformers)
    compiled, args = graphs.compiled(function, "aot"), [operand.detach() for operand in operands(2)]
    batches = [positions(rows) for rows in itertools.combinations(ROWS, 2)]
    compiled(*args, batches[0])
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for batch, result in zip(batches * 2, pool.map(lambda batch: compiled(*args, batch), batches * 2)):
            torch.testing.assert_close(result, function(*args, batch))


def test_where_there_is_no_second_graph_the_mask_stays(reference):  # noqa: F811
    module = graphs.trace(attending(of_ids), *operands(2), ids(ROWS[:2]))
    record = pipeline.run(module, Settings())
    assert not record.variants and "no second graph" in str(record.masks.near_misses[0])


def test_recorded_graphs_keep_the_mask(reference):  # noqa: F811
    module = graphs.trace(attending(of_transformers), *operands(2), positions(ROWS[:2]))
    options = options_of("reduce-overhead", {"remainder": "aot"})
    record = pipeline.run(module, Settings.of(options), until="unmask")
    assert not record.variants and "a recorded graph cannot be told" in str(record.masks.near_misses[0])


def test_explain_tells_of_documents(reference):  # noqa: F811
    explained = cermet.explain(attending(of_transformers), *operands(2), positions(ROWS[:2]))
    assert explained.counts["document_mask"] == 1
    assert "document masks:" in str(explained) and "lie beside one another" in str(explained)
    assert [call.op for run in explained.runs for call in run.calls_of("attention")] == [
        "cermet_v1.attention_lengths", "cermet_v1.attention_lengths_backward",
    ]  # fmt: skip


# --- Claims about random masks ---------------------------------------------------------------------------------------


def random_document_mask(seed: int):
    """A formula of equal numbers and of comparisons of places, most often documents and a band."""
    numbers = random.Random(seed)
    shape = numbers.choice(["and", "and", "and", "and", "or", "where"])
    band = numbers.choice(["all", "causal", "causal", "window", "ahead", "odd"])
    reach, shift = numbers.randint(1, 4), numbers.choice([0, 0, 0, 1])
    equal = numbers.choice(["eq", "ne", "twice", "at least"])

    def spelling(number, length):
        query, key = torch.arange(length)[:, None], torch.arange(length)[None, :]
        mine, theirs = number[:, :, None], number[:, None, :]
        same = {
            "eq": lambda: mine == theirs,
            "ne": lambda: ~(mine != theirs),
            "twice": lambda: mine * 2 == theirs * 2,
            "at least": lambda: (mine >= theirs) & (mine <= theirs + shift),
        }[equal]()
        near = {
            "all": lambda: key >= 0,
            "causal": lambda: key <= query + shift,
            "window": lambda: (key <= query) & (query - key < reach),
            "ahead": lambda: (key - query <= reach) & (query - key <= shift),
            "odd": lambda: (key <= query) | (key == reach),
        }[band]()
        mask = {
            "and": lambda: same & near,
            "or": lambda: same | near,
            "where": lambda: torch.where(same, near, shift > 0),
        }[shape]()
        return mask[:, None]

    return spelling


def test_claims_about_random_documents_are_true(reference):  # noqa: F811
    claimed = 0
    for seed in range(60):
        spelling = random_document_mask(seed)
        torch._dynamo.reset()
        claims = [mask for mask in found(attending(spelling), *operands(2), ids(ROWS[:2])).masks if mask.kind]
        claimed += len(claims)
        for claim in claims:
            assert claim.meaning is Meaning.DOCUMENT, seed
            rows = [[3, 1, 5, 3], [12]]
            right = torch.stack([kernels.mask_of([(n, n) for n in row], claim.proof.band, LENGTH) for row in rows])
            assert torch.equal(spelling(ids(rows), LENGTH)[:, 0], right), f"seed {seed}: {claim.proof}"
    assert 20 < claimed < 55, claimed


def test_an_empty_batch(reference):  # noqa: F811
    function = attending(of_ids)
    compiled = graphs.compiled(function, "aot")
    as_the_mask(compiled, function, operands(2), ids(ROWS[:2]), "calls_segmented")
    assert compiled(*operands(0), ids(ROWS[:2])[:0]).shape == (0, LENGTH, HEADS * WIDTH)
