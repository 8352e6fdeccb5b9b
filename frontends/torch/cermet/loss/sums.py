"""Logits that a loss reads, as one node: a sum of linear layers, of which rows may be cut off.

`linear(x, w) + linear(a, b) * 2.0` is a `linear_sum` (terms.py): as several, the additions would lie in the loss's
region, whose gradients are then of the logits' size for each layer. `linear(x, w)[:, :-1]` is `linear(x[:, :-1], w)`:
behind a layer, a cut hides it from the loss. So they are what a linear layer's result is to a head (logits.py). Where
the loss becomes none, all is as it was.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx
import torch.nn.functional as F
from torch.fx.experimental.symbolic_shapes import guard_scalar

from ..graph.effects import PURE, draws, effect_of
from ..graph.layouts import written
from ..graph.nodes import after_autograd, example, tensor_nodes
from ..importing.translations.call import symbolic_float
from ..importing.translations.operators import spelling
from . import terms
from .linears import Linear, linear_operands

_STEPS = 16  # calls between logits and their loss


@dataclasses.dataclass(frozen=True)
class _Was:
    """A node that was erased."""

    node: fx.Node
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    meta: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Sum:
    node: fx.Node  # what stands for the others
    was: tuple[_Was, ...]  # these, in order; the last is the sum, or what is left of its rows
    cuts: tuple[fx.Node, ...]  # hidden states without the rows that were cut off


class _No(Exception):
    """A node is no sum of linear layers."""


def join(module: fx.GraphModule, budget: int) -> list[Sum]:
    """Makes one node of each sum whose logits would come in pieces of `budget` bytes, in place."""
    if after_autograd(module.graph):
        return []
    roots: list[fx.Node] = []
    within: set[fx.Node] = set()
    for node in reversed(module.graph.nodes):
        if node in within or (spelling(node) not in ("add", "cast", "getitem") and not _adds_in_place(node)):
            continue
        try:
            inner, operands, _ = _operands(node)
        except _No:
            continue
        come_in_pieces = operands.chunk_rows(budget, example(node).requires_grad) > 0
        if come_in_pieces and _reaches_a_number(node) and _quiet(module, inner):
            roots.append(node)
            within.update(inner)
    return [_joined(module.graph, *_operands(root)) for root in reversed(roots)]


def restore(module: fx.GraphModule, sums: Sequence[Sum]) -> None:
    """Puts the nodes back that were there."""
    for each in reversed(sums):
        became: dict[fx.Node, fx.Node] = {}
        with module.graph.inserting_before(each.node):
            for was in each.was:
                args, kwargs = fx.map_arg((was.args, was.kwargs), lambda node: became.get(node, node))
                made = module.graph.create_node(was.node.op, was.target, args, kwargs, was.node.name)
                made.meta = was.meta
                became[was.node] = made
        each.node.replace_all_uses_with(made)
        for node in (each.node, *reversed(each.cuts)):
            module.graph.erase_node(node)


def _joined(graph: fx.Graph, inner: list[fx.Node], operands: Linear, rows: Any) -> Sum:
    """`rows`: those that are left, as an index; None for all."""
    root = inner[-1]
    was = tuple(_Was(node, node.target, node.args, node.kwargs, node.meta) for node in inner)
    cuts: dict[fx.Node, fx.Node] = {}
    with graph.inserting_before(root):
        for hidden in dict.fromkeys(operands.hiddens()) if rows is not None else ():
            cuts[hidden] = _cut(graph, root, hidden, rows)
        arguments = [cuts.get(node, node) for node in operands.arguments()]
        target = terms.op(len(operands.factors)) if operands.factors else F.linear
        made = graph.call_function(target, (*arguments, *operands.factors))
    made.meta = dict(root.meta)
    if cuts:
        made.meta["example_value"] = _dense(example(root))
    root.replace_all_uses_with(made)
    for node in reversed(inner):
        graph.erase_node(node)
    return Sum(made, was, tuple(cuts.values()))


def _cut(graph: fx.Graph, root: fx.Node, hidden: fx.Node, rows: Any) -> fx.Node:
    cut, value = graph.call_function(operator.getitem, (hidden, rows)), example(hidden)
    with value.fake_mode, torch.set_grad_enabled(value.requires_grad):
        cut.meta = {**root.meta, "example_value": value[rows]}
    return cut


def _dense(value: torch.Tensor) -> torch.Tensor:
    with value.fake_mode:
        return torch.empty(value.shape, dtype=value.dtype, device=value.device).requires_grad_(value.requires_grad)


def _adds_in_place(node: fx.Node) -> bool:
    return node.target is operator.iadd or (node.op == "call_method" and node.target == "add_")


# --- What is one -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class _Walk:
    """From a sum's last node to its linear layers."""

    root: fx.Node
    inner: list[fx.Node] = dataclasses.field(default_factory=list)
    leaves: list[tuple[Linear, list[Any]]] = dataclasses.field(default_factory=list)  # with the factors
    rows: Any = None  # an index

    def run(self) -> None:
        """Raises _No."""
        if spelling(self.root) != "getitem":
            return self.visit(self.root, [])
        source, self.rows = self.root.args
        is_returned = any(user.op == "output" for user in self.root.users)  # as a view
        if is_returned or not isinstance(source, fx.Node) or not _leaves_columns(self.rows, example(source)):
            raise _No
        if getattr(example(source), "fake_mode", None) is None:
            raise _No
        self.inner.append(self.root)
        self.root = source
        if len(source.users) != 1:
            raise _No
        self.visit(source, [])

    def visit(self, node: Any, factors: list[Any]) -> None:
        """Raises _No."""
        if not isinstance(node, fx.Node) or node in self.inner or (node is not self.root and len(node.users) != 1):
            raise _No
        value, whole = example(node), example(self.root)
        if not isinstance(value, torch.Tensor) or list(map(written, value.shape)) != list(map(written, whole.shape)):
            raise _No
        self.inner.append(node)
        name, operands = spelling(node), linear_operands(node)
        if operands is not None:
            self.leaves.append((operands, [*factors, value.dtype]))
        elif (name == "add" or _adds_in_place(node)) and len(node.args) == 2:
            if set(node.kwargs) - {"alpha"}:
                raise _No
            self.visit(node.args[0], factors)
            self.visit(node.args[1], [*factors, node.kwargs.get("alpha", 1)])
        elif name == "mul" and len(node.args) == 2 and not node.kwargs:
            given, factor = node.args if not _is_factor(node.args[0]) else reversed(node.args)
            if not _is_factor(factor):
                raise _No
            self.visit(given, [*factors, factor])
        elif name == "cast" and node is self.root:
            self.visit(node.args[0], factors)
        else:
            raise _No


def _is_factor(value: Any) -> bool:
    return (isinstance(value, (int, float)) and not isinstance(value, bool)) or symbolic_float(value) is not None


def _leaves_columns(index: Any, value: Any) -> bool:
    """Whether an index takes a range of rows of [..., columns], and all of their columns."""
    items = list(index) if isinstance(index, tuple) else [index]
    if not isinstance(value, torch.Tensor) or value.dim() < 2 or any(tensor_nodes(index)):
        return False
    if any(item is not ... and not isinstance(item, slice) for item in items) or items.count(...) > 1:
        return False
    if ... in items:
        place = items.index(...)
        items[place : place + 1] = [slice(None)] * (value.dim() - len(items) + 1)
    return len(items) < value.dim() or items[-1] == slice(None)


def _operands(root: fx.Node) -> tuple[list[fx.Node], Linear, Any]:
    """The nodes of a sum, in order, what it is of, and the rows that are left, an index or None. Raises _No."""
    if not isinstance(example(root), torch.Tensor):
        raise _No
    walk = _Walk(root)
    walk.run()
    leaves = [(operands, type, _product(factors)) for operands, (*factors, type) in walk.leaves]
    bases = [leaf for leaf in leaves if leaf[1:] == (example(root).dtype, 1.0) and _is_plain(leaf[0], leaf[1])]
    if not bases or not 1 + (walk.rows is None) <= len(leaves) <= terms.MOST_TERMS + 1:
        raise _No
    base = max(bases, key=lambda leaf: int(example(leaf[0].weight).shape[1]))
    others = [leaf for leaf in leaves if leaf is not base]
    for operands, type, _ in others:
        hidden, weight = example(operands.hidden), example(operands.weight)
        if operands.bias is not None or operands.factors or not _has_numbers(weight):
            raise _No
        if type != hidden.dtype or not terms.is_term(example(root).dtype, hidden.dtype, weight.dtype):
            raise _No
    pairs = tuple(node for operands, _, _ in others for node in operands[:2])
    operands = Linear(*base[0][:3], pairs, tuple(factor for _, _, factor in others))
    return sorted(walk.inner), operands, walk.rows


def _product(factors: list[Any]) -> float:
    product = 1.0
    for factor in factors:
        symbol = symbolic_float(factor)
        product *= float(factor if symbol is None else guard_scalar(symbol))  # another one compiles again
    return product


def _is_plain(operands: Linear, dtype: torch.dtype) -> bool:
    types = {example(node).dtype for node in operands.nodes()}
    return types == {dtype} and not operands.factors and _has_numbers(example(operands.weight))


def _has_numbers(weight: torch.Tensor) -> bool:
    return weight.dim() == 2 and all(isinstance(size, int) for size in weight.shape)


def _reaches_a_number(node: fx.Node) -> bool:
    """Whether a number is made of a value, a loss, and not by way of another layer."""
    seen, edge = {node}, [node]
    for _ in range(_STEPS):
        edge = [user for each in edge for user in each.users if user not in seen and linear_operands(user) is None]
        seen |= set(edge)
        for each in edge:
            value = example(each)
            if isinstance(value, torch.Tensor) and value.dim() == 0 and value.is_floating_point():
                return True
    return False


def _quiet(module: fx.GraphModule, inner: list[fx.Node]) -> bool:
    """Whether nothing between them writes, or changes the state in which calls run."""
    node = inner[0]
    while node is not inner[-1]:
        if node not in inner and node.op.startswith("call"):
            if effect_of(node, module).kind != PURE and not draws(node):
                return False
        node = node.next
    return True
