"""The second stage: what moves memory in an ATen graph, across the borders of the regions that were found before
autograd, becomes kernels of the engine's.

What a graph computes for each element, and its sums of rows, is imported as it is after AOTAutograd, forward and
backward apart; the engine says which of it shares a kernel where that moves fewer bytes. The rest stays ATen's. Of a
launch the engine is told what it computes: it joins it with its neighbours where that moves fewer bytes than the launch
and they do, and else leaves it as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Set

import torch.fx as fx

from .. import environment
from ..counting import count
from ..failures import Failing
from ..fusing import matches, replacement
from ..fusing.replacement import Replaced
from ..graph.decision import Decision
from ..graph.nodes import example
from ..graph.snapshots import ModuleSnapshot
from ..importing.importer import dimension, import_graph
from ..ops import library, regions, stand_ins
from ..ops.preparation import Preparation

_log = logging.getLogger("cermet")


class Lost(Exception):
    """A graph launches what cannot be made, and nothing stands for it: it must be cut in another way."""


class Fused:
    """What was put into a graph."""

    def __init__(self, failed: Failing) -> None:
        self.replaced = Replaced()
        self.times: dict[fx.Node, int] = {}  # how often calls of regions are in what runs, where that is not once
        self._has_parts = False
        self._failed = failed
        self._preparation = Preparation(())
        self._plain: ModuleSnapshot | None = None

    def put(self, module: fx.GraphModule, decision: Decision, parts: Set[int], launched: bool) -> None:
        self._plain = ModuleSnapshot(module)
        self.replaced = replacement.apply(decision)
        keys = {key: region.device for region in self.replaced.regions for key in region.keys()}
        for node in module.graph.nodes:
            if (key := regions.launched(node)) in parts:
                keys[key] = example(node.args[0]).device
                self._has_parts = True
        if launched:
            self._preparation = Preparation(keys.items())
        for near_miss in [*decision.near_misses, *self.replaced.near_misses]:
            _log.info("near miss behind autograd: %s", near_miss)

    def taken_back(self) -> fx.GraphModule | None:
        """Waits for the kernels. Where one cannot be made: the graph as it was. Raises Lost."""
        try:
            self._preparation.wait()
        except Exception as error:
            self._failed(error, "a graph behind autograd")
            if self._has_parts:
                raise Lost from error
            return self._plain.module()
        count("clusters", sum(self.times.get(call, 1) for call in self.replaced.calls))
        return None


def fuse(module: fx.GraphModule, failed: Failing, launched: bool = True, parts: Set[int] = frozenset()) -> Fused:
    """Replaces in place; with `launched`, others make the kernels meanwhile. `parts`: launches that may be in a graph
    without having been in Dynamo's.

    A failure of ours leaves the graph as it was, and what becomes of it is said by `failed`. Under CERMET_CHECK=1
    nothing is done: that compares regions of the first stage with what they replaced.
    """
    fused = Fused(failed)
    if environment.check():
        return fused
    try:
        imported = import_graph(module, _body, _ends)
        decision = matches.check(module, imported, library.context().match(imported.text))
        for error in decision.failures:
            failed(error, "a match behind autograd")
        fused.put(module, decision, parts, launched)
    except Exception as error:
        failed(error, "a graph behind autograd")
    return fused


def _ends(node: fx.Node) -> bool:
    """Whether no kernel reads what makes a value: of a gradient that each layer adds to, all of them would wait."""
    return stand_ins.SUMMED in node.meta


def _body(node: fx.Node) -> str:
    """The text of what a launch computes, if its symbols have one size each here."""
    if regions.launched(node) is None:
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
