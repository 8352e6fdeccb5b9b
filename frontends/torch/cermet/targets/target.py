"""What a process on another machine would learn from its device, as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from .. import native
from ..errors import Error

HOST = "host"
ATTENTION = ("cudnn", "flash", "efficient", "math")
# GPUs on which torch prefers cuDNN's attention (check_prefer_cudnn_attention in ATen's sdp_utils.cpp).
_CUDNN_FIRST = ((9, 0), (10, 0))


@dataclasses.dataclass(frozen=True)
class Target:
    """`name`: of what code is made for (docs/c-api.md, "Targets"). Of a GPU: its compute capability, and the kernels
    for attention that torch takes there, the first first; `math`, which takes everything, need not be named."""

    name: str
    capability: tuple[int, int] | None = None
    attention: tuple[str, ...] = ()

    @property
    def device(self) -> str:
        """The kind of torch's device."""
        return "cpu" if self.capability is None else "cuda"

    @classmethod
    def of(cls, name: str, attention: Sequence[str] = ()) -> Target:
        """By name, with the order of attention that torch has for it unless one is given. Raises cermet.Error."""
        names = native.facts()
        if name == HOST or name in names["host_targets"]:
            return cls(name)
        found = {each["name"]: divmod(each["capability"], 10) for each in names["cuda_targets"]}
        if name not in found:
            known = " ".join([*found, HOST, *names["host_targets"]])
            raise Error(f"unknown target {name!r}, expected one of: {known}")
        for kernel in attention:
            if kernel not in ATTENTION:
                raise Error(f"unknown kernel for attention {kernel!r}, expected some of: {' '.join(ATTENTION)}")
        usual = ATTENTION if found[name] in _CUDNN_FIRST else ("flash", "efficient", "math", "cudnn")
        return cls(name, found[name], tuple(attention) or usual)
