"""Calls of a functional ATen graph that are written in the place of others."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

from ...graph.layouts import written
from ...graph.nodes import examples
from ...graph.traffic import hint

_aten = torch.ops.aten


class Rewriting:
    """In place; `times` says how many calls others stand for."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.times = 0
        self.idle: set[fx.Node] = set()  # what was made, and what something else was made for

    def call(self, like: fx.Node, target: Any, *arguments: Any, **keywords: Any) -> fx.Node:
        """A call where the graph is being written, which stands for (a part of) `like`."""
        node = self.graph.call_function(target, arguments, keywords)
        mode = next(each for each in examples(like) if each is not None).fake_mode
        given = torch.fx.node.map_arg((arguments, keywords), lambda argument: argument.meta["val"])
        with mode:
            value = target(*given[0], **given[1])
        node.meta = {**like.meta, "val": value}
        node.meta.pop("tensor_meta", None)
        self.idle.add(node)
        return node

    def replace(self, node: fx.Node, value: fx.Node) -> None:
        """Where the value is of the node's type and sizes, and lies as it does."""
        if not _alike(node, value):
            return
        node.replace_all_uses_with(value)
        self.idle.add(node)
        self.times += 1

    def erase_dead(self) -> None:
        """What nothing reads any more."""
        for node in reversed(list(self.graph.nodes)):
            if node in self.idle and not node.users and not node.is_impure():
                self.idle.update(node.all_input_nodes)
                self.graph.erase_node(node)


Call = tuple[Any, tuple[Any, ...], dict[str, Any]]  # a target, what it is given behind a value, and by name


def is_pointwise(node: fx.Node) -> bool:
    """Whether a functional call computes each element by itself."""
    if not isinstance(node.target, torch._ops.OpOverload) or node.target._schema.is_mutable:
        return False
    return torch.Tag.pointwise in node.target.tags


def is_drawn(node: fx.Node) -> bool:
    """Whether an operation draws numbers: by the order of its elements."""
    return torch.Tag.nondeterministic_seeded in node.target.tags


def way_back(old: torch.Tensor) -> list[Call]:
    """The calls that lay a value in rows as another of its sizes lies."""
    order = sorted(range(old.dim()), key=lambda axis: (-hint(old.stride(axis)), axis))
    back = sorted(range(old.dim()), key=order.__getitem__)
    return [
        (_aten.permute.default, (order,), {}),
        (_aten.clone.default, (), {"memory_format": torch.contiguous_format}),
        (_aten.permute.default, (back,), {}),
    ]


def _alike(node: fx.Node, value: fx.Node) -> bool:
    return [_form(tensor) for tensor in examples(node)] == [_form(tensor) for tensor in examples(value)]


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, [written(size) for size in tensor.shape], [written(stride) for stride in tensor.stride()]
