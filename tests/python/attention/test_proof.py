"""Elements that are read off random index arithmetic are those that running it gives: for every coordinate, with static
and with symbolic sizes, under random further facts."""

from __future__ import annotations

import itertools
import operator
import random

import pytest
import sympy
import torch
import torch.fx as fx
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from cermet.attention.proof.elements import Fork, Real, is_formula
from cermet.attention.proof.functions import Functions
from cermet.attention.proof.linear import And, AtLeastZero, Facts, Flag, Linear, Not, Or

GRAPHS, OPERATIONS, SYMBOLIC_GRAPHS = 250, 18, 60
DTYPES = (torch.int64, torch.int64, torch.int32, torch.int8, torch.bool, torch.float32, torch.bfloat16)


class Program:
    """A random graph, run while it is made: every node has a traced value (`fake`) and a real one (`real`)."""

    def __init__(self, seed: int, symbolic: bool):
        self.random = random.Random(seed)
        self.graph = fx.Graph()
        self.mode = FakeTensorMode(shape_env=ShapeEnv()) if symbolic else None
        self.real: dict[fx.Node, object] = {}
        self.tensors: list[fx.Node] = []
        numbers = torch.Generator().manual_seed(seed)
        rows, columns = self.random.sample(range(2, 6), 2)
        inputs = [
            torch.randint(0, 2, (rows, columns), generator=numbers),
            torch.randint(-3, 4, (rows, columns), generator=numbers),
            torch.randint(0, 2, (rows, columns), generator=numbers).bool(),
            torch.randint(0, rows, (columns,), generator=numbers),
        ]
        for index, value in enumerate(inputs):
            node = self.graph.placeholder(f"input_{index}")
            self._set(node, value, value if self.mode is None else self.mode.from_tensor(value, static_shapes=False))
        sizes = [self._call("call_method", "size", (self.tensors[0], dimension)) for dimension in (0, 1)]
        for size in sizes:
            self._call("call_function", torch.arange, (size,))
        self.sizes = sizes
        while len(self.real) < OPERATIONS + 6:
            self._step()
        self.graph.output(self.tensors[-1])
        self.module = fx.GraphModule(torch.nn.Module(), self.graph)

    def _set(self, node: fx.Node, real: object, fake: object) -> fx.Node:
        node.meta["example_value"] = fake
        self.real[node] = real
        if isinstance(real, torch.Tensor):
            self.tensors.append(node)
        return node

    def _call(self, op: str, target, args=(), kwargs=None) -> fx.Node | None:
        kwargs = kwargs or {}
        results = []
        for values in (self.real.get, lambda node: node.meta["example_value"]):
            given, named = fx.node.map_arg((args, kwargs), values)
            try:
                if op == "call_method":
                    results.append(getattr(given[0], target)(*given[1:], **named))
                elif results and self.mode is not None:
                    with self.mode:
                        results.append(target(*given, **named))
                else:
                    results.append(target(*given, **named))
            except Exception:
                return None
        real = results[0]
        if isinstance(real, torch.Tensor) and (real.numel() > 400 or real.dim() > 4 or real.numel() == 0):
            return None
        return self._set(self.graph.create_node(op, target, args, kwargs), *results)

    def _tensor(self) -> fx.Node:
        recent = self.tensors[-4:] if self.random.random() < 0.6 else self.tensors
        return self.random.choice(recent)

    def _truth(self) -> fx.Node:
        found = [node for node in self.tensors if self.real[node].dtype == torch.bool]
        return self.random.choice(found)

    def _step(self) -> None:
        pick, x, y = self.random, self._tensor(), self._tensor()
        rank = self.real[x].dim()
        dimension = pick.randrange(-rank, rank) if rank else 0
        other = self.random.choice([y, y, pick.randint(-4, 4), self.random.choice(self.sizes)])
        function, method = "call_function", "call_method"
        bounds = sorted(pick.sample([None, -3, -2, -1, 0, 1, 2, 3], 2), key=lambda v: (v is None, v))
        piece = slice(bounds[0], bounds[1] if pick.random() < 0.5 else None, pick.choice([None, 1, 2]))
        choices = [
            (function, pick.choice([operator.add, operator.sub, operator.mul]), (x, other)),
            (function, pick.choice([torch.add, torch.sub, torch.rsub, torch.mul]), (x, y)),
            (function, operator.sub, (pick.randint(-2, 5), x)),
            (function, pick.choice([operator.floordiv, torch.floor_divide, torch.remainder]), (x, pick.randint(1, 3))),
            (function, pick.choice([torch.maximum, torch.minimum]), (x, y)),
            (method, "clamp", (x,), {"min": pick.randint(-2, 0), "max": pick.randint(1, 3)}),
            (method, pick.choice(["abs", "neg"]), (x,)),
            (function, pick.choice([operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]),
             (x, other)),
            (function, pick.choice([operator.and_, operator.or_, operator.xor]), (x, y)),
            (function, pick.choice([torch.logical_and, torch.logical_or, torch.logical_xor]), (x, y)),
            (function, operator.invert, (self._truth(),)),
            (method, "logical_not", (x,)),
            (function, torch.where, (self._truth(), x, other)),
            (method, "where", (x, self._truth(), y)),
            (method, "masked_fill", (x, self._truth(), pick.choice([0, 1, -2.5]))),
            (function, pick.choice([torch.tril, torch.triu]), (x, pick.randint(-1, 2))),
            (method, "to", (x, pick.choice(DTYPES))),
            (method, pick.choice(["float", "long", "bool"]), (x,)),
            (function, torch.cat, ([x, y], dimension)),
            (function, torch.stack, ([x, y], dimension)),
            (function, F.pad, (x, [pick.randint(-1, 2) for _ in range(2 * pick.randint(1, 2))]),
             {"value": pick.randint(0, 1)}),
            (method, "cumsum", (x, dimension)),
            (function, torch.diff, (x,), {"dim": dimension}),
            (function, torch.diff, (x,), {"dim": dimension, "prepend": y}),
            (method, "transpose", (x, dimension, pick.randrange(-max(rank, 1), max(rank, 1)))),
            (method, "permute", (x, *pick.sample(range(rank), rank))),
            (function, torch.movedim, (x, dimension, pick.randrange(max(rank, 1)))),
            (method, "unsqueeze", (x, pick.randint(-1, rank))),
            (method, "squeeze", (x,)),
            (method, "flatten", (x, pick.randint(0, 1))),
            (method, "reshape", (x, pick.choice([(-1, self.sizes[0]), (self.sizes[1], -1), (2, -1), (-1,)]))),
            (method, "expand", (x, *([pick.choice([-1, 2])] * pick.randint(0, 2)), *[-1] * rank)),
            (method, "repeat_interleave", (x, 2), {"dim": dimension}),
            (method, "flip", (x, dimension)),
            (method, "select", (x, dimension, pick.randint(-2, 2))),
            (method, "narrow", (x, dimension, pick.randint(0, 1), pick.randint(1, 3))),
            (function, operator.getitem, (x, piece)),
            (function, operator.getitem, (x, (Ellipsis, piece))),
            (function, operator.getitem, (x, (piece, None))),
            (function, operator.getitem, (x, (None, pick.randint(-2, 2)))),
            (function, operator.getitem, (x, y)),
            (function, operator.getitem, (x, (slice(None), y))),
            (function, operator.getitem, (x, (y, self._tensor()))),
            (function, operator.getitem, (x, (y, slice(None), self._tensor()))),
            (function, operator.getitem, (x, (y, None, self._tensor()))),
            (function, torch.ops.aten.index, (x, [None, y])),
            (method, "gather", (x, dimension, y)),
            (method, "index_select", (x, dimension, y)),
            (function, torch.arange, (pick.randint(-2, 1), pick.choice(self.sizes))),
            (function, torch.arange, (pick.randint(-2, 1), 5, 2)),
            (function, torch.full, ((2, 3), pick.choice([1, 0, True, 2.5]))),
            (method, pick.choice(["new_ones", "new_zeros"]), (x, ()), {"dtype": torch.bool}),
            (method, "new_full", (x, (2,), 3)),
            (function, torch.ones_like, (x,)),
            (method, pick.choice(["clone", "contiguous", "detach"]), (x,)),
        ]
        self._call(*pick.choice(choices))


class Values:
    """What elements are for given coordinates and the program's real values."""

    def __init__(self, program: Program, sizes: dict[sympy.Symbol, sympy.Integer], coordinates: dict[object, int]):
        self.program, self.sizes, self.coordinates = program, sizes, coordinates

    def key(self, key) -> object:
        if key in self.coordinates:
            return self.coordinates[key]
        if key[0] == "size":
            return int(key[1].xreplace(self.sizes))
        assert key[0] == "element", key
        place = tuple(self.number(form) for form in key[2])
        value = self.program.real[key[1]]
        assert all(0 <= index < size for index, size in zip(place, value.shape)), (key, place)
        return value[place].item()

    def number(self, form: Linear) -> int:
        return form.constant + sum(factor * self.key(atom.key) for atom, factor in form.terms)

    def truth(self, formula) -> bool:
        if isinstance(formula, bool):
            return formula
        if isinstance(formula, Flag):
            return self.key(formula.key)
        if isinstance(formula, Not):
            return not self.truth(formula.of)
        if isinstance(formula, And):  # what follows a condition may only be there where it holds
            return self.truth(formula.left) and self.truth(formula.right)
        if isinstance(formula, Or):
            return self.truth(formula.left) or self.truth(formula.right)
        number = self.number(formula.form)
        return number >= 0 if isinstance(formula, AtLeastZero) else number == 0

    def element(self, element):
        while isinstance(element, Fork):
            element = element.yes if self.truth(element.condition) else element.no
        if is_formula(element):
            return self.truth(element)
        if isinstance(element, Linear):
            return self.number(element)
        return element.value if isinstance(element, Real) else self.key(element.key)


def check(program: Program) -> tuple[int, int]:
    """Every node's elements; returns how many nodes there are, and of how many more than an atom is known."""
    functions = Functions([program.module], {})
    sizes = {
        size.node.expr: sympy.Integer(real)
        for node in program.tensors
        for size, real in zip(node.meta["example_value"].shape, program.real[node].shape)
        if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol
    }
    known = 0
    for node in program.tensors:
        real = program.real[node]
        shape = functions.shape(node)
        assert [Values(program, sizes, {}).number(size) for size in shape] == list(real.shape)
        places = [functions.new("place") for _ in shape]
        facts = functions.inside(Facts(), tuple(places), shape)
        more = []
        if len(places) > 1 and program.random.random() < 0.5:
            more = [(places[0] - places[1]) * program.random.choice([1, -1])]
            if facts.contradict(*more):
                continue
            facts = Facts(facts.forms | set(more))
        element = functions.element(node, tuple(places), facts)
        known += not _is_atom(element, node)
        for place in itertools.product(*map(range, real.shape)):
            values = Values(
                program, sizes, {next(iter(form.terms))[0].key: index for form, index in zip(places, place)}
            )
            if any(values.number(form) < 0 for form in more):
                continue
            found, wanted = values.element(element), real[place].item()
            assert found == wanted or found != found and wanted != wanted, (
                f"{node.format_node()} at {place} is {wanted}, not {found}: {element}\n{program.graph}"
            )
            if is_formula(element):
                assert wanted in facts.possible(element), f"{node.format_node()} at {place}\n{program.graph}"
    return len(program.tensors), known


def _is_atom(element, node) -> bool:
    if isinstance(element, Linear):
        return len(element.terms) == 1 and next(iter(element.terms))[0].key[:2] == ("element", node)
    return getattr(element, "key", (None, None))[:2] == ("element", node)


@pytest.mark.parametrize("symbolic", [False, True])
def test_random_graphs(symbolic):
    nodes = known = 0
    for seed in range(SYMBOLIC_GRAPHS if symbolic else GRAPHS):
        found = check(Program(seed, symbolic))
        nodes, known = nodes + found[0], known + found[1]
    assert known > 0.6 * nodes, f"{known} of {nodes} nodes are more than an atom"
