"""Across processes: the backend without an import, and a warm cache that needs no compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import forked

MODEL = """
import json, sys
sys.path.insert(0, {here!r})
import torch
before = open("/proc/self/maps").read()  # torch for CUDA opens NVRTC itself
from tiny_models import tiny, words
model, text = tiny("Llama", torch.bfloat16).train(), words()
call = torch.compile(model, backend="cermet", fullgraph=True, options={options!r})
loss = call(input_ids=text, labels=text).loss
loss.backward()
norm = torch.stack([p.grad.double().norm() for p in model.parameters()]).norm().item()
"""

ANSWER = """
import cermet
maps = open("/proc/self/maps").read()
from torch._dynamo.utils import counters
print("ANSWER" + json.dumps(dict(
    counters=cermet.counters(), loss=loss.item(), norm=norm,
    opened=[name for name in ("libnvrtc", "libcermet_compiler") if name in maps and name not in before],
    lowering="torch._inductor.lowering" in sys.modules,
    aot={k: v for k, v in counters["aot_autograd"].items() if "cache" in k},
    inductor={k: v for k, v in counters["inductor"].items() if "fxgraph" in k})))
"""


def process(tmp_path: Path, options: dict, prologue: str = "", epilogue: str = ANSWER, **variables: str) -> dict:
    ran = attempt(tmp_path, options, prologue, epilogue, **variables)
    assert ran.returncode == 0, ran.stderr[-4000:]
    return json.loads(ran.stdout.split("ANSWER")[1])


def attempt(
    tmp_path: Path, options: dict, prologue: str = "", epilogue: str = ANSWER, **variables: str
) -> subprocess.CompletedProcess[str]:
    code = prologue + MODEL.format(here=str(Path(__file__).resolve().parent), options=options) + epilogue
    environment = os.environ | {
        "CERMET_CACHE_DIR": str(tmp_path / "cermet"),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
    }
    return forked.run("-c", code, env=environment | variables)


@pytest.mark.parametrize("remainder", ["aot", "inductor"])
def test_a_second_process_compiles_nothing(remainder, tmp_path):
    cold = process(tmp_path, {"remainder": remainder})
    warm = process(tmp_path, {"remainder": remainder})
    assert cold["counters"]["kernels_compiled"] > 0 and "libcermet_compiler" in cold["opened"]  # the detector works
    assert warm["counters"]["kernels_compiled"] == 0 and warm["counters"]["plans_compiled"] == 0, warm["counters"]
    assert warm["counters"]["kernels_from_directory"] == cold["counters"]["kernels_compiled"]
    assert warm["opened"] == [], f"a warm process opened {warm['opened']}"
    assert warm["counters"]["fallbacks"] == 0 and warm["counters"]["late_gradients"] == 0
    assert warm["counters"]["launches"] == cold["counters"]["launches"] > 0
    assert (warm["loss"], warm["norm"]) == (cold["loss"], cold["norm"])
    for ran in (cold, warm):  # torch's own caches keep graphs that hold our ops
        assert ran["aot"].get("autograd_cache_bypass", 0) == 0 and ran["counters"]["cache_bypasses"] == 0, ran
    assert cold["aot"]["autograd_cache_saved"] == warm["aot"]["autograd_cache_hit"] == 1, (cold, warm)
    assert warm["aot"].get("autograd_cache_miss", 0) == 0 and warm["inductor"].get("fxgraph_cache_miss", 0) == 0, warm
    assert (warm["inductor"].get("fxgraph_cache_hit", 0) == 2) == (remainder == "inductor"), warm
    # Found, direct calls need nothing of Inductor's lowering, whose import takes a second.
    assert warm["lowering"] == (remainder == "inductor"), warm


def test_a_direct_graph_is_found_where_inductor_was_used_before(tmp_path):
    options = {"remainder": "aot"}
    cold = process(tmp_path, options)
    registered = """
from torch._inductor.codegen.common import custom_backend_passes, init_backend_registration
init_backend_registration()
assert custom_backend_passes  # which the key of a graph for Inductor holds
"""
    warm = process(tmp_path, options, prologue=registered)
    assert cold["aot"].get("autograd_cache_saved") == 1 and warm["lowering"], (cold, warm)
    assert warm["aot"].get("autograd_cache_hit") == 1 and not warm["aot"].get("autograd_cache_miss"), warm


def test_torchs_key_is_its_own_again_after_a_direct_graph():
    import torch
    from torch._inductor import codecache

    names = ("init_backend_registration", "custom_backend_passes", "custom_backend_codegen_configs", "CacheBase")
    before = [getattr(codecache, name) for name in names]
    layer = torch.compile(torch.nn.Linear(6, 3), backend="cermet", options={"remainder": "aot"})
    layer(torch.randn(2, 6)).sum().backward()
    assert all(getattr(codecache, name) is value for name, value in zip(names, before, strict=True))


def test_the_backend_is_found_without_an_import():
    code = """
import sys, torch
def function(gate, up):
    return torch.nn.functional.silu(gate) * up
assert "cermet" in torch._dynamo.list_backends(exclude_tags=()), torch._dynamo.list_backends(exclude_tags=())
assert "cermet" not in sys.modules
gate, up = torch.randn(2, 4, 32).unbind()
call = torch.compile(function, backend="cermet", options={"remainder": "eager"})
torch.testing.assert_close(call(gate, up), function(gate, up))
import cermet
assert cermet.counters()["launches"] == 1, cermet.counters()
print("fine")
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert ran.stdout.strip() == "fine", ran.stderr[-3000:]
