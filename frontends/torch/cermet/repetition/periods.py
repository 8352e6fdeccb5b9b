"""Where a graph repeats itself: windows of as many calls, each of which is the one before, moved by one.

A call is the one a window earlier if it is the same call of the same forms, and each of its operands is the same value
that is older than all windows, or the operand of that one a window later, or what follows it on a lane: of the inputs
of twelve equal layers, twelve weights are one lane.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import torch
import torch.fx as fx

from ..graph.layouts import written
from ..graph.nodes import attribute, example, tensor_nodes

_LEAST = 2  # calls of a window
_TRIED = 12  # distances, those between which most of the graph lies, and their multiples up to
_MULTIPLES = 4
_NEARLY = 0.85


@dataclasses.dataclass(frozen=True)
class Period:
    start: int  # of the first window, among the calls
    length: int  # calls of a window
    count: int  # windows

    @property
    def end(self) -> int:
        return self.start + self.length * self.count


def calls(graph: fx.Graph) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op not in ("placeholder", "output")]


class Calls:
    """Those of a graph in their order, and what is compared of them. `owner`: has the bodies that they run."""

    def __init__(self, nodes: Sequence[fx.Node], owner: fx.GraphModule | None = None) -> None:
        self._place = {node: index for index, node in enumerate(nodes)}
        known: dict[Hashable, int] = {}
        self._kinds = [known.setdefault(_kind(node, owner), len(known)) for node in nodes]
        self._operands = [tuple(operands(node)) for node in nodes]

    def find(self, follower: Callable[[], Callable[[fx.Node, fx.Node], bool]]) -> Iterator[Period]:
        """The longest repetition, of those that are nearly as long the one of the shortest windows; then of the calls
        that are in no window of it.

        `follower()`: a function that says of two values of no window whether the second follows the first on a lane;
        asked for once for each length that is tried."""
        found = [period for length in _lengths(self._kinds) for period in self._repeated(length, follower())]
        while found:
            most = max(period.length * period.count for period in found)
            long = (each for each in found if each.length * each.count >= _NEARLY * most)
            best = min(long, key=lambda each: each.length)
            yield best
            found = [each for each in found if each.end <= best.start or each.start >= best.end]

    def _repeated(self, length: int, follows: Callable[[fx.Node, fx.Node], bool]) -> Iterator[Period]:
        """All repetitions of windows of a length."""
        start, count = 0, len(self._kinds)
        for index in range(count - length + 1):
            if index < count - length and self._kinds[index] == self._kinds[index + length]:
                pairs = zip(self._operands[index], self._operands[index + length])
                if all(self._moved(length, one, other, follows) for one, other in pairs):
                    continue
            if index - start >= length:
                yield Period(start, length, (index - start) // length + 1)
            start = index + 1

    def _moved(
        self, length: int, one: fx.Node, other: fx.Node, follows: Callable[[fx.Node, fx.Node], bool]
    ) -> bool:
        if one is other:
            return True
        place = self._place.get(one)
        return place is not None and self._place.get(other) == place + length or follows(one, other)


def _kind(node: fx.Node, owner: fx.GraphModule | None) -> Hashable:
    """Equal for calls that differ in the values alone that they are given."""
    given = repr(fx.map_arg((node.args, node.kwargs), lambda _: "@"))
    target: Any = node.target
    if node.op == "get_attr" and isinstance(body := attribute(owner, target), fx.GraphModule):
        target = _body(body)
    return node.op, target, given, form(example(node))


def _body(module: fx.GraphModule) -> Hashable:
    """Equal for bodies that do the same."""
    order = {node: index for index, node in enumerate(module.graph.nodes)}
    reads = tuple(tuple(order[each] for each in operands(node)) for node in order)
    return reads, tuple(_kind(node, module) if node.op != "placeholder" else form(example(node)) for node in order)


def form(value: Any) -> Hashable:
    """What is known of a value but its numbers and its place."""
    if isinstance(value, (tuple, list)):
        return tuple(map(form, value))
    if not isinstance(value, torch.Tensor):
        return type(value)
    strides = map(written, value.stride()) if value.layout == torch.strided else ()
    return type(value), value.dtype, value.device, value.requires_grad, tuple(map(written, value.shape)), tuple(strides)


def _lengths(kinds: Sequence[int]) -> list[int]:
    """Those that windows may have: how far calls of a kind are from each other."""
    last: dict[int, int] = {}
    seen: collections.Counter[int] = collections.Counter()
    for place, kind in enumerate(kinds):
        if kind in last:
            seen[place - last[kind]] += 1
        last[kind] = place
    likely = sorted(seen, key=lambda each: each * seen[each], reverse=True)[:_TRIED]
    lengths = {each * times for each in likely for times in range(1, _MULTIPLES + 1)}
    return sorted(each for each in lengths if each >= _LEAST)


def operands(node: fx.Node) -> Iterator[fx.Node]:
    """What a call is given, each as often as it is."""
    return tensor_nodes((node.args, node.kwargs))
