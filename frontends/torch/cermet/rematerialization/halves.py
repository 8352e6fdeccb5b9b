"""Launches taken apart where most is held.

A kernel reads all of its operands at once and gives all of its results at once. A gate and what it gates, each of a
linear layer and an adapter's product, are there together where one could be added up before the other is made; their
gradients, which products of adapters read in f32, are there together for products that come one after the other. While
a graph's peak is such a kernel, two take its place: the first runs when its own operands are there, or the second when
its results are read. They move some bytes more, and only where that lowers the peak.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable

import torch.fx as fx

from ..graph.effects import effect_of
from ..ops.slices import Function
from . import liveness, ordering, parts, places, seams
from .costs import computed_again
from .liveness import Storages
from .waiting import reading

_LEAST = 2**20  # bytes: less is not worth a launch
_WORTH = 0.25  # of the bytes that the second kernels move more, by which the peak is lowered
_PART = 3e-3  # of what all calls take, that the second kernels may
_ROUNDS, _TRIALS = 4, 3


def halve(module: fx.GraphModule, given: bool) -> None:
    """In a functional graph, in place. `given`: as for places.place, which is next."""
    _Halves(module, given).take()


class _Halves:
    def __init__(self, module: fx.GraphModule, given: bool) -> None:
        self._module, self._graph, self._given = module, module.graph, given
        self._functions: dict[int, Function | None] = {}
        self._most, self._call = self._held()
        self._room: float | None = None  # bytes that may be moved again

    def take(self) -> None:
        for _ in range(_ROUNDS):
            launch = seams.launch_of(self._call, self._functions) if self._call is not None else None
            if launch is None or next(seams.halves(launch), None) is None or not self._may_move(launch.node):
                break
            if not self._halved(launch):
                break

    def _may_move(self, node: fx.Node) -> bool:
        """Whether nobody writes what the launch touches."""
        storages = Storages(self._graph)
        written: frozenset[Hashable] = frozenset()
        for each in self._graph.nodes:
            if each.op == "call_function":
                written |= storages.of(effect_of(each, self._module).written)
        return written.isdisjoint(storages.of((node, *node.all_input_nodes)))

    def _halved(self, launch: seams.Launch) -> bool:
        """Takes a launch apart at the first seam where that is worth it, if there is one."""
        if self._room is None:
            self._room = _PART * sum(computed_again(node) or 0 for node in self._graph.nodes)
        before = computed_again(launch.node) or 0
        for index in range(_TRIALS):
            seam, waits = next(itertools.islice(seams.halves(launch), index, None), (None, False))
            taken = parts.take_apart(self._graph, seam) if seam is not None else None
            if taken is None:
                continue
            (second,) = taken.seconds
            self._delay(second) if waits else ordering.advance(taken.first)
            most, call = self._held()
            time = sum(computed_again(node) or 0 for node in (taken.first, second)) - before
            if most <= self._most - max(_LEAST, _WORTH * time) and time <= self._room:
                self._most, self._call = most, call
                self._room -= time
                return True
            if not waits:
                ordering.move_before(taken.first, second)
            launch = launch._replace(node=parts.put_together(self._graph, taken))
        return False

    def _delay(self, call: fx.Node) -> None:
        ordering.move_before(call, min(reader for item in seams.results(call).values() for reader in reading(item)))

    def _held(self) -> tuple[int, fx.Node | None]:
        """The most bytes that are held when results lie in the place of operands, and the call while which they are."""
        placed = places.taken(self._graph, self._given)
        return liveness.most(self._graph, ordering.given(self._graph), placed)
