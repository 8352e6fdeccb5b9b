"""What a region replaced, as a graph that still runs: operands to results, as traced or in a wider floating type."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.symbolic_shapes import guard_scalar

from ..errors import Error
from ..graph.decision import Region
from ..graph.effects import PURE, effect_of
from ..graph.nodes import example, target_name
from ..loss.labels import Labels, labels_of
from ..text import REALS

_CASTS = ("double", "float", "half", "bfloat16")  # methods


@dataclasses.dataclass(frozen=True)
class Unfused:
    """`module` takes a region's operands, then `others`, then `sizes`, and returns a tuple of its results."""

    module: fx.GraphModule
    others: tuple[fx.Node, ...]  # tensors that are read for their shape alone
    sizes: tuple[fx.Node, ...]  # symbolic integers
    autocast: tuple[tuple[str, torch.dtype, bool], ...]  # device type, dtype, enabled; outermost first
    labels: Labels | None  # of the losses in it

    @staticmethod
    def cast(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
        return tensor.to(dtype) if dtype is not None and tensor.dtype in REALS else tensor

    def run(
        self,
        inputs: Sequence[torch.Tensor],
        others: Sequence[torch.Tensor],
        sizes: Sequence[int],
        dtype: torch.dtype | None = None,
    ) -> list[torch.Tensor]:
        """The results; with `dtype`, every floating type in it is that one and autocast is off."""
        arguments = [*(self.cast(tensor, dtype) for tensor in (*inputs, *others)), *sizes]
        with contextlib.ExitStack() as stack:
            for device, narrow, on in self.autocast:
                stack.enter_context(torch.autocast(device, narrow, on and dtype is None))
            if dtype is None:
                return list(self.module(*arguments))
            return list(_Widened(self.module, dtype).run(*arguments))


class _Widened(fx.Interpreter):
    """Runs a graph with another floating type wherever one is named."""

    def __init__(self, module: fx.GraphModule, dtype: torch.dtype) -> None:
        super().__init__(module)
        self._dtype = dtype

    def _wide(self, value: Any) -> Any:
        return self._dtype if isinstance(value, torch.dtype) and value in REALS else value

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        return Unfused.cast(result, self._dtype) if isinstance(result, torch.Tensor) and n.op == "get_attr" else result

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = fx.node.map_aggregate((args, kwargs), self._wide)
        return super().call_function(target, args, kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target in _CASTS and isinstance(args[0], torch.Tensor):
            return args[0].to(self._dtype)
        args, kwargs = fx.node.map_aggregate((args, kwargs), self._wide)
        return super().call_method(target, args, kwargs)


def extract(module: fx.GraphModule, region: Region) -> Unfused:
    """The part of a graph that computes a region's results from its operands. The graph is left as it is.

    Raises:
        cermet.Error: a result depends on something that is neither an operand nor an input of the graph.
    """
    if len(set(region.operands)) != len(region.operands):
        raise Error("a value is two operands at once")
    members, leaves = _between(module, region)
    graph = fx.Graph()
    copies = {node: graph.placeholder(f"operand_{index}") for index, node in enumerate(region.operands)}
    others = [node for node in leaves if isinstance(example(node), torch.Tensor)]
    sizes = [node for node in leaves if isinstance(example(node), (int, torch.SymInt)) and node not in others]
    copies |= {node: graph.placeholder(f"other_{index}") for index, node in enumerate(others)}
    copies |= {node: graph.placeholder(f"size_{index}") for index, node in enumerate(sizes)}
    numbers = {}
    for node in leaves:
        value = example(node)
        if isinstance(value, (float, torch.SymFloat)):
            numbers[node] = guard_scalar(value)  # the region holds this number too
        elif node not in copies:
            raise Error(f"{node.name} is a {type(value).__name__}, expected a tensor or a number")
    for node in members:
        copy = graph.create_node(node.op, node.target, node.args, node.kwargs)
        copy.args, copy.kwargs = fx.node.map_arg(
            (node.args, node.kwargs), lambda argument: numbers[argument] if argument in numbers else copies[argument]
        )
        copies[node] = copy
    labels = labels_of(module, graph, [(node, copies[node]) for node in members])
    graph.output(tuple(copies[node] for node in region.results))
    return Unfused(fx.GraphModule(module, graph), tuple(others), tuple(sizes), _autocast(region), labels)


def _between(module: fx.GraphModule, region: Region) -> tuple[list[fx.Node], list[fx.Node]]:
    """The nodes from the operands to the results in the graph's order, and what else they read."""
    members: set[fx.Node] = set()
    leaves: dict[fx.Node, None] = {}
    pending = list(region.results)
    while pending:
        node = pending.pop()
        if node in region.operands or node in members or node in leaves:
            continue
        if node.op == "placeholder":
            leaves[node] = None
        elif node.op == "get_attr" or effect_of(node, module).kind == PURE:
            members.add(node)
            pending += node.all_input_nodes
        else:
            raise Error(f"{node.name} ({target_name(node)}) is not an operation on the operands alone")
    return [node for node in module.graph.nodes if node in members], list(leaves)


def _autocast(region: Region) -> tuple[tuple[str, torch.dtype, bool], ...]:
    """The casts that tracing ran under: the caller's, then those that the graph entered."""
    device = region.device.type
    states = [(device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))]
    for context in region.state[1:]:
        if not target_name(context).endswith("_enter_autocast"):
            continue
        kind, dtype, on, *_ = context.args
        states.append((kind, dtype if dtype is not None else torch.get_autocast_dtype(kind), bool(on)))
    return tuple(states)
