"""A graph that repeats itself, on its way through AOTAutograd: torch traces the shortened one, is shown the whole
backward and what the whole forward is given and gives, and gets back what runs them."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._functorch._aot_autograd.descriptors import PlainAOTOutput
from torch.fx._lazy_graph_module import _LazyGraphModule

from ..graph.edit import copied
from ..graph.nodes import example
from ..ops import stand_ins
from .lanes import Irregular, Ports, Rung
from .lengthening import Lengthening, made_inputs
from .periods import form
from .shortening import Shortened

_MARK = "cermet_shown"  # on what torch is shown


@dataclasses.dataclass(frozen=True)
class _Short:
    """What is compiled in the place of a graph that torch is shown."""

    module: fx.GraphModule
    inputs: Ports
    outputs: Ports
    has_windows: bool
    shown: int = 0  # calls of what is shown: torch may put more into it, for hooks of saved tensors


def computed(name: str) -> None:
    """Stands in what torch is shown for all that gives a result."""
    raise RuntimeError(f"{name} is a result of a graph that is compiled elsewhere")


class Repeated:
    """The graphs of one compilation."""

    def __init__(self, shortened: Shortened) -> None:
        self._shortened: Shortened | None = shortened
        self._returned: Ports | None = None  # what the program is given of a graph that was cut
        self._shown: list[_Short] = []
        # Of each kind of graph: what is compiled, and of its calls in how many windows they are.
        self._short: dict[str, _Short] = {}
        self.times: dict[str, dict[fx.Node, int]] = {}

    def forget(self) -> None:
        """All graphs: what is compiled needs none, and what torch keeps of its compilers would hold them."""
        self._shortened = self._returned = None
        for kept in (self._shown, self._short, self.times):
            kept.clear()

    def has(self, joint: fx.GraphModule) -> bool:
        """Whether this is the graph's, and not that of a region in it."""
        given = [node for node in _places(joint) if not str(node.target).startswith("tangents")]
        return len(given) == self._shortened.inputs

    def take(self, joint: fx.GraphModule, promised: int) -> None:
        """Takes what stands for results of windows that are not there out of a graph, in place, before it is cut.
        `promised`: how many results are the forward's. Raises Irregular."""
        self._returned = self._shortened.returned(_described(joint.graph.output_node(), promised))
        stand_ins.take_out(joint.graph)

    def cut(self, forward: fx.GraphModule, backward: fx.GraphModule) -> tuple[fx.GraphModule, fx.GraphModule]:
        """What torch is shown of a forward and a backward: what the whole ones are given and give. Raises Irregular."""
        inputs, promised = self._shortened.ports(len(_places(forward))), len(self._returned.short)
        outputs = self._lengthening(forward, inputs).outputs(self._returned)
        saved = self._saved(_results(forward), _places(backward), outputs, promised)
        gradients = self._shortened.ports(len(_results(backward)))
        # The backward is kept: compiled autograd makes it a part of its own graphs.
        windows = self._shortened.differentiated
        whole = self._lengthening(backward, saved).whole(gradients).graph if windows else copied(backward.graph)
        return (
            self._show(self._outline(forward, inputs, outputs), _Short(forward, inputs, outputs, True)),
            self._show(_LazyGraphModule(backward, whole), _Short(backward, saved, gradients, windows)),
        )

    def _saved(self, given: Sequence[Any], places: list[fx.Node], outputs: Ports, promised: int) -> Ports:
        """What a backward is given: the sizes that its forward keeps, the tensors, and the cotangents."""
        kept = range(promised, len(given))
        sizes_first = sorted(kept, key=lambda place: isinstance(example(given[place]), torch.Tensor))
        taken = [node for node in places if not str(node.target).startswith("tangents")]
        forms = [form(example(given[place])) for place in sizes_first]
        if taken != places[: len(taken)] or list(map(form, map(example, taken))) != forms:
            raise Irregular("a backward is not given what its forward keeps")
        now = {place: index for index, place in enumerate(sizes_first)}
        whole = [(now[place], rung) for place, rung in outputs.whole if place >= promised]
        whole.sort(key=lambda each: each[0])
        others = self._shortened.cotangents([_result_of(node) for node in places[len(taken) :]])
        return Ports(
            (*(outputs.short[place] for place in sizes_first), *others.short),
            (*whole, *((like + len(taken), rung) for like, rung in others.whole)),
        )

    def _lengthening(self, module: fx.GraphModule, inputs: Ports) -> Lengthening:
        return Lengthening(module.graph, inputs, self._shortened.seeds(), self._shortened.more)

    def _show(self, module: fx.GraphModule, short: _Short) -> fx.GraphModule:
        module.meta[_MARK] = len(self._shown)
        type(module).__deepcopy__ = lambda module, _: module  # a class of its own; torch copies what compilers change
        self._shown.append(dataclasses.replace(short, shown=len(module.graph.nodes)))
        return module

    def _outline(self, short: fx.GraphModule, inputs: Ports, outputs: Ports) -> fx.GraphModule:
        """What the whole of a graph is given and gives, without what it does."""
        graph, places = fx.Graph(), _places(short)
        index = {node: place for place, node in enumerate(places)}
        made = made_inputs(graph, places, inputs)
        given, results = _results(short), []
        for like, rung in outputs.whole:
            value = given[like]
            if value in index:
                read, own = inputs.short[index[value]], outputs.short[like]
                key: Hashable = index[value] if read is None else read.counted(self._shortened.more)
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
        graph.output(tuple(results)).meta = dict(short.graph.output_node().meta)
        return _LazyGraphModule(short, graph)

    def shortened(self, kind: str, module: fx.GraphModule, was_cut: bool) -> fx.GraphModule:
        """What is to be compiled in the place of a graph that torch compiles. Raises Irregular."""
        if was_cut and _MARK not in module.meta:
            raise Irregular("torch compiles a graph that it was not shown")
        if not was_cut:  # of no gradients: what was traced is what is compiled
            results = self._shortened.returned(_described(module.graph.output_node(), len(_results(module))))
            stand_ins.take_out(module.graph)
            self._short[kind] = _Short(module, self._shortened.ports(len(_places(module))), results, True)
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
        inputs, outputs = self._short[kind].inputs, self._short[kind].outputs
        if not self._short[kind].has_windows:
            given = zip(_results(module), outputs.short)
            self.times[kind] = {}
            if any(inputs.short) or any(value is not None and rung is not None for value, rung in given):
                raise Irregular("layers that want no gradient have one")
            return module, dict(otherwise)
        found = self._lengthening(module, inputs).whole(outputs)
        self.times[kind] = {node: len(made) for node, made in found.made.items()}
        launches = {
            made: each._replace(inputs=tuple(map(become, each.inputs)))
            for node, each in otherwise.items()
            for made, become in found.made[node]
        }
        return _LazyGraphModule(module, found.graph), launches


def _places(module: fx.GraphModule) -> list[fx.Node]:
    return module.graph.find_nodes(op="placeholder")


def _results(module: fx.GraphModule) -> tuple[Any, ...]:
    return tuple(module.graph.output_node().args[0])


def _described(output: fx.Node, count: int) -> list[int | None]:
    """Of the first results of a graph behind autograd: which of the program's each is."""
    return list(map(_number, output.meta["desc"][:count]))


def _result_of(cotangent: fx.Node) -> int | None:
    """The program's result that it is of."""
    return _number(getattr(cotangent.meta["desc"], "output", None))


def _number(description: object) -> int | None:
    return description.idx if isinstance(description, PlainAOTOutput) else None
