"""Packs from a model without numbers: a process that may compile nothing trains and infers from one as with a compiler."""

from __future__ import annotations

from pathlib import Path

import pytest
from captured import ONLY, capture, entries, steps

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


@pytest.fixture(scope="module")
def lengths(tmp_path_factory) -> Path:
    """A pack of a model for every length."""
    folder = tmp_path_factory.mktemp("lengths")
    ran = capture(folder, "my_script:llama", "--shapes", "input_ids=2x1..16", "--target", "host", "-o", "m.cpack")
    assert ran.returncode == 0, ran.stderr[-4000:]
    return folder / "m.cpack"


@pytest.mark.parametrize("calls", [[(2, 11), (2, 7), (2, 16)], [(2, 2), (2, 13)]], ids=str)
def test_lengths_that_are_marked_find_all_in_the_pack_whichever_comes_first(lengths, calls, tmp_path):
    packed = steps(tmp_path, "Llama", calls, (1,), CERMET_PACKS=str(lengths), **ONLY)
    assert packed["counters"]["cache_misses"] == packed["counters"]["fallbacks"] == 0, packed["counters"]
    assert packed["numbers"] == steps(tmp_path, "Llama", calls, (1,))["numbers"]


def test_a_length_of_one_is_in_the_pack_too(lengths, tmp_path):
    packed = steps(tmp_path, "Llama", [(2, 1)], CERMET_PACKS=str(lengths), **ONLY)
    assert packed["counters"]["cache_misses"] == packed["counters"]["fallbacks"] == 0, packed["counters"]


def test_gpus_that_are_not_here_are_captured_with_the_same_bytes_from_anywhere(tmp_path):
    arguments = "my_script:qwen3", "--shapes", "input_ids=2x16", "-o", "m.cpack", "--target"
    packs = []
    for place, targets in (("here", "sm_90,sm_100"), ("elsewhere", "sm_90,sm_100"), ("one", "sm_90"), ("other", "sm_100")):
        ran = capture(tmp_path / place, *arguments, targets)
        assert ran.returncode == 0, ran.stderr[-4000:]
        packs.append(tmp_path / place / "m.cpack")
    both, again, one, other = packs
    assert both.read_bytes() == again.read_bytes()
    found = entries(both)
    for kind in ("plan", "kernel"):
        targets = [key.split("\n")[0 if kind == "plan" else 1].removeprefix("target ") for each, key in found if each == kind]
        assert set(targets) == {"sm_90", "sm_100"} and targets.count("sm_90") == targets.count("sm_100") > 9, targets
    assert set(found) == {*entries(one), *entries(other)}
    matches = "".join(key for kind, key in found if kind == "match")
    assert "_scaled_dot_product_cudnn_attention_backward" in matches  # which torch takes on both
    assert "for_cpu" not in matches
