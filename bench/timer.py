"""Device time of calls without the host's, and what it is held against: a copy of as many bytes."""
from __future__ import annotations

import statistics
import time
from typing import Callable

import torch

from device import DEVICE


class DeviceTimer:
    """Sums device activity between flushes. The flush is a bitwise_not over a buffer, a kernel nothing else here runs,
    so it also marks where one timed segment ends and the next begins."""

    marker = "bitwise_not"

    def __init__(self, repeats: int):
        self.repeats = repeats
        cache = torch.cuda.get_device_properties(0).L2_cache_size
        self.buffer = torch.zeros(max(4 * cache, 1 << 28), dtype=torch.uint8, device="cuda")

    def flush(self) -> None:
        self.buffer.bitwise_not_()

    def measure(self, prepare: Callable[[], None], segments: list[Callable]) -> list[dict]:
        """For each segment the median microseconds over the repeats, the names of its kernels and how long each of them
        took the last time. In a repeat `prepare`
        runs untimed, then each segment in order, given what the one before it returned."""
        def once():
            prepare()
            state = None
            for segment in segments:
                self.flush()
                state = segment(state)
            self.flush()

        for _ in range(3):
            once()
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(self.repeats):
                once()
            torch.cuda.synchronize()
        cuda = torch.autograd.DeviceType.CUDA
        events = sorted((e.start_ns(), e.duration_ns(), e.name()) for e in profile.profiler.kineto_results.events()
                        if e.device_type() == cuda)
        spans, current = [], None
        for _, duration, name in events:
            if self.marker in name:
                current = []
                spans.append(current)
            elif current is not None:
                current.append((duration, name))
        period = len(segments) + 1
        if len(spans) != self.repeats * period:
            raise RuntimeError(f"the profiler saw {len(spans)} flushes, expected {self.repeats * period}")
        return [_summary([sum(duration for duration, _ in span) / 1e3 for span in spans[index::period]],
                         spans[index::period][-1]) for index in range(len(segments))]


class HostTimer:
    """DeviceTimer's stand-in where a benchmark is tried out without a GPU: the clock around a segment, no kernels."""

    def __init__(self, repeats: int):
        self.repeats = repeats

    def measure(self, prepare: Callable[[], None], segments: list[Callable]) -> list[dict]:
        times: list[list[float]] = [[] for _ in segments]
        for _ in range(self.repeats):
            prepare()
            state = None
            for segment, mine in zip(segments, times):
                start = time.perf_counter()
                state = segment(state)
                mine.append((time.perf_counter() - start) * 1e6)
        return [_summary(mine, []) for mine in times]


def _summary(times: list[float], last: list[tuple[int, str]]) -> dict:
    return {"us": statistics.median(times), "us_min": min(times), "us_max": max(times),
            "kernels": [name[:120] for _, name in last], "last_us": [duration / 1e3 for duration, _ in last]}


def measure_copy(timer: DeviceTimer | HostTimer, size: int) -> dict:
    """A device copy that reads and writes `size` bytes in all."""
    source = torch.randint(256, (size // 2,), dtype=torch.uint8, device=DEVICE)
    target = torch.empty_like(source)
    return timer.measure(lambda: None, [lambda _: target.copy_(source)])[0]


def bytes_of(tensors) -> int:
    """Each element in memory once: what is expanded is read once."""
    total = 0
    for tensor in tensors:
        elements = 1
        for size, stride in zip(tensor.shape, tensor.stride()):
            elements *= size if stride else 1
        total += elements * tensor.element_size()
    return total


def relative_error(value: torch.Tensor, truth: torch.Tensor) -> float:
    return ((value.double() - truth).norm() / truth.norm()).item()


def as_tuple(value) -> tuple:
    return value if isinstance(value, tuple) else (value,)
