"""Where the seconds of a first step go, by what torch times of its own phases: a later one's are counted apart.

    tracing     Dynamo follows the program's Python
    guards      Dynamo writes what must hold for the graph to be used again
    matching    the backend before autograd: with Cermet, masks, matches, checks, and waiting for kernels at the end
    metadata    AOTAutograd traces the forward, to learn what it writes and returns
    joint       AOTAutograd traces forward and backward
    cutting     the joint graph is cut, and both graphs are compiled
    rest        imports, the first run, and what torch does not time
"""
from __future__ import annotations

import sys


def so_far() -> dict[str, float]:
    """Seconds of this process by torch's names; those of one phase within another are in both. Imports nothing, which
    is a part of a first step."""
    utils = sys.modules.get("torch._dynamo.utils")
    return {} if utils is None else {name: sum(seconds) for name, seconds in utils.compilation_time_metrics.items()}


def since(before: dict[str, float], whole: float) -> dict[str, float]:
    """Seconds by part of a step that took `whole` since `before`."""
    taken = {name: seconds - before.get(name, 0.0) for name, seconds in so_far().items()}

    def of(name: str) -> float:
        return taken.get(name, 0.0)

    parts = {"tracing": of("bytecode_tracing"), "guards": of("build_guards")}
    autograd, backend = of("create_aot_dispatcher_function"), of("OutputGraph.call_user_compiler")
    parts["matching"] = max(backend - autograd, 0.0)
    parts["metadata"], parts["joint"] = of("aot_collect_metadata"), of("aot_trace_joint_graph")
    parts["cutting"] = max(autograd - parts["metadata"] - parts["joint"], 0.0)
    return parts | {"rest": max(whole - sum(parts.values()), 0.0)}


def written(parts: dict[str, float]) -> str:
    """A line of them, those that are a tenth of a second, rounded, or more."""
    return ", ".join(f"{name} {seconds:.1f}" for name, seconds in parts.items() if seconds >= 0.05)
