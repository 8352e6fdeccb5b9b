"""A graph of shown places alone: then what is padding is in no product, norm or copy, and not only in no attention.

A value with dimensions for the rows of the batch and the places of each, `[.., rows, .., length, ..]`, becomes
`[.., 1, .., tokens, ..]`: the places that are shown, of all rows behind one another. How many there are varies, and is
a symbol. What is computed of integers (words, positions, labels) stays as it is up to where it meets such a value, and
is gathered there. Attention is over segments anyway, one for each row.

That is right where every call treats all places alike, and where nothing sees what is left out: the loss ignores those
places (shown.py looks at their labels), and logits that the graph would return come from the graph of all places, if
somebody looks at them (loss/recall.py). Any other call or result: Declined, and padding stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
import torch.fx as fx
import torch.nn.functional as F
from torch._dispatch.python import enable_python_dispatcher
from torch.utils._python_dispatch import TorchDispatchMode

from ..graph import nodes
from ..graph.decision import Declined, Recalled
from ..graph.edit import is_pure, rewriting
from ..graph.effects import PURE, WRITE, effect_of
from ..graph.layouts import written
from ..graph.nodes import example
from ..graph.traffic import hint
from ..ops.attending import ATTEND
from . import axes, shown
from .axes import Axes, Batch, argument, expression, name_of
from .readings import Kind
from .shown import LOSS

_aten = torch.ops.aten
_COPIES = {_aten._to_copy.default, _aten.clone.default, _aten.detach.default, _aten.alias.default}
_STEPS = 8  # calls between logits and their loss


def compact(module: fx.GraphModule, kind: Kind, recalls: bool) -> list[Recalled]:
    """Rewrites a graph whose attentions are over segments, in place, and adds what `Shown` tells it. `recalls`: whether
    logits may come from elsewhere. Raises Declined, and the graph is as it was."""
    if len(list(nodes.modules(module))) > 1:
        raise Declined("the graph has bodies")
    with rewriting([module]):
        return _Compaction(module, kind).run(recalls)


class _Compaction:
    def __init__(self, module: fx.GraphModule, kind: Kind) -> None:
        self.module, self.graph = module, module.graph
        self.batch = Batch(expression(kind.rows), expression(kind.length))
        if hint(kind.length) < 2:
            raise Declined("rows have one place")
        self.mode = shown.mode_of(module.graph)
        self.dense: dict[fx.Node, tuple[fx.Node, Axes]] = {}  # of those in the graph: what stands for them
        self.gathered: dict[tuple[fx.Node, Axes], fx.Node] = {}
        self.tokens, self.index, self.place = self._inputs()

    # Inputs.

    def _inputs(self) -> list[fx.Node]:
        tokens = self.module.meta[shown.SIZE]
        device = next(example(node).device for node in self.graph.nodes if node.target is ATTEND)
        with self.mode:
            values = [tokens, *(torch.empty(tokens, dtype=torch.int64, device=device) for _ in range(2))]
        last = self.graph.find_nodes(op="placeholder")[-1]
        found: list[fx.Node] = []
        for name, value in zip(("tokens", "number", "place"), values):
            with self.graph.inserting_after(found[-1] if found else last):
                node = self.graph.placeholder(f"{name}_of_shown")
            node._dynamo_source = None  # type: ignore[attr-defined]  # AOTAutograd asks; no guard is about it
            node.meta["example_value"] = value
            found.append(node)
        return found

    # The walk.

    def run(self, recalls: bool) -> list[Recalled]:
        found: list[Recalled] = []
        for node in list(self.graph.nodes):
            if node.op == "output":
                found = self._return(node, recalls)
                break
            if node.op not in ("call_function", "call_method", "call_module"):
                continue
            if self._begins(node) or any(source in self.dense for source in node.all_input_nodes):
                if effect_of(node, self.module).kind != PURE:
                    raise Declined(f"{node.name} is more than a number of its operands")
                with self.graph.inserting_before(node.next):
                    self._follow(node)
            elif effect_of(node, self.module).kind == WRITE:
                raise Declined(f"{node.name} writes its operand")
        for node in reversed(list(self.graph.nodes)):
            if not node.users and is_pure(node, self.module):
                self.graph.erase_node(node)
        return found

    def _begins(self, node: fx.Node) -> bool:
        """Whether values of places begin with a call: it looks up words or positions."""
        if name_of(node) != "embedding":
            return False
        shape = [expression(size) for size in example(node.args[0]).shape]
        return shape in ([self.batch.rows, self.batch.length], [sympy.Integer(1), self.batch.length])

    def _follow(self, node: fx.Node) -> None:
        name = name_of(node)
        rule = _RULES.get(name)
        if node.target is ATTEND:
            rule = _Compaction._attend
        elif name in axes.MOVING:
            rule = _Compaction._move
        if rule is None:
            rule = _Compaction._each
        where = rule(self, node)
        if where is not None:
            new, place = where
            self._assert_shape(node, new, place)
            self.dense[node] = new, place

    def _return(self, output: fx.Node, recalls: bool) -> list[Recalled]:
        items = output.args[0]
        if not isinstance(items, (tuple, list)):
            raise Declined("the graph returns other than a tuple")
        found, given = [], list(items)
        for index, item in enumerate(items):
            if item not in self.dense:
                continue
            if not recalls or not self._feeds_loss(item):
                raise Declined(f"the graph returns {item.name}, which has values at each place")
            found.append(Recalled(index, example(item)))
            with self.graph.inserting_before(output):
                given[index] = self._emit(item, "call_method", "new_empty", (self.index, (0,)))
        output.args = (tuple(given),)
        return found

    def _feeds_loss(self, item: fx.Node) -> bool:
        """Whether a value is what a loss is of, or views and casts of it are."""
        pending, steps = [item], 0
        while pending and steps < _STEPS:
            node = pending.pop(0)
            steps += 1
            for user in node.users:
                if name_of(user) == LOSS:
                    return True
                if name_of(user) in ("reshape", "cast", "identity"):
                    pending.append(user)
        return False

    # Making nodes.

    def _emit(self, like: fx.Node, op: str, target: Any, args: tuple[Any, ...], kwargs: Any = None) -> fx.Node:
        node = self.graph.create_node(op, target, args, kwargs or {})
        node.meta = {**like.meta, "example_value": self._value(like, node)}
        return node

    def _value(self, like: fx.Node, node: fx.Node) -> Any:
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), example)
        old = example(like)
        first = old[0] if isinstance(old, (tuple, list)) else old
        try:
            with self.mode, enable_python_dispatcher(), torch.set_grad_enabled(first.requires_grad):
                found = _run(node, args, kwargs)
                if isinstance(found, torch.Tensor) and found.dtype != first.dtype:
                    if first.dtype in (torch.bfloat16, torch.float16) and found.is_floating_point():  # autocast's
                        with torch.autocast(first.device.type, dtype=first.dtype):
                            found = _run(node, args, kwargs)
        except Exception as error:
            raise Declined(f"{like.name} cannot be traced for shown places: {error}") from error
        return found

    def _again(self, node: fx.Node, values: dict[fx.Node, fx.Node], **changed: Any) -> fx.Node:
        """A call with other operands."""
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda item: values.get(item, item))
        return self._emit(node, node.op, node.target, args, kwargs)

    def _shape(self, node: fx.Node, where: Axes) -> list[Any]:
        """Of what stands for a value."""
        shape: list[Any] = list(example(node).shape)
        shape[where.place] = self.tokens
        if where.row is not None:
            shape[where.row] = 1
        if any(isinstance(size, torch.SymInt) for size in shape):
            raise Declined(f"{node.name} has another size that varies")
        return shape

    def _assert_shape(self, node: fx.Node, new: fx.Node, where: Axes) -> None:
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

    def _first(self, node: fx.Node) -> tuple[fx.Node, Axes]:
        source = node.args[0] if node.args else node.kwargs.get("input")
        if source not in self.dense:
            raise Declined(f"{node.name} has places in another operand than the first")
        return self.dense[source]

    def _alike(self, node: fx.Node, where: Axes, rank: int) -> fx.Node:
        """What stands for an operand beside others whose axes are these, in a result of so many dimensions."""
        shift = rank - example(node).dim()
        if node in self.dense:
            new, mine = self.dense[node]
            if mine.behind(shift) != where:
                raise Declined(f"{node.name} has its places elsewhere than the values beside it")
            return new
        mine = Axes(where.place - shift, None if where.row is None else where.row - shift)
        return self._gather(node, mine)

    def _gather(self, node: fx.Node, where: Axes) -> fx.Node:
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
                source = self._gather(node.args[0], where.without(dimension))
                return self._emit(node, "call_method", "unsqueeze", (source, node.args[1]))
        value, dimension, index = node, where.place, self.place
        if by_row:
            value = self._emit(node, "call_method", "flatten", (node, where.row, where.place))
            dimension, index = where.row, self.index
        elif where.row is None and size != self.batch.length:
            index = self.index
        if example(node).requires_grad:
            value = self._looked_up(value, dimension, index)
        else:
            value = self._emit(node, "call_method", "index_select", (value, dimension, index))
        if by_row:
            value = self._emit(node, "call_method", "unsqueeze", (value, where.row))
        return value

    def _looked_up(self, value: fx.Node, dimension: int, index: fx.Node) -> fx.Node:
        """As an embedding does, whose gradient is the same each time."""
        shape = example(value).shape
        if dimension != len(shape) - 2 or any(expression(size) != 1 for size in shape[:dimension]):
            raise Declined(f"{value.name} needs a gradient that would be summed in no order")
        table = self._emit(value, "call_method", "flatten", (value, 0, dimension)) if dimension else value
        found = self._emit(value, "call_function", F.embedding, (index, table))
        for _ in range(dimension):
            found = self._emit(value, "call_method", "unsqueeze", (found, 0))
        return found

    # Rules: what a call becomes, and where it leaves the axes.

    def _each(self, node: fx.Node) -> tuple[fx.Node, Axes]:
        """A call that treats every element alike."""
        old = example(node)
        if not isinstance(old, torch.Tensor):
            raise Declined(f"{node.name} gives other than one tensor of values at each place")
        where = {
            self.dense[source][1].behind(old.dim() - example(source).dim())
            for source in node.all_input_nodes
            if source in self.dense
        }
        if len(where) > 1:
            raise Declined(f"{node.name} has operands whose places are elsewhere")
        place = where.pop()
        values = {
            source: self._alike(source, place, old.dim())
            for source in node.all_input_nodes
            if isinstance(example(source), torch.Tensor)
        }
        with _Pointwise() as seen:
            new = self._again(node, values)
        if seen.other:
            raise Declined(f"{node.name} ({seen.other}) may mix places")
        return new, place

    def _move(self, node: fx.Node) -> tuple[fx.Node, Axes]:
        source = node.args[0]
        new, where = self._first(node)
        if name_of(node) == "getitem" and isinstance(example(source), (tuple, list)):
            return self._again(node, {source: new}), where
        return self._again(node, {source: new}), axes.moved(node, where)

    def _reshape(self, node: fx.Node) -> tuple[fx.Node, Axes]:
        source = node.args[0]
        new, where = self._first(node)
        where = self.batch.regrouped(where, example(source).shape, example(node).shape)
        return self._emit(node, "call_method", "reshape", (new, self._shape(node, where))), where

    def _expand(self, node: fx.Node) -> tuple[fx.Node, Axes]:
        new, where = self._first(node)
        where = where.behind(example(node).dim() - example(node.args[0]).dim())
        return self._emit(node, "call_method", "expand", (new, self._shape(node, where))), where

    def _along(self, node: fx.Node) -> tuple[fx.Node, Axes]:
        new, where = self._first(node)
        dimension = argument(node, axes.ALONG[name_of(node)], "dim", 1 if name_of(node) == "normalize" else None)
        axes.along(node, dimension, where, example(node).dim())
        return self._again(node, {node.args[0]: new}), where

    def _over_last(self, node: fx.Node) -> tuple[fx.Node, Axes]:
        new, where = self._first(node)
        rank, over = example(node).dim(), len(argument(node, 1, "normalized_shape"))
        axes.along(node, list(range(rank - over, rank)), where, rank)
        return self._again(node, {node.args[0]: new}), where

    def _linear(self, node: fx.Node) -> tuple[fx.Node, Axes]:
        """Also a product with a matrix."""
        new, where = self._first(node)
        matrix = argument(node, 1, "weight")
        axes.along(node, -1, where, example(node).dim())
        if matrix in self.dense or example(matrix).dim() != 2:
            raise Declined(f"{node.name} is a product of two values with places")
        return self._again(node, {node.args[0]: new}), where

    def _cat(self, node: fx.Node) -> tuple[fx.Node, Axes]:
        new, where = self._parts(node)
        axes.along(node, argument(node, 1, "dim", 0), where, example(node).dim())
        return new, where

    def _stack(self, node: fx.Node) -> tuple[fx.Node, Axes]:
        new, where = self._parts(node)
        return new, where.beside(argument(node, 1, "dim", 0) % example(node).dim())

    def _parts(self, node: fx.Node) -> tuple[fx.Node, Axes]:
        """Values that are joined, all with their places in the same dimensions."""
        found = {part: self.dense[part] for part in node.args[0] if part in self.dense}
        places = {where for _, where in found.values()}
        if len(found) != len(set(node.args[0])) or len(places) > 1:
            raise Declined(f"{node.name} joins values whose places are elsewhere")
        return self._again(node, {part: new for part, (new, _) in found.items()}), places.pop()

    def _embed(self, node: fx.Node) -> tuple[fx.Node, Axes]:
        indices = node.args[0]
        new, where = self.dense.get(indices, (None, Axes(1, 0)))
        if argument(node, 1, "weight") in self.dense:
            raise Declined(f"{node.name} looks up values with places")
        return self._again(node, {indices: new or self._gather(indices, where)}), where

    def _attend(self, node: fx.Node) -> tuple[fx.Node, Axes]:
        where = Axes(2, 0)
        return self._again(node, {each: self._alike(each, where, 4) for each in node.args[:3]}), where

    def _lose(self, node: fx.Node) -> None:
        """A loss, which ignores what is left out. What it gives has no places."""
        new, where = self._first(node)
        scores, labels = node.args[0], argument(node, 1, "target")
        if argument(node, 6, "reduction", "mean") not in ("mean", "sum"):
            raise Declined(f"{node.name} gives a loss for each place")
        if example(scores).dim() != 2 or where != Axes(0):
            raise Declined(f"{node.name} is of scores that are no rows of all places")
        if labels not in self.dense:
            labels_there = self._gather(labels, where)
        else:
            labels_there = self._alike(labels, where, 1)
        found = self._again(node, {scores: new, labels: labels_there})
        if example(found).shape or example(found).dtype != example(node).dtype:
            raise Declined(f"{node.name} would be another tensor for shown places")
        node.replace_all_uses_with(found)


_Rule = Callable[[_Compaction, fx.Node], "tuple[fx.Node, Axes] | None"]
_RULES: dict[str, _Rule] = {
    "reshape": _Compaction._reshape,
    "expand": _Compaction._expand,
    **dict.fromkeys(axes.ALONG, _Compaction._along),
    **dict.fromkeys(axes.OVER_LAST, _Compaction._over_last),
    "linear": _Compaction._linear,
    "matmul": _Compaction._linear,
    "cat": _Compaction._cat,
    "stack": _Compaction._stack,
    "embedding": _Compaction._embed,
    LOSS: _Compaction._lose,
}


class _Pointwise(TorchDispatchMode):
    """Notes a call that does not treat every element alike."""

    def __init__(self) -> None:
        super().__init__()
        self.other = ""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        asks = function.namespace == "prim"  # for a device, a layout
        if torch.Tag.pointwise not in function.tags and function not in _COPIES and not asks:
            self.other = str(function)
        return function(*args, **(kwargs or {}))


def _run(node: fx.Node, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    if node.op == "call_method":
        return getattr(args[0], node.target)(*args[1:], **kwargs)
    return node.target(*args, **kwargs)
