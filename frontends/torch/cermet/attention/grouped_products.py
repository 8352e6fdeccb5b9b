"""Products of queries with repeated heads, of an attention that is written out, become products of groups of queries.

The queries of the heads that share one stand below each other: one product of them with that head, where there was one
of each with a copy of it. Nothing repeats keys and values then, and their gradients are sums inside of a product.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.fx as fx

from ..graph import fakes, layouts, nodes
from ..graph.edit import erase_unused, is_pure, rewriting
from ..graph.layouts import written
from ..graph.nodes import example
from .calls import PRODUCTS, TURNS
from .grouped import Shared


def apply(module: fx.GraphModule) -> int:
    """Groups the queries of a graph's products, and of its bodies', in place; returns of how many.

    On an exception the graph and its bodies are as they were.
    """
    modules = list(nodes.modules(module))
    products = [(part, node) for part in modules for node in part.graph.nodes if _is_product(node)]
    if not products:
        return 0
    shared = Shared(modules)
    changes = [change for part, node in products if (change := _change(part, node, shared)) is not None]
    if changes:
        with rewriting(modules):
            for change in changes:
                change.apply()
    return len(changes)


def _is_product(node: fx.Node) -> bool:
    """Of four dimensions each, of which the first two are the same."""
    if node.op not in ("call_function", "call_method") or node.target not in PRODUCTS or node.kwargs:
        return False
    tensors = [example(each) for each in node.args if isinstance(each, fx.Node)]
    if len(tensors) != 2 or any(getattr(each, "fake_mode", None) is None for each in (*tensors, example(node))):
        return False
    left, right = ([*map(written, each.shape)] for each in tensors)
    made = example(node)
    dense = [*map(written, made.stride())] == [*map(written, layouts.strides(made.shape, None))]
    return len(left) == len(right) == 4 and left[:2] == right[:2] and dense


@dataclasses.dataclass(frozen=True)
class _Change:
    module: fx.GraphModule
    node: fx.Node
    source: fx.Node  # the heads that are shared
    turned: bool  # whether the product is with their transposes

    def apply(self) -> None:
        graph, node, value = self.node.graph, self.node, example(self.node)
        left, repeated = node.args
        batch, heads, rows, width = example(left).shape
        shared = example(self.source)
        groups, columns = shared.shape[1], value.shape[-1]
        each = heads // groups

        def call(like: fx.Node, made: torch.Tensor, name: str, *arguments: object) -> fx.Node:
            new = graph.call_method(name, arguments)
            new.meta = {**like.meta, "example_value": made}
            return new

        with graph.inserting_before(node):
            apart = _viewed(example(left), [batch, groups, each, rows, width], 1)
            queries = call(left, apart, "unflatten", left, 1, (groups, each))
            below = _viewed(apart, [batch, groups, each * rows, width], 2)
            queries = call(left, below, "flatten", queries, 2, 3)
            right = self.source
            if written(shared.stride(0)) != written(groups * shared.stride(1)):  # a product copies it, as it stands
                shared = _fresh(shared, list(shared.shape))
                right = call(self.source, shared, "contiguous", right)
            if self.turned:
                (*outer, down, along), (*sizes, keys, inner) = shared.stride(), shared.shape
                turned = fakes.view(shared, [*sizes, inner, keys], [*outer, along, down])
                right = call(self.source, turned, "transpose", right, 2, 3)
            made = _fresh(value, [batch, groups, each * rows, columns])
            product = call(node, made, "matmul", queries, right)
            split = _viewed(made, [batch, groups, each, rows, columns], 2)
            split_rows = call(node, split, "unflatten", product, 2, (each, rows if isinstance(rows, int) else -1))
            result = call(node, _viewed(split, [*value.shape], 1), "flatten", split_rows, 1, 2)
        node.replace_all_uses_with(result)
        graph.erase_node(node)
        if not repeated.users and is_pure(repeated, self.module):
            erase_unused(self.module, [repeated])


def _change(module: fx.GraphModule, node: fx.Node, shared: Shared) -> _Change | None:
    left, right = node.args
    turned = right.target in TURNS and {dim % 4 for dim in right.args[1:] if isinstance(dim, int)} == {2, 3}
    source = shared.source(right.args[0] if turned else right, example(left))
    return None if source is None else _Change(module, node, source, turned)


def _viewed(value: torch.Tensor, dims: list[Any], dim: int) -> torch.Tensor:
    """With a dimension taken apart, or merged with the next: in the same memory where it lies so."""
    old, strides = list(value.shape), list(value.stride())
    if len(dims) > len(old):
        strides.insert(dim, dims[dim + 1] * strides[dim])
    elif written(strides[dim]) == written(old[dim + 1] * strides[dim + 1]):
        del strides[dim]
    else:
        return _fresh(value, dims)
    return fakes.view(value, dims, strides)


def _fresh(value: torch.Tensor, dims: list[Any]) -> torch.Tensor:
    return fakes.fresh(value, dims, layouts.strides(dims, None), value.dtype, value.requires_grad)
