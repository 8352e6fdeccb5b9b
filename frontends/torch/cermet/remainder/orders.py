"""Memory orders that tracing may have wrong.

Of an elementwise call whose operands lie in several orders, torch's fake tensors may have another order than the kernel
gives (`softplus_backward` of operands of which one is transposed has). A view of such a value, or of what follows from
it, may need a copy, which tracing did not see.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
import torch.fx as fx

from ..graph.memory import is_view
from ..graph.nodes import example
from ..graph.traffic import hint
from .views import only_looks


def unsure(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """Those whose strides may be others than those that were traced; `nodes` are in the order of a graph."""
    found: set[fx.Node] = set()
    for node in nodes:
        value = example(node)
        if node.op != "call_function" or not isinstance(value, torch.Tensor):
            continue
        operands = [each for each in node.all_input_nodes if isinstance(example(each), torch.Tensor)]
        if not found.isdisjoint(operands):
            if only_looks(node) or is_view(node) or not found.isdisjoint(_alike(node, operands)):
                found.add(node)
        elif len(operands) > 1 and _have_several_orders(_alike(node, operands)):
            found.add(node)
    return found


def _alike(node: fx.Node, operands: Sequence[fx.Node]) -> list[fx.Node]:
    """The operands of a call of ATen's that have the sizes of its result."""
    if not str(node.target).startswith("aten."):
        return []
    sizes = list(map(hint, example(node).shape))
    return [each for each in operands if list(map(hint, example(each).shape)) == sizes]


def _have_several_orders(nodes: Sequence[fx.Node]) -> bool:
    orders = [_order(example(each)) for each in nodes]
    return any(_differ(one, other) for one, other in itertools.combinations(orders, 2))


def _order(value: torch.Tensor) -> list[int]:
    """The dimensions along which there is more than one element, from outermost to innermost in memory."""
    strides = [hint(stride) if hint(size) > 1 else 0 for size, stride in zip(value.shape, value.stride())]
    return sorted((axis for axis, stride in enumerate(strides) if stride), key=lambda axis: -strides[axis])


def _differ(one: list[int], other: list[int]) -> bool:
    return [axis for axis in one if axis in other] != [axis for axis in other if axis in one]
