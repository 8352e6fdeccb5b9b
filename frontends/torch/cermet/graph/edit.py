"""Editing FX graphs: copies, edits that are undone on an exception, and the removal of what nothing reads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch.fx as fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from .effects import PURE, effect_of
from .nodes import attribute


def copied(graph: fx.Graph) -> fx.Graph:
    """A graph of its own over the same fake values, with all that Dynamo and others note on the nodes."""
    copy = fx.Graph()
    copy.set_codegen(graph._codegen)
    nodes: dict[fx.Node, fx.Node] = {}
    output = copy.graph_copy(graph, nodes, return_output_node=True)
    if output is not None:
        value, old = output
        copy.output(value).meta = dict(old.meta)
    for old, new in nodes.items():
        for name, noted in vars(old).items():
            if name not in vars(new):
                setattr(new, name, noted)
    return copy


@contextlib.contextmanager
def rewriting(modules: Sequence[fx.GraphModule]) -> Iterator[None]:
    """Checks and recompiles graphs after they were rewritten. On an exception they are as they were."""
    backups = [copied(module.graph) for module in modules]
    try:
        yield
        for module in modules:
            module.graph.lint()
            module.recompile()
    except Exception:
        for module, backup in zip(modules, backups):
            module.graph = backup
        raise


def erase_unused(module: fx.GraphModule, dying: Sequence[fx.Node]) -> None:
    """Removes nodes, users first, and pure nodes that only fed them (a cast to the type that is already there)."""
    pending = list(dying)
    known = set(dying)
    while pending:
        node = pending.pop(0)
        if node.users:
            continue
        inputs = node.all_input_nodes
        module.graph.erase_node(node)
        for source in inputs:
            if is_pure(source, module) and not source.users and source not in known:
                known.add(source)
                pending.append(source)


def is_pure(node: fx.Node, module: fx.GraphModule) -> bool:
    """Whether nobody misses a call whose result nobody reads."""
    return node.op in ("call_function", "call_method") and effect_of(node, module).kind == PURE


def copy_of(module: fx.GraphModule) -> fx.GraphModule:
    """A graph module of its own, with bodies of its own, over the same parameters and fake values."""
    copy = _LazyGraphModule(module, copied(module.graph), type(module).__name__)  # most copies never run
    for name, noted in vars(module).items():
        if name not in vars(copy):
            setattr(copy, name, noted)
    copy.meta = dict(module.meta)
    for target in {str(node.target) for node in copy.graph.nodes if node.op == "get_attr"}:
        body = attribute(copy, target)
        if isinstance(body, fx.GraphModule):
            owner, _, name = target.rpartition(".")
            setattr(attribute(copy, owner) if owner else copy, name, copy_of(body))
    return copy
