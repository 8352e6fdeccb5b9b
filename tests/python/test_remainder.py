"""Who runs what Cermet leaves: how it is chosen, and what `aot` makes of the graphs."""

from __future__ import annotations

import re

import pytest
import torch

import cermet
import graphs
from cermet import straight
from tiny_models import tiny, words

REMAINDERS = ("eager", "aot", "inductor", "auto")


@pytest.fixture
def lines(monkeypatch) -> list[str]:
    """The sources of the functions that `aot` makes, with the operations' names."""
    sources: list[str] = []
    write = straight._write

    def record(module):
        source, constants = write(module)
        named = {name: str(value) for name, value in constants.items() if name.startswith("f")}
        sources.append(re.sub(r"\bf\d+\b", lambda found: named[found[0]], source))
        return source, constants

    monkeypatch.setattr(straight, "_write", record)
    return sources


# --- Sums of products ------------------------------------------------------------------------------------------------


def attention_inputs(x, q, k, v):
    """Three layers that share an input, of which the first two are added."""
    return torch.tanh(x @ q) + torch.tanh(x @ k) + torch.tanh(x @ v)


def gradients(call, tensors):
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    return torch.autograd.grad(call(*leaves).square().sum(), leaves)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_a_shared_input_accumulate_in_the_matmul(lines, dtype):
    shapes = [(2, 24, 64), (64, 64), (64, 32), (64, 32)]
    q, k, v = (torch.randn(shape) for shape in shapes[1:])
    tensors = [torch.randn(shapes[0]), q, torch.cat([k, k], 1), torch.cat([v, v], 1)]
    tensors = [tensor.to(dtype) for tensor in tensors]
    options = {"remainder": "aot", "strict": True}
    ours = gradients(torch.compile(attention_inputs, backend="cermet", options=options), tensors)
    eager = gradients(attention_inputs, tensors)
    truth = gradients(attention_inputs, [tensor.double() for tensor in tensors])
    assert lines[-1].count("aten.addmm_.default(") == 2, lines[-1]
    for mine, theirs, exact in zip(ours, eager, truth):
        mine, theirs = ((value.double() - exact).norm() for value in (mine, theirs))
        assert mine <= 1.05 * theirs + 1e-6 * exact.norm(), (mine, theirs)


def test_a_product_that_something_else_reads_is_not_written(lines):
    def call(x, y, a, b):
        first = x @ a
        return first + y @ b, first

    tensors = [torch.randn(8, 16), torch.randn(8, 16), torch.randn(16, 16), torch.randn(16, 16)]
    options = {"remainder": "aot", "strict": True}
    for ours, eager in zip(torch.compile(call, backend="cermet", options=options)(*tensors), call(*tensors)):
        torch.testing.assert_close(ours, eager)
    assert "addmm_" not in lines[-1]
