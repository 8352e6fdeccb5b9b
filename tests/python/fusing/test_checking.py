"""CERMET_CHECK=1: a kernel's first use is compared with the unfused graph; a wrong one is refused."""

from __future__ import annotations

import pytest
import torch

import cermet
import graphs
from cermet.fusing import checking, comparison
from cermet.ops import regions
from tiny_models import tiny, words

REMAINDERS = ("eager", "aot", "inductor")


@pytest.fixture(autouse=True)
def check(monkeypatch):
    monkeypatch.setenv("CERMET_CHECK", "1")
    monkeypatch.setattr(checking, "_record", checking._Record())


@pytest.fixture
def counted():
    """The change of a counter since the test began."""
    before = cermet.counters()
    return lambda name: cermet.counters()[name] - before[name]


def warned(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "cermet" and record.levelno >= 30]


def plant(monkeypatch, function: str, right: str, wrong: str) -> None:
    """From now on the text of `function` means another one, in which `right` is `wrong`. Kernels stay known by their
    key for the life of the process, so no other test may use the same text."""
    register = regions.register

    def planted(text: str, *orders: object) -> int:
        key = register(text, *orders)
        if f"@{function}(" in text:
            assert right in text, text
            regions._registry.texts[key] = text.replace(right, wrong)
        return key

    monkeypatch.setattr(regions, "register", planted)


def inputs(columns: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in ((2, 6, columns), (columns,))]


def run(call, arguments) -> list[torch.Tensor]:
    result = call(*arguments)
    return [result.detach(), *torch.autograd.grad(result.pow(2).sum(), arguments)]


@pytest.mark.parametrize(
    ("remainder", "dtype"),
    [("eager", torch.float32), ("aot", torch.float32), ("aot", torch.bfloat16), ("inductor", torch.bfloat16)],
    ids=["eager-f32", "aot-f32", "aot-bf16", "inductor-bf16"],
)
def test_right_kernels_pass_forward_and_backward(counted, caplog, remainder, dtype):
    model, text = tiny("Llama", dtype), words()
    ours = torch.compile(model, backend="cermet", options={"remainder": remainder})(input_ids=text, labels=text).loss
    ours.backward()
    assert warned(caplog) == []
    assert counted("refused") == 0 and counted("checked") >= 6  # rms_norm, add_rms_norm, glu
    checked = counted("checked")
    torch._dynamo.reset()
    again = torch.compile(model, backend="cermet", options={"remainder": remainder})
    again(input_ids=text, labels=text).loss.backward()
    assert counted("checked") == checked  # once in a process


@pytest.mark.parametrize("remainder", REMAINDERS)
def test_a_wrong_forward_is_refused_and_the_numbers_are_right(monkeypatch, counted, caplog, remainder):
    columns = 24 + 8 * REMAINDERS.index(remainder)
    plant(monkeypatch, "rms_norm", "eps = 1.250000e-01", "eps = 5.000000e-01")
    arguments = inputs(columns)

    def function(x, weight):
        return graphs.rms_norm(x, weight, 0.125)

    call = graphs.compiled(function, remainder)
    for _ in range(2):
        for mine, theirs in zip(run(call, arguments), run(function, arguments)):
            torch.testing.assert_close(mine, theirs)
    assert counted("refused") == 1
    (message,) = warned(caplog)
    assert "rms_norm at " in message and "graphs.py:" in message and "return weight * wide.to(dtype)" in message
    assert "is refused on cpu and runs unfused from now on: the first forward differs" in message
    assert "result 0 has an error of " in message and " against float64, the unfused graph has " in message


def test_a_wrong_backward_is_refused(monkeypatch, counted, caplog):
    plant(monkeypatch, "rms_norm_backward", "8.800000e+01", "2.200000e+01")
    arguments = inputs(88)
    call = graphs.compiled(graphs.rms_norm, "aot")
    for _ in range(2):
        for mine, theirs in zip(run(call, arguments), run(graphs.rms_norm, arguments)):
            torch.testing.assert_close(mine, theirs)
    (message,) = warned(caplog)
    assert "the first backward differs" in message and "gradient 0 has an error of " in message


def test_a_wrong_region_without_a_gradient_is_refused(monkeypatch, counted, caplog):
    plant(monkeypatch, "rms_norm", "eps = 2.500000e-01", "eps = 1.000000e+01")
    x, weight = (tensor.detach() for tensor in inputs(56, torch.bfloat16))

    def function(x, weight):
        return graphs.rms_norm(x, weight, 0.25)

    call = graphs.compiled(function, "inductor")
    assert torch.equal(call(x, weight), function(x, weight))
    assert torch.equal(call(x, weight), function(x, weight))
    assert len(warned(caplog)) == 1 and counted("refused") == 1


def test_symbolic_sizes_and_autocast(counted, caplog):
    model, text = tiny("Llama"), words()

    def loss(tokens):
        with torch.autocast("cpu", torch.bfloat16):
            return model(input_ids=tokens, labels=tokens).loss

    call = torch.compile(loss, backend="cermet", dynamic=True, options={"remainder": "aot"})
    for length in (16, 11):
        call(text[:, :length]).backward()
    assert warned(caplog) == [] and counted("checked") >= 6


def test_checkpointed_layers_are_checked_too(counted, caplog):
    model, text = tiny("Llama").train(), words()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    torch.compile(model, backend="cermet", options={"remainder": "aot"})(input_ids=text, labels=text).loss.backward()
    assert warned(caplog) == [] and counted("checked") >= 6


def rule(ours: torch.Tensor, unfused: torch.Tensor, truth: torch.Tensor) -> list[comparison.Mismatch] | None:
    return comparison.compare([ours], lambda dtype: [unfused if dtype is None else truth])


def test_the_rule():
    truth = torch.tensor([3.0, 4.0], dtype=torch.float64)
    unfused = truth.float() * (1 + 1e-5)
    assert rule(truth.float() * (1 + 2e-5), unfused, truth) == []
    (mismatch,) = rule(truth.float() * (1 + 3e-5), unfused, truth)
    assert mismatch.error == pytest.approx(3e-5, rel=1e-2) and mismatch.unfused_error == pytest.approx(1e-5, rel=1e-2)
    assert mismatch.limit == pytest.approx(2e-5 + torch.finfo(torch.float32).eps, rel=1e-2)


def test_the_rule_where_values_are_no_numbers():
    truth = torch.tensor([1.0, 1e300], dtype=torch.float64)
    unfused = torch.tensor([1.0, torch.inf])  # overflow in f32
    assert rule(torch.tensor([1.0, torch.inf]), unfused, truth) == []
    assert len(rule(torch.tensor([torch.nan, torch.inf]), unfused, truth)) == 1
    flags = torch.tensor([True, False])
    assert rule(flags, flags, flags) == [] and len(rule(~flags, flags, flags)) == 1


def test_without_a_wider_run_there_is_no_answer():
    def run(dtype):
        if dtype is not None:
            raise RuntimeError("not in this type")
        return [torch.ones(2)]

    assert comparison.compare([torch.ones(2)], run) is None


def test_the_variable_is_checked(monkeypatch):
    monkeypatch.setenv("CERMET_CHECK", "yes")
    with pytest.raises(Exception, match="CERMET_CHECK is 'yes', expected 0 or 1"):
        graphs.compiled(graphs.rms_norm)(*inputs(32))
