"""What a layer's call added to a graph, added again for another layer."""

from __future__ import annotations

import re
from typing import Any

import torch.fx as fx
from torch._dynamo.utils import set_example_value
from torch._dynamo.variables.builder import VariableBuilder, wrap_fx_proxy
from torch._guards import Source

from .calls import VALUE, Call, Unlike, with_tensors
from .guards import form
from .sources import Moved, Values
from .values import MovedValues

_LINES, _MODULES, _CALLED = "stack_trace", "nn_module_stack", "source_fn_stack"  # in a node's meta
_HELD = re.compile(r"\._(?:modules|parameters|buffers)\[(['\"])([^'\"\]]+)\1\]")


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
        self._made: list[fx.Node] = []
        modules = zip(traced.module.modules(), call.module.modules())
        self._modules = {str(id(one)): str(id(other)) for one, other in modules}
        self._old, self._new = _HELD.sub(r".\2", traced.named.name), _HELD.sub(r".\2", call.named.name)

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
            raise

    def _input(self, node: fx.Node) -> fx.Node:
        if node not in self._became:
            source = source_of(node)
            moved = source if source is None else self._moved(source)
            made = node if moved is source else self._built(moved)
            if form(made.meta[VALUE]) != form(node.meta[VALUE]):
                raise Unlike
            self._became[node] = made
            self._fakes.given(node.meta[VALUE], made.meta[VALUE])
            if made not in self._known:
                self._tell(made, node)
        return self._became[node]

    def _built(self, source: Source) -> fx.Node:
        return VariableBuilder(self._tx, source)(self._values(source)).as_proxy().node

    def _add(self, node: fx.Node, is_result: bool) -> None:
        args, kwargs = fx.map_arg((node.args, node.kwargs), self._operand)
        name = re.sub(r"_\d+$", "", node.name)
        made = self._became[node] = self._tracer.create_node(node.op, node.target, args, kwargs, name)
        self._made.append(made)
        self._tell(made, node)
        if VALUE not in node.meta:
            return
        value = self._fakes.of(node.meta[VALUE])
        if is_result:
            self._tensors[node] = wrap_fx_proxy(self._tx, fx.Proxy(made, self._tracer), example_value=value)
        else:
            set_example_value(made, value)

    def _operand(self, node: fx.Node) -> fx.Node:
        return self._input(node) if node.op == "placeholder" else self._became[node]

    def _tell(self, made: fx.Node, node: fx.Node) -> None:
        """What else Dynamo notes of a node: which line and which modules it came from."""
        made.meta.update((key, value) for key, value in node.meta.items() if key not in made.meta and key != VALUE)
        if lines := node.meta.get(_LINES):
            made.meta[_LINES] = lines
        if modules := node.meta.get(_MODULES):
            made.meta[_MODULES] = {self._number(key): (self._name(name), *rest)
                                   for key, (name, *rest) in modules.items()}
        if called := node.meta.get(_CALLED):
            made.meta[_CALLED] = [*called[:-1], (made.name, *called[-1][1:])]

    def _number(self, key: str) -> str:
        number, *times = key.split("@")
        return "@".join((self._modules.get(number, number), *times))

    def _name(self, name: str) -> str:
        return self._new + name.removeprefix(self._old) if name.startswith(self._old) else name


def source_of(node: fx.Node) -> Source | None:
    """Of a graph's input."""
    return getattr(node.meta.get("grapharg"), "source", None)
