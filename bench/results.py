"""The current results: bench/results/BENCHMARK.json holds the newest run of each thing that a benchmark measures.

A run takes the place of the one before it that measured the same: a model's step with the same contenders (and first
steps with warm caches or without), a scene or a function with the same contenders, a contender's longest sequence,
architectures in a type, a model's fusions, a section of the GPU check, else the benchmark as a whole; older ones are
in the history. docs/performance.md is made from these files (bench/tables.py).

    python bench/results.py gpu-out/gpu.json bench-out/step.json ...      takes in what runs wrote
"""
from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "results"
CHECKS = ("tests", "python", "sanitizer")  # sections of tests/gpu/check.py that say what held, not how fast
WIDTH, DEPTH = 120, 6


def load(benchmark: str) -> list[dict]:
    """The current runs of a benchmark, each `part` (what it measured), `environment` and `result`; none, []."""
    path = FOLDER / f"{benchmark}.json"
    return json.loads(path.read_text())["runs"] if path.exists() else []


def take(benchmark: str, part: str, environment: dict, result: dict) -> None:
    """Puts a run in the place of the one that measured the same."""
    runs = {run["part"]: run for run in load(benchmark)}
    runs[part] = {"part": part, "environment": environment, "result": result}
    kept = {"benchmark": benchmark, "runs": [runs[name] for name in sorted(runs)]}
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{benchmark}.json").write_text(text(kept) + "\n")


def text(value, depth: int = 0) -> str:
    """JSON in which whatever fits into a line, or lies deep, is one."""
    line = json.dumps(value, ensure_ascii=False)
    if depth >= DEPTH or len(line) + depth <= WIDTH or not isinstance(value, (dict, list)):
        return line
    inner = " " * (depth + 1)
    if isinstance(value, dict):
        parts = [f"{json.dumps(key, ensure_ascii=False)}: {text(item, depth + 1)}" for key, item in value.items()]
    else:
        parts = [text(item, depth + 1) for item in value]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return f"{begin}\n{inner}" + f",\n{inner}".join(parts) + f"\n{' ' * depth}{end}"


def parts(benchmark: str, result: dict) -> Iterator[tuple[str, dict]]:
    """What one result measured, thing by thing."""
    if benchmark == "step":
        for model in result["models"]:
            warm = "; first steps warm" if any(row.get("warm") for row in model["contenders"]) else ""
            yield f"{model['model']}: {_all(row['contender'] for row in model['contenders'])}{warm}", model
    elif benchmark in ("lengths", "decode"):
        for scene in result["scenes"]:
            cache = scene.get("filled", 1024), scene.get("room", 2048)
            decoded = "" if cache == (1024, 2048) else f", {cache[0]} of {cache[1]}"
            of = scene["scene"] if benchmark == "lengths" else f"batch {scene['batch']}{decoded}"
            yield f"{of}: {_all(row['key'] for row in scene['contenders'])}", scene
    elif benchmark == "longest":
        for row in result["contenders"]:
            yield row["key"], result | {"contenders": [row]}
    elif benchmark == "functions":
        for name in dict.fromkeys(case["function"] for case in result["cases"]):
            mine = [case for case in result["cases"] if case["function"] == name]
            yield f"{name}: {_all(case['contender'] for case in mine)}", result | {"cases": mine}
    elif benchmark == "families":
        yield result["cases"][0]["scene"].partition(", ")[2], result
    elif benchmark == "architectures":
        yield result["cases"][0]["scene"], result
    elif benchmark == "kinds":
        for case in result["cases"]:
            if "failed" not in case:
                yield f"{case['kind']}: {_all(row['contender'] for row in case['rows'])}", case
    elif benchmark == "fusions":
        for name in dict.fromkeys(case["model"] for case in result["cases"]):
            yield name, result | {"cases": [case for case in result["cases"] if case["model"] == name]}
    else:
        yield "", result


def _all(contenders: Iterable[str]) -> str:
    """Those that were there, in whatever order."""
    return ", ".join(sorted(set(contenders)))


def runs(path: Path) -> Iterator[tuple[str, str, dict, dict]]:
    """Benchmark, part, environment and result of all that a file of a benchmark or of tests/gpu/check.py holds."""
    loaded = json.loads(path.read_text())
    environment = loaded.pop("environment", None)
    if environment is None or not ("sections" in loaded or "benchmark" in loaded):
        raise ValueError(f"{path} is not what a benchmark or tests/gpu/check.py wrote: it has no environment and benchmark")
    for name, section in loaded.get("sections", {}).items():
        if name in CHECKS:
            yield "check", name, environment, section
        elif "result" in section:
            result = dict(section["result"])
            benchmark, of = result.pop("benchmark"), result.pop("environment", environment)
            yield from ((benchmark, part, of, each) for part, each in parts(benchmark, result))
    if "benchmark" in loaded:
        benchmark = loaded.pop("benchmark")
        yield from ((benchmark, part, environment, each) for part, each in parts(benchmark, loaded))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="+", help="what a benchmark wrote with --out, or a gpu.json")
    for path in parser.parse_args().files:
        try:
            for run in list(runs(path)):
                take(*run)
                print(f"{run[0]}.json: {run[1] or 'all of it'}, commit {run[2].get('commit')}")
        except (OSError, ValueError) as problem:
            sys.exit(f"error: {problem}")


if __name__ == "__main__":
    main()
