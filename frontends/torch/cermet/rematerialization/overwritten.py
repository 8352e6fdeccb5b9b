"""Inputs that a forward writes: what a backward needs of them is what they had before.

A joint graph reads such an input as it was, and copies its new value into it behind all else. Kept as it is, or read
once more where something is made again, it would be the new one. (torch's own partitioner does both; a backward that
reads it itself eager refuses.)
"""

from __future__ import annotations

import torch
import torch.fx as fx
from torch.utils.checkpoint import CheckpointPolicy

from ..graph.memory import is_view

_aten = torch.ops.aten


def inputs(graph: fx.Graph) -> frozenset[fx.Node]:
    """Those that a joint graph copies something into."""
    copies = graph.find_nodes(op="call_function", target=_aten.copy_.default)
    return frozenset(copy.args[0] for copy in copies if copy.args[0].op == "placeholder")


def forbid(graph: fx.Graph) -> None:
    """Asks torch's partitioner, which keeps such an input as if nothing wrote it, to keep what is computed of it."""
    for node in inputs(graph):
        for user in node.users:
            _keep(user)


def _keep(node: fx.Node) -> None:
    if is_view(node):
        for user in node.users:
            _keep(user)
    elif node.op == "call_function" and node.target is not _aten.copy_.default:
        node.meta["recompute"] = CheckpointPolicy.MUST_SAVE
