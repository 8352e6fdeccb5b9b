"""Fusions that do not gain are not made: the table, and what is measured once."""

from __future__ import annotations

import os

import pytest
import torch

import cermet
import forked
import graphs
from cermet import pipeline
from cermet.fusing import gains, timing
from cermet.ops import library
from cermet.fusing.gains import Measured
from cermet.options import Options
from cermet.records import Settings


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch, tmp_path):
    monkeypatch.setattr(library.context(), "cache_directory", lambda: str(tmp_path / "cache"))
    monkeypatch.setattr(timing, "_known", {})


def norm(rows=6, columns=48, grad=False):
    return graphs.trace(graphs.rms_norm, torch.randn(rows, columns, requires_grad=grad), torch.randn(columns))


def rewritten(module, remainder="inductor", autotune=False):
    return pipeline.run(module, Settings(options=Options(remainder, True, {}, autotune)))


ENTRY = Measured("rms_norm", False, (32, 64), 1000, 12.0, 10.0)


@pytest.mark.parametrize(
    ("entry", "module", "made"),
    [
        (ENTRY, dict(), False),
        (ENTRY, dict(columns=80), True),
        (ENTRY, dict(rows=1), True),  # under 1000 bytes
        (ENTRY, dict(grad=True), True),  # the entry is for the forward alone
        (Measured("rms_norm", True, (32, 64), 1000, 12.0, 10.0), dict(grad=True), False),
        (Measured("rms_norm", False, (32, 64), 1000, 10.1, 10.0), dict(), True),  # within the margin
        (Measured("glu", False, (32, 64), 1000, 12.0, 10.0), dict(), True),
    ],
)
def test_the_table_decides_where_inductor_runs_the_rest(monkeypatch, entry, module, made):
    monkeypatch.setattr(gains, "_TABLES", {"host": (entry,)})
    done = rewritten(norm(**module))
    assert len(done.regions) == made
    if not made:
        (miss,) = done.near_misses
        assert miss.pattern == "rms_norm"
        assert miss.condition.startswith("it does not gain on host: 12.0 us, Inductor's kernels 10.0 us")


def test_the_table_says_nothing_about_direct_calls(monkeypatch):
    monkeypatch.setattr(gains, "_TABLES", {"host": (ENTRY,)})
    assert len(rewritten(norm(), "aot").regions) == 1


def test_every_entry_of_the_tables_is_a_loss():
    for entries in gains._TABLES.values():
        for entry in entries:
            assert entry.ours > gains._MARGIN * entry.inductor and entry.columns[0] <= entry.columns[1], entry


def test_a_region_is_timed_once_and_remembered_across_processes(monkeypatch):
    before = cermet.counters()["timed"]
    for _ in range(2):
        rewritten(norm(rows=64), "aot", autotune=True)
    rewritten(norm(rows=128), "aot", autotune=True)
    assert cermet.counters()["timed"] == before + 2
    monkeypatch.setattr(timing, "_known", {})  # as another process begins
    rewritten(norm(rows=64), "aot", autotune=True)
    assert cermet.counters()["timed"] == before + 2


@pytest.mark.parametrize(("ours", "made"), [(30.0, False), (3.0, True)])
@pytest.mark.parametrize("grad", [False, True])
def test_what_measures_slower_is_a_near_miss_with_both_times(monkeypatch, ours, made, grad):
    measured = iter((ours, 20.0))
    monkeypatch.setattr(timing, "_time", lambda run, device: (run(), next(measured))[1])
    done = rewritten(norm(grad=grad), "aot", autotune=True)
    assert len(done.regions) == made
    if not made:
        assert done.near_misses[0].condition == "it does not gain here: 30.0 us, the operations it replaces 20.0 us"


def test_both_sides_compute_the_region_on_tensors_like_its_own(monkeypatch):
    def loss(logits, labels):
        return torch.nn.functional.cross_entropy(logits.float(), labels)

    logits = torch.randn(12, 40, dtype=torch.bfloat16, requires_grad=True)
    module = graphs.trace(loss, logits, torch.randint(40, (12,)))
    results = []
    monkeypatch.setattr(timing, "_time", lambda run, device: results.append(run()) or 1.0)
    (region,) = graphs.decided(module).regions
    assert timing.times(module, region) == timing.Times(1.0, 1.0)
    ours, unfused = results
    torch.testing.assert_close(ours[0], unfused[0], rtol=1e-2, atol=1e-4)
    assert ours[0].shape == (12, 40) and ours[0].dtype == torch.bfloat16


def test_a_measurement_that_fails_leaves_the_fusion(monkeypatch):
    def broken(run, device):
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(timing, "_time", broken)
    assert len(rewritten(norm(), "aot", autotune=True).regions) == 1


def test_autotune_through_the_backend():
    x, weight = torch.randn(64, 64), torch.randn(64)
    before = cermet.counters()["timed"]
    ours = torch.compile(graphs.rms_norm, backend="cermet", options={"autotune": True, "strict": True})(x, weight)
    torch.testing.assert_close(ours, graphs.rms_norm(x, weight), rtol=1e-5, atol=1e-5)
    assert cermet.counters()["timed"] == before + 1


PLACE = """
import os, pathlib, sys
sys.path.insert(0, {here!r})
for name in ("HOME", "XDG_CACHE_HOME", "CERMET_CACHE_DIR"):
    os.environ.pop(name, None)
os.environ.update({environment!r})
os.chdir({start!r})
os.umask(0o002)
import torch, graphs
from cermet.records import Settings
from cermet import pipeline
from cermet.fusing import timing
from cermet.ops import library
from cermet.options import Options
module = graphs.trace(graphs.rms_norm, torch.randn(6, 48), torch.randn(48))
pipeline.run(module, Settings(options=Options("aot", True, {{}}, True)))
place = library.context().cache_directory()
kept = sorted(str(p) for p in pathlib.Path({root!r}).rglob("*") if p.is_file())
print("PLACE", place)
for file in kept:
    print("KEPT", file)
"""


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (dict(), ""),
        (dict(HOME="relative"), ""),
        (dict(HOME="{root}/home", CERMET_CACHE_DIR=""), ""),
        (dict(HOME="{root}/home"), "{root}/home/.cache/cermet"),
        (dict(HOME="{root}/home", XDG_CACHE_HOME="relative"), "{root}/home/.cache/cermet"),
        (dict(HOME="{root}/home", XDG_CACHE_HOME="{root}/xdg"), "{root}/xdg/cermet"),
        (dict(HOME="{root}/home", CERMET_CACHE_DIR="given"), "{root}/start/given"),
    ],
)
def test_timings_lie_beside_the_kernels_wherever_that_is(tmp_path, environment, expected):
    root = str(tmp_path)
    (tmp_path / "start").mkdir()
    (tmp_path / "home").mkdir(mode=0o700)
    expected = expected.format(root=root)
    code = PLACE.format(
        here=os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
        environment={name: value.format(root=root) for name, value in environment.items()},
        start=root + "/start",
        root=root,
    )
    ran = forked.run("-c", code)
    assert ran.returncode == 0, ran.stderr[-3000:]
    lines = ran.stdout.splitlines()
    assert f"PLACE {expected}".strip() in [line.strip() for line in lines], ran.stdout
    kept = [line.split()[1] for line in lines if line.startswith("KEPT")]
    assert all(file.startswith(expected + "/") for file in kept) if expected else kept == [], kept
    assert sum("/gain/" in file for file in kept) == sum("/kernel/" in file for file in kept) == bool(expected), kept
    silent = bool(expected) or environment.get("CERMET_CACHE_DIR") == ""
    assert ("Set CERMET_CACHE_DIR to a directory" in ran.stderr) != silent, ran.stderr


def test_what_the_frontend_makes_is_as_closed_as_what_libcermet_makes(monkeypatch, tmp_path):
    monkeypatch.setattr(library.context(), "cache_directory", lambda: str(tmp_path / "new" / "cache"))
    before = os.umask(0o002)
    try:
        timing._write("key", timing.Times(1.0, 2.0))
    finally:
        os.umask(before)
    for folder in ("new", "new/cache", "new/cache/gain"):
        assert (tmp_path / folder).stat().st_mode & 0o777 == 0o700, folder
    assert timing._read("key") == timing.Times(1.0, 2.0)
