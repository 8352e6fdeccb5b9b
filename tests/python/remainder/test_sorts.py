"""Sorts of integers that a graph says enough of take a narrower type, and give what they gave."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from cermet.remainder import direct
from cermet.remainder.aten.sorts import narrow

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
