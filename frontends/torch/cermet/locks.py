"""Locks that a forked process finds free, whichever thread of its parent held them: a worker of a DataLoader is forked
while other threads compile."""

from __future__ import annotations

import os
import threading


def lock() -> threading.Lock:
    """A lock of the module's own, for the life of the process."""
    made = threading.Lock()
    os.register_at_fork(after_in_child=made._at_fork_reinit)  # as the standard library's own locks do
    return made


def recursive_lock() -> threading.RLock:
    """The same that its holder may take again."""
    made = threading.RLock()
    os.register_at_fork(after_in_child=made._at_fork_reinit)
    return made
