"""Sums beside products of matrices, where what is added is repeated: attention with biases by distance.

ATen writes what is repeated as large as the product, which the library then reads, adds to and writes. Apart, the sum
is elementwise, and belongs to the kernel that reads it: a softmax, which rounds nothing between. A product of a beta of
0 reads none of what it would be added to.
"""

from __future__ import annotations

import torch
import torch.fx as fx

from ...graph.nodes import example
from ...graph.traffic import judged, size_of
from .rewriting import Rewriting

_aten = torch.ops.aten


def part(graph: fx.Graph) -> int:
    """In place, in a functional graph; returns how many products are by themselves."""
    writing = Rewriting(graph)
    for node in graph.find_nodes(op="call_function", target=_aten.baddbmm.default):
        if not _adds_repeated(node):
            continue
        added, lhs, rhs = node.args[:3]
        with graph.inserting_before(node):
            factor = node.kwargs.get("alpha", 1)
            if factor == 1:
                product = writing.call(node, _aten.bmm.default, lhs, rhs)
            else:  # applied before anything is rounded: without it the product may be beyond f16
                product = writing.call(node, node.target, added, lhs, rhs, beta=0, alpha=factor)
            total = writing.call(node, _aten.add.Tensor, added, product)
        writing.replace(node, total)
    writing.erase_dead()
    return writing.times


def _adds_repeated(node: fx.Node) -> bool:
    added, value = example(node.args[0]), example(node)
    if node.kwargs.get("beta", 1) != 1 or not value.is_floating_point() or added.dtype != value.dtype:
        return False
    return 2 * size_of(added, judged) <= size_of(value, judged)
