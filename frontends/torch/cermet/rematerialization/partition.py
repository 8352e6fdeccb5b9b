"""Cutting a joint graph into a forward and a backward: torch's partitioner, which keeps what cut.py says."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx
from torch._functorch import partitioners
from torch._functorch.partitioners import must_recompute
from torch._ops import OpOverload
from torch._prims.rng_prims import graphsafe_run_with_rng_state
from torch.fx._lazy_graph_module import _LazyGraphModule

from ..failures import Failing
from ..graph import fakes
from ..graph.nodes import example, examples
from ..graph.snapshots import Snapshot
from ..patching import replacing
from . import costs, cut, demand, noting, overwritten, parts, waiting

# Of torch's partitioner, 2.10 to 2.15, asked once for each graph: what is kept, and a backward's order.
_CHOOSES, _ORDERS = "choose_saved_values_set", "reordering_to_mimic_autograd_engine"
_DRAWS = "functionalize_rng_ops"  # what a checkpoint draws is drawn again by the same generator


class Partition:
    """A `partition_fn` of AOTAutograd's. `price` and `products` as for cut.keep; without a price it keeps what torch
    would."""

    def __init__(self, price: float | None, products: float, failed: Failing) -> None:
        self._price = price
        self._products = products
        self._failed = failed
        self.noted: noting.Noted | None = None  # of what was decided, once it was called
        self.keys: set[int] = set()  # of launches that were put into the graphs

    def __call__(self, joint: fx.GraphModule, inputs: Any, **settings: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        if self._price is None or not hasattr(partitioners, _CHOOSES):
            return self._as_torch(joint, inputs, settings)
        plain = Snapshot(joint.graph)
        try:
            return self._cut(joint, inputs, settings)
        except Exception as error:
            self._failed(error, "what a forward keeps")
            joint.graph = plain.graph()
            self.keys.clear()
            return self._as_torch(joint, inputs, settings)

    def _as_torch(
        self, joint: fx.GraphModule, inputs: Any, settings: dict[str, Any]
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        overwritten.forbid(joint.graph)
        made = _partitioned(joint, inputs, settings)
        self.noted = noting.noted(joint.graph, *(module.graph for module in made), {}, None)
        return made

    def _cut(
        self, joint: fx.GraphModule, inputs: Any, settings: dict[str, Any]
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        judged: dict[str, noting.Found] = {}

        def choose(graph: fx.Graph, info: Any, *_: Any, **__: Any) -> list[fx.Node]:
            found = cut.keep(graph, info, self._price, self._products)
            judged.update(found.judged)
            return found.kept

        self.keys |= parts.split(joint.graph)
        with replacing(partitioners, {_CHOOSES: choose, _ORDERS: demand.order}):  # under torch's lock for compiling
            made = _partitioned(joint, inputs, settings)
        self.noted = noting.noted(joint.graph, *(module.graph for module in made), judged, self._price)
        demand.advance(made[0])
        for module in made:
            self.keys |= parts.join(module.graph)
        waiting.wait(made[1].graph)
        forward, backward = map(_LazyGraphModule.from_graphmodule, made)  # which seldom run as they are
        for module in (forward, backward):
            module.recompile()
        return forward, backward


def _partitioned(
    joint: fx.GraphModule, inputs: Any, settings: dict[str, Any]
) -> tuple[fx.GraphModule, fx.GraphModule]:
    theirs = getattr(partitioners, _DRAWS, None)
    with replacing(partitioners, {_DRAWS: functools.partial(_drawn_again, theirs)}):
        made = partitioners.min_cut_rematerialization_partition(joint, inputs, **settings)
    for module in made:
        _say_what_is_drawn(module.graph)
    return made


def _drawn_again(theirs: Callable[..., Any], joint: fx.GraphModule, *arguments: Any, **keywords: Any) -> Any:
    """`functionalize_rng_ops` for those calls of checkpointed parts alone that draw numbers: attention that drops
    nothing is a call as any other, which needs no generator."""
    calls = [node for node in joint.graph.nodes if isinstance(node.target, OpOverload) and must_recompute(node)]
    idle = {node: node.meta.pop("recompute") for node in calls if not costs.draws(node)}
    try:
        return theirs(joint, *arguments, **keywords)
    finally:
        for node, policy in idle.items():
            node.meta["recompute"] = policy


def _say_what_is_drawn(graph: fx.Graph) -> None:
    """What a checkpoint draws, and draws again, is drawn from a generator that is the call's own; torch, which puts the
    generator there, says nothing of the result. Of several results their readers say it."""
    drawing = graph.find_nodes(op="call_function", target=graphsafe_run_with_rng_state)
    values = (value for node in graph.nodes if drawing for value in examples(node))
    mode = next((value.fake_mode for value in values if hasattr(value, "fake_mode")), None)
    for node in drawing:
        if mode is None or "val" in node.meta or any(user.target is operator.getitem for user in node.users):
            continue
        keywords = {name: value for name, value in node.kwargs.items() if name != "rng_state"}
        (operation, *args), kwargs = fx.map_arg((node.args, keywords), example)
        with fakes.calling(mode), torch.no_grad():
            node.meta["val"] = operation(*args, **kwargs)
