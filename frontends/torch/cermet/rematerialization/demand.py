"""A backward whose calls run in autograd's order, and what it makes again right before the first of them that needs it.

torch's partitioner has a pass for that, which writes the graph anew, and Python for it twice. Here nodes move. What a
forward makes of a backward's, to keep that, is behind all of the forward's own there: here it is where it can be.
"""

from __future__ import annotations

import torch
import torch.fx as fx

from ..graph.effects import PURE, effect_of
from . import ordering

_COPY = torch.ops.aten.copy_.default


def order(module: fx.GraphModule) -> fx.GraphModule:
    """In place, without what no call from the first behind a cotangent on needs, and no write; returns the module."""
    nodes = list(module.graph.nodes)
    index = {node: place for place, node in enumerate(nodes)}
    cotangents = (node for node in nodes if node.op == "placeholder" and "tangents" in str(node.target))
    first = min((index[user] for node in cotangents for user in node.users), default=None)
    if first is None:
        return module
    placed = dict.fromkeys(node for node in nodes if node.op == "placeholder")
    writes = (node for node in nodes[:first] if node.op == "call_function" and node.target is _COPY)
    for node in (*writes, *nodes[first:]):
        placed |= dict.fromkeys(sorted(_missing(node, placed), key=index.__getitem__))
    last = nodes[-1]
    for node in placed:
        last.append(node)
        last = node
    for node in reversed(nodes):
        if node not in placed:
            module.graph.erase_node(node)
    return module


def _missing(node: fx.Node, placed: dict[fx.Node, None]) -> set[fx.Node]:
    """A node and what it needs, as far as that is not placed."""
    found: set[fx.Node] = set()
    pending = [node]
    while pending:
        each = pending.pop()
        if each not in placed and each not in found:
            found.add(each)
            pending += each.all_input_nodes
    return found


def advance(module: fx.GraphModule) -> None:
    """In place, in a forward: a backward's calls right behind what they read, which is among the calls of a layer."""
    for node in list(module.graph.nodes):
        if is_backwards(node) and node.all_input_nodes and effect_of(node, module).kind == PURE:
            ordering.advance(node)


def is_backwards(node: fx.Node) -> bool:
    """Whether AOTAutograd traced a call behind the forward, whichever graph it is in."""
    return node.op == "call_function" and node.meta.get("partitioner_tag") == "is_backward"
