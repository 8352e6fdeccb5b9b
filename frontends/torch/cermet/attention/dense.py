"""What stands in a graph for values of all places: values of those that are shown (compaction.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
import torch.fx as fx
import torch.nn.functional as F

from ..graph import fakes
from ..graph.decision import Declined
from ..graph.layouts import written
from ..graph.nodes import example
from .axes import Axes, Batch, expression, name_of


class Dense:
    """Of one graph. Nodes are made where the graph inserts."""

    tokens: fx.Node  # how many places are shown
    index: fx.Node  # of each the number among all
    place: fx.Node  # and in its row

    def __init__(self, graph: fx.Graph, batch: Batch, mode: Any) -> None:
        self.graph, self.batch, self.mode = graph, batch, mode
        # Of the values of all places: what stands for them, and where that has its axes; of several each one's.
        self.dense: dict[fx.Node, tuple[fx.Node, Any]] = {}
        self.gathered: dict[tuple[fx.Node, Axes], fx.Node] = {}

    # Making nodes.

    def emit(self, like: fx.Node, op: str, target: Any, args: tuple[Any, ...], kwargs: Any = None) -> fx.Node:
        node = self.graph.create_node(op, target, args, kwargs or {})
        node.meta = {**like.meta, "example_value": self._value(like, node)}
        return node

    def _value(self, like: fx.Node, node: fx.Node) -> Any:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), example)
        old = example(like)
        first = old[0] if isinstance(old, (tuple, list)) else old
        try:
            with fakes.calling(self.mode), torch.set_grad_enabled(first.requires_grad):
                found = _run(node, args, kwargs)
                if isinstance(found, torch.Tensor) and found.dtype != first.dtype:
                    if first.dtype in (torch.bfloat16, torch.float16) and found.is_floating_point():  # autocast's
                        with torch.autocast(first.device.type, dtype=first.dtype):
                            found = _run(node, args, kwargs)
        except Exception as error:
            raise Declined(f"{like.name} cannot be traced for shown places: {error}") from error
        return found

    def again(self, node: fx.Node, values: dict[fx.Node, fx.Node]) -> fx.Node:
        """A call with other operands."""
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda item: values.get(item, item))
        return self.emit(node, node.op, node.target, args, kwargs)

    def shape(self, node: fx.Node, where: Axes) -> list[Any]:
        """Of what stands for a value."""
        shape: list[Any] = list(example(node).shape)
        shape[where.place] = self.tokens
        if where.row is not None:
            shape[where.row] = 1
        if any(isinstance(size, torch.SymInt) for size in shape):
            raise Declined(f"{node.name} has another size that varies")
        return shape

    def assert_shape(self, node: fx.Node, new: fx.Node, where: Axes) -> None:
        olds, news = example(node), example(new)
        if isinstance(olds, torch.Tensor):
            olds, news = [olds], [news]
        for old, value in zip(olds, news, strict=True):
            shape = list(old.shape)
            shape[where.place] = example(self.tokens)
            if where.row is not None:
                shape[where.row] = 1
            same = [written(size) for size in shape] == [written(size) for size in value.shape]
            if not same or value.dtype != old.dtype or value.requires_grad != old.requires_grad:
                raise Declined(f"{node.name} would be another tensor for shown places: {value}")

    # Operands.

    def first(self, node: fx.Node) -> tuple[fx.Node, Axes]:
        source = node.args[0] if node.args else node.kwargs.get("input")
        if source not in self.dense:
            raise Declined(f"{node.name} has places in another operand than the first")
        return self.dense[source]

    def alike(self, node: fx.Node, where: Axes, rank: int) -> fx.Node:
        """What stands for an operand beside others whose axes are these, in a result of so many dimensions."""
        shift = rank - example(node).dim()
        if node in self.dense:
            new, mine = self.dense[node]
            if mine.behind(shift) != where:
                raise Declined(f"{node.name} has its places elsewhere than the values beside it")
            return new
        mine = Axes(where.place - shift, None if where.row is None else where.row - shift)
        return self.gather(node, mine)

    def gather(self, node: fx.Node, where: Axes) -> fx.Node:
        """A value of all places as one of those that are shown; as it is, where it is the same for all of them."""
        shape = [expression(size) for size in example(node).shape]
        by_row = where.row is not None and where.row >= 0 and shape[where.row] == self.batch.rows != 1
        if where.place < 0 or shape[where.place] == 1:
            if by_row:
                raise Declined(f"{node.name} has a number for each row and none for each place")
            return node
        each = self.batch.rows * self.batch.length if by_row or where.row is None else self.batch.length
        if by_row and where.place != where.row + 1:
            raise Declined(f"{node.name} has rows and places apart")
        if shape[where.place] not in (each, self.batch.length):
            raise Declined(f"{node.name} has another number of places")
        key = node, where
        if key not in self.gathered:
            self.gathered[key] = self._gathered(node, where, by_row, shape[where.place])
        return self.gathered[key]

    def _gathered(self, node: fx.Node, where: Axes, by_row: bool, size: sympy.Expr) -> fx.Node:
        if name_of(node) == "reshape" and node.target == "unsqueeze" and isinstance(node.args[1], int):
            dimension = node.args[1] % example(node).dim()
            if dimension not in where:  # so that what many calls read is gathered once
                source = self.gather(node.args[0], where.without(dimension))
                return self.emit(node, "call_method", "unsqueeze", (source, node.args[1]))
        value, dimension, index = node, where.place, self.place
        if by_row:
            value = self.emit(node, "call_method", "flatten", (node, where.row, where.place))
            dimension, index = where.row, self.index
        elif where.row is None and size != self.batch.length:
            index = self.index
        if example(node).requires_grad:
            value = self._looked_up(value, dimension, index)
        else:
            value = self.emit(node, "call_method", "index_select", (value, dimension, index))
        if by_row:
            value = self.emit(node, "call_method", "unsqueeze", (value, where.row))
        return value

    def _looked_up(self, value: fx.Node, dimension: int, index: fx.Node) -> fx.Node:
        """As an embedding does, whose gradient is the same each time."""
        shape = example(value).shape
        if dimension != len(shape) - 2 or any(expression(size) != 1 for size in shape[:dimension]):
            raise Declined(f"{value.name} needs a gradient that would be summed in no order")
        table = self.emit(value, "call_method", "flatten", (value, 0, dimension)) if dimension else value
        found = self.emit(value, "call_function", F.embedding, (index, table))
        for _ in range(dimension):
            found = self.emit(value, "call_method", "unsqueeze", (found, 0))
        return found


def _run(node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if node.op == "call_method":
        return getattr(args[0], node.target)(*args[1:], **kwargs)
    return node.target(*args, **kwargs)
