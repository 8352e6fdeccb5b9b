"""Cutting a joint graph into a forward and a backward: torch's partitioner, which keeps what cut.py says."""

from __future__ import annotations

import logging
from typing import Any

import torch.fx as fx
from torch._functorch import partitioners

from ..failures import Failing
from . import cut, parts, waiting

_log = logging.getLogger("cermet")
_CHOOSES = "choose_saved_values_set"  # of torch's partitioner, 2.10 to 2.13: asked once for each graph


class Partition:
    """A `partition_fn` of AOTAutograd's. `price` and `products` as for cut.keep; without a price it keeps what torch
    would."""

    def __init__(self, price: float | None, products: bool, failed: Failing) -> None:
        self._price = price
        self._products = products
        self._failed = failed
        self.keys: set[int] = set()  # of launches that were put into the graphs

    def __call__(self, joint: fx.GraphModule, inputs: Any, **settings: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        torchs = getattr(partitioners, _CHOOSES, None)
        if self._price is None or torchs is None:
            return partitioners.min_cut_rematerialization_partition(joint, inputs, **settings)

        def choose(graph: fx.Graph, info: Any, *given: Any, **named: Any) -> list[fx.Node]:
            try:
                return cut.keep(graph, info, self._price, self._products)
            except Exception as error:
                self._failed(error, "what a forward keeps")
                return torchs(graph, info, *given, **named)

        self.keys |= parts.split(joint.graph)
        setattr(partitioners, _CHOOSES, choose)  # under torch's compile lock
        try:
            made = partitioners.min_cut_rematerialization_partition(joint, inputs, **settings)
        finally:
            setattr(partitioners, _CHOOSES, torchs)
        for module in made:
            parts.join(module.graph)
        waiting.wait(made[1].graph)
        for module in made:
            module.recompile()
        return made
