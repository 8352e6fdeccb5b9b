"""Where the GPU time of a step goes: matmul, attention, Cermet's kernels, all else."""
from __future__ import annotations

import re
from typing import Callable

import torch

KINDS = ("matmul", "attention", "cermet", "rest")
_MATMUL = re.compile(r"gemm|nvjet|cutlass|xmma|cublas|splitK|matmul", re.IGNORECASE)
_ATTENTION = re.compile(r"flash|fmha|sdpa|attention|cudnn_generated", re.IGNORECASE)
_OURS = re.compile(r"_(v\d+|fold)$")  # the entries of Cermet's kernels


def kind_of(kernel: str) -> str:
    if _OURS.search(kernel):
        return "cermet"
    if _ATTENTION.search(kernel):
        return "attention"
    return "matmul" if _MATMUL.search(kernel) else "rest"


def of(step: Callable, steps: int = 3) -> tuple[dict[str, float], dict[str, list[dict]]]:
    """Milliseconds of GPU time a step by kind, and the kernels of each kind that take most of it; on a CPU none.

    A step of large matmuls runs at the GPU's power limit: after an idle second clocks are high and every kernel is some
    percent faster, so what is seen comes after steps that are not."""
    if not torch.cuda.is_available():
        return {}, {kind: [] for kind in KINDS}
    for _ in range(8):
        step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    sums: dict[str, float] = {}
    names: dict[str, list] = {}
    for event in seen.profiler.kineto_results.events():
        if event.device_type() != torch.autograd.DeviceType.CUDA:
            continue
        name, ms = event.name(), event.duration_ns() / 1e6 / steps
        sums[kind_of(name)] = sums.get(kind_of(name), 0.0) + ms
        entry = names.setdefault(name[:100], [0.0, 0])
        entry[0] += ms
        entry[1] += 1
    largest = sorted(((ms, count / steps, name) for name, (ms, count) in names.items()), reverse=True)
    return sums, {kind: [{"ms": ms, "calls": calls, "kernel": name} for ms, calls, name in largest
                         if kind_of(name) == kind][:12] for kind in KINDS}
