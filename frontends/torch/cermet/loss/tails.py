"""Logits that a graph returns after what follows their linear layer: scaled, capped, in another type.

The loss reads what is returned, so that no region may absorb it, and autograd has one gradient for both. Computed a
second time for the caller, it leaves the loss to a head (logits.py), and its gradient to an edge outside of the graph
(edges.py): nobody who reads the loss alone pays for the returned logits' gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
import torch.fx as fx

from ..graph import memory
from ..graph.decision import Tail
from ..graph.effects import PURE, effect_of
from ..graph.layouts import written
from ..graph.nodes import example

_STEPS = 8  # calls between a linear layer and what is returned


def separate(module: fx.GraphModule, is_linear: Callable[[fx.Node], Any]) -> dict[fx.Node, Tail]:
    """Gives the caller copies of what it gets of a linear layer's result and the graph goes on to read, in place;
    returns them by the layer. `is_linear`: whether a node is such a layer."""
    output = module.graph.output_node()
    items = output.args[0]
    if not isinstance(items, (tuple, list)) or not all(item is None or isinstance(item, fx.Node) for item in items):
        return {}
    found: dict[fx.Node, Tail] = {}
    for item in dict.fromkeys(items):
        chain = _chain(item, is_linear) if item is not None else None
        if chain is None or chain[0] in found or chain[0] in items or not _is_read(chain):
            continue
        tail = Tail(chain[0], item, tuple(_copied(module.graph, chain)), _body(module, chain))
        if not _same(tail, chain):
            _erase(tail)
            continue
        found[chain[0]] = tail
        output.args = (type(items)(tail.copies[-1] if each is item else each for each in output.args[0]),)
    return found


def restore(module: fx.GraphModule, tails: Collection[Tail]) -> None:
    """Returns again what was returned."""
    for tail in tails:
        tail.copies[-1].replace_all_uses_with(tail.returned)
        _erase(tail)


def _chain(item: fx.Node, is_linear: Callable[[fx.Node], Any]) -> list[fx.Node] | None:
    """A linear layer and the calls on its result alone that make `item`, of its shape; None where all are views."""
    if not isinstance(example(item), torch.Tensor) or not example(item).requires_grad:
        return None
    chain = [item]
    while not is_linear(chain[-1]):
        node = chain[-1]
        if len(chain) > _STEPS or node.op not in ("call_function", "call_method"):
            return None
        if len(node.all_input_nodes) != 1 or effect_of(node, node.graph.owning_module).kind != PURE:
            return None
        chain.append(node.all_input_nodes[0])
    chain.reverse()
    values = [example(node) for node in chain]
    if not all(isinstance(value, torch.Tensor) for value in values):
        return None
    if len({tuple(map(written, value.shape)) for value in values}) != 1:
        return None
    return chain if not memory.shared(values[0], values[-1]) else None


def _is_read(chain: list[fx.Node]) -> bool:
    """Whether the graph goes on from any of it."""
    return any(user not in chain and user.op != "output" for node in chain for user in node.users)


def _copied(graph: fx.Graph, chain: list[fx.Node]) -> list[fx.Node]:
    """The calls once more; their values are those that they have behind an edge."""
    became = {chain[0]: chain[0]}
    for node in chain[1:]:
        with graph.inserting_after(node):
            became[node] = graph.node_copy(node, became.__getitem__)
        became[node].meta = {**node.meta, "example_value": example(node).detach()}
    return list(became.values())[1:]


def _body(module: fx.GraphModule, chain: list[fx.Node]) -> fx.GraphModule:
    graph = fx.Graph()
    became = {chain[0]: graph.placeholder("logits")}
    for node in chain[1:]:
        became[node] = graph.node_copy(node, became.__getitem__)
    graph.output(became[chain[-1]])
    return fx.GraphModule(module, graph)


def _same(tail: Tail, chain: list[fx.Node]) -> bool:
    """Whether the body alone, outside of every mode of the graph's, makes what the graph makes."""
    raw, wanted = example(chain[0]), example(chain[-1])
    mode = getattr(raw, "fake_mode", None)
    if mode is None:
        return False
    with mode, torch.no_grad(), torch.autocast(raw.device.type, enabled=False):
        value = tail.body(raw)
    return value.dtype == wanted.dtype and value.shape == wanted.shape


def _erase(tail: Tail) -> None:
    for node in reversed(tail.copies):
        node.graph.erase_node(node)
