"""Graphs that a call in the graph runs: what a checkpoint makes again, the two sides of an autograd function.

Dynamo keeps each as a module beside the graph, which has its name. A layer that is not traced has its own, as the
traced one's is: passes change one layer's without the others'.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch.fx as fx

from .calls import VALUE
from .notes import Notes, stem
from .values import MovedValues

_READS = "get_attr"  # of a node, whose target is a body's name


def beside(output: Any) -> set[str]:
    """The names of what stands beside a graph."""
    return set(output.nn_modules)


def are_own(output: Any, nodes: Iterable[fx.Node], before: set[str]) -> bool:
    """Whether nodes are calls and reads of bodies that were not there before, and theirs are, too."""
    for node in nodes:
        if node.op == _READS:
            body = output.nn_modules.get(node.target)
            if not isinstance(body, fx.GraphModule) or vars(body).get("__name__") != node.target:  # torch's own
                return False
            if node.target in before or not are_own(output, _inside(body), before):
                return False
        elif node.op not in ("call_function", "call_method"):
            return False
    return True


def _inside(body: fx.GraphModule) -> Iterator[fx.Node]:
    return (node for node in body.graph.nodes if node.op not in ("placeholder", "output"))


class Bodies:
    """A layer's, made again for another."""

    def __init__(self, output: Any, fakes: MovedValues, notes: Notes) -> None:
        self._output, self._fakes, self._notes = output, fakes, notes
        self._made: list[str] = []

    def again(self, node: fx.Node, became: Mapping[fx.Node, fx.Node]) -> str:
        """The name of the other's body, in the place of the one that a node reads. `became`: what the node's users are
        given, as the other's."""
        module = self._output.nn_modules[node.target]
        names = {each.name: became[each].name for user in node.users for each in user.all_input_nodes
                 if each in became}  # as which a body knows what it is given
        graph, own = fx.Graph(), {}
        for each in module.graph.nodes:
            own[each] = self._again(graph, each, own, names)
        made = fx.GraphModule(self._output.nn_modules, graph)
        made.meta.update(module.meta)
        self._made.append(self._output.install_subgraph(stem(str(node.target)), made))
        return self._made[-1]

    def _again(
        self, graph: fx.Graph, node: fx.Node, own: Mapping[fx.Node, fx.Node], names: Mapping[str, str]
    ) -> fx.Node:
        name, target = node.name, node.target
        if node.op == _READS:
            target = self.again(node, own)
            name = target
        elif node.op == "placeholder":
            name = target = names.get(node.name, node.name)
        args, kwargs = fx.map_arg((node.args, node.kwargs), own.__getitem__)
        made = graph.create_node(node.op, target, args, kwargs, name, node.type)
        if VALUE in node.meta:
            made.meta[VALUE] = self._fakes.of(node.meta[VALUE])
        self._notes.tell(made, node)
        return made

    def forget(self) -> None:
        """Those that were made, where nobody will read them."""
        for name in self._made:
            del self._output.nn_modules[name]
