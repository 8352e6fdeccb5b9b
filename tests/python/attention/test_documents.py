"""Masks of documents that lie behind one another: attention gets their boundaries, however they are spelled, and gives
what it gives of each document by itself."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch
import torch.nn.functional as F
import transformers.masking_utils as hf

import graphs
import truth
from attending import Counted, found
from cermet.attention.masks import Meaning
from reference_kernel import reference  # noqa: F401

LENGTH, HEADS, SHARED, WIDTH = 12, 4, 2, 8
ROWS = [[4, 3, 5], [12], [1] * 12, [1, 10, 1], [11, 1]]


def operands(batch: int, length: int = LENGTH, heads: int = SHARED):
    numbers = torch.Generator().manual_seed(batch)
    counts = (HEADS, heads, heads)
    return [
        torch.randn(batch, count, length, WIDTH, generator=numbers, dtype=torch.float64, requires_grad=True)
        for count in counts
    ]


def positions(rows) -> torch.Tensor:
    return torch.stack([torch.cat([torch.arange(length) for length in row]) for row in rows])


def ids(rows, step: int = 1) -> torch.Tensor:
    return torch.stack(
        [torch.cat([torch.full((length,), step * number + 7) for number, length in enumerate(row)]) for row in rows]
    )


def triangle(length: int) -> torch.Tensor:
    return torch.arange(length)[None, :] <= torch.arange(length)[:, None]


# --- Spellings: (numbers, length) -> mask ----------------------------------------------------------------------------


def of_transformers(places, length):
    packed = hf.find_packed_sequence_indices(places)
    function = hf.packed_sequence_compatibility_function(hf.causal_mask_function, places, packed)
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


def attending(spelling):
    def attend(query, key, value, number):
        mask = spelling(number, number.shape[-1])
        group = query.shape[1] // key.shape[1]
        key, value = (each.repeat_interleave(group, 1) for each in (key, value))
        mask = mask.to(query.dtype) if mask.is_floating_point() else mask
        return joined(F.scaled_dot_product_attention(query, key, value, attn_mask=mask))

    return attend


def joined(attended: torch.Tensor) -> torch.Tensor:
    """As a model goes on: heads beside one another, for the next product."""
    return attended.transpose(1, 2).flatten(2)


def alone(rows, query, key, value, causal: bool = True):
    """Each document by itself."""
    key, value = (each.repeat_interleave(query.shape[1] // key.shape[1], 1) for each in (key, value))
    found = []
    for row, lengths in enumerate(rows):
        parts = [tensor[row : row + 1].split(lengths, 2) for tensor in (query, key, value)]
        each = [F.scaled_dot_product_attention(*document, is_causal=causal) for document in zip(*parts)]
        found.append(torch.cat(each, 2))
    return joined(torch.cat(found))


def same_as_alone(ours, rows, args, number, causal: bool = True):
    """Result and gradients."""
    results = []
    for run in (lambda *given: ours(*given, number), lambda *given: alone(rows, *given, causal=causal)):
        leaves = [arg.detach().clone().requires_grad_() for arg in args]
        result = run(*leaves)
        weight = torch.randn(result.shape, generator=torch.Generator().manual_seed(3), dtype=result.dtype)
        (result * weight).sum().backward()
        results.append([result, *(leaf.grad for leaf in leaves)])
    for mine, right in zip(*results):
        assert truth.relative(mine.detach(), right.detach()) < 1e-12


def marked(compiled, query, key, value, number):
    for tensor, dimensions in ((query, (0, 2)), (key, (0, 2)), (value, (0, 2)), (number, (0, 1))):
        for dimension in dimensions:
            torch._dynamo.mark_dynamic(tensor, dimension)
    return compiled(query, key, value, number)


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
