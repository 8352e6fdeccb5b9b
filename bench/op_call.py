"""Host time of one of Cermet's ops in compiled code, beside the same work in plain C++.

Graphs of 8 and of 40 norms of 8 rows each run through torch.compile with each remainder, without gradients; the
difference of their host times over 32 is what one op costs there: the call, dispatch, checks, the output's allocation,
launch, and what Dynamo, AOTAutograd and Inductor do for one more input and output of a graph, which makes it a bound
from above. (Norms that follow one another would be one kernel.) That n norms are n launches is asserted. Beside it, in
turns, the same graphs with ATen's own norm, `aten::_fused_rms_norm`, an op in plain C++ that launches one kernel, too
(and allocates one output more). The launch alone in plain C++ is bench/launch.cpp's loop over cermet_launch, if that
binary is there.

    python bench/op_call.py [--out FILE] [--launch bin/cermet_bench_launch]
"""
from __future__ import annotations

import argparse
import functools
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "gpu")]
import cermet
import environment


FEW, MANY = 8, 40
SWEEPS, ROUNDS = 9, 40


def cermet_norms(weight, *inputs):
    """One norm of each: they share no input, so each is an op of its own."""
    results = []
    for x in inputs:
        wide = x.float()
        results.append(weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype))
    return results


def aten_norms(weight, *inputs):
    return [torch.ops.aten._fused_rms_norm(x, [x.shape[-1]], weight, 1e-6)[0] for x in inputs]


def compiled(function, remainder: str, *arguments):
    """`function` through the backend with this remainder. Its code is its own: others' guards are not checked."""
    function = types.FunctionType(function.__code__.replace(co_name=f"{function.__name__}_{remainder}"), globals())
    call = torch.compile(function, backend="cermet", options={"strict": True, "remainder": remainder})
    for _ in range(3):
        call(*arguments)
    return call


def host_us(call, *arguments) -> float:
    """Host microseconds of a call, the median of rounds. A round is short: a queue that is full would let the host wait
    for the device."""
    rounds = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(2):
            call(*arguments)
        rounds.append((time.perf_counter() - start) / 2 * 1e6)
    return statistics.median(rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out")
    parser.add_argument("--launch", default=str(ROOT / "bin/cermet_bench_launch"))
    options = parser.parse_args()
    weight = torch.ones(4096, device="cuda").bfloat16()
    inputs = [torch.randn(8, 4096, device="cuda").bfloat16() for _ in range(MANY)]
    result: dict = {}
    with torch.no_grad():
        calls = {}
        for name, function in (("cermet", cermet_norms), ("aten", aten_norms)):
            for remainder in ("aot", "inductor"):
                for count in (FEW, MANY):
                    arguments = (weight, *inputs[:count])
                    call = compiled(function, remainder, *arguments)
                    before = cermet.counters()["launches"]
                    call(*arguments)
                    launches = cermet.counters()["launches"] - before
                    expected = count if name == "cermet" else 0
                    assert launches == expected, f"{name}, {remainder}: {launches} launches, expected {expected}"
                    calls.setdefault((name, remainder), {})[count] = functools.partial(host_us, call, *arguments)
        differences = {key: [] for key in calls}
        gc.collect()
        gc.disable()
        for _ in range(SWEEPS):
            for key, timed in calls.items():
                differences[key].append((timed[MANY]() - timed[FEW]()) / (MANY - FEW))
        gc.enable()
    for (name, remainder), found in differences.items():
        result[f"{name}, {remainder}"] = {"us": statistics.median(found), "sweeps": found}
        print(f"{name:8s}{remainder:10s} {statistics.median(found):.2f} us an op ({min(found):.2f} to {max(found):.2f})")
    if Path(options.launch).exists():
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            done = subprocess.run([options.launch, "--out", file.name], capture_output=True, text=True)
            text = Path(file.name).read_text()
            result["plain"] = json.loads(text) if text else (done.stdout or done.stderr)[-2000:]
            print(done.stdout[-600:])
    if options.out:
        environment.write(options.out, "op_call", result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
