"""What a tensor of integers, truths or masks holds at symbolic coordinates: forms, formulas, constants, and forks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Protocol, Union

import torch
import torch.fx as fx

from ...graph.nodes import example
from . import linear
from .linear import And, AtLeastZero, Facts, Flag, Formula, IsZero, Linear, Not, Or

_FORMULAS = (bool, AtLeastZero, IsZero, Flag, Not, And, Or)


@dataclasses.dataclass(frozen=True)
class Real:
    """A constant of a floating-point type."""

    value: float


@dataclasses.dataclass(frozen=True)
class Unknown:
    """A real of which nothing is known; equal keys, equal bits."""

    key: Any


@dataclasses.dataclass(frozen=True)
class Fork:
    """`yes` where the condition holds, else `no`. A truth is never one, it is a formula."""

    condition: Formula
    yes: Element
    no: Element

Element = Union[Linear, Real, Unknown, Fork, Formula]

Coordinates = tuple[Linear, ...]

Levels = tuple[tuple[int, Linear], ...]  # of vmap around a node: which entry of each batch is meant


class Unsupported(Exception):
    """This call's elements are atoms."""


def is_formula(element: Element) -> bool:
    return isinstance(element, _FORMULAS)


def fork(condition: Formula, yes: Element, no: Element) -> Element:
    if yes == no:
        return yes
    if is_formula(yes) and is_formula(no):
        return linear.chosen(condition, yes, no)  # type: ignore[arg-type]
    if isinstance(condition, bool):
        return yes if condition else no
    return Fork(condition, yes, no)


def lifted(function: Callable[..., Element], facts: Facts, *elements: Element) -> Element:
    """`function(facts, *leaves)` wherever the elements' forks lead."""
    first = next((item for item in elements if isinstance(item, Fork)), None)
    if first is None:
        return function(facts, *elements)
    condition, found = first.condition, []
    for truth in (True, False):
        within = facts.assume(condition, truth)
        if within is None:
            found.append(None)
            continue
        leaves = [
            (item.yes if truth else item.no) if isinstance(item, Fork) and item.condition == condition else item
            for item in elements
        ]
        found.append(lifted(function, within, *leaves))
    yes, no = found
    if yes is None or no is None:
        return no if yes is None else yes  # type: ignore[return-value]
    return fork(condition, yes, no)


def leaves(element: Element, facts: Facts) -> Iterable[tuple[Element, Facts]]:
    """Every leaf that can be reached, and what is known there."""
    if not isinstance(element, Fork):
        yield element, facts
        return
    for truth in facts.possible(element.condition):
        within = facts.assume(element.condition, truth)
        if within is not None:
            yield from leaves(element.yes if truth else element.no, within)


def broadcast(coordinates: Coordinates, shape: Coordinates, operand: Coordinates) -> Coordinates:
    """Where a result's element lies in an operand of another shape."""
    apart = len(shape) - len(operand)
    found = []
    for place, size, own in zip(coordinates[apart:], shape[apart:], operand):
        if own != size and own != Linear(1):
            raise Unsupported("an operand whose size may be one or not")
        found.append(Linear(0) if own == Linear(1) else place)
    if apart < 0:
        raise Unsupported("an operand of more dimensions")
    return tuple(found)


def value_of(operand: Any) -> Any:
    """What tracing knows of an operand; a number is itself."""
    return example(operand) if isinstance(operand, fx.Node) else operand


def is_number(operand: Any) -> bool:
    return isinstance(value_of(operand), (int, torch.SymInt)) and not isinstance(value_of(operand), bool)


class Graphs(Protocol):
    """What an element asks of the graphs that it lies in (functions.py)."""

    def size(self, value: int | torch.SymInt) -> Linear:
        """An integer that tracing knows, as a form."""

    def shape(self, node: Any) -> Coordinates:
        """A tensor's sizes."""

    def element(
        self,
        node: fx.Node,
        coordinates: Coordinates,
        facts: Facts,
        levels: Levels = (),
        reader: fx.Node | None = None,
    ) -> Element:
        """What a tensor holds at coordinates, as the call `reader` finds it."""

    def atom(self, node: fx.Node, coordinates: Coordinates, levels: Levels) -> Element:
        """An element of which nothing is known."""


@dataclasses.dataclass(frozen=True)
class At:
    """One element of one call: what a table's entry is asked for."""

    functions: Graphs
    node: fx.Node
    coordinates: Coordinates
    facts: Facts
    levels: Levels = ()

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        return self.node.args[position] if position < len(self.node.args) else self.node.kwargs.get(name, default)

    @property
    def dtype(self) -> torch.dtype:
        return example(self.node).dtype

    @property
    def shape(self) -> Coordinates:
        return self.functions.shape(self.node)

    def shape_of(self, operand: Any) -> Coordinates:
        return self.functions.shape(operand)

    def dtype_of(self, operand: Any) -> torch.dtype:
        """Of a tensor, or the default one of a number."""
        value = value_of(operand)
        if isinstance(value, torch.Tensor):
            return value.dtype
        if isinstance(value, (bool, torch.SymBool)):
            return torch.bool
        return torch.int64 if isinstance(value, (int, torch.SymInt)) else torch.float64

    def number(self, operand: Any) -> Linear:
        """An integer argument: a number, or a node of one."""
        if not is_number(operand):
            raise Unsupported(f"{operand} is no integer")
        return self.functions.size(value_of(operand))

    def read(
        self,
        operand: Any,
        coordinates: Coordinates | None = None,
        facts: Facts | None = None,
        levels: Levels | None = None,
    ) -> Element:
        """An operand's element; without coordinates the one that broadcasts to this."""
        facts = self.facts if facts is None else facts
        value = value_of(operand)
        if isinstance(value, torch.Tensor):
            if coordinates is None:
                coordinates = broadcast(self.coordinates, self.shape, self.shape_of(operand))
            levels = self.levels if levels is None else levels
            return self.functions.element(operand, coordinates, facts, levels, self.node)
        if isinstance(value, bool):
            return value
        if isinstance(value, (int, torch.SymInt)):
            return self.functions.size(value)
        if isinstance(value, float):
            return Real(value)
        raise Unsupported(f"an operand that is a {type(value).__name__}")

    def elsewhere(self, dimension: int, *place: Linear) -> Coordinates:
        """This element's coordinates with another at a dimension, or without one there."""
        return (*self.coordinates[:dimension], *place, *self.coordinates[dimension + 1 :])

    def opaque(self) -> Element:
        return self.functions.atom(self.node, self.coordinates, self.levels)

    def fit(self, form: Linear, facts: Facts) -> Element:
        """A result of integer arithmetic, or an atom if it might wrap."""
        limits = torch.iinfo(self.dtype)
        return form if facts.between(form, limits.min, limits.max) else self.opaque()

    def inside(self, form: Linear, size: Linear, facts: Facts) -> Linear:
        """An index of a dimension, from its end if negative."""
        if facts.implies(form) and facts.implies(size - form - 1):
            return form
        if facts.implies(-form - 1) and facts.implies(size + form):
            return form + size
        raise Unsupported("an index that may be out of bounds")

Entry = Callable[[At], Element]
