"""Markdown tables for docs/performance.md from results: python bench/tables.py bench/results/gpu.json ..."""
from __future__ import annotations

import json
import sys
from pathlib import Path

OPERATIONS = {"rms_norm": "RMSNorm", "add_rms_norm": "add + RMSNorm", "swiglu": "SwiGLU"}


def table(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *rows])


def kernels(result: dict) -> str:
    """µs and the fraction of a copy of the same bytes, a row for each operation, shape and direction."""
    cases = [case for case in result["cases"] if "failed" not in case]
    providers = list(dict.fromkeys(case["provider"] for case in cases))
    rows = []
    for operation, size in dict.fromkeys((case["operation"], (case["rows"], case["columns"])) for case in cases):
        found = {case["provider"]: case for case in cases
                 if (case["operation"], (case["rows"], case["columns"])) == (operation, size)}
        for direction in ("forward", "backward"):
            rows.append([f"{OPERATIONS[operation]} {direction} {size[0]}×{size[1]}"] + [
                f"{found[name][direction]['us']:.1f} · {found[name][direction]['fraction']:.2f}" if name in found else "–"
                for name in providers])
    text = table(["device time in µs · fraction of the copy", *providers], rows)
    calls = ", ".join(f"{name} {us:.1f} µs" for name, us in result["call_us"].items())
    return f"{text}\n\nHost cost of one forward call on 8 rows of 4096, autograd on: {calls}."


def step(result: dict) -> str:
    kinds = ("matmul", "attention", "cermet", "rest", "idle")
    rows = []
    for model, c in ((each["model"], c) for each in result["models"] for c in each["contenders"]):
        spread = max(c["rounds_ms"]) - min(c["rounds_ms"])
        rows.append([model, c["contender"], f"{c['step_ms']:.1f} ± {spread / 2:.1f} ms", f"{c['peak_gb']:.1f} GB",
                     f"{c['first_step_s']:.1f} s", f"{c['loss']:.4f}",
                     " / ".join(f"{c['gpu_ms'].get(kind, 0):.1f}" for kind in kinds)])
    heads = ["model", "contender", "step", "peak memory", "first step", "loss", f"GPU ms: {' / '.join(kinds)}"]
    return table(heads, rows)


def graphs(result: dict) -> str:
    rows = [[f"{case['graph']} {direction}", str(case[direction]["steps"]),
             f"{case[direction]['cermet']['us']:.1f} · {case[direction]['fraction']:.2f}",
             f"{case[direction]['inductor']['us']:.1f} · {case[direction]['inductor_fraction']:.2f}"]
            for case in result["cases"] if "failed" not in case for direction in ("forward", "backward")]
    return table(["graph", "kernels", "cermet", "inductor"], rows)


def warm(result: dict) -> str:
    return (f"From text to a launched kernel in a new process with a warm cache: {result['without_driver']['median_ms']:.1f} ms, "
            f"and {result['driver']['median_ms']:.0f} ms for the driver's own start.")


def launch(result: dict) -> str:
    bare = result.get("cuLaunchKernel")
    text = f"cermet_launch {result['cermet_launch']['median_ns']:.0f} ns"
    if bare:
        text += f", bare cuLaunchKernel {bare['median_ns']:.0f} ns: {result['added_ns']:.0f} ns more"
    return text + " (median of the host's time for one launch, in one loop)."


def main() -> None:
    for path in map(Path, sys.argv[1:]):
        loaded = json.loads(path.read_text())
        where = loaded.get("environment", {})
        print(f"{where.get('gpu')}, driver {where.get('driver')}, torch {where.get('torch')}, "
              f"commit {where.get('commit')}, {where.get('time')} ({path.name})\n")
        sections = loaded.get("sections") or {loaded["benchmark"]: {"result": loaded}}
        for name, render in (("kernels", kernels), ("graphs", graphs), ("step", step), ("launch", launch), ("warm", warm)):
            if "result" in sections.get(name, {}):
                print(render(sections[name]["result"]) + "\n")


if __name__ == "__main__":
    main()
