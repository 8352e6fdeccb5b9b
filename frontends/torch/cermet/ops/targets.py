"""Torch devices as compile targets (docs/plan-format.md) and as the op library's numbers."""

from __future__ import annotations

import torch

from .. import native
from ..errors import Error


def target_of(device: torch.device) -> str:
    """The compile target of a torch device. Raises cermet.Error for a kind of device without one."""
    if device.type == "cpu":
        return "host"
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
    return torch.device("cuda", torch.cuda.current_device()) if device == torch.device("cuda") else device


def device_index(device: torch.device) -> int:
    """-1 for the CPU, else the CUDA ordinal (frontends/torch/ops/Executables.h)."""
    return -1 if device.type == "cpu" else indexed(device).index
