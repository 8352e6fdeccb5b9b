"""A graph of Dynamo's without the layers that are as their neighbours: what is done for those that are left can be done
for the others without looking at them (lengthening.py)."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor

from ..graph.edit import copy_of
from ..graph.effects import EFFECTFUL, PURE, draws, effect_of
from ..graph.memory import memories
from ..graph.nodes import bodies, example, examples, target_name
from ..ops import stand_ins
from . import periods
from .lanes import COTANGENT, HEAD, RETURNED, TAIL, Irregular, Ports, Rung, Seeds
from .periods import Period

_FEWEST = 2  # windows that are left out, or it is not worth while
_LINEAR = torch._C._nn.linear
_MODES = ("_set_grad_enabled", "_enter_inference_mode", "_exit_inference_mode")
_SELDOM = "the graph does not repeat itself often"


@dataclasses.dataclass(frozen=True)
class Shortened:
    module: fx.GraphModule  # with all inputs of the whole one, and as many results
    more: int  # windows of the whole one
    inputs: int  # of either
    lanes: tuple[tuple[int, ...], ...]  # of each the whole graph's inputs, by their places
    drawn: tuple[tuple[int, ...], ...]  # of each which of the results, of the one call that has as many,
    draws: int  # it reads: seeds of dropouts
    results: tuple[tuple[int, ...], ...]  # of each the whole graph's results that are windows' own, by their places
    differentiated: bool  # whether windows have a backward

    @property
    def digest(self) -> str:
        """Differs where the whole graphs of equal shortened ones do."""
        known = self.more, self.lanes, self.drawn, self.draws, self.results
        return hashlib.sha256(repr(known).encode()).hexdigest()

    def ports(self, count: int) -> Ports:
        """Of `count` values, one for each input: these, or their gradients. Raises Irregular where they are others."""
        if count != self.inputs:
            raise Irregular(f"{count} inputs behind autograd, expected {self.inputs}")
        return self._ports(count, enumerate(self.lanes))

    def returned(self, places: Sequence[int | None]) -> Ports:
        """Of what a graph gives: which of the program's results each is."""
        return self._ports(len(places), self._results(RETURNED, places))

    def cotangents(self, places: Sequence[int | None]) -> Ports:
        """Of the cotangents that a backward is given: of which of the program's results each is."""
        return self._ports(len(places), self._results(COTANGENT, places))

    def _results(self, kind: str, places: Sequence[int | None]) -> Iterator[tuple[Hashable, tuple[int, ...]]]:
        now = {place: index for index, place in enumerate(places) if place is not None}
        for lane, own in enumerate(self.results):
            there = [now[place] for place in own if place in now]
            # One that wants no gradient has no cotangent, and so have its neighbours.
            if len(there) != len(own) and (there or kind == RETURNED):
                raise Irregular("not all results of windows are known")
            if there:
                yield (kind, lane), tuple(there)

    def _ports(self, count: int, lanes: Iterable[tuple[Hashable, tuple[int, ...]]]) -> Ports:
        short: list[Rung | None] = [None] * count
        whole: list[tuple[int, Rung | None]] = [(place, None) for place in range(count)]
        for lane, places in lanes:
            kept = self._kept(places)
            for place, each in enumerate(kept):
                short[each] = Rung(lane, place)
            for place, each in enumerate(places):
                whole[each] = (each if short[each] is not None else kept[HEAD - 1], Rung(lane, place))
        return Ports(tuple(short), tuple(whole))

    def seeds(self) -> Seeds:
        short = {
            number: Rung(("drawn", lane), place)
            for lane, numbers in enumerate(self.drawn)
            for place, number in enumerate(self._kept(numbers))
        }
        whole = {
            Rung(("drawn", lane), place): number
            for lane, numbers in enumerate(self.drawn)
            for place, number in enumerate(numbers)
        }
        return Seeds(self.draws, short, whole)

    def _kept(self, lane: tuple[int, ...]) -> tuple[int, ...]:
        return lane[:HEAD] + lane[HEAD + self.more :]


def shorten(module: fx.GraphModule) -> tuple[Shortened, ...]:
    """Copies of a graph, each without some windows of the one before: of an encoder's layers, and then of a decoder's.
    Raises Irregular where that is not worth while, or where no windows are as independent as layers are."""
    found = [_shorter(module)]
    with contextlib.suppress(Irregular):
        while True:
            found.append(_shorter(found[-1].module))
    return tuple(found)


def _shorter(module: fx.GraphModule) -> Shortened:
    reasons: list[Irregular] = []
    for period in periods.Calls(periods.calls(module.graph), module).find(_Chains().begun):
        try:
            return _without(module, period)
        except Irregular as reason:
            reasons.append(reason)
    raise reasons[0] if reasons else Irregular(_SELDOM)


def _without(module: fx.GraphModule, period: Period) -> Shortened:
    more = period.count - HEAD - TAIL
    if more < _FEWEST:
        raise Irregular(_SELDOM)
    nodes, chains = periods.calls(module.graph), _Chains()
    windows = nodes[period.start : period.end]
    if any(node.target is stand_ins.STAND_IN for node in windows):
        raise Irregular("what repeats itself stands for the values of windows that are left out")
    for one, other in zip(windows, windows[period.length :]):
        for pair in zip(periods.operands(one), periods.operands(other)):
            chains.follows(*pair)
    lanes = list(chains.lanes())
    given = [lane for lane in lanes if lane[0].op == "placeholder"]
    drawn = [lane for lane in lanes if lane[0].op != "placeholder"]
    draws = {lane[0].args[0] for lane in drawn}
    if len(draws) > 1:
        raise Irregular("windows read what several calls draw")
    for lane in lanes:
        _check_lane(lane, period, nodes)
    shared = _check_windows(module, period, nodes, lanes)
    results = list(_results(module, period, nodes))
    copy = copy_of(module)
    order = {node: index for index, node in enumerate(module.graph.nodes)}
    _stand_in(copy, more, results)
    every, first = list(copy.graph.nodes), periods.calls(copy.graph)[period.start]
    _leave_out(copy, period, more, [[order[node] for node in lane] for lane in lanes])
    _pass_on(copy, first, period.length, [every[order[node]] for node in shared])
    inputs = {node: index for index, node in enumerate(module.graph.find_nodes(op="placeholder"))}
    return Shortened(
        copy,
        more,
        len(inputs),
        tuple(tuple(inputs[node] for node in lane) for lane in given),
        tuple(tuple(node.args[1] for node in lane) for lane in drawn),
        sum(len(example(draw)) for draw in draws),
        tuple(results),
        any(isinstance(each, torch.Tensor) and each.requires_grad for node in windows for each in examples(node)),
    )


class _Chains:
    """Inputs of which each follows another."""

    def __init__(self) -> None:
        self._next: dict[fx.Node, fx.Node] = {}
        self._last: dict[fx.Node, fx.Node] = {}

    def begun(self) -> Callable[[fx.Node, fx.Node], bool]:
        self._next, self._last = {}, {}
        return self.follows

    def follows(self, one: fx.Node, other: fx.Node) -> bool:
        if one in self._next or other in self._last:
            return self._next.get(one) is other
        if one is other or not _alike(one, other) or self._end(other) is one:  # no lane is a circle
            return False
        self._next[one], self._last[other] = other, one
        return True

    def _end(self, node: fx.Node) -> fx.Node:
        while node in self._next:
            node = self._next[node]
        return node

    def lanes(self) -> Iterator[list[fx.Node]]:
        for first in [node for node in self._next if node not in self._last]:
            lane = [first]
            while lane[-1] in self._next:
                lane.append(self._next[lane[-1]])
            yield lane


def _alike(one: fx.Node, other: fx.Node) -> bool:
    """Of inputs, or of results of one call that draws several."""
    if one.op != "placeholder" or other.op != "placeholder":
        if not one.target is other.target is operator.getitem or one.args[0] is not other.args[0]:
            return False
        if one.args[0].target is not torch.unbind:
            return False
    a, b = example(one), example(other)
    if type(a) is not FakeTensor or a.layout != torch.strided:
        return False
    return periods.form(a) == periods.form(b) and a.is_leaf == b.is_leaf


def _check_lane(lane: list[fx.Node], period: Period, nodes: list[fx.Node]) -> None:
    """That each input of a lane is read in its own window or its neighbour's, and nowhere else."""
    order = {node: index for index, node in enumerate(nodes)}
    apart: set[int] = set()
    for place, node in enumerate(lane):
        for user in node.users:
            if user not in order:
                raise Irregular(f"{node} is a result")
            apart.add(place - (order[user] - period.start) // period.length)
    if len(lane) < period.count or not apart <= {0, 1}:
        raise Irregular(f"{lane[0]} and what is like it are not read by one window each")


def _check_windows(
    module: fx.GraphModule, period: Period, nodes: list[fx.Node], lanes: list[list[fx.Node]]
) -> list[fx.Node]:
    """That windows only compute, and pass on to the next one alone. Returns what all of them read whose gradient is the
    sum of what each has for it, and not of products, each of which adds to it anyway."""
    shared: dict[fx.Node, None] = {}
    order = {node: index for index, node in enumerate(nodes)}
    own = {node for lane in lanes for node in lane}
    last = period.end - period.length
    for index in range(period.start, period.end):
        node = nodes[index]
        if not _only_computes(node, module):
            raise Irregular(f"{node} does more than to compute")
        for user in node.users:
            if user.op == "output":  # of which _results asks
                continue
            reader = order.get(user, len(nodes))
            if reader >= period.end and index < last or reader < period.end and reader - index >= 2 * period.length:
                raise Irregular(f"{node} of a window is read by {user}")
        for given in node.all_input_nodes if index >= period.start + period.length else ():
            older = given not in own and order.get(given, -1) < period.start
            if older and _wants_gradient(given) and not _is_linear(node, given):
                if not _is_whole(example(given)):
                    raise Irregular(f"all windows read {given}, which wants a gradient and is no plain tensor")
                shared[given] = None
    if shared:
        _check_shared(module, nodes[period.start : period.end], shared)
    return list(shared)


def _is_whole(value: object) -> bool:
    """Whether it is one plain tensor, from the begin of its memory on."""
    return type(value) is FakeTensor and value.layout == torch.strided and str(value.storage_offset()) == "0"


def _check_shared(module: fx.GraphModule, windows: list[fx.Node], shared: Iterable[fx.Node]) -> None:
    """That windows can hand these on: what one hands on is another tensor, and asks for a gradient where it begins."""
    written = memories([example(each) for node in windows for each in effect_of(node, module).written])
    for given in shared:
        if not written.isdisjoint(memories(example(given))):
            raise Irregular(f"windows write {given}, which all of them read and which wants a gradient")
    if any(target_name(node).endswith(_MODES) for node in windows):
        raise Irregular("windows ask for gradients here and there, and all read what wants one")
    if any(bodies(module, node) for node in windows):
        raise Irregular("windows have bodies, and all read what wants a gradient")


def _results(module: fx.GraphModule, period: Period, nodes: list[fx.Node]) -> Iterator[tuple[int, ...]]:
    """Lanes of results that windows make, one each: by places among all results."""
    given = list(module.graph.output_node().args[0])
    order = {node: index for index, node in enumerate(nodes)}
    own: dict[int, dict[int, int]] = {}
    for place, node in enumerate(given):
        index = order.get(node, -1) if isinstance(node, fx.Node) else -1
        if period.start <= index < period.end:
            window, offset = divmod(index - period.start, period.length)
            own.setdefault(offset, {})[window] = place
    for places in own.values():
        if places.keys() == {period.count - 1}:
            continue
        # The last one's may be another's to give: a state that is normed before.
        if not places.keys() >= set(range(period.count - 1)):
            raise Irregular(f"{given[min(places.values())]} of a window is a result, and its neighbour's is none")
        lane = [places[window] for window in sorted(places)]
        for value in (example(given[place]) for place in lane):
            # Torch makes results of its own of the memory that a view shares with others.
            if type(value) is not FakeTensor or value._is_view():
                raise Irregular(f"{given[lane[0]]} of a window is a result that shares memory")
        yield tuple(lane)


def _only_computes(node: fx.Node, module: fx.GraphModule) -> bool:
    """Or draws numbers, in its turn, or writes what the graph has made."""
    effect = effect_of(node, module)
    if not node.users and not node.all_input_nodes:  # a note of torch's own
        return True
    if effect.kind == EFFECTFUL:
        drawn = draws(node) or "scaled_dot_product" in target_name(node)
        return drawn or bool(bodies(module, node))
    if effect.kind == PURE or not effect.written:  # which may write anything
        return effect.kind == PURE
    given = [example(each) for each in module.graph.nodes if each.op in ("placeholder", "get_attr")]
    return memories([example(each) for each in effect.written]).isdisjoint(memories(given))


def _is_linear(node: fx.Node, given: fx.Node) -> bool:
    """Whether a call is a product of what it is given, which is not cast for it: a linear layer of it, or by it."""
    if node.target is not _LINEAR or node.kwargs or not any(each is given for each in node.args[:2]):
        return False
    return example(node).dtype == example(given).dtype


def _wants_gradient(node: fx.Node) -> bool:
    return any(isinstance(each, torch.Tensor) and each.requires_grad for each in examples(node))


def _stand_in(module: fx.GraphModule, more: int, results: list[tuple[int, ...]]) -> None:
    """Gives in the place of what windows give that are to be left out what has its form."""
    output = module.graph.output_node()
    given = list(output.args[0])
    with module.graph.inserting_before(output):
        for lane in results:
            like = given[lane[HEAD - 1]]
            for place in lane[HEAD : HEAD + more]:
                given[place] = made = module.graph.call_function(stand_ins.STAND_IN, (like,))
                made.meta["example_value"] = example(like)
    output.args = (tuple(given),)


def _leave_out(module: fx.GraphModule, period: Period, more: int, lanes: list[list[int]]) -> None:
    """Erases the windows between, in place; those behind read what those before give."""
    graph, nodes = module.graph, periods.calls(module.graph)
    every = list(graph.nodes)
    first = period.start + HEAD * period.length
    behind = first + more * period.length
    # What windows before the gap read of a lane behind HEAD is, without the gap, what those behind it read.
    early = {every[lane[HEAD]]: every[lane[HEAD + more]] for lane in lanes}
    order = {node: index for index, node in enumerate(nodes)}

    def moved(node: fx.Node) -> fx.Node:
        index = order.get(node, -1)
        return nodes[index - more * period.length] if first <= index < behind else node

    for node in nodes[:first]:
        node.args, node.kwargs = fx.map_arg((node.args, node.kwargs), lambda each: early.get(each, each))
    for node in nodes[behind:]:
        node.args, node.kwargs = fx.map_arg((node.args, node.kwargs), moved)
    left_out = {every[each] for lane in lanes for each in lane[HEAD : HEAD + more]}
    for node in reversed([*(each for each in nodes[: period.start] if each in left_out), *nodes[first:behind]]):
        if node.users:
            raise Irregular(f"{node} of a window that is left out is read")
        graph.erase_node(node)
    graph.lint()
    module.recompile()


def _pass_on(module: fx.GraphModule, first: fx.Node, length: int, shared: list[fx.Node]) -> None:
    """What all windows read one hands to the next, in place, so that each adds to its gradient as its neighbours do.
    `first`: of the first window."""
    nodes = periods.calls(module.graph)
    start = nodes.index(first)
    for value in shared:
        passed = value
        for window in range(HEAD + TAIL):
            begin = start + window * length
            with module.graph.inserting_before(nodes[begin]):
                made = module.graph.call_function(stand_ins.PASS_ON, (passed,))
            made.meta["example_value"] = example(value)
            for node in nodes[begin : begin + length]:
                node.replace_input_with(value, made)
            passed = made
    if shared:
        module.graph.lint()
        module.recompile()
