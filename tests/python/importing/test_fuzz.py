"""Import never raises, whatever the graph: random nodes, targets, arguments and metadata. And what it says of programs
that mean something is what they compute: random programs of views, writes, tuples and calls without words."""

from __future__ import annotations

import operator
import random

import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

import graphs
import random_programs
from executed import executed
from cermet.ops import library
from cermet.graph.effects import effect_of
from cermet.importing.importer import import_graph

FUNCTIONS = [
    operator.add, operator.mul, operator.iadd, operator.getitem, operator.setitem, operator.truediv, operator.and_,
    torch.rsqrt, torch.cat, torch.mean, torch.pow, torch.split, torch.add, torch._foreach_mul_, torch.empty, torch.topk,
    torch._C._nn.linear, torch._C._set_grad_enabled, torch.amp.autocast_mode._enter_autocast,
    torch.amp.autocast_mode._exit_autocast, F.silu, F.dropout, F.embedding, F.batch_norm, F.cross_entropy, F.layer_norm,
    torch.ops.aten.mul.Tensor, torch.ops.aten.add_.Tensor, torch.ops.aten.mean.dim, torch.ops.aten.mul,
    torch.ops.aten.native_dropout.default, torch.ops.higher_order.tag_activation_checkpoint, len, print, getattr,
    (lambda *arguments, **names: None),
]  # fmt: skip
METHODS = "to float pow mean add_ view size item expand chunk __getitem__ copy_ squeeze nonsense type".split()
DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.complex64, torch.uint8,
          torch.float8_e4m3fn, torch.uint16]  # fmt: skip


def random_value(dice: random.Random, mode: FakeTensorMode):
    shape = [dice.choice([0, 1, 2, 4, 8]) for _ in range(dice.randrange(5))]
    with mode:
        tensor = torch.empty(shape, dtype=dice.choice(DTYPES))
    kind = dice.random()
    if kind < 0.1 and tensor.dim() > 1:
        tensor = tensor.transpose(0, 1)
    if kind < 0.6:
        return tensor
    return dice.choice([None, 3, 2.5, "text", (tensor, tensor), [tensor, None, 7], (), torch.float32, object()])


def random_argument(dice: random.Random, nodes: list[fx.Node], depth: int = 0):
    kind = dice.random()
    if nodes and kind < 0.6:
        return dice.choice(nodes)
    if depth < 2 and kind < 0.7:
        items = [random_argument(dice, nodes, depth + 1) for _ in range(dice.randrange(3))]
        return tuple(items) if kind < 0.65 else items
    plain = [None, True, 0, -1, 2, 1e-6, float("inf"), float("nan"), "dim", Ellipsis, slice(None, 3), torch.bfloat16]
    return dice.choice([*plain, torch.device("cpu"), torch.strided])


def random_graph(seed: int) -> torch.nn.Module:
    """Like a GraphModule, but without the Python code, which FX cannot print for most of these."""
    dice, mode = random.Random(seed), FakeTensorMode()
    root = torch.nn.Module()
    graph = root.graph = fx.Graph()
    root.buffer, root.text = torch.randn(2, 4), "no tensor"
    root.body = fx.symbolic_trace(lambda x: x.add_(1))
    nodes: list[fx.Node] = []
    for index in range(dice.randrange(5)):
        nodes.append(graph.placeholder(f"argument_{index}"))
    for _ in range(dice.randrange(40)):
        arguments = tuple(random_argument(dice, nodes) for _ in range(dice.randrange(4)))
        names = {"out": random_argument(dice, nodes)} if dice.random() < 0.05 else {}
        if dice.random() < 0.1:
            names |= {"dim": random_argument(dice, nodes), "keepdim": True}
        kind = dice.random()
        if kind < 0.6:
            node = graph.call_function(dice.choice(FUNCTIONS), arguments, names)
        elif kind < 0.9:
            node = graph.call_method(dice.choice(METHODS), arguments, names)
        else:
            node = graph.get_attr(dice.choice(["buffer", "body", "text"]))
        nodes.append(node)
    graph.output(tuple(nodes[-2:]))
    for node in nodes:
        if dice.random() < 0.95:
            node.meta[dice.choice(["example_value", "val"])] = random_value(dice, mode)
    return root


@pytest.mark.parametrize("block", range(8))
def test_import_of_random_graphs_never_raises_and_its_text_always_verifies(block):
    opaque = 0
    for seed in range(block * 50, block * 50 + 50):
        module = random_graph(seed)
        text = import_graph(module).text
        opaque += text.count("cermet.opaque")
        try:
            library.context().match(text)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}\n{text}") from error
    assert opaque > 100  # the graphs were not all empty


def test_effects_of_random_nodes_never_raise():
    for seed in range(400, 500):
        module = random_graph(seed)
        for node in module.graph.nodes:
            assert effect_of(node, module).kind in ("pure", "effectful", "write")


# What eager or Dynamo refuse: then there is no program.
_NO_PROGRAM = ("single memory location", "view size is not compatible", "overlap", "non-overlapping", "output of")


@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("block", range(2))
def test_every_name_of_a_random_program_holds_its_value(block, dynamic):
    ran = 0
    for seed in range(block * 15, block * 15 + 15):
        program = random_programs.random_program(seed)
        torch.manual_seed(seed)
        inputs = torch.randn(4, 6), torch.randn(4, 6)
        try:
            module, given = graphs.traced(lambda x, y: random_programs.run(program, x, y), *inputs, dynamic=dynamic)
        except Exception as error:
            assert any(words in str(error) for words in _NO_PROGRAM), f"seed {seed}: {program}: {error}"
            continue
        try:
            executed(module, given, exact=False)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {program}: {error}") from error
        ran += 1
    assert ran >= 8
