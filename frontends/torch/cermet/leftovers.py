"""What a graph runs besides Cermet's regions: kernels of others, and operations that could have been fused."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterable

import torch
import torch.fx as fx

from .effects import target_name
from .importer import import_graph
from .traffic import moved_by

# Namespaces of ops that are torch's own, or ours.
_OWN = {"aten", "prim", "prims", "higher_order", "inductor", "rngprims", "c10d", "_c10d_functional", "cermet_v1"}
# Operations of a graph text that compute nothing for each element, or are no work of ours.
_NOT_FUSIBLE = set("opaque matmul constant iota broadcast reshape transpose slice concat gather".split())
_LINE = re.compile(r' = cermet\.(\w+) .* loc\("([^"]*)"\)$')


@dataclasses.dataclass(frozen=True)
class Left:
    """Elementwise operations and reductions of one name that no region holds."""

    op: str  # as the program calls it
    times: int
    bytes_moved: int


def foreign(module: fx.GraphModule) -> collections.Counter[str]:
    """Custom kernels, autograd functions and modules that stay opaque, by name."""
    found: collections.Counter[str] = collections.Counter()
    for node in module.graph.nodes:
        name = _foreign(node, module)
        if name:
            found[name] += 1
    return found


def _foreign(node: fx.Node, module: fx.GraphModule) -> str:
    target = node.target
    if node.op == "call_module":
        return f"module {type(module.get_submodule(str(target))).__name__}"
    if node.op != "call_function":
        return ""
    if isinstance(target, torch._ops.HigherOrderOperator):
        name = str(target)
        if name.startswith("triton_kernel_wrapper"):
            return f"triton kernel {_triton_name(node)}"
        return name if name.startswith("autograd_function_apply") else ""
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        packet = getattr(target, "overloadpacket", target)
        namespace = packet._qualified_op_name.split("::")[0]
        return "" if namespace in _OWN else packet._qualified_op_name
    module_name = getattr(target, "__module__", None) or ""
    if module_name.split(".")[0] in ("torch", "_operator", "operator", "math", "builtins", ""):
        return ""
    return f"function {target_name(node)}"


def _triton_name(node: fx.Node) -> str:
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    kernel = kernel_side_table.get_kernel(node.kwargs["kernel_idx"])
    while hasattr(kernel, "fn"):  # autotuners around the function, and Triton's own wrapper
        kernel = kernel.fn
    return getattr(kernel, "__name__", type(kernel).__name__)


def fusible(module: fx.GraphModule, replaced: set[fx.Node]) -> list[Left]:
    """Elementwise operations and reductions of a graph outside of `replaced`, by name."""
    computing: set[str] = set()
    for line in import_graph(module).text.splitlines():
        match = _LINE.search(line)
        if match and match[1] not in _NOT_FUSIBLE:
            computing.add(match[2])
    found = []
    for node in module.graph.nodes:
        moved = moved_by(node) if node.name in computing and node not in replaced else 0
        if moved:
            found.append(Left(target_name(node).rpartition(".")[2], 1, moved))
    return merged(found)


def merged(found: Iterable[Left]) -> list[Left]:
    """One entry for each name, the most bytes first."""
    times: collections.Counter[str] = collections.Counter()
    moved: collections.Counter[str] = collections.Counter()
    for left in found:
        times[left.op] += left.times
        moved[left.op] += left.bytes_moved
    return sorted((Left(op, times[op], moved[op]) for op in times), key=lambda left: (-left.bytes_moved, left.op))
