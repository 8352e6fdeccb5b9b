"""Runs the sections of the GPU check, each within its own time, and writes one JSON; see check.sh."""
from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import environment
from core import nvrtc

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
GPU_BYTES = 5 << 30  # of a worker
ROOM = 40 << 30  # of the one test with tensors of more than 2^31 elements that may run (tests/gpu/conftest.py)
FIRED = 99  # compute-sanitizer's exit code for a finding


def run(command: list, seconds: float, quiet: bool = False) -> tuple[int, str]:
    """(exit status, output); 124 when the time was up, and then the whole process group is gone."""
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, cwd=ROOT, start_new_session=True)
    try:
        output, _ = process.communicate(timeout=seconds)
        status = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        status = 124
        output += f"\n(stopped after {seconds:.0f} s)"
    if not quiet:
        print(output, flush=True)
    return status, output


def pytest(folder: str, marks: list[str], seconds: float) -> dict:
    """The folder's tests, side by side: most of their time is compilers' on the CPU. Each may fill some of the GPU."""
    workers = min(len(os.sched_getaffinity(0)), 12, max((torch.cuda.mem_get_info()[1] - ROOM) // GPU_BYTES, 1))
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        status, output = run([sys.executable, "-m", "pytest", folder, "-q", "-p", "no:cacheprovider", "--tb=short",
                              "-n", workers, "--dist", "worksteal",
                              "--maxfail=25", "--durations=8", "-rs", f"--junitxml={report}", *marks], seconds)
        answer = {"status": status, "passed": 0, "failed": [], "skipped": 0}
        if report.exists():
            for case in ElementTree.parse(report).iter("testcase"):
                kinds = {child.tag: child for child in case}
                if "failure" in kinds or "error" in kinds:
                    problem = kinds.get("failure", kinds.get("error"))
                    answer["failed"].append({"test": case.get("name"), "message": (problem.get("message") or "")[:500]})
                elif "skipped" in kinds:
                    answer["skipped"] += 1
                else:
                    answer["passed"] += 1
    answer["ok"] = status == 0 and answer["passed"] > 0
    return answer


def section_tests(seconds: float) -> dict:
    return pytest("tests/gpu", [], seconds)


def section_python(seconds: float) -> dict:
    """The CPU suites' tests that also run on a GPU."""
    answer = pytest("tests/python", ["-m", "gpu"], seconds)
    if answer["status"] == 5:
        answer |= {"ok": True, "note": "tests/python marks no test as gpu"}
    return answer


def section_sanitizer(seconds: float) -> dict:
    """Every tool must find the control planted for it, pass the clean control, and pass our kernels."""
    end = time.monotonic() + seconds
    left = lambda: max(end - time.monotonic(), 1)
    with tempfile.TemporaryDirectory() as scratch:
        controls = Path(scratch) / "controls"
        status, output = run(["nvcc", "-arch=native", "-lineinfo", "-o", controls, "tests/gpu/controls.cu"], left(), True)
        if status:
            return {"ok": False, "why": "nvcc: " + output[-500:]}
        status, output = run([sys.executable, "tests/gpu/sanitize.py"], left())
        if status:
            return {"ok": False, "why": "without a tool: " + output[-2000:]}
        jobs = {}
        for tool in TOOLS:
            sanitizer = ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(FIRED), "--target-processes", "all"]
            for name, command in (("control", [controls, tool]), ("clean", [controls, "clean"]),
                                  ("kernels", [sys.executable, "tests/gpu/sanitize.py"])):
                log = open(Path(scratch) / f"{tool}-{name}", "w+")
                jobs[tool, name] = log, subprocess.Popen([str(part) for part in [*sanitizer, *command]], stdout=log,
                                                         stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True)
        answer: dict = {}
        for (tool, name), (log, process) in jobs.items():
            try:
                status = process.wait(left())
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                status = 124
            log.seek(0)
            output = log.read()
            ok = status == FIRED if name == "control" else status == 0
            summary = [line for line in output.splitlines() if "SUMMARY" in line]
            answer.setdefault(tool, {})[name] = {"ok": ok, "status": status, "summary": summary[-1:],
                                                 **({} if ok else {"output": output[-3000:]})}
            print(f"{tool:10s} {name:8s} {'ok' if ok else 'WRONG'} (status {status}) {' '.join(summary[-1:])}", flush=True)
            if not ok:
                print(output[-3000:], flush=True)
    return {"ok": all(part["ok"] for tool in answer.values() for part in tool.values()), "tools": answer}


def benchmark(command: list, seconds: float) -> dict:
    with tempfile.TemporaryDirectory() as scratch:
        result = Path(scratch) / "result.json"
        status, output = run([*command, "--out", result], seconds)
        answer = {"ok": status == 0, "status": status}
        if result.exists():
            answer["result"] = json.loads(result.read_text())
        else:
            answer |= {"ok": False, "output": output[-4000:]}
    return answer


def section_launch(seconds: float) -> dict:
    if nvrtc():  # the binaries know nothing of Python's packages
        os.environ["CERMET_NVRTC"] = nvrtc().decode()
    answer = benchmark(["bin/cermet_bench_launch"], seconds)
    for example in (["bin/cermet_add_rms_norm"], ["bin/cermet_run_graph", "tests/graphs/layer_norm.mlir", "r0=77"],
                    ["bin/cermet_captured_graph"]):
        if not (ROOT / example[0]).exists():  # built where there is a CUDA runtime
            answer[Path(example[0]).name] = "it is not in the bundle"
            continue
        status, output = run(example, seconds)
        answer |= {"ok": answer["ok"] and status == 0, Path(example[0]).name: output[-2000:]}
    return answer


def section_warm(seconds: float) -> dict:
    """From text to a launched kernel in new processes whose cache is warm."""
    if nvrtc():
        os.environ["CERMET_NVRTC"] = nvrtc().decode()
    return benchmark(["bin/cermet_bench_warm_start"], seconds)


def section_packed(seconds: float) -> dict:
    """The same from a pack, in processes that may compile nothing."""
    if nvrtc():
        os.environ["CERMET_NVRTC"] = nvrtc().decode()
    return benchmark(["bin/cermet_bench_warm_start", "--packed"], seconds)


def section_kernels(seconds: float) -> dict:
    return benchmark([sys.executable, "bench/kernels.py"], seconds)


def section_graphs(seconds: float) -> dict:
    return benchmark([sys.executable, "bench/graphs.py"], seconds)


def section_functions(seconds: float) -> dict:
    return benchmark([sys.executable, "bench/functions.py"], seconds)


def section_decode(seconds: float) -> dict:
    return benchmark([sys.executable, "bench/decode.py"], seconds)


def section_longest(seconds: float) -> dict:
    return benchmark([sys.executable, "bench/longest.py"], seconds)


def section_lengths(seconds: float) -> dict:
    return benchmark([sys.executable, "bench/lengths.py"], seconds)


def section_families(seconds: float) -> dict:
    return benchmark([sys.executable, "bench/families.py", "--seconds", str(seconds - 300), "--limit", "290"], seconds)


def section_architectures(seconds: float) -> dict:
    return benchmark([sys.executable, "bench/architectures.py", "--seconds", str(seconds - 200), "--limit", "190"], seconds)


def section_step(seconds: float) -> dict:
    return benchmark([sys.executable, "bench/step.py", "--check"], seconds)


def section_first(seconds: float) -> dict:
    """A first step cold, warm and from a pack."""
    peers = ["cermet-aot", "inductor"]
    return benchmark([sys.executable, "bench/step.py", "--check", "--rounds", "1", "--contender", "eager", *peers,
                      "--warm", *peers, "--pack"], seconds)


def section_fusions(seconds: float) -> dict:
    return benchmark([sys.executable, "bench/fusions.py"], seconds)


def section_cross_entropy(seconds: float) -> dict:
    return benchmark([sys.executable, "bench/cross_entropy.py"], seconds)


def section_heads(seconds: float) -> dict:
    return benchmark([sys.executable, "bench/heads.py"], seconds)


def section_op_call(seconds: float) -> dict:
    if nvrtc():
        os.environ["CERMET_NVRTC"] = nvrtc().decode()
    return benchmark([sys.executable, "bench/op_call.py"], seconds)


def section_curves(seconds: float) -> dict:
    return benchmark([sys.executable, "bench/loss_curves.py"], seconds)


# name -> (what runs it, seconds that it may take)
SECTIONS = {"tests": (section_tests, 330), "python": (section_python, 420), "sanitizer": (section_sanitizer, 200),
            "launch": (section_launch, 60), "warm": (section_warm, 60), "packed": (section_packed, 60),
            "kernels": (section_kernels, 120),
            "graphs": (section_graphs, 120), "fusions": (section_fusions, 200),
            "cross_entropy": (section_cross_entropy, 120), "heads": (section_heads, 120), "op_call": (section_op_call, 90),
            "curves": (section_curves, 150),
            "functions": (section_functions, 240), "decode": (section_decode, 300), "lengths": (section_lengths, 1200),
            "longest": (section_longest, 900), "families": (section_families, 900),
            "architectures": (section_architectures, 1200),
            "step": (section_step, 300), "first": (section_first, 400)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("sections", nargs="*", metavar="section", help=" ".join(SECTIONS))
    arguments = parser.parse_args()
    unknown = set(arguments.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"unknown section {sorted(unknown)}; there are: {' '.join(SECTIONS)}")

    answer: dict = {"environment": environment.describe(), "sections": {}}
    for name in arguments.sections or SECTIONS:
        section, budget = SECTIONS[name]
        print(f"== {name} (at most {budget} s)", flush=True)
        start = time.monotonic()
        try:
            result = section(budget)
        except Exception as problem:  # the other sections still run
            result = {"ok": False, "why": f"{type(problem).__name__}: {problem}"}
            print(result["why"], flush=True)
        answer["sections"][name] = result | {"seconds": round(time.monotonic() - start, 1)}
        arguments.out.write_text(json.dumps(answer, indent=1) + "\n")
    print()
    for name, result in answer["sections"].items():
        print(f"{name:10s} {'ok' if result['ok'] else 'FAILED'} in {result['seconds']} s")
    print(f"all of it: {arguments.out}")
    sys.exit(not all(result["ok"] for result in answer["sections"].values()))


if __name__ == "__main__":
    main()
