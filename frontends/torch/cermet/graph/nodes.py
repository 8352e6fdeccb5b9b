"""Nodes of an FX graph: what they call and read, what tracing left on them, and the graphs that run within a graph."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx as fx


def tensor_nodes(arguments: Any) -> Iterator[fx.Node]:
    """Every node in a nest of tuples, lists, dicts and slices, in order."""
    if isinstance(arguments, fx.Node):
        yield arguments
    elif isinstance(arguments, (tuple, list)):
        for item in arguments:
            yield from tensor_nodes(item)
    elif isinstance(arguments, dict):
        for item in arguments.values():
            yield from tensor_nodes(item)
    elif isinstance(arguments, slice):
        yield from tensor_nodes((arguments.start, arguments.stop, arguments.step))


def target_name(node: fx.Node) -> str:
    """The importer's name of what a node calls: `to`, `operator.mul`, `torch.nn.functional.silu`, `aten.mul.Tensor`."""
    target = node.target
    if isinstance(target, str):
        return target
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops.HigherOrderOperator)):
        return str(target)
    module = (getattr(target, "__module__", None) or "").lstrip("_")
    name = getattr(target, "__name__", None) or type(target).__name__
    return f"{module}.{name}" if module else name


def attribute(owner: Any, path: Any) -> Any:
    """What a get_attr node names, or None."""
    for part in str(path).split("."):
        owner = getattr(owner, part, None)
        if owner is None:
            return None
    return owner


def example(node: fx.Node) -> Any:
    """The fake value that tracing left on a node, or None."""
    return node.meta.get("example_value", node.meta.get("val"))


def examples(node: fx.Node) -> tuple[Any, ...]:
    """The fake values of all that a node gives, one or several."""
    value = example(node)
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def after_autograd(graph: fx.Graph) -> bool:
    """Whether a graph is one of AOTAutograd's, of ATen's calls, and not Dynamo's."""
    return any("val" in node.meta for node in graph.nodes)


# Higher-order operators whose bodies are ordinary graphs, run where they are called.
_BODIES = re.compile(r"checkpoint|^wrap|invoke_subgraph|inner_compile")


def modules(module: fx.GraphModule) -> Iterator[fx.GraphModule]:
    """`module` and the bodies of its higher-order operators (checkpointed layers), innermost included, each once."""
    seen: set[int] = set()
    pending = [module]
    while pending:
        current = pending.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        for node in current.graph.nodes:
            pending += bodies(current, node)


def bodies(module: fx.GraphModule, node: fx.Node) -> list[fx.GraphModule]:
    """The ordinary graphs that a call of a higher-order operator runs."""
    if not isinstance(node.target, torch._ops.HigherOrderOperator) or not _BODIES.search(str(node.target)):
        return []
    given = [argument for argument in tensor_nodes((node.args, node.kwargs)) if argument.op == "get_attr"]
    found = [attribute(module, argument.target) for argument in given]
    return [body for body in found if isinstance(body, fx.GraphModule)]


def checkpoints(module: fx.GraphModule, body: fx.GraphModule) -> Iterator[tuple[fx.GraphModule, fx.Node]]:
    """The calls in `module` and its bodies that run `body` under a checkpoint, each with the graph that it is in; none
    where another operator runs it too."""
    places = sum(node.op == "placeholder" for node in body.graph.nodes)
    calls = []
    for owner in modules(module):
        for node in owner.graph.nodes:
            given = [item for item in node.all_input_nodes if item.op == "get_attr"]
            if not any(attribute(owner, item.target) is body for item in given):
                continue
            first = node.args[0] if node.args else None
            if "checkpoint" not in target_name(node) or first not in given or len(node.args) != places + 1:
                return
            calls.append((owner, node))
    yield from calls


def source_line(node: fx.Node) -> str:
    """`file:line: code` of the innermost line of the user's program that made a node."""
    trace = node.meta.get("stack_trace") or ""
    found = re.findall(r'File "([^"]+)", line (\d+), in [^\n]*\n\s*([^\n]*)', trace)
    return "{}:{}: {}".format(*found[-1]) if found else ""
