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


def find(
    nodes: Sequence[fx.Node],
    follower: Callable[[], Callable[[fx.Node, fx.Node], bool]],
    owner: fx.GraphModule | None = None,
) -> Iterator[Period]:
    """The longest repetition, of those that are nearly as long the one of the shortest windows; then of the calls that
    are in no window of it.

    `follower()`: a function that says of two values of no window whether the second follows the first on a lane; asked
    for once for each length that is tried. `owner`: has the bodies that calls run."""
    place = {node: index for index, node in enumerate(nodes)}
    known: dict[Hashable, int] = {}
    kinds = [known.setdefault(_kind(node, owner), len(known)) for node in nodes]
    found = [period for length in _lengths(kinds) for period in _repeated(nodes, place, kinds, length, follower())]
    while found:
        most = max(period.length * period.count for period in found)
        best = min((each for each in found if each.length * each.count >= _NEARLY * most), key=lambda each: each.length)
        yield best
        found = [each for each in found if each.end <= best.start or each.start >= best.end]


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


def _repeated(
    nodes: Sequence[fx.Node],
    place: dict[fx.Node, int],
    kinds: Sequence[int],
    length: int,
    follows: Callable[[fx.Node, fx.Node], bool],
) -> Iterator[Period]:
    """All repetitions of windows of a length."""
    start = 0
    for index in range(len(nodes) - length + 1):
        if index < len(nodes) - length and kinds[index] == kinds[index + length]:
            pairs = zip(operands(nodes[index]), operands(nodes[index + length]))
            if all(_moved(place, length, one, other, follows) for one, other in pairs):
                continue
        if index - start >= length:
            yield Period(start, length, (index - start) // length + 1)
        start = index + 1


def operands(node: fx.Node) -> Iterator[fx.Node]:
    """What a call is given, each as often as it is."""
    return tensor_nodes((node.args, node.kwargs))


def _moved(
    place: dict[fx.Node, int],
    length: int,
    one: fx.Node,
    other: fx.Node,
    follows: Callable[[fx.Node, fx.Node], bool],
) -> bool:
    if one is other:
        return True
    if one in place and place.get(other) == place[one] + length:
        return True
    return follows(one, other)
