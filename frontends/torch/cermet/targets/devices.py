"""Torch devices as compile targets (docs/plan-format.md) and as the op library's numbers.

What is asked of a device while a graph is compiled is asked here. While a target is captured, its data answer: devices
of its kind are it, and nothing is loaded or runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from .. import native
from ..errors import Error
from .target import HOST, Target

_captured: Target | None = None


def captured() -> Target | None:
    """The target that this process captures; of the whole process, since other threads compile too."""
    return _captured


@contextlib.contextmanager
def capturing(target: Target) -> Iterator[None]:
    """Answers for `target` meanwhile."""
    global _captured
    before, _captured = _captured, target
    try:
        yield
    finally:
        _captured = before


def target_of(device: torch.device) -> str:
    """The compile target of a torch device. Raises cermet.Error for a kind of device without one."""
    if _captured is not None and device.type == _captured.device:
        return _captured.name
    if device.type == "cpu":
        return HOST
    if device.type == "cuda":
        return cuda_target(*torch.cuda.get_device_capability(device))
    raise Error(f"device {device} is not supported, expected cpu or cuda")


def cuda_target(major: int, minor: int) -> str:
    """The newest target whose code runs on a GPU of this compute capability: the same major, at most its minor."""
    known = [(target["capability"], target["name"]) for target in native.facts()["cuda_targets"]]
    fitting = [name for capability, name in known if 10 * major <= capability <= 10 * major + minor]
    if not fitting:
        names = " ".join(name for _, name in known)
        raise Error(f"compute capability {major}.{minor} is not supported, expected one that code is made for: {names}")
    return fitting[-1]


def indexed(device: torch.device) -> torch.device:
    """The device itself where `device` is the calling thread's current one."""
    if device != torch.device("cuda"):
        return device
    return torch.device("cuda", 0 if _captured is not None else torch.cuda.current_device())


def recorded(device: torch.device) -> bool:
    """Whether a CUDA graph records what this thread runs on a device."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def device_index(device: torch.device) -> int:
    """-1 for the CPU, else the CUDA ordinal (frontends/torch/ops/Executables.h)."""
    return -1 if device.type == "cpu" else indexed(device).index
