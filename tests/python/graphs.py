"""Dynamo's graphs of functions, and the pieces that tests build them from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch.fx.experimental.proxy_tensor import make_fx

from cermet import pipeline
from cermet.graph.decision import Decision
from cermet.records import Settings


def trace(function: Callable[..., Any], *args: Any, dynamic: bool | None = None) -> fx.GraphModule:
    """The graph that Dynamo hands to a backend. Raises where the function breaks into several."""
    graphs: list[fx.GraphModule] = []

    def keep(module: fx.GraphModule, _: Any) -> Callable[..., Any]:
        graphs.append(module)
        return module.forward

    torch._dynamo.reset()
    torch.compile(function, backend=keep, fullgraph=True, dynamic=dynamic)(*args)
    assert len(graphs) == 1
    return graphs[0]


def traced(
    function: Callable[..., Any], *args: Any, dynamic: bool | None = None, aten: bool = False
) -> tuple[fx.GraphModule, list[Any]]:
    """As `trace`, and what the graph was called with; with `aten` the graph that AOTAutograd makes of it."""
    found: list[tuple[fx.GraphModule, list[Any]]] = []

    def keep(module: fx.GraphModule, _: Any) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            found.append((module, [value.clone() if isinstance(value, torch.Tensor) else value for value in given]))
            return module.forward(*given)

        return run

    torch._dynamo.reset()
    backend = aot_autograd(fw_compiler=lambda module, _: make_boxed_func(keep(module, _))) if aten else keep
    torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)(*args)
    assert len(found) == 1
    return found[0]


def spelled(
    spell: Callable[[fx.Graph], set[int]], function: Callable[..., Any], *values: Any
) -> tuple[fx.GraphModule, set[int]]:
    """The graph of a function's ATen calls with launches in the place of some, and their keys."""
    module = make_fx(function, tracing_mode="fake")(*values)
    keys = spell(module.graph)
    module.graph.lint()
    module.recompile()
    return module, keys


def decided(module: fx.GraphModule, **settings: Any) -> Decision:
    """What is decided about a graph that has no bodies; nothing is replaced."""
    return pipeline.run(module, Settings(**settings), until="rest").parts[0].decision


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """As transformers' Llama writes it."""
    dtype = x.dtype
    wide = x.to(torch.float32)
    variance = wide.pow(2).mean(-1, keepdim=True)
    wide = wide * torch.rsqrt(variance + eps)
    return weight * wide.to(dtype)


def glu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.silu(gate) * up


def compiled(function: Callable[..., Any], remainder: str = "eager", **options: Any) -> Callable[..., Any]:
    return torch.compile(
        function, backend="cermet", fullgraph=True, options={"strict": True, "remainder": remainder, **options}
    )
