"""Pieces of a packed product that a backward reads get memory of their own, where the rest could go.

Queries, keys and values out of one product are views of it. A rotation's gradient needs neither queries nor keys, but
attention's needs the values, and with them the whole product stays until then: three times what is read. One copy of
the values in the forward pass lets it go. Where more than half of a product is read, it stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx
import torch.nn.functional as F

from .. import environment
from ..graph import memory, nodes
from ..graph.decision import Declined, Region
from ..graph.edit import rewriting
from ..graph.effects import PURE, effect_of
from ..graph.nodes import example
from ..ops import regions
from .calls import consequences

_PRODUCTS = (F.linear, torch.matmul, torch.ops.aten.linear.default)


def release(module: fx.GraphModule, done: Sequence[Region]) -> int:
    """Copies such pieces in a graph whose regions are replaced (`done`), in place; returns how many.

    On an exception the graph and its bodies are as they were.
    """
    if environment.check():  # its ops keep what they compare
        return 0
    modules = [part for part in nodes.modules(module) if any(node.target in _PRODUCTS for node in part.graph.nodes)]
    read = {(region.key, tuple(region.operands)): _read_later(region) for region in done if region.head is None}
    copies = [(part, *copy) for part in modules for copy in _copies(part, read)]
    if not copies:
        return 0
    with rewriting(modules):
        for part, piece, values in copies:
            with part.graph.inserting_after(piece):
                copy = part.graph.call_method("clone", (piece,), {"memory_format": torch.contiguous_format})
            copy.meta = {**piece.meta, "example_value": values[piece]}
            piece.replace_all_uses_with(copy, delete_user_cb=lambda user: user is not copy)
            for node, value in values.items():
                if node is not piece:
                    node.meta["example_value"] = value
    return len(copies)


def _read_later(region: Region) -> set[int]:
    """The operands that a region's backward reads."""
    if region.wanted is None:
        return set()
    inputs = regions.gradient(region.key, region.wanted, region.like).backward_inputs
    return {index for origin, index in inputs if origin == "input"}


_Read = dict[tuple[int, tuple[fx.Node, ...]], set[int]]


def _copies(module: fx.GraphModule, read: _Read) -> list[tuple[fx.Node, dict[fx.Node, torch.Tensor]]]:
    """The pieces to copy, and the values that they and what is made of them then have."""
    found = []
    for node in module.graph.nodes:
        if node.target not in _PRODUCTS or not isinstance(example(node), torch.Tensor):
            continue
        if not example(node).requires_grad:
            continue
        kept = [piece for piece in _pieces(module, node, read) if _is_kept(piece, read)]
        if not kept or 2 * sum(map(_size, kept)) > _size(node):
            continue
        try:
            found += [(piece, _values(module, piece)) for piece in kept]
        except Declined:
            continue
    return found


def _pieces(module: fx.GraphModule, product: fx.Node, read: _Read) -> list[fx.Node]:
    """The views of parts of a product; none where a backward may read all of it."""
    found, pending = [], [product]
    while pending:
        node = pending.pop()
        if effect_of(node, module).kind != PURE:
            return []
        for user in node.users:
            value = example(user)
            several = isinstance(value, (tuple, list)) and bool(value) and not _is_region(user)
            if not several and not _is_view(user, product):
                if _reads_later(user, node, read):
                    return []
            elif several or _size(user) == _size(product):
                pending.append(user)
            else:
                found.append(user)
    return found


def _is_view(node: fx.Node, of: fx.Node) -> bool:
    value = example(node)
    if node.op == "output" or not isinstance(value, torch.Tensor):
        return False
    return memory.shared(value, example(of))


def _size(node: fx.Node) -> Any:
    value = example(node)
    return value.numel() * value.element_size()


def _is_kept(piece: fx.Node, read: _Read) -> bool:
    """Whether a backward may read a piece."""
    pending = [piece]
    while pending:
        node = pending.pop()
        views = [user for user in node.users if _is_view(user, piece)]
        if any(_reads_later(user, node, read) for user in node.users if user not in views):
            return True
        pending += views
    return False


def _reads_later(user: fx.Node, node: fx.Node, read: _Read) -> bool:
    """Whether a call's backward reads an operand, as far as is known."""
    later = read.get((user.args[-1], user.args[:-1])) if _is_region(user) else None
    return later is None or any(user.args[index] is node for index in later)


def _is_region(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target.name().startswith(
        f"{regions.NAMESPACE}::region_"
    )


def _values(module: fx.GraphModule, piece: fx.Node) -> dict[fx.Node, torch.Tensor]:
    old = example(piece)
    mode = getattr(old, "fake_mode", None)
    if mode is None:
        raise Declined("the graph was traced without fake tensors")
    with mode, torch.set_grad_enabled(old.requires_grad):
        value = old.detach().requires_grad_(old.requires_grad).clone(memory_format=torch.contiguous_format)
    return {piece: value, **consequences(module, piece, value, {})}
