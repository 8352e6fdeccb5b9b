"""What the regions of a graph will run, made ready while the graph is compiled: several plans at once, and a line that
says how far it is where a person watches."""

from __future__ import annotations

import concurrent.futures
import sys
import threading
import time
from collections.abc import Iterable

import torch

from .. import environment
from . import regions, targets

_SILENT_SECONDS = 2.0


def prepare(keys: Iterable[tuple[int, torch.device]]) -> None:
    """Compiles, loads and publishes regions by (key, device). Raises the first cermet.Error, the rest being done."""
    places = dict.fromkeys((key, targets.indexed(device)) for key, device in keys)  # threads have devices of their own
    pending = [place for place in places if not regions.prepared(*place)]
    if not pending:
        return
    threads = min(len(pending), environment.compile_threads())
    with concurrent.futures.ThreadPoolExecutor(threads, "cermet-prepare") as pool:
        kernels = list(pool.map(lambda place: _kernels(*place), pending))
        with _Progress(sum(kernels)) as progress:
            done = [pool.submit(regions.prepare, *place) for place in pending]
            for future, number in zip(done, kernels):
                future.add_done_callback(lambda _, number=number: progress.add(number))
            concurrent.futures.wait(done)
    for future in done:
        future.result()


def _kernels(key: int, device: torch.device) -> int:
    plan = regions.plan(key, targets.target_of(device))
    return sum(step["kind"] == "kernel" for step in plan["steps"])


class _Progress:
    """`cermet: 12 of 31 kernels compiled` on stderr, where that is a terminal and it takes over two seconds; gone at
    the end."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0
        self.began = time.monotonic()
        self.lock = threading.Lock()
        self.written = False
        self.timer: threading.Timer | None = None

    def __enter__(self) -> _Progress:
        if sys.stderr is not None and sys.stderr.isatty():
            self.timer = threading.Timer(_SILENT_SECONDS, self._show)
            self.timer.daemon = True
            self.timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.timer is not None:
            self.timer.cancel()
            with self.lock:
                self.timer = None
                if self.written:
                    sys.stderr.write("\r\x1b[K")
                    sys.stderr.flush()

    def add(self, kernels: int) -> None:
        with self.lock:
            self.done += kernels
        if time.monotonic() - self.began > _SILENT_SECONDS:
            self._show()

    def _show(self) -> None:
        with self.lock:
            if self.timer is not None:
                sys.stderr.write(f"\r\x1b[Kcermet: {self.done} of {self.total} kernels compiled")
                sys.stderr.flush()
                self.written = True
