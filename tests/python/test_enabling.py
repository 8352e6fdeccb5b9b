"""`cermet.enable()`: our kernels where graphs are handed over and before Inductor, the pass among others', and caches."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch._inductor import config, custom_graph_pass

import cermet
import forked
import graphs
import truth
from cermet import enabling, failures
from cermet.fusing import matches
from enabled import STAY, Recorder, change, norm, regions_of, restored  # the last: a fixture of every test
from steps import Errors, exact, step
from tiny_models import LAYERS, redraw, tiny, words

REGIONS = 4 * LAYERS + 2  # of a Llama: two norms, a rotation and a GLU a layer, the last norm, the loss
NORMS = 2 * LAYERS + 1
LAUNCHES = 2 * REGIONS  # of a step: the loss's gradient is scaled for two products, and one sum joins a norm's backward


# --- What it does to a model -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("options", [None, STAY], ids=["handed over", "Inductor's"])
def test_training_is_as_good_as_eager(dtype, options):
    model = tiny("Llama", dtype).train()
    cermet.enable()
    call = torch.compile(model, backend="inductor", fullgraph=True, options=options)
    before, errors = cermet.counters(), Errors()
    for seed in range(truth.EVERY_SEED):
        redraw(model, seed)
        text = words(seed=seed)
        errors.add(step(call, model, text), step(model, model, text), exact(model, text))
    errors.check(dtype)
    found = change(before)
    assert found["graphs"] == 1 and found["regions"] == REGIONS and found["fallbacks"] == 0, found
    once, again = (LAUNCHES, NORMS) if options is None else (2 * REGIONS, 0)  # what is not kept is launched twice
    assert 0 <= found["launches"] - truth.EVERY_SEED * once <= truth.EVERY_SEED * again, found
    assert found["late_gradients"] == 0, found


@pytest.mark.parametrize("options", [None, STAY], ids=["handed over", "Inductor's"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_layers_are_rewritten_once(reentrant, options):
    model, text = tiny("Llama").train(), words()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    cermet.enable()
    before, errors = cermet.counters(), Errors()
    call = torch.compile(model, backend="inductor", fullgraph=not reentrant, options=options)
    errors.add(step(call, model, text), step(model, model, text), exact(model, text))
    errors.check(torch.float32)
    found = change(before)
    assert found["regions"] >= REGIONS - 1 and found["fallbacks"] == 0, found
    assert found["graphs"] == 1 or reentrant, found


def test_a_body_that_is_no_checkpoint_is_left_alone():
    def function(x, weight):
        return torch.cond(x.sum() > 0, norm, lambda x, weight: x * weight, (x, weight))

    cermet.enable()
    assert regions_of(norm) == 1
    assert regions_of(function) == 0


@pytest.fixture(params=[("cermet", {"remainder": "aot"}), ("inductor", None), ("inductor", STAY)], ids=str)
def compiled(request):
    """torch.compile by either way in, and by Inductor."""
    cermet.enable()
    backend, options = request.param
    return lambda model: torch.compile(model, backend=backend, fullgraph=True, options=options)


def test_training_and_inference_take_turns(compiled):
    model, text = tiny("Llama").train(), words()
    call = compiled(model)
    before, errors = cermet.counters(), Errors()
    for _ in range(2):
        model.train()
        errors.add(step(call, model, text), step(model, model, text), exact(model, text))
        model.eval()
        with torch.no_grad():
            ours, eager = call(input_ids=text).logits, model(input_ids=text).logits
        torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)
    errors.check(torch.float32)
    found = change(before)
    assert found["graphs"] == 2 and found["regions"] == 2 * REGIONS - 1, found
    assert found["launches"] >= 2 * (2 * REGIONS + REGIONS - 1), found


def test_a_used_model_is_copied_pickled_and_saved(compiled):
    model, text = tiny("Llama").train(), words()
    call = compiled(model)
    expected = step(call, model, text)
    model.zero_grad(set_to_none=True)
    saved = {name.removeprefix("_orig_mod."): value for name, value in call.state_dict().items()}
    assert saved.keys() == model.state_dict().keys()
    loaded = tiny("Llama", seed=5).train()
    loaded.load_state_dict(saved)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.deepcopy(call), loaded):
        again = other if hasattr(other, "_orig_mod") else compiled(other)
        before = cermet.counters()["launches"]
        values = step(again, getattr(other, "_orig_mod", other), text)
        assert cermet.counters()["launches"] >= before + 2 * REGIONS
        for name, value in expected.items():
            torch.testing.assert_close(values[name], value, rtol=0, atol=0, msg=name)


def test_gradients_accumulate(compiled):
    model = tiny("Llama").train()
    call = compiled(model)
    items, batches = torch.tensor(2 * 2 * 15), [words(seed=seed) for seed in range(2)]
    wide, errors = truth.double(model), Errors()

    def accumulated(run, model):
        model.zero_grad(set_to_none=True)
        for text in batches:
            run(input_ids=text, labels=text, num_items_in_batch=items).loss.backward()
        return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}

    with truth.Float64():
        true = accumulated(wide, wide)
    errors.add(accumulated(call, model), accumulated(model, model), true)
    errors.check(torch.float32)


def test_explain_reports_here_too(monkeypatch, capsys):
    monkeypatch.setenv("CERMET_EXPLAIN", "1")
    cermet.enable()
    assert regions_of() == 1
    assert "rms_norm" in capsys.readouterr().err


def test_a_failure_leaves_the_graph_as_it_was(monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("planted")

    cermet.enable()
    monkeypatch.setattr(matches, "check", broken)
    monkeypatch.setattr(failures, "_warned", False)
    monkeypatch.setenv("CERMET_STRICT", "0")
    before = cermet.counters()["fallbacks"]
    assert regions_of() == 0
    assert cermet.counters()["fallbacks"] == before + 2, "one before autograd, one behind it"
    assert [text for text in caplog.messages if "a graph is left as it was" in text and "planted" in text]
    monkeypatch.setenv("CERMET_STRICT", "1")
    with pytest.raises(Exception, match="planted"):
        regions_of()


# --- Among others ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [lambda item: item, lambda item: [item], lambda item: (item,)])
def test_a_pass_that_is_there_is_called_first_and_restored(kind):
    if kind(0) != 0 and not hasattr(custom_graph_pass, "get_custom_graph_passes"):
        pytest.skip("this torch takes one pass only")
    recorder = Recorder()
    slot = config.pre_grad_custom_pass = kind(recorder)
    timing = getattr(config, enabling.TIMING, None)
    cermet.enable()
    assert regions_of() == 1
    assert (recorder.graphs, recorder.ours) == (1, 0)
    cermet.disable()
    assert config.pre_grad_custom_pass == slot and getattr(config, enabling.TIMING, None) == timing
    assert regions_of() == 0 and recorder.graphs == 2


def test_a_pass_that_was_put_around_ours_stays():
    cermet.enable()
    inner, recorder = config.pre_grad_custom_pass, Recorder()

    class Around(Recorder):
        def __call__(self, graph) -> None:
            inner(graph)
            recorder(graph)

    around = config.pre_grad_custom_pass = Around()
    assert regions_of() == 1 and (recorder.graphs, recorder.ours) == (1, 1)
    cermet.disable()
    assert config.pre_grad_custom_pass is around
    assert regions_of() == 0 and (recorder.graphs, recorder.ours) == (2, 1)
    cermet.enable()
    assert regions_of() == 1
    cermet.disable()
    assert config.pre_grad_custom_pass is around and regions_of() == 0


def test_enable_again_does_nothing_and_disable_without_it_neither():
    cermet.disable()
    assert config.pre_grad_custom_pass is None
    cermet.enable()
    installed = config.pre_grad_custom_pass
    cermet.enable()
    assert config.pre_grad_custom_pass is installed
    cermet.disable()
    assert config.pre_grad_custom_pass is None and regions_of() == 0
    cermet.disable()
    cermet.enable()
    assert regions_of() == 1


def test_as_a_context_manager():
    with cermet.enable():
        assert regions_of() == 1
        with cermet.enable():
            pass
        assert regions_of() == 1
    assert config.pre_grad_custom_pass is None and regions_of() == 0


def test_what_came_through_the_backend_is_not_rewritten_again():
    cermet.enable()
    x, weight = torch.randn(4, 32), torch.randn(32)
    before = cermet.counters()
    graphs.compiled(norm, "inductor")(x, weight)
    found = change(before)
    assert found["graphs"] == 1 and found["regions"] == 1, found


def test_threads_that_compile_at_once():
    found, errors = [], []

    def work(number: int) -> None:
        try:
            for _ in range(50):
                cermet.enable()
                cermet.disable()
            with cermet.enable():
                x, weight = torch.randn(4, 32 + 8 * number), torch.randn(32 + 8 * number)
                ours = torch.compile(norm, backend="inductor", fullgraph=True)(x, weight)
                torch.testing.assert_close(ours, norm(x, weight), rtol=1e-4, atol=1e-5)
            found.append(number)
        except Exception as error:
            errors.append(error)

    cermet.enable()
    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and sorted(found) == [0, 1, 2], errors


def test_inductor_without_its_passes_is_an_error(monkeypatch):
    off = config.patch(use_pre_grad_passes=False)
    with off, pytest.raises(cermet.Error, match="use_pre_grad_passes is False, expected True"):
        cermet.enable()
    monkeypatch.delattr("torch._inductor.debug._pre_grad_graph_id")
    with pytest.raises(cermet.Error, match=r"has no torch\._inductor\.debug\._pre_grad_graph_id, expected it"):
        cermet.enable()
    assert config.pre_grad_custom_pass is None


# --- Processes -------------------------------------------------------------------------------------------------------

TRAINING = """
import sys
sys.path.insert(0, {here!r})
import cermet
import cermet.enabling
if {build!r}:
    cermet.enabling.build = cermet.remainder.choice.build = lambda: {build!r}
cermet.enable()
import json, torch
from tiny_models import tiny, words
from torch._dynamo.utils import counters
model, text = tiny("Llama").train(), words()
call = torch.compile(model, backend="inductor", fullgraph=True, options={options!r})
loss = call(input_ids=text, labels=text).loss
loss.backward()
norm = torch.stack([p.grad.double().norm() for p in model.parameters()]).norm().item()
print("ANSWER" + json.dumps(dict(
    counters=cermet.counters(), loss=loss.item(), norm=norm, imported="torch._inductor.compile_fx" in sys.modules,
    aot={{k: v for k, v in counters["aot_autograd"].items() if "cache" in k}},
    inductor={{k: v for k, v in counters["inductor"].items() if "fxgraph" in k}})))
"""


def process(folder: Path, options: dict | None, build: str = "") -> dict:
    code = TRAINING.format(here=str(Path(__file__).resolve().parent), build=build, options=options)
    environment = os.environ | {
        "CERMET_CACHE_DIR": str(folder / "cermet"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
    }
    ran = forked.run("-c", code, env=environment)
    assert ran.returncode == 0, ran.stderr[-4000:]
    return json.loads(ran.stdout.split("ANSWER")[1])


def test_importing_cermet_imports_no_torch():
    code = 'import sys, cermet; print([name for name in sys.modules if name.split(".")[0] == "torch"])'
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.stdout == "[]\n", ran.stdout + ran.stderr


@pytest.mark.parametrize("options", [None, STAY], ids=["handed over", "Inductor's"])
def test_a_second_process_hits_every_cache(tmp_path, options):
    cold, warm = process(tmp_path, options), process(tmp_path, options)
    assert cold["counters"]["kernels_compiled"] > 0 and cold["aot"].get("autograd_cache_miss") == 1, cold
    assert warm["counters"]["kernels_compiled"] == warm["counters"]["plans_compiled"] == 0, warm["counters"]
    assert warm["aot"].get("autograd_cache_hit") == 1 and "autograd_cache_bypass" not in warm["aot"], warm
    assert "fxgraph_cache_bypass" not in warm["inductor"] and "fxgraph_cache_miss" not in warm["inductor"], warm
    once, again = (LAUNCHES, NORMS) if options is None else (2 * REGIONS, 0)
    assert warm["counters"]["launches"] == cold["counters"]["launches"]
    assert once <= warm["counters"]["launches"] <= once + again
    assert warm["counters"]["graphs"] == 1 and warm["counters"]["fallbacks"] == 0
    assert (warm["loss"], warm["norm"]) == (cold["loss"], cold["norm"])
    assert cold["imported"] == warm["imported"] == (options is not None), "imported in vain"
    # Another build may save other values for the backward of the same region.
    other = process(tmp_path, options, build="another")
    assert other["aot"].get("autograd_cache_miss") == 1 and "autograd_cache_hit" not in other["aot"], other
    assert (other["loss"], other["norm"]) == (cold["loss"], cold["norm"])
