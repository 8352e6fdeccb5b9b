"""Writes that a functional graph spells as copies: into an input of the whole input, and back.

Autograd's graphs write nothing. A cache of keys that gets one row becomes `index_copy`, which copies the cache, and
behind all else a `copy_` of that into the input: four times the cache's bytes for one row. Where nothing reads the old
value any more, the row is stored where it belongs. So it is with what the graph makes itself: zeros that rows are
scattered into are not copied first.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence, Set
from typing import Any

import torch
import torch.fx as fx

from ...graph.layouts import written
from ...graph.memory import memories
from ...graph.nodes import tensor_nodes
from .wide_copies import shares_memory

_aten = torch.ops.aten
_COPY = _aten.copy_.default
_NAMES = "index_copy index_put index_add index_fill scatter scatter_add scatter_reduce masked_scatter".split()
_WRITES = {  # by the call that copies
    getattr(getattr(_aten, name), overload): getattr(getattr(_aten, f"{name}_"), overload)
    for name in _NAMES
    for overload in getattr(_aten, name).overloads()
    if overload in getattr(_aten, f"{name}_").overloads()
}
_PARTS = {_aten.slice_scatter.default: _aten.slice.Tensor, _aten.select_scatter.default: _aten.select.int}


def write(graph: fx.Graph) -> int:
    """Makes `copy_(input, f(input, ...))` the write that `f` is, several in a row too, in place; returns how many
    copies of inputs that saves."""
    times = 0
    for copy in list(graph.find_nodes(op="call_function", target=_COPY)):
        target, value = copy.args[:2]
        calls = _calls(value, target) if target.op == "placeholder" and not copy.users else []
        if not calls or not _Readers(graph, copy).allow(target, calls):
            continue
        graph.erase_node(copy)
        for call in calls:
            _write(graph, call)
        times += 1
    return times


def reuse(graph: fx.Graph) -> int:
    """Makes `f(x, ...)` the write that `f` is where nothing else reads `x`, which a call of ATen has made; returns how
    many copies that saves. Then no order of the graph's calls shows it."""
    own: set[fx.Node] = set()
    for node in graph.nodes:
        if node.target in _WRITES and _is_spare(node.args[0], node, own):
            node.target = _WRITES[node.target]
            own.add(node)
    return len(own)


def count(graph: fx.Graph) -> int:
    """Makes all `copy_(input, input + number)` of one number one call, in place, as batch norms count their batches;
    returns how many calls that saves."""
    alike: dict[Hashable, list[fx.Node]] = {}
    for copy in graph.find_nodes(op="call_function", target=_COPY):
        if _is_count(copy):
            target, raised = copy.args
            value = target.meta["val"]
            alike.setdefault((raised.args[1], value.dtype, value.device), []).append(copy)
    saved = 0
    for (number, *_), copies in alike.items():
        if len(copies) > 1:
            with graph.inserting_before(copies[0]):
                graph.call_function(_aten._foreach_add_.Scalar, ([copy.args[0] for copy in copies], number))
            for copy in copies:
                raised = copy.args[1]
                graph.erase_node(copy)
                graph.erase_node(raised)
            saved += 2 * len(copies) - 1
    return saved


def _is_count(copy: fx.Node) -> bool:
    """Whether an input is raised by a whole number, and nothing else reads it, or what it becomes."""
    target, raised, *rest = copy.args
    if rest or copy.users or target.op != "placeholder" or raised.target is not _aten.add.Tensor or raised.kwargs:
        return False
    is_raised = raised.args[0] is target and isinstance(raised.args[1], int) and _form(raised) == _form(target)
    return is_raised and set(target.users) == {raised, copy} and list(raised.users) == [copy]


def _is_spare(source: Any, reader: fx.Node, own: Set[fx.Node]) -> bool:
    """Whether a value is a tensor of its own, which lies as the reader's result does and which that reads once."""
    if not isinstance(source, fx.Node) or list(source.users) != [reader]:
        return False
    if source not in own and not _makes(source.target) or _form(source) != _form(reader):
        return False
    return [*tensor_nodes((reader.args, reader.kwargs))].count(source) == 1


def _makes(target: Any) -> bool:
    """Whether a call gives memory that nothing else has."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace != "aten":
        return False
    return len(target._schema.returns) == 1 and not shares_memory(target)


def _calls(value: Any, target: fx.Node) -> list[fx.Node]:
    """The calls that make `value` of `target`, in their order; none where others do."""
    found: list[fx.Node] = []
    while isinstance(value, fx.Node) and value is not target:
        if value.target not in _WRITES and value.target not in _PARTS:
            return []
        found.insert(0, value)
        value = value.args[0]
    return found if value is target else []


class _Readers:
    """Who reads which memory, but for the `copy` that is to go."""

    def __init__(self, graph: fx.Graph, copy: fx.Node) -> None:
        self._order: dict[fx.Node, int] = {}
        self._last: dict[Hashable, int] = {}  # of a memory's readers
        for index, node in enumerate(graph.nodes):
            self._order[node] = index
            for source in () if node is copy else node.all_input_nodes:
                for memory in memories(source.meta.get("val")):
                    self._last[memory] = index
        self._returned = memories([node.meta.get("val") for node in graph.output_node().all_input_nodes])

    def allow(self, target: fx.Node, calls: Sequence[fx.Node]) -> bool:
        """Whether all that the calls make may lie in `target`: nothing reads a value behind the call that writes over
        it, the graph returns none of them, and a call's other operands lie elsewhere."""
        versions = [target, *calls]
        held = memories([version.meta["val"] for version in versions])
        if any(_form(call) != _form(target) for call in calls) or not held.isdisjoint(self._returned):
            return False  # a view of another form might need its strides
        for version, call in zip(versions, calls):
            others = [other.meta.get("val") for other in tensor_nodes((call.args[1:], call.kwargs))]
            if not held.isdisjoint(memories(others)):
                return False
            if any(self._last[memory] > self._order[call] for memory in memories(version.meta["val"])):
                return False
        return True


def _form(node: fx.Node) -> tuple[Any, ...]:
    value = node.meta["val"]
    return value.dtype, value.device, *map(written, value.shape), *map(written, value.stride())


def _write(graph: fx.Graph, call: fx.Node) -> None:
    if call.target in _WRITES:
        call.target = _WRITES[call.target]
        return
    target, source, *place = call.args
    with graph.inserting_before(call):
        part = graph.call_function(_PARTS[call.target], (target, *place), dict(call.kwargs))
        stored = graph.call_function(_COPY, (part, source))
    args, kwargs = fx.node.map_arg((part.args, part.kwargs), lambda node: node.meta["val"])
    part.meta["val"] = stored.meta["val"] = part.target(*args, **kwargs)
    call.replace_all_uses_with(target)
    graph.erase_node(call)
