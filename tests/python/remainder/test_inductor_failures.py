"""What Inductor gets from Cermet and does not compile runs by direct calls; position biases, by the truth."""

from __future__ import annotations

import logging

import pytest
import torch

import cermet
import graphs
import truth
from cermet.remainder import fallback
from test_backend import close

LENIENT = {"strict": False}


@pytest.fixture
def broken(monkeypatch):
    """`broken(is_backward)`: Inductor's code generator fails for graphs of that direction."""
    from torch._inductor.graph import GraphLowering

    generate = GraphLowering.codegen

    def in_direction(is_backward: bool) -> None:
        def codegen(self, *arguments, **settings):
            if bool(self.is_backward) == is_backward:
                raise ZeroDivisionError("broken on purpose")
            return generate(self, *arguments, **settings)

        monkeypatch.setattr(GraphLowering, "codegen", codegen)
        monkeypatch.setattr(fallback, "_warned", False)

    with torch._inductor.config.patch(force_disable_caches=True):  # a graph of another test would be found
        yield in_direction


def function(x, weight):
    return graphs.rms_norm(x, weight).sin().cumsum(-1).cos() * torch.erfinv(x.tanh() / 2)


def gradients(call) -> list[torch.Tensor]:
    torch.manual_seed(1)
    leaves = [torch.randn(8, 32, requires_grad=True), torch.randn(32, requires_grad=True)]
    result = call(*leaves)
    return [result.detach(), *torch.autograd.grad(result.square().sum(), leaves)]


@pytest.mark.parametrize("is_backward", [False, True], ids=["forward", "backward"])
def test_direct_calls_run_what_inductor_does_not_compile(broken, caplog, is_backward):
    broken(is_backward)
    before = cermet.counters()
    for _ in range(2):
        torch._dynamo.reset()
        call = torch.compile(function, backend="cermet", options={**LENIENT, "remainder": "inductor"})
        with caplog.at_level(logging.WARNING, "cermet"):
            close(gradients(call), gradients(function))
    after = cermet.counters()
    assert after["inductor_failures"] == before["inductor_failures"] + 2 and after["fallbacks"] == before["fallbacks"]
    assert after["regions"] == before["regions"] + 2 and after["launches"] > before["launches"]
    (told,) = [record.getMessage() for record in caplog.records if "Inductor did not compile" in record.getMessage()]
    assert told.startswith("the backward" if is_backward else "a graph")
    assert "ZeroDivisionError: broken on purpose" in told


@pytest.mark.parametrize("is_backward", [False, True], ids=["forward", "backward"])
def test_strict_raises_what_inductor_raised(broken, is_backward):
    broken(is_backward)
    call = graphs.compiled(function, "inductor")
    with pytest.raises(Exception, match="broken on purpose"):
        gradients(call)


def test_the_report_says_that_inductor_failed(broken, monkeypatch, capsys):
    broken(False)
    monkeypatch.setenv("CERMET_EXPLAIN", "1")
    gradients(torch.compile(function, backend="cermet", options={**LENIENT, "remainder": "inductor"}))
    said = " ".join(capsys.readouterr().err.split())
    assert "inductor: as asked; Inductor failed (" in said and "so direct calls run it" in said


def test_what_fails_either_way_is_the_programs_error():
    """An op without a fake implementation: no compiler can trace it, and what Inductor said is raised."""

    @torch.library.custom_op("elsewhere::unfaked", mutates_args=())
    def unfaked(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    before = cermet.counters()["inductor_failures"]
    with pytest.raises(Exception, match="unfaked"):
        torch.compile(lambda x: unfaked(x).sin(), backend="cermet", options={**LENIENT, "remainder": "inductor"})(
            torch.ones(3)
        )
    assert cermet.counters()["inductor_failures"] == before


# --- Position biases -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("remainder", ["inductor", "aot"])
def test_gradients_of_position_biases(remainder):
    """A T5 encoder adds learned biases to its attention's scores and ends in a norm. The loss weighs each element: the
    sum of squares behind a norm is constant, its gradient is all rounding, and eager's own is 0.2 off."""
    from transformers import T5Config, T5EncoderModel

    def backward(call, text):
        result = call(input_ids=text)[0]
        (result * torch.arange(result.numel(), dtype=result.dtype).view(result.shape).cos()).sum().backward()

    sizes = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 2, "vocab_size": 64}
    model, text = T5EncoderModel(T5Config(**sizes, dropout_rate=0.0)).train(), torch.randint(1, 64, (2, 12))
    exact = truth.double(model)
    with truth.Float64():
        backward(exact, text)
    backward(torch.compile(model, backend="cermet", options={"remainder": remainder, "strict": True}), text)
    for (name, mine), true in zip(model.named_parameters(), exact.parameters()):
        error = truth.relative(mine.grad, true.grad)
        assert error < 1e-5, f"{name}: {error:.1e} off under torch {torch.__version__}"
