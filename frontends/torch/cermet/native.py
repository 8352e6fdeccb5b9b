"""libcermet (frontends/c/cermet.h) opened by ctypes, so that nothing is built per Python version, and what it knows beside
a graph: the tables of runtime/abi and the settings of the environment."""

from __future__ import annotations

import ctypes
import functools
import importlib.resources
import json
import pathlib
from typing import Any

from .errors import Error


class ContextOptions(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("cache_directory", ctypes.c_char_p),
        ("nvrtc_library", ctypes.c_char_p),
        ("dump_directory", ctypes.c_char_p),
        ("packs", ctypes.c_char_p),
        ("cache", ctypes.c_char_p),
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
    "plans_from_packs",
    "kernels_from_packs",
    "plan_compile_microseconds",
    "cache_misses",
    "cache_waits",
    "cache_wait_microseconds",
    "cache_removals",
    "cache_bytes_read",
    "cache_bytes_written",
)


class Counters(ctypes.Structure):
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
        "cermet_context_create": (ctypes.c_int, [ctypes.POINTER(ContextOptions), out]),
        "cermet_context_cache_directory": (text, [handle]),
        "cermet_context_write_pack": (ctypes.c_int, [handle, text, out]),
        "cermet_context_counters": (ctypes.c_int, [handle, ctypes.POINTER(Counters)]),
        "cermet_compile": (ctypes.c_int, [handle, text, size, text, out]),
        "cermet_plan_json": (text, [handle]),
        "cermet_match": (ctypes.c_int, [handle, text, size, out]),
        "cermet_differentiate": (ctypes.c_int, [handle, text, size, text, ctypes.c_int32, out]),
        "cermet_kernel_source": (ctypes.c_int, [handle, text, size, out]),
        "cermet_text_key": (ctypes.c_int64, [text, size]),
        "cermet_string_free": (None, [handle]),
        "cermet_prepare": (ctypes.c_int, [handle, handle, ctypes.c_int32, out]),
        "cermet_compile_kernels": (ctypes.c_int, [handle, handle]),
        "cermet_targets": (ctypes.c_int, [handle, out]),
        "cermet_facts": (text, []),
        "cermet_settings": (ctypes.c_int, [out]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def check(status: int) -> None:
    if status != 0:
        library = libcermet()
        message = library.cermet_error_message().decode(errors="replace")
        raise Error(message or library.cermet_status_name(status).decode(), library.cermet_status_name(status).decode())


def take(status: int, answer: ctypes.c_void_p) -> str:
    """The text that a call answered with, which is freed. Raises cermet.Error where the call failed."""
    check(status)
    try:
        return ctypes.string_at(answer).decode(errors="replace")
    finally:
        libcermet().cermet_string_free(answer)


@functools.cache
def facts() -> dict[str, Any]:
    """Element types, targets, operand kinds and limits (cermet.h, cermet_facts)."""
    return json.loads(libcermet().cermet_facts())


def limit(name: str) -> int:
    return facts()["limits"][name]


def settings() -> dict[str, Any]:
    """The variables of docs/environment.md that libcermet reads, as the environment has them now or as they are without
    it. Raises cermet.Error where one cannot be understood."""
    answer = ctypes.c_void_p()
    return json.loads(take(libcermet().cermet_settings(ctypes.byref(answer)), answer))
