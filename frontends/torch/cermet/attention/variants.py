"""A graph's causal masks, and the variant of a graph whose masks are causal where no input is padded.

Both variants are compiled, and each call is looked at: at its inputs, outside of the compiled graph, so that nothing
inside waits for the device.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from ..counting import count
from ..graph.decision import NearMiss
from ..graph.edit import copy_of
from . import grouped, masks

_log = logging.getLogger("cermet")


def compile(
    module: fx.GraphModule,
    compiled: Callable[[fx.GraphModule], Callable[..., Any]],
    failed: Callable[[Exception], None],
    said: Callable[[masks.Found], None],
) -> Callable[..., Any]:
    """Makes a graph's causal masks so and compiles what there is then to compile.

    `compiled` compiles one graph, `failed` is told what goes wrong here (the graph is then as it was), `said` what was
    found.
    """
    other = None
    try:
        found = masks.find(module)
        if found.given:
            other = copy_of(module)
        masks.apply(module, [mask for mask in found.masks if not mask.given])
    except Exception as error:
        failed(error)
        return compiled(module)

    def compiled_with_groups(part: fx.GraphModule) -> Callable[..., Any]:
        _group(part, failed)
        return compiled(part)

    places = [index for index, node in enumerate(_inputs(module)) if node in found.given]
    said(found)
    _log_near_misses(found)
    padded = compiled_with_groups(module)
    if other is None:
        count("causal_masks", len(found.masks))
        return padded
    try:
        masks.apply(other, masks.find(other).masks)
        unpadded = compiled_with_groups(other)
    except Exception as error:
        failed(error)
        return padded
    count("causal_masks", len(found.masks))
    return _choosing(padded, unpadded, places)


def prove(
    module: fx.GraphModule, failed: Callable[[Exception], None], said: Callable[[masks.Found], None]
) -> None:
    """Makes a graph's masks causal where they are so for every call, for one that has no second variant."""
    try:
        found = masks.find(module)
        always = [mask for mask in found.masks if not mask.given]
        masks.apply(module, always)
    except Exception as error:
        failed(error)
        return
    kept = [NearMiss("causal_mask", mask.attention.name, f"causal{mask.where()}, for which a pass has no second graph")
            for mask in found.masks if mask.given]  # fmt: skip
    proved = masks.Found(always, [*found.near_misses, *kept])
    said(proved)
    _log_near_misses(proved)
    count("causal_masks", len(always))
    _group(module, failed)


def _group(module: fx.GraphModule, failed: Callable[[Exception], None]) -> None:
    try:
        count("grouped_attentions", grouped.apply(module))
    except Exception as error:
        failed(error)


def _log_near_misses(found: masks.Found) -> None:
    count("near_misses", len(found.near_misses))
    for near_miss in found.near_misses:
        _log.info("near miss: %s", near_miss)


def _inputs(module: fx.GraphModule) -> list[fx.Node]:
    return [node for node in module.graph.nodes if node.op == "placeholder"]


def _choosing(
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
