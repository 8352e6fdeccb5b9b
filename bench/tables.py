"""docs/performance.md from the current results (bench/results.py): all of it but the page of what was learnt, which stays.

    python bench/tables.py            writes it
    python bench/tables.py --check    says whether it is as the results have it, and changes nothing
"""
from __future__ import annotations

import ast
import statistics
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import results

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
LEARNT = "## What was learnt"  # the page from here on is written by hand
OPERATIONS = {"rms_norm": "RMSNorm", "add_rms_norm": "add + RMSNorm", "swiglu": "SwiGLU", "layer_norm": "LayerNorm",
              "cross_entropy": "cross-entropy", "group_norm": "GroupNorm", "cumsum": "cumulative sum",
              "top_p": "softmax and its exclusive cumulative sum"}
CONTENDERS = {"cermet": "Cermet", "cermet, aot": "Cermet, `aot`", "cermet, inductor": "Cermet, `inductor`",
              "cermet, auto": "Cermet, `auto`", "cermet, marked": "Cermet, `aot`, lengths marked",
              "cermet, dynamic": "Cermet, `aot`, `dynamic=True`",
              "inductor": "Inductor", "inductor, dynamic": "Inductor, `dynamic=True`",
              "inductor, no mask": "Inductor, mask taken out by hand", "liger": "Liger", "eager": "eager",
              "flash": "transformers with flash attention", "liger, compiled": "Liger under `torch.compile`"}
DIGITS = 4  # of a loss that must be eager's
GPU_KINDS = ("matmul", "attention", "cermet", "rest", "idle")
MEMORY = {"cermet, aot, memory fast": '`"fast"`', "cermet, aot": '`"auto"`', "cermet, aot, memory least": '`"least"`',
          "liger": "Liger", "eager": "eager"}


def table(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *rows])


def measured(run: dict) -> str:
    """On what, with what and when a run was made."""
    on = run["environment"]
    where = on.get("gpu") or f"{on.get('cpu')}, {on.get('cores')} cores"
    names = {"driver": "driver", "nvrtc": "NVRTC", "torch": "torch", "transformers": "transformers", "peft": "peft",
             "torchao": "torchao", "liger_kernel": "Liger"}
    versions = [f"{name} {on[key]}" for key, name in names.items() if on.get(key)]
    if on.get("load", 0) >= 1:
        versions.append(f"beside other work (load {on['load']:.0f})")
    return f"{', '.join([where, *versions])}; commit {on['commit']}, {on['time'][:10]}"


def described(script: str) -> str:
    """What a benchmark says of itself, but for how it is called."""
    text = (ROOT / "bench" / script).read_text()
    if script.endswith(".py"):
        head = ast.get_docstring(ast.parse(text))
    else:
        head = "\n".join(line[3:] for line in text.splitlines()[: text.splitlines().index("")] if line.startswith("//"))
    said = [line for line in head.splitlines() if not line.startswith("    ")]
    return wrapped(" ".join("\n".join(said).split()))


def wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def pair(us: float, fraction: float) -> str:
    return f"{us:.1f} · {fraction:.2f}"


# --- Tables: the runs of one benchmark to text -----------------------------------------------------------------------


def kernels(runs: list[dict]) -> str:
    cases = [case for case in runs[0]["result"]["cases"] if "failed" not in case]
    providers = list(dict.fromkeys(case["provider"] for case in cases))
    found = {(case["operation"], case["rows"], case["columns"], case["provider"]): case for case in cases}
    rows = []
    for operation, height, width in dict.fromkeys(key[:3] for key in found):
        for direction in ("forward", "backward"):
            cells = [found.get((operation, height, width, name), {}).get(direction) for name in providers]
            rows.append([f"{OPERATIONS[operation]} {direction} {height}×{width}",
                         *(pair(cell["us"], cell["fraction"]) if cell else "–" for cell in cells)])
    return table(["µs · fraction of the copy", *providers], rows)


def graphs(runs: list[dict]) -> str:
    rows = [[f"{case['graph']} {direction}", str(case[direction]["steps"]),
             pair(case[direction]["cermet"]["us"], case[direction]["fraction"]),
             pair(case[direction]["inductor"]["us"], case[direction]["inductor_fraction"])]
            for case in runs[0]["result"]["cases"] if "failed" not in case for direction in ("forward", "backward")]
    return table(["µs · fraction of the copy", "kernels", "Cermet", "Inductor"], rows)


def fusions(runs: list[dict]) -> str:
    rows = []
    for run in runs:
        for case in run["result"]["cases"]:
            if "failed" in case:
                continue
            cells = [pair(case[direction][name]["us"], case[direction][fraction]) if direction in case else "–"
                     for direction in ("forward", "backward")
                     for name, fraction in (("cermet", "fraction"), ("inductor", "inductor_fraction"))]
            rows.append([run["part"], case["pattern"], ", ".join(dict.fromkeys(case["operands"])), *cells])
    return table(["model", "fusion", "operands", "forward: Cermet", "Inductor", "backward: Cermet", "Inductor"], rows)


def cross_entropy(runs: list[dict]) -> str:
    rows = [[f"{case['rows']}×{case['columns']}",
             *(f"{pair(case[name]['us'], case[name]['fraction'])}, {len(case[name]['kernels'])} kernels"
               for name in ("cermet", "inductor"))] for case in runs[0]["result"]["cases"]]
    return table(["logits", "Cermet", "Inductor"], rows)


def heads(runs: list[dict]) -> str:
    result = runs[0]["result"]
    rows = [[{"products": "the products alone"}.get(case["name"], case["name"]), f"{case['ms']:.2f}",
             f"{case['of_products']:.3f}", f"{case['peak_gb']:.2f}" if case["peak_gb"] else "",
             f"{case['relative_error']:.1e}" if case["relative_error"] else ""] for case in result["cases"]]
    size = f"{result['rows']} × {result['hidden']} by {result['vocabulary']} words"
    return table([f"{size}; MiB of logits at once", "ms", "of the products", "peak GB", "relative error"], rows)


def step(runs: list[dict]) -> str:
    shown = [name for name in CONTENDERS if any(row["contender"] == name for run in runs for row in run["result"]["contenders"])]
    times, memory, gpu = [], [], []
    for run in runs:
        model = run["result"]
        rows = {row["contender"]: row for row in model["contenders"]}
        ours = rows.get("cermet, aot", rows.get("cermet, auto"))
        truth = None if model.get("random") or "eager" not in rows else rows["eager"]["loss"]
        others = {name: row["step_ms"] for name, row in rows.items()
                  if not name.startswith("cermet") and name != "inductor, no mask" and not _wrong(row["loss"], truth)}
        fastest = min(others, key=others.__getitem__, default=None)
        cells = [_time(rows[name], truth) if name in rows else "–" for name in shown]
        what = f"{_name(model)} ({run['environment']['commit'][:7]})"
        times.append([what, *cells, _ratio(ours, rows.get("inductor"), "step_ms"),
                      f"{_ratio(ours, rows[fastest], 'step_ms')}, {CONTENDERS[fastest]}" if fastest else "–"])
        memory.append([what, *(f"{rows[name]['peak_gb']:.1f}; {rows[name]['first_step_s']:.1f}; {rows[name]['loss']:.4f}"
                               if name in rows else "–" for name in shown)])
        gpu.append([what, *(" / ".join(f"{row['gpu_ms'].get(kind, 0):.1f}" for kind in GPU_KINDS) if row else "–"
                            for row in (ours, rows.get("inductor")))])
    heads = [CONTENDERS[name] for name in shown]
    return "\n\n".join([
        table(["step ms (spread)", *heads, "`aot` : Inductor", "`aot` : fastest other"], times),
        table(["peak GB; cold first step, s; loss", *heads], memory),
        table(["GPU ms of a step: matmul / attention / Cermet / rest / idle", "Cermet, `aot`", "Inductor"], gpu)])


def first_steps(runs: list[dict]) -> str:
    rows = []
    for model in (run["result"] for run in runs):
        found = {row["contender"]: row for row in model["contenders"]}
        ours, peer = found["cermet, aot"], found["inductor"]
        warm = [sorted(row["first_step_s"] for row in each["warm"]) for each in (ours, peer)]
        middle = [statistics.median(each) for each in warm]
        packed = sorted(row["first_step_s"] for row in ours.get("packed", ()))
        rows.append([_name(model), f"{ours['first_step_s']:.1f} / {peer['first_step_s']:.1f}",
                     f"{ours['first_step_s'] / peer['first_step_s']:.2f}",
                     *(f"{value:.1f} ({each[0]:.1f} to {each[-1]:.1f})" for value, each in zip(middle, warm)),
                     f"{middle[0] / middle[1]:.2f}", f"{middle[0] / peer['first_step_s']:.2f}",
                     f"{statistics.median(packed):.1f} ({packed[0]:.1f} to {packed[-1]:.1f})" if packed else "–"])
    return table(["seconds", "cold: `aot` / Inductor", "ratio", "warm: `aot`", "warm: Inductor", "ratio",
                  "warm `aot` : cold Inductor", "`aot` from a pack, nothing made"], rows)


def memory(runs: list[dict]) -> str:
    rows = []
    for model in (run["result"] for run in runs):
        found = {row["contender"]: row for row in model["contenders"]}
        rows.append([_name(model), *(f"{row['peak_gb']:.1f}; {_spread(row, 'step_ms', 1)}" if row else "–"
                                     for row in map(found.get, MEMORY))])
    return table(["peak GB; step ms (spread)", *MEMORY.values()], rows)


def with_cold(runs: list[dict]) -> list[dict]:
    return [run for run in runs if not _is_warm(run) and not _is_of_memory(run)]


def with_memory(runs: list[dict]) -> list[dict]:
    """Those whose contenders keep more or less for the backward."""
    return [run for run in runs if _is_of_memory(run)]


def _is_of_memory(run: dict) -> bool:
    return any(", memory " in row["contender"] for row in run["result"]["contenders"])


def with_warm(runs: list[dict]) -> list[dict]:
    """Those whose first steps were also taken with warm caches."""
    return [run for run in runs if _is_warm(run)]


def _is_warm(run: dict) -> bool:
    return any(row.get("warm") for row in run["result"]["contenders"])


def _name(model: dict) -> str:
    return f"{model['model']}, {model['layers']} layers, {model['batch']} × {model['tokens']}"


def _ratio(ours: dict | None, other: dict | None, of: str) -> str:
    return f"{ours[of] / other[of]:.2f}" if ours and other else "–"


def _spread(row: dict, of: str, digits: int) -> str:
    """The median of a row's rounds, and how far they lie apart."""
    return f"{row[of]:.{digits}f} ({max(row['rounds_ms']) - min(row['rounds_ms']):.{digits}f})"


def _counted(found: dict | None) -> str:
    return f"{pair(found['us'], found['fraction'])}, {len(found['kernels'])}" if found else "–"


def _said(row: dict) -> str:
    """A contender's name, also where its row says only why there is none."""
    return CONTENDERS[row["key"].replace("-", ", ")]


def _wrong(loss: float, truth: float | None) -> bool:
    return truth is not None and not abs(loss - truth) < 2 * 10 ** (len(str(int(truth))) - DIGITS)


def _time(row: dict, truth: float | None) -> str:
    text = _spread(row, "step_ms", 1)
    return f"{text}, loss wrong" if _wrong(row["loss"], truth) else text


def lengths(runs: list[dict]) -> str:
    rows = []
    for run in runs:
        scene, commit = run["result"], run["environment"]["commit"][:7]
        found = {row["key"]: row for row in scene["contenders"] if "failed" not in row}
        truth = found.get("eager", {}).get("losses", [])
        for row in scene["contenders"]:
            what = [f"{scene['scene']} ({commit})", _said(row)]
            if "failed" in row:
                rows.append([*what, row["failed"].splitlines()[0], *["–"] * 5])
                continue
            wrong = any(_wrong(mine, loss) for mine, loss in zip(row["losses"], truth))
            rows.append([*what, f"{row['seconds'][-1]:.1f}", str(row["graphs"]),
                         _spread(row, "step_ms", 1) + (", loss wrong" if wrong else ""), f"{row['peak_gb']:.1f}",
                         *(_ratio(row, found.get(name), "step_ms") for name in ("liger", "inductor"))])
    return table(["mask", "contender", "all lengths have run, s", "graphs", "step ms (spread)", "peak GB", ": Liger",
                  ": Inductor"], rows)


def longest(runs: list[dict]) -> str:
    rows = []
    for run in runs:
        for row in run["result"]["contenders"]:
            if "failed" in row:
                rows.append([_said(row), row["failed"].splitlines()[0], *["–"] * 4])
                continue
            last = row["steps"][-1] if row["steps"] else {"seconds": 0.0, "peak_gb": 0.0}
            fits = f"{row['by_memory'] / 1024:.0f}" if row["by_memory"] else f"{row['tokens'] / 1024:.0f}, found"
            rows.append([_said(row), f"{row['tokens'] / 1024:.0f}", f"{last['seconds']:.1f}", f"{last['peak_gb']:.1f}",
                         row["ended"], fits])
    return table(["contender", "x 1024 tokens that ran", "s a step", "peak GB", "ended by", "x 1024 tokens by memory"],
                 rows)


HELD = ["compared", "hold", "do not", "have not ended in time"]


def held(cases: list[dict]) -> list[str]:
    """Of models whose numbers were to hold."""
    tried = [case for case in cases if "left_out" not in case]
    ended = [case for case in tried if "late" not in case]
    wrong = [case["family"] for case in ended if not case.get("holds")]
    late = ", ".join(case["family"] for case in tried if "late" in case)
    return [str(len(ended)), str(len(ended) - len(wrong)), ", ".join(wrong), late]


def families(runs: list[dict]) -> str:
    cases = [case for run in runs for case in run["result"]["cases"]]
    scenes = dict.fromkeys(case["scene"] for case in cases)
    rows = [[scene, *held([case for case in cases if case["scene"] == scene])] for scene in scenes]
    return table(["", f"families {HELD[0]}", *HELD[1:]], rows)


def architectures(runs: list[dict]) -> str:
    rows = []
    for run in runs:
        cases = run["result"]["cases"]
        left = sum("left_out" in case for case in cases)
        rows.append([cases[0]["scene"], *held(cases), str(left)])
    return table(["", *HELD, "left out"], rows)


def kinds(runs: list[dict]) -> str:
    rows = []
    for run in runs:
        case = run["result"]
        ours, theirs = ({row["contender"]: row for row in case["rows"]}.get(name, {}) for name in ("cermet", "inductor"))

        def both(name: str, digits: int) -> list[str]:
            return [f"{row[name]:.{digits}f}" if name in row else "–" for row in (ours, theirs)]

        def part(name: str) -> str:
            return f"{ours[name] / theirs[name]:.2f}" if ours.get(name) and theirs.get(name) else "–"

        times = [f"{time} ({spread})" for time, spread in zip(both("milliseconds", 1), both("spread", 1))]
        rows.append([f"{case['kind']} ({run['environment']['commit'][:7]})", f"{case['parameters'] / 1e6:.0f}",
                     *times, part("milliseconds"), part("kernel_milliseconds"),
                     "; ".join(both("first_step_seconds", 0)), "; ".join(both("peak_gb", 1))])
    return table(["kind (commit)", "M parameters", "Cermet, ms", "Inductor, ms", "of Inductor's", "their kernels",
                  "first step, s", "peak above, GB"], rows)


def decode(runs: list[dict]) -> str:
    rows = []
    for run in runs:
        scene, commit = run["result"], run["environment"]["commit"][:7]
        found = {row["key"]: row for row in scene["contenders"] if "failed" not in row}
        for row in scene["contenders"]:
            cache = f"{scene.get('filled', 1024)} of {scene.get('room', 2048)}"
            what = [f"{scene['batch']} ({commit})", cache, _said(row)]
            if "failed" in row:
                rows.append([*what, row["failed"].splitlines()[0], *["–"] * 3])
                continue
            rows.append([*what, _spread(row, "token_ms", 3), _ratio(row, found.get("inductor"), "token_ms"),
                         f"{row['first_token_s']:.1f}",
                         " / ".join(f"{row['gpu_ms'].get(kind, 0):.2f}" for kind in GPU_KINDS)])
    return table(["batch", "cache", "contender", "ms a token (spread)", ": Inductor", "first token, s",
                  "GPU ms: matmul / attention / Cermet / rest / idle"], rows)


def functions(runs: list[dict]) -> str:
    shown = list(dict.fromkeys(case["contender"] for run in runs for case in run["result"]["cases"]))
    rows = []
    for run in runs:
        commit = run["environment"]["commit"][:7]
        found: dict[tuple, dict] = {}
        for case in run["result"]["cases"]:
            for direction in ("forward", "backward", "loss and gradient"):
                if direction in case:
                    of = found.setdefault((case["function"], direction, case["rows"], case["columns"]), {})
                    of[case["contender"]] = case[direction]
        for (name, direction, height, width), cells in found.items():
            rows.append([f"{OPERATIONS.get(name, name)} {direction} {height}×{width} ({commit})",
                         *(_counted(cells.get(each)) for each in shown)])
    return table(["µs · fraction of the copy, kernels", *(CONTENDERS[name] for name in shown)], rows)


def op_call(runs: list[dict]) -> str:
    result = runs[0]["result"]
    names = {"aot": "in code that AOTAutograd runs (`aot`)", "inductor": "in Inductor's code (`inductor`)",
             "plain": "plain C++: allocation, launch, release"}
    rows = [[name, f"{result['us'][key]:.2f} ({min(result['sweeps'][key]):.2f} to {max(result['sweeps'][key]):.2f})",
             f"{result['adds_us'][key]:.2f}" if key in result["adds_us"] else ""] for key, name in names.items()]
    return table(["one op", "µs: median of the sweeps (least to most)", "adds to plain C++"], rows)


def launch(runs: list[dict]) -> str:
    result = runs[0]["result"]
    rows = [[name, f"{result[name]['median_ns']:.0f}"] for name in ("cermet_launch", "cuLaunchKernel")]
    return table(["host's time for one launch", "ns"], [*rows, ["added", f"{result['added_ns']:.0f}"]])


def warm_start(runs: list[dict]) -> str:
    result = runs[0]["result"]
    names = {"start": "the process and its libraries", "context": "context", "compile": "text to plan", "prepare": "plan to kernel",
             "launch": "launch", "without_driver": "all of it without the driver", "driver": "the driver's own start"}
    rows = [[name, *(f"{result[key][part]:.2f}" for part in ("median_ms", "p10_ms", "p90_ms"))] for key, name in names.items()]
    return table(["ms", "median", "10 %", "90 %"], rows)


def compile_(runs: list[dict]) -> str:
    result = runs[0]["result"]
    count = len(result["kernels"])
    rows = [[f"{count} kernels, median", f"{result['median_ms']:.0f}"], ["largest", f"{result['largest_ms']:.0f}"],
            ["the first, which opens the compiler and NVRTC", f"{result['first_ms']:.0f}"],
            ["all one after the other", f"{result['one_after_the_other_ms']:.0f}"],
            [f"all at once, {result['threads']} threads", f"{result['together_ms']:.0f}"]]
    return table(["cold compile", "ms"], rows)


def plans(runs: list[dict]) -> str:
    times = runs[0]["result"]["times"]
    sizes = sorted({row["operations"] for row in times})
    found = {(row["graph"], row["operations"]): row["processor_ms"] for row in times if row["ask"] == "compile"}
    rows = [[name, *(f"{found[name, size] / 1000:.3f}" if (name, size) in found else "–" for size in sizes)]
            for name in dict.fromkeys(row["graph"] for row in times)]
    return table(["s to a plan of about so many operations", *(f"{size:,}" for size in sizes)], rows)


def loss_curves(runs: list[dict]) -> str:
    result = runs[0]["result"]
    rows = [[str(case["seed"]), f"{case['cermet']:.5f}", f"{case['eager']:.5f}"] for case in result["cases"]]
    return table(["seed", "Cermet", "eager"], [*rows, ["mean ratio", f"{result['ratio']:.3f}", ""]])


def check(runs: list[dict]) -> str:
    rows = []
    for run in runs:
        result = run["result"]
        if "tools" in result:
            said = ", ".join(f"{tool} {'clean, control found' if all(part['ok'] for part in parts.values()) else 'WRONG'}"
                             for tool, parts in result["tools"].items())
        else:
            said = f"{result['passed']} passed, {len(result['failed'])} failed, {result['skipped']} skipped"
        rows.append([run["part"], said, run["environment"]["commit"]])
    return table(["section", "outcome", "commit"], rows)


# heading -> (the benchmark's file, which of its results, what makes the table)
SECTIONS: dict[str, tuple[str, list[dict], Callable[[list[dict]], str]]] = {
    "The training step": ("step.py", with_cold(results.load("step")), step),
    "First steps": ("step.py", with_warm(results.load("step")), first_steps),
    "What a forward keeps": ("step.py", with_memory(results.load("step")), memory),
    "Batches of many lengths": ("lengths.py", results.load("lengths"), lengths),
    "The longest sequence": ("longest.py", results.load("longest"), longest),
    "Families of models": ("families.py", results.load("families"), families),
    "Other architectures": ("architectures.py", results.load("architectures"), architectures),
    "Models of many kinds": ("kinds.py", results.load("kinds"), kinds),
    "Decoding": ("decode.py", results.load("decode"), decode),
    "Fusions as models have them": ("fusions.py", results.load("fusions"), fusions),
    "A loss with its gradient": ("cross_entropy.py", results.load("cross_entropy"), cross_entropy),
    "A head and its loss in pieces": ("heads.py", results.load("heads"), heads),
    "Functions by themselves": ("functions.py", results.load("functions"), functions),
    "Norms and gated units by themselves": ("kernels.py", results.load("kernels"), kernels),
    "Graphs that nobody wrote a kernel for": ("graphs.py", results.load("graphs"), graphs),
    "An op's host time": ("op_call.py", results.load("op_call"), op_call),
    "Launch": ("launch.cpp", results.load("launch"), launch),
    "Warm start": ("warm_start.cpp", results.load("warm_start"), warm_start),
    "Cold compile": ("compile.cpp", results.load("compile"), compile_),
    "Plans of large graphs": ("plans.cpp", results.load("plans"), plans),
    "Loss curves": ("loss_curves.py", results.load("loss_curves"), loss_curves),
}
HEAD = """# Performance

What was measured, made by `bench/tables.py` from the newest runs in `bench/results/`; earlier ones are in the history. Compare
ratios within one table, never absolutes of two. `bash tests/gpu/bundle.sh` and `bash tests/gpu/check.sh` run all of these on a GPU
machine; `python bench/results.py gpu-out/gpu.json && python bench/tables.py` takes their results in.
"""


def page(learnt: str) -> str:
    told: dict[str, str] = {}
    text = [HEAD]
    for heading, (script, runs, render) in SECTIONS.items():
        if not runs:
            continue
        if script in told:
            how = f"Measured as [{told[script].lower()}](#{told[script].lower().replace(' ', '-')})."
        else:
            how = described(script)
        told.setdefault(script, heading)
        where = "\n".join(f"- {line}" for line in dict.fromkeys(measured(run) for run in runs))
        text.append(f"## {heading}\n\n`bench/{script}`\n\n{how}\n\n{where}\n\n{render(runs)}\n")
    if checks := results.load("check"):
        how = "`tests/gpu/check.sh`: the GPU's tests, those of Python's that a GPU runs, and compute-sanitizer."
        text.append(f"## The GPU check\n\n{how}\n\n{check(checks)}\n")
    return "\n".join([*text, learnt])


def main() -> None:
    before = PAGE.read_text()
    if LEARNT not in before:
        sys.exit(f"error: {PAGE} has no line '{LEARNT}', under which stands what is written by hand")
    after = page(before[before.index(LEARNT):])
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if before == after else f"error: {PAGE} is not what the results say; run python bench/tables.py")
    PAGE.write_text(after)


if __name__ == "__main__":
    main()
