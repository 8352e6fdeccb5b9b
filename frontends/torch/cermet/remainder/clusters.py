"""The second stage: what moves memory in an ATen graph, across the borders of the regions that were found before
autograd, becomes kernels of the engine's.

What a graph computes for each element, and its sums of rows, is imported as it is after AOTAutograd, forward and
backward apart; the engine says which of it shares a kernel where that moves fewer bytes. The rest stays ATen's. Of a
launch the engine is told what it computes: it joins it with its neighbours where that moves fewer bytes than the launch
and they do, and else leaves it as it is.
"""

from __future__ import annotations

import logging

import torch.fx as fx

from .. import environment
from ..counting import count
from ..failures import failing
from ..fusing import matches, replacement
from ..graph.nodes import example
from ..importing.importer import dimension, import_graph
from ..ops import library, preparation, regions

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
        imported = import_graph(module, _body)
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


def _body(node: fx.Node) -> str:
    """The text of what a launch computes, if its symbols have one size each here."""
    if not str(node.target).startswith(f"{regions.NAMESPACE}.launch_"):
        return ""
    *operands, key = node.args
    what, results = regions.signature(key), example(node)
    tensors = [*map(example, operands), *(results if isinstance(results, tuple) else (results,))]
    sizes: dict[int | str, int | str] = {}
    for port, tensor in zip((*what.inputs, *what.outputs), tensors, strict=True):
        for dim, size in zip(port.dims, map(dimension, tensor.shape), strict=True):
            if (sizes.setdefault(dim, size) if isinstance(dim, str) else dim) != size:
                return ""
    return regions.text(key)
