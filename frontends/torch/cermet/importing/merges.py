"""Views that merge dimensions into a product of symbols, taken before the elementwise calls that they follow.

`logits.float().view(-1, vocabulary)` of logits [4, s, vocabulary] has 4 * s rows. A region cannot hold that view: what
it knows of rows are symbols, and that one is the product of others only torch knows. So the region begins behind the
view, and what was made before it stays outside: a cast in its full size. Elementwise, the other order gives the same
numbers, `logits.view(-1, vocabulary).float()`, and the region takes the cast in. Where sizes are numbers or stay what
they are, views are left where they stand.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
import torch.fx as fx

from ..graph import fakes
from ..graph.effects import PURE, effect_of
from ..graph.layouts import written
from ..graph.nodes import example
from .translations.elementwise import UNARY
from .translations.operators import spelling

_ELEMENTWISE = {*UNARY, "cast", "add", "sub", "mul", "div"}


def hoist(module: fx.GraphModule, kept: Collection[fx.Node] = ()) -> None:
    """In place; `kept` stay in the graph even where nothing reads them any more."""
    for view in list(module.graph.nodes):
        if spelling(view) == "reshape" and _merges(view):
            chain = _chain(view, module)
            if chain:
                _reorder(module.graph, view, chain, kept)


def _merges(view: fx.Node) -> bool:
    """Whether a view has a dimension that its operand has not, and is neither a number nor a symbol."""
    made, source = example(view), _operand(view)
    if source is None or not isinstance(made, torch.Tensor) or getattr(made, "fake_mode", None) is None:
        return False
    known = set(map(written, example(source).shape))
    return any(not isinstance(size, int) and written(size) not in known for size in made.shape)


def _operand(node: fx.Node) -> fx.Node | None:
    """The tensor that a call's first argument is, if it reads no other."""
    first = node.args[0] if node.args else None
    tensors = [each for each in node.all_input_nodes if isinstance(example(each), torch.Tensor)]
    return first if tensors == [first] else None


def _chain(view: fx.Node, module: fx.GraphModule) -> list[fx.Node]:
    """The elementwise calls before a view that nothing else reads, the last one first."""
    chain: list[fx.Node] = []
    node, reader = _operand(view), view
    while node is not None and spelling(node) in _ELEMENTWISE and set(node.users) == {reader}:
        source = _operand(node)
        if source is None or list(map(written, example(source).shape)) != list(map(written, example(node).shape)):
            break
        between, each = [], node
        while each is not reader:
            between.append(each)
            each = each.next
        if any(effect_of(each, module).kind != PURE for each in between if each.op.startswith("call")):
            break
        chain.append(node)
        node, reader = source, node
    return chain


def _reorder(graph: fx.Graph, view: fx.Node, chain: list[fx.Node], kept: Collection[fx.Node]) -> None:
    order, operands = [view, *reversed(chain)], [_operand(view), *map(_operand, reversed(chain))]
    values = [example(operands[1])]
    try:
        for node, operand in zip(order, operands):
            values.append(fakes.result(node, {operand: values[-1]}))
    except (RuntimeError, ValueError):  # a view of what a call has made, and not of what it reads
        return
    if form(values[-1]) != form(example(view)):
        return
    made = operands[1]
    with graph.inserting_before(view):
        for node, operand, value in zip(order, operands, values[1:]):
            before = made
            made = graph.node_copy(node, lambda each: before if each is operand else each)
            made.meta = {**node.meta, "example_value": value}
    view.replace_all_uses_with(made)
    for node in (view, *chain):
        if node not in kept and not node.users:
            graph.erase_node(node)


def form(value: torch.Tensor) -> tuple[object, ...]:
    return value.dtype, list(map(written, value.shape)), list(map(written, value.stride()))
