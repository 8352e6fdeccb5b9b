"""Heads whose logits come in pieces make them as one piece where that raises no peak.

Pieces take time: a sum in f32 of the weight's gradient is read and written for each. They save memory while the loss is
made; where more is held at another time, as where the gradients of many weights are, they save none of the step's.
"""

from __future__ import annotations

import dataclasses
import math

import torch.fx as fx

from ..graph.nodes import example, target_name
from ..loss import chunks
from . import liveness

_HEAD = "cermet_v1.linear_rows_"
_SUMMED = 8  # bytes that each piece moves for each element of a weight's gradient, which is summed in f32


def join(forward: fx.GraphModule, backward: fx.GraphModule, price: float | None) -> int:
    """In place, in a forward whose head makes gradients; returns how many heads. `price`: of keeping values; pieces that
    save more than that for each byte that they move stay, since a caller may hold what is not seen here."""
    heads = [node for node in forward.graph.nodes if target_name(node).startswith(_HEAD) and _gains(node, price)]
    return sum(_join(forward, backward, node) for node in heads)


def _gains(node: fx.Node, price: float | None) -> bool:
    call, rows = _call(node), _rows(node)
    if rows is None or rows <= call.chunk:
        return False
    saved = chunks.taken_by(dataclasses.replace(call, chunk=rows)) - chunks.taken_by(call)
    weights = [call.weight, *(weight for _, weight in call.products)]
    summed = sum(weight.numel() for weight, wanted in zip(weights, [call.wanted[1], *call.wanted[4::2]]) if wanted)
    moved = _SUMMED * summed * len(chunks.pieces_of(rows, call.chunk))
    return moved > 0 and (price is None or saved < price * moved)


def _join(forward: fx.GraphModule, backward: fx.GraphModule, node: fx.Node) -> bool:
    before, arguments = liveness.step(forward, backward).peak.bytes, node.args
    place = len(arguments) - len(_call(node).wanted) - 1
    node.args = (*arguments[:place], _rows(node), *arguments[place + 1 :])
    if liveness.step(forward, backward).peak.bytes <= before:
        return True
    node.args = arguments
    return False


def _rows(node: fx.Node) -> int | None:
    """How many a head has; of a symbolic number, none: another call may have more."""
    rows = math.prod(example(node.args[0]).shape[:-1])
    return rows if isinstance(rows, int) else None


def _call(node: fx.Node) -> chunks.Call:
    given = [example(argument) if isinstance(argument, fx.Node) else argument for argument in node.args]
    return chunks.call_of(target_name(node), *given)
