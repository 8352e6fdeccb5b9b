"""Where a launch of a joint graph may be taken apart: at values from which the rest follows with fewer bytes read.

That is one of its results, as a residual's sum is for the norm behind it; or what a launch of the forward and one of
the backward compute alike of the same operands, as a gate is of a linear layer and its adapter: kept in their place, it
spares what they are made of.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
import torch.fx as fx

from ..errors import Error
from ..graph import traffic
from ..graph.nodes import example
from ..ops import regions
from ..ops.slices import Function
from ..text import ELEMENT_TYPES
from .costs import kept
from .waiting import following, reading

_LEAST = 2**20  # bytes: less is not worth a kernel's further store
_PART = 0.5  # of the bytes that a shared value is made of, that itself may have
_TYPE = re.compile(r"tensor<((?:[\d?]+x)*)(\w+)(.*)>")
_BYTES = {element: dtype.itemsize for dtype, element in ELEMENT_TYPES.items()}


class Launch(NamedTuple):
    """One that may be taken apart, and the function that it computes."""

    node: fx.Node
    function: Function

    @property
    def operands(self) -> tuple[fx.Node, ...]:
        return self.node.args[:-1]

    @property
    def names(self) -> list[str]:
        """Of its results."""
        return [name for name, _ in self.function.results]

    @property
    def values(self) -> dict[str, torch.Tensor]:
        """What tracing left on its results."""
        value = example(self.node)
        return dict(zip(self.names, (value,) if isinstance(value, torch.Tensor) else value))

    def read_for(self, values: Iterable[str]) -> list[int]:
        """Which operands some values are made of."""
        arguments = self.function.needed(values)[1]
        return [place for place, (name, _) in enumerate(self.function.arguments) if name in arguments]

    def bytes(self, arguments: Iterable[str]) -> int:
        """Of operands."""
        names = set(arguments)
        read = zip(self.function.arguments, self.operands)
        return sum(kept(operand) for (name, _), operand in read if name in names)


class Seam(NamedTuple):
    launch: Launch
    values: tuple[str, ...]  # that the first part gives, by the names of the launch
    readers: tuple[tuple[Launch, dict[str, str]], ...]  # the launch and others: what each reads, and its names there


def seams(graph: fx.Graph) -> Iterator[Seam]:
    """Each is to be taken, or not, before the next: what was taken apart is not there any more."""
    known = launches(graph)
    behind = following(graph)
    numbers: dict[Hashable, int] = {}
    for launch in known.values():
        if launch.node in behind or launch.bytes(name for name, _ in launch.function.arguments) < _LEAST:
            continue
        users = {user for operand in launch.operands for user in operand.users}
        readers = [known[user] for user in sorted(users) if user in behind and user in known]
        seam = _shared(launch, readers, numbers) if readers else None
        if seam is not None:
            yield seam
    for launch in known.values():
        seam = _result(launch) if launch.node.users else None
        if seam is not None:
            yield seam


def launches(graph: fx.Graph) -> dict[fx.Node, Launch]:
    functions: dict[int, Function | None] = {}
    return {node: found for node in graph.nodes if (found := launch_of(node, functions)) is not None}


def launch_of(node: fx.Node, known: dict[int, Function | None]) -> Launch | None:
    """None of what is none, nor of one of named operations, as a launch is that nobody differentiates."""
    key = regions.launched(node)
    if key is None or not _is_read_apart(node):
        return None
    if key not in known:
        try:
            known[key] = Function.read(regions.text(key))
        except Error:
            known[key] = None
    function = known[key]
    return None if function is None else Launch(node, function)


def _is_read_apart(node: fx.Node) -> bool:
    """Whether each reader reads one of the results."""
    return isinstance(example(node), torch.Tensor) or all(user.target is operator.getitem for user in node.users)


def results(call: fx.Node) -> dict[int, fx.Node]:
    """Those of a launch's that are read, by their places."""
    if isinstance(example(call), torch.Tensor):
        return {0: call}
    return {user.args[1]: user for user in call.users}


# --- At a result -----------------------------------------------------------------------------------------------------


def _result(launch: Launch) -> Seam | None:
    """At one from which others follow without the largest of what they are all made of."""
    function, names = launch.function, launch.names
    best, saved = None, 0
    for given, value in launch.values.items():
        late = [name for name in names if name != given and given in function.needed([name])[0]]
        if not late:
            continue
        spared = launch.bytes(function.needed(late)[1] - function.needed(late, [given])[1])
        if spared > saved and spared >= traffic.size_of(value, traffic.judged):
            early = tuple(name for name in names if name not in late)
            best, saved = Seam(launch, early, ((launch, {given: given}),)), spared
    return best


# --- At values that a forward and its backward compute ---------------------------------------------------------------


def _shared(launch: Launch, behind: Sequence[Launch], numbers: dict[Hashable, int]) -> Seam | None:
    mine = launch.function.numbered(launch.operands, numbers)
    known = [each.function.numbered(each.operands, numbers) for each in behind]
    theirs = [{number: name for name, number in names.items()} for names in known]
    spared = {name: _spared(launch, name) for name, _ in launch.function.lines if name not in launch.names}
    reads: list[dict[str, str]] = [{} for _ in behind]
    for name in sorted(spared, key=spared.__getitem__, reverse=True):
        for each, names, given in zip(behind, theirs, reads):
            there = names.get(mine[name]) if spared[name] >= _LEAST else None
            if there and there not in each.names and _drops(each, each.names, there, given.values()):
                given[name] = there
    values = tuple(name for name in spared if any(name in given for given in reads))
    if not values:
        return None
    readers = [(each, given) for each, given in zip(behind, reads) if given]
    return Seam(launch, values, ((launch, {name: name for name in values}), *readers))


def _drops(launch: Launch, results: Sequence[str], value: str, given: Collection[str]) -> bool:
    """Whether what computes some results, and is given a value, too, reads none of what the value is made of."""
    function = launch.function
    if value not in function.needed([name for name in results if name != value], given)[0]:
        return False
    return function.needed([value])[1].isdisjoint(function.needed(results, [*given, value])[1])


# --- For less at once ------------------------------------------------------------------------------------------------


def halves(launch: Launch) -> Iterator[tuple[Seam, bool]]:
    """At values that are small beside what they are made of, so that the first part may run before all operands are
    there, or the second wait (then True) until its results are read."""
    spared = {name: _spared(launch, name) for name, _ in launch.function.lines}
    small = sorted((name for name in spared if spared[name] >= _LEAST), key=lambda name: (-spared[name], name))
    for name in small:
        made_of = [launch.operands[place] for place in launch.read_for([name])]
        if max(made_of) < max(launch.operands) and _drops(launch, launch.names, name, []):
            yield Seam(launch, (name,), ((launch, {name: name}),)), False
    readers = {launch.names[index]: reading(item) for index, item in results(launch.node).items()}
    order = sorted((name for name in readers if readers[name]), key=lambda name: min(readers[name]))
    for place in range(1, len(order)):
        late = order[place:]
        early = [name for name in launch.names if name not in late]
        both = launch.function.needed(early)[0]
        given: list[str] = []
        for name in small:
            if name in both and name not in late and _drops(launch, late, name, given):
                given.append(name)
        if given:
            values = tuple(dict.fromkeys((*early, *given)))
            yield Seam(launch, values, ((launch, {name: name for name in given}),)), True


def _spared(launch: Launch, value: str) -> int:
    """Bytes that a value has less than the operands that it is made of; 0 where it is not small beside them."""
    types = launch.function.types()
    shape, own = _shape(types[value])
    arguments = launch.function.needed([value])[1]
    alike = ((name, *_shape(types[name])) for name in arguments)
    sizes = [launch.bytes([name]) // bytes * own for name, where, bytes in alike if where == shape and bytes]
    made_of = launch.bytes(arguments)
    return made_of - max(sizes) if sizes and 0 < max(sizes) <= _PART * made_of else 0


def _shape(type: str) -> tuple[tuple[str, ...], int]:
    """What names a type's sizes, and the bytes of an element; 0 of one that no tensor of a frontend has."""
    found = _TYPE.fullmatch(type)
    return (found[1], found[3]) if found else (type,), _BYTES.get(found[2], 0) if found else 0
