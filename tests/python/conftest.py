"""Every test runs strict, with caches of the run's own and a fresh Dynamo; a test on `device` runs on the CPU, and with
`-m gpu` on a GPU."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
if "PYTEST_XDIST_WORKER" not in os.environ:  # which has them from the process that started it
    _caches = tempfile.TemporaryDirectory(prefix="cermet-tests-")
    os.environ["CERMET_CACHE_DIR"] = os.path.join(_caches.name, "cermet")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(_caches.name, "inductor")
os.environ["CERMET_STRICT"] = "1"
# The models are tiny: on a machine that others use too, two threads that wait for each other cost up to 10 x.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# With the f16 instructions of newer processors oneDNN packs a copy of an operand, which tests of allocations see.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# Inductor compiles and starts three programs, 12 seconds of a core, before the first kernel that it writes into a new
# folder, to learn that the instructions which the CPU names can be used.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

import torch

import plain_products

# pytest listens to each logger whose records go no further, and torch writes down what it compiles for whoever listens
# to this one: up to a tenth of a test's time, and what remainder/economy.py leaves out would be left in.
torch._logging._internal.trace_log.propagate = True
torch._dynamo.config.side_effect_replay_policy = "silent"  # the same, with the stack of each write

# Dynamo empties the processor's caches for each graph that it compiles, 40 ms, to log how long its guards take.
torch._dynamo.guards.profile_guard_manager = lambda *arguments: 0.0

# And it collects garbage behind each.
torch._dynamo.config.run_gc_after_compile = False

# Python's collector of garbage would take a sixth of the time, most of it for what stays: it looks at everything once in
# so many seconds, and what is there then stays as long as the process. Garbage of a GPU's memory does not wait.
if not torch.cuda.is_available():
    gc.set_threshold(1_000_000, 20, 1000)
_SECONDS = 150
_collected = time.monotonic()


def _collect() -> None:
    """What the imports made stays: no later collection looks through it again."""
    global _collected
    gc.collect()
    gc.freeze()
    _collected = time.monotonic()


def pytest_collection_finish() -> None:
    _collect()


def _devices() -> list:
    absent = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device that this torch can use")
    return ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, absent])]


@pytest.fixture(params=_devices())
def device(request) -> str:
    return request.param


@pytest.fixture(autouse=True)
def fresh():
    """No compiled code from another test; the numbers a test draws are its own but the same every time."""
    torch._dynamo.reset()
    torch._logging._internal.trace_log.handlers.clear()  # a test of logs brings them back
    plain_products.hasten()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
    if time.monotonic() - _collected > _SECONDS:
        _collect()
