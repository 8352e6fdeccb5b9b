"""Which places of a batch are shown, as a graph of those alone is told it (compaction.py)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
import torch
import torch.fx as fx
import torch.nn.functional as F
from torch._dynamo.source import ConstantSource
from torch.fx.experimental.symbolic_shapes import DimDynamic

from ..graph import nodes
from ..graph.decision import Declined
from ..graph.nodes import example
from ..graph.traffic import hint
from .axes import Batch, argument, expression, name_of
from .proof.functions import Functions
from .readings import Kind, Reading, Sizes, Values, are_small, extents, laid

LOSS = "cross_entropy"
_LEAST = 2  # places: a symbol is no smaller size


class Shown(Reading):
    """Of a graph of shown places alone. It is given the ends of its rows, how many places are shown, and of each its
    number among all and its place in its row. Places that are hidden must have the label that each loss ignores."""

    given = 5  # inputs that the graph has behind those of the traced one

    def __init__(
        self, module: fx.GraphModule, kind: Kind, functions: Functions, targets: Sequence[tuple[fx.Node, int]]
    ) -> None:
        super().__init__(module, [kind], functions, [node for node, _ in targets])
        self._targets = targets
        self.looked = False  # at what the graph of all places makes: then it shall run at once

    def __call__(self, arguments: Sequence[Any]) -> list[Any] | None:
        return None if self.looked else super().__call__(arguments)

    def sized(self, shape: Sequence[Any], arguments: Sequence[Any]) -> list[int]:
        """A traced shape of a call of these arguments."""
        sizes = self.sizes_of(arguments)
        return [size if isinstance(size, int) else int(size.node.expr.xreplace(sizes)) for size in shape]

    def told(self, values: Values, sizes: Sizes) -> list[Any] | None:
        kind = self.kinds[0]
        rows, length = extents(kind, sizes)
        if not rows or not length:
            return None
        shown = laid(kind.segments.shown, values, rows, length).expand(rows, length)
        hidden = shown == 0
        ignored = [(values[node].reshape(rows, length) == label) | ~hidden for node, label in self._targets]
        holds = [*are_small(kind, values), (hidden | (shown == 1)).all(), *(each.all() for each in ignored)]
        count = (~hidden).sum(-1)
        ends = F.pad(count.cumsum(0), (1, 0))
        said = [torch.stack([*holds, hidden.any()]).all().long(), ends[-1], count.amax()]
        ok, tokens, longest = torch.stack(said).tolist()  # the wait
        if not ok or tokens < _LEAST:
            return None
        index = torch.nonzero_static(~hidden.reshape(-1), size=tokens).view(-1)
        told = torch.tensor([rows, longest, longest], dtype=torch.int64)
        return [ends.int(), told, tokens, index, index % length]


# --- Labels ----------------------------------------------------------------------------------------------------------


def targets(module: fx.GraphModule, kind: Kind) -> list[tuple[fx.Node, int]]:
    """The labels of a graph's losses, and which is ignored. Raises Declined where it has none that leaves some out."""
    batch = Batch(expression(kind.rows), expression(kind.length))
    found = []
    for owner, node in [(part, node) for part in nodes.modules(module) for node in part.graph.nodes]:
        if name_of(node) != LOSS:
            continue
        if owner is not module:
            raise Declined(f"{node.name} is in a body")
        labels = argument(node, 1, "target")
        if not isinstance(labels, fx.Node) or example(labels).is_floating_point():
            raise Declined(f"{node.name} compares with other than labels")
        if sympy.prod(map(expression, example(labels).shape)) != batch.rows * batch.length:
            raise Declined(f"{node.name} has not one label for each place")
        found.append((labels, int(argument(node, 4, "ignore_index", -100))))
    if not found:
        raise Declined("the graph has no loss that leaves labels out")
    return found


# --- The size that varies --------------------------------------------------------------------------------------------

SIZE = "tokens_of_shown"


def name_size(module: fx.GraphModule, kind: Kind) -> None:
    """Gives a graph a symbol for how many places are shown, which no input of the traced graph has. Raises Declined."""
    mode = mode_of(module.graph)
    count = hint(kind.rows) * hint(kind.length)
    at_hand = max(3, count * 3 // 4 | 1)  # odd, so that nothing is taken to be a multiple of anything
    source = ConstantSource("__tokens_of_shown")
    symbol = mode.shape_env.create_symbol(at_hand, source, dynamic_dim=DimDynamic.DYNAMIC, constraint_dim=None)
    module.meta[SIZE] = mode.shape_env.create_symintnode(symbol, hint=at_hand, source=source)


def own_size(module: fx.GraphModule) -> sympy.Symbol | None:
    """The symbol that `name_size` gave a graph."""
    size = module.meta.get(SIZE)
    return size.node.expr if size is not None else None


def mode_of(graph: fx.Graph) -> Any:
    modes = (getattr(example(node), "fake_mode", None) for node in graph.nodes)
    mode = next((mode for mode in modes if mode is not None), None)
    if mode is None or mode.shape_env is None:
        raise Declined("the graph was traced without symbolic sizes")
    return mode
