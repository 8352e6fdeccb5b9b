"""Attention over documents and padding in float64: operands, what says which documents there are, each document by
itself, and the mask's own numbers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import transformers.masking_utils as hf

import truth
from attending import Counted

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


def attending(spelling):
    def attend(query, key, value, number):
        mask = spelling(number, number.shape[-1])
        group = query.shape[1] // key.shape[1]
        key, value = (each.repeat_interleave(group, 1) for each in (key, value))
        mask = mask.to(query.dtype) if mask.is_floating_point() else mask
        return joined(F.scaled_dot_product_attention(query, key, value, attn_mask=mask))

    return attend


def of_documents(function, places, packed):
    """What transformers makes of a mask's function for documents in a row."""
    remapped = hf.remap_positions_for_packed_sequence(function, places)
    return hf.and_masks(hf.packed_sequence_mask_function(packed), remapped)


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
        # Of a query with one key nothing is a gradient but what float64 leaves of sums of numbers about 1.
        left = 1e-15 * right.numel() ** 0.5
        assert (mine - right).norm() < 1e-12 * right.norm() + left


def marked(compiled, query, key, value, number):
    for tensor, dimensions in ((query, (0, 2)), (key, (0, 2)), (value, (0, 2)), (number, (0, 1))):
        for dimension in dimensions:
            torch._dynamo.mark_dynamic(tensor, dimension)
    return compiled(query, key, value, number)


def as_the_mask(compiled, function, args, number, calls: str):
    """The numbers are eager's, and the call counted so."""
    counted = Counted()
    results = []
    for run in (compiled, function):
        leaves = [arg.detach().clone().requires_grad_() for arg in args]
        result = run(*leaves, number)
        result.square().sum().backward()
        results.append([result, *(leaf.grad for leaf in leaves)])
    for mine, right in zip(*results):
        assert truth.relative(mine.detach(), right.detach()) < 1e-12
    assert counted()[calls] == 1, counted()
