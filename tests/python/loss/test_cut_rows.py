"""Logits of which rows are cut off before their loss, as trainers do that shift them themselves: the rows are cut off
before the linear layer."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import graphs
from adapters import RANK, assert_good, close_to_eager, errors_of, leaves_of
from cermet import options
from heads import VOCABULARY, inputs
from pieces import DTYPES, allocations, compiled, heads_of, rows_of

ROWS = 200
NAMES = ("hidden", "weight", "down", "up")


def batch(dtype=torch.float32, device="cpu", seed=0, rows=ROWS):
    torch.manual_seed(seed)
    hidden, weight, labels = inputs(dtype, device, rows=rows)
    sizes = (RANK, hidden.shape[-1]), (VOCABULARY, RANK)
    adapter = [(torch.randn(size, device=device) * size[-1] ** -0.5).to(dtype).requires_grad_() for size in sizes]
    return hidden, weight, *adapter, labels.view(2, -1)


def of_rows(logits, labels):
    return F.cross_entropy(logits.reshape(-1, VOCABULARY).float(), labels.reshape(-1))


def shifted(hidden, weight, down, up, labels):
    return of_rows(F.linear(hidden, weight)[:, :-1], labels[:, 1:])


def shifted_by_dots(hidden, weight, down, up, labels):
    return of_rows(F.linear(hidden, weight)[..., :-1, :].contiguous(), labels[..., 1:].contiguous())


def shifted_and_adapted(hidden, weight, down, up, labels):
    logits = F.linear(hidden, weight) + F.linear(F.linear(hidden, down), up) * 1.7
    return of_rows(logits[:, :-1], labels[:, 1:])


def answers(hidden, weight, down, up, labels):
    """The last half of each sequence, and what one is preferred by."""
    logits = F.linear(hidden, weight)[:, 49:-1].float()
    each = logits.log_softmax(-1).gather(-1, labels[:, 50:].clamp(min=0)[..., None]).squeeze(-1).mean(-1)
    return F.softplus(each[1] - each[0])


CUT = (shifted, shifted_by_dots, shifted_and_adapted, answers)


def in_pieces(function, arguments, budget: int, remainder: str = "aot"):
    ((_, rows),) = [head for head in heads_of(function, *arguments, budget=budget) if head[0].startswith("linear_")]
    assert rows > 0
    return compiled(function, budget, remainder)


@pytest.mark.parametrize("remainder", ["eager", "aot", "inductor"])
@DTYPES
@pytest.mark.parametrize("function", CUT)
def test_errors_by_the_rule_for_numbers(function, dtype, remainder, device):
    adapted = function is shifted_and_adapted

    def make(seed):
        hidden, weight, down, up, labels = batch(dtype, device, seed)
        return hidden, weight, *((down, up) if adapted else (None, None)), labels

    call = in_pieces(function, make(0), rows_of(48, dtype), remainder)
    assert_good(*errors_of(call, function, make, NAMES), dtype)


@pytest.mark.parametrize("function", CUT)
def test_no_tensor_of_all_logits_ever_exists(function):
    arguments = batch(rows=4000)
    arguments[1].requires_grad_(False)
    leaves = [arguments[0], *(arguments[2:4] if function is shifted_and_adapted else [])]
    call = in_pieces(function, arguments, rows_of(100))

    def step(run):
        return lambda: torch.autograd.grad(run(*arguments), leaves)

    step(call)()
    assert max(allocations(step(function))) >= rows_of(3800 if function is not answers else 1900)
    assert max(allocations(step(call))) <= arguments[0].numel() * 4 + 64


def test_lengths_that_vary():
    given = {"strict": True, "logits_bytes": rows_of(9)}
    call = torch.compile(shifted, backend="cermet", fullgraph=True, options=given)
    for length in (100, 70, 31, 12):
        arguments = batch(rows=2 * length)
        results = []
        for run in (call, shifted):
            loss = run(*arguments)
            results.append([loss.detach(), *torch.autograd.grad(loss, arguments[:2])])
        close_to_eager(*results)


def of_some_columns(hidden, weight, down, up, labels):
    logits = F.linear(hidden, weight)[:, :-1, :90]
    return F.cross_entropy(logits.reshape(-1, 90).float(), labels[:, 1:].clamp(max=89).reshape(-1))


def of_one_sequence(hidden, weight, down, up, labels):
    return F.cross_entropy(F.linear(hidden, weight)[1].float(), labels.flatten()[100:])


def read_whole(hidden, weight, down, up, labels):
    logits = F.linear(hidden, weight)
    return of_rows(logits[:, :-1], labels[:, 1:]) + logits[:, 3, 5].mean()


def a_logarithm(hidden, weight, down, up, labels):
    return shifted_and_adapted(hidden, weight, down, up, labels).log()


@pytest.mark.parametrize("function", [of_some_columns, of_one_sequence, read_whole, a_logarithm])
def test_what_stays_as_it_was(function):
    arguments = batch()
    module = graphs.trace(function, *arguments)
    before = sorted((node.op, str(node.target)) for node in module.graph.nodes)
    graphs.decided(module, options=options.parse(None, {"logits_bytes": 1}))
    assert before == sorted((node.op, str(node.target)) for node in module.graph.nodes)
    results = []
    for run in (compiled(function, 1), function):
        loss = run(*arguments)
        used = leaves_of(arguments)[: 4 if function is a_logarithm else 2]
        results.append([loss.detach(), *torch.autograd.grad(loss, used)])
    close_to_eager(*results)
