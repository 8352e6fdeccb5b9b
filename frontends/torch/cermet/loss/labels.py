"""The labels that a region's losses read, looked at under CERMET_CHECK=1 before any kernel does: a message can name the
row, and the operations that the region replaced never see a label that ends the process on a GPU.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
import torch.fx as fx

from ..graph.nodes import example
from ..importing.translations.operators import spelling

_LOSSES = ("cross_entropy", "cross_entropy_loss", "nll", "nll_loss")


@dataclasses.dataclass(frozen=True)
class Labels:
    """`module` takes what the unfused graph takes and returns the labels of each of its losses."""

    module: fx.GraphModule
    bounds: tuple[tuple[int, int], ...]  # of each: how many classes there are, and the label that is ignored

    def check(self, arguments: Sequence[torch.Tensor | int], place: str) -> None:
        """Raises:
        IndexError: a label is neither one of the classes nor ignored; with its row.
        """
        for labels, (classes, ignored) in zip(self.module(*arguments), self.bounds):
            labels = labels.reshape(-1)
            wrong = ((labels < 0) | (labels >= classes)) & (labels != ignored)
            if wrong.any():
                row = int(wrong.nonzero()[0])
                raise IndexError(
                    f"Target {int(labels[row])} is out of bounds: {place}, row {row}; expected 0 to {classes - 1} (a "
                    f"vocabulary of {classes}), or ignore_index, {ignored}"
                )


def labels_of(owner: torch.nn.Module, graph: fx.Graph, members: Sequence[tuple[fx.Node, fx.Node]]) -> Labels | None:
    """Of a graph that has no output yet; `members`: nodes as they were traced, each with its copy in the graph."""
    copies = fx.Graph()
    values: dict[fx.Node, fx.Node] = {}
    copies.graph_copy(graph, values)
    labels, bounds = [], []
    for node, copy in members:
        if spelling(node) not in _LOSSES:
            continue
        scores, label = (_argument(node, place, name) for place, name in ((0, "input"), (1, "target")))
        classes = example(scores if scores is not None else node.kwargs["self"]).shape[-1]
        ignored = _argument(node, 4, "ignore_index")
        if isinstance(classes, int) and isinstance(label, fx.Node):
            labels.append(values[_argument(copy, 1, "target")])
            bounds.append((classes, -100 if ignored is None else int(ignored)))
    if not labels:
        return None
    copies.output(tuple(labels))
    copies.eliminate_dead_code()
    return Labels(fx.GraphModule(owner, copies), tuple(bounds))


def _argument(node: fx.Node, place: int, name: str) -> fx.node.Argument:
    return node.args[place] if place < len(node.args) else node.kwargs.get(name)
