"""Host time of one of Cermet's ops in compiled code, beside the same work in plain C++.

Graphs of 8 and of 40 norms of 8 rows each run through torch.compile with each remainder, without gradients; the
difference of their host times over 32 is what one op costs there: the call, dispatch, checks, the output's allocation
and release, launch, and what Dynamo, AOTAutograd and Inductor do for one more input and output of a graph, which makes
it a bound from above. (Norms that follow one another would be one kernel.) That n norms are n launches is asserted.
Beside it, in turns, bench/op_plain.cpp: allocation, launch and release in a loop in C++. `adds_us` is the difference.
The launch alone is bench/launch.cpp's.

    python bench/op_call.py [--out FILE] [--plain bin/libcermet_bench_op_plain.so] [--launch bin/cermet_bench_launch]
"""
from __future__ import annotations

import argparse
import ctypes
import functools
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path
from typing import Callable

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "gpu")]
import cermet
import environment
from core import nvrtc


FEW, MANY = 8, 40
ROWS, COLUMNS = 8, 4096
SWEEPS, ROUNDS = 9, 40


def norms(weight, *inputs):
    """One norm of each: they share no input, so each is an op of its own."""
    results = []
    for x in inputs:
        wide = x.float()
        results.append(weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype))
    return results


def compiled(remainder: str, arguments):
    """`norms` through the backend with this remainder. Its code is its own: others' guards are not checked."""
    function = types.FunctionType(norms.__code__.replace(co_name=f"norms_{remainder}_{len(arguments)}"), globals())
    call = torch.compile(function, backend="cermet", options={"strict": True, "remainder": remainder})
    for _ in range(3):
        call(*arguments)
    before = cermet.counters()["launches"]
    call(*arguments)
    launches, expected = cermet.counters()["launches"] - before, len(arguments) - 1
    assert launches == expected, f"{remainder}: {launches} launches of {expected} norms"
    return call


def median_us(timed: Callable[[], float]) -> float:
    """Microseconds that `timed` returns, the median of rounds. A round is short: a queue that is full would let the
    host wait for the device."""
    rounds = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        rounds.append(timed())
    return statistics.median(rounds)


def host_us(call, arguments) -> float:
    start = time.perf_counter()
    for _ in range(2):
        call(*arguments)
    return (time.perf_counter() - start) / 2 * 1e6


def plain(path: str, weight, x) -> Callable[[], float]:
    """Microseconds of one op's work in C++."""
    library = ctypes.CDLL(path)
    library.op_plain_error.restype, library.op_plain_run.restype = ctypes.c_char_p, ctypes.c_double
    library.op_plain_prepare.restype = ctypes.c_void_p
    device, stream = x.device.index, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    executable = ctypes.c_void_p(library.op_plain_prepare(ctypes.c_int64(COLUMNS), device))
    tensors = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, weight)]
    sizes = ctypes.c_int64(ROWS), ctypes.c_int64(COLUMNS)

    def run() -> float:
        nanoseconds = library.op_plain_run(executable, stream, device, *tensors, *sizes, 2 * MANY)
        if nanoseconds < 0:
            raise RuntimeError(library.op_plain_error().decode())
        return nanoseconds / (2 * MANY) / 1e3

    if not executable:
        raise RuntimeError(library.op_plain_error().decode())
    run()
    return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out")
    parser.add_argument("--plain", default=str(ROOT / "bin/libcermet_bench_op_plain.so"))
    parser.add_argument("--launch", default=str(ROOT / "bin/cermet_bench_launch"))
    options = parser.parse_args()
    if nvrtc():  # the C API knows nothing of Python's packages
        os.environ["CERMET_NVRTC"] = nvrtc().decode()
    weight = torch.ones(COLUMNS, device="cuda").bfloat16()
    inputs = [torch.randn(ROWS, COLUMNS, device="cuda").bfloat16() for _ in range(MANY)]
    calls = {}
    with torch.no_grad():
        for remainder in ("aot", "inductor"):
            for count in (FEW, MANY):
                arguments = (weight, *inputs[:count])
                calls[remainder, count] = functools.partial(host_us, compiled(remainder, arguments), arguments)
        in_cpp = plain(options.plain, weight, inputs[0])
        sweeps: dict[str, list[float]] = {"aot": [], "inductor": [], "plain": []}
        gc.collect()
        gc.disable()
        for _ in range(SWEEPS):
            for remainder in ("aot", "inductor"):
                few, many = (median_us(calls[remainder, count]) for count in (FEW, MANY))
                sweeps[remainder].append((many - few) / (MANY - FEW))
            sweeps["plain"].append(median_us(in_cpp))
        gc.enable()
    us = {name: statistics.median(found) for name, found in sweeps.items()}
    result: dict = {"us": us, "sweeps": sweeps, "adds_us": {name: us[name] - us["plain"] for name in ("aot", "inductor")}}
    for name, found in sweeps.items():
        adds = f", adds {result['adds_us'][name]:.2f} us" if name in result["adds_us"] else ""
        print(f"{name:9s} {us[name]:.2f} us an op ({min(found):.2f} to {max(found):.2f}){adds}")
    if Path(options.launch).exists():
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            done = subprocess.run([options.launch, "--out", file.name], capture_output=True, text=True)
            text = Path(file.name).read_text()
            result["launch"] = json.loads(text) if text else (done.stdout or done.stderr)[-2000:]
            print(done.stdout[-600:])
    if options.out:
        environment.write(options.out, "op_call", result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
