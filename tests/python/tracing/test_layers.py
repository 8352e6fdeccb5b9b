"""Layers that Dynamo is spared: the graph and its guards are those of a trace, and a layer that differs is traced."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from torch import nn
from torch._dynamo.output_graph import OutputGraph
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from cermet.tracing import layers
from cermet.tracing.guards import form
from cermet.tracing.notes import Notes
from layered import LAYERS, SPARED, WIDTH, Layer, Shared, Stack, as_eager, compiled, spared, stack, stepped
from tiny_models import tiny, words

CHANGED = 5


def shared(node: torch.fx.Node, first: dict[int, int]) -> list[int]:
    """Of each value the first one in its memory."""
    values = [each for each in torch.utils._pytree.tree_leaves(node.meta.get("example_value")) if torch.is_tensor(each)]
    return [first.setdefault(each.untyped_storage()._cdata, len(first)) for each in values]


class Graphs:
    """What Dynamo hands over, which runs as it is, and what it guards, without what it numbers anew in each trace."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[object] = []

        def call_user_compiler(output, module, *rest):
            nodes = self._nodes(module, {})
            guards = sorted(set(map(self._guard, output.guards)))
            self.seen.append((nodes, guards, sorted(source.name for source in output.guard_on_key_order)))
            return module.forward

        monkeypatch.setattr(OutputGraph, "call_user_compiler", call_user_compiler)

    def _nodes(self, module: torch.fx.GraphModule, first: dict[int, int]) -> list[object]:
        places = {node: place for place, node in enumerate(module.graph.nodes)}
        return [(*self._node(module, node, places, first), *shared(node, first)) for node in places]

    def _node(self, module: torch.fx.GraphModule, node: torch.fx.Node, places, first: dict[int, int]) -> object:
        what = node.target
        if node.op == "placeholder":
            what = node.meta["grapharg"].source.name if "grapharg" in node.meta else ""
        elif node.op == "get_attr":
            body = getattr(module, node.target)
            what = node.target, sorted(body.meta), str(self._nodes(body, first))
        operands = torch.fx.map_arg((node.args, node.kwargs), lambda each: places[each])
        modules = [(name, *rest) for name, *rest in node.meta.get("nn_module_stack", {}).values()]
        values = torch.utils._pytree.tree_leaves(node.meta.get("example_value"))
        told = [form(value) if torch.is_tensor(value) else str(value) for value in values]
        return node.op, what, str(operands), told, node.meta.get("stack_trace"), str(modules)

    @staticmethod
    def _guard(guard) -> tuple[str, str, str]:
        given = guard.create_fn.keywords if isinstance(guard.create_fn, functools.partial) else {}
        named = {key: getattr(value, "name", value) for key, value in given.items() if key != "value"}
        is_global = guard.name.startswith("G[")  # some have numbers of their own
        return "a global" if is_global else guard.name, guard.create_fn_name(), "" if is_global else str(named)


def traced(monkeypatch, model: nn.Module, calls, **settings):
    """The graphs of some calls, and how many layers were not traced."""
    torch._dynamo.reset()
    with monkeypatch.context() as patch:
        graphs = Graphs(patch)
        call = compiled(model, **settings)
        number = sum(spared(stepped, call, model, **given)[0] for given in calls)
    return graphs.seen, number


def same_graphs(monkeypatch, model: nn.Module, calls, **settings) -> int:
    ours, number = traced(monkeypatch, model, calls, **settings)
    with monkeypatch.context() as patch:
        patch.setattr(layers, "_kinds", lambda *_: None)
        theirs, none = traced(monkeypatch, model, calls, **settings)
    assert none == 0
    assert ours == theirs
    return number


@pytest.mark.parametrize("dynamic", [None, True])
def test_the_graph_is_that_of_a_trace(monkeypatch, dynamic):
    model, x = stack()
    calls = [{"x": x}, {"x": torch.randn(6, WIDTH, dtype=x.dtype)}]
    assert same_graphs(monkeypatch, model, calls, dynamic=dynamic) >= SPARED


class Viewed(Stack):
    """Tensors of one memory are what layers are given first, then of two."""

    def called(self, layer, x, place):
        return layer(x, None, x.view_as(x) if place < 4 else x * 2)


class Apart(Stack):
    """Views of what a layer has are what it is given first, then of what another has."""

    def called(self, layer, x, place):
        return layer(x, None, (layer if place < 4 else self.layers[0]).offset.view(1, -1))


@pytest.mark.parametrize("kind", [Viewed, Apart])
def test_values_lie_as_in_a_trace(monkeypatch, kind):
    model, x = stack(kind)
    same_graphs(monkeypatch, model, [{"x": x}])


class Kept(Layer):
    """What a layer makes is made again in the backward, but for its products."""

    def forward(self, x):
        context = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])
        return checkpoint(super().forward, x, 3, use_reentrant=False, context_fn=context)


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, times):
        ctx.save_for_backward(x)
        ctx.times = times
        return x * x * times

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * ctx.times * x * grad, None


class Made(Layer):
    """An autograd function of the layer's, under a checkpoint of the layer's."""

    def forward(self, x):
        return super().forward(checkpoint(self.squared, x, use_reentrant=False)) + Squared.apply(x, 0.5)

    def squared(self, x):
        return x + Squared.apply(self.norm(x), 2.0).sin()


@torch.compiler.nested_compile_region
def region(x, weight):
    return nn.functional.linear(x, weight).sum(-1, keepdim=True).sin()


class Marked(Layer):
    """Of a region Dynamo keeps one body for all layers."""

    def forward(self, x):
        return super().forward(x) + region(x, self.up.weight)


def test_bodies_of_several_layers(monkeypatch):
    read, theirs = [], OutputGraph.call_user_compiler

    def call_user_compiler(output, module, *rest):
        read.append({node.target for node in module.graph.find_nodes(op="get_attr")})
        return theirs(output, module, *rest)

    monkeypatch.setattr(OutputGraph, "call_user_compiler", call_user_compiler)
    model, x = stack()
    model.layers = nn.ModuleList([Marked(model.shared) for _ in range(LAYERS)]).double()
    as_eager(torch.compile(model, backend="cermet"), model, x)
    assert list(map(len, read)) == [1]


class Checkpointed(Stack):
    def called(self, layer, x, place):
        return checkpoint(layer, x, 3, use_reentrant=False)


class Bound(Stack):
    """Two ways into a layer, in turns."""

    def called(self, layer, x, place):
        x = checkpoint(layer.halved, x, use_reentrant=False)
        return checkpoint(layer.forward, x, use_reentrant=False, preserve_rng_state=False)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("kind", [Kept, Made, Checkpointed, Bound])
def test_the_bodies_of_a_layer_are_those_of_a_trace(monkeypatch, kind, dynamic):
    model, x = stack(kind if issubclass(kind, Stack) else Stack)
    if issubclass(kind, Layer):
        model.layers = nn.ModuleList([kind(model.shared) for _ in range(LAYERS)]).double()
    calls = [{"x": x}, {"x": torch.randn(6, WIDTH, dtype=x.dtype)}]
    assert same_graphs(monkeypatch, model, calls, dynamic=dynamic) >= SPARED
    torch._dynamo.reset()
    assert as_eager(compiled(model), model, x) >= SPARED


@pytest.mark.parametrize("family", ["Llama", "Gemma2"])
def test_the_graph_of_a_model_is_that_of_a_trace(monkeypatch, family):
    model = tiny(family, num_hidden_layers=LAYERS)
    calls = [dict.fromkeys(("input_ids", "labels"), words(2, tokens)) for tokens in (8, 12)]
    assert same_graphs(monkeypatch, model, calls) >= 2 * (LAYERS - 3)


def test_a_trainer_tells_how_many_labels_count():
    """All layers are given it, and none looks at it."""
    model, text = tiny("Llama", num_hidden_layers=LAYERS), words(2, 8)
    given = {"input_ids": text, "labels": text, "num_items_in_batch": torch.tensor(14)}
    number, ours = spared(stepped, compiled(model), model, **given)
    torch.testing.assert_close(ours, stepped(model, model, **given))
    assert number == SPARED


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode):
    model, x = stack()
    with mode():
        number, ours = spared(compiled(model), x)
        torch.testing.assert_close(ours, model(x))
    assert number == SPARED


def test_other_backends_trace_all():
    model, x = stack()
    assert spared(torch.compile(model, backend="aot_eager"), x)[0] == 0


# What makes a layer another one.
def hooked(layer: Layer) -> None:
    layer.register_forward_hook(lambda module, args, out: out * 2)


def patched(layer: Layer) -> None:
    layer.forward = lambda x: x * 3


def frozen(layer: Layer) -> None:
    layer.up.weight.requires_grad_(False)


def wider(layer: Layer) -> None:
    layer.up, layer.down = nn.Linear(WIDTH, 20).double(), nn.Linear(20, WIDTH).double()


def unbiased(layer: Layer) -> None:
    layer.up = nn.Linear(WIDTH, 12, bias=False).double()


def apart(layer: Layer) -> None:
    layer.shared = Shared()
    layer.shared.scale = 4.0


CHANGES = {
    "epsilon": lambda layer: setattr(layer.norm, "eps", 0.5),
    "dropout": lambda layer: setattr(layer.drop, "p", 1.0),
    "flag": lambda layer: setattr(layer, "negates", True),
    "word": lambda layer: setattr(layer, "kind", "other"),
    "function": lambda layer: setattr(layer, "act", torch.sin),
    "other module": lambda layer: setattr(layer, "norm", nn.Identity()),
    "another module": lambda layer: setattr(layer, "gate", nn.Identity()),
    "of the instance": lambda layer: setattr(layer, "factor", 2.0),
    "of an instance only": lambda layer: setattr(layer, "extra", 1),
    "longer list": lambda layer: layer.widths.append(3),
    "dict": lambda layer: layer.table.update(a=3.0),
    "buffer": lambda layer: setattr(layer, "shift", torch.full((WIDTH,), 2.0)),
    "mode": lambda layer: layer.eval(),
    "method": lambda layer: setattr(layer, "halved", lambda y: y * 3),
    "a tensor": lambda layer: setattr(layer, "offset", torch.ones(())),
    "a tensor of which only the type is read": lambda layer: setattr(layer, "spare", torch.zeros(1)),
    "other object": apart,
    "hook": hooked,
    "forward": patched,
    "frozen": frozen,
    "sizes": wider,
    "without": unbiased,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_layer_that_differs_is_traced(change):
    model, x = stack()
    change(model.layers[CHANGED])
    number = as_eager(compiled(model), model, x)
    assert number == SPARED - 1, "expected the others to be like the one that was traced"


@pytest.mark.parametrize("name", sorted(CHANGES.keys() - {"hook"}))  # which torch does not look for again
def test_a_layer_that_changes_is_seen(name):
    model, x = stack()
    call = compiled(model)
    assert as_eager(call, model, x) == SPARED
    CHANGES[name](model.layers[CHANGED])
    as_eager(call, model, x)


def test_weights_that_layers_share():
    model, x = stack()
    model.layers[4].up = model.layers[1].up
    model.layers[5].down.weight = nn.Parameter(model.layers[5].up.weight.detach().T.clone())
    model.layers[6].norm.bias = model.layers[6].norm.weight
    as_eager(call := compiled(model), model, x)
    model.layers[4].up = copy.deepcopy(model.layers[1].up)
    as_eager(call, model, x)


@pytest.mark.parametrize("traced", [1, 2])
def test_weights_that_the_traced_layers_share(traced):
    model, x = stack()
    model.layers[traced].up = model.layers[traced - 1].up
    as_eager(compiled(model), model, x)


def test_one_layer_many_times():
    model, x = stack()
    model.layers = nn.ModuleList([model.layers[0]] * LAYERS)
    assert as_eager(compiled(model), model, x) == SPARED


def test_dropout_is_that_of_a_trace(monkeypatch):
    model, x = stack()
    for layer in model.layers:
        layer.drop.p = 0.5
    torch.manual_seed(3)
    ours = stepped(compiled(model), model, x)
    torch._dynamo.reset()
    monkeypatch.setattr(layers, "_kinds", lambda *_: None)
    torch.testing.assert_close(ours, stepped(compiled(model), model, x), rtol=0, atol=0)


def test_what_fails_on_the_way_is_traced(monkeypatch):
    model, x = stack()
    monkeypatch.setattr(Notes, "tell", lambda *_: 1 / 0)
    assert as_eager(compiled(model), model, x) == 0


def test_layers_that_break_the_graph():
    class Breaking(Layer):
        def forward(self, x):
            torch._dynamo.graph_break()
            return super().forward(x)

    model, x = stack()
    model.layers = nn.ModuleList([Breaking(model.shared) for _ in range(LAYERS)]).double()
    as_eager(compiled(model), model, x)
