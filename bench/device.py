"""The device that is measured, its clock and its memory: a GPU, or the CPU where a benchmark is only tried out."""
from __future__ import annotations

import time
from typing import Callable

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def synchronize() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def milliseconds(work: Callable, times: int) -> float:
    """Of one of `times` calls in a row, between two events."""
    if DEVICE != "cuda":
        start = time.perf_counter()
        for _ in range(times):
            work()
        return (time.perf_counter() - start) * 1e3 / times
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(times):
        work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / times


def reset_peak() -> None:
    if DEVICE == "cuda":
        torch.cuda.reset_peak_memory_stats()


def peak_gb() -> float:
    """The most memory that tensors took since reset_peak; 0 on a CPU, where nobody counts."""
    return torch.cuda.max_memory_allocated() / 1e9 if DEVICE == "cuda" else 0.0
