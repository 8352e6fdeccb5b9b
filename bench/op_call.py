"""Host time of one of Cermet's ops in compiled code, beside the same launch in plain C++.

Chains of 8 and of 40 norms of 8 rows run through torch.compile with each remainder, without gradients; the difference
of their host times over 32 is what one op costs there: the call, dispatch, checks, the output's allocation, launch, and
the release of the input that it read last, as in a model. Both graphs have the same two inputs and one output, since
what Dynamo's guards and Inductor's assertions cost for each of those is not an op's. That a chain of n runs n launches
is asserted. The plain C++ figure is bench/launch.cpp's loop over cermet_launch, if that binary is there.

    python bench/op_call.py [--out FILE] [--launch bin/cermet_bench_launch]
"""
from __future__ import annotations

import argparse
import json
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


def chain(count: int):
    """A function of `count` norms, each of the one before."""

    def run(x, weight):
        for _ in range(count):
            wide = x.float()
            x = weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
        return x

    return run


def host_us(call, *arguments) -> float:
    """Host microseconds of a call, the least of several rounds; the device keeps up."""
    best = float("inf")
    for _ in range(20):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(10):
            call(*arguments)
        best = min(best, (time.perf_counter() - start) / 10 * 1e6)
    return best


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out")
    parser.add_argument("--launch", default=str(ROOT / "bin/cermet_bench_launch"))
    options = parser.parse_args()
    weight = torch.ones(4096, device="cuda").bfloat16()
    x = torch.randn(8, 4096, device="cuda").bfloat16()
    result: dict = {}
    with torch.no_grad():
        for remainder in ("aot", "inductor"):
            times = {}
            for count in (8, 40):
                torch._dynamo.reset()
                call = torch.compile(chain(count), backend="cermet", options={"strict": True, "remainder": remainder})
                for _ in range(3):
                    call(x, weight)
                before = cermet.counters()["launches"]
                call(x, weight)
                launches = cermet.counters()["launches"] - before
                assert launches == count, f"{remainder}: {launches} launches of {count} norms"
                times[count] = host_us(call, x, weight)
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
