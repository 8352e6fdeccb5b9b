"""Dropouts of a graph get a seed each before regions are found; behind that, those in no region are torch's again, and
the seeds of the others are one draw of the device's generator at the top of the graph.

So the generator's state moves with every run, and what it was decides the masks, though they are not eager's. A
checkpointed body is given its seeds: what it computes again it computes with the same.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx
import torch.nn.functional as F

from . import memory, nodes, seeded
from .edit import erase_unused, rewriting
from .nodes import example

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def dropped(node: fx.Node) -> Any:
    """The probability of a call that drops elements, not in place; else None. Dynamo may keep it symbolic."""
    if node.op != "call_function" or node.target not in (F.dropout, torch.dropout):
        return None
    given = dict(zip(("input", "p", "training", "inplace"), node.args)) | node.kwargs
    training = given.get("training", given.get("train", True))
    if training is not True or given.get("inplace", False) is not False or not isinstance(given.get("input"), fx.Node):
        return None
    p = given.get("p", 0.5)
    number = example(p) if isinstance(p, fx.Node) else p
    if isinstance(number, torch.SymFloat):
        number = number.node.hint
    return p if isinstance(number, float) and 0 < number < 1 else None


def operand(node: fx.Node) -> fx.Node:
    """What a dropout is of."""
    return node.args[0] if node.args else node.kwargs["input"]


def _fits(node: fx.Node) -> bool:
    """Whether kernels take what a dropout is of."""
    x = example(operand(node))
    return isinstance(x, torch.Tensor) and x.dtype in _DTYPES and not memory.wrapped(x)


def _of(module: fx.GraphModule, function: Any) -> list[fx.Node]:
    return [node for node in module.graph.nodes if node.op == "call_function" and node.target is function]


def seed(module: fx.GraphModule) -> None:
    """Gives each dropout of a graph (not of its bodies) a seed of its own."""
    found = [(node, p) for node in module.graph.nodes if (p := dropped(node)) is not None and _fits(node)]
    if not found:
        return
    with rewriting([module]):
        with module.graph.inserting_before(_first(module.graph)):
            for number, (node, p) in enumerate(found):
                x = operand(node)
                node.target, node.args, node.kwargs = seeded.dropout, (x, p, _seed(module.graph, number, x)), {}


def _first(graph: fx.Graph) -> fx.Node:
    """What inputs stand before."""
    return next(node for node in graph.nodes if node.op != "placeholder")


def _seed(graph: fx.Graph, number: int, like: fx.Node) -> fx.Node:
    """A seed on the device, and in the fake mode, of another value."""
    value = example(like)
    node = graph.call_function(seeded.seed, (number, value.device))
    node.meta["example_value"] = value.detach().new_empty((), dtype=torch.int64)
    return node


def draw(module: fx.GraphModule) -> int:
    """Ends what `seed` began in a graph and its bodies. Returns how many dropouts are in regions."""
    modules = list(nodes.modules(module))
    if not any(_of(part, seeded.seed) for part in modules):
        return 0
    with rewriting(modules):
        for part in modules:
            for node in _of(part, seeded.dropout):
                seeded.as_torch(node)
            erase_unused(part, [node for node in _of(part, seeded.seed) if not node.users])
        kept = sum(len(_of(part, seeded.seed)) for part in modules)
        for part in reversed(modules):  # bodies stand behind what runs them
            calls = list(nodes.checkpoints(module, part)) if part is not module else []
            if calls:
                _take(part, calls)
            else:
                _draw(part)
    return kept


def _take(body: fx.GraphModule, calls: Sequence[tuple[fx.GraphModule, fx.Node]]) -> None:
    """The seeds of a body become operands of its calls."""
    for node in _of(body, seeded.seed):
        with body.graph.inserting_before(_first(body.graph)):
            place = body.graph.placeholder(node.name)
        place.meta = dict(node.meta)
        node.replace_all_uses_with(place)
        body.graph.erase_node(node)
        for owner, call in calls:
            with owner.graph.inserting_before(_first(owner.graph)):
                operand = _seed(owner.graph, len(_of(owner, seeded.seed)), place)
            call.args = (*call.args, operand)


def _draw(module: fx.GraphModule) -> None:
    """The seeds of a graph as one draw for each device."""
    seeds: dict[torch.device, list[fx.Node]] = {}
    for node in _of(module, seeded.seed):
        seeds.setdefault(example(node).device, []).append(node)
    graph = module.graph
    for device, several in seeds.items():
        value = example(several[0])
        drawn = value.new_empty((len(several),))
        with graph.inserting_before(_first(graph)):
            draw = graph.call_function(
                torch.randint, (seeded.SEEDS, (len(several),)), {"dtype": torch.int64, "device": device}
            )
            each = graph.call_function(torch.unbind, (draw,))
            draw.meta["example_value"], each.meta["example_value"] = drawn, tuple(drawn.unbind())
            for index, node in enumerate(several):
                item = graph.call_function(operator.getitem, (each, index))
                item.meta["example_value"] = each.meta["example_value"][index]
                node.replace_all_uses_with(item)
        for node in several:
            graph.erase_node(node)
