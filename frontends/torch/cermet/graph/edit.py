"""Editing FX graphs: copies, edits that are undone on an exception, and the removal of what nothing reads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch.fx as fx

from .effects import PURE, effect_of
from .snapshots import ModuleSnapshot, Snapshot


def copied(graph: fx.Graph) -> fx.Graph:
    """A graph of its own over the same fake values, with all that Dynamo and others note on the nodes."""
    return Snapshot(graph).graph()


@contextlib.contextmanager
def rewriting(modules: Sequence[fx.GraphModule]) -> Iterator[None]:
    """Checks and recompiles graphs after they were rewritten. On an exception they are as they were."""
    before = [Snapshot(module.graph) for module in modules]
    try:
        yield
        for module in modules:
            module.graph.lint()
            module.recompile()
    except Exception:
        for module, snapshot in zip(modules, before):
            module.graph = snapshot.graph()
        raise


def erase_unused(module: fx.GraphModule, dying: Sequence[fx.Node]) -> None:
    """Removes nodes, users first, and pure nodes that only fed them (a cast to the type that is already there)."""
    pending = list(dying)
    known = set(dying)
    while pending:
        node = pending.pop(0)
        if node.users or node._erased:
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
    return ModuleSnapshot(module).module()
