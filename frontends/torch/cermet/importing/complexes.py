"""Complex values, of which the dialect has the pairs that they are in memory: `[..., n]` of complex64 is `[..., n, 2]`
of f32, as `torch.view_as_real` says.

A rotation that is written as a product of complex numbers is arithmetic on such pairs (complex.py). What
it multiplies by comes from elsewhere, as complex numbers; a region reads memory of real ones. So the graph gets that
view of each such factor before it is imported, and keeps those that a region reads.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
import torch.fx as fx

from ..graph.nodes import example
from .translations.operators import spelling

_MADE_HERE = ("view_as_complex", "mul")


def is_complex(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_complex()


def add_views(module: fx.GraphModule) -> list[fx.Node]:
    """Views of the factors of complex products as pairs of real numbers, each right behind its factor, in place."""
    factors = [
        factor
        for node in module.graph.nodes
        if spelling(node) == "mul" and is_complex(example(node))
        for factor in node.all_input_nodes
        if is_complex(example(factor)) and spelling(factor) not in _MADE_HERE
    ]
    views = []
    for factor in dict.fromkeys(factors):
        value = example(factor)
        mode = getattr(value, "fake_mode", None)
        if mode is None or value.layout != torch.strided or value.is_conj() or value.is_neg():
            continue
        place = factor
        while place.next.op == "placeholder":
            place = place.next
        with module.graph.inserting_after(place):
            view = module.graph.call_function(torch.view_as_real, (factor,))
        view.meta = {key: value for key, value in factor.meta.items() if key in ("stack_trace", "nn_module_stack")}
        with mode, torch.no_grad():
            view.meta["example_value"] = torch.view_as_real(value.detach())
        views.append(view)
    return views


def drop_views(module: fx.GraphModule, views: Collection[fx.Node], kept: Collection[fx.Node]) -> None:
    """Removes the views that nothing reads, but for those that are `kept`."""
    for view in views:
        if view not in kept and not view.users:
            module.graph.erase_node(view)
