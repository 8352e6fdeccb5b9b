"""What stands in a graph while layers of it are left out (repetition), and is taken out again behind autograd.

`stand_in(Tensor like) -> Tensor`: a result that is made later. Memory of its own of the form of `like`, which wants a
gradient where that does and hands none on. What is in it is not defined.

`pass_on(Tensor like) -> Tensor`: a value that layers read, as one of them hands it to the next. Its gradient is what
comes of the layers behind it, and is made where they are: each layer adds to it.
"""

from __future__ import annotations

import torch
import torch.fx as fx
from torch import library

from ..graph import memory
from .regions import NAMESPACE

SUMMED = "cermet_summed"  # notes a gradient that a layer hands to the one before, which adds to it


class _StandIn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, like):
        return FORWARD(like)

    @staticmethod
    def backward(ctx, cotangent):
        return None


def _stand_in(like: torch.Tensor) -> torch.Tensor:
    return _StandIn.apply(like) if torch.is_grad_enabled() and like.requires_grad else FORWARD(like)


class _PassOn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return _PASSED(value)

    @staticmethod
    def backward(ctx, gradient):
        return _ADDED_TO(gradient)


def _placed(like: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)


def _define() -> library.Library:
    ops = library.Library(NAMESPACE, "FRAGMENT")
    for name, call in (("stand_in", _stand_in), ("pass_on", _PassOn.apply)):
        ops.define(f"{name}(Tensor like) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
        ops.impl(name, call, "CompositeImplicitAutograd")
    for name in ("stand_in_forward", "passed", "added_to"):
        ops.define(f"{name}(Tensor like) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
        for key in ("CompositeExplicitAutograd", "Meta"):
            ops.impl(name, _placed, key)
    return ops


_library = _define()
_ops = getattr(torch.ops, NAMESPACE)
STAND_IN, FORWARD, PASS_ON = _ops.stand_in.default, _ops.stand_in_forward.default, _ops.pass_on.default
_PASSED, _ADDED_TO = _ops.passed.default, _ops.added_to.default


def take_out(graph: fx.Graph) -> None:
    """Erases all of a graph behind autograd, in place: each becomes what it was given, and a gradient that was handed
    on is noted."""
    for node in graph.find_nodes(op="call_function", target=_ADDED_TO):
        node.args[0].meta[SUMMED] = True
    memory.leave_out(graph, lambda node: node.target in (FORWARD, _PASSED, _ADDED_TO))
