"""torch as it is where a GPU is, for fake tensors of a GPU that is not here.

What a program asks torch.cuda about the device is answered from the target. Autograd asks libtorch, which is told once
and stays told (frontends/torch/ops/StandIn.h): a process that has stood in runs nothing on a GPU.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses import fake_tensor
from torch.fx.experimental import proxy_tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ..errors import Error
from ..patching import replacing
from . import attention
from .target import Target


@contextlib.contextmanager
def standing_in(target: Target, tell: Callable[[], str]) -> Iterator[None]:
    """Makes torch take fake CUDA tensors meanwhile. `tell` tells libtorch, and says why it could not be told, or "".
    Raises cermet.Error where it could not."""
    if target.capability is None:
        yield
        return
    if told := tell():
        raise Error(
            f"torch {torch.__version__} takes no fake tensors of a GPU that is not here: {told}; capture for "
            f"{target.name} with another version of torch, or on a machine with a GPU by cermet.record()"
        )
    with contextlib.ExitStack() as undo:
        for place, values in _answers(target).items():
            undo.enter_context(replacing(place, values))
        undo.enter_context(attention.taking(target))
        # Autograd's thread for a device lets go of the modes that a backward ran under after who called it went on: a
        # process that ends meanwhile is aborted, since that thread asks for the interpreter.
        undo.enter_context(torch.autograd.set_multithreading_enabled(False))
        yield


class _Generator:
    """Of the device's random numbers, of which none is drawn: one for each operation that a checkpoint makes again."""

    device = torch.device("cuda", 0)

    def clone_state(self) -> _Generator:
        return _Generator()

    def manual_seed(self, seed: int) -> _Generator:
        return self

    def get_state(self) -> torch.Tensor:
        return torch.zeros(16, dtype=torch.uint8, device="cpu")


class _WithoutDevice(TorchDispatchMode):
    """Calls with numbers, which lie on the CPU and stay there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        args, kwargs = pytree.tree_map_only(torch.device, lambda device: torch.device("cpu"), (args, kwargs or {}))
        return func(*args, **kwargs)


@contextlib.contextmanager
def _with_numbers() -> Iterator[None]:
    """Where a trace computes what follows from constants (of a list, say, that indexes), as `tensor.item()` asks."""
    with fake_tensor.unset_fake_temporarily(), _WithoutDevice():
        yield


def _answers(target: Target) -> dict[Any, dict[str, Any]]:
    major, minor = target.capability
    properties, generator = types.SimpleNamespace(name=target.name, major=major, minor=minor), _Generator()
    return {
        torch.cuda: {
            "is_available": lambda: True,
            "is_initialized": lambda: True,
            "device_count": lambda: 1,
            "current_device": lambda: 0,
            "get_device_capability": lambda device=None: target.capability,
            "get_device_name": lambda device=None: target.name,
            "get_device_properties": lambda device=None: properties,
            "is_bf16_supported": lambda including_emulation=True: True,
            "is_current_stream_capturing": lambda: False,
            "synchronize": lambda device=None: None,
            "set_device": lambda device: None,
            "default_generators": (generator,),
            "get_rng_state": lambda device="cuda": generator.get_state(),
            "set_rng_state": lambda state, device="cuda": None,
            "_lazy_init": lambda: None,
        },
        # What is fake needs no device.
        fake_tensor: {"init_gpu_context": lambda device: None},
        fake_tensor.FakeTensorMode: {"avoid_device_init": property(lambda mode: True)},
        proxy_tensor: {"unset_fake_temporarily": _with_numbers},
    }
