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
from ..failures import failing
from ..fusing import matches, replacement
from ..importing.importer import import_graph
from ..ops import library, preparation

_log = logging.getLogger("cermet")


def fuse(module: fx.GraphModule, strict: bool) -> list[int]:
    """Replaces in place; returns the keys of what was put in, which another process has to be told (regions.kept).

    A failure of ours leaves the graph as it was, and what becomes of it is said by `strict`. Under CERMET_CHECK=1
    nothing is done: that compares regions of the first stage with what they replaced.
    """
    if environment.check():
        return []
    failed = failing(strict)
    try:
        imported = import_graph(module)
        decision = matches.check(module, imported, library.context().match(imported.text))
        for error in decision.failures:
            failed(error, "a match behind autograd")
        preparation.prepare((key, region.device) for region in decision.regions for key in region.keys())
        done = replacement.apply(decision)
    except Exception as error:
        failed(error, "a graph behind autograd")
        return []
    count("clusters", len(done.regions))
    for near_miss in [*decision.near_misses, *done.near_misses]:
        _log.info("near miss behind autograd: %s", near_miss)
    return [key for region in done.regions for key in region.keys()]
