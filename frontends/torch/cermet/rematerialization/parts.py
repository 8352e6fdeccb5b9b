"""Launches taken apart while a joint graph is cut, and put together afterwards.

A kernel that writes a sum and the norm of that sum makes both from the sum's terms; the norm alone follows from the
sum. Who may only take the kernel whole would keep the terms and make every sum again. So a launch becomes two, one of
which reads what the other gives, and where both are still in one graph behind the cut they become one again.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator

import torch
import torch.fx as fx

from ..errors import Error
from ..graph import traffic
from ..graph.nodes import example
from ..ops import regions
from ..ops.slices import Function, unbound

_NOTE = "cermet_part"
AGAIN = "cermet_again"  # of what a backward makes again, and of views of it: its name in the joint graph


@dataclasses.dataclass(frozen=True)
class _Whole:
    """A launch that was taken apart."""

    target: object
    key: int
    operands: int
    first: tuple[int, ...]  # which of its operands the first part reads
    second: tuple[int, ...]  # the second, before the value that the first part gives
    given: int  # which of the first part's results that is
    results: tuple[tuple[int, ...], tuple[int, ...]]  # of the whole, that each part has
    value: object  # what tracing left on it


def split(graph: fx.Graph) -> set[int]:
    """In place. Returns the keys of the parts, which no other graph launches."""
    keys: set[int] = set()
    for node in list(graph.nodes):
        if str(node.target).startswith(f"{regions.NAMESPACE}.launch_") and isinstance(example(node), tuple):
            keys |= _split(graph, node)
    return keys


def _split(graph: fx.Graph, node: fx.Node) -> set[int]:
    *operands, key = node.args
    items = {user.args[1]: user for user in node.users if user.target is operator.getitem}
    if len(items) != len(node.users):
        return set()
    try:
        function = Function.read(regions.text(key))
    except Error:  # of named operations, as a launch is that nobody differentiates
        return set()
    values = example(node)
    place = _seam(function, [_bytes(example(each)) for each in operands], list(map(_bytes, values)))
    if place is None:
        return set()
    given = function.results[place][0]
    second = [index for index in range(len(values)) if given in function.needed([index])[0] and index != place]
    first = [index for index in range(len(values)) if index not in second]
    made = []
    for results, name in ((first, None), (second, given)):
        text, read = function.part(f"{function.name}_part", results, name)
        if unbound(text):
            return set()
        made.append((regions.register(text), read))
    device = values[0].device
    if any(regions.not_lowered(part, device) for part, _ in made):
        return set()
    whole = _Whole(
        node.target, key, len(operands), tuple(made[0][1]), tuple(made[1][1]), first.index(place),
        (tuple(first), tuple(second)), values,
    )  # fmt: skip
    with graph.inserting_before(node):
        became = _launch(graph, node, [operands[place] for place in whole.first], made[0][0], values, first, (whole, 0))
        rest = [*(operands[each] for each in whole.second), became[place]]
        became |= _launch(graph, node, rest, made[1][0], values, second, (whole, 1))
    for index, item in items.items():
        item.replace_all_uses_with(became[index])
        graph.erase_node(item)
    graph.erase_node(node)
    return {part for part, _ in made}


def _bytes(value: torch.Tensor) -> int:
    return traffic.size_of(value, traffic.judged)


def _seam(function: Function, read: list[int], written: list[int]) -> int | None:
    """The result from which others follow without the largest of what they are all made of, or None."""
    best, saved = None, 0
    for place, (given, _) in enumerate(function.results):
        others = [index for index in range(len(written)) if index != place]
        others = [index for index in others if given in function.needed([index])[0]]
        if not others:
            continue
        _, without = function.needed(others)
        _, arguments = function.needed(others, [given])
        spared = sum(
            size for size, (name, _) in zip(read, function.arguments) if name in without and name not in arguments
        )
        if spared >= written[place] and spared > saved:
            best, saved = place, spared
    return best


def _launch(
    graph: fx.Graph, node: fx.Node, operands: list[fx.Node], key: int, values: tuple, results: list[int], note: tuple
) -> dict[int, fx.Node]:
    """A part's node, and the nodes of its results by their places in the whole."""
    call = graph.call_function(regions.launch_op(len(operands), len(results)), (*operands, key))
    call.meta = {name: noted for name, noted in node.meta.items() if name != "val"}
    call.meta[_NOTE] = note
    return dict(zip(results, _items(graph, call, [values[index] for index in results])))


def _items(graph: fx.Graph, call: fx.Node, values: list) -> Iterator[fx.Node]:
    """The results of a launch that was just made."""
    if len(values) == 1:
        call.meta["val"] = values[0]
        yield call
        return
    call.meta["val"] = tuple(values)
    for index, value in enumerate(values):
        item = graph.call_function(operator.getitem, (call, index))
        item.meta = {**{name: noted for name, noted in call.meta.items() if name != _NOTE}, "val": value}
        yield item


def whole_key(call: fx.Node) -> int:
    """The key of what a launch, or the launch that it is a part of, computes."""
    whole, _ = call.meta.get(_NOTE, (None, 0))
    return call.args[-1] if whole is None else whole.key


# --- Together again --------------------------------------------------------------------------------------------------


def join(graph: fx.Graph) -> None:
    """In place."""
    order = {node: index for index, node in enumerate(graph.nodes)}
    for second in list(graph.nodes):
        whole, part = second.meta.get(_NOTE, (None, 0))
        if whole is None or part != 1 or second.op != "call_function":
            continue
        given = second.args[-2]
        first = given.args[0] if given.target is operator.getitem else given
        if first.op == "call_function" and first.meta.get(_NOTE, (None, 1)) == (whole, 0):
            _join(graph, whole, first, second, order)


def _join(graph: fx.Graph, whole: _Whole, first: fx.Node, second: fx.Node, order: dict[fx.Node, int]) -> None:
    operands = dict(zip(whole.first, first.args)) | dict(zip(whole.second, second.args))
    if len(operands) != whole.operands or any(order[node] > order[first] for node in operands.values()):
        return
    with graph.inserting_before(first):
        call = graph.call_function(whole.target, (*(operands[place] for place in range(whole.operands)), whole.key))
        call.meta = {name: noted for name, noted in first.meta.items() if name != _NOTE}
        items = list(_items(graph, call, list(whole.value)))
    for node in (call, *items):
        order[node] = order[first]
    for part, results in ((second, whole.results[1]), (first, whole.results[0])):
        for index in results if AGAIN in part.meta else ():
            items[index].meta[AGAIN] = part.meta[AGAIN]
        _replace(graph, part, [items[index] for index in results])
    for item in reversed(items):
        if not item.users:
            graph.erase_node(item)


def _replace(graph: fx.Graph, part: fx.Node, items: list[fx.Node]) -> None:
    if len(items) == 1:
        part.replace_all_uses_with(items[0])
    else:
        for user in list(part.users):
            user.replace_all_uses_with(items[user.args[1]])
            graph.erase_node(user)
    graph.erase_node(part)
