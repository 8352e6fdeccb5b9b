"""Compiled code calls the entries of our ops: no OpOverload in between, no assertion of what C++ has made."""

from __future__ import annotations

import logging
import re

import pytest
import torch
import torch.nn.functional as F
from torch._inductor.utils import run_and_get_code

import cermet
import graphs
from cermet.remainder import inductor_calls
from cermet.ops.regions import NAMESPACE


def step(x, residual, weight, head, labels):
    total = x + residual
    logits = F.linear(graphs.rms_norm(total, weight) * total, head)
    return F.cross_entropy(logits.float(), labels)


def inputs(rows=12):
    leaves = torch.randn(rows, 32), torch.randn(rows, 32), torch.randn(32), torch.randn(96, 32)
    return *(leaf.requires_grad_() for leaf in leaves), torch.randint(96, (rows,))


def gradients(call, arguments):
    loss = call(*arguments)
    return [loss.detach(), *torch.autograd.grad(loss, arguments[:-1])]


@pytest.fixture
def overloads(monkeypatch) -> list[str]:
    """The names of our ops that are called through Python."""
    called = []
    original = torch._ops.OpOverload.__call__

    def call(self, /, *arguments, **keywords):
        if self.namespace == NAMESPACE:
            called.append(self.name())
        return original(self, *arguments, **keywords)

    monkeypatch.setattr(torch._ops.OpOverload, "__call__", call)
    return called


@pytest.mark.parametrize("dynamic", [False, None], ids=["static", "dynamic"])
@pytest.mark.parametrize("remainder", ["aot", "inductor"])
def test_no_call_goes_through_an_overload(remainder, dynamic, overloads):
    """Forward, backward, several results and a head, of the compiled sizes and of others."""
    options = {"strict": True, "remainder": remainder, "memory": "fast"}
    call = torch.compile(step, backend="cermet", dynamic=dynamic, options=options)
    for rows in (12, 20, 28):
        gradients(call, inputs(rows))
    arguments = inputs(12 if dynamic is False else 44)
    gradients(call, arguments)
    overloads.clear()
    before = cermet.counters()
    ours = gradients(call, arguments)
    after = cermet.counters()
    assert after["launches"] - before["launches"] >= 4 and after["graphs"] == before["graphs"]
    assert overloads == []
    for mine, eager in zip(ours, gradients(step, arguments)):
        torch.testing.assert_close(mine, eager, rtol=1e-4, atol=1e-5)


def test_inductor_does_not_assert_our_results():
    call = graphs.compiled(graphs.rms_norm, "inductor")
    with torch.no_grad():
        _, (code,) = run_and_get_code(call, torch.randn(4, 32), torch.randn(32))
    (line,) = [line for line in code.splitlines() if f"= _{NAMESPACE}_launch_2_1(" in line]
    result = line.split()[0]
    assert f"_{NAMESPACE}_launch_2_1 = torch.ops.{NAMESPACE}.launch_2_1.default._op" in code
    asserted = re.findall(r"\bassert_\w+\(\(?(\w+)", code)
    assert any(name.startswith("arg") for name in asserted)  # what torch asserts of others it still does
    assert result not in asserted and f"{NAMESPACE}.launch_2_1.default'" not in code


def test_a_body_that_is_compiled_once_finds_the_entry():
    """Inductor writes a nested region as a function of its own, without a head."""

    @torch.compiler.nested_compile_region
    def block(x, weight, product):
        return graphs.rms_norm(x @ product, weight)

    def model(x, weight, product):
        for _ in range(3):
            x = block(x, weight, product) + x
        return x

    arguments = torch.randn(4, 32), torch.randn(32), torch.randn(32, 32) / 6
    before = cermet.counters()["launches"]
    with torch.no_grad():
        ours, (code,) = run_and_get_code(graphs.compiled(model, "inductor"), *arguments)
    assert cermet.counters()["launches"] - before == 3
    assert code.count(f"_{NAMESPACE}_launch_2_1(") == 1
    torch.testing.assert_close(ours, model(*arguments), rtol=1e-4, atol=1e-5)


def test_an_inductor_of_another_kind_keeps_its_calls(monkeypatch, caplog):
    def fail():
        raise AttributeError("module 'torch._inductor.lowering' has no attribute 'make_fallback'")

    monkeypatch.setattr(inductor_calls, "_register", fail)
    with caplog.at_level(logging.INFO, "cermet"):
        inductor_calls.lower_in_inductor.__wrapped__()
    assert "Inductor calls our ops as it calls any other: AttributeError: module" in caplog.text
