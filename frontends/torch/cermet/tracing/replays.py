"""What a layer's call added to a graph, added again for another layer."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx
from torch._dynamo.utils import set_example_value
from torch._dynamo.variables.builder import VariableBuilder, wrap_fx_proxy
from torch._guards import Source

from .bodies import Bodies
from .calls import VALUE, Call, Unlike, with_tensors
from .guards import form
from .notes import Notes, stem
from .sources import Moved, Values
from .values import MovedValues


class Replay:
    """Of a call's nodes for another call, whose module has all that was guarded of the one's."""

    def __init__(self, traced: Call, call: Call, moved: Moved, values: Values) -> None:
        self._tx, self._moved, self._values = call.tx, moved, values
        self._tracer = call.tx.output.root_tracer
        self._known = {proxy.node for proxy in self._tracer.input_name_to_proxy.values()}
        self._became: dict[fx.Node, fx.Node] = dict(zip(traced.nodes, call.nodes))
        self._tensors: dict[fx.Node, Any] = dict(zip(traced.nodes, call.tensors))
        self._fakes = MovedValues()
        for one, other in self._became.items():
            self._fakes.given(one.meta[VALUE], other.meta[VALUE])
        self._notes = Notes(traced, call)
        self._bodies = Bodies(call.tx.output, self._fakes, self._notes)
        self._made: list[fx.Node] = []

    def add(self, tensors: list[Source], nodes: list[fx.Node], result: Any, results: set[fx.Node]) -> Any:
        """The call's result. Raises whatever Dynamo does, and has added nothing then that anyone reads."""
        try:
            for source in tensors:
                self._built(self._moved(source))
            for node in nodes:
                self._add(node, node in results)
            return with_tensors(result, self._tensors.__getitem__)
        except Exception:
            for node in reversed(self._made):
                node.graph.erase_node(node)
            self._bodies.forget()
            raise

    def _input(self, node: fx.Node) -> fx.Node:
        if node not in self._became:
            source = source_of(node)
            moved = source if source is None else self._moved(source)
            made = self._became[node] = node if moved is source else self._built(moved)
            if isinstance(node.meta[VALUE], torch.Tensor):
                if form(made.meta[VALUE]) != form(node.meta[VALUE]):
                    raise Unlike
                self._fakes.given(node.meta[VALUE], made.meta[VALUE])
            if made not in self._known:
                self._notes.tell(made, node)
        return self._became[node]

    def _built(self, source: Source) -> fx.Node:
        return VariableBuilder(self._tx, source)(self._values(source)).as_proxy().node

    def _add(self, node: fx.Node, is_result: bool) -> None:
        args, kwargs = fx.map_arg((node.args, node.kwargs), self._operand)
        made = self._became[node] = self._tracer.create_node(
            node.op, self._target(node), args, kwargs, stem(node.name)
        )
        self._made.append(made)
        self._notes.tell(made, node)
        if VALUE not in node.meta:
            return
        value = self._fakes.of(node.meta[VALUE])
        if is_result:
            self._tensors[node] = wrap_fx_proxy(self._tx, fx.Proxy(made, self._tracer), example_value=value)
        else:
            set_example_value(made, value)

    def _target(self, node: fx.Node) -> Any:
        if node.op != "get_attr":
            return node.target
        for user in node.users:  # what a body is given lies where it lies
            for each in user.all_input_nodes:
                if each.op == "placeholder":
                    self._input(each)
        return self._bodies.again(node, self._became)

    def _operand(self, node: fx.Node) -> fx.Node:
        return self._input(node) if node.op == "placeholder" else self._became[node]


def source_of(node: fx.Node) -> Source | None:
    """Of a graph's input."""
    return getattr(node.meta.get("grapharg"), "source", None)
