"""What torch's cache keeps, pickled where no mode is on: a tensor of a GPU is copied by calls of torch's, for which a
mode that a graph is compiled under would take a fake one."""

from __future__ import annotations

import contextlib
import io
import pickle
from collections.abc import Iterator
from typing import Any

import torch
from torch._dynamo.convert_frame import compile_lock
from torch._functorch._aot_autograd import autograd_cache
from torch.utils._python_dispatch import _disable_current_modes

from ..patching import replacing


def dumps(constants: dict[str, Any]) -> bytes:
    """Of a graph's operations and constants; the operations by name."""
    file = io.BytesIO()
    with _disable_current_modes():
        _Pickler(file).dump(constants)
    return file.getvalue()


def loads(constants: bytes) -> dict[str, Any]:
    with _disable_current_modes():
        return pickle.loads(constants)


@contextlib.contextmanager
def outside_of_modes() -> Iterator[None]:
    """AOTAutogradCache's entries, too, which have the backward's graph with all that it holds. (Torch 2.13 does so.)"""
    with compile_lock, replacing(autograd_cache, {"pickle": _OutsideOfModes()}):
        yield


class _OutsideOfModes:
    """In the place of the module `pickle`."""

    @staticmethod
    def dumps(*arguments: Any, **settings: Any) -> bytes:
        with _disable_current_modes():
            return pickle.dumps(*arguments, **settings)

    @staticmethod
    def loads(*arguments: Any, **settings: Any) -> Any:
        with _disable_current_modes():
            return pickle.loads(*arguments, **settings)

    def __getattr__(self, name: str) -> Any:
        return getattr(pickle, name)


class _Pickler(pickle.Pickler):
    """Operations by name."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, torch._ops.OpOverload):
            return _overload, (value.namespace, value._schema.name.split("::")[1], value._overloadname)
        if isinstance(value, torch._ops.HigherOrderOperator):
            return getattr, (torch.ops.higher_order, value.name())
        if value is torch.ops.higher_order:
            return _higher_order, ()
        return NotImplemented


def _overload(namespace: str, name: str, overload: str) -> Any:
    return getattr(getattr(getattr(torch.ops, namespace), name), overload)


def _higher_order() -> Any:
    return torch.ops.higher_order
