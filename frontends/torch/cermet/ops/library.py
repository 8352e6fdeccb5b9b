"""The C interface (frontends/c/cermet.h) from Python: one context for the process, errors as `cermet.Error`.

ctypes, so nothing is built per Python version. Calls release the interpreter lock. The libraries lie in the installed
package; NVRTC is taken from PyPI's `nvidia-cuda-nvrtc` where that is installed, unless CERMET_NVRTC names another.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.resources
import importlib.util
import json
import os
import pathlib
from typing import Any

from .. import environment, locks
from ..counting import snapshot
from ..errors import Error


class _ContextOptions(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("cache_directory", ctypes.c_char_p),
        ("nvrtc_library", ctypes.c_char_p),
        ("dump_directory", ctypes.c_char_p),
    ]


COUNTERS = (
    "plans_compiled",
    "plans_from_memory",
    "plans_from_directory",
    "kernels_compiled",
    "kernels_from_memory",
    "kernels_from_directory",
    "kernel_compile_microseconds",
    "launches",
    "cache_failures",
)


class _Counters(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)] + [(name, ctypes.c_uint64) for name in COUNTERS]


def library_path(name: str) -> pathlib.Path:
    """Where the installed package holds a shared library. Raises cermet.Error where it does not."""
    path = pathlib.Path(str(importlib.resources.files("cermet").joinpath(name)))
    if not path.exists():
        raise Error(
            f"{name} is missing from the installed cermet package (looked for {path}); build and install it with "
            "`pip install .` in the source tree"
        )
    return path


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


@functools.cache
def libcermet() -> ctypes.CDLL:
    """libcermet.so.0 with its functions declared. Raises cermet.Error where it is missing or does not load."""
    path = library_path("libcermet.so.0")
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise Error(f"{path} does not load: {error}") from error
    handle, text, out = ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)
    size = ctypes.c_size_t
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "cermet_error_message": (text, []),
        "cermet_status_name": (text, [ctypes.c_int]),
        "cermet_version": (text, []),
        "cermet_context_create": (ctypes.c_int, [ctypes.POINTER(_ContextOptions), out]),
        "cermet_context_cache_directory": (text, [handle]),
        "cermet_context_counters": (ctypes.c_int, [handle, ctypes.POINTER(_Counters)]),
        "cermet_compile": (ctypes.c_int, [handle, text, size, text, out]),
        "cermet_plan_json": (text, [handle]),
        "cermet_match": (ctypes.c_int, [handle, text, size, out]),
        "cermet_differentiate": (ctypes.c_int, [handle, text, size, text, ctypes.c_int32, out]),
        "cermet_kernel_source": (ctypes.c_int, [handle, text, size, out]),
        "cermet_text_key": (ctypes.c_int64, [text, size]),
        "cermet_string_free": (None, [handle]),
        "cermet_prepare": (ctypes.c_int, [handle, handle, ctypes.c_int32, out]),
        "cermet_targets": (ctypes.c_int, [handle, out]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _check(status: int) -> None:
    if status != 0:
        library = libcermet()
        message = library.cermet_error_message().decode(errors="replace")
        raise Error(message or library.cermet_status_name(status).decode(), library.cermet_status_name(status).decode())


class Context:
    """A cermet_context: caches, counters, and what frontends ask. Safe to use from several threads."""

    def __init__(self) -> None:
        self._library = libcermet()
        path = nvrtc_path()
        options = _ContextOptions(size=ctypes.sizeof(_ContextOptions), nvrtc_library=path.encode() if path else None)
        handle = ctypes.c_void_p()
        _check(self._library.cermet_context_create(ctypes.byref(options), ctypes.byref(handle)))
        self.handle = handle

    def _text(self, status: int, answer: ctypes.c_void_p) -> str:
        _check(status)
        try:
            return ctypes.string_at(answer.value or 0).decode()
        finally:
            self._library.cermet_string_free(answer)

    def _json(self, status: int, answer: ctypes.c_void_p) -> Any:
        return json.loads(self._text(status, answer))

    def match(self, text: str) -> dict[str, Any]:
        """Regions and near misses of a graph text (docs/plan-format.md, "match")."""
        data, answer = text.encode(), ctypes.c_void_p()
        return self._json(self._library.cermet_match(self.handle, data, len(data), ctypes.byref(answer)), answer)

    def differentiate(self, text: str, wanted: tuple[bool, ...]) -> dict[str, Any]:
        """The gradient of a graph text for the inputs that `wanted` marks (docs/plan-format.md, "differentiate")."""
        data, mask, answer = text.encode(), bytes(wanted), ctypes.c_void_p()
        status = self._library.cermet_differentiate(
            self.handle, data, len(data), mask, len(mask), ctypes.byref(answer)
        )
        return self._json(status, answer)

    def kernel_source(self, spec: str) -> str:
        """What a kernel step's spec becomes: CUDA C++, or LLVM IR for the host; needs no GPU."""
        data, answer = spec.encode(), ctypes.c_void_p()
        status = self._library.cermet_kernel_source(self.handle, data, len(data), ctypes.byref(answer))
        return self._text(status, answer)

    def compile(self, text: str, target: str) -> tuple[ctypes.c_void_p, dict[str, Any]]:
        """A plan's handle and its JSON (docs/plan-format.md, "a plan"); the handle lives as long as the process."""
        data, plan = text.encode(), ctypes.c_void_p()
        _check(self._library.cermet_compile(self.handle, data, len(data), target.encode(), ctypes.byref(plan)))
        return plan, json.loads(self._library.cermet_plan_json(plan))

    def prepare(self, plan: ctypes.c_void_p, device: int) -> ctypes.c_void_p:
        """An executable of a plan: its kernels taken from a cache or compiled, and loaded."""
        executable = ctypes.c_void_p()
        _check(self._library.cermet_prepare(self.handle, plan, device, ctypes.byref(executable)))
        return executable

    def targets(self) -> dict[str, Any]:
        """What can be compiled and run here."""
        answer = ctypes.c_void_p()
        return self._json(self._library.cermet_targets(self.handle, ctypes.byref(answer)), answer)

    def cache_directory(self) -> str:
        """Where plans, kernels and timings are kept between processes; "" where nothing is."""
        return os.fsdecode(self._library.cermet_context_cache_directory(self.handle))

    def counters(self) -> dict[str, int]:
        """The context's counters (cermet.h, cermet_counters)."""
        counters = _Counters(size=ctypes.sizeof(_Counters))
        _check(self._library.cermet_context_counters(self.handle, ctypes.byref(counters)))
        return {name: int(getattr(counters, name)) for name in COUNTERS}


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
    key = int(libcermet().cermet_text_key(data, len(data)))
    if key < 0:
        raise Error(f"the text has {len(data)} bytes, more than CERMET_MAX_TEXT (cermet.h)")
    return key


def version() -> str:
    """libcermet's version and build id."""
    return libcermet().cermet_version().decode()


def counters() -> dict[str, int]:
    """Counters since the process began.

    libcermet's (cermet.h, cermet_counters): compiles, hits by store, launches, cache failures. The frontend's: `graphs`
    rewritten (two where the padding mask of a call chooses between variants), `regions` replaced in them,
    `near_misses`, `causal_masks` of attentions that became `is_causal`, `grouped_attentions` that no longer repeat
    heads, `released` pieces of packed products (packed.py), calls of graphs with two variants by the one they took
    (`calls_unpadded`, `calls_padded`), `fallbacks` (graphs, or single matches in them, left as they were because of a
    failure of ours), `inductor_failures` (graphs, or their backwards alone, that Inductor did not compile and that run
    by direct calls), `late_gradients` (gradients derived while tracing rather than when the graph was compiled),
    `cache_bypasses` (graphs that torch's AOTAutogradCache does not take), `timed` (regions that `autotune` measured).
    Under CERMET_CHECK=1: kernels `checked`, regions `refused`.
    """
    return context().counters() | snapshot()
