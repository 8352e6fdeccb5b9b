"""Cermet: run-time kernel fusion for transformers.

    torch.compile(model, backend="cermet")     nothing to import
    cermet.enable(), cermet.disable()          the same inside backend="inductor", for Trainer and Accelerate
    cermet.explain(model, *inputs)             what was fused, where, and what nearly was
    cermet.memory(model, **batch)              what a step would hold at its most, and of what
    cermet.counters()                          compiles, cache hits, launches, fallbacks
    cermet.record("model.cpack")               everything that a process asks for, as a pack for others
    python -m cermet capture                   the same from a model without numbers, for a GPU that need not be here

Importing this package is cheap: torch and the shared libraries are loaded when something is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..enabling import disable, enable
    from ..errors import Error
    from ..gauge import Memory, memory
    from ..inspection import explain
    from ..ops.library import counters
    from ..recording import Recording, record
    from ..report.explanation import Explanation

__all__ = [
    "Error",
    "Explanation",
    "Memory",
    "Recording",
    "counters",
    "disable",
    "enable",
    "explain",
    "memory",
    "record",
]
_HOMES = {
    "Error": "errors",
    "Explanation": "report.explanation",
    "Memory": "gauge",
    "Recording": "recording",
    "counters": "ops.library",
    "disable": "enabling",
    "enable": "enabling",
    "explain": "inspection",
    "memory": "gauge",
    "record": "recording",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cermet' has no attribute {name!r}")
    try:
        home = importlib.import_module(f".{_HOMES[name]}", __name__)
    except ModuleNotFoundError as error:
        if error.name and error.name.split(".")[0] == "torch":
            raise ImportError("cermet needs torch 2.10 or later: pip install torch") from error
        raise
    return getattr(home, name)
