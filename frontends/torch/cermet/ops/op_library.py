"""libcermet_torch.so, the ops in C++ (frontends/torch/ops): loading it, and telling it what a key runs."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence

import torch

from .. import native
from ..errors import Error
from ..graph.layouts import Order

_MAX_RANK = native.limit("rank")
_PREPARE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p, ctypes.c_size_t)


@functools.cache
def _ops() -> ctypes.CDLL:
    native.libcermet()  # first: the op library needs it and finds it by name once it is there
    path = str(native.library_path("libcermet_torch.so"))
    try:
        torch.ops.load_library(path)
        ops = ctypes.CDLL(path)
    except OSError as error:
        raise Error(f"{path} does not load into torch {torch.__version__}, expected 2.10 or later: {error}") from error
    handle = ctypes.c_void_p
    ops.cermet_torch_publish.restype = ctypes.c_int
    ops.cermet_torch_publish.argtypes = [
        ctypes.c_int64,
        ctypes.c_int32,
        ctypes.c_char_p,
        handle,
        handle,
        ctypes.POINTER(ctypes.c_int8),
        ctypes.POINTER(ctypes.c_int32),
        ctypes.POINTER(ctypes.c_int8),
    ]
    ops.cermet_torch_stand_in_for_cuda.restype = ctypes.c_char_p
    ops.cermet_torch_stand_in_for_cuda.argtypes = []
    ops.cermet_torch_set_prepare.restype = None
    ops.cermet_torch_set_prepare.argtypes = [_PREPARE]
    return ops


def load(prepare: Callable[[int, int], None]) -> None:
    """Loads the op library. `prepare(key, device)` is called for a launch of what was not published; it may raise, and
    the launch then fails with its message."""

    @_PREPARE
    def callback(key: int, device: int, error: int, error_size: int) -> int:
        try:
            prepare(key, device)
            return 0
        except Exception as failure:  # crosses C: it becomes the launch's error
            message = str(failure).encode()[: error_size - 1] + b"\0"
            ctypes.memmove(error, message, len(message))
            return 1

    ops = _ops()
    _callbacks.append(callback)  # alive as long as C++ may call it
    ops.cermet_torch_set_prepare(callback)


_callbacks: list[object] = []


def stand_in_for_cuda() -> str:
    """Tells libtorch that there is a GPU (StandIn.h), unless there is one; "", or why it cannot be told."""
    if torch.cuda.is_available():
        return ""
    return (_ops().cermet_torch_stand_in_for_cuda() or b"").decode()


def publish(
    key: int,
    device: int,
    name: str,
    executable: ctypes.c_void_p,
    plan: ctypes.c_void_p,
    orders: Sequence[Order],
    places: Sequence[int | None] = (),
    strided: Sequence[bool] = (),
) -> bool:
    """Makes an executable what `key` runs on `device` (-1: the CPU), with outputs in these orders and, where there are
    any, in these inputs' places. `strided`: which inputs are read as they lie, though their columns be apart; others are
    copied then. False where an output has a dimension that no input has."""
    flat = taken = apart = None
    if any(order is not None for order in orders):
        rows = [[*(order or ()), *[-1] * (_MAX_RANK - len(order or ()))] for order in orders]
        flat = (ctypes.c_int8 * (_MAX_RANK * len(rows)))(*(axis for row in rows for axis in row))
    if places:
        taken = (ctypes.c_int32 * len(places))(*(-1 if place is None else place for place in places))
    if any(strided):
        apart = (ctypes.c_int8 * len(strided))(*strided)
    return _ops().cermet_torch_publish(key, device, name.encode(), executable, plan, flat, taken, apart) == 0
