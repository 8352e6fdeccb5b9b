"""What AOTAutograd does beside its work, and direct calls have no use for: left out while it compiles.

What stands in the place of torch's functions meanwhile is seen by whoever compiles under torch's lock, a backward of
Inductor's in another thread too, and by nobody else.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch._C import DispatchKey
from torch._decomp import decompositions
from torch._dynamo.convert_frame import compile_lock
from torch._functorch._aot_autograd import autograd_cache
from torch._inductor import codecache
from torch._inductor import config as inductor_config
from torch._logging import _internal as logs
from torch.fx import graph_module

from ..patching import replacing


@contextlib.contextmanager
def spared() -> Iterator[None]:
    """All of it."""
    with key_without_generators(), unprinted(), resized_at_once():
        yield


class _System:
    """What AOTAutogradCache's key names of a machine, in the place of codecache.CacheBase."""

    @staticmethod
    def get_system() -> dict[str, str | None]:
        if not torch.cuda.is_available():
            return {}
        return {"device": torch.cuda.get_device_name(), "cuda": torch.version.cuda, "hip": torch.version.hip}


@contextlib.contextmanager
def key_without_generators() -> Iterator[None]:
    """Leaves Inductor's and Triton's code generators out of AOTAutogradCache's key: no generator sees these graphs.

    The key names the passes that each device's generators bring, for which torch imports all of Inductor's lowering,
    and a hash of all of Triton's files, and who chooses among templates, for which it does so again (since 2.15): more
    than a second of a first step.
    """
    stand_ins = {
        "init_backend_registration": lambda: None,
        "custom_backend_passes": {},
        "custom_backend_codegen_configs": {},
        "CacheBase": _System,
    }
    portable = {"_cache_config_serializer": lambda settings: settings.pop("inductor_choices_class", None)}
    with compile_lock, replacing(codecache, stand_ins), replacing(inductor_config, portable):
        yield


@contextlib.contextmanager
def keyed_once(key: list[tuple[str, list[str]]]) -> Iterator[None]:
    """Keeps what is compiled under the key that is in the list, or puts the first one that torch asks for there: who
    compiles a graph again in another way is found by who comes with the first."""
    real, first = autograd_cache.autograd_cache_key, True

    def asked(*args: Any, **keywords: Any) -> tuple[str, list[str]]:
        nonlocal first
        if not first:  # of a graph within the graph
            return real(*args, **keywords)
        first = False
        if not key:
            key.append(real(*args, **keywords))
        return key[0]

    with compile_lock, replacing(autograd_cache, {"autograd_cache_key": asked}):
        yield


@contextlib.contextmanager
def unprinted() -> Iterator[None]:
    """Leaves out the texts of graphs that AOTAutograd writes for logs and for its cache's, unless something is logged."""
    if logs.log_state.artifact_names or logs.trace_log.handlers:
        yield
        return
    real, thread = graph_module._print_readable, threading.get_ident()

    def printed(module: Any, name: str, print_output: bool = True, *args: Any, **keywords: Any) -> str:
        if print_output or threading.get_ident() != thread:
            return real(module, name, print_output, *args, **keywords)
        return ""

    with compile_lock, replacing(graph_module, {"_print_readable": printed}):
        yield


_RESIZING = [f"{kind}{rank}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for rank in (1, 2, 3)]
_RESIZING += ["upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"]
_RESIZING += ["_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"]
_SPELLED = (DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd)


@contextlib.contextmanager
def resized_at_once() -> Iterator[None]:
    """Keeps what resizes an image one call, and its gradient one: torch spells them out, wherever they are traced, as
    dozens that gather and scatter, which a compiler of loops makes one of again. Sizes that are symbols are spelled out:
    ATen's calls take none."""
    packets = [packet for name in _RESIZING if (packet := getattr(torch.ops.aten, name, None)) is not None]
    calls = [call for packet in packets for call in (packet.default, packet.vec)]
    with compile_lock:
        before = {call: {key: call.py_kernels[key] for key in _SPELLED if key in call.py_kernels} for call in calls}
        try:
            for packet in packets:
                for key in before[packet.default]:
                    del packet.default.py_kernels[key]
                for key, spelled in before[packet.vec].items():
                    packet.vec.py_kernels[key] = _sized(packet.default, spelled)
            for call in calls:
                call._dispatch_cache.clear()
            yield
        finally:
            for call, spelled in before.items():
                call.py_kernels.update(spelled)
                call._dispatch_cache.clear()


def _sized(call: Any, spelled: Any) -> Any:
    """The call for the sizes that another is given as sizes or factors."""

    def resized(input: torch.Tensor, output_size: Any, *rest: Any) -> torch.Tensor:
        *corners, factors = rest
        numbers = (*input.size(), *(output_size or ()), *(factors or ()))
        if not all(isinstance(number, (int, float)) for number in numbers):
            return spelled(input, output_size, *rest)
        sizes = decompositions.upsample_compute_output_size(input.size(), output_size, factors)
        return call(input, sizes, *corners, *(factors or [None] * len(sizes)))

    return resized
