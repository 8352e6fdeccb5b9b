"""Heads whose logits are a sum of linear layers, as a low-rank adapter of the head makes them: which come in pieces,
that no more than a piece exists, and the logits that are returned."""

from __future__ import annotations

import pytest
import plain_products
import torch
import torch.nn.functional as F

import cermet
import graphs
from adapters import (
    RANK,
    ROWS,
    KINDS,
    adapted,
    close_to_eager,
    dtype_of,
    given,
    in_place,
    leaves_of,
    linear_heads,
    of_several,
    several,
)
from cermet import inspection, options
from cermet.loss import chunks, terms
from cermet.loss.lazy import Logits
from heads import VOCABULARY, loss_of
from pieces import allocations, compiled, heads_of, rows_of


# --- Which come in pieces --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_sum_comes_in_pieces(kind):
    assert linear_heads(adapted, *given(kind)) == [("linear_head_1_1", 1)]
    budget = rows_of(9, dtype_of(kind))
    assert linear_heads(adapted, *given(kind, with_bias=False), budget=budget) == [("linear_head_1_1", 9)]


def test_ways_to_write_a_sum():
    assert linear_heads(several, *of_several()) == [("linear_head_1_3", 1)]
    assert linear_heads(in_place, *of_several()) == [("linear_head_1_2", 1)]


def read_twice(hidden, weight, bias, down, up, labels):
    base = F.linear(hidden, weight, bias)
    return loss_of(base + F.linear(F.linear(hidden, down), up) * 1.7, labels) + base.sort(-1).values[..., 0].mean()


def of_another_factor(hidden, weight, bias, down, up, labels):
    logits = F.linear(hidden, weight, bias) * 0.5 + F.linear(F.linear(hidden, down), up) * 1.7
    return loss_of(logits, labels)


def written_between(hidden, weight, bias, down, up, labels):
    base, count = F.linear(hidden, weight, bias), torch.zeros((), device=hidden.device)
    count.add_(1)
    return loss_of(base + F.linear(F.linear(hidden, down), up) * 1.7, labels) * count


def of_five_layers(hidden, weight, bias, down, up, labels):
    low = F.linear(hidden, down)
    logits = F.linear(hidden, weight, bias)
    for factor in (0.1, 0.2, 0.3, 0.4):
        logits = logits + F.linear(low, up) * factor
    return loss_of(logits, labels)


@pytest.mark.parametrize("function", [read_twice, of_another_factor, written_between, of_five_layers])
def test_what_is_no_such_sum_stays(function):
    arguments = given()
    assert not any(name.startswith("linear_head_1_") for name, _ in heads_of(function, *arguments))
    results = []
    for run in (compiled(function, 1), function):
        loss = run(*arguments)
        results.append([loss.detach(), *torch.autograd.grad(loss, leaves_of(arguments))])
    close_to_eager(*results)


def test_logits_within_the_budget_are_left_as_they_were():
    arguments = given()
    assert not linear_heads(adapted, *arguments, budget=rows_of(ROWS))
    module = graphs.trace(adapted, *arguments)
    before = [(node.op, str(node.target)) for node in module.graph.nodes]
    (region,) = graphs.decided(module).regions
    assert region.head is None
    assert [(node.op, str(node.target)) for node in module.graph.nodes] == before


def test_a_sum_that_no_head_takes_is_as_it_was():
    """Its gradient needs every row's loss first."""

    def logarithm(*arguments):
        return adapted(*arguments).log()

    arguments = given()
    module = graphs.trace(logarithm, *arguments)
    before = sorted((node.op, str(node.target)) for node in module.graph.nodes)
    decision = graphs.decided(module, options=options.parse(None, {"logits_bytes": 1}))
    assert before == sorted((node.op, str(node.target)) for node in module.graph.nodes)
    assert decision.regions and all(region.head is None for region in decision.regions)


# --- Memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "trained"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("remainder", ["aot", "eager"])
def test_no_tensor_of_all_logits_ever_exists(remainder, kind, frozen):
    if dtype_of(kind) == torch.bfloat16:
        plain_products.needed()
    arguments = given(kind, rows=4000, with_bias=False)
    arguments[1].requires_grad_(not frozen)
    call = compiled(adapted, rows_of(100, dtype_of(kind)), remainder)

    def step(run):
        return lambda: torch.autograd.grad(run(*arguments), leaves_of(arguments))

    step(call)()
    logits = rows_of(4000, dtype_of(kind))
    assert max(allocations(step(adapted))) >= logits
    # The hidden state's gradient is a third of the logits, its copy for an adapter in f32 twice that.
    assert max(allocations(step(call))) <= logits * (2 / 3 if kind == KINDS[-1] else 1 / 3) + 64


def test_what_is_kept_and_taken_is_told():
    arguments = given(with_bias=False)
    hidden, weight, _, down, up, labels = arguments
    weight.requires_grad_(False)
    told = inspection.explained(
        graphs.trace(adapted, *arguments), arguments, options.parse(None, {"logits_bytes": 1, "remainder": "aot"})
    )
    (place,) = [place for place in told.places if place.pattern == "cross_entropy"]
    assert place.saved_bytes == 4 * (hidden.numel() + ROWS * RANK + up.numel())
    narrow = [each.bfloat16() for each in (hidden[0], weight, torch.randn(ROWS, RANK), up)]
    base, term = narrow[:2], narrow[2:]
    flags = (True, False, False)
    piece = 9 * VOCABULARY * 2
    assert chunks.taken_by(chunks.call_of("linear_rows_1", *base, None, labels, 0, 0, 9, *flags)) == piece
    taken = chunks.taken_by(
        chunks.call_of("linear_rows_1_1", *base, None, *term, labels, 2.0, 0, 0, 9, *flags, True, True)
    )
    assert taken == piece + 4 * (VOCABULARY // 2) * RANK


def test_opcheck_of_the_op():
    arguments = given(with_bias=False)
    module = graphs.trace(adapted, *arguments)
    (region,) = graphs.decided(module, options=options.parse(None, {"logits_bytes": 1})).regions
    hidden, weight, bias, _, up, labels = [each if each is None else each.detach() for each in arguments]
    low = torch.randn(1, ROWS, RANK)
    for wanted in [(True,) * 2 + (False, True, True), (False,) * 4 + (True,), (False,) * 5]:
        given_to = (hidden, weight, bias, low, up, labels, 1.7, region.key, region.head.position, 9, *wanted)
        torch.library.opcheck(chunks.rows_op(1, 1), given_to)
    torch.library.opcheck(terms.op(1), (hidden, weight, bias, low, up, 1.7))


# --- Logits that are returned ----------------------------------------------------------------------------------------


def returned(hidden, *others):
    *operands, labels = others
    weight, bias, down, up = operands
    hidden = hidden * 1.5
    logits = F.linear(hidden, weight, bias) + F.linear(F.linear(hidden, down), up) * 1.7
    return loss_of(logits, labels), logits


def capped(hidden, *others):
    *operands, labels = others
    weight, bias, down, up = operands
    hidden = hidden * 1.5
    logits = F.linear(hidden, weight, bias) + F.linear(F.linear(hidden, down), up) * 1.7
    logits = torch.tanh(logits / 3.0) * 3.0
    return loss_of(logits, labels), logits


@pytest.mark.parametrize("function", [returned, capped])
@pytest.mark.parametrize("use", ["loss", "logits", "both"])
def test_lazy_logits(function, use):
    arguments = given()
    results = []
    for run in (compiled(function, rows_of(9)), function):
        loss, logits = run(*arguments)
        if run is not function:
            assert type(logits) is Logits and not logits._value.known
        total = (loss * 3.0 if use != "logits" else 0.0) + (logits.square().mean() if use != "loss" else 0.0)
        results.append([loss.detach(), *torch.autograd.grad(total, leaves_of(arguments))])
        if run is not function:
            assert logits._value.known == (use != "loss")
        results[-1].append(logits.detach() * 1.0)
    close_to_eager(*results)


@pytest.mark.parametrize("place", [3, 4])
def test_an_adapter_that_was_written_is_named(place):
    arguments = given()
    logits = compiled(returned, rows_of(9))(*arguments)[1]
    with torch.no_grad():
        arguments[place].mul_(2.0)
    if place == 3:  # what it was multiplied with is remembered
        return torch.testing.assert_close(logits * 1.0, logits * 1.0)
    with pytest.raises(cermet.Error, match="the weight that they are made of has been written"):
        logits.sum()


def test_logits_that_are_kept():
    arguments = given()
    results = []
    for run in (compiled(returned, rows_of(9), logits="keep"), returned):
        loss, logits = run(*arguments)
        assert type(logits) is torch.Tensor
        results.append([loss.detach(), logits.detach(), *torch.autograd.grad(loss, leaves_of(arguments))])
    close_to_eager(*results)
