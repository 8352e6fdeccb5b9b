"""Packs from a model without numbers: a process that may compile nothing trains and infers from one as with a compiler."""

from __future__ import annotations

import pytest
from captured import ONLY, capture, steps

MODELS = {"llama": "Llama", "qwen3": "Qwen3"}


@pytest.mark.parametrize("model", MODELS)
def test_a_captured_pack_trains_evaluates_and_infers_where_nothing_may_be_compiled(model, tmp_path):
    ran = capture(tmp_path, f"my_script:{model}", "--shapes", "input_ids=2x16", "--target", "host", "-o", "m.cpack")
    assert ran.returncode == 0, ran.stderr[-4000:]
    pack = tmp_path / "m.cpack"
    assert f"{pack.stat().st_size} bytes" in ran.stdout, ran.stdout
    packed = steps(tmp_path, MODELS[model], [(2, 16)], CERMET_PACKS=str(pack), **ONLY)
    made = steps(tmp_path, MODELS[model], [(2, 16)])
    assert made["compiler"] and not packed["compiler"]  # the detector works
    counters = packed["counters"]
    assert counters["cache_misses"] == counters["fallbacks"] == counters["late_gradients"] == 0, counters
    assert counters["launches"] == made["counters"]["launches"] > 0
    entries = counters["plans_from_packs"] + counters["kernels_from_packs"]
    assert f" {entries} entries" in ran.stdout, (ran.stdout, counters)  # and nothing that nobody asks for
    assert packed["numbers"] == made["numbers"]
