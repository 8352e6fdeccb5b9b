"""Device time of fused kernels, forward and backward: Cermet beside Inductor, torch's fused op and Liger.

Device time is the sum of a call's kernels, copies and memsets as the profiler (CUPTI) saw them; the host is not in it.
Before every timed call a kernel rewrites a buffer of several L2 sizes, so that inputs come from memory and the cache is
as dirty as it is in the middle of a training step. A figure is the median over the repeats. `fraction` is the time of a
device copy that moves the same bytes, measured in the same way in this run, over the time of the call: 1.0 is a kernel
that is as fast as memory allows. Bytes: every input read once, every output written once.

Every output is compared with a float64 reference on the same inputs before it is timed (relative L2 error in the JSON).

    python bench/kernels.py [--out FILE] [--only rms_norm] [--provider cermet ...] [--repeats 30]
"""
from __future__ import annotations

import argparse
import functools
import statistics
import sys
import time
from pathlib import Path
from typing import Callable

import torch
import torch.nn.functional as F

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parent.parent / "tests" / "gpu")]
import environment
from timer import DeviceTimer, as_tuple, measure_copy, relative_error

EPS = 1e-5


# --- the operations, as transformers writes them -----------------------------------------------------------------------


def rms_norm(x, weight):
    hidden = x.to(torch.float32)
    hidden = hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + EPS)
    return weight * hidden.to(x.dtype)


def add_rms_norm(x, residual, weight):
    total = residual + x
    return rms_norm(total, weight), total


def swiglu(gate, up):
    return F.silu(gate) * up


def reference(operation: str, inputs, cotangents):
    """(outputs, gradients) in float64. The residual sum is rounded to the inputs' dtype, since it is an output that
    later layers read; nothing else is."""
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    if operation == "swiglu":
        outputs = [F.silu(wide[0]) * wide[1]]
    else:
        total = wide[0] if operation == "rms_norm" else wide[0] + wide[1]
        if operation == "add_rms_norm":
            total = total + (total.to(inputs[0].dtype).double() - total).detach()
        normed = total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + EPS) * wide[-1]
        outputs = [normed] if operation == "rms_norm" else [normed, total]
    gradients = torch.autograd.grad(outputs, wide, [c.double() for c in cotangents])
    return [o.detach() for o in outputs], gradients


# shape -> inputs. Backward reads and writes as many tensors as `backward` says; a weight's gradient is nothing beside them.
SHAPES = {
    "rms_norm": [(8192, 2048), (8192, 4096), (8192, 8192), (4096, 16384)],
    "add_rms_norm": [(8192, 2048), (8192, 4096), (8192, 8192), (4096, 16384)],
    "swiglu": [(8192, 14336)],
}
TENSORS = {"rms_norm": (2, 3), "add_rms_norm": (4, 4), "swiglu": (3, 5)}  # moved by forward, backward
PLAIN = {"rms_norm": rms_norm, "add_rms_norm": add_rms_norm, "swiglu": swiglu}


def make_inputs(operation: str, rows: int, columns: int, random: torch.Generator):
    def tensor(*shape, scale=1.0):
        return (torch.randn(*shape, device="cuda", generator=random) * scale).to(torch.bfloat16)

    inputs = [tensor(rows, columns) for _ in range(1 if operation == "rms_norm" else 2)]
    if operation != "swiglu":
        inputs.append(1 + tensor(columns, scale=0.1))
    outputs = 2 if operation == "add_rms_norm" else 1
    return [t.requires_grad_() for t in inputs], [tensor(rows, columns) for _ in range(outputs)]


# --- who computes them -------------------------------------------------------------------------------------------------


def cermet_provider(operation: str) -> Callable | None:
    """The torch op that the backend puts into a graph, called as it is; no torch.compile."""
    import regions
    from cermet.ops.regions import region_op, register

    pattern = "glu" if operation == "swiglu" else operation
    op = region_op(2 if operation == "rms_norm" or operation == "swiglu" else 3, 2 if operation == "add_rms_norm" else 1)
    key_of = functools.cache(lambda columns: register(regions.text(pattern, "bf16", columns)))
    return lambda *inputs: op(*inputs, key_of(inputs[0].shape[-1]))


def inductor_provider(operation: str) -> Callable | None:
    return torch.compile(PLAIN[operation], dynamic=False)


def torch_provider(operation: str) -> Callable | None:
    if operation == "rms_norm":
        return lambda x, weight: F.rms_norm(x, (x.shape[-1],), weight, EPS)
    return None


def liger_provider(operation: str) -> Callable | None:
    try:
        from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction
        from liger_kernel.ops.rms_norm import LigerRMSNormFunction
        from liger_kernel.ops.swiglu import LigerSiLUMulFunction
    except ImportError:
        return None
    return {"rms_norm": lambda x, weight: LigerRMSNormFunction.apply(x, weight, EPS),
            "add_rms_norm": lambda x, r, weight: LigerFusedAddRMSNormFunction.apply(x, r, weight, EPS),
            "swiglu": lambda gate, up: LigerSiLUMulFunction.apply(gate, up)}[operation]


PROVIDERS = {"cermet": cermet_provider, "inductor": inductor_provider, "torch": torch_provider, "liger": liger_provider}


# --- measuring ---------------------------------------------------------------------------------------------------------


def measure_case(timer: DeviceTimer, operation: str, rows: int, columns: int, call: Callable) -> dict:
    random = torch.Generator(device="cuda").manual_seed(rows + columns)
    inputs, cotangents = make_inputs(operation, rows, columns, random)
    pristine = [tensor.detach().clone() for tensor in (*inputs, *cotangents)]

    def restore():  # Liger's backward writes over its inputs
        with torch.no_grad():
            for tensor, original in zip((*inputs, *cotangents), pristine):
                tensor.copy_(original)

    truth, true_gradients = reference(operation, inputs, cotangents)
    start = time.perf_counter()
    outputs = as_tuple(call(*inputs))
    torch.cuda.synchronize()
    first = time.perf_counter() - start
    errors = [relative_error(o.detach(), t) for o, t in zip(outputs, truth)]
    gradients = torch.autograd.grad(outputs, inputs, cotangents)
    errors += [relative_error(g, t) for g, t in zip(gradients, true_gradients)]
    if not all(error < 1e-2 for error in errors):
        raise RuntimeError(f"{operation} {rows}x{columns}: relative errors {errors}, expected below 1e-2 in bfloat16")
    del outputs, gradients, truth, true_gradients
    forward, backward = timer.measure(restore, [
        lambda _: as_tuple(call(*inputs)),
        lambda outputs: torch.autograd.grad(outputs, inputs, cotangents)])
    return {"forward": forward, "backward": backward, "first_call_s": first, "relative_errors": errors}


def call_cost(call: Callable, columns: int = 4096) -> float:
    """Host microseconds of one forward call on 8 rows, autograd on."""
    x = torch.randn(8, columns, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weight = torch.ones(columns, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    best = []
    for _ in range(7):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(200):
            call(x, weight)
        best.append((time.perf_counter() - start) / 200 * 1e6)
    torch.cuda.synchronize()
    return statistics.median(best)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="bench-out/kernels.json")
    parser.add_argument("--only", choices=SHAPES, action="append")
    parser.add_argument("--provider", choices=PROVIDERS, action="append")
    parser.add_argument("--repeats", type=int, default=30)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bench/kernels.py measures a GPU and there is none here")

    torch._dynamo.config.recompile_limit = 64  # every shape is a compile of the same few functions
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    timer = DeviceTimer(arguments.repeats)
    cases, copies, calls = [], {}, {}
    print(f"{'':14s}{'shape':>12s} {'provider':10s}{'forward us':>12s}{'of copy':>9s}{'backward us':>13s}{'of copy':>9s}")
    for operation in arguments.only or SHAPES:
        for name in arguments.provider or PROVIDERS:
            call = PROVIDERS[name](operation)
            if call is None:
                continue
            for rows, columns in SHAPES[operation]:
                try:
                    result = measure_case(timer, operation, rows, columns, call)
                except Exception as problem:  # one provider's failure must not cost the others their figures
                    print(f"{operation:14s}{rows:>6d}x{columns:<6d}{name:10s} failed: {str(problem).splitlines()[0]}")
                    cases.append({"operation": operation, "rows": rows, "columns": columns, "provider": name,
                                  "failed": str(problem)})
                    continue
                for direction, tensors in zip(("forward", "backward"), TENSORS[operation]):
                    size = tensors * rows * columns * 2
                    if size not in copies:
                        copies[size] = measure_copy(timer, size)
                    result[direction] |= {"bytes": size, "fraction": copies[size]["us"] / result[direction]["us"]}
                cases.append({"operation": operation, "rows": rows, "columns": columns, "provider": name, **result})
                forward, backward = result["forward"], result["backward"]
                print(f"{operation:14s}{rows:>6d}x{columns:<6d}{name:10s}{forward['us']:11.1f}{forward['fraction']:9.2f}"
                      f"{backward['us']:13.1f}{backward['fraction']:9.2f}", flush=True)
                torch.cuda.empty_cache()
            if operation == "rms_norm":
                calls[name] = call_cost(call)
    print("host cost of one forward call, 8 rows: " + ", ".join(f"{name} {us:.1f} us" for name, us in calls.items()))
    environment.write(arguments.out, "kernels", {
        "repeats": arguments.repeats, "cases": cases, "call_us": calls,
        "copies": [{"bytes": size, **copy, "gb_per_s": size / copy["us"] / 1e3} for size, copy in sorted(copies.items())]})
    if any("failed" in case for case in cases if case["provider"] == "cermet"):
        sys.exit(1)


if __name__ == "__main__":
    main()
