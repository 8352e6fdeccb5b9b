"""Results that a graph of shown places alone leaves to the graph of all places, which runs again if somebody looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from ..graph.decision import Recalled
from . import lazy


class Shown(Protocol):
    """Who decides which calls run without what is recalled."""

    looked: bool  # at something that was recalled
    given: int  # inputs that the graph has behind those of the traced one

    def sized(self, shape: Sequence[Any], arguments: Sequence[Any]) -> list[int]:
        """A traced shape, in a call of these arguments."""


class _Again(torch.autograd.Function):
    """The gradient of a result that comes from a graph's run of its own."""

    @staticmethod
    def forward(
        ctx: Any, again: Callable[..., Any], output: int, result: torch.Tensor, *arguments: Any
    ) -> torch.Tensor:
        tensors = [each if isinstance(each, torch.Tensor) else None for each in arguments]
        ctx.save_for_backward(*tensors)
        ctx.again, ctx.output = again, output
        ctx.others = [None if isinstance(each, torch.Tensor) else each for each in arguments]
        ctx.mark_dirty(result)  # so that it is no view of anything: its reader may write it
        return result

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> Any:
        wanted = ctx.needs_input_grad[3:]
        arguments = [
            other if tensor is None else tensor.detach().requires_grad_(want)
            for tensor, other, want in zip(ctx.saved_tensors, ctx.others, wanted)
        ]
        leaves = [each for each, want in zip(arguments, wanted) if want]
        with torch.enable_grad():
            result = ctx.again(*arguments)[ctx.output]
            found = iter(torch.autograd.grad(result, leaves, cotangent, allow_unused=True))
        return None, None, None, *(next(found) if want else None for want in wanted)


def attach(
    run: Callable[..., Any], recalled: Sequence[Recalled], again: Callable[..., Any], shown: Shown
) -> Callable[..., Any]:
    """`run` with results that `again`, which is given the traced graph's inputs, makes when they are read. From then on
    `shown` holds for no call: who looks once will look again."""
    if not recalled:
        return run

    def with_results(*arguments: Any) -> Any:
        results = list(run(*arguments))
        given = arguments[: len(arguments) - shown.given]
        # Who looks may be within a tensor's dispatch, where autograd records nothing: a graph that is made there would
        # have no backward.
        keys = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
        for each in recalled:

            def make(output: int = each.output) -> torch.Tensor:
                shown.looked = True
                with torch._C._ForceDispatchKeyGuard(*keys):
                    return lazy.made(again(*given)[output])

            result = lazy.recalled(make, given, shown.sized(each.like.shape, given), each.like.dtype, each.like.device)
            if torch.is_grad_enabled() and each.like.requires_grad:
                result = _Again.apply(again, each.output, result, *given)
            results[each.output] = result
        return tuple(results)

    return with_results
