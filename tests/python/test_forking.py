"""Processes that are forked while threads compile, as a DataLoader's workers are."""

from __future__ import annotations

import itertools
import os
import signal
import threading

import torch

from cermet import counting
from cermet.ops import library, regions

TEXT = """module attributes {{cermet.version = 1 : i64}} {{
  func.func @norm{number}(%x: tensor<?x32xf32, #cermet.symbols<["rows"]>>, %w: tensor<32xf32>)
      -> tensor<?x32xf32, #cermet.symbols<["rows"]>> {{
    %y = cermet.rms_norm %x, %w {{eps = {number}.0e-12 : f64}}
        : tensor<?x32xf32, #cermet.symbols<["rows"]>>, tensor<32xf32> to tensor<?x32xf32, #cermet.symbols<["rows"]>>
    return %y : tensor<?x32xf32, #cermet.symbols<["rows"]>>
  }}
}}
"""


def launches(number: int) -> bool:
    """Whether a norm is compiled, published and launched in this process with the right result."""
    key = regions.register(TEXT.format(number=number))
    regions.prepare(key, torch.device("cpu"))
    counting.count("regions", 0)
    (y,) = regions.launch(key, [torch.full((3, 32), 2.0), torch.full((32,), 3.0)])
    return bool((y - 3).abs().max() < 1e-3)  # 2 / sqrt(4 + eps) * 3


def in_child(number: int) -> int:
    """0 where that is true in a child of this process, minus the signal where the child hangs and is killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(120)
            code = 0 if launches(number) else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_children_work_whatever_the_threads_do():
    assert launches(1)
    numbers, stop, failed = itertools.count(2), threading.Event(), []

    def compile() -> None:
        while not stop.is_set():
            if not launches(next(numbers)):
                failed.append("a thread of the parent")

    threads = [threading.Thread(target=compile) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for child in range(20):
            assert in_child(1_000_000 + child) == 0, f"child {child}"
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failed and launches(2_000_000)


def test_locks_that_a_thread_holds_are_free_in_a_child():
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with counting._lock, library._lock, regions._registry.lock:
            held.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert in_child(1) == 0
    finally:
        release.set()
        thread.join()
