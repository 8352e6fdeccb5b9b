"""Results that a graph gives without having made them, where what makes them is put there later (repetition).

`stand_in(Tensor like) -> Tensor`: memory of its own of the form of `like`, which wants a gradient where that does and
hands none on. What is in it is not defined.
"""

from __future__ import annotations

import torch
import torch.fx as fx
from torch import library

from .regions import NAMESPACE


class _StandIn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, like):
        return FORWARD(like)

    @staticmethod
    def backward(ctx, cotangent):
        return None


def _stand_in(like: torch.Tensor) -> torch.Tensor:
    return _StandIn.apply(like) if torch.is_grad_enabled() and like.requires_grad else FORWARD(like)


def _define() -> library.Library:
    ops = library.Library(NAMESPACE, "FRAGMENT")
    for name in ("stand_in", "stand_in_forward"):
        ops.define(f"{name}(Tensor like) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
    ops.impl("stand_in", _stand_in, "CompositeImplicitAutograd")
    ops.impl("stand_in_forward", torch.empty_like, "CompositeExplicitAutograd")
    ops.impl("stand_in_forward", torch.empty_like, "Meta")
    return ops


_library = _define()
_ops = getattr(torch.ops, NAMESPACE)
STAND_IN, FORWARD = _ops.stand_in.default, _ops.stand_in_forward.default


def take_out(graph: fx.Graph) -> None:
    """Erases all of a graph behind autograd, in place: where each was a result, that is what it was like."""
    for node in graph.find_nodes(op="call_function", target=FORWARD):
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)
