"""Products that take the memory of what they multiply, in a backward.

What a forward made for one call of its backward, as the gradient of logits, is multiplied by the cotangent there
(ops/scaling.py), which may happen in its place where nothing else in the graph reads it.
"""

from __future__ import annotations

import torch.fx as fx

from ..ops import scaling
from ..rematerialization import costs


def reuse(graph: fx.Graph) -> int:
    """Tells such products of a backward that they are the last; returns how many."""
    times = 0
    for node in graph.nodes:
        if node.target is not scaling.op():
            continue
        value, scale, key, _ = node.args
        if len(value.users) == 1 and not costs.is_view(value):
            node.args = (value, scale, key, True)
            times += 1
    return times
