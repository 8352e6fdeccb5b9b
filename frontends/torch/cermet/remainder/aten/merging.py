"""Calls of an ATen graph that give the same of the same become one.

AOTAutograd's partitioner does the same on a copy of the graph, with functions of Inductor's, all of which it imports
for that; its configuration leaves it out here (direct.py).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily

from ...graph import memory
from ...graph.effects import PURE, WRITE, effect_of
from ...graph.nodes import attribute


def merge(module: fx.GraphModule, among: Collection[fx.Node] | None = None, fresh: Collection[Any] = ()) -> None:
    """In place. `among`: the calls to look at, where not all; `fresh`: what is called for memory of its own.

    What lies in memory that the graph returns stays, since results share memory only where they did; and nothing is the
    same behind a write.
    """
    first: dict[Hashable, fx.Node] = {}
    returned = memory.memories([node.meta.get("val") for node in module.graph.output_node().all_input_nodes])
    for node in list(module.graph.nodes):
        if node.op == "get_attr" and (number := _number(attribute(module, node.target))) is not None:
            before = first.setdefault(number, node)
            if before is not node:
                node.replace_all_uses_with(before)
                module.graph.erase_node(node)
        if node.op != "call_function":
            continue
        effect = effect_of(node, module)
        if effect.kind == WRITE:
            first.clear()
        if effect.kind != PURE or node.target in fresh or among is not None and node not in among:
            continue
        if not returned.isdisjoint(memory.memories(node.meta.get("val"))):
            continue
        key = (node.target, _key(node.args), _key(node.kwargs))
        before = first.setdefault(key, node)
        if before is not node:
            node.replace_all_uses_with(before)
            module.graph.erase_node(node)


def _number(constant: Any) -> Hashable:
    """What a tensor that a program has written as a number is, which each layer has again; None for any other."""
    is_plain = type(constant) is torch.Tensor and not isinstance(constant, FakeTensor) and not constant.requires_grad
    if not is_plain or constant.dim() or constant.device.type != "cpu":
        return None
    with unset_fake_temporarily():
        return "number", constant.dtype, repr(constant.item())


def _key(value: Any) -> Hashable:
    if isinstance(value, fx.Node):
        return value
    if isinstance(value, (tuple, list)):
        return tuple(map(_key, value))
    if isinstance(value, dict):
        return tuple((name, _key(each)) for name, each in sorted(value.items()))
    return type(value), repr(value)
