"""Packs that were captured, on the GPU that they are for: with neither compiler nor NVRTC a process trains, evaluates and
infers from one, and what a run asks for is what was captured. They are those that a machine without a GPU made
(bundle.sh, given a Python with the torch that is here), else made here, of fake tensors as there."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
# Behind this folder, which has a test_forking.py, too.
sys.path += [str(ROOT / "tests" / "python" / folder) for folder in ("", "capturing")]
captured = pytest.importorskip("captured", reason="tests/python/capturing is not here")
transformers = pytest.importorskip("transformers")
pytest.importorskip("cermet")
from cermet.targets import devices

PACKS = ROOT / "packs"
TARGETS = ("sm_80", "sm_90", "sm_100")  # as bundle.sh has them
MODELS = ("llama", "qwen3", "checkpointed")  # of captured_models.py
SHAPES = {"one": "input_ids=2x16", "many": "input_ids=2x4..64"}
CALLS = {"one": ([(2, 16)], ()), "many": ([(2, 11), (2, 40), (2, 7)], (1,))}  # rows and lengths, and what is marked


@pytest.fixture(scope="module")
def packs(tmp_path_factory):
    """The folder with a pack for each model and calls."""
    target = devices.target_of(torch.device("cuda"))
    here = [torch.__version__.split("+")[0], transformers.__version__]
    if PACKS.exists() and (PACKS / "of").read_text().split() == here:
        if target not in TARGETS:
            pytest.skip(f"the packs were captured for {' '.join(TARGETS)}, this is {target}")
        return PACKS
    folder = tmp_path_factory.mktemp("packs")
    environment = {**os.environ, "CERMET_CACHE_DIR": str(folder / "cache")}
    running = []
    for model in MODELS:
        for calls, shapes in SHAPES.items():
            made = ROOT / "tests/python/capturing/captured_models.py"
            command = [sys.executable, "-m", "cermet", "capture", f"{made}:{model}", "--shapes", shapes]
            command += ["--target", target, "-o", str(folder / f"{model}-{calls}.cpack")]
            running.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    for process in running:
        _, said = process.communicate(timeout=500)
        assert process.returncode == 0, said
    return folder


@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize("model", MODELS)
def test_a_pack_from_a_machine_without_a_gpu_trains_where_nothing_may_be_compiled(model, calls, packs, tmp_path):
    pack = str(packs / f"{model}-{calls}.cpack")
    packed = captured.steps(tmp_path, model, *CALLS[calls], "cuda", CERMET_PACKS=pack, **captured.ONLY)
    counters = packed["counters"]
    assert counters["cache_misses"] == counters["fallbacks"] == counters["late_gradients"] == 0, counters
    assert counters["kernels_from_packs"] > 0 and counters["launches"] > 0, counters
    assert packed["opened"] == [], f"it opened {packed['opened']}"
    made = captured.steps(tmp_path, model, *CALLS[calls], "cuda")
    assert made["counters"]["kernels_compiled"] > 0 and "libcermet_compiler" in made["opened"]  # the detectors work
    assert packed["numbers"] == made["numbers"]


@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize("model", MODELS)
def test_what_a_run_asks_for_is_what_was_captured(model, calls, packs, tmp_path):
    """The texts themselves, so that a difference is seen rather than missed."""
    own = tmp_path / "own.cpack"
    captured.steps(tmp_path, model, *CALLS[calls], "cuda", RECORD=str(own))
    there, asked = captured.entries(packs / f"{model}-{calls}.cpack"), captured.entries(own)
    missing = [entry for entry in asked if entry not in set(there)]
    assert not missing, f"{len(missing)} of {len(asked)} are not in the pack; the first:\n" + nearest(missing[0], there)


def nearest(entry: tuple[str, str], others: list[tuple[str, str]]) -> str:
    """The first lines that differ from the entry of its kind that begins most like it."""
    kind, text = entry
    other = max((key for each, key in others if each == kind), key=lambda key: len(os.path.commonprefix([key, text])))
    ours, theirs = text.split("\n"), other.split("\n")
    place = next((at for at, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    return "\n".join([kind, *(f"asked    {line}" for line in ours[place : place + 3]),
                      *(f"captured {line}" for line in theirs[place : place + 3])])
