"""Sizes of a graph's inputs that vary from call to call.

Dynamo gives each tensor's size a symbol of its own where it has seen that vary, or was told that it does. So the words
of a batch, their mask and their labels have three symbols for the number of rows, and what holds for one of them is
known of no other: a loss's labels, a mask's rows. They have one again under a guard that they are equal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.fx as fx

from .nodes import example


def unify(module: fx.GraphModule) -> None:
    """Asks whether symbols of integer inputs of two dimensions are equal where all sizes at hand are. A guard."""
    first: dict[tuple[int, ...], torch.Tensor] = {}
    for value in _batches(module):
        at_hand = tuple(size.node.hint if isinstance(size, torch.SymInt) else size for size in value.shape)
        if None in at_hand:
            continue
        for size, other in zip(value.shape, first.setdefault(at_hand, value).shape):
            if _is_symbol(size) and _is_symbol(other):  # else it would become a number
                assert size == other, f"{size} and {other} are equal at hand"


def _is_symbol(size: int | torch.SymInt) -> bool:
    return isinstance(size, torch.SymInt) and size.node.expr.is_symbol


def _batches(module: fx.GraphModule) -> Iterator[Any]:
    for node in module.graph.nodes:
        value = example(node) if node.op == "placeholder" else None
        if isinstance(value, torch.Tensor) and value.dim() == 2 and not value.is_floating_point():
            yield value
