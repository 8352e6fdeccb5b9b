"""Packs from Python: what a process asked for serves another that may compile nothing and finds no other cache."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import cermet
import pytest
from test_processes import ANSWER, attempt, process

RECORD = """
import cermet
block = cermet.record({path!r})
recording = block.__enter__()
"""
RECORDED = (
    """
block.__exit__(None, None, None)
print("RECORDED" + json.dumps(vars(recording)))
"""
    + ANSWER
)
ANOTHER = """
print("it trained")
def gated(gate, up):
    return torch.nn.functional.silu(gate) * up
torch.compile(gated, backend="cermet", options={"strict": False})(*torch.randn(2, 4, 48))
"""
CHEAP = {"remainder": "aot"}
ONLY = {"CERMET_CACHE": "only", "CERMET_CACHE_DIR": "", "CERMET_COMPILER_LIBRARY": "/nowhere.so"}


def recorded(tmp_path: Path, name: str, options: dict = CHEAP, **variables: str) -> tuple[Path, dict, dict]:
    """The pack of a process that trains in it, what `record` said of it, and what the process answered."""
    pack = tmp_path / name
    ran = attempt(tmp_path, options, RECORD.format(path=str(pack)), RECORDED, **variables)
    assert ran.returncode == 0, ran.stderr[-4000:]
    said, answer = ran.stdout.split("RECORDED")[1].split("ANSWER")
    return pack, json.loads(said), json.loads(answer)


@pytest.fixture(scope="module")
def packs(tmp_path_factory) -> dict:
    """What a cold process recorded, and what a later one did that has its caches, torch's among them."""
    place = tmp_path_factory.mktemp("recorded")
    cold = recorded(place, "cold.cpack")
    process(place, CHEAP)  # torch keeps its graph
    return {"cold": cold, "warm": recorded(place, "warm.cpack")}


def test_a_pack_trains_where_nothing_may_be_compiled(packs, tmp_path):
    pack, said, made = packs["cold"]
    assert made["counters"]["kernels_compiled"] > 0
    assert said["digest"] == hashlib.sha256(pack.read_bytes()).hexdigest() and said["bytes"] == pack.stat().st_size
    ran = process(tmp_path, CHEAP, CERMET_PACKS=f"{pack}#{said['digest']}", **ONLY)
    counters = ran["counters"]
    assert counters["cache_misses"] == counters["fallbacks"] == counters["late_gradients"] == 0, counters
    assert counters["plans_from_packs"] + counters["kernels_from_packs"] == said["entries"], (counters, said)
    assert counters["launches"] == made["counters"]["launches"] > 0
    assert (ran["loss"], ran["norm"]) == (made["loss"], made["norm"])
    assert ran["opened"] == [], f"it opened {ran['opened']}"


def test_a_warm_process_records_the_same_pack(packs):
    cold, warm = packs["cold"], packs["warm"]
    assert warm[2]["counters"]["kernels_compiled"] == 0  # the control: it was warm
    assert warm[1]["entries"] == cold[1]["entries"]
    assert warm[0].read_bytes() == cold[0].read_bytes() and warm[1]["digest"] == cold[1]["digest"]


def test_what_a_pack_lacks_is_an_error_with_what_would_make_it_strict_or_not(packs, tmp_path):
    pack = packs["cold"][0]
    ran = attempt(tmp_path, CHEAP, epilogue=ANOTHER, CERMET_PACKS=str(pack), CERMET_STRICT="0", **ONLY)
    assert ran.returncode != 0 and "it trained" in ran.stdout, ran.stderr[-3000:]
    for part in ("is not stored, and CERMET_CACHE=only lets nothing be made", str(pack), "cermet.record", "-o more.cpack"):
        assert part in ran.stderr, ran.stderr[-3000:]


def test_a_folder_that_is_not_there_is_said_before_anything_runs(tmp_path):
    with pytest.raises(cermet.Error, match="is no folder that can be written"):
        with cermet.record(tmp_path / "none" / "model.cpack"):
            pytest.fail("it ran")


def test_a_block_that_raises_writes_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError):
        with cermet.record(tmp_path / "model.cpack"):
            raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
