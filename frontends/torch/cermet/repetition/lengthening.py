"""The whole of a graph that was made of a shortened one: a forward or a backward of it, and what it became.

Two windows of it stand for all: the second is the first, moved by one. What it does to what the first one left and to
its own inputs, the next one does to what the second leaves and to the next inputs, and so on. It is put behind itself
as often as windows were left out; what comes behind reads of the last one what it read of the second.

Nothing is assumed of a graph: one that does not repeat itself is refused, and one that reads inputs out of their turn.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.fx as fx

from ..graph.nodes import example
from . import periods
from .lanes import GIVEN, MADE, Irregular, Ports, Rung, Seeds

Become = Callable[[fx.Node], fx.Node]


@dataclasses.dataclass(frozen=True)
class Lengthened:
    graph: fx.Graph
    # Of each call what it became, once for each window that it is in, and what a value that it is given is there.
    made: dict[fx.Node, list[tuple[fx.Node, Become]]]


class Lengthening:
    """Of a graph of ATen's calls, whose inputs are known. Each call of it raises Irregular where it is not known what
    the whole graph would be. The fake values of windows say which forms theirs have, and not that they share memory."""

    def __init__(self, graph: fx.Graph, inputs: Ports, seeds: Seeds, more: int) -> None:
        self._more = more
        places = graph.find_nodes(op="placeholder")
        if len(places) != len(inputs.short):
            raise Irregular(f"{len(places)} inputs, expected {len(inputs.short)}")
        self._places, self._inputs = places, inputs
        self._index = {node: index for index, node in enumerate(places)}
        self._rungs = {node: rung for node, rung in zip(places, inputs.short) if rung is not None}
        self._seeds, self._draw = seeds, _draw(graph, seeds)
        for node in self._draw.users if self._draw is not None else ():
            if (rung := seeds.short.get(node.args[1])) is not None:
                self._rungs[node] = rung
        self._nodes = periods.calls(graph)
        self._order = {node: index for index, node in enumerate(self._nodes)}
        self._output = graph.output_node()
        self._period, self._step = self._found()
        self._start, self._length = self._period.start, self._period.length
        self._second, self._cut = self._start + self._length, self._start + 2 * self._length
        self._made: dict[fx.Node, list[tuple[fx.Node, Become]]] = {}
        self._graph = fx.Graph()
        self._graph.set_codegen(graph._codegen)
        self._sequence: list[fx.Node] = []  # what was made, in order, without what is behind the last window
        self._whole: dict[Hashable, fx.Node] = {}  # inputs: by rungs, or by their places in the shortened graph

    def _found(self) -> tuple[periods.Period, int]:
        """The windows, and whether they come in the order of their inputs or in the other one."""
        found, calls = [], periods.Calls(self._nodes)
        for step in (1, -1):

            def follows(one: fx.Node, other: fx.Node, step: int = step) -> bool:
                a, b = self._rungs.get(one), self._rungs.get(other)
                return a is not None and b is not None and (b.lane, b.place) == (a.lane, a.place + step)

            found += [(period, step) for period in itertools.islice(calls.find(lambda: follows), 1)]
        if not found:
            raise Irregular("no windows")
        return max(found, key=lambda each: each[0].length * each[0].count)

    def whole(self, outputs: Ports) -> Lengthened:
        """`outputs`: what the graph gives."""
        self._check()
        self._whole = made_inputs(self._graph, self._places, self._inputs)
        for made in self._copies(0, self._cut, self._before):
            self._sequence.append(made)
        for copy in range(1, self._more + 1):
            become = functools.partial(self._again, copy=copy)
            for made in self._copies(self._second, self._cut, become, copy):
                self._sequence.append(made)
        for _ in self._copies(self._cut, len(self._nodes), self._behind):
            pass
        made = self._graph.output(self._results(self._output.args[0], outputs))
        made.meta = dict(self._output.meta)
        return Lengthened(self._graph, self._made)

    # --- What is asked of the graph ---------------------------------------------------------------------------------

    def _check(self) -> None:
        """That windows read each other's values and inputs in turn, and else what is older than all of them."""
        windows = self._nodes[self._start : self._period.end]
        for node, later in zip(windows, windows[self._length :]):
            for one, other in zip(periods.operands(node), periods.operands(later)):
                older = self._order.get(other, -1) < self._start and other not in self._rungs
                if (one is other) != older:
                    raise Irregular("windows read the same value of one of them")
        second: dict[Hashable, set[int]] = {}
        for node in self._nodes[self._second : self._cut]:
            for each in node.all_input_nodes:
                if (rung := self._rungs.get(each)) is not None:
                    second.setdefault(rung.lane, set()).add(rung.place)
        for node in self._nodes:
            index = self._order[node]
            for rung in filter(None, map(self._rungs.get, node.all_input_nodes)):
                if rung.lane not in second:
                    raise Irregular("an input of a window that windows do not read")
                if not self._is_in_turn(rung.place, second[rung.lane], index < self._cut):
                    raise Irregular("a window reads an input of another one")

    def _is_in_turn(self, place: int, second: Iterable[int], before: bool) -> bool:
        """Whether an input is one that calls up to the second window, or those behind it, may read."""
        places = [each * self._step for each in second]
        return place * self._step <= max(places) if before else place * self._step > min(places)

    # --- Calls -------------------------------------------------------------------------------------------------------

    def _copies(self, first: int, end: int, become: Become, copy: int = 0) -> Iterator[fx.Node]:
        """Of some of the calls, in a copy of a window; `become`: what a value that they are given is for these."""
        for node in self._nodes[first:end]:
            if node in self._rungs:  # made with the others, behind what draws them
                yield node  # nobody asks where
                continue
            args, kwargs = fx.map_arg((node.args, node.kwargs), become)
            # A number behind a name that has one is free: torch looks for the next that is, one by one.
            name = f"{node.name}_w{copy}" if copy else node.name
            made = self._graph.create_node(node.op, node.target, args, kwargs, name, node.type)
            made.meta = dict(node.meta)
            self._made.setdefault(node, []).append((made, become))
            yield made
            if node is self._draw:
                self._make_seeds(made)

    def _make_seeds(self, draw: fx.Node) -> None:
        for rung, number in self._seeds.whole.items():
            self._whole[rung] = made = self._graph.call_function(operator.getitem, (draw, number))
            made.meta["val"] = example(draw)[number]

    def _place(self, rung: Rung, window: int | None) -> int:
        """In the whole graph: of what calls up to the second window (0), a copy of it, or those behind (None) read."""
        if self._step > 0:
            return rung.place + (self._more if window is None else window)
        return rung.place + (0 if window is None else self._more - window)

    def _is_given(self, node: fx.Node) -> bool:
        return node.op == "placeholder" or node in self._rungs

    def _input(self, node: fx.Node, window: int | None) -> fx.Node:
        rung = self._rungs.get(node)
        key = self._index[node] if rung is None else Rung(rung.lane, self._place(rung, window))
        if key not in self._whole:
            raise Irregular("an input that the whole graph has not")
        return self._whole[key]

    def _before(self, node: fx.Node) -> fx.Node:
        return self._input(node, 0) if self._is_given(node) else self._sequence[self._order[node]]

    def _again(self, node: fx.Node, copy: int) -> fx.Node:
        if self._is_given(node):
            return self._input(node, copy)
        index = self._order[node]
        return self._sequence[index if index < self._start else index + copy * self._length]

    def _behind(self, node: fx.Node) -> fx.Node:
        """Behind the windows the last one is read, and what is older than all."""
        if self._is_given(node):
            return self._input(node, None)
        index = self._order[node]
        if index >= self._cut:
            return self._made[node][0][0]
        if self._start <= index < self._second:
            raise Irregular("a call reads a window that is not the one before")
        return self._sequence[index if index < self._start else index + self._more * self._length]

    # --- Results -----------------------------------------------------------------------------------------------------

    def outputs(self, promised: Ports) -> Ports:
        """What a graph gives: the first ones as they are `promised`, and the others by windows, where they are those':
        made there, or inputs of windows."""
        given, first = self._output.args[0], len(promised.short)
        rungs = [*promised.short, *map(self._rung, given[first:])]
        known, whole = set(rungs), list(promised.whole)
        for place, rung in enumerate(rungs[first:], first):
            # Of a lane that the last window before the gap has no part in, no window that is left out has one.
            if rung is None or Rung(rung.lane, rung.last) not in known:
                rungs[place] = None
                whole.append((place, None))
                continue
            whole.append((place, rung.counted(self._more)))
            if rung.place == rung.last:
                whole += [(place, Rung(rung.lane, rung.place + copy)) for copy in range(1, self._more + 1)]
        return Ports(tuple(rungs), tuple(whole))

    def _rung(self, node: Any) -> Rung | None:
        """Of a result: by the input that it is, or by where windows make it."""
        if (own := self._rungs.get(node)) is not None:
            return Rung((GIVEN, own.lane), own.place)
        if not self._start <= self._order.get(node, -1) < self._period.end:
            return None
        window, offset = divmod(self._order[node] - self._start, self._length)
        return Rung((MADE, offset), window)

    def _results(self, given: Sequence[Any], outputs: Ports) -> tuple[Any, ...]:
        if len(given) != len(outputs.short):
            raise Irregular(f"{len(given)} results, expected {len(outputs.short)}")
        lanes: dict[Hashable, dict[int, Any]] = {}
        for value, rung in zip(given, outputs.short):
            if rung is not None:
                lanes.setdefault(rung.lane, {})[rung.place] = value
        whole = {lane: self._lane(values) for lane, values in lanes.items()}
        results = []
        for like, rung in outputs.whole:
            if rung is None:
                results.append(self._alone(given[like]))
                continue
            if rung.place not in whole[rung.lane]:
                raise Irregular("a result of a window that is not there")
            results.append(whole[rung.lane][rung.place])
        return tuple(results)

    def _alone(self, value: Any) -> Any:
        if not isinstance(value, fx.Node):
            return value
        if value in self._rungs:
            return self._whole[self._rungs[value].counted(self._more)]
        index = self._order.get(value, -1)
        if self._second <= index < self._cut:
            raise Irregular("a window's value is a result")
        return self._sequence[index] if 0 <= index < self._second else self._behind(value)

    def _lane(self, values: dict[int, Any]) -> dict[int, Any]:
        """The results of all windows, by their places in the whole graph."""
        if all(value is None for value in values.values()):
            return dict.fromkeys(range(len(values) + self._more))
        if all(value in self._rungs for value in values.values()):
            apart = {(self._rungs[value].lane, self._rungs[value].place - place) for place, value in values.items()}
            if len(apart) != 1:
                raise Irregular("inputs of windows are results in another order")
            ((lane, behind),) = apart
            places = [rung.place for rung in self._whole if isinstance(rung, Rung) and rung.lane == lane]
            return {place - behind: self._whole[Rung(lane, place)] for place in places}
        if not all(isinstance(value, fx.Node) and value in self._order for value in values.values()):
            raise Irregular("results of windows that are not all their own")
        of_second = [place for place, each in values.items() if self._second <= self._order[each] < self._cut]
        if len(of_second) != 1:
            raise Irregular("results that windows do not give one each")
        found: dict[int, Any] = {}
        for place, value in values.items():
            index, rung = self._order[value], Rung(None, place)
            if not self._is_in_turn(place, of_second, index < self._cut):
                raise Irregular("windows give results in another order")
            made = self._made[value][0][0]
            found[self._place(rung, 0 if index < self._cut else None)] = made
        second = values[of_second[0]]
        for copy in range(1, self._more + 1):
            made = self._sequence[self._order[second] + copy * self._length]
            found[self._place(Rung(None, of_second[0]), copy)] = made
        return found


def _draw(graph: fx.Graph, seeds: Seeds) -> fx.Node | None:
    """The call that draws them."""
    calls = graph.find_nodes(op="call_function", target=torch.ops.aten.unbind.int) if seeds.count else ()
    found = [node for node in calls if len(example(node)) == seeds.count]
    return found[0] if len(found) == 1 else None


def made_inputs(graph: fx.Graph, short: Sequence[fx.Node], inputs: Ports) -> dict[Hashable, fx.Node]:
    """The inputs of a whole graph, by their rungs, or by their places in the shortened one where they have none."""
    made: dict[Hashable, fx.Node] = {}
    for like, rung in inputs.whole:
        node = short[like]
        name = node.name if rung is None else f"{node.name}_{rung.place}"
        made[like if rung is None else rung] = new = graph.placeholder(name, type_expr=node.type)
        new.target = new.name  # which no other has
        new.meta = dict(node.meta)
    return made
