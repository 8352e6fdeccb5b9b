"""Heads that are repeated for attention become groups of queries; other repetitions stay, and no number changes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import graphs
import mask_spellings
from attending import BATCH, LENGTH, Counted, as_true, operands
from cermet.attention import grouped
from cermet.graph.decision import Declined


def expanded(tensor, times):
    batch, heads, length, width = tensor.shape
    return tensor[:, :, None].expand(batch, heads, times, length, width).reshape(batch, heads * times, length, width)


def interleaved(tensor, times):
    return tensor.repeat_interleave(times, dim=1)


def stacked(tensor, times):
    return torch.stack([tensor] * times, dim=2).flatten(1, 2)


def tiled(tensor, times):
    return torch.cat([tensor] * times, dim=1)


def repeating(repeat, masked=False):
    def attend(query, key, value):
        mask = mask_spellings.prefix(BATCH, LENGTH) if masked else None
        return F.scaled_dot_product_attention(
            query, repeat(key, 2), repeat(value, 2), attn_mask=mask, is_causal=not masked
        )

    return attend


def grouped_operands():
    query, key, value = operands(heads=4)
    return [query, key[:, :2].contiguous(), value[:, :2].contiguous()]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("repeat", [expanded, interleaved, stacked])
def test_repeated_heads_become_groups(repeat, dynamic):
    function, counted, args = repeating(repeat), Counted(), grouped_operands()
    if dynamic:
        for arg in args:
            torch._dynamo.mark_dynamic(arg, 2)
    graphs.compiled(function)(*args)
    assert counted() == {"grouped_attentions": 1}
    as_true(graphs.compiled(function), function, args)


def test_the_repetition_is_gone():
    module = graphs.trace(repeating(expanded), *grouped_operands())
    assert grouped.apply(module) == 1
    assert [node.op for node in module.graph.nodes] == ["placeholder"] * 3 + ["call_function", "output"]


@pytest.mark.parametrize(
    "function",
    [
        repeating(tiled),
        lambda query, key, value: F.scaled_dot_product_attention(query, expanded(key, 2), tiled(value, 2)),
        lambda query, key, value: F.scaled_dot_product_attention(query, expanded(key, 2), expanded(value, 2) * 2),
        lambda query, key, value: F.scaled_dot_product_attention(
            query, expanded(key, 2).flip(2), expanded(value, 2), is_causal=True
        ),
    ],
)
def test_other_repetitions_stay(function):
    counted = Counted()
    torch.testing.assert_close(
        graphs.compiled(function)(*grouped_operands()), function(*grouped_operands()), rtol=0, atol=0
    )
    assert "grouped_attentions" not in counted()


def test_heads_stay_repeated_where_attention_has_no_kernel_for_groups():
    def attend(query, key, value):  # dropout leaves the CPU with products and a softmax
        return F.scaled_dot_product_attention(query, expanded(key, 2), expanded(value, 2), dropout_p=0.5)

    assert grouped.apply(graphs.trace(attend, *grouped_operands())) == 0


def step_of_decoding(mask):
    """One query of each head, keys and values of a cache of which `mask` tells the filled part."""
    return lambda query, key, value: F.scaled_dot_product_attention(
        query[:, :, :1], expanded(key, 2), expanded(value, 2), attn_mask=mask
    ).transpose(1, 2)


def filled(*shape):
    return torch.arange(LENGTH).expand(*shape, LENGTH) < 5


@pytest.fixture
def no_kernel(monkeypatch):
    """As on a GPU, where no kernel takes a mask and groups."""

    def declined(*_):
        raise Declined("attention has no kernel for it")

    monkeypatch.setattr(grouped, "_grouped", declined)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1), (BATCH, 1, 1), (1,)], ids=str)
@pytest.mark.parametrize("additive", [False, True])
def test_single_queries_of_a_shared_head_lie_beside_each_other(additive, shape, dynamic, no_kernel):
    mask = filled(*shape)
    mask = torch.zeros(mask.shape).masked_fill(~mask, float("-inf")) if additive else mask
    function, counted, args = step_of_decoding(mask), Counted(), grouped_operands()
    if dynamic:
        for arg in args:
            torch._dynamo.maybe_mark_dynamic(arg, 0)
    module = graphs.trace(function, *args)
    assert grouped.apply(module) == 1
    assert not any("expand" in str(node.target) for node in module.graph.nodes)
    graphs.compiled(function)(*args)
    assert counted()["grouped_attentions"] == 1
    as_true(graphs.compiled(function), function, args)


def test_single_queries_with_a_mask_for_each_head_stay(no_kernel):
    mask = filled(1, 4, 1).clone()
    mask[0, 1, 0, 3] = False
    function, args = step_of_decoding(mask), grouped_operands()
    assert grouped.apply(graphs.trace(function, *args)) == 0
    as_true(graphs.compiled(function), function, args)


@pytest.mark.parametrize("late", [False, True])
def test_a_cache_that_has_got_its_rows_is_not_repeated(late):
    """One that is written between its repetition and attention keeps the repetition."""

    def attend(query, row, key, value):
        if not late:
            key[:, :, 2:3] = row
        repeated = expanded(key, 2)
        if late:
            key[:, :, 2:3] = row
        return F.scaled_dot_product_attention(query, repeated, expanded(value, 2))

    query, key, value = [operand.detach() for operand in grouped_operands()]
    args = [query, torch.randn(BATCH, 2, 1, query.shape[-1]), key, value]
    assert grouped.apply(graphs.trace(attend, *args)) == int(not late)
    ours, theirs = ([arg.clone() for arg in args] for _ in range(2))
    torch.testing.assert_close(graphs.compiled(attend)(*ours), attend(*theirs))
    torch.testing.assert_close(ours, theirs)


def test_a_batch_of_one():
    args = [operand[:1] for operand in grouped_operands()]
    assert grouped.apply(graphs.trace(repeating(expanded), *args)) == 1
