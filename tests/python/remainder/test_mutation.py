"""Writes that a functional graph spells as copies are writes again, where nothing can tell."""

from __future__ import annotations

import copy

import pytest
import torch
import transformers
from torch.fx.experimental.proxy_tensor import make_fx

import cermet
from cermet.remainder import direct
from cermet.remainder.aten import mutation
from tiny_models import tiny, words

aten = torch.ops.aten
ROWS, COLUMNS = 12, 8


def rewritten(function, *args, change=mutation.write):
    """How many copies went, or what a change says; the graph gives what the function gives and leaves its arguments as
    that does."""
    graph = make_fx(torch.func.functionalize(function, remove="mutations"), tracing_mode="fake")(*args)
    graph.graph.eliminate_dead_code()
    times = change(graph.graph)
    graph.graph.lint()
    graph.recompile()
    ours, theirs = copy.deepcopy(args), copy.deepcopy(args)
    found, expected = graph(*ours), function(*theirs)
    torch.testing.assert_close((found, ours), (expected, theirs), rtol=0, atol=0)
    return times, [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


def inputs():
    return torch.randn(ROWS, COLUMNS), torch.randn(2, COLUMNS), torch.tensor([3, 9])


@pytest.mark.parametrize(
    "store, call",
    [
        (lambda cache, row, at: cache.index_copy_(0, at, row), "aten.index_copy_.default"),
        (lambda cache, row, at: cache.__setitem__(at, row), "aten.index_put_.default"),
        (lambda cache, row, at: cache.index_add_(0, at, row), "aten.index_add_.default"),
        (lambda cache, row, at: cache.scatter_(0, at[:, None].expand(2, COLUMNS), row), "aten.scatter_.src"),
        (lambda cache, row, at: cache[4:6].copy_(row), "aten.copy_.default"),
        (lambda cache, row, at: cache[:, 2].copy_(cache.new_ones(ROWS)), "aten.copy_.default"),
    ],
)
def test_a_write_is_one_store(store, call):
    def function(cache, row, at):
        store(cache, row, at)
        return cache.sum(0)

    times, called = rewritten(function, *inputs())
    assert times == 1 and call in called
    assert not {"aten.index_copy.default", "aten.index_put.default", "aten.slice_scatter.default"} & set(called)


def test_two_writes_in_a_row():
    def function(cache, row, at):
        cache.index_copy_(0, at, row)
        cache[0:2] = row * 2
        return cache @ row.t()

    times, called = rewritten(function, *inputs())
    assert times == 1 and called.count("aten.copy_.default") == 1


def test_what_was_computed_from_the_old_value_stays_what_it_is():
    def function(cache, row, at):
        before = cache * 2
        cache.index_copy_(0, at, row)
        return before + cache

    assert rewritten(function, *inputs())[0] == 1


def stored(function, *args):
    """How many copies of the graph's own tensors went, and its calls; it gives what the function gives."""
    graph = make_fx(torch.func.functionalize(function), tracing_mode="fake")(*args)
    times = mutation.reuse(graph.graph)
    graph.graph.lint()
    graph.recompile()
    torch.testing.assert_close(graph(*copy.deepcopy(args)), function(*copy.deepcopy(args)), rtol=0, atol=0)
    return times, [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize(
    "store, calls",
    [
        (lambda new, row, at: torch.index_put(new, (at,), row), ["index_put_"]),
        (
            lambda new, row, at: torch.index_add(torch.index_copy(new, 0, at, row), 0, at, row),
            ["index_copy_", "index_add_"],
        ),
        (lambda new, row, at: new.scatter(0, at[:, None].expand(2, COLUMNS), row), ["scatter_"]),
        (lambda new, row, at: new.scatter_add(0, at[:, None].expand(2, COLUMNS), row).sum(0), ["scatter_add_"]),
    ],
)
def test_what_the_graph_makes_and_nothing_else_reads_is_written(store, calls):
    times, called = stored(lambda cache, row, at: store(cache.new_zeros(ROWS, COLUMNS), row, at), *inputs())
    assert times == len(calls) and [name.split(".")[1] for name in called if name.split(".")[1][-1] == "_"] == calls


@pytest.mark.parametrize(
    "function",
    [
        lambda cache, row, at: torch.index_put(cache, (at,), row),  # an input
        lambda cache, row, at: torch.index_put(cache[:], (at,), row),  # a view of one
        lambda cache, row, at: torch.ops.aten._unsafe_view(cache, [ROWS, COLUMNS]).index_put((at,), row),
        lambda cache, row, at: torch.index_put(cache.new_zeros(1, COLUMNS).expand(ROWS, COLUMNS), (at,), row),
        lambda cache, row, at: [new := cache + 1, torch.index_put(new, (at,), row)],  # that is returned
        lambda cache, row, at: torch.index_put(new := cache + 1, (at,), row) + new,
        lambda cache, row, at: torch.index_put(new := cache + 1, (at,), new[:2]),
        lambda cache, row, at: torch.scatter_add(new := cache + 1, 0, torch.zeros_like(new, dtype=torch.int64), new),
        lambda cache, row, at: torch.index_put(cache.max(0)[0], (at // 2,), row[0, :2]),  # of a call that makes two
    ],
)
def test_what_another_can_see_is_not_written(function):
    assert stored(function, *inputs())[0] == 0


def test_a_constant_of_which_nothing_is_noted_is_not_written():
    graph = torch.fx.Graph()
    row, at = (graph.placeholder(name) for name in ("row", "at"))
    row.meta["val"], at.meta["val"] = inputs()[1:]
    put = graph.call_function(aten.index_put.default, (graph.get_attr("constant"), [at], row))
    put.meta["val"] = torch.zeros(ROWS, COLUMNS)
    graph.output(put)
    assert mutation.reuse(graph) == 0


def graph_of(function, cache=None):
    """How many copies went from the graph of a function that says itself what it copies."""
    given, row, at = inputs()
    return mutation.write(make_fx(function, tracing_mode="fake")(given if cache is None else cache, row, at).graph)


def test_an_old_value_that_is_read_later_keeps_the_copy():
    def build(cache, row, at):
        new = torch.index_copy(cache, 0, at, row)
        old = cache.sum()
        cache.copy_(new)
        return old

    assert graph_of(build) == 0


def test_a_view_of_the_old_value_that_is_read_later_keeps_the_copy():
    def build(cache, row, at):
        view = cache[2:]
        new = torch.index_copy(cache, 0, at, row)
        old = view.sum()
        cache.copy_(new)
        return old

    assert graph_of(build) == 0


def test_a_value_that_is_returned_keeps_the_copy():
    def build(cache, row, at):
        new = torch.index_copy(cache, 0, at, row)
        cache.copy_(new)
        return new

    assert graph_of(build) == 0


def test_a_row_of_the_cache_itself_keeps_the_copy():
    def build(cache, row, at):
        new = torch.index_copy(cache, 0, at, cache[1:3])
        cache.copy_(new)
        return row + 1

    assert graph_of(build) == 0


def test_another_inputs_value_keeps_the_copy():
    def build(cache, row, at):
        new = torch.index_copy(cache + 0, 0, at, row)
        cache.copy_(new)
        return row + 1

    assert graph_of(build) == 0


def test_a_value_in_another_memory_order_keeps_the_copy():
    def build(cache, row, at):
        new = torch.index_copy(cache, 0, at, row).t().contiguous().t()
        cache.copy_(torch.index_copy(new, 0, at, row))
        return row + 1

    assert graph_of(build) == 0


@pytest.fixture
def graphs(monkeypatch):
    """The calls of each graph that is compiled."""
    found = []

    class Kept(direct.StraightLine):
        def __init__(self, graph, *arguments, **keywords):
            found.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
            super().__init__(graph, *arguments, **keywords)

    monkeypatch.setattr(direct, "StraightLine", Kept)
    with torch._functorch.config.patch(enable_autograd_cache=False):
        yield found


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
def test_an_inverse_order_and_a_gradient_of_the_largest_copy_no_zeros(dynamic, graphs):
    def function(scores):
        largest, places = torch.topk(scores, 2)
        order = torch.argsort(places.reshape(-1))
        inverse = torch.empty_like(order)
        inverse[order] = torch.arange(order.numel())
        return (largest.reshape(-1)[order] * torch.arange(order.numel()))[inverse]

    compiled = torch.compile(
        function, backend="cermet", dynamic=dynamic, fullgraph=True, options={"remainder": "aot", "strict": True}
    )
    for rows in (6, 9):
        scores = torch.randn(rows, 5, requires_grad=True)
        cotangent = torch.randn(2 * rows)
        ours, expected = (each(scores) for each in (compiled, function))
        gradients = [torch.autograd.grad(each, scores, cotangent)[0] for each in (ours, expected)]
        torch.testing.assert_close((ours, gradients[0]), (expected, gradients[1]), rtol=0, atol=0)
    called = {call for each in graphs for call in each}
    assert {"aten.index_put_.default", "aten.scatter_.src"} <= called
    assert called.isdisjoint({"aten.index_put.default", "aten.scatter.src"})


def test_counts_are_raised_by_one_call():
    def function(a, b, c, d):
        for each in (a, b, c):
            each.add_(1)
        d.add_(2)
        return d * 1

    numbers = [torch.tensor(each) for each in (3, 5, 0)]
    saved, called = rewritten(function, *numbers, torch.tensor(4), change=mutation.count)
    assert saved == 5 and called.count("aten._foreach_add_.Scalar") == 1 and called.count("aten.add.Tensor") == 1


@pytest.mark.parametrize("reads", [lambda a: a * 2, lambda a: a + 1], ids=["the old one", "its sum"])
def test_a_count_that_others_read_stays(reads):
    def function(a, b):
        read = reads(a)
        a.add_(1)
        b.add_(1)
        return read

    assert rewritten(function, torch.tensor(3), torch.tensor(4), change=mutation.count)[0] == 0


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
def test_a_static_cache_is_stored_into_and_never_copied(dynamic, graphs):
    before = cermet.counters()["fallbacks"]
    model = tiny("Llama", torch.float32).eval()
    call = torch.compile(model, backend="cermet", dynamic=dynamic, options={"remainder": "aot", "strict": True})
    texts = words(length=5)
    tokens = []
    with torch.no_grad():
        for runner in (model, call):
            cache = transformers.StaticCache(config=model.config, max_cache_len=24)
            found = model(input_ids=texts, past_key_values=cache, cache_position=torch.arange(5), use_cache=True)
            tokens.append([])
            for position in range(5, 12):
                token = found.logits[:, -1:].argmax(-1)
                tokens[-1].append(token)
                where = torch.tensor([position])
                found = runner(input_ids=token, past_key_values=cache, cache_position=where, use_cache=True)
    assert torch.equal(*map(torch.cat, tokens))
    assert cermet.counters()["fallbacks"] == before and graphs
    layers = model.config.num_hidden_layers
    for called in graphs:
        assert called.count("aten.index_copy_.default") == 2 * layers and "aten.index_copy.default" not in called
