"""Ways to write an attention mask, for rows of queries of one length: causal ones, full ones, and some that are nearly so."""

from __future__ import annotations

from collections.abc import Callable

import torch
import transformers.masking_utils as hf

Spelling = Callable[[int, int], torch.Tensor]  # (batch, length) -> mask


def indices(length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries as a column, keys as a row."""
    return torch.arange(length)[:, None], torch.arange(length)[None, :]


def lower_triangle(batch, length):
    return torch.ones(length, length, dtype=torch.bool).tril()


def comparison(batch, length):
    query, key = indices(length)
    return key <= query


def negated_comparison(batch, length):
    query, key = indices(length)
    return ~(key > query)


def difference(batch, length):
    query, key = indices(length)
    return ((query - key).clamp(min=-1) != -1)[None, None].expand(batch, 1, -1, -1)


def infinite_above(batch, length):
    return torch.full((length, length), float("-inf")).triu(1)


def filled(batch, length):
    query, key = indices(length)
    return torch.zeros(length, length).masked_fill(key > query, float("-inf"))


def least_above(batch, length):
    query, key = indices(length)
    least = torch.finfo(torch.float32).min
    return torch.where(key <= query, torch.tensor(0.0), least).reshape(1, 1, length, length)


def scaled(batch, length):
    query, key = indices(length)
    return (1.0 - (query >= key).float()) * torch.finfo(torch.float32).min


def counted(batch, length):
    """Positions as running sums of ones."""
    position = torch.ones(batch, length, dtype=torch.long).cumsum(-1) - 1
    return (position[:, None, :] <= position[:, :, None]).unsqueeze(1)


def flipped(batch, length):
    query, key = indices(length)
    return (key.flip(1) >= query.flip(0)).transpose(0, 1).logical_not() | (key == query)


def padded_and_cut(batch, length):
    query, key = indices(length)
    wide = torch.nn.functional.pad(key <= query, (0, 3), value=True)
    return wide[:, :length]


def joined(batch, length):
    query, key = indices(length)
    whole = key <= query
    return torch.cat([whole[:2], whole[2:]], 0)


def gathered(batch, length):
    query, _ = indices(length)
    table = torch.arange(length)[None].expand(batch, length)
    rows = torch.arange(batch)[:, None, None]
    return (table[rows, torch.arange(length)[None, None, :]] <= table[rows, query[None]])[:, None]


def packed_in_one(batch, length):
    """A test for several sequences in a row, where there is one: where positions do not grow by one."""
    position = torch.arange(length)[None].expand(batch, -1)
    sequence = (torch.diff(position, prepend=position[:, :1] - 1, dim=-1) != 1).cumsum(-1)
    rows, query, key = torch.arange(batch)[:, None, None, None], *indices(length)
    one = sequence[rows, query[None, None]] == sequence[rows, key[None, None]]
    return position.new_ones((), dtype=torch.bool) & one & (position[rows, key] <= position[rows, query])


def by_vmap(batch, length):
    return hf.sdpa_mask(batch, length, length, use_vmap=True, allow_is_causal_skip=False)


def wide_window(batch, length):
    function = hf.sliding_window_causal_mask_function(length)
    return hf.sdpa_mask(batch, length, length, mask_function=function, allow_is_causal_skip=False)


def one_chunk(batch, length):
    query, key = indices(length)
    return (key <= query) & (query // length == key // length)


CAUSAL = (
    lower_triangle, comparison, negated_comparison, difference, infinite_above, filled, least_above, scaled, counted,
    flipped, padded_and_cut, joined, gathered, packed_in_one, by_vmap, wide_window, one_chunk,
)  # fmt: skip


def full(batch, length):
    return torch.ones(batch, 1, length, length, dtype=torch.bool)


def full_bias(batch, length):
    return torch.zeros(length, length)


def bidirectional_window(batch, length):
    query, key = indices(length)
    return (query - key).abs() <= 3


def bidirectional_window_of_two_sides(batch, length):
    query, key = indices(length)
    return (query - key < 3) & (key - query < 3)


def one_row(batch, length):
    return torch.ones(batch, 1, 1, length, dtype=torch.bool)


def expanded(batch, length):
    """As an encoder of transformers has it: along the keys, too, it is one number."""
    return hf.sdpa_mask(batch, length, length, mask_function=hf.bidirectional_mask_function, allow_is_causal_skip=False)


def wide_bidirectional_window(batch, length):
    query, key = indices(length)
    return (query - key).abs() < length


FULL = (
    full, one_row, full_bias, expanded, wide_bidirectional_window,
)  # fmt: skip
BIDIRECTIONAL = (bidirectional_window, bidirectional_window_of_two_sides)


def strictly_lower(batch, length):
    return torch.ones(length, length, dtype=torch.bool).tril(-1)


def one_ahead(batch, length):
    return torch.ones(length, length, dtype=torch.bool).tril(1)


def transposed(batch, length):
    return torch.ones(length, length, dtype=torch.bool).tril().transpose(0, 1)


def window(batch, length):
    query, key = indices(length)
    return (key <= query) & (query - key < length - 1)


def chunks(batch, length):
    query, key = indices(length)
    return (key <= query) & (query // 4 == key // 4)


def prefix(batch, length):
    query, key = indices(length)
    return (key <= query) | (key < 2)


def finite(batch, length):
    return torch.full((length, length), -100.0).triu(1)


def biased(batch, length):
    query, key = indices(length)
    return torch.where(key <= query, -0.5 * (query - key).float(), float("-inf"))


def infinite_where_allowed(batch, length):
    return torch.full((length, length), float("inf")).triu(1)


def first_entry_only(batch, length):
    query, key = indices(length)
    return ((key <= query)[None] | (torch.arange(batch) > 0)[:, None, None])[:, None]


def wrapped(batch, length):
    """Positions in eight bits, of which the last ones are negative."""
    position = (torch.arange(length) + (128 - length // 2)).to(torch.int8)
    return position[None, :] <= position[:, None]


def from_the_end(batch, length):
    """Indices that wrap around."""
    query, key = indices(length)
    position = torch.arange(length)[torch.arange(length) - 1]
    return position[None, :] <= query


def written(batch, length):
    mask = torch.ones(length, length, dtype=torch.bool).tril()
    mask[0, length - 1] = True
    return mask


def written_through_a_view(batch, length):
    position = torch.arange(length)
    mask = position[None, :] <= position[:, None]
    mask[:, :1].logical_not_()
    return mask


def drawn(batch, length):
    return torch.rand(length, length) < 2.0


OTHERS = (
    strictly_lower, one_ahead, transposed, window, chunks, prefix, finite, biased, infinite_where_allowed,
    first_entry_only, wrapped, from_the_end, written, written_through_a_view, drawn,
)  # fmt: skip
