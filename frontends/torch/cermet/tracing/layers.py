"""Of layers that are alike Dynamo traces two. What the second one's call added to the graph is added for the others.

Dynamo goes through the Python of each layer, a quarter of a second where layers are large, and finds what it found in
the one before. It guards all that it reads. So a layer's trace is another one's if each guard of the one holds of the
other; what is the one's own is then the other's, and each guard is set of the other, too: the graph and its guards are
those that a trace would have made. A call is traced where what goes in or comes out could be written to by others,
where it writes, or where it reads what the program wrote.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx as fx
from torch._dynamo import config
from torch._dynamo.exc import RestartAnalysis
from torch._dynamo.variables.functions import UserMethodVariable
from torch._dynamo.variables.higher_order_ops import CheckpointHigherOrderVariable
from torch._dynamo.variables.nn_module import UnspecializedBuiltinNNModuleVariable, UnspecializedNNModuleVariable

from ..counting import count
from ..graph.memory import shared
from ..patching import replace, traces_for_us
from . import bodies, writes
from .calls import VALUE, Call, Unlike, marks, node_of, state, tensors_in
from .guards import Guards, form
from .replays import Replay, source_of
from .sources import Moved, Values, list_of, without_kind

_log = logging.getLogger("cermet")
_CALLS = "call_function"  # of Dynamo's modules, 2.10 to 2.15
_SELF = "im_self", "obj"  # of Dynamo's methods, from 2.15 on and before
_KEPT = "cermet_layers"  # on what Dynamo makes of one graph
_KINDS = 4  # of layers in one list


def twice_while_traced() -> None:
    """From now on, in what Cermet compiles."""
    writes.counted()
    replace(UnspecializedNNModuleVariable, _CALLS, _calling)
    replace(CheckpointHigherOrderVariable, _CALLS, _checkpointing)


def _calling(theirs: Callable[..., Any]) -> Callable[..., Any]:
    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        return _called(self, None, tx, args, kwargs, functools.partial(theirs, self, tx, args, kwargs))

    return call_function


def _checkpointing(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Of a layer that its caller puts under a checkpoint: `checkpoint(layer, x)`, `checkpoint(layer.forward, x)`."""

    def call_function(self: Any, tx: Any, args: Any, kwargs: Any) -> Any:
        traced = functools.partial(theirs, self, tx, args, kwargs)
        if not args:
            return traced()
        layer, way = _layer_of(args[0].realize())
        return _called(layer, (_checkpointing, way), tx, args[1:], kwargs, traced)

    return call_function


def _layer_of(called: Any) -> tuple[Any, Any]:
    """What is called, or the one whose method is, and which."""
    own = [name for name in _SELF if hasattr(called, name)] if type(called) is UserMethodVariable else ()
    return (getattr(called, own[0]).realize(), called.get_function()) if own else (called, None)


def _called(layer: Any, how: Any, tx: Any, args: Any, kwargs: Any, traced: Callable[[], Any]) -> Any:
    """What a call gives, which is traced if need be. `how`: differs for calls of one layer that do other things."""
    kinds = _kinds(layer, how, tx)
    call = None if kinds is None else _tried(Call.of, layer, tx, args, kwargs)
    if call is None:
        return traced()
    alike = next((kind for kind in kinds if _tried(kind.holds, call)), None)
    if alike is not None and alike.is_second:
        result = _tried(alike.again, call)
        if result is not None:
            count("layers_not_traced")
            return result
    begin = _tried(_Begin.of, call) if alike is not None or len(kinds) < _KINDS else None
    result = traced()
    trace = None if begin is None else _tried(_Trace.of, call, begin, result)
    if trace is not None:
        trace.is_second = alike is not None
        kinds[:] = [trace, *(kind for kind in kinds if kind is not alike)]
    return result


def _tried(function: Callable[..., Any], *given: Any) -> Any:
    """What it returns, or None: what cannot be told of a call is told by tracing it."""
    try:
        return function(*given)
    except RestartAnalysis:
        raise
    except (Unlike, writes.Unknown):
        return None
    except Exception:
        _log.debug("a layer is traced", exc_info=True)
        return None


def _kinds(variable: Any, how: Any, tx: Any) -> list[_Trace] | None:
    """The traces of a list's layers. None where a module is not of a list, or stands where its nodes would not."""
    if type(variable) not in (UnspecializedNNModuleVariable, UnspecializedBuiltinNNModuleVariable):
        return None
    output, layers = tx.output, list_of(without_kind(variable.source))
    if layers is None or output.current_tracer is not output.root_tracer or output.export:
        return None
    if config.use_graph_deduplication or config.track_nodes_for_deduplication or not traces_for_us(tx):
        return None
    return vars(output).setdefault(_KEPT, {}).setdefault((layers, type(variable.value), how), [])


@dataclasses.dataclass
class _Begin:
    """How far a graph is where a call begins."""

    last: fx.Node
    forms: list[Any]
    marks: list[int]
    bodies: set[str]

    @staticmethod
    def of(call: Call) -> _Begin:
        last = next(iter(reversed(call.tx.output.root_tracer.graph.nodes)))
        return _Begin(last, call.forms(), marks(call.tx), bodies.beside(call.tx.output))

    def nodes(self) -> Iterator[fx.Node]:
        node = self.last
        while (node := node.next).op != "root":
            if node.op != "placeholder":
                yield node


@dataclasses.dataclass
class _Trace:
    """What a module's call added to a graph."""

    call: Call
    guards: Guards
    nodes: list[fx.Node]
    result: Any
    results: set[fx.Node]
    read: list[tuple[torch.Tensor, Any]]  # what it was not given and is no part of the module, and its form
    is_second: bool = False  # of its kind: what all layers share is guarded elsewhere

    @staticmethod
    def of(call: Call, begin: _Begin, result: Any) -> _Trace:
        """Raises Unlike where a call of another module cannot be told from it."""
        tx = call.tx
        if state(tx) != call.state or marks(tx) != begin.marks or call.forms() != begin.forms:
            raise Unlike  # it does more than to compute
        if not call.was_read_only(result):
            raise Unlike
        nodes, own = list(begin.nodes()), Moved(call.source, call.source)
        results = set(map(node_of, tensors_in(result)))
        given = filter(None, map(source_of, call.nodes))
        if not bodies.are_own(tx.output, nodes, begin.bodies):
            raise Unlike
        if not results <= {*nodes, *call.nodes} or any(map(own.begins, given)):
            raise Unlike
        inputs = {each for node in nodes for each in node.all_input_nodes if each.op == "placeholder"} - {*call.nodes}
        if shared(call.values, [each.meta.get(VALUE) for each in inputs]):  # where another's may not
            raise Unlike
        others = (each.meta[VALUE] for each in inputs if (source := source_of(each)) is None or not own.begins(source))
        read = [(each, form(each)) for each in others if isinstance(each, torch.Tensor)]
        return _Trace(call, Guards.of(tx, call.source), nodes, result, results, read)

    def holds(self, call: Call) -> bool:
        """Whether a call's trace would be this one."""
        return (
            call.given == self.call.given
            and call.state == self.call.state
            and all(form(each) == known for each, known in self.read)
            and self.guards.hold(Moved(self.call.source, call.source), Values(call.tx))
        )

    def again(self, call: Call) -> Any:
        """The result of a call whose trace this is."""
        moved = Moved(self.call.source, call.source)
        replay = Replay(self.call, call, moved, Values(call.tx))
        self.guards.install(moved, call.tx)
        return replay.add(self.guards.tensors, self.nodes, self.result, self.results)

