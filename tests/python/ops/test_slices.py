"""Graph texts taken apart: the parts compute what the whole does."""

from __future__ import annotations

import pytest
import torch

import graphs
from cermet import Error, pipeline
from cermet.ops import regions
from cermet.ops.slices import Function


def forward_of_a_sum_and_its_norm() -> int:
    """The key of the forward that a residual's sum and its norm are in training."""
    x, residual, weight = torch.randn(6, 32), torch.randn(6, 32), torch.randn(32)

    def call(x, residual, weight):
        total = x + residual
        return total, graphs.rms_norm(total, weight)

    module = graphs.trace(call, *(value.requires_grad_() for value in (x, residual, weight)))
    (region,) = pipeline.run(module).regions
    return regions.gradient(region.key, (True, True, True), (None, None, None)).forward


def test_parts_compute_what_the_whole_does():
    key = forward_of_a_sum_and_its_norm()
    function = Function.read(regions.text(key))
    names = [name for name, _ in function.arguments]
    given = {name: torch.randn(32) if name == "%weight" else torch.randn(6, 32) for name in names}
    whole = regions.launch(key, list(given.values()))
    results = dict(zip((name for name, _ in function.results), whole))
    total = next(name for name, value in results.items() if torch.equal(value, sum(list(given.values())[:2])))
    others = [name for name in results if name != total]
    assert function.needed(others, [total])[1] == {"%weight"}
    first, read = function.part("terms", [total])
    (sum_,) = regions.launch(regions.register(first), [given[names[place]] for place in read])
    second, read = function.part("norm", others, [total])
    rest = regions.launch(regions.register(second), [*(given[names[place]] for place in read), sum_])
    assert torch.equal(sum_, results[total])
    for name, value in zip(others, rest, strict=True):
        assert torch.equal(value, results[name])


@pytest.mark.parametrize("text", ["", "module {}", "module {\n  func.func @f() {\n    return\n  }\n}\n"])
def test_what_is_no_function_is_refused(text):
    with pytest.raises(Error, match="expected a graph text of one function"):
        Function.read(text)
