"""Host time of one of Cermet's ops in compiled code, beside the same launch in plain C++.

Chains of 8 and of 40 products of 8 rows, each followed by a norm, run through torch.compile with each remainder, without
gradients, and so do the same chains of products alone: what a norm adds to a product is what one op costs there: the
call, dispatch, checks, the output's allocation, launch, and the release of the input that it read last, as in a model.
(The products keep the norms apart, which would be one kernel otherwise. All graphs have the same inputs and one output,
since what Dynamo's guards and Inductor's assertions cost for each of those is not an op's.) That a chain of n runs n
launches is asserted. The plain C++ figure is bench/launch.cpp's loop over cermet_launch, if that binary is there.

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


def chain(count: int, normed: bool):
    """A function of `count` products, each of the one before, or of its norm."""

    def run(x, weight, square):
        for _ in range(count):
            x = x @ square
            if normed:
                wide = x.float()
                x = weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
        return x

    return run


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
    weight = torch.ones(256, device="cuda").bfloat16()
    square = torch.eye(256, device="cuda").bfloat16()
    x = torch.randn(8, 256, device="cuda").bfloat16()
    result: dict = {}
    with torch.no_grad():
        for remainder in ("aot", "inductor"):
            times = {}
            for count in (8, 40):
                for normed in (False, True):
                    torch._dynamo.reset()
                    settings = {"strict": True, "remainder": remainder}
                    call = torch.compile(chain(count, normed), backend="cermet", options=settings)
                    for _ in range(3):
                        call(x, weight, square)
                    before = cermet.counters()["launches"]
                    call(x, weight, square)
                    launches = cermet.counters()["launches"] - before
                    expected = count if normed else 0
                    assert launches == expected, f"{remainder}: {launches} launches of {expected} norms"
                    times[count, normed] = host_us(call, x, weight, square)
            products = (times[40, False] - times[8, False]) / 32
            result[remainder] = (times[40, True] - times[8, True]) / 32 - products
            result[f"{remainder}_product"] = products
            print(f"{remainder:9s} {result[remainder]:.2f} us an op, {products:.2f} us a product")
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
