"""What a program computes of nothing on the CPU, and a GPU reads, is computed once and lies where it is read.

A table of indices that is made of `arange` (positions relative to each other, which every layer makes again) costs the
host dozens of calls in each step, and where the GPU reads it, a copy for which the host waits until the GPU has done
all that is before it. Nothing of it depends on what a graph is given.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils._python_dispatch import _disable_current_modes

from ...graph.effects import PURE, effect_of
from ...graph.memory import memories
from ...graph.nodes import attribute, examples
from ...targets import devices
from .merging import merge

_aten = torch.ops.aten
_CPU = torch.device("cpu")
_INDEXING = {  # calls on a GPU that copy indices from the CPU
    _aten.index, _aten.index_put, _aten._unsafe_index, _aten._unsafe_index_put, _aten.index_put_,
}
_LARGEST = 1 << 23  # bytes of one, for as long as there is the graph


def hold(module: fx.GraphModule) -> int:
    """Has tensors in the place of such values, equal ones once, in place; returns how many."""
    merge(module, _constants(module))
    constant = _constants(module)
    holder, replaced = _Holder(module), set(constant)
    returned = memories([node.meta.get("val") for node in module.graph.output_node().all_input_nodes])
    for node in filter(_is_small, constant):
        for user in list(node.users):
            device = _device(user)
            if device in (None, _CPU):
                continue
            if user.target is _aten._to_copy.default:
                is_returned = not returned.isdisjoint(memories(user.meta["val"]))  # whoever has it may write it
                if _is_there(device) and _is_small(user) and not is_returned:
                    user.replace_all_uses_with(holder.held(user, device))
                    replaced.add(user)
                continue
            moves = getattr(user.target, "overloadpacket", None) in _INDEXING and _is_there(device)
            # A number is an argument of a launch, and other calls may want what they are given on the CPU.
            user.replace_input_with(node, holder.held(node, device if moves and node.meta["val"].dim() else _CPU))
    for node in reversed(module.graph.nodes):
        if node in replaced and not node.users:
            module.graph.erase_node(node)
    return len(holder.made)


def _constants(module: fx.GraphModule) -> dict[fx.Node, None]:
    """Values on the CPU that are made of nothing, in the graph's order."""
    found: dict[fx.Node, None] = {}
    for node in module.graph.nodes:
        if _is_constant(module, node, found):
            found[node] = None
    return found


def _is_constant(module: fx.GraphModule, node: fx.Node, constant: Container[fx.Node]) -> bool:
    """Whether a value on the CPU is made of nothing, by calls that give the same each time."""
    if not all(_is_here(value) for value in examples(node)):
        return False
    if node.op == "get_attr":
        return not isinstance(attribute(module, node.target), FakeTensor)
    calls = node.op == "call_function" and all(source in constant for source in node.all_input_nodes)
    return calls and effect_of(node, module).kind == PURE


def _is_here(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.device != _CPU or value.layout is not torch.strided:
        return False
    return all(isinstance(size, int) for size in value.shape)


def _is_small(node: fx.Node) -> bool:
    value = node.meta["val"]
    return isinstance(value, torch.Tensor) and value.numel() * value.element_size() <= _LARGEST


def _device(node: fx.Node) -> torch.device | None:
    return next((value.device for value in examples(node) if isinstance(value, torch.Tensor)), None)


def _is_there(device: torch.device) -> bool:
    """Whether there is such a device, or another machine has it, for which this process captures."""
    return device.type == "cuda" and torch.cuda.is_available()


class _Holder:
    """Computes constants and gives them to a module."""

    def __init__(self, module: fx.GraphModule) -> None:
        self.made: dict[tuple[fx.Node, torch.device], fx.Node] = {}
        self._module = module
        self._values: dict[fx.Node, Any] = {}

    def held(self, node: fx.Node, device: torch.device) -> fx.Node:
        """What names the value of a node on a device."""
        if (node, device) not in self.made:
            with unset_fake_temporarily(), _disable_current_modes(), torch.no_grad():
                value = self._value(node) if devices.captured() else self._value(node).to(device)
            self.made[node, device] = self._named(value, node, device)
        return self.made[node, device]

    def _value(self, wanted: fx.Node) -> Any:
        """On the CPU, also of a copy that goes elsewhere."""
        needed, pending = {wanted}, [wanted]
        while pending:
            new = [source for source in pending.pop().all_input_nodes if source not in needed | self._values.keys()]
            needed.update(new)
            pending += new
        for node in self._module.graph.nodes:
            if node not in needed:
                continue
            if node.op == "get_attr":
                self._values[node] = attribute(self._module, node.target)
            elif node not in self._values:
                args, kwargs = fx.node.map_arg((node.args, node.kwargs), self._values.__getitem__)
                kwargs = {name: _CPU if name == "device" else value for name, value in kwargs.items()}
                self._values[node] = node.target(*args, **kwargs)
        return self._values[wanted]

    def _named(self, value: torch.Tensor, node: fx.Node, device: torch.device) -> fx.Node:
        name = f"_held{len(self.made)}"
        while hasattr(self._module, name):
            name += "_"
        self._module.register_buffer(name, value, persistent=False)
        graph = self._module.graph
        with graph.inserting_before(next(each for each in graph.nodes if each.op != "placeholder")):
            named = graph.get_attr(name)
        with node.meta["val"].fake_mode:
            made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
        named.meta = {"val": made}
        return named
