"""`cermet.enable()` hands what `torch.compile(backend="inductor")` traced to `backend="cermet"`; what stays Inductor's."""

from __future__ import annotations

import pytest
import torch
from torch._inductor import config

import cermet
import graphs
from cermet import backend
from enabled import STAY, Recorder, change, norm, regions_of, restored  # the last: a fixture of every test
from tiny_models import LAYERS, tiny, words


@pytest.fixture
def handed(monkeypatch) -> list[dict]:
    """The options of every graph that is handed to `backend="cermet"`."""
    found, compile = [], backend.compile

    def keep(module, inputs, *, options):
        found.append(options)
        return compile(module, inputs, options=options)

    monkeypatch.setattr(backend, "compile", keep)
    return found


def test_what_was_made_before_is_handed_over_where_it_is_called(handed):
    call = torch.compile(norm, backend="inductor")
    other = torch.compile(norm)
    cermet.enable()
    call(torch.randn(4, 32), torch.randn(32))
    torch._dynamo.reset()
    other(torch.randn(4, 32), torch.randn(32))
    assert handed == [{}, {}]
    cermet.disable()
    torch._dynamo.reset()
    call(torch.randn(4, 32), torch.randn(32))
    assert len(handed) == 2


@pytest.mark.parametrize("settings", [{"mode": "reduce-overhead"}, {"options": {"triton.cudagraphs": True}}], ids=str)
def test_recorded_graphs_are_asked_for_there(settings, handed):
    cermet.enable()
    assert regions_of(**settings) == 1
    assert handed == [{"triton.cudagraphs": True}]


def test_recorded_graphs_are_what_the_configuration_says(handed):
    cermet.enable()
    with config.patch({"triton.cudagraphs": True}):
        assert regions_of() == 1
    assert handed == [{"triton.cudagraphs": True}]


@pytest.mark.parametrize("settings", [{"mode": "max-autotune-no-cudagraphs"}, {"options": STAY}], ids=str)
def test_what_has_options_stays_inductors(settings, handed):
    cermet.enable()
    assert regions_of(**settings) == 1
    assert handed == []


@pytest.mark.parametrize("slot", ["pre_grad_custom_pass", "post_grad_custom_pre_pass", "joint_custom_post_pass"])
def test_what_another_pass_sees_stays_inductors(slot, handed):
    recorder = Recorder()
    with config.patch({slot: recorder}):
        cermet.enable()
        assert regions_of() == 1 and recorder.graphs == 1
        cermet.disable()
    assert handed == []


def test_nobody_else_who_calls_inductor_is_met(handed):
    class Other(torch._TorchCompileInductorWrapper):
        """As AOTInductor's."""

    x, weight = torch.randn(4, 32), torch.randn(32)
    module = graphs.trace(norm, x, weight)
    cermet.enable()
    torch.compile(norm, backend=Other(None, None, None))(x, weight)
    run = torch._inductor.compile(module, [x, weight])
    torch.testing.assert_close(run(x, weight)[0], norm(x, weight))
    torch.export.export(torch.nn.RMSNorm(32), (x,)).module()(x)
    assert handed == []


def test_what_is_kept_for_other_processes_has_no_regions(handed):
    cermet.enable()
    with torch._functorch.config.patch(force_autograd_cache=True):
        assert regions_of() == 0
    assert handed == []


def test_the_configuration_that_torch_asks_for_is_inductors():
    before = torch.compile(norm, mode="max-autotune").get_compiler_config()
    cermet.enable()
    after = torch.compile(norm, mode="max-autotune").get_compiler_config()
    ours = {"pre_grad_custom_pass", "pre_grad_pass_timing"}
    assert {name for name in before if before[name] != after[name]} <= ours and after["max_autotune"]


def test_returned_logits_get_a_gradient_outside_of_the_graph():
    model, text = tiny("Llama").train(), words()
    cermet.enable()
    result = torch.compile(model, backend="inductor", fullgraph=True)(input_ids=text, labels=text)
    assert type(result.logits.grad_fn).__name__ == "_LinearBackward"


def test_a_batch_without_padding_runs_without_the_mask():
    model, text = tiny("Llama").train(), words()
    cermet.enable()
    before = cermet.counters()
    torch.compile(model, backend="inductor", fullgraph=True)(input_ids=text, attention_mask=torch.ones_like(text))
    found = change(before)
    assert found["calls_unpadded"] == 1 and found["causal_masks"] == LAYERS, found
