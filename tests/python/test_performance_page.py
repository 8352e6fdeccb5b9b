"""docs/performance.md is what bench/tables.py makes of bench/results, and a newer run takes the place of an older one."""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BENCH = ROOT / "bench"


def test_the_page_is_made_from_the_results() -> None:
    asked = subprocess.run([sys.executable, BENCH / "tables.py", "--check"], capture_output=True, text=True)
    assert asked.returncode == 0, asked.stderr


def test_no_result_is_there_that_the_page_does_not_show(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import tables

    shown = {run["part"] for _, runs, _ in tables.SECTIONS.values() for run in runs}
    for path in tables.results.FOLDER.glob("*.json"):
        if path.stem != "check":
            left = {run["part"] for run in tables.results.load(path.stem)} - shown
            assert not left, f"{path.name}: {left}"


def test_a_run_takes_the_place_of_the_one_that_measured_the_same(tmp_path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import results

    monkeypatch.setattr(results, "FOLDER", tmp_path / "results")

    def taken(models, commit, contenders=("eager",)):
        rows = [{"model": name, "contenders": [{"contender": each} for each in contenders]} for name in models]
        file = tmp_path / "step.json"
        file.write_text(json.dumps({"benchmark": "step", "environment": {"commit": commit}, "models": rows}))
        for run in results.runs(file):
            results.take(*run)

    taken(["A", "B"], "first")
    taken(["B"], "second")
    taken(["B"], "third", ("eager", "cermet, aot"))
    taken(["B"], "fourth", ("cermet, aot", "eager"))
    found = {run["part"]: run["environment"]["commit"] for run in results.load("step")}
    assert found == {"A: eager": "first", "B: eager": "second", "B: cermet, aot, eager": "fourth"}
