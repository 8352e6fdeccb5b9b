"""cermet.h by ctypes, with nothing of the torch frontend: what the GPU tests and the sanitizer driver call.

A tensor is (address, sizes, strides, dtype name); who owns the memory is the caller's affair, so the same code runs on
torch's memory (tests) and on plain cuMemAlloc memory (under compute-sanitizer, where torch would be noise).
"""
from __future__ import annotations

import ctypes
import importlib.util
import json
import os
from pathlib import Path
from typing import NamedTuple, Sequence

STATUS_CAPTURING = 7
CAPTURING = "CERMET_CAPTURING"


class Failure(RuntimeError):
    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class Tensor(NamedTuple):
    address: int
    sizes: Sequence[int]
    strides: Sequence[int]
    dtype: str


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("sizes", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("rank", ctypes.c_int32), ("dtype", ctypes.c_int32)]


class _Options(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("cache_directory", ctypes.c_char_p), ("nvrtc_library", ctypes.c_char_p),
                ("dump_directory", ctypes.c_char_p)]


class _Counters(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)] + [(name, ctypes.c_uint64) for name in (
        "plans_compiled", "plans_from_memory", "plans_from_directory", "kernels_compiled", "kernels_from_memory",
        "kernels_from_directory", "kernel_compile_microseconds", "launches", "cache_failures")]


def package_folder() -> Path:
    """The installed package's folder, without importing it (and torch with it)."""
    spec = importlib.util.find_spec("cermet")
    if spec is None:
        raise RuntimeError("the package cermet is not installed here")
    return Path(next(iter(spec.submodule_search_locations)))


def nvrtc() -> bytes | None:
    """libnvrtc of PyPI's nvidia-cuda-nvrtc, or None: then it is found by name."""
    if os.environ.get("CERMET_NVRTC"):
        return None
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations if spec else None) or ():
        for path in sorted(Path(root).glob("*/lib/libnvrtc.so.1[23]"), reverse=True):
            return str(path).encode()
    return None


class Core:
    """A context of libcermet."""

    def __init__(self, cache: str | None = ""):
        self.library = ctypes.CDLL(str(package_folder() / "libcermet.so.0"))
        self.library.cermet_error_message.restype = ctypes.c_char_p
        self.library.cermet_plan_json.restype = ctypes.c_char_p
        self.library.cermet_facts.restype = ctypes.c_char_p
        self.dtypes = {row["name"]: row["code"] for row in json.loads(self.library.cermet_facts())["element_types"]}
        options = _Options(ctypes.sizeof(_Options), None if cache is None else cache.encode(), nvrtc(), None)
        self.context = ctypes.c_void_p()
        self.check(self.library.cermet_context_create(ctypes.byref(options), ctypes.byref(self.context)))

    def check(self, status: int) -> None:
        if status:
            raise Failure(status, self.library.cermet_error_message().decode(errors="replace"))

    def counters(self) -> dict[str, int]:
        counters = _Counters(ctypes.sizeof(_Counters))
        self.check(self.library.cermet_context_counters(self.context, ctypes.byref(counters)))
        return {name: getattr(counters, name) for name, _ in _Counters._fields_ if name != "size"}

    def differentiate(self, text: str, wanted: Sequence[bool]) -> dict:
        data, answer = text.encode(), ctypes.c_void_p()
        self.check(self.library.cermet_differentiate(self.context, data, ctypes.c_size_t(len(data)), bytes(wanted),
                                                     len(wanted), ctypes.byref(answer)))
        try:
            return json.loads(ctypes.string_at(answer.value))
        finally:
            self.library.cermet_string_free(answer)

    def program(self, text: str, target: str = "auto", device: int = 0) -> "Program":
        return Program(self, text, target, device)


class Program:
    """A graph text, compiled and loaded."""

    def __init__(self, core: Core, text: str, target: str, device: int):
        self.core, data = core, text.encode()
        self.plan, self.executable = ctypes.c_void_p(), ctypes.c_void_p()
        core.check(core.library.cermet_compile(core.context, data, ctypes.c_size_t(len(data)), target.encode(),
                                               ctypes.byref(self.plan)))
        self.json = json.loads(core.library.cermet_plan_json(self.plan))
        core.check(core.library.cermet_prepare(core.context, self.plan, device, ctypes.byref(self.executable)))
        self.inputs = [value for value in self.json["values"] if value["kind"] == "input"]
        self.outputs = [value for value in self.json["values"] if value["kind"] == "output"]

    def output_shapes(self, sizes: Sequence[Sequence[int]]) -> list[tuple[list[int], str]]:
        """(sizes, dtype name) of every output, for inputs of the given sizes."""
        symbols = {dim: size for value, given in zip(self.inputs, sizes)
                   for dim, size in zip(value["dims"], given) if isinstance(dim, str)}
        return [([symbols.get(dim, dim) for dim in value["dims"]], value["dtype"]) for value in self.outputs]

    def _array(self, tensors: Sequence[Tensor]):
        array = (_Tensor * len(tensors))()
        for entry, tensor in zip(array, tensors):
            rank = len(tensor.sizes)
            entry.data = tensor.address or None
            entry.sizes, entry.strides = ((ctypes.c_int64 * max(rank, 1))(*values) for values in
                                          (tensor.sizes, tensor.strides))
            entry.rank, entry.dtype = rank, self.core.dtypes[tensor.dtype]
        return array

    def workspace_size(self, inputs: Sequence[Tensor]) -> int:
        size = ctypes.c_size_t()
        self.core.check(self.core.library.cermet_workspace_size(self.executable, self._array(inputs), len(inputs),
                                                                ctypes.byref(size)))
        return size.value

    def launch(self, stream: int, tensors: Sequence[Tensor], workspace: int = 0, workspace_size: int = 0) -> None:
        self.core.check(self.core.library.cermet_launch(
            self.executable, ctypes.c_void_p(stream), self._array(tensors), len(tensors), ctypes.c_void_p(workspace),
            ctypes.c_size_t(workspace_size)))
