"""Where a backward makes again what it needs: torch's order, without another graph."""

from __future__ import annotations

import operator

import pytest
import torch
from tiny_models import tiny, words
from torch._functorch import partitioners
from torch.utils.checkpoint import checkpoint

from cermet.graph.edit import copy_of
from cermet.graph.nodes import example
from cermet.remainder import direct
from cermet.rematerialization import demand

torchs = partitioners.reordering_to_mimic_autograd_engine


def called(module):
    return [(node.op, node.name, str(node.target), str(node.args), str(node.kwargs)) for node in module.graph.nodes]


@pytest.fixture
def orders(monkeypatch):
    """What torch's pass and ours make of each backward, and how many of them torch's changes."""
    seen, ours = [], demand.order

    def both(module):
        before, theirs = called(module), called(torchs(copy_of(module)))
        made = ours(module)
        made.graph.lint()
        seen.append((called(made), theirs, before != theirs))
        return made

    monkeypatch.setattr(demand, "order", both)
    with torch._functorch.config.patch(enable_autograd_cache=False):  # what it has is not ordered again
        yield seen


def compiled(function):
    torch._dynamo.reset()
    return torch.compile(function, backend="cermet", options={"remainder": "aot", "strict": True})


def test_a_backward_runs_in_the_order_of_torchs_pass(orders):
    model = tiny("Llama", dtype=torch.bfloat16).train()
    compiled(model)(input_ids=words(), labels=words()).loss.backward()

    def twice(x, weight):
        body = lambda x: torch.sin(torch.cos(x @ weight) @ weight)  # noqa: E731
        return checkpoint(body, checkpoint(body, x, use_reentrant=False), use_reentrant=False).sum()

    inputs = [torch.randn(8, 8, requires_grad=True) for _ in range(2)]
    compiled(twice)(*inputs).backward()
    assert len(orders) == 2 and any(changed for *_, changed in orders)
    for ours, theirs, _ in orders:
        assert ours == theirs


def test_a_copy_into_an_input_stays_and_what_nothing_reads_goes():
    graph = torch.fx.Graph()
    saved, tangent = graph.placeholder("saved"), graph.placeholder("tangents_1")
    aten = torch.ops.aten
    unread = graph.call_function(aten.cos.default, (saved,))
    late = graph.call_function(aten.sin.default, (saved,))
    written = graph.call_function(aten.copy_.default, (saved, late))
    first = graph.call_function(aten.neg.default, (tangent,))
    again = graph.call_function(aten.exp.default, (written,))
    graph.output((graph.call_function(aten.mul.Tensor, (first, again)),))
    module = torch.fx.GraphModule({}, graph)
    theirs = called(torchs(copy_of(module)))
    assert called(demand.order(module)) == theirs and unread not in graph.nodes


def test_without_a_cotangent_nothing_moves():
    graph = torch.fx.Graph()
    value = graph.placeholder("saved")
    graph.call_function(torch.ops.aten.sin.default, (value,))
    graph.output((value,))
    module = torch.fx.GraphModule({}, graph)
    before = called(module)
    assert demand.order(module) is module and called(module) == before


def test_what_a_forward_makes_of_a_backward_runs_where_it_can():
    graph, aten = torch.fx.Graph(), torch.ops.aten
    one, other = graph.placeholder("primals_1"), graph.placeholder("primals_2")
    first = graph.call_function(aten.sin.default, (one,))
    halves = graph.call_function(aten.split.Tensor, (first, 2))
    low, high = (graph.call_function(operator.getitem, (halves, index)) for index in range(2))
    own = graph.call_function(aten.exp.default, (low,))
    late = [
        graph.call_function(aten.cos.default, (one,)),
        graph.call_function(aten.neg.default, (low,)),
        graph.call_function(aten.bernoulli.default, (high,)),
    ]
    late.append(graph.call_function(aten.mul.Tensor, (late[1], own)))
    for node in late:
        node.meta["partitioner_tag"] = "is_backward"
    graph.output((own, *late))
    demand.advance(torch.fx.GraphModule({}, graph))
    graph.lint()
    cos, neg, drawn, mul = late
    assert list(graph.nodes)[:-1] == [one, other, cos, first, halves, low, high, neg, own, mul, drawn]


def test_a_launch_of_inputs_alone_runs_where_what_it_replaces_stood(monkeypatch):
    """The first layer's norm and the rows of the table that it reads, under a checkpoint: its backward is the last."""
    graphs = []
    writes = direct.StraightLine.__init__

    def written(self, graph, *arguments, **keywords):
        graphs.append(list(graph.graph.nodes))
        writes(self, graph, *arguments, **keywords)

    monkeypatch.setattr(direct.StraightLine, "__init__", written)
    model = tiny("Llama", num_hidden_layers=3, vocab_size=4096, tie_word_embeddings=False).train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    with torch._functorch.config.patch(enable_autograd_cache=False):
        compiled(model)(input_ids=words(2, 32), labels=words(2, 32)).loss.backward()
    backward = graphs[1]
    attentions = [place for place, node in enumerate(backward) if "attention_for_cpu_backward" in str(node.target)]
    launches = [(place, node.all_input_nodes) for place, node in enumerate(backward) if "launch" in str(node.target)]
    alone = [(place, given) for place, given in launches if all(each.op == "placeholder" for each in given)]
    (table,) = [place for place, given in alone if (4096, 64) in [tuple(example(each).shape) for each in given]]
    assert len(attentions) == 3 and attentions[1] < table < attentions[2]
