"""Python's collector of garbage, which waits while a graph is traced and compiled.

That makes hundreds of thousands of objects that stay, and few that are garbage: the collector goes through all of
them again and again, a tenth of the time, and finds next to nothing. Afterwards it goes through them: exceptions
that Dynamo caught hold the frames of all their callers, and so what these had on the device.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Iterator

from torch._dynamo.callback import CallbackArgs, callback_handler

from . import locks

_lock = locks.lock()
_compiling: list[int] = []  # the threads that do, as often as they do
_was_enabled = False
_tracing = 0  # the thread in which Dynamo began


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Collects nothing until the last thread has left, where the program collects at all."""
    thread = threading.get_ident()
    _wait(thread)
    try:
        yield
    finally:
        _go_on(thread)


def uncollected_while_traced() -> None:
    """Collects nothing while Dynamo traces and compiles, until `torch._dynamo.reset()`; also for other backends, since
    Dynamo does not say for whom it traces."""
    if _begun not in callback_handler.start_callbacks:
        callback_handler.register_start_callback(_begun)
        callback_handler.register_end_callback(_ended)


def _begun(_: CallbackArgs) -> None:
    global _tracing
    _tracing = threading.get_ident()
    _wait(_tracing)


def _ended(_: CallbackArgs) -> None:
    global _tracing
    thread, _tracing = _tracing, 0
    _go_on(thread)


def _wait(thread: int) -> None:
    global _was_enabled
    with _lock:
        if not _compiling:
            _was_enabled = gc.isenabled()
            gc.disable()
        _compiling.append(thread)


def _go_on(thread: int) -> None:
    with _lock:
        if thread in _compiling:  # not where Dynamo was heard of when it had begun
            _compiling.remove(thread)
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
