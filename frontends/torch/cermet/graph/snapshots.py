"""Graphs as they were, for who goes back to them: what each node is, which is noted in a fraction of the time that a
node takes to be made. Nodes are made when the graph is asked for, which is seldom: where something failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx as fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from .nodes import attribute

_ATTRIBUTES = ("get_attr", "call_module")


class Snapshot:
    """A graph over the same fake values, with all that Dynamo and others note on the nodes."""

    def __init__(self, graph: fx.Graph) -> None:
        self._codegen = graph._codegen
        self._rows = [(node, _called(node), dict(node.meta), dict(vars(node))) for node in graph.nodes]

    def graph(self) -> fx.Graph:
        """A graph of its own; each time another."""
        made = fx.Graph()
        made.set_codegen(self._codegen)
        nodes: dict[fx.Node, fx.Node] = {}
        for node, (op, target, args, kwargs, name, type_), meta, noted in self._rows:
            args, kwargs = fx.map_arg((args, kwargs), nodes.__getitem__)
            nodes[node] = new = made.create_node(op, target, args, kwargs, name, type_)
            new.meta = dict(meta)
            for name, value in noted.items():
                if name not in vars(new):
                    setattr(new, name, value)
        return made


def _called(node: fx.Node) -> tuple[Any, ...]:
    return node.op, node.target, node.args, node.kwargs, node.name, node.type


class ModuleSnapshot:
    """A graph module, with bodies of its own, over the same parameters and fake values."""

    def __init__(self, module: fx.GraphModule) -> None:
        self._name, self._training = type(module).__name__, module.training
        self._graph = Snapshot(module.graph)
        self._noted, self._meta = dict(vars(module)), dict(module.meta)
        named = {str(node.target) for node in module.graph.nodes if node.op in _ATTRIBUTES}
        bodies = {node.target for node in module.graph.nodes if node.op == "get_attr"}
        self._attributes: dict[str, Callable[[], Any]] = {}
        for name in sorted(named):
            value = attribute(module, name)
            body = name in bodies and isinstance(value, fx.GraphModule)
            self._attributes[name] = ModuleSnapshot(value).module if body else lambda value=value: value

    def module(self) -> fx.GraphModule:
        """A module of its own; each time another."""
        attributes = {name: made() for name, made in self._attributes.items()}
        copy = _LazyGraphModule(attributes, self._graph.graph(), self._name)  # most never run
        copy.training = self._training
        for name, noted in self._noted.items():
            if name not in vars(copy):
                setattr(copy, name, noted)
        copy.meta = dict(self._meta)
        return copy
