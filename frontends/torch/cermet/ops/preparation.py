"""What the regions of a graph will run, made ready by other threads while the graph is compiled, and a line that says
how far that is where a person watches."""

from __future__ import annotations

import concurrent.futures
import sys
import threading
import time
from collections.abc import Iterable

import torch

from .. import environment, locks
from ..targets import devices
from . import regions

_SILENT_SECONDS = 2.0


class Preparation:
    """Regions that other threads compile, load and publish."""

    def __init__(self, keys: Iterable[tuple[int, torch.device]]) -> None:
        places = dict.fromkeys((key, devices.indexed(device)) for key, device in keys)  # threads have their own
        pending = [place for place in places if not regions.prepared(*place)]
        self._done: list[concurrent.futures.Future[None]] = []
        if not pending:
            return
        _progress.begin(len(pending))
        threads = min(len(pending), environment.compile_threads())
        pool = concurrent.futures.ThreadPoolExecutor(threads, "cermet-prepare")
        kernels = [pool.submit(_kernels, *place) for place in pending]
        self._done = [pool.submit(_prepare, *place, number) for place, number in zip(pending, kernels)]
        pool.shutdown(wait=False)

    def wait(self) -> None:
        """Returns when all is ready. Raises the first cermet.Error, the rest being done."""
        concurrent.futures.wait(self._done)
        for future in self._done:
            future.result()


def prepare(keys: Iterable[tuple[int, torch.device]]) -> None:
    """Compiles, loads and publishes regions by (key, device). Raises the first cermet.Error, the rest being done."""
    Preparation(keys).wait()


def _kernels(key: int, device: torch.device) -> int:
    plan = regions.plan(key, devices.target_of(device))
    kernels = sum(step["kind"] == "kernel" for step in plan["steps"])
    _progress.expect(kernels)
    return kernels


def _prepare(key: int, device: torch.device, kernels: concurrent.futures.Future[int]) -> None:
    try:
        regions.prepare(key, device)
    finally:
        _progress.finish_one(kernels.result() if kernels.exception() is None else 0)


class _Progress:
    """`cermet: 12 of 31 kernels compiled` on stderr, where that is a terminal and it takes over two seconds; gone at
    the end. Of all that is under way: one line."""

    def __init__(self) -> None:
        self._lock = locks.lock()
        self._regions = self._kernels = self._done = 0
        self._began = 0.0
        self._written = False
        self._timer: threading.Timer | None = None

    def begin(self, regions: int) -> None:
        with self._lock:
            if self._regions == 0:
                self._kernels = self._done = 0
                self._began = time.monotonic()
                if sys.stderr is not None and sys.stderr.isatty():
                    self._timer = threading.Timer(_SILENT_SECONDS, self._show)
                    self._timer.daemon = True
                    self._timer.start()
            self._regions += regions

    def expect(self, kernels: int) -> None:
        with self._lock:
            self._kernels += kernels

    def finish_one(self, kernels: int) -> None:
        """One region is ready, or has failed."""
        with self._lock:
            self._done += kernels
            self._regions -= 1
            if self._regions == 0:
                self._clear()
                return
        if time.monotonic() - self._began > _SILENT_SECONDS:
            self._show()

    def _show(self) -> None:
        with self._lock:
            if self._timer is not None:
                sys.stderr.write(f"\r\x1b[Kcermet: {self._done} of {self._kernels} kernels compiled")
                sys.stderr.flush()
                self._written = True

    def _clear(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._written:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._written = False


_progress = _Progress()
