"""What a call's tensors of integers say of its segments, read outside of the compiled graph.

A Reading computes them from the graph's inputs, as the graph would have (documents that are a running sum of where
positions do not grow), looks whether they are of the kind that was assumed, and makes the ends of segments of them, all
on the device. The program waits once, for the few numbers that a launch depends on. How many segments there may be is
known from the sizes alone, so that no tensor's size depends on data: ends behind the last segment say nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import sympy
import torch
import torch.fx as fx
from torch._subclasses import FakeTensor

from ..graph.decision import Declined
from ..graph.effects import PURE, effect_of
from ..graph.nodes import example
from ..graph.traffic import hint
from ..targets import devices
from . import blocks
from .blocks import path
from .proof.functions import SMALL, Functions
from .remembering import Remembered
from .segments import PLACE, ROW, Numbered, Segments, is_small

_OF_PADDING = 5  # segments of a row
_MAX_MISSES = 4  # in a row, behind which masks that are handed in are no longer looked at
_MAX_CALLS = 100  # that are made twice, here and in a graph that keeps its mask


@dataclasses.dataclass(frozen=True)
class Kind:
    """Segments of some attentions, and the sizes of their batch, which may be symbolic."""

    segments: Segments
    rows: int | torch.SymInt
    length: int | torch.SymInt

    @property
    def most(self) -> int | torch.SymInt:
        """Segments there may be."""
        if self.segments.compact:
            return self.rows
        return _OF_PADDING * self.rows if self.segments.shown is not None else self.rows * self.length


def is_readable(tensor: Numbered, functions: Functions, module: fx.GraphModule) -> bool:
    """Whether it can be computed of the outermost graph's inputs before that runs."""
    try:
        return len(_needed([tensor.node], functions, module)) <= _MAX_CALLS
    except Declined:
        return False


def _needed(
    wanted: Sequence[fx.Node], functions: Functions, module: fx.GraphModule, masks: Sequence[fx.Node] = ()
) -> list[fx.Node]:
    """What they are made of, in the graph's order. Raises Declined where that is more than integers and truths, or
    `masks` that are handed in."""
    given = {node for mask in masks for node in path(mask, functions) or ()}
    found: set[fx.Node] = set()
    pending = list(wanted)
    while pending:
        node = pending.pop()
        if node in found:
            continue
        found.add(node)
        number = isinstance(example(node), (int, torch.SymInt))
        read = number or node in given or is_small(node)
        if node.graph is not module.graph or not read or functions.writes(node):
            raise Declined(f"{node.name} is no tensor of integers that is there before the graph runs")
        if node.op not in ("placeholder", "get_attr") and effect_of(node, module).kind != PURE:
            raise Declined(f"{node.name} is not the same each time")
        pending += node.all_input_nodes
    return [node for node in module.graph.nodes if node in found]


# Ends of queries and of keys, and [whether the data is as it was assumed, whether another variant would be wrong for
# it, how many segments, most queries, most keys].
Read = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Values = dict[fx.Node, torch.Tensor]
Sizes = dict[sympy.Symbol, sympy.Integer]


class Reading:
    """The tensors that a graph is given beside its inputs: for each call of each kind of segments the ends of queries
    and of keys, once where they are the same, and on the CPU how many segments there are and the most queries and keys
    of one."""

    def __init__(
        self, module: fx.GraphModule, kinds: Sequence[Kind], functions: Functions, others: Sequence[fx.Node] = ()
    ) -> None:
        """Of a graph that has not been changed yet. `others`: what is looked at beside the segments. Raises Declined
        where it cannot be."""
        wanted = [tensor.node for kind in kinds for tensor in kind.segments.tensors]
        wanted += [node for kind in kinds for node in kind.segments.small]
        wanted += others
        handed_in = [kind.segments.mask for kind in kinds if kind.segments.mask is not None]
        wanted += handed_in
        needed = _needed(wanted, functions, module, handed_in)
        inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
        self._places = [place for place, node in enumerate(inputs) if node in needed]
        self._sizes = {
            place: example(node).node.expr
            for place, node in enumerate(inputs)
            if isinstance(example(node), torch.SymInt) and isinstance(example(node).node.expr, sympy.Symbol)
        }
        graph, copies = fx.Graph(), {}
        for node in needed:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple(copies[node] for node in wanted))
        self._compute = fx.GraphModule(module, graph)
        self._wanted = wanted
        self.kinds = [_bare(kind) for kind in kinds]
        self._misses = 0  # of masks that were handed in
        self._remembered = Remembered()
        self.padded_alone = False  # whether batches without any padding are another variant's
        self._positions = {node: position for position, node in enumerate(wanted)}

    def __call__(self, arguments: Sequence[Any]) -> list[Any] | None:
        """What the graph is given beside these inputs; None where they are not of the kind that was assumed, or nothing
        can be asked of the device."""
        if self._misses >= _MAX_MISSES and any(kind.segments.mask is not None for kind in self.kinds):
            return None
        # While Dynamo compiles, sizes are symbols; their hints are the sizes of these tensors.
        arguments = [hint(each) if isinstance(each, torch.SymInt) else each for each in arguments]
        given = [arguments[place] for place in self._places]
        tensors = [each for each in given if isinstance(each, torch.Tensor)]
        if any(isinstance(tensor, FakeTensor) for tensor in tensors):
            return None
        if any(devices.recorded(tensor.device) for tensor in tensors):
            return None
        sizes = self.sizes_of(arguments)
        with torch.no_grad():
            return self._remembered.ask(
                [*given, *sizes.values()], lambda: self.told(dict(zip(self._wanted, self._compute(*given))), sizes)
            )

    def sizes_of(self, arguments: Sequence[Any]) -> Sizes:
        return {symbol: sympy.Integer(arguments[place]) for place, symbol in self._sizes.items()}

    def told(self, values: Values, sizes: Sizes) -> list[Any] | None:
        found = [call for kind in self.kinds for call in _read(kind, values, sizes)]
        if len(found) != sum(kind.segments.calls for kind in self.kinds):
            return None
        numbers = torch.cat([each[2] for each in found]).tolist()  # the wait
        told = [[numbers.pop(0) for _ in range(len(each[2]))] for each in found]
        if not all(ok for ok, *_ in told):
            self._misses += 1
            return None
        self._misses = 0
        if self.padded_alone and not any(padded for _, padded, *_ in told):
            return None
        return [
            each
            for (ends_q, ends_k, _), (_, _, *numbers) in zip(found, told)
            for each in (ends_q, *(() if ends_q is ends_k else (ends_k,)), torch.tensor(numbers, dtype=torch.int64))
        ]


def _bare(kind: Kind) -> Kind:
    """A kind whose sizes are expressions."""
    rows, length = (size if isinstance(size, int) else size.node.expr for size in (kind.rows, kind.length))
    return dataclasses.replace(kind, rows=rows, length=length)


def extents(kind: Kind, sizes: Sizes) -> tuple[int, int]:
    rows, length = (size if isinstance(size, int) else int(size.xreplace(sizes)) for size in (kind.rows, kind.length))
    return rows, length


def are_small(kind: Kind, values: Values) -> list[torch.Tensor]:
    small = [values[node] for node in kind.segments.small]
    return [((each >= -SMALL) & (each <= SMALL)).all() for each in small]


def _read(kind: Kind, values: Values, sizes: Sizes) -> list[Read]:
    """Of each call; of none where there is nothing to attend to."""
    rows, length = extents(kind, sizes)
    if not rows or not length:
        return []
    segments = kind.segments
    holds = are_small(kind, values)
    if segments.mask is not None:
        number, said = blocks.read(values[segments.mask], rows, length)
        ends, _, numbers = _of_numbers(number, rows, length)
        return [(ends, ends, torch.cat([said[:1], said[:1], numbers, said[1:]]))]
    if segments.shown is not None:
        return _of_padding(segments, laid(segments.shown, values, rows, length), holds, rows, length)
    return [_of_documents(segments, values, holds, rows, length)]


def laid(tensor: Numbered, values: Values, rows: int, length: int) -> torch.Tensor:
    """`[rows or 1, length]`: a tensor may have numbers behind those that a mask reads."""
    value, axes = values[tensor.node], []
    for dimension, axis in reversed(list(enumerate(tensor.axes))):
        if axis in (ROW, PLACE):
            axes.insert(0, axis)
        else:
            value = value.select(dimension, axis)
    if axes == [PLACE]:
        value = value[None]
    return (value if axes != [PLACE, ROW] else value.transpose(0, 1))[:rows, :length]


def _of_documents(
    segments: Segments, values: Values, holds: list[torch.Tensor], rows: int, length: int
) -> Read:
    numbers = laid(segments.documents, values, rows, length)
    changes = numbers[:, 1:] != numbers[:, :-1]
    ordered = numbers.sort(-1).values
    # Numbers that come again, behind others, change more often than when they are in order.
    holds.append((changes.sum(-1) == (ordered[:, 1:] != ordered[:, :-1]).sum(-1)).all())
    for counted in segments.counted:
        places = laid(counted, values, rows, length)
        holds.append((changes | (places[:, 1:] - places[:, :-1] == 1)).all())
    ends, _, numbers = _of_numbers(numbers, rows, length)
    ok = torch.stack(holds).all().long()[None]
    return ends, ends, torch.cat([ok, ok, numbers])


def _of_numbers(numbers: torch.Tensor, rows: int, length: int) -> Read:
    """The ends of pieces of equal numbers, and how many they are, with the longest's queries and keys."""
    changes = numbers[:, 1:] != numbers[:, :-1]
    starts = torch.cat([changes.new_ones(changes.shape[0], 1), changes], 1).expand(rows, length).reshape(-1)
    number = starts.cumsum(0)
    ends = torch.searchsorted(number, torch.arange(1, rows * length + 2, device=number.device), out_int32=True)
    longest = ends.diff().max().long()
    return ends, ends, torch.stack([number[-1], longest, longest])


def _of_padding(
    segments: Segments, shown: torch.Tensor, holds: list[torch.Tensor], rows: int, length: int
) -> list[Read]:
    """Segments of each row: hidden keys have no queries. Under a causal mask, queries before what is shown have no
    keys, and those behind it a call of their own, in which they have all."""
    holds.append(((shown == 0) | (shown == 1)).all())
    shown = shown.expand(rows, length)
    places = torch.arange(length, device=shown.device)
    count, none = shown.sum(-1), torch.zeros(rows, dtype=torch.int64, device=shown.device)
    first = torch.where(shown != 0, places, length).amin(-1)
    behind = torch.where(shown != 0, places + 1, 0).amax(-1)
    whole = none + length
    holds += [(behind - first == count).all(), (count > 0).all()]
    if segments.from_first:
        holds.append((first == 0).all())
    said = torch.stack([torch.stack(holds).all(), (count < length).any()]).long()
    if not segments.causal:
        return [_ends((none, whole, whole), (first, behind, whole), said)]
    some = (behind < length).any()
    return [
        _ends((first, first, behind, whole, whole), (none, first, behind, behind, whole), said),
        _ends((behind, behind, whole, whole), (none, first, behind, whole), said, some),
    ]


def _ends(
    queries: Sequence[torch.Tensor], keys: Sequence[torch.Tensor], said: torch.Tensor, some: torch.Tensor | None = None
) -> Read:
    """Of where a row's segments end in it; a row ends where its last segment does. Segments that are empty are left
    out, since each costs launches, and all where there are not `some`."""
    begins = torch.arange(queries[0].shape[0], device=said.device) * queries[-1]
    both = torch.stack([(begins[:, None] + torch.stack(list(ends), 1)).reshape(-1) for ends in (queries, keys)])
    lengths = both.diff(prepend=both.new_zeros(2, 1))
    place = (lengths != 0).any(0).cumsum(0)  # of a segment's end; an empty one ends where the one before it does
    ends = both[:, -1:].repeat(1, _OF_PADDING * len(begins) + 1)  # as many as Kind.most says
    ends[:, 0] = 0
    ends = ends.scatter(1, place.expand(2, -1), both).int()
    count = place[-1] if some is None else place[-1] * some
    return ends[0], ends[1], torch.cat([said, count[None], lengths.amax(1)])
