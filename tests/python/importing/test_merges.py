"""Views that merge symbolic dimensions come before the elementwise calls that they follow."""

from __future__ import annotations

import pytest
import torch

import graphs
from cermet.importing import merges
from cermet.importing.translations.operators import spelling


def capped(x):
    return (torch.tanh(x / 3.0) * 3.0).float().view(-1, 8).exp()


def cast_alone(x):
    return x.double().reshape(-1, 8).sum(-1)


def read_twice(x):
    wide = x.double()
    return wide.reshape(-1, 8).sum(-1), wide


def two_operands(x):
    return (x * x.softmax(-1)).reshape(-1, 8).sum(-1)


def rows_alone(x):
    return x.softmax(-1).reshape(-1, 8).sum(-1)


def of_what_is_made_contiguous(x):
    return x.transpose(1, 2).to(torch.float64, memory_format=torch.contiguous_format).view(-1).exp()


def written_between(x):
    wide = x.double()
    x.mul_(2.0)
    return wide.reshape(-1, 8).sum(-1)


def traced(function, symbolic=True):
    x = torch.randn(3, 5, 8, dtype=torch.bfloat16)
    if symbolic:
        torch._dynamo.mark_dynamic(x, 1)
    return graphs.trace(function, x), x


def order(module):
    return [spelling(node) for node in module.graph.nodes if node.op.startswith("call")]


@pytest.mark.parametrize(
    ("function", "after"),
    [(capped, ["reshape", "div", "tanh", "mul", "cast", "exp"]), (cast_alone, ["reshape", "cast", "sum"])],
)
def test_a_merge_comes_first(function, after):
    module, x = traced(function)
    merges.hoist(module)
    module.graph.lint()
    module.recompile()
    assert [name for name in order(module) if name] == after
    for node in module.graph.nodes:
        if spelling(node) == "reshape":
            assert node.meta["example_value"].dtype == torch.bfloat16 and node.meta["example_value"].dim() == 2
    sizes = [5] * (len(module.graph.find_nodes(op="placeholder")) - 1)
    (result,) = module(*sizes, x)
    assert torch.equal(result, function(x))


NOT_FIRST = [read_twice, two_operands, rows_alone, of_what_is_made_contiguous, written_between]


@pytest.mark.parametrize("function", NOT_FIRST)
def test_what_is_read_elsewhere_or_is_not_elementwise_stays(function):
    module, _ = traced(function)
    before = order(module)
    merges.hoist(module)
    assert order(module) == before


def test_numbers_stay():
    module, _ = traced(capped, symbolic=False)
    before = order(module)
    merges.hoist(module)
    assert order(module) == before
