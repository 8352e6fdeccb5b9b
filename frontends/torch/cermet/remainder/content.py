"""What a graph runs besides Cermet's regions: kernels of others, and operations that could have been fused."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable

import torch
import torch.fx as fx

from ..graph.decision import Decision
from ..graph.effects import WRITE, effect_of
from ..graph.nodes import example, target_name
from ..graph.traffic import moved_by, size_of

# Namespaces of ops that are torch's own, or ours.
_OWN = {"aten", "prim", "prims", "higher_order", "inductor", "rngprims", "c10d", "_c10d_functional", "cermet_v1"}
# Called directly they run their body on every pair or step, in memory.
_COMPILED_BODIES = {"flex_attention", "associative_scan", "scan"}
_COPIES = {torch.ops.aten.clone, torch.ops.aten.copy}  # a tag says that they compute


@dataclasses.dataclass(frozen=True)
class Part:
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
    if module_name.split(".")[0] in ("torch", "_operator", "operator", "math", "builtins", "cermet", ""):
        return ""
    return f"function {target_name(node)}"


def _triton_name(node: fx.Node) -> str:
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    kernel = kernel_side_table.get_kernel(node.kwargs["kernel_idx"])
    while hasattr(kernel, "fn"):  # autotuners around the function, and Triton's own wrapper
        kernel = kernel.fn
    return getattr(kernel, "__name__", type(kernel).__name__)


@dataclasses.dataclass
class Remainder:
    """What a graph leaves to a fuser, as part of what it moves."""

    parts: list[Part] = dataclasses.field(default_factory=list)  # the most bytes first
    bytes_moved: int = 0  # by the whole graph, regions included
    bodies: tuple[str, ...] = ()  # operators whose body only a compiler makes a kernel of
    unknown: bool = False  # it could not be found out

    @property
    def share(self) -> float:
        return sum(item.bytes_moved for item in self.parts) / self.bytes_moved if self.bytes_moved else 0.0

    def add(self, other: Remainder) -> None:
        self.parts = merged([*self.parts, *other.parts])
        self.bytes_moved += other.bytes_moved
        self.bodies = tuple(dict.fromkeys([*self.bodies, *other.bodies]))
        self.unknown = self.unknown or other.unknown


def of(decision: Decision) -> Remainder:
    """Of a graph that is not rewritten yet. A write in place counts with its target, twice: a graph that is made
    functional copies that, unless its compiler sees that it need not."""
    replaced = {node for region in decision.regions for node in region.replaced} | decision.unmade
    moved = [size_of(example(node)) for region in decision.regions for node in [*region.operands, *region.results]]
    writes = []
    for node in decision.module.graph.nodes:
        if node in replaced:
            continue
        moved.append(moved_by(node))
        effect = effect_of(node, decision.module)
        targets = [example(target) for target in effect.written if isinstance(example(target), torch.Tensor)]
        if effect.kind == WRITE and targets:
            writes.append(Part(target_name(node).rpartition(".")[2], 1, 2 * sum(map(size_of, targets))))
    parts = merged([*fusible(decision, replaced), *writes])
    return Remainder(parts, sum(moved) + sum(item.bytes_moved for item in writes), compiled_bodies(decision.module))


def compiled_bodies(module: fx.GraphModule) -> tuple[str, ...]:
    """The operators of a graph whose body only a compiler makes a kernel of."""
    targets = [node.target for node in module.graph.nodes if isinstance(node.target, torch._ops.HigherOrderOperator)]
    return tuple(dict.fromkeys(target.name() for target in targets if target.name() in _COMPILED_BODIES))


def fusible(decision: Decision, replaced: set[fx.Node]) -> list[Part]:
    """Elementwise operations and reductions of a graph outside of `replaced`, by name."""
    found = []
    for node in decision.module.graph.nodes:
        if node in replaced or not (node.name in decision.computing or _pointwise(node)):
            continue
        moved = moved_by(node)
        if moved:
            found.append(Part(target_name(node).rpartition(".")[2], 1, moved))
    return merged(found)


def _pointwise(node: fx.Node) -> bool:
    """Whether torch itself says that a call computes each element alone, though the importer does not know it."""
    if node.op not in ("call_function", "call_method"):
        return False
    overload = node.target
    if not isinstance(overload, torch._ops.OpOverload):
        name = target_name(node).rpartition(".")[2]
        packet = overload if isinstance(overload, torch._ops.OpOverloadPacket) else getattr(torch.ops.aten, name, None)
        overloads = packet.overloads() if packet is not None else ()
        if not overloads:
            return False
        overload = getattr(packet, overloads[0])
    packet = overload.overloadpacket
    if packet is torch.ops.aten.dropout:  # no tag says that it is one
        return _drops(node)
    return torch.Tag.pointwise in overload.tags and packet not in _COPIES


def _drops(node: fx.Node) -> bool:
    """Whether a dropout does more than return its operand."""
    given = dict(zip(("input", "p", "training"), node.args)) | dict(node.kwargs)
    return given.get("p", 0.5) != 0 and given.get("training", given.get("train", True)) is not False


def merged(found: Iterable[Part]) -> list[Part]:
    """One entry for each name, the most bytes first."""
    times: collections.Counter[str] = collections.Counter()
    moved: collections.Counter[str] = collections.Counter()
    for part in found:
        times[part.op] += part.times
        moved[part.op] += part.bytes_moved
    return sorted((Part(op, times[op], moved[op]) for op in times), key=lambda part: (-part.bytes_moved, part.op))
