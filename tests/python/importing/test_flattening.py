"""Rows that are flattened and laid out again are worked on as they were, where a symbol counts them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import cermet
import graphs
from cermet.graph.nodes import example
from cermet.importing import flattening
from cermet.importing.translations.operators import spelling

COLUMNS = 16
COUNTED = ("regions", "clusters", "dropouts", "launches", "fallbacks")
KINDS = ("layer_norm", "linear", "relu", "softmax")


def block(x, weight, bias, inner, outer):
    """A decoder layer's second half as OPT writes it."""
    rows = x.reshape(-1, x.size(-1))
    y = F.layer_norm(rows, (COLUMNS,), weight, bias)
    y = F.linear(F.relu(F.linear(y, inner)), outer)
    return (rows + y).view(x.shape) * 2.0


def read_elsewhere(x, weight, bias, inner, outer):
    rows = x.view(-1, COLUMNS)
    y = rows.softmax(-1) * weight
    return y.view(x.shape), y @ inner.t(), rows.sum()


def of_other_rows(x, weight, bias, inner, outer):
    rows = x.flatten(0, 1)
    y = rows * rows.sum(-1, keepdim=True)  # a sum keeps no row's place for sure
    return y.view(x.shape)


def never_again(x, weight, bias, inner, outer):
    return F.layer_norm(x.view(-1, COLUMNS), (COLUMNS,), weight, bias).exp()


def laid_otherwise(x, weight, bias, inner, outer):
    return (x.reshape(-1, COLUMNS) * weight).view(x.shape[1], x.shape[0], COLUMNS)


def of_turned_memory(x, weight, bias, inner, outer):
    return (x.transpose(0, 1).reshape(-1, COLUMNS) * weight).view(x.shape[1], x.shape[0], COLUMNS)


def beside_other_rows(x, weight, bias, inner, outer):
    rows = x.view(-1, COLUMNS)
    return (rows + torch.arange(rows.shape[0], device=x.device)[:, None]).view(x.shape)


def normed_over_all(x, weight, bias, inner, outer):
    rows = x.view(-1, COLUMNS)
    return F.layer_norm(rows, rows.shape).view(x.shape)


def by_channels(x, weight, bias, inner, outer):
    return F.prelu(x.view(-1, COLUMNS), weight).view(x.shape)


def written_between(x, weight, bias, inner, outer):
    x = x * 1.0
    rows = x.view(-1, COLUMNS)
    y = rows + weight
    x.add_(1.0)
    return (y + rows).view(x.shape)


TAKEN, LEFT = [block, read_elsewhere, written_between], [
    of_other_rows, never_again, laid_otherwise, of_turned_memory, beside_other_rows, normed_over_all, by_channels,
]  # fmt: skip


def operands(rows=5, dtype=torch.float32):
    shapes = (3, rows, COLUMNS), (COLUMNS,), (COLUMNS,), (4 * COLUMNS, COLUMNS), (COLUMNS, 4 * COLUMNS)
    return [torch.randn(shape, dtype=dtype) * 0.5 for shape in shapes]


def traced(function, *dims):
    """Dynamo's graph, what that was called with, and the function's results."""
    given = operands()
    for dim in dims:
        torch._dynamo.mark_dynamic(given[0], dim)
    return *graphs.traced(function, *given), _tuple(function(*given))


def _tuple(results):
    return results if isinstance(results, tuple) else (results,)


def views(module):
    return [node for node in module.graph.nodes if spelling(node) == "reshape"]


@pytest.mark.parametrize("dims", [(1,), (0, 1)])
@pytest.mark.parametrize("function", TAKEN)
def test_what_is_between_is_of_the_rows_that_there_were(function, dims):
    module, given, expected = traced(function, *dims)
    before = len(views(module))
    assert flattening.keep_rows(module) == 1
    assert len(views(module)) < before or function is read_elsewhere
    between = [node for node in module.graph.nodes if spelling(node) in (*KINDS, "mul", "add")]
    assert between and all(example(node).dim() == 3 for node in between)
    for mine, its in zip(module(*given), expected):
        assert mine.shape == its.shape and mine.stride() == its.stride()
        torch.testing.assert_close(mine, its)


@pytest.mark.parametrize("function", LEFT)
def test_what_computes_otherwise_stays(function):
    module, *_ = traced(function, 1)
    before = str(module.graph)
    assert flattening.keep_rows(module) == 0 and str(module.graph) == before


def test_numbers_stay():
    module, *_ = traced(block)
    assert flattening.keep_rows(module) == 0


@pytest.mark.parametrize("function", TAKEN + LEFT)
@pytest.mark.parametrize("dims", [(1,), (0, 1)])
def test_numbers_and_gradients_are_right(function, dims, device):
    torch.manual_seed(3)
    compiled = torch.compile(function, backend="cermet", options={"strict": True})
    for rows in (5, 9):
        given = [each.to(device).requires_grad_() for each in operands(rows)]
        for dim in dims:
            torch._dynamo.mark_dynamic(given[0], dim)
        exact = [each.detach().double().requires_grad_() for each in given]
        mine, its = _tuple(compiled(*given)), _tuple(function(*exact))
        for outputs in (mine, its):
            sum((each.double() * each.detach().double().cos()).mean() for each in outputs).backward()
        for found, true in zip([*mine, *(each.grad for each in given)], [*its, *(each.grad for each in exact)]):
            assert (found is None) == (true is None)
            if true is not None:
                assert found.shape == true.shape
                torch.testing.assert_close(found.double(), true, rtol=2e-5, atol=2e-5)


def test_under_autocast(device):
    """Whose types are those that tracing found."""
    given = [each.to(device).requires_grad_() for each in operands()]
    torch._dynamo.mark_dynamic(given[0], 1)
    call = torch.compile(block, backend="cermet", options={"strict": True})
    found = []
    for function in (call, block):
        with torch.autocast(device, torch.bfloat16):
            result = function(*given)
        result.float().square().mean().backward()
        found.append([result, *(each.grad for each in given)])
        for each in given:
            each.grad = None
    for mine, eager in zip(*found):
        assert mine.dtype == eager.dtype
        torch.testing.assert_close(mine, eager, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("dims", [(1,), (0, 1)])
def test_norms_and_dropouts_are_regions(dims):
    """As where a program leaves its rows as they are."""

    def layer(x, weight, bias, inner, outer, flattened):
        x = x * 2.0
        rows = x.reshape(-1, COLUMNS) if flattened else x
        y = F.linear(F.relu(F.linear(F.layer_norm(rows, (COLUMNS,), weight, bias), inner)), outer)
        return F.layer_norm((rows + F.dropout(y, 0.5)).view(x.shape), (COLUMNS,), weight, bias)

    counted = []
    for flattened in (True, False):
        torch._dynamo.reset()
        given = [each.requires_grad_() for each in operands(dtype=torch.bfloat16)]
        for dim in dims:
            torch._dynamo.mark_dynamic(given[0], dim)
        before = cermet.counters()
        torch.compile(layer, backend="cermet", options={"strict": True})(*given, flattened).sum().backward()
        counted.append({name: cermet.counters()[name] - before[name] for name in COUNTED})
    assert counted[0] == counted[1] and counted[0]["dropouts"] == 1 and counted[0]["regions"] > 1, counted
