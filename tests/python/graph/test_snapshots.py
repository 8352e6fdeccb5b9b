"""Graphs as they were: nothing that is done to one afterwards reaches its snapshot."""

from __future__ import annotations

import torch
import torch.fx as fx

from cermet.graph.snapshots import ModuleSnapshot, Snapshot


def small() -> fx.GraphModule:
    """Two calls with notes, a body, a parameter and a slice."""
    body, graph = fx.Graph(), fx.Graph()
    body.output(body.call_function(torch.sin, (body.placeholder("x"),)))
    root = torch.nn.Module()
    root.weight, root.inner = torch.nn.Parameter(torch.randn(4)), torch.nn.Module()
    root.inner.body = fx.GraphModule({}, body)
    x, weight, inner = graph.placeholder("x"), graph.get_attr("weight"), graph.get_attr("inner.body")
    part = graph.call_function(torch.Tensor.__getitem__, (x, slice(None, 2, None)))
    total = graph.call_function(torch.add, (part, weight), {"alpha": 2})
    total.meta["example_value"], total.noted = "a value", "by Dynamo"
    graph.output((total, {"also": [inner]}))
    module = fx.GraphModule(root, graph)
    module.meta["of"], module.kept = "the module", 7
    return module


def text(graph: fx.Graph) -> list[tuple[str, ...]]:
    return [(node.op, node.name, str(node.target), str(node.args), str(node.kwargs)) for node in graph.nodes]


def ruin(graph: fx.Graph) -> None:
    for node in reversed(graph.nodes):
        node.meta.clear()
        node.args, node.kwargs = (), {}
        if node.op == "call_function":
            graph.erase_node(node)


def test_a_snapshot_gives_the_graph_that_was():
    module = small()
    before, snapshot = text(module.graph), Snapshot(module.graph)
    ruin(module.graph)
    one, other = snapshot.graph(), snapshot.graph()
    assert text(one) == text(other) == before and one is not other
    one.lint()
    (total,) = [node for node in one.nodes if node.target is torch.add]
    assert total.meta == {"example_value": "a value"} and total.noted == "by Dynamo"
    ruin(one)
    assert text(other) == before


def test_a_module_has_bodies_of_its_own_and_the_same_parameters():
    module = small()
    weight, before, inner = module.weight, text(module.graph), text(module.inner.body.graph)
    snapshot = ModuleSnapshot(module)
    body = module.inner.body
    ruin(module.graph), ruin(body.graph)
    module.meta.clear()
    del module.weight, module.kept
    copy = snapshot.module()
    assert text(copy.graph) == before and text(copy.inner.body.graph) == inner
    assert copy.inner.body is not body and copy.weight is weight
    assert copy.meta == {"of": "the module"} and copy.kept == 7
    assert snapshot.module().inner.body is not copy.inner.body


def test_nothing_is_made_of_a_snapshot_that_nobody_asks(monkeypatch):
    module, made = small(), []
    real = fx.Graph.create_node
    monkeypatch.setattr(fx.Graph, "create_node", lambda *given, **named: made.append(given) or real(*given, **named))
    snapshot = ModuleSnapshot(module)
    assert not made
    assert snapshot.module() and len(made) == len(module.graph.nodes) + len(module.inner.body.graph.nodes)
