"""Masks that are causal beside a padding mask: each call takes the variant that its batch allows, and no number changes."""

from __future__ import annotations

import concurrent.futures
import functools
import logging

import pytest
import torch
import torch.nn.functional as F

import cermet
import graphs
import mask_spellings
from attending import BATCH, LENGTH, Counted, as_true, attending, attention_masks, found, operands
from cermet.attention import masks
from cermet.graph.nodes import example
from cermet.remainder import choice, direct


def padded(query, key, value, attention_mask):
    """As a padding collator and transformers have it."""
    length = query.shape[2]
    rows, columns = mask_spellings.indices(length)
    batch = torch.arange(query.shape[0])[:, None, None, None]
    mask = (columns <= rows)[None, None] & attention_mask.bool()[batch, torch.arange(length)[None, None, None, :]]
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask) * attention_mask[:, None, :, None]


def positions_of_padding(query, key, value, attention_mask):
    """Positions derived from the padding mask, and a float mask."""
    position = (attention_mask.cumsum(-1) - 1).clamp(min=0)
    allowed = (position[:, None, :] <= position[:, :, None]) & (attention_mask[:, None, :] == 1)
    bias = torch.zeros(allowed.shape, dtype=query.dtype).masked_fill(~allowed, torch.finfo(torch.float32).min)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias[:, None])


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.long, torch.bool, torch.int32])
@pytest.mark.parametrize("function", [padded, positions_of_padding])
def test_each_call_takes_its_variant(function, dtype, dynamic):
    if function is positions_of_padding and dtype == torch.bool:
        function = functools.partial(_with_long_mask, function)
    counted = Counted()
    compiled = torch.compile(
        function, backend="cermet", fullgraph=True, dynamic=dynamic, options={"strict": True, "remainder": "eager"}
    )
    for mask in attention_masks(dtype):
        as_true(compiled, function, [*operands(), mask])
    assert counted() == {"causal_masks": 1, "calls_unpadded": 1, "calls_padded": 2}


def _with_long_mask(function, query, key, value, mask):
    return function(query, key, value, mask.long())


@pytest.mark.parametrize("remainder", ["aot", "inductor"])
def test_variants_under_every_remainder(remainder):
    counted = Counted()
    compiled = graphs.compiled(padded, remainder)
    for mask in attention_masks():
        as_true(compiled, padded, [*operands(), mask])
    assert counted() == {"causal_masks": 1, "calls_unpadded": 1, "calls_padded": 2}


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_variant_is_made_when_a_call_needs_it(dynamic):
    ones, left, _ = attention_masks()
    for first, second in ((ones, left), (left, ones)):
        torch._dynamo.reset()
        before = cermet.counters()["graphs"]
        compiled = torch.compile(
            padded, backend="cermet", fullgraph=True, dynamic=dynamic, options={"strict": True, "remainder": "aot"}
        )
        made = []
        for mask in (first, first, second, first, second):
            as_true(compiled, padded, [*operands(), mask])
            made.append(cermet.counters()["graphs"] - before)
        assert made == [1, 1, 2, 2, 2]


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_variant_that_is_made_in_a_call_has_the_sizes_of_its_graph(dynamic, monkeypatch):
    """torch forgets, when it has compiled, which sizes are symbolic."""
    found, line = [], direct.StraightLine

    def keep(graph, *others, **settings):
        values = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
        sizes = {str(size) for value in values if isinstance(value, torch.Tensor) for size in value.shape}
        found.append({size for size in sizes if not size.isdigit()})
        return line(graph, *others, **settings)

    monkeypatch.setattr(direct, "StraightLine", keep)
    options = {"strict": True, "remainder": "aot"}
    compiled = torch.compile(padded, backend="cermet", fullgraph=True, dynamic=dynamic, options=options)
    ones, left, _ = attention_masks()
    with torch.no_grad(), torch._functorch.config.patch(enable_autograd_cache=False):
        compiled(*operands(), left), compiled(*operands(), ones)
    first, second = found
    assert first == second and bool(first) == dynamic, found


@pytest.mark.parametrize("first_has_padding", [False, True])
def test_what_a_variant_asks_of_sizes_in_a_call_is_asked_of_every_call(first_has_padding, monkeypatch):
    """Dynamo has made its guards by then."""
    made, run = [], choice.run

    def asking(module, *others):
        values = [example(node) for node in module.graph.nodes if node.op == "placeholder"]
        query = next(value for value in values if isinstance(value, torch.Tensor) and value.dim() == 4)
        assert not made or query.shape[2] % 2 == 0
        made.append(module)
        return run(module, *others)

    monkeypatch.setattr(choice, "run", asking)
    options = {"strict": True, "remainder": "aot"}
    compiled = torch.compile(padded, backend="cermet", fullgraph=True, dynamic=True, options=options)
    counted, (ones, left, _) = Counted(), attention_masks()
    first, second = (left, ones) if first_has_padding else (ones, left)
    with torch._functorch.config.patch(enable_autograd_cache=False):  # where the other order's guards would be
        for length, mask in ((6, first), (6, second), (7, first), (7, second), (4, second)):
            as_true(compiled, padded, [*operands(length), mask[:, :length]])
    assert len(made) == 2
    assert counted() == {"causal_masks": 1, "calls_unpadded": 2, "calls_padded": 3}


@pytest.mark.parametrize("first_has_padding", [False, True])
def test_a_variant_for_which_dynamo_would_trace_again_is_not_made_in_a_call(first_has_padding, monkeypatch):
    made, run = [], choice.run

    def restarting(module, *others):
        made.append(module)
        if len(made) == 2:
            raise torch._dynamo.exc.TensorifyScalarRestartAnalysis
        return run(module, *others)

    monkeypatch.setattr(choice, "run", restarting)
    options = {"strict": True, "remainder": "aot"}
    compiled = torch.compile(padded, backend="cermet", fullgraph=True, dynamic=True, options=options)
    ones, left, _ = attention_masks()
    for mask in (left, ones, left) if first_has_padding else (ones, left, ones):
        as_true(compiled, padded, [*operands(), mask])
    assert len(made) == 2


def test_dynamo_traces_again_where_a_variant_that_is_made_first_asks_for_it():
    def scaled(query, key, value, attention_mask, eps):
        return padded(query * (1 + eps), key, value, attention_mask)

    counted = Counted()
    options = {"strict": True, "remainder": "aot"}
    compiled = torch.compile(scaled, backend="cermet", fullgraph=True, dynamic=True, options=options)
    ones, _, _ = attention_masks()
    as_true(lambda *args: compiled(*args, 1e-6), lambda *args: scaled(*args, 1e-6), [*operands(), ones])
    assert counted()["calls_unpadded"] == 1 and "fallbacks" not in counted(), counted()


def test_a_variant_that_fails_late_leaves_the_other(monkeypatch, caplog):
    ones, left, _ = attention_masks()
    compiled = torch.compile(padded, backend="cermet", fullgraph=True, options={"strict": False, "remainder": "aot"})
    as_true(compiled, padded, [*operands(), left])

    def broken(*_):
        raise RuntimeError("broken on purpose")

    monkeypatch.setattr(masks, "apply", broken)
    counted = Counted()
    with caplog.at_level(logging.DEBUG, "cermet"):
        for _ in range(2):
            as_true(compiled, padded, [*operands(), ones])
    assert "broken on purpose" in caplog.text
    assert counted() == {"fallbacks": 1, "calls_padded": 2}


def test_variants_made_by_two_threads():
    ones, left, _ = attention_masks()
    compiled = graphs.compiled(padded, "aot")
    arguments = [operand.detach() for operand in operands()]
    expected = {name: padded(*arguments, mask) for name, mask in (("ones", ones), ("left", left))}
    compiled(*arguments, left)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        calls = [("ones", ones), ("left", left)] * 8
        results = list(pool.map(lambda call: (call[0], compiled(*arguments, call[1])), calls))
    for name, result in results:
        torch.testing.assert_close(result, expected[name])


def test_a_padding_mask_that_is_written_stays():
    def attend(query, key, value, attention_mask):
        attention_mask[0, 0] = 0
        return padded(query, key, value, attention_mask)

    assert not found(attend, *operands(), torch.ones(BATCH, LENGTH, dtype=torch.long)).masks


def test_a_mask_that_padding_does_not_explain_stays():
    def attend(query, key, value, attention_mask):
        return padded(query, key, value, attention_mask - 1)

    assert not found(attend, *operands(), torch.ones(BATCH, LENGTH, dtype=torch.long)).masks


def test_masks_of_checkpointed_bodies():
    from torch.utils.checkpoint import checkpoint

    def layers(query, key, value, attention_mask):
        length = query.shape[2]
        rows, columns = mask_spellings.indices(length)
        mask = (columns <= rows)[None, None] & attention_mask.bool()[:, None, None, :]
        for _ in range(2):
            query = checkpoint(F.scaled_dot_product_attention, query, key, value, mask, use_reentrant=False)
        return query

    args = [*operands(), attention_masks()[0]]
    module = graphs.trace(layers, *args)
    masks.apply(module, masks.find(module).masks)
    names = {node.target for node in module.graph.nodes if node.op == "call_function"}
    assert not any("arange" in str(name) for name in names), "the mask is still made and handed to the bodies"
    counted = Counted()
    compiled = graphs.compiled(layers, "aot")
    for mask in attention_masks():
        as_true(compiled, layers, [*operands(), mask])
    assert counted() == {"causal_masks": 2, "calls_unpadded": 1, "calls_padded": 2}


def test_a_report_tells_of_one_variant(monkeypatch, capsys):
    monkeypatch.setenv("CERMET_EXPLAIN", "1")

    def attend(query, key, value, attention_mask):
        return graphs.rms_norm(padded(query, key, value, attention_mask), key[0, 0, 0])

    graphs.compiled(attend)(*operands(), attention_masks()[0])
    reported = capsys.readouterr().err
    assert reported.count("cermet:") == 1 and "1 rms_norm, 1 causal_mask" in reported


def test_explain_counts_masks_and_says_what_they_ask_for():
    explained = cermet.explain(padded, *operands(), attention_masks()[0])
    assert explained.counts["causal_mask"] == 1
    assert "where l_attention_mask_ is 1 everywhere" in str(explained)
    assert "Causal masks" in explained.html() and "1 everywhere" in explained.html()
    explained = cermet.explain(attending(mask_spellings.strictly_lower), *operands())
    assert explained.counts["causal_mask"] == 0
    assert explained.near_misses[0].pattern == "causal_mask"
