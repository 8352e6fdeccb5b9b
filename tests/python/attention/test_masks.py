"""Attention masks that are causal become `is_causal`, full ones are left out, however they are spelled; others stay, and no
number changes."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import functools
import logging
import random

import pytest
import torch
import torch.nn.functional as F

import cermet
import graphs
import mask_spellings
import truth
from cermet.attention import calls, grouped, masks
from cermet.errors import Error
from cermet.graph.nodes import example
from cermet.remainder import choice, direct
from mask_spellings import BIDIRECTIONAL, CAUSAL, FULL, OTHERS

BATCH, HEADS, LENGTH, WIDTH = 2, 2, 9, 8
COUNTERS = ("causal_masks", "full_masks", "grouped_attentions", "calls_unpadded", "calls_padded", "fallbacks", "near_misses")


def operands(length: int = LENGTH, heads: int = HEADS, batch: int = BATCH, keys: int | None = None):
    random_numbers = torch.Generator().manual_seed(length)
    lengths = (length, keys or length, keys or length)
    return [
        torch.randn(batch, heads, size, WIDTH, generator=random_numbers, requires_grad=True) for size in lengths
    ]


def attending(spelling):
    def attend(query, key, value):
        mask = spelling(query.shape[0], query.shape[2])
        mask = mask.to(query.dtype) if mask.is_floating_point() else mask
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)

    return attend


def found(function, *args, dynamic=None) -> masks.Found:
    return masks.find(graphs.trace(function, *args, dynamic=dynamic))


def gradients(function, args):
    leaves = [
        arg.detach().clone().requires_grad_() if arg.is_floating_point() else arg.clone() for arg in args
    ]
    result = function(*leaves)
    random_numbers = torch.Generator().manual_seed(7)
    weight = torch.randn(result.shape, generator=random_numbers).to(result.dtype)
    (result * weight).sum().backward()
    return {"result": result.detach()} | {
        str(index): leaf.grad for index, leaf in enumerate(leaves) if leaf.is_floating_point()
    }


def as_true(ours, function, args):
    """Result and gradients by the rule for numbers: at most 2 x eager's error and one unit in the last place."""
    eager = gradients(function, args)
    wide = [arg.detach().double() if arg.is_floating_point() else arg for arg in args]
    with truth.Float64():
        true = gradients(function, wide)
    mine = gradients(ours, args)
    for name, value in mine.items():
        limit = 2 * truth.relative(eager[name], true[name]) + truth.spacing(value.dtype)
        assert truth.relative(value, true[name]) <= limit, name
    return mine


class Counted:
    """What the counters grew by since this was made."""

    def __init__(self):
        self.before = cermet.counters()

    def __call__(self) -> dict[str, int]:
        now = cermet.counters()
        return {name: now[name] - self.before[name] for name in COUNTERS if now[name] != self.before[name]}


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
        assert "mask_spellings.py" in answer.near_misses[0].source or "test_masks.py" in answer.near_misses[0].source
    counted = Counted()
    ours = graphs.compiled(function)(*args)
    torch.testing.assert_close(ours, function(*args), rtol=0, atol=0, equal_nan=True)
    assert counted() == {"near_misses": 1}


# --- What is full ----------------------------------------------------------------------------------------------------


def with_padding(spelling):
    def attend(query, key, value, attention_mask):
        allowed = spelling(query.shape[0], key.shape[2])
        allowed = (allowed if allowed.dtype == torch.bool else allowed == 0) & attention_mask[:, None, None, :].bool()
        return F.scaled_dot_product_attention(query, key, value, attn_mask=allowed) * attention_mask[:, None, :, None]

    return attend


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
def test_bidirectional_masks_are_no_near_misses(spelling):
    for function, args in (
        (attending(spelling), operands()),
        (with_padding(spelling), [*operands(), attention_masks()[0]]),
    ):
        for dynamic in (False, True):
            torch._dynamo.reset()
            answer = found(function, *args, dynamic=dynamic)
            assert not answer.masks and not answer.near_misses, answer.near_misses


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


# --- Padding ---------------------------------------------------------------------------------------------------------


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


def attention_masks(dtype=torch.long):
    ones = torch.ones(BATCH, LENGTH, dtype=dtype)
    left, right = ones.clone(), ones.clone()
    left[0, :3], right[1, 6:] = 0, 0
    return ones, left, right


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


# --- Grouped queries -------------------------------------------------------------------------------------------------


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


def test_an_assumed_size_that_does_not_hold_is_an_error():
    module = graphs.trace(attending(mask_spellings.comparison), *operands())
    (mask,) = masks.find(module).masks
    false = dataclasses.replace(mask, proof=masks.Proof(masks.Meaning.CAUSAL, limits=(-1,)))
    with pytest.raises(Error, match="below zero"):
        masks.apply(module, [false])
