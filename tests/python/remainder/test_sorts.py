"""Sorts of integers that a graph says enough of take a narrower type, and sums over counts of what they sorted are
searches; both give what was there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from cermet.remainder import direct
from cermet.remainder.aten.sorts import narrow, search

ROWS = 5000
CPU = frozenset({"cpu"})
# Of scores and any numbers; the type that is sorted.
SORTS: dict[str, tuple[Callable[..., tuple[torch.Tensor, ...]], torch.dtype]] = {
    "experts": (lambda scores, any: torch.sort(scores.topk(2)[1].view(-1), stable=True), torch.uint8),
    "experts, the last first": (lambda scores, any: torch.sort(scores.topk(2)[1].view(-1), 0, True), torch.uint8),
    "their order alone": (lambda scores, any: (torch.argsort(scores.argmax(-1), stable=True),), torch.uint8),
    "themselves alone": (lambda scores, any: (torch.sort(scores.argmax(-1), stable=True)[0],), torch.uint8),
    "with a sign": (lambda scores, any: torch.sort(any.clamp(-300, 300), stable=True), torch.int16),
    "many": (lambda scores, any: torch.sort(any.clamp(0, 1 << 20), stable=True), torch.int32),
    "of 32 bits": (lambda scores, any: torch.sort(any.clamp(0, 255).int(), stable=True), torch.uint8),
    "any": (lambda scores, any: torch.sort(any, stable=True), torch.int64),
    "of one end": (lambda scores, any: torch.sort(any.clamp(min=0), stable=True), torch.int64),
    "few": (lambda scores, any: torch.sort(scores.argmax(-1)[:4000], stable=True), torch.int64),
    "rows": (lambda scores, any: torch.sort(scores.topk(2)[1], stable=True), torch.int64),
    "floats": (lambda scores, any: torch.sort(scores[:, 0], stable=True), torch.float32),
}


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(ROWS, 7), torch.randint(-(1 << 40), 1 << 40, (ROWS,))


def sorted_types(module: torch.fx.GraphModule) -> list[torch.dtype]:
    return [node.args[0].meta["val"].dtype for node in module.graph.nodes if "aten.sort" in str(node.target)]


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("name", SORTS)
def test_a_sort_takes_the_narrowest_type(name, mode):
    function, dtype = SORTS[name]
    module = make_fx(function, tracing_mode=mode)(*inputs())
    results = [value.meta["val"].dtype for value in module.graph.output_node().args[0]]
    (before,) = sorted_types(module)
    if mode == "symbolic" and "clamp" not in str(module.graph):  # of numbers that a size bounds
        dtype = before
    assert bool(narrow(module.graph, CPU)) == (dtype != before)
    module.graph.lint()
    module.recompile()
    assert sorted_types(module) == [dtype]
    assert [value.meta["val"].dtype for value in module.graph.output_node().args[0]] == results
    given = inputs()
    for made, true in zip(module(*given), function(*given)):
        torch.testing.assert_close(made, true, rtol=0, atol=0)


def test_both_graphs_of_a_step_are_narrowed(monkeypatch):
    types: list[torch.dtype] = []

    def narrowed(graph):
        narrow(graph, CPU)
        types.extend(sorted_types(graph.owning_module))

    def f(scores):
        order = torch.sort(scores.topk(2)[1].view(-1), stable=True)[1]
        return scores.exp()[order // 2]

    monkeypatch.setattr(direct, "narrow", narrowed)
    given = torch.randn(ROWS, 7, requires_grad=True)
    made = torch.compile(f, backend="cermet", options={"remainder": "aot", "strict": True})(given)
    assert types == [torch.uint8]
    torch.testing.assert_close(made, f(given))
    torch.testing.assert_close(*(torch.autograd.grad(each.sum(), given) for each in (made, f(given))))


def test_other_devices_sort_as_they_did():
    module = make_fx(SORTS["experts"][0], tracing_mode="fake")(*inputs())
    assert narrow(module.graph) == 0 and sorted_types(module) == [torch.int64]


def experts(scores: torch.Tensor) -> torch.Tensor:
    return torch.sort(scores.topk(2)[1].view(-1), stable=True)[0]


def summed(values: torch.Tensor, bins: int = 7, dtype: torch.dtype = torch.int32, **ends: int) -> torch.Tensor:
    """As transformers' mixtures say where each expert's tokens end; torch's counts on a CPU are of floats."""
    return torch.histc(values.float(), bins=bins, **{"min": 0, "max": bins - 1} | ends).cumsum(0, dtype=dtype)


# Of scores for seven experts and any numbers, and whether it is a search.
SUMS: dict[str, tuple[Callable[..., torch.Tensor], bool]] = {
    "experts": (lambda scores, any: summed(experts(scores)), True),
    "of 64 bits": (lambda scores, any: summed(experts(scores), dtype=torch.int64), True),
    "of fewer experts": (lambda scores, any: summed(experts(scores), 4), True),
    "of more experts": (lambda scores, any: summed(experts(scores), 9), True),
    "cast before": (lambda scores, any: summed(experts(scores).to(torch.uint8).int()), True),
    "few, which are sorted as they are": (lambda scores, any: summed(experts(scores[:9])), True),
    "a cast that wraps": (lambda scores, any: summed(torch.sort(any.clamp(0, 700))[0].to(torch.uint8)), False),
    "in half precision": (lambda scores, any: summed(torch.sort(any.clamp(0, 300))[0].bfloat16()), False),
    "of floats": (lambda scores, any: summed(experts(scores), dtype=torch.float32), False),
    "not in order": (lambda scores, any: summed(scores.topk(2)[1].view(-1)), False),
    "the greatest first": (lambda scores, any: summed(torch.sort(scores.argmax(-1), descending=True)[0]), False),
    "their order": (lambda scores, any: summed(torch.sort(scores.argmax(-1))[1]), False),
    "below zero": (lambda scores, any: summed(torch.sort(any.clamp(-3, 5))[0]), False),
    "of any numbers": (lambda scores, any: summed(torch.sort(any)[0]), False),
    "from one": (lambda scores, any: summed(experts(scores), min=1), False),
    "to one more": (lambda scores, any: summed(experts(scores), max=7), False),
    "between their own ends": (lambda scores, any: torch.histc(experts(scores).float(), 7).cumsum(0).int(), False),
}


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("name", SUMS)
def test_a_sum_over_counts_is_a_search(name, mode):
    function, is_search = SUMS[name]
    module = make_fx(lambda scores, any: function(scores.view(-1, 7), any), tracing_mode=mode)(*inputs())
    narrow(module.graph, CPU)
    assert search(module.graph) == is_search
    module.graph.lint()
    module.recompile()
    assert ("histc" in str(module.graph)) != is_search
    few = torch.randn(300, 7) * torch.arange(7), torch.randint(-9, 9, (300,))
    for given in (inputs(), few) if mode == "symbolic" else (inputs(),):
        torch.testing.assert_close(module(*given), function(*given), rtol=0, atol=0)


def test_layers_search_for_the_same_numbers():
    def layers(scores):
        return summed(experts(scores)), summed(experts(scores.exp().roll(1, 0)))

    module = make_fx(layers, tracing_mode="fake")(inputs()[0])
    assert search(module.graph) == 2
    targets = [str(node.target) for node in module.graph.nodes]
    assert targets.count("aten.arange.default") == 1 and targets.count("aten.searchsorted.Tensor") == 2
    module.recompile()
    scores, _ = inputs()
    torch.testing.assert_close(module(scores), layers(scores), rtol=0, atol=0)
