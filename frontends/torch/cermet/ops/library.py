"""What frontends ask of libcermet (native.py): one context for the process, errors as `cermet.Error`.

Calls release the interpreter lock. NVRTC is taken from PyPI's `nvidia-cuda-nvrtc` where that is installed, unless
CERMET_NVRTC names another.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import pathlib
from typing import Any

from .. import environment, locks, native
from ..counting import snapshot
from ..errors import Error


def nvrtc_path() -> str | None:
    """The newest libnvrtc that PyPI's packages installed beside us, or None: then it is found by name."""
    if environment.nvrtc():
        return None
    spec = importlib.util.find_spec("nvidia")
    found: list[pathlib.Path] = []
    for root in (spec.submodule_search_locations if spec else None) or ():
        for folder in ("cu*/lib", "cuda_nvrtc/lib"):
            found += pathlib.Path(root).glob(f"{folder}/libnvrtc.so.*")
    found = [path for path in found if path.suffix[1:].isdigit()]
    return str(max(found, key=lambda path: int(path.suffix[1:]))) if found else None


def _json(status: int, answer: ctypes.c_void_p) -> Any:
    return json.loads(native.take(status, answer))


class Context:
    """A cermet_context: caches, counters, and what frontends ask. Safe to use from several threads."""

    def __init__(self) -> None:
        self._library = native.libcermet()
        path = nvrtc_path()
        options = native.ContextOptions(size=ctypes.sizeof(native.ContextOptions), nvrtc_library=path.encode() if path else None)
        handle = ctypes.c_void_p()
        native.check(self._library.cermet_context_create(ctypes.byref(options), ctypes.byref(handle)))
        self.handle = handle

    def match(self, text: str) -> dict[str, Any]:
        """Regions and near misses of a graph text (docs/plan-format.md, "match")."""
        data, answer = text.encode(), ctypes.c_void_p()
        return _json(self._library.cermet_match(self.handle, data, len(data), ctypes.byref(answer)), answer)

    def differentiate(self, text: str, wanted: tuple[bool, ...]) -> dict[str, Any]:
        """The gradient of a graph text for the inputs that `wanted` marks (docs/plan-format.md, "differentiate")."""
        data, mask, answer = text.encode(), bytes(wanted), ctypes.c_void_p()
        status = self._library.cermet_differentiate(
            self.handle, data, len(data), mask, len(mask), ctypes.byref(answer)
        )
        return _json(status, answer)

    def kernel_source(self, spec: str) -> str:
        """What a kernel step's spec becomes: CUDA C++, or LLVM IR for the host; needs no GPU."""
        data, answer = spec.encode(), ctypes.c_void_p()
        status = self._library.cermet_kernel_source(self.handle, data, len(data), ctypes.byref(answer))
        return native.take(status, answer)

    def compile(self, text: str, target: str) -> tuple[ctypes.c_void_p, dict[str, Any]]:
        """A plan's handle and its JSON (docs/plan-format.md, "a plan"); the handle lives as long as the process."""
        data, plan = text.encode(), ctypes.c_void_p()
        native.check(self._library.cermet_compile(self.handle, data, len(data), target.encode(), ctypes.byref(plan)))
        return plan, json.loads(self._library.cermet_plan_json(plan))

    def compile_kernels(self, plan: ctypes.c_void_p) -> None:
        """Takes a plan's kernels from a store or compiles them; none is loaded."""
        native.check(self._library.cermet_compile_kernels(self.handle, plan))

    def prepare(self, plan: ctypes.c_void_p, device: int) -> ctypes.c_void_p:
        """An executable of a plan: its kernels taken from a cache or compiled, and loaded."""
        executable = ctypes.c_void_p()
        native.check(self._library.cermet_prepare(self.handle, plan, device, ctypes.byref(executable)))
        return executable

    def targets(self) -> dict[str, Any]:
        """What can be compiled and run here."""
        answer = ctypes.c_void_p()
        return _json(self._library.cermet_targets(self.handle, ctypes.byref(answer)), answer)

    def cache_directory(self) -> str:
        """Where plans, kernels and timings are kept between processes; "" where nothing is."""
        return os.fsdecode(self._library.cermet_context_cache_directory(self.handle))

    def write_pack(self, path: str) -> dict[str, Any]:
        """Writes all that was asked until now as a pack (docs/cache-format.md): its `entries`, `bytes` and `digest`."""
        answer = ctypes.c_void_p()
        status = self._library.cermet_context_write_pack(self.handle, os.fsencode(path), ctypes.byref(answer))
        return _json(status, answer)

    def counters(self) -> dict[str, int]:
        """The context's counters (cermet.h, cermet_counters)."""
        counters = native.Counters(size=ctypes.sizeof(native.Counters))
        native.check(self._library.cermet_context_counters(self.handle, ctypes.byref(counters)))
        return {name: int(getattr(counters, name)) for name in native.COUNTERS}


_lock = locks.lock()
_context: Context | None = None


def context() -> Context:
    """The process's context, made on the first call."""
    global _context
    with _lock:
        if _context is None:
            _context = Context()
        return _context


def text_key(text: str) -> int:
    """A 63-bit hash of a text, equal in every process. Raises cermet.Error where it is longer than a text may be."""
    data = text.encode()
    key = int(native.libcermet().cermet_text_key(data, len(data)))
    if key < 0:
        raise Error(f"the text has {len(data)} bytes, more than CERMET_MAX_TEXT (cermet.h)")
    return key


def version() -> str:
    """libcermet's version and build id."""
    return native.libcermet().cermet_version().decode()


def counters() -> dict[str, int]:
    """Counters since the process began.

    libcermet's (cermet.h, cermet_counters): compiles and their time, hits by store, misses, waits for other processes,
    what was removed for the directory's bound, bytes read and written, failures of the cache, launches. The frontend's: `graphs`
    rewritten (two where calls with and without padding came), `regions` replaced in them,
    `near_misses`, `causal_masks` of attentions that became `is_causal`, `full_masks` of those that need none,
    `window_masks`, `document_masks`, `padding_masks` and `length_masks` of those over segments or to the keys of a buffer that are there, `grouped_attentions` that no longer repeat
    heads, and `grouped_products` of attentions that are written out, `released` pieces of packed products (packed.py), `dropouts` in regions (dropouts.py), `wide_linears` in f32 on and onto tensors of
    sixteen bits (wide_linears.py), calls of graphs with variants by the one they took
    (`calls_unpadded`, `calls_compact` of shown places alone, `calls_segmented`, `calls_padded`), `fallbacks` (graphs, or single matches in them, left as they were because of a
    failure of ours), `inductor_failures` (graphs, or their backwards alone, that Inductor did not compile and that run
    by direct calls), `late_gradients` (gradients derived while tracing rather than when the graph was compiled),
    `cache_bypasses` (graphs that torch's AOTAutogradCache does not take), `timed` (regions that `autotune` measured).
    Under CERMET_CHECK=1: kernels `checked`, regions `refused`.
    """
    return context().counters() | snapshot()
