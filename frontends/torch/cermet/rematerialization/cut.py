"""Which values of a joint graph a forward keeps for its backward: a minimum cut.

Every value of the forward is a pipe as wide as its bytes: cut, it is kept. Behind the cut, towards the backward, calls
are made again; an edge from the source as wide as a call's price is cut where that call lies there. So the cut is least
in bytes kept plus the price of what is computed again, exactly.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Collection, Sequence
from typing import Any

import networkx
import torch
import torch.fx as fx
from networkx.algorithms.flow import boykov_kolmogorov
from torch._functorch.partitioners import must_recompute
from torch.utils.checkpoint import CheckpointPolicy

from ..graph.nodes import example
from . import costs, overwritten
from .demand import is_backwards
from .waiting import FEW, base, last, readers

_SCALE = 1024  # capacities are whole numbers, in which no rounding decides
_SOURCE, _SINK = "source", "sink"
_ASKED = "torch.utils.checkpoint's policy, or torch for an effect, asks for it"
_AROUND = "a sum around a product, which follows from the sum before it"
_LONG = "a product that takes longer than its result is worth"


@dataclasses.dataclass(frozen=True)
class Cut:
    """`kept`: the nodes to keep, in the graph's order. `judged`: of every node, the bytes that are moved in the time
    that it takes to make it again, None where it must not be; and what was against that."""

    kept: list[fx.Node]
    judged: dict[str, tuple[int | None, str]]  # by name


def keep(graph: fx.Graph, info: Any, price: float, products: float = 1.0) -> Cut:
    """Where the cut is.

    Args:
        graph: a joint graph of AOTAutograd's.
        info: what torch's partitioner knows of it (`NodeInfo`): which nodes the forward needs, which follow a tangent.
        price: the bytes that must be saved for each byte that computing again moves.
        products: the part of a step's time that those may take again whose operations take longer than their bytes.
    """
    network = networkx.DiGraph()
    network.add_nodes_from((_SOURCE, _SINK))
    outputs = set(graph.output_node().all_input_nodes)
    written = overwritten.inputs(graph)
    values = [node for node in graph.nodes if node.op != "output" and node not in info.tangents_closure]
    computing = {node: _ASKED if _must_save(node) else costs.computing(node) for node in values}
    again = {node: None if isinstance(found, str) else found for node, found in computing.items()}
    never = dict.fromkeys(_around_products(values, again), _AROUND)
    if products < 1:
        never |= dict.fromkeys(_too_long(graph, again, price, products), _LONG)
    behind = set(info.tangents_closure)
    ends = last(graph, info.tangents_closure)
    for node in values:
        if again[node] and not costs.is_product(node) and _is_read_behind(node, behind, ends):
            again[node] = costs.written(node)
        width = None if node in written else _width(node, info, outputs)
        _add(network, node, info, width, None if node in never else again[node], price)
    _, (_, beyond) = networkx.minimum_cut(network, _SOURCE, _SINK, flow_func=boykov_kolmogorov)
    kept = [node for node in values if (node, "in") not in beyond and (node, "out") in beyond]
    refused = {node: found for node, found in computing.items() if isinstance(found, str)}
    return Cut(kept, {node.name: (again[node], refused.get(node) or never.get(node, "")) for node in values})


def _too_long(graph: fx.Graph, again: dict[fx.Node, int | None], price: float, products: float) -> set[fx.Node]:
    """Long products but for those that, the least for their bytes first, take a part of the step's time together: the
    scores of an attention that is written out, which are many numbers of few operations each. Of equal ones, as layers
    have them, all or none."""
    long = {node: again[node] for node in again if again[node] and costs.is_long_product(node)}
    single = [node for node in long if isinstance(example(node), torch.Tensor)]
    worth = [node for node in single if price * long[node] < costs.written(node)]
    room = products * sum(again.get(node) or costs.computed_again(node) or 0 for node in graph.nodes) if worth else 0

    def part(node: fx.Node) -> float:
        return long[node] / costs.written(node)

    for _, equal in itertools.groupby(sorted(worth, key=part), part):
        equals = list(equal)
        room -= sum(long[node] for node in equals)
        if room < 0:
            break
        for node in equals:
            del long[node]
    return set(long)


def _is_read_behind(node: fx.Node, behind: set[fx.Node], ends: Collection[fx.Node]) -> bool:
    """Whether one kernel of the backward reads all that a call reads, and can write the call's results beside its own:
    what else reads those there may wait for it (waiting.py). Where that is a decoder's layers, which all read what an
    encoder gives, they would wait for each other."""
    kernels: set[fx.Node] | None = None
    for source in {base(each) for each in node.all_input_nodes if isinstance(example(each), torch.Tensor)}:
        found = readers([source]) & behind
        kernels = found if kernels is None else kernels & found
    if not any(costs.computed_again(each) and not costs.is_product(each) for each in kernels or ()):
        return False
    waiting = {each for each in readers([node]) & behind if not costs.is_view(each)}
    return len(waiting) <= FEW and waiting <= set(ends)


def _around_products(values: Sequence[fx.Node], again: dict[fx.Node, int | None]) -> set[fx.Node]:
    """Calls that read something from before a product and something from behind it, as a residual's sum does, of which
    one follows another without a product between.

    To make one again takes what another such call before it has made, and so on to the graph's beginning: a backward,
    which comes from the end, would hold all of them at once.
    """
    found: set[fx.Node] = set()
    depth: dict[fx.Node, int] = {}  # products on the longest way to a value
    before: dict[fx.Node, set[fx.Node]] = {}  # the last such calls that a value follows from
    for node in values:
        read = [depth[source] for source in node.all_input_nodes]
        product = node.op == "call_function" and costs.is_product(node)
        depth[node] = max(read, default=0) + product
        sums = set() if product else set().union(*(before[source] for source in node.all_input_nodes))
        if again[node] and len({each for each in read if each}) > 1:
            found |= {node, *sums} if sums else set()
            sums = {node}
        before[node] = sums
    return found


def _add(
    network: networkx.DiGraph, node: fx.Node, info: Any, width: int | None, again: int | None, price: float
) -> None:
    enters, leaves = (node, "in"), (node, "out")
    for user in node.users:
        if user.op == "output":
            continue
        network.add_edge(leaves, _SINK if user in info.tangents_closure else (user, "in"))  # of any capacity
    if node in info.required_bw_nodes:  # the backward returns it
        network.add_edge(leaves, _SINK)
    if must_recompute(node) and not _leaves_checkpoint(node, info.tangents_closure):
        network.add_edge(enters, _SINK)
        return
    if width is None:
        network.add_edge(enters, leaves)
    else:
        network.add_edge(enters, leaves, capacity=_SCALE * width)
    if node.op == "placeholder":
        network.add_edge(_SOURCE, enters)
    elif info.is_required_fw(node):
        if again is None:
            network.add_edge(_SOURCE, enters)
        elif again:
            network.add_edge(_SOURCE, enters, capacity=round(_SCALE * price * again))


def _leaves_checkpoint(node: fx.Node, behind: Collection[fx.Node]) -> bool:
    """Whether the forward reads a value of a checkpointed part outside of any: torch.utils.checkpoint returns it, and
    whoever reads it may keep it. A derivative that follows from no tangent is the backward's."""
    readers = [user for user in node.users if user.op != "output" and user not in behind]
    return any("recompute" not in user.meta and not is_backwards(user) for user in readers)


def _must_save(node: fx.Node) -> bool:
    """A view is made again of what is kept, and a launch's result is kept as that, not the launch."""
    asked = node.meta.get("recompute") is CheckpointPolicy.MUST_SAVE
    return asked and node.target is not operator.getitem and not costs.is_view(node)


def _width(node: fx.Node, info: Any, outputs: Sequence[fx.Node] | set[fx.Node]) -> int | None:
    """Bytes to keep a value; None where it cannot be, or need not since another stands for it."""
    value = example(node)
    if isinstance(value, torch.SymInt):
        return 8
    if not isinstance(value, torch.Tensor):
        # What is no tensor and no size crosses as it is, if it is an input.
        return 0 if node.op == "placeholder" else None
    if node in info.static_lifetime_input_nodes:
        return 0  # it is there anyway
    if costs.is_view(node):
        return None
    return costs.kept(node) // (2 if node in outputs else 1)  # the caller may drop what was returned, or not
