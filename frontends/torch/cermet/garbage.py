"""Python's collector of garbage, which waits while a graph is compiled.

Compiling makes hundreds of thousands of objects that stay, and few that are garbage: the collector goes through all of
them again and again, a tenth of the time, and finds next to nothing.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Iterator

from . import locks

_lock = locks.lock()
_compiling: list[int] = []  # the threads that do, as often as they do
_was_enabled = False


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Collects nothing until the last thread has left, where the program collects at all."""
    global _was_enabled
    with _lock:
        if not _compiling:
            _was_enabled = gc.isenabled()
            gc.disable()
        _compiling.append(threading.get_ident())
    try:
        yield
    finally:
        with _lock:
            _compiling.remove(threading.get_ident())
            _collect()


def _collect() -> None:
    if not _compiling and _was_enabled:
        gc.enable()


def _forked() -> None:
    """Of the threads that compiled, a forked process has at most the one that forked it."""
    if _compiling:
        _compiling[:] = [thread for thread in _compiling if thread == threading.get_ident()]
        _collect()


os.register_at_fork(after_in_child=_forked)
