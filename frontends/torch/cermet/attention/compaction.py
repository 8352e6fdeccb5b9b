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

import collections
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
import torch.fx as fx
from torch.utils._python_dispatch import TorchDispatchMode

from ..graph import dropouts, nodes
from ..graph.decision import Declined, Recalled
from ..graph.edit import is_pure, rewriting
from ..graph.effects import EFFECTFUL, PURE, WRITE, draws, effect_of
from ..graph.nodes import example
from ..graph.traffic import hint
from ..ops.attending import ATTEND, ATTEND_DROPPING
from . import axes, shown
from .axes import Axes, Batch, argument, expression, name_of
from .dense import Dense
from .readings import Kind
from .shown import LOSS

_ATTENTIONS = ATTEND, ATTEND_DROPPING
_aten = torch.ops.aten
_COPIES = {_aten._to_copy.default, _aten.clone.default, _aten.detach.default, _aten.alias.default}
_STEPS = 8  # calls between logits and their loss


def compact(module: fx.GraphModule, kind: Kind, recalls: bool) -> list[Recalled]:
    """Rewrites a graph whose attentions are over segments, in place, and adds what `Shown` tells it. `recalls`: whether
    logits may come from elsewhere. Raises Declined, and the graph is as it was."""
    if hint(kind.length) < 2:
        raise Declined("rows have one place")
    modules = list(nodes.modules(module))
    with rewriting(modules):
        return _Outermost(modules, Batch(expression(kind.rows), expression(kind.length))).run(recalls)


class _Compaction(Dense):
    """Of one graph: the outermost, or a body that it runs."""

    def __init__(self, module: fx.GraphModule, batch: Batch, mode: Any) -> None:
        super().__init__(module.graph, batch, mode)
        self.module = module
        self._dead: list[fx.Node] = []  # what was replaced, and is more than a number of its operands

    # The walk.

    def walk(self) -> None:
        """Makes what stands for the graph's values."""
        for node in list(self.graph.nodes):
            if node.op not in ("call_function", "call_method", "call_module"):
                continue
            effect, runs = effect_of(node, self.module).kind, nodes.bodies(self.module, node)
            if self._begins(node) or any(source in self.dense for source in node.all_input_nodes):
                drops = dropouts.dropped(node) is not None or node.target is ATTEND_DROPPING
                allowed = effect == EFFECTFUL and (runs or drops)
                if effect != PURE and not allowed:
                    raise Declined(f"{node.name} is more than a number of its operands")
                with self.graph.inserting_before(node.next):
                    try:
                        self._run_body(node, runs) if runs else self._follow(node)
                    except (AttributeError, IndexError, KeyError, TypeError) as error:
                        raise Declined(f"{node.name} is a call of another form: {error}") from error
            elif effect == WRITE or effect == EFFECTFUL and draws(node):
                raise Declined(f"{node.name} is not the same when it runs again")

    def sweep(self) -> None:
        """Removes what nothing reads any more."""
        for node in reversed(list(self.graph.nodes)):
            if not node.users and (is_pure(node, self.module) or node in self._dead):
                self.graph.erase_node(node)

    def _run_body(self, node: fx.Node, bodies: Sequence[fx.GraphModule]) -> None:
        raise Declined(f"{node.name} runs a body within a body")

    def _begins(self, node: fx.Node) -> bool:
        """Whether values of places begin with a call: it looks up words or positions."""
        if name_of(node) != "embedding":
            return False
        shape = [expression(size) for size in example(node.args[0]).shape]
        return shape in ([self.batch.rows, self.batch.length], [sympy.Integer(1), self.batch.length])

    def _follow(self, node: fx.Node) -> None:
        name = name_of(node)
        rule = _RULES.get(name)
        if node.target in _ATTENTIONS:
            rule = _Compaction._attend
        elif name in axes.MOVING:
            rule = _Compaction._move
        elif dropouts.dropped(node) is not None:
            rule = _Compaction._drop
        if rule is None:
            rule = _Compaction._each
        where = rule(self, node)
        if where is not None:
            new, place = where
            self.assert_shape(node, new, place)
            self.dense[node] = new, place

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
            source: self.alike(source, place, old.dim())
            for source in node.all_input_nodes
            if isinstance(example(source), torch.Tensor)
        }
        with _Pointwise() as seen:
            new = self.again(node, values)
        if seen.other:
            raise Declined(f"{node.name} ({seen.other}) may mix places")
        return new, place

    def _drop(self, node: fx.Node) -> tuple[fx.Node, Axes]:
        """A dropout. What is left out draws nothing, so that the masks are others than those of the graph of all
        places."""
        new, where = self.first(node)
        self._dead.append(node)
        return self.again(node, {dropouts.operand(node): new}), where

    def _move(self, node: fx.Node) -> tuple[fx.Node, Axes]:
        source = node.args[0]
        new, where = self.first(node)
        if name_of(node) == "getitem" and isinstance(example(source), (tuple, list)):
            return self.again(node, {source: new}), where[node.args[1]] if isinstance(where, tuple) else where
        return self.again(node, {source: new}), axes.moved(node, where)

    def _reshape(self, node: fx.Node) -> tuple[fx.Node, Axes]:
        source = node.args[0]
        new, where = self.first(node)
        where = self.batch.regrouped(where, example(source).shape, example(node).shape)
        return self.emit(node, "call_method", "reshape", (new, self.shape(node, where))), where

    def _expand(self, node: fx.Node) -> tuple[fx.Node, Axes]:
        new, where = self.first(node)
        where = where.behind(example(node).dim() - example(node.args[0]).dim())
        return self.emit(node, "call_method", "expand", (new, self.shape(node, where))), where

    def _along(self, node: fx.Node) -> tuple[fx.Node, Axes]:
        new, where = self.first(node)
        dimension = argument(node, axes.ALONG[name_of(node)], "dim", 1 if name_of(node) == "normalize" else None)
        axes.along(node, dimension, where, example(node).dim())
        return self.again(node, {node.args[0]: new}), where

    def _over_last(self, node: fx.Node) -> tuple[fx.Node, Axes]:
        new, where = self.first(node)
        rank, over = example(node).dim(), len(argument(node, 1, "normalized_shape"))
        axes.along(node, list(range(rank - over, rank)), where, rank)
        return self.again(node, {node.args[0]: new}), where

    def _linear(self, node: fx.Node) -> tuple[fx.Node, Axes]:
        """Also a product with a matrix."""
        new, where = self.first(node)
        matrix = argument(node, 1, "weight")
        axes.along(node, -1, where, example(node).dim())
        if matrix in self.dense or example(matrix).dim() != 2:
            raise Declined(f"{node.name} is a product of two values with places")
        return self.again(node, {node.args[0]: new}), where

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
        return self.again(node, {part: new for part, (new, _) in found.items()}), places.pop()

    def _embed(self, node: fx.Node) -> tuple[fx.Node, Axes]:
        indices = node.args[0]
        new, where = self.dense.get(indices, (None, Axes(1, 0)))
        if argument(node, 1, "weight") in self.dense:
            raise Declined(f"{node.name} looks up values with places")
        return self.again(node, {indices: new or self.gather(indices, where)}), where

    def _attend(self, node: fx.Node) -> tuple[fx.Node, Axes]:
        where = Axes(2, 0)
        if node.target is ATTEND_DROPPING:
            self._dead.append(node)
        return self.again(node, {each: self.alike(each, where, 4) for each in node.args[:3]}), where

    def _lose(self, node: fx.Node) -> None:
        """A loss, which ignores what is left out. What it gives has no places."""
        new, where = self.first(node)
        scores, labels = node.args[0], argument(node, 1, "target")
        if argument(node, 6, "reduction", "mean") not in ("mean", "sum"):
            raise Declined(f"{node.name} gives a loss for each place")
        if example(scores).dim() != 2 or where != Axes(0):
            raise Declined(f"{node.name} is of scores that are no rows of all places")
        if labels not in self.dense:
            labels_there = self.gather(labels, where)
        else:
            labels_there = self.alike(labels, where, 1)
        found = self.again(node, {scores: new, labels: labels_there})
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


class _Outermost(_Compaction):
    def __init__(self, modules: Sequence[fx.GraphModule], batch: Batch) -> None:
        super().__init__(modules[0], batch, shown.mode_of(modules[0].graph))
        self._calls = collections.Counter(
            body for module in modules for node in module.graph.nodes for body in nodes.bodies(module, node)
        )
        attentions = (node for module in modules for node in module.graph.nodes if node.target in _ATTENTIONS)
        self.tokens, self.index, self.place = self._inputs(example(next(attentions)).device)

    def _inputs(self, device: torch.device) -> list[fx.Node]:
        tokens = self.module.meta[shown.SIZE]
        with self.mode:
            values = [tokens, *(torch.empty(tokens, dtype=torch.int64, device=device) for _ in range(2))]
        found = [
            _placeholder(self.graph, f"{name}_of_shown", {"example_value": value})
            for name, value in zip(("tokens", "number", "place"), values)
        ]
        for node in found:
            node._dynamo_source = None  # type: ignore[attr-defined]  # AOTAutograd asks; no guard is about it
        return found

    def run(self, recalls: bool) -> list[Recalled]:
        self.walk()
        found = self._return(self.graph.output_node(), recalls)
        self.sweep()
        return found

    def _run_body(self, node: fx.Node, bodies: Sequence[fx.GraphModule]) -> None:
        """A body that no other call runs becomes one of shown places, and its call one of that."""
        (body,) = bodies if len(bodies) == 1 else (None,)
        places = body.graph.find_nodes(op="placeholder") if body is not None else []
        operands = node.args[1:]
        if body is None or self._calls[body] != 1 or len(places) != len(operands):
            raise Declined(f"{node.name} runs other than one body of its own")
        inner = _Body(self, body, dict(zip(places, operands)))
        values, where = inner.run()
        given = [self.dense[each][0] if each in self.dense else each for each in operands]
        call = self.graph.call_function(node.target, (node.args[0], *given, *inner.given), node.kwargs)
        call.meta = {**node.meta, "example_value": values}
        self.dense[node] = call, where
        self._dead.append(node)

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
                given[index] = self.emit(item, "call_method", "new_empty", (self.index, (0,)))
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


class _Body(_Compaction):
    """A graph that the outermost runs in one place."""

    def __init__(self, outer: _Outermost, module: fx.GraphModule, operands: dict[fx.Node, Any]) -> None:
        super().__init__(module, outer.batch, outer.mode)
        self._outer, self._operands = outer, operands
        self.given: dict[fx.Node, fx.Node] = {}  # what it is given of the outermost beside its operands

    def _of_outer(self, node: fx.Node) -> fx.Node:
        if node not in self.given:
            self.given[node] = _placeholder(self.graph, f"{node.name}_given", dict(node.meta))
        return self.given[node]

    @property
    def tokens(self) -> fx.Node:  # type: ignore[override]
        return self._of_outer(self._outer.tokens)

    @property
    def index(self) -> fx.Node:  # type: ignore[override]
        return self._of_outer(self._outer.index)

    @property
    def place(self) -> fx.Node:  # type: ignore[override]
        return self._of_outer(self._outer.place)

    def gather(self, node: fx.Node, where: Axes) -> fx.Node:
        operand = self._operands.get(node)
        if operand is None:
            return super().gather(node, where)
        there = self._outer.gather(operand, where)  # so that what all bodies read is gathered once
        return node if there is operand else self._of_outer(there)

    def run(self) -> tuple[Any, Any]:
        """The values that it gives, and where they have their axes."""
        before = [place for place, operand in self._operands.items() if operand in self._outer.dense]
        for place in before:
            new, where = self._outer.dense[self._operands[place]]
            with self.graph.inserting_after(place):
                stands = self.graph.placeholder(f"{place.name}_shown")
            stands.meta = {**place.meta, "example_value": example(new)}
            self.dense[place] = stands, where
        self.walk()
        output = self.graph.output_node()
        items = output.args[0]
        several = isinstance(items, (tuple, list))
        results = list(items) if several else [items]
        if not all(item in self.dense for item in results):
            raise Declined(f"{output.name} of a body gives values without places, too")
        found = [self.dense[item] for item in results]
        output.args = (tuple(new for new, _ in found),) if several else (found[0][0],)
        self.sweep()
        for place in before:
            self.graph.erase_node(place)
        values, where = (tuple(each) for each in zip(*((example(new), where) for new, where in found)))
        return (values, where) if several else (values[0], where[0])


def _placeholder(graph: fx.Graph, name: str, meta: dict[str, Any]) -> fx.Node:
    """Behind the others."""
    with graph.inserting_after(graph.find_nodes(op="placeholder")[-1]):
        node = graph.placeholder(name)
    node.meta = meta
    return node
