"""Rows that a program flattens and lays out again, where torch alone knows how many that makes: worked on as they were.

A decoder norms `x.view(-1, columns)`, has that pass through linear layers, adds and lays the sum out as x lies. Where a
size of x varies there are 8 * s flattened rows, and a region cannot hold such a view (merges.py says why): neither the
norm nor a dropout would be in one. What computes row by row gives of the flattened rows what it gives of the others,
flattened. So all between the two views is done without them, and what else reads a value between is given that
flattened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.fx as fx

from ..graph import fakes
from ..graph.edit import rewriting
from ..graph.effects import PURE, effect_of
from ..graph.layouts import lies, strides, written
from ..graph.nodes import example
from .merges import form
from .translations.elementwise import POINTWISE
from .translations.operators import spelling

_ELEMENTWISE = {*POINTWISE, "cast", "identity", "seeded_dropout"}
_NORMS = {"layer_norm", "rms_norm"}
_LAST = {"softmax", "log_softmax"}  # and of which dimension


class _Rows(NamedTuple):
    number: str  # of the flattened ones
    front: tuple[str, ...]  # the dimensions that they were


def keep_rows(module: fx.GraphModule) -> int:
    """In place; returns how many views that lay rows out again are none."""
    flat: dict[fx.Node, _Rows] = {}
    again = []
    for node in module.graph.nodes:
        if spelling(node) == "reshape" and node.all_input_nodes and (source := node.all_input_nodes[0]) is node.args[0]:
            if source in flat and _sizes(node) == [*flat[source].front, *_sizes(source)[1:]]:
                again.append(node)
            elif (rows := _flattened(node, source)) is not None:
                flat[node] = rows
        elif (rows := _by_rows(node, flat)) is not None and effect_of(node, module).kind == PURE:
            flat[node] = rows
    if again:
        with rewriting([module]):
            _write(module.graph, flat, again)
    return len(again)


def _flattened(view: fx.Node, source: fx.Node) -> _Rows | None:
    """Where a view makes one dimension of a tensor's first, whose rows lie in memory as they stand: one that is neither
    a number nor a symbol."""
    made, base = example(view), example(source)
    if not isinstance(base, torch.Tensor) or not isinstance(made, torch.Tensor) or not 2 <= made.dim() < base.dim():
        return None
    front, tail = _sizes(source)[: 1 - made.dim()], _sizes(source)[1 - made.dim() :]
    rows = made.shape[0]
    is_product = isinstance(rows, torch.SymInt) and not rows.node.expr.is_symbol and written(rows) not in front
    if not is_product or tail != _sizes(view)[1:] or not all(isinstance(size, int) for size in made.shape[1:]):
        return None
    if not getattr(base, "fake_mode", None) or not lies(base, range(base.dim())):
        return None
    return _Rows(written(rows), tuple(front))


def _by_rows(node: fx.Node, flat: dict[fx.Node, _Rows]) -> _Rows | None:
    """The flattened rows that a call computes row by row, and nothing else than those and what is repeated for them."""
    rows = next((flat[each] for each in node.all_input_nodes if each in flat), None)
    made = example(node)
    if rows is None or not isinstance(made, torch.Tensor) or _sizes(node)[:1] != [rows.number]:
        return None
    if not all(isinstance(size, int) for size in made.shape[1:]):
        return None
    kind, rank = spelling(node), made.dim()
    for each in node.all_input_nodes:
        value = example(each)
        if isinstance(value, torch.Tensor) and flat.get(each) != rows:
            if value.dim() > rank or value.dim() == rank and (kind != "linear" and written(value.shape[0]) != "1"):
                return None
    if kind in _NORMS:
        sizes = node.args[1] if len(node.args) > 1 else node.kwargs.get("normalized_shape")
        return rows if isinstance(sizes, (tuple, list, torch.Size)) and len(sizes) < rank else None
    if kind in _LAST:
        return rows if (node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")) == -1 else None
    if kind == "linear":
        return rows if node.args[0] in flat and all(each not in flat for each in node.all_input_nodes[1:]) else None
    return rows if kind in _ELEMENTWISE else None


def _write(graph: fx.Graph, flat: dict[fx.Node, _Rows], again: list[fx.Node]) -> None:
    between = {view.args[0] for view in again}
    for node in reversed(flat):
        if node in between and spelling(node) != "reshape":
            between.update(each for each in node.all_input_nodes if each in flat)
    made: dict[fx.Node, fx.Node] = {}
    values: dict[fx.Node, torch.Tensor] = {}
    for node in flat:
        if node not in between:
            continue
        if spelling(node) == "reshape":
            made[node], values[node] = node.args[0], example(node.args[0])
            continue
        rows = next(values[each] for each in node.all_input_nodes if each in values)
        values[node] = _value(node, rows.shape[: len(flat[node].front)])
        with graph.inserting_before(node):
            made[node] = graph.node_copy(node, lambda each: made.get(each, each))
        made[node].meta = {**node.meta, "example_value": values[node]}
    for view in again:
        if form(example(view)) == form(values[view.args[0]]):
            view.replace_all_uses_with(made[view.args[0]])
            graph.erase_node(view)
    for node in reversed(made):
        others = [user for user in node.users if user not in made]
        if spelling(node) != "reshape" and others:
            node.replace_all_uses_with(_flat(graph, node, made[node]), lambda user: user in others)
        if not node.users:
            graph.erase_node(node)


def _value(node: fx.Node, front: Sequence[Any]) -> torch.Tensor:
    """What a call makes of the rows that there were: what it was, but for those."""
    old = example(node)
    shape = [*front, *old.shape[1:]]
    return fakes.fresh(old, shape, strides(shape, None), old.dtype, old.requires_grad)


def _flat(graph: fx.Graph, node: fx.Node, made: fx.Node) -> fx.Node:
    """A view of what was made that has the node's rows."""
    value = example(node)
    with graph.inserting_before(node):
        view = graph.call_method("view", (made, -1, *value.shape[1:]))
    view.meta = {**node.meta, "example_value": fakes.view(example(made), value.shape, value.stride())}
    return view


def _sizes(node: fx.Node) -> list[str]:
    value = example(node)
    return [written(size) for size in value.shape] if isinstance(value, torch.Tensor) else []
