"""Launches taken apart while a joint graph is cut, and put together afterwards.

A kernel that writes a sum and the norm of that sum makes both from the sum's terms; the norm alone follows from the
sum. Who may only take the kernel whole would keep the terms and make every sum again. So a launch becomes two, one of
which reads what the other gives (seams.py says where), and where both are still in one graph behind the cut they become
one again; a value in the midst of it that is kept, or read by others, too, is then a further result.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence

import torch
import torch.fx as fx

from ..graph.nodes import example
from ..ops import regions
from ..ops.slices import Function, unbound
from . import seams

_NOTE = "cermet_part"
AGAIN = "cermet_again"  # of what a backward makes again, and of views of it: its name in the joint graph


@dataclasses.dataclass(frozen=True, eq=False)
class _First:
    """What gives values to other parts."""

    key: int  # of the launch that it is a part of
    values: tuple[str, ...]  # by their names there


@dataclasses.dataclass(frozen=True, eq=False)
class _Second:
    """What reads values that a first part gives, and the launch that both are together."""

    first: _First
    given: dict[str, str]  # what it reads of the first part's values, and the names of these in the launch
    before: dict[int, int]  # operands of the launch that these are made of, and where the first part has them
    behind: tuple[int, ...]  # operands of the launch that it reads itself, before what it is given
    results: tuple[str, ...]
    key: int  # of the launch
    function: Function

    def name_of(self, value: str) -> str | None:
        """In the launch, of a value that the first part gives; None where the launch has none of it."""
        return self.given.get(value, value if self.first.key == self.key else None)


def split(graph: fx.Graph) -> set[int]:
    """In place. Returns the keys of the parts, which no other graph launches."""
    keys: set[int] = set()
    for seam in seams.seams(graph):
        taken = take_apart(graph, seam)
        keys |= taken.keys if taken is not None else set()
    return keys


@dataclasses.dataclass(frozen=True)
class Taken:
    """The parts of launches, and their keys."""

    first: fx.Node
    seconds: tuple[fx.Node, ...]
    keys: set[int]


def take_apart(graph: fx.Graph, seam: seams.Seam) -> Taken | None:
    """In place; None where kernels alone cannot be the parts."""
    whole, device = seam.launch, example(seam.launch.operands[0]).device
    opening = _part(whole.function, f"{whole.function.name}_part", seam.values, (), device)
    closings = []
    for each, given in seam.readers:
        results = tuple(name for name in each.names if each is not whole or name not in seam.values)
        part = _part(each.function, f"{each.function.name}_part", results, tuple(given.values()), device)
        closings.append((results, part))
    if opening is None or any(part is None for _, part in closings):
        return None
    key, read = opening
    operands = [whole.operands[place] for place in read]
    first = _First(whole.node.args[-1], seam.values)
    with graph.inserting_before(whole.node):
        values = [whole.values.get(name) for name in seam.values]
        made = dict(zip(seam.values, _launch(graph, whole.node, operands, key, values, first)))
    keys, seconds = {key}, []
    for (each, given), (results, (key, behind)) in zip(seam.readers, closings):
        early = [*given.values(), *(name for name in each.names if name not in results)]
        before = {place: operands.index(each.operands[place]) for place in each.read_for(early)}
        note = _Second(first, given, before, behind, results, each.node.args[-1], each.function)
        arguments = [*(each.operands[place] for place in behind), *(made[name] for name in given)]
        with graph.inserting_before(each.node):
            values = [each.values[name] for name in results]
            late = dict(zip(results, _launch(graph, each.node, arguments, key, values, note)))
        _replace(graph, each.node, [late[name] if name in late else made[name] for name in each.names])
        keys.add(key)
        seconds.append(call_of(late[results[0]]))
    return Taken(call_of(made[seam.values[0]]), tuple(seconds), keys)


def call_of(result: fx.Node) -> fx.Node:
    return result.args[0] if result.target is operator.getitem else result


def _part(
    function: Function, name: str, values: Sequence[str], given: Sequence[str], device: torch.device
) -> tuple[int, tuple[int, ...]] | None:
    """The key of what gives values, by a name, and which operands it reads; None where that is not kernels alone."""
    text, read = function.part(name, values, given)
    if unbound(text) or len(values) > regions.MAX_OUTPUTS:
        return None
    key = regions.register(text)
    return None if regions.not_lowered(key, device) else (key, tuple(read))


def _launch(
    graph: fx.Graph,
    of: fx.Node,
    operands: Sequence[fx.Node],
    key: int,
    values: Sequence[torch.Tensor | None],
    note: _First | _Second | None = None,
) -> list[fx.Node]:
    """The results of a launch, or a part of one, that is made for node `of`. `values`: what tracing left on them, which
    says what is a view of them; None of what was no result before."""
    call = graph.call_function(regions.launch_op(len(operands), len(values)), (*operands, key))
    call.meta = {name: noted for name, noted in of.meta.items() if name != _NOTE}
    if any(value is None for value in values):
        arguments = [example(each) for each in operands]
        with arguments[0].fake_mode:
            made = call.target(*arguments, key)
        made = (made,) if isinstance(made, torch.Tensor) else made
        values = [new if known is None else known for known, new in zip(values, made, strict=True)]
    items = [call]
    if len(values) > 1:
        items = [graph.call_function(operator.getitem, (call, index)) for index in range(len(values))]
        for item in items:
            item.meta = dict(call.meta)
    for item, value in zip(items, values):
        item.meta["val"] = value
    if len(values) > 1:
        call.meta["val"] = tuple(values)
    if note is not None:
        call.meta[_NOTE] = note
    return items


def _replace(graph: fx.Graph, call: fx.Node, items: Sequence[fx.Node | None]) -> None:
    """What is read of a call's results is `items`."""
    for index, result in seams.results(call).items():
        if result.users:
            result.replace_all_uses_with(items[index])
        if result is not call:
            graph.erase_node(result)
    graph.erase_node(call)


def whole_key(call: fx.Node) -> int:
    """The key of what a launch, or the launch that it is a part of, computes."""
    note = call.meta.get(_NOTE)
    return call.args[-1] if note is None else note.key


# --- Together again --------------------------------------------------------------------------------------------------


def join(graph: fx.Graph) -> set[int]:
    """In place. Returns the keys of launches that have further results."""
    order = {node: index for index, node in enumerate(graph.nodes)}
    made = [_joined(graph, node, order) for node in list(graph.nodes) if isinstance(node.meta.get(_NOTE), _Second)]
    return {node.args[-1] for node in made if node is not None}


def put_together(graph: fx.Graph, taken: Taken) -> fx.Node:
    """The launch again, where its first part is."""
    (second,) = taken.seconds
    return _joined(graph, second, {node: index for index, node in enumerate(graph.nodes)})


def _joined(graph: fx.Graph, second: fx.Node, order: dict[fx.Node, int]) -> fx.Node | None:
    note, first = second.meta[_NOTE], call_of(second.args[-2]) if second.op == "call_function" else second
    if first.op != "call_function" or first.meta.get(_NOTE) is not note.first:
        return None
    return _join(graph, note, first, second, order)


def _join(graph: fx.Graph, note: _Second, first: fx.Node, second: fx.Node, order: dict[fx.Node, int]) -> fx.Node | None:
    operands = {place: first.args[index] for place, index in note.before.items()}
    operands |= dict(zip(note.behind, second.args))
    if any(order[node] > order[first] for node in operands.values()):
        return None
    names = [name for name, _ in note.function.results]
    found = seams.results(first)
    there = [note.name_of(name) for name in note.first.values]
    if any(there[index] is None for index in found):
        return None
    others = [there[index] for index, node in found.items() if set(node.users) != {second}]
    further = [name for name in others if name not in names]
    key, read = note.key, tuple(range(len(note.function.arguments)))
    if further:
        part = _part(note.function, note.function.name, (*names, *further), (), example(first.args[0]).device)
        if part is None:
            return None
        key, read = part
    if not operands.keys() >= set(read):
        return None
    known = {there[index]: example(node) for index, node in found.items()}
    known |= {note.results[index]: example(node) for index, node in seams.results(second).items()}
    with graph.inserting_before(first):
        values = [known.get(name) for name in (*names, *further)]
        items = _launch(graph, second, [operands[place] for place in read], key, values)
    call, made = call_of(items[0]), dict(zip((*names, *further), items))
    order |= dict.fromkeys(items, order[first])
    for part, values in ((second, note.results), (first, there)):
        for name in values if AGAIN in part.meta else ():
            if name in made:
                made[name].meta[AGAIN] = part.meta[AGAIN]
        _replace(graph, part, [made.get(name) for name in values])
    for item in items:
        if not item.users and item.target is operator.getitem:
            graph.erase_node(item)
    return call
