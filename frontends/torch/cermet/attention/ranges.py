"""Masks under which a query attends to the keys from one place to another, which integers on the device say: those that
a static cache has so far.

`mask[b, q, k] = (largest of firsts <= k <= smallest of lasts)`, where each bound is a form over elements of tensors
that the graph has before, at the row and the query. That is proved for all that they may hold, so nothing is read on the
host: the graph computes the bounds itself.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from ..graph.decision import Declined
from ..graph.layouts import written
from ..graph.nodes import example
from .proof.linear import Atom, AtLeastZero, Linear
from .questions import Question, Unproved
from .segments import PLACE, ROW

FEW_QUERIES = 16  # each goes through its keys by itself
_MAX_BOUNDS = 8
_FAR = 1 << 62  # further than any key


@dataclasses.dataclass(frozen=True)
class _Read:
    """A tensor's elements at the rows and queries. `axes`: of each of its dimensions ROW, PLACE (the query's) or the
    one index that is meant. `reader`: the call before which that memory has them, where the graph writes it."""

    node: fx.Node
    axes: tuple[str | int, ...]
    reader: fx.Node | None = None


@dataclasses.dataclass(frozen=True)
class Bound:
    """`constant + queries * query's place + sum(factor * element)`."""

    constant: int
    queries: int
    terms: tuple[tuple[_Read, int], ...]
    wraps: bool  # whether the sum may leave 64 bits


@dataclasses.dataclass(frozen=True)
class Ranges:
    """The bounds of each query's keys; none is where the buffer begins or ends."""

    firsts: tuple[Bound, ...]
    lasts: tuple[Bound, ...]


def ranges(question: Question) -> Ranges:
    """What a mask's keys lie between. Raises Unproved where that is not all that it says."""
    if not question.queries.fixed or question.queries.constant > FEW_QUERIES or question.queries == question.keys:
        raise Unproved(f"there are other than 1 to {FEW_QUERIES} queries of more keys")
    forms: list[Linear] = []  # that are at least zero wherever a key is attended to
    while question.ask(*forms) != {True}:
        found = [form for form in _candidates(question, forms) if question.ask(*forms, -form - 1) == {False}]
        if not found or len(forms) + len(found) > _MAX_BOUNDS:
            raise Unproved("it is not provable from the graph that queries attend to keys from one place to another")
        forms += found
    for form in list(forms):
        others = [other for other in forms if other != form]
        if question.ask(*others) == {True}:
            forms = others
    if not any(atom.key[0] in ("element", "read") for form in forms for atom, _ in form.terms):
        raise Unproved("no tensor of integers says how many keys there are")
    if not question.ends_rows:
        raise Unproved("a finite number hides keys, which hides none where it hides all of a query's")
    firsts, lasts = ([form for form in forms if _side(question, form) == side] for side in (1, -1))
    return Ranges(
        tuple(_bound(question, question.key - form) for form in firsts),
        tuple(_bound(question, question.key + form) for form in lasts),
    )


def _candidates(question: Question, forms: Sequence[Linear]) -> list[Linear]:
    """What the mask compares a key's place with, where these forms are at least zero, both ways round."""
    compared = [each.form for each in question.comparisons(*forms) if isinstance(each, AtLeastZero)]
    both = [form for one in compared for form in (one, -one - 1)]
    return [form for form in dict.fromkeys(both) if _side(question, form) in (1, -1) and form not in forms]


def _side(question: Question, form: Linear) -> int:
    """1 for a bound of the first keys, -1 for one of the last."""
    (key, _), = question.key.terms
    return dict(form.terms).get(key, 0)


def _bound(question: Question, form: Linear) -> Bound:
    (query, _), = question.query.terms
    terms, queries = [], 0
    reach = sum(abs(factor) * max(abs(atom.low or 0), abs(atom.high or 0)) for atom, factor in form.terms)
    for atom, factor in form.terms:
        if atom == query:
            queries = factor
        else:
            terms.append((_read(question, atom), factor))
    factors = [factor for _, factor in terms]
    if reach >= _FAR and factors not in ([1], [-1]):
        raise Unproved("a sum of several integers may wrap")
    alone = form.constant == queries == 0 and factors == [1]
    return Bound(form.constant, queries, tuple(terms), reach >= _FAR and not alone)


def _read(question: Question, atom: Atom) -> _Read:
    kind, *reader, node, coordinates, levels = atom.key if atom.key[0] in ("element", "read") else ("", None, (), ())
    axes: list[str | int] = []
    for coordinate in coordinates:
        if coordinate == question.query:
            axes.append(PLACE)
        elif question.row is not None and coordinate == question.row:
            axes.append(ROW)
        elif coordinate.fixed:
            axes.append(coordinate.constant)
    if not kind or levels or len(axes) != len(coordinates) or axes.count(ROW) > 1 or axes.count(PLACE) > 1:
        raise Unproved("how many keys there are is no tensor's element at the row and the query")
    return _Read(node, tuple(axes), reader[0] if reader else None)


# --- In a graph ------------------------------------------------------------------------------------------------------


def check(found: Ranges, graph: fx.Graph, rows: int, device: torch.device) -> None:
    """Raises Declined where a graph cannot compute the bounds on a device."""
    for bound in (*found.firsts, *found.lasts):
        for read, _ in bound.terms:
            if read.node.graph is not graph or read.reader is not None and read.reader.graph is not graph:
                raise Declined(f"{read.node.name} is of another graph than the attention")
            if example(read.node).device != device:
                raise Declined(f"{read.node.name} is on {example(read.node).device}, and the attention on {device}")
            sizes = example(read.node).shape
            if any(axis == ROW and written(size) != written(rows) for axis, size in zip(read.axes, sizes)):
                raise Declined(f"{read.node.name} has other rows than the attention")


class Writer:
    """Computes bounds in a graph, before `node`."""

    def __init__(self, node: fx.Node, queries: int) -> None:
        self._node, self._queries = node, queries
        self._name = "val" if "val" in node.meta else "example_value"
        self._mode, self._device = example(node).fake_mode, example(node).device

    def first_and_last(self, found: Ranges) -> tuple[fx.Node | None, fx.Node | None]:
        """`[rows or 1, queries or 1]` each."""
        return self._nearest(torch.maximum, found.firsts), self._nearest(torch.minimum, found.lasts)

    def _nearest(self, choose: Callable[..., Any], bounds: Sequence[Bound]) -> fx.Node | None:
        values = [self._of(bound) for bound in bounds]
        while len(values) > 1:
            values = [self._call(choose, values[0], values[1]), *values[2:]]
        return values[0] if values else None

    def _of(self, bound: Bound) -> fx.Node:
        total = None
        for read, factor in bound.terms:
            value = self._value(read)
            if bound.wraps:
                value = self._call(torch.clamp, value, -_FAR, _FAR)
            value = value if factor == 1 else self._call(torch.mul, value, factor)
            total = value if total is None else self._call(torch.add, total, value)
        if bound.queries or total is None:
            place = self._call(torch.arange, self._queries, device=self._device)
            place = self._call(torch.mul, self._call(torch.reshape, place, (1, self._queries)), bound.queries)
            total = place if total is None else self._call(torch.add, total, place)
        return self._call(torch.add, total, bound.constant) if bound.constant else total

    def _value(self, read: _Read) -> fx.Node:
        """`[rows or 1, queries or 1]`."""
        before = self._node if read.reader is None else read.reader
        index = tuple(slice(0, self._queries) if axis == PLACE else slice(None) if axis == ROW else axis
                      for axis in read.axes)  # fmt: skip
        value = self._call(operator.getitem, read.node, index, before=before)
        if read.reader is not None:
            value = self._call(torch.clone, value, before=before)
        axes = [axis for axis in read.axes if axis in (ROW, PLACE)]
        if axes == [PLACE, ROW]:
            value, axes = self._call(torch.transpose, value, 0, 1), [ROW, PLACE]
        for dimension, axis in enumerate((ROW, PLACE)):
            if axis not in axes:
                value = self._call(torch.unsqueeze, value, dimension)
        return value if example(value).dtype == torch.int64 else self._call("to", value, torch.int64)

    def _call(
        self, function: Callable[..., Any] | str, *args: Any, before: fx.Node | None = None, **kwargs: Any
    ) -> fx.Node:
        """A function's, or a method's by its name."""
        graph = self._node.graph
        with graph.inserting_before(before or self._node):
            make = graph.call_method if isinstance(function, str) else graph.call_function
            node = make(function, args, kwargs)
        args, kwargs = fx.node.map_arg((args, kwargs), example)
        with self._mode:
            run = getattr(torch.Tensor, function) if isinstance(function, str) else function
            node.meta[self._name] = run(*args, **kwargs)
        return node
