"""What decides how many rows a head multiplies is asked before anything else runs.

The labels are an input, moved by one and flattened; a head that looks at them waits for all that runs before it. What
makes them so comes first in the graph, then the question, whose answer the head finds (loss/kept.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.fx as fx

from ..graph.effects import PURE, effect_of
from ..graph.nodes import example, target_name
from ..graph.traffic import hint
from ..loss import chunks

_HEAD = "cermet_v1.linear_rows_"
_MOST = 16  # calls that are made earlier
_LARGEST = 1 << 22  # numbers that one of them gives


def asked(module: fx.GraphModule) -> tuple[list[fx.Node], dict[fx.Node, list[chunks.Call]]]:
    """The nodes of a graph in an order of the same results, and of which heads may be asked behind which of them."""
    order, behind = list(module.graph.nodes), {}
    for head in [node for node in order if target_name(node).startswith(_HEAD)]:
        call = chunks.call_of(target_name(head), *head.args)
        needed = _needed(module, call.operands)
        if not needed:
            continue
        early = [node for node in order if node in needed]
        late = [node for node in order if node not in needed or node.op == "placeholder"]
        inputs = sum(node.op == "placeholder" for node in late)
        order = late[:inputs] + [node for node in early if node.op != "placeholder"] + late[inputs:]
        behind.setdefault(max(needed, key=order.index), []).append(call)
    return order, behind


def _needed(module: fx.GraphModule, operands: Sequence[fx.Node]) -> set[fx.Node] | None:
    """What operands are made of; None where that is much, or from something that the graph writes."""
    needed: set[fx.Node] = set()
    pending = list(operands)
    while pending:
        node = pending.pop()
        if node in needed:
            continue
        needed.add(node)
        pending += node.all_input_nodes
        written = any(node in effect_of(user, module).written for user in node.users)
        if len(needed) > _MOST or written or not _is_small(node, module):
            return None
    return needed


def _is_small(node: fx.Node, module: fx.GraphModule) -> bool:
    """An input, or a call of few numbers that does nothing else."""
    value = example(node)
    if node.op == "placeholder":
        return isinstance(value, (torch.Tensor, int, torch.SymInt))
    if node.op != "call_function" or effect_of(node, module).kind != PURE:
        return False
    return isinstance(value, torch.Tensor) and math.prod(map(hint, value.shape)) <= _LARGEST
