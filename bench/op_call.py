"""Host time of one of Cermet's ops in compiled code, beside the same launch in plain C++.

Graphs of 8 and of 40 norms of 8 rows each run through torch.compile with each remainder, without gradients; the
difference of their host times over 32 is what one op costs there: the call, dispatch, checks, the output's allocation,
launch, and what Dynamo, AOTAutograd and Inductor do for one more input and output of a graph, which makes it a bound
from above. (Norms that follow one another would be one kernel.) That n norms are n launches is asserted. The plain C++
figure is bench/launch.cpp's loop over cermet_launch, if that binary is there.

    python bench/op_call.py [--out FILE] [--launch bin/cermet_bench_launch]
"""
from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "gpu")]
import cermet
import environment


def norms(weight, *inputs):
    """One norm of each: they share no tensor, so each is an op of its own."""
    results = []
    for x in inputs:
        wide = x.float()
        results.append(weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype))
    return results


def host_us(call, *arguments) -> float:
    """Host microseconds of a call, the median of many rounds. A round is short: a queue that is full would let the host
    wait for the device."""
    rounds = []
    for _ in range(200):
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
    inputs = [torch.randn(8, 4096, device="cuda").bfloat16() for _ in range(40)]
    result: dict = {}
    with torch.no_grad():
        for remainder in ("aot", "inductor"):
            times = {}
            for count in (8, 40):
                torch._dynamo.reset()
                call = torch.compile(norms, backend="cermet", options={"strict": True, "remainder": remainder})
                for _ in range(3):
                    call(weight, *inputs[:count])
                before = cermet.counters()["launches"]
                call(weight, *inputs[:count])
                launches = cermet.counters()["launches"] - before
                assert launches == count, f"{remainder}: {launches} launches of {count} norms"
                times[count] = host_us(call, weight, *inputs[:count])
            result[remainder] = (times[40] - times[8]) / 32
            print(f"{remainder:9s} {result[remainder]:.2f} us an op")
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
