"""Written-out attention with repeated heads: products of groups of queries, which repeat nothing and are as exact."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from tiny_models import LAYERS, tiny, words

import cermet
import graphs
from attending import BATCH, LENGTH, WIDTH, Counted, as_true
from cermet.attention import grouped_products
from test_grouped import expanded, interleaved, stacked, tiled

HEADS, SHARED = 6, 2


def written_out(repeat, turn=lambda key: key.transpose(2, 3)):
    """An attention with a bound on its scores, for which torch has no kernel."""

    def attend(query, key, value, mask):
        key, value = repeat(key, HEADS // SHARED), repeat(value, HEADS // SHARED)
        scores = torch.tanh(torch.matmul(query, turn(key)) * 0.25) * 4 + mask
        return (F.softmax(scores, -1, dtype=torch.float32).to(query.dtype) @ value).transpose(1, 2)

    return attend


def inputs(heads_inside: bool = False):
    """`heads_inside`: as a linear layer gives them, where a head's rows do not lie behind one another."""
    random_numbers = torch.Generator().manual_seed(LENGTH)

    def rows(heads: int) -> torch.Tensor:
        shape = (BATCH, LENGTH, heads, WIDTH) if heads_inside else (BATCH, heads, LENGTH, WIDTH)
        made = torch.randn(shape, generator=random_numbers)
        return (made.transpose(1, 2) if heads_inside else made).requires_grad_()

    mask = torch.zeros(BATCH, 1, LENGTH, LENGTH).masked_fill(torch.ones(LENGTH, LENGTH).triu(1).bool(), -1e4)
    return [rows(HEADS), rows(SHARED), rows(SHARED), mask]


@pytest.mark.parametrize("heads_inside", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("repeat", [expanded, interleaved, stacked])
def test_repeated_heads_become_products_of_groups(repeat, dynamic, heads_inside):
    function, counted, args = written_out(repeat), Counted(), inputs(heads_inside)
    if dynamic:
        for arg in args:
            torch._dynamo.mark_dynamic(arg, 2)
        torch._dynamo.mark_dynamic(args[3], 3)
    call = graphs.compiled(function, remainder="aot")
    call(*args)
    assert counted()["grouped_products"] == 2 and "fallbacks" not in counted()
    as_true(call, function, args)


@pytest.mark.parametrize("turn", [lambda key: torch.transpose(key, -1, -2), lambda key: key.transpose(3, 2)])
def test_the_repetition_is_gone(turn):
    module = graphs.trace(written_out(expanded, turn), *inputs(heads_inside=True))
    assert grouped_products.apply(module) == 2
    assert not [node for node in module.graph.nodes if "expand" in str(node.target)]


def test_values_say_what_the_calls_give():
    """Sizes, strides and types that were noted are those of a run."""
    for heads_inside in (False, True):
        module, args = graphs.trace(written_out(expanded), *inputs(heads_inside)), inputs(heads_inside)
        assert grouped_products.apply(module) == 2

        class Compared(torch.fx.Interpreter):
            def run_node(self, node):
                made = super().run_node(node)
                if isinstance(made, torch.Tensor):
                    noted = node.meta["example_value"]
                    assert (made.shape, made.dtype) == (noted.shape, noted.dtype), node
                    assert made.stride() == noted.stride(), node
                return made

        names = [str(node.target) for node in module.graph.nodes if node.op == "placeholder"]
        given = dict(zip(("query", "key", "value", "mask"), args))
        Compared(module).run(*(next(given[each] for each in given if each in name) for name in names))


@pytest.mark.parametrize(
    "function",
    [
        written_out(tiled),
        lambda query, key, value, mask: torch.matmul(query, expanded(key, 3).flip(1).transpose(2, 3)) + mask,
        lambda query, key, value, mask: torch.matmul(query, expanded(key[:1], 3).transpose(2, 3)) + mask,
        lambda query, key, value, mask: torch.matmul(query[:, :2], key.transpose(2, 3)) + mask,
    ],
)
def test_other_products_stay(function):
    assert grouped_products.apply(graphs.trace(function, *inputs())) == 0


def of_written(where: str):
    """A product with heads that were repeated before what they are of is written; `where`: through what."""

    def attend(query, key):
        key = key * 2
        seen, repeated = key[:, :, :4], expanded(key, HEADS // SHARED)
        if where != "late":
            (key if where == "itself" else seen).mul_(3)
        product = torch.matmul(query, repeated.transpose(2, 3))
        return product + key.add_(1).sum() if where == "late" else product

    return attend


@pytest.mark.parametrize("where", ["itself", "a view", "late"])
def test_what_is_written_is_read_as_it_was(where):
    query, key, *_ = (each.detach() for each in inputs())
    expected = of_written(where)(query, key)
    found = graphs.compiled(of_written(where), remainder="aot")(query, key)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_a_models_attention_repeats_nothing():
    model, text = tiny("Gemma2", attn_implementation="eager").train(), words()
    counted = Counted()
    call = torch.compile(model, backend="cermet", options={"strict": True})
    expected = torch.autograd.grad(model(input_ids=text, labels=text).loss, [*model.parameters()])
    found = torch.autograd.grad(call(input_ids=text, labels=text).loss, [*model.parameters()])
    assert counted()["grouped_products"] == 2 * LAYERS
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
    assert cermet.counters()["fallbacks"] == counted.before["fallbacks"]
