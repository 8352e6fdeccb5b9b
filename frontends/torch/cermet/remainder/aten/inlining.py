"""Regions that are traced once (`torch.compiler.nested_compile_region`) become calls like others behind autograd.

What repeats was matched and differentiated once; from here on each call of it is its own: kernels go across its
borders, what a forward keeps is chosen for the whole graph, and nothing is left that interprets a body.

A backward body of torch's computes again what its partitioner did not keep. What was there already is read instead.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx as fx
from torch.fx.node import map_arg

from ...graph import memory
from ...graph.layouts import written
from ...graph.nodes import attribute
from .merging import merge

_CALL = torch.ops.higher_order.invoke_subgraph
_TAGS = ("partitioner_tag",)  # of a call, for what it becomes
_FRESH = {torch.ops.aten.clone.default, torch.ops.aten.empty_like.default}  # whoever asks for memory gets some


def inline(module: fx.GraphModule) -> int:
    """Puts bodies in the place of calls, in place; returns of how many. A call whose operands are not laid out as its
    body was traced, or whose results are read together, stays one."""
    calls, made = 0, []
    pending = [node for node in module.graph.nodes if node.target is _CALL]
    while pending:
        call = pending.pop(0)
        body = attribute(module, call.args[0].target)
        if not _fits(body, call):
            continue
        nodes = _put(module, body, call)
        made += nodes
        pending += [node for node in nodes if node.target is _CALL]
        calls += 1
    if calls:
        merge(module, set(made), _FRESH)
        for node in [node for node in module.graph.nodes if node.op == "get_attr" and not node.users]:
            module.graph.erase_node(node)
        module.graph.lint()
    return calls


def _fits(body: fx.GraphModule, call: fx.Node) -> bool:
    inputs, operands = body.graph.find_nodes(op="placeholder"), call.args[2:]
    by_number = all(user.target is operator.getitem for user in call.users)
    return by_number and len(inputs) == len(operands) and all(
        _form(node.meta.get("val")) == _form(operand.meta.get("val") if isinstance(operand, fx.Node) else operand)
        for node, operand in zip(inputs, operands)
    )


def _form(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return written(value) if isinstance(value, (int, torch.SymInt)) else value
    layout = value.layout == torch.strided
    strides = [written(stride) for stride in value.stride()] if layout else None
    return value.dtype, value.device, layout, [written(size) for size in value.shape], strides


def _put(module: fx.GraphModule, body: fx.GraphModule, call: fx.Node) -> list[fx.Node]:
    """A body's nodes in the place of a call, whose results are read by number."""
    graph, moved = module.graph, memory.Moved()
    values: dict[fx.Node, Any] = {}
    made = []
    for node, operand in zip(body.graph.find_nodes(op="placeholder"), call.args[2:]):
        values[node] = operand
        moved.given(node.meta.get("val"), operand.meta.get("val") if isinstance(operand, fx.Node) else operand)
    with graph.inserting_before(call):
        for node in body.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            copy = graph.node_copy(node, values.__getitem__)
            if node.op == "get_attr":
                copy.target = _moved(module, body, node.target)
            copy.meta = {**node.meta, **{tag: call.meta[tag] for tag in _TAGS if tag in call.meta}}
            if "val" in node.meta:
                copy.meta["val"] = moved.of(node.meta["val"])
            values[node] = copy
            made.append(copy)
    results = map_arg(body.graph.output_node().args[0], values.__getitem__)
    for user in list(call.users):
        result = results[user.args[1]]
        if isinstance(result, fx.Node):
            user.replace_all_uses_with(result)
        elif user.users:
            _replace_constant(user, result)
        graph.erase_node(user)
    graph.erase_node(call)
    return made


def _replace_constant(node: fx.Node, constant: Any) -> None:
    for user in list(node.users):
        user.args, user.kwargs = (
            map_arg(given, lambda each: constant if each is node else each) for given in (user.args, user.kwargs)
        )


def _moved(module: fx.GraphModule, body: fx.GraphModule, target: str) -> str:
    """The name that what a body holds has in the module."""
    held = attribute(body, target)
    name = target.replace(".", "_")
    while getattr(module, name, held) is not held:
        name += "_"
    setattr(module, name, held)
    return name
