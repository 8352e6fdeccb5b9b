"""A graph's masks, and the variant of a graph whose masks are causal or full where no input is padded.

Both variants are compiled, and each call is looked at: at its inputs, outside of the compiled graph, so that nothing
inside waits for the device.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
import torch.fx as fx

from ..counting import count
from ..graph.decision import NearMiss
from ..graph.edit import copy_of
from . import masks

_log = logging.getLogger("cermet")


@dataclasses.dataclass(frozen=True)
class Variant:
    """A graph of its own that runs in another's place where that one's inputs at `places` are one everywhere."""

    module: fx.GraphModule
    places: tuple[int, ...]


def of(module: fx.GraphModule, given: Collection[fx.Node]) -> Variant:
    """The variant for `given` inputs of a graph that has not been changed yet."""
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    return Variant(copy_of(module), tuple(index for index, node in enumerate(inputs) if node in given))


def alone(found: masks.Found) -> masks.Found:
    """What was found, for a graph that can have no variant."""
    always = [mask for mask in found.masks if not mask.given]
    kept = [
        NearMiss(
            mask.meaning.value, mask.attention.name, f"{mask.meaning}{mask.where()}, for which a pass has no second graph"
        )
        for mask in found.masks
        if mask.given
    ]
    return masks.Found(always, [*found.near_misses, *kept])


def choosing(
    padded: Callable[..., Any], unpadded: Callable[..., Any], places: Sequence[int]
) -> Callable[..., Any]:
    """Runs `unpadded` where the inputs at these places are one everywhere, else `padded`.

    While a CUDA stream is being captured nothing can be asked of the device: `padded`, which is right for every input.
    """

    def run(*arguments: Any) -> Any:
        if _all_ones([arguments[place] for place in places]):
            count("calls_unpadded")
            return unpadded(*arguments)
        count("calls_padded")
        return padded(*arguments)

    return run


def _all_ones(tensors: Sequence[torch.Tensor]) -> bool:
    if any(tensor.is_cuda for tensor in tensors) and torch.cuda.is_current_stream_capturing():
        return False
    return all(bool((tensor == 1).all()) for tensor in tensors)
