"""The second stage: what moves memory in an ATen graph, across the borders of the regions that were found before
autograd, becomes kernels of the engine's.

What a graph computes for each element, and its sums of rows, is imported as it is after AOTAutograd, forward and
backward apart; the engine says which of it shares a kernel where that moves fewer bytes. The rest stays ATen's.
"""

from __future__ import annotations

import logging

import torch.fx as fx

from .. import environment
from ..counting import count
from ..fusing import matches, replacement
from ..importing.importer import import_graph
from ..ops import library, preparation

_log = logging.getLogger("cermet")


def fuse(module: fx.GraphModule, strict: bool) -> list[int]:
    """Replaces in place; returns the keys of what was put in (regions.kept makes them known to another process). A failure of ours leaves the graph as it was, is logged and counted; if strict, it raises.

    Under CERMET_CHECK=1 nothing is done: what it compares is a region of the first stage with what that replaced.
    """
    if environment.check():
        return []
    try:
        imported = import_graph(module)
        decision = matches.check(module, imported, library.context().match(imported.text))
        if strict and decision.failures:
            raise decision.failures[0]
        preparation.prepare((key, region.device) for region in decision.regions for key in region.keys())
        done = replacement.apply(decision)
    except Exception as error:
        if strict:
            raise
        count("fallbacks")
        _log.warning("an ATen graph is left as it was because Cermet failed: %s: %s", type(error).__name__, error)
        return []
    count("clusters", len(done.regions))
    for near_miss in [*decision.near_misses, *done.near_misses]:
        _log.info("near miss, behind autograd: %s", near_miss)
    return [key for region in done.regions for key in region.keys()]
