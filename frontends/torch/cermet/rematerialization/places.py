"""Results in the place of operands.

A kernel that reads an operand at each element's own place, last of all, may write a result over it
(docs/plan-format.md, "Outputs"): a gated unit's gradients lie where its gate and up were, a norm's where its cotangent
was. So while it runs as much less is held as it writes. What a graph made itself is free behind its last reader. What a
backward was given is free where nobody else holds it, which each call asks (remainder/ownership.py): not where the
graph is kept for another backward, nor where a hook for saved tensors keeps it. For these there is the launch with
results of their own, too. And what a graph copies into an input at its end, statistics that run along, is written there
by the launch that makes it of what the input had.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Mapping, Set
from typing import Any, NamedTuple

import torch
import torch.fx as fx

from ..graph import memory
from ..graph.layouts import written
from ..graph.nodes import example, examples
from ..ops import regions
from .liveness import Storages

_COPY = torch.ops.aten.copy_.default
_SYNCHRONOUS = ("aten", "prims", regions.NAMESPACE)  # operations that are done with their operands when they return
_HIGHER_ORDER = ("run_and_save_rng_state", "run_with_rng_state", "graphsafe_run_with_rng_state")


class Otherwise(NamedTuple):
    """The launch that runs where not all of some inputs are free."""

    key: int
    inputs: tuple[fx.Node, ...]


def place(graph: fx.Graph, given: bool) -> dict[fx.Node, Otherwise]:
    """Gives results of a graph that runs as it is the memory of operands, in place; returns the launches that may not
    do so at each call. `given`: of inputs, too, but for those that are the caller's."""
    return _Places(graph, given).place()


def taken(graph: fx.Graph, given: bool) -> dict[fx.Node, dict[int, int]]:
    """For results of launches, in the graph's order, the operand whose memory each would be given."""
    found = _Places(graph, given)
    return {node: places for node in found.launches if (places := found.taken(node))}


class _Places:
    def __init__(self, graph: fx.Graph, given: bool) -> None:
        self._graph, self._storages = graph, Storages(graph)
        self._whole = {each: self._storages.tensor(each) for each in self._storages.owner}
        self._now = dict(self._whole)  # where each lies, as far as results have been placed
        inputs = graph.find_nodes(op="placeholder")
        free = [each for each in inputs if given and not str(each.target).startswith(("primals", "arg", "tangents"))]
        self._free = {storage: each for each in free for storage in self._storages.of([each])}
        held = [each for each in inputs if each not in free]
        self._kept = self._storages.of((*held, *graph.output_node().all_input_nodes))
        self._last: dict[Hashable, fx.Node] = {}
        self._before: dict[Hashable, fx.Node | None] = {}  # who touches a storage before the last
        self._holding: dict[Hashable, list[fx.Node]] = {}  # by memory, as it was before anything was placed
        for node in graph.nodes:
            for place in memory.memories(example(node)):
                self._holding.setdefault(place, []).append(node)
            touched = self._storages.of((node, *node.all_input_nodes)) if node.op != "output" else frozenset()
            self._before.update((each, self._last.get(each)) for each in touched)
            self._last.update(dict.fromkeys(touched, node))
            if not _is_synchronous(node):
                self._kept |= touched
        self.launches = [node for node in graph.nodes if regions.launched(node) is not None]
        self._copies = _copied_back(graph)
        self._may = {node: _may_take(node) for node in self.launches}

    def place(self) -> dict[fx.Node, Otherwise]:
        """What may fail has been asked before: a graph is changed as a whole or not."""
        otherwise: dict[fx.Node, Otherwise] = {}
        moved = memory.Moved()
        for node in self.launches:
            taken = self.taken(node)
            if not taken:
                continue
            plain, count = node.args[-1], len(examples(node))
            inputs = {result: self._input(node.args[place]) for result, place in taken.items()}
            for result in taken:
                if (copy := self._copies.get((node, result))) is not None and copy.args[0] is node.args[taken[result]]:
                    self._graph.erase_node(copy)
            asked = tuple(each for each in inputs.values() if each is not None)
            node.target = regions.launch_over_op(len(node.args) - 1, count)
            node.args = (*node.args[:-1], _key(plain, count, taken))
            if asked:
                own = {result: place for result, place in taken.items() if inputs[result] is None}
                otherwise[node] = Otherwise(_key(plain, count, own) if own else plain, asked)
            self._move(node, taken, moved)
        return otherwise

    def taken(self, node: fx.Node) -> dict[int, int]:
        """For results the operand whose memory each takes."""
        operands, values = node.args[:-1], examples(node)
        taken: dict[int, int] = {}
        for result, places in enumerate(self._may[node]):
            for place in places:
                if place not in taken.values() and self._is_free(node, result, operands, place):
                    if _lies_alike(example(operands[place]), values[result]):
                        taken[result] = place
                        break
        return taken

    def _is_free(self, node: fx.Node, result: int, operands: tuple[fx.Node, ...], place: int) -> bool:
        """Whether nobody but the launch reads the memory of an operand from here on, which is all of a storage; or but
        for who copies the result there."""
        storages = self._storages.of([operands[place]])
        copy = self._copies.get((node, result))
        is_copied = copy is not None and copy.args[0] is operands[place]
        if len(storages) != 1 or not is_copied and not storages.isdisjoint(self._kept):
            return False
        (storage,) = storages
        if is_copied and self._last[storage] is not copy:
            return False
        last = self._before[storage] if is_copied else self._last[storage]
        alone = sum(storage in self._storages.of([operand]) for operand in operands) == 1
        return alone and last is node and _is_all(example(operands[place]), self._whole[storage])

    def _input(self, operand: fx.Node) -> fx.Node | None:
        """The input of the graph whose memory an operand lies in."""
        (storage,) = self._storages.of([operand])
        return self._free.get(storage)

    def _move(self, node: fx.Node, taken: Mapping[int, int], moved: memory.Moved) -> None:
        """Values say where they lie."""
        values = examples(node)
        for result, place in taken.items():
            (there,) = self._storages.of([node.args[place]])
            moved.given(values[result], self._now[there])
            self._now.update(dict.fromkeys(memory.memories(values[result]), self._now[there]))
        places = memory.memories([values[result] for result in taken])
        for each in dict.fromkeys(holder for place in places for holder in self._holding[place]):
            each.meta["val"] = _replaced(example(each), places, moved)


def _copied_back(graph: fx.Graph) -> dict[tuple[fx.Node, int], fx.Node]:
    """By launches and their results: the copies of those, which nobody else reads, into inputs."""
    found = {}
    for copy in graph.find_nodes(op="call_function", target=_COPY):
        target, value = copy.args[:2]
        if target.op == "placeholder" and not copy.users and list(value.users) == [copy]:
            is_item = value.target is operator.getitem
            found[(value.args[0], value.args[1]) if is_item else (value, 0)] = copy
    return found


def _replaced(value: Any, places: Set[Hashable], moved: memory.Moved) -> Any:
    """A value, or those of several results that lie in some places, where they lie now."""
    if isinstance(value, (tuple, list)):
        return type(value)(_replaced(each, places, moved) for each in value)
    return value if places.isdisjoint(memory.memories(value)) else moved.of(value)


def _is_synchronous(node: fx.Node) -> bool:
    if node.op != "call_function":
        return node.op in ("placeholder", "output", "get_attr")
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target.namespace in _SYNCHRONOUS
    return node.target is operator.getitem or str(node.target) in _HIGHER_ORDER


def _may_take(node: fx.Node) -> list[list[int]]:
    device = example(node.args[0]).device
    return regions.may_take(node.args[-1], device) if device.type in ("cpu", "cuda") else []


def _key(plain: int, count: int, taken: Mapping[int, int]) -> int:
    return regions.placed(plain, tuple(taken.get(result) for result in range(count)))


def _is_all(value: torch.Tensor, whole: torch.Tensor) -> bool:
    """Whether a value is all that the storage holds which another one is named for."""
    return written(value.numel() * value.element_size()) == written(whole.untyped_storage().nbytes())


def _lies_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.dtype != other.dtype or one.dim() != other.dim():
        return False
    sizes = [list(map(written, each.shape)) for each in (one, other)]
    strides = [list(map(written, each.stride())) for each in (one, other)]
    return sizes[0] == sizes[1] and all(
        size == "1" or mine == theirs for size, mine, theirs in zip(sizes[0], *strides, strict=True)
    )
