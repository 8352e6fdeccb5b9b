"""A graph that repeats itself, on its way through AOTAutograd: torch traces the shortened one, is shown the whole
backward and what the whole forward is given and gives, and gets back what runs them."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from ..graph.edit import copied
from ..graph.nodes import example
from ..ops import stand_ins
from .lanes import Irregular, Ports, Rung
from .lengthening import Lengthened, Lengthening, made_inputs
from .periods import form
from .shortening import Shortened

_MARK = "cermet_shown"  # on what torch is shown


@dataclasses.dataclass(frozen=True)
class _Level:
    """A graph between the shortest and the whole one: what one of the repetitions of it is given and gives."""

    of: Shortened
    inputs: Ports
    outputs: Ports
    has_windows: bool

    def whole(self, graph: fx.Graph) -> Lengthened | None:
        return _lengthening(self.of, graph, self.inputs).whole(self.outputs) if self.has_windows else None


@dataclasses.dataclass(frozen=True)
class _Short:
    """What is compiled in the place of a graph that torch is shown."""

    module: fx.GraphModule
    levels: tuple[_Level, ...]  # the shortest first
    shown: int = 0  # calls of what is shown: torch may put more into it, for hooks of saved tensors


def computed(name: str) -> None:
    """Stands in what torch is shown for all that gives a result."""
    raise RuntimeError(f"{name} is a result of a graph that is compiled elsewhere")


class Repeated:
    """The graphs of one compilation."""

    def __init__(self, shortened: Sequence[Shortened]) -> None:
        self._shortened = tuple(reversed(shortened))  # the shortest first
        self._returned: list[int | None] = []  # which of the program's results each is of a graph that was cut
        self._shown: list[_Short] = []
        # Of each kind of graph: what is compiled, and of its calls in how many windows they are.
        self._short: dict[str, _Short] = {}
        self.times: dict[str, dict[fx.Node, int]] = {}

    def forget(self) -> None:
        """All graphs: what is compiled needs none, and what torch keeps of its compilers would hold them."""
        self._shortened = ()
        for kept in (self._returned, self._shown, self._short, self.times):
            kept.clear()

    def has(self, joint: fx.GraphModule) -> bool:
        """Whether this is the graph's, and not that of a region in it."""
        given = [node for node in _places(joint.graph) if not _is_cotangent(node)]
        return len(given) == self._shortened[0].inputs

    def take(self, joint: fx.GraphModule, promised: int) -> None:
        """Takes what stands for results of windows that are not there out of a graph, in place, before it is cut.
        `promised`: how many results are the forward's."""
        self._returned = _described(joint.graph.output_node(), promised)
        stand_ins.take_out(joint.graph)

    def cut(self, forward: fx.GraphModule, backward: fx.GraphModule) -> tuple[fx.GraphModule, fx.GraphModule]:
        """What torch is shown of a forward and a backward: what the whole ones are given and give. Raises Irregular."""
        forwards: list[_Level] = []
        backwards: list[_Level] = []
        made, whole = forward.graph, backward.graph
        cotangents = [_result_of(node) for node in _places(whole) if _is_cotangent(node)]
        for of in self._shortened:
            if forwards:
                made = forwards[-1].whole(made).graph
            inputs = of.ports(len(_places(made)))
            outputs = _lengthening(of, made, inputs).outputs(of.returned(self._returned))
            forwards.append(_Level(of, inputs, outputs, True))
            saved = _saved(made, whole, outputs, len(self._returned), of.cotangents(cotangents))
            # The backward is kept: compiled autograd makes it a part of its own graphs.
            backwards.append(_Level(of, saved, of.ports(len(_results(whole))), of.differentiated))
            found = backwards[-1].whole(whole)
            whole = found.graph if found is not None else copied(whole)
        return (
            self._show(_outline(forward, made, forwards[-1]), _Short(forward, tuple(forwards))),
            self._show(_LazyGraphModule(backward, whole), _Short(backward, tuple(backwards))),
        )

    def _show(self, module: fx.GraphModule, short: _Short) -> fx.GraphModule:
        module.meta[_MARK] = len(self._shown)
        type(module).__deepcopy__ = lambda module, _: module  # a class of its own; torch copies what compilers change
        self._shown.append(dataclasses.replace(short, shown=len(module.graph.nodes)))
        return module

    def shortened(self, kind: str, module: fx.GraphModule, was_cut: bool) -> fx.GraphModule:
        """What is to be compiled in the place of a graph that torch compiles. Raises Irregular."""
        if was_cut and _MARK not in module.meta:
            raise Irregular("torch compiles a graph that it was not shown")
        if not was_cut:  # of no gradients: what was traced is what is compiled
            returned = _described(module.graph.output_node(), len(_results(module.graph)))
            stand_ins.take_out(module.graph)
            count = len(_places(module.graph))
            levels = (_Level(of, of.ports(count), of.returned(returned), True) for of in self._shortened)
            self._short[kind] = _Short(module, tuple(levels))
            return module
        short = self._shown[module.meta[_MARK]]
        if len(module.graph.nodes) != short.shown:
            raise Irregular("torch has changed a graph")
        self._short[kind] = short
        return short.module

    def whole(
        self, kind: str, module: fx.GraphModule, otherwise: Mapping[fx.Node, Any]
    ) -> tuple[fx.GraphModule, dict[fx.Node, Any]]:
        """Of what a shortened graph became, and of its launches that may not always write over inputs
        (places.Otherwise). Raises Irregular."""
        made, launches, graph = {node: [node] for node in module.graph.nodes}, dict(otherwise), module.graph
        for level in self._short[kind].levels:
            found = level.whole(graph)
            if found is None:
                given = zip(_results(graph), level.outputs.short)
                if any(level.inputs.short) or any(value is not None and rung is not None for value, rung in given):
                    raise Irregular("layers that want no gradient have one")
                continue
            graph = found.graph
            made = {node: [each for one in ones for each, _ in found.made.get(one, ())] for node, ones in made.items()}
            launches = {
                each: launch._replace(inputs=tuple(map(become, launch.inputs)))
                for node, launch in launches.items()
                for each, become in found.made[node]
            }
        self.times[kind] = {node: len(ones) for node, ones in made.items() if len(ones) > 0}
        return (module if graph is module.graph else _LazyGraphModule(module, graph)), launches


def _lengthening(of: Shortened, graph: fx.Graph, inputs: Ports) -> Lengthening:
    return Lengthening(graph, inputs, of.seeds(), of.more)


def _saved(forward: fx.Graph, backward: fx.Graph, outputs: Ports, promised: int, cotangents: Ports) -> Ports:
    """What a backward is given: the sizes that its forward keeps, the tensors, and the cotangents."""
    given, places = _results(forward), _places(backward)
    kept = range(promised, len(given))
    sizes_first = sorted(kept, key=lambda place: isinstance(example(given[place]), torch.Tensor))
    taken = [node for node in places if not _is_cotangent(node)]
    forms = [form(example(given[place])) for place in sizes_first]
    if taken != places[: len(taken)] or list(map(form, map(example, taken))) != forms:
        raise Irregular("a backward is not given what its forward keeps")
    now = {place: index for index, place in enumerate(sizes_first)}
    whole = [(now[place], rung) for place, rung in outputs.whole if place >= promised]
    whole.sort(key=lambda each: each[0])
    return Ports(
        (*(outputs.short[place] for place in sizes_first), *cotangents.short),
        (*whole, *((like + len(taken), rung) for like, rung in cotangents.whole)),
    )


def _outline(owner: fx.GraphModule, short: fx.Graph, level: _Level) -> fx.GraphModule:
    """What the whole of a graph is given and gives, without what it does."""
    graph, places = fx.Graph(), _places(short)
    index = {node: place for place, node in enumerate(places)}
    made = made_inputs(graph, places, level.inputs)
    given, results = _results(short), []
    for like, rung in level.outputs.whole:
        value = given[like]
        if value in index:
            read, own = level.inputs.short[index[value]], level.outputs.short[like]
            key: Hashable = index[value] if read is None else read.counted(level.of.more)
            if read is not None and rung is not None:
                key = Rung(read.lane, rung.place + read.place - own.place)
            if key not in made:
                raise Irregular("an input of a window is a result")
            results.append(made[key])
        elif isinstance(value, fx.Node):
            results.append(graph.call_function(computed, (value.name,)))
            results[-1].meta = dict(value.meta)
        else:
            results.append(value)
    graph.output(tuple(results)).meta = dict(short.output_node().meta)
    return _LazyGraphModule(owner, graph)


def _places(graph: fx.Graph) -> list[fx.Node]:
    return graph.find_nodes(op="placeholder")


def _results(graph: fx.Graph) -> tuple[Any, ...]:
    return tuple(graph.output_node().args[0])


def _is_cotangent(node: fx.Node) -> bool:
    return str(node.target).startswith("tangents")


def _described(output: fx.Node, count: int) -> list[int | None]:
    """Of the first results of a graph behind autograd: which of the program's each is."""
    return list(map(_number, output.meta.get("desc", [None] * count)[:count]))


def _result_of(cotangent: fx.Node) -> int | None:
    """The program's result that it is of."""
    return _number(getattr(cotangent.meta.get("desc"), "output", None))


def _number(description: object) -> int | None:
    """Of AOTAutograd's description (torch._functorch._aot_autograd.descriptors), which not every torch has."""
    return description.idx if type(description).__name__ == "PlainAOTOutput" else None
