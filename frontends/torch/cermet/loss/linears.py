"""What a linear layer's result is made of, or that of several which are added."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.fx as fx
import torch.nn.functional as F

from ..graph.nodes import example
from . import chunks, terms


class Linear(NamedTuple):
    """What a linear layer reads, and what is added to its result (terms.py)."""

    hidden: fx.Node
    weight: fx.Node
    bias: fx.Node | None
    others: tuple[fx.Node, ...] = ()  # of each term the hidden state and the weight
    factors: tuple[float, ...] = ()  # of the terms

    def arguments(self) -> tuple[fx.Node | None, ...]:
        """As ops take them."""
        return (*self[:3], *self.others)

    def nodes(self) -> list[fx.Node]:
        return [node for node in self.arguments() if node is not None]

    def hiddens(self) -> list[fx.Node]:
        return [self.hidden, *self.others[::2]]

    def chunk_rows(self, budget: int, recorded: bool) -> int:
        """The rows of a piece of logits, or 0 where all are made at once (chunks.py); `recorded`: their gradient is
        wanted as far as the operands' are."""
        hidden, weight = example(self.hidden), example(self.weight)
        others = [example(node) for node in self.others[1::2] if recorded and example(node).requires_grad]
        apart = any(example(node).requires_grad for node in self.others[::2])
        of_hidden = recorded and (hidden.requires_grad or apart)
        return chunks.chunk_rows(hidden, weight, budget, of_hidden, recorded and weight.requires_grad, others)

    def forms(self) -> list[tuple[torch.dtype, int]]:
        """Types and widths of the hidden states and the weights."""
        pairs = ((self.hidden, self.weight), *zip(self.others[::2], self.others[1::2]))
        return [(example(node).dtype, int(example(pair[1]).shape[1])) for pair in pairs for node in pair]

    def parameters(self) -> list[fx.Node]:
        """The weights and the bias."""
        return [node for node in (self.weight, self.bias, *self.others[1::2]) if node is not None]


def linear_operands(node: fx.Node) -> Linear | None:
    """Those of a linear layer, or of the sum that stands for several; None where a node is neither."""
    if node.op != "call_function":
        return None
    if node.target in (F.linear, torch.ops.aten.linear.default):
        given = dict(zip(("input", "weight", "bias"), node.args)) | dict(node.kwargs)
        hidden, weight, bias = (given.get(name) for name in ("input", "weight", "bias"))
        plain = isinstance(hidden, fx.Node) and isinstance(weight, fx.Node) and isinstance(bias, (fx.Node, type(None)))
        return Linear(hidden, weight, bias) if plain else None
    count = len(node.args) // 3 - 1
    if not 1 <= count <= terms.MOST_TERMS or node.target is not terms.op(count):
        return None
    return Linear(*node.args[:3], tuple(node.args[3 : 3 + 2 * count]), tuple(node.args[3 + 2 * count :]))
