"""Tensors of integers, truths and masks as functions of their coordinates, read off an FX graph.

`Functions.element` gives what a node holds at symbolic coordinates: a linear form, a formula of comparisons, a constant
real, or a fork between such. A view is a change of coordinates, arithmetic is arithmetic of forms, an integer that
might wrap, an index that might be out of bounds and every call that no table knows is an atom of its own. So what is
said about an element holds for every value of the graph's inputs and of its symbolic sizes.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Union

import torch
import torch.fx as fx

from . import linear
from .call import example
from .effects import WRITE, effect_of
from .linear import And, AtLeastZero, Atom, Facts, Flag, Formula, IsZero, Linear, Not, Or
from .memory import memories

_MAX_STEPS = 4000  # elements of one question
_LARGEST_SIZE = 1 << 48  # of one dimension: more elements than any memory holds
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
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


class TooComplex(Exception):
    """A question that takes more steps than it is worth."""


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


@dataclasses.dataclass(frozen=True)
class At:
    """One element of one call: what a table's entry is asked for."""

    functions: Functions
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
        value = example(operand) if isinstance(operand, fx.Node) else operand
        if isinstance(value, torch.Tensor):
            return value.dtype
        if isinstance(value, (bool, torch.SymBool)):
            return torch.bool
        return torch.int64 if isinstance(value, (int, torch.SymInt)) else torch.float64

    def number(self, operand: Any) -> Linear:
        """An integer argument: a number, or a node of one."""
        value = example(operand) if isinstance(operand, fx.Node) else operand
        if isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
            return self.functions.size(value)
        raise Unsupported(f"{operand} is no integer")

    def read(
        self,
        operand: Any,
        coordinates: Coordinates | None = None,
        facts: Facts | None = None,
        levels: Levels | None = None,
    ) -> Element:
        """An operand's element; without coordinates the one that broadcasts to this."""
        facts = self.facts if facts is None else facts
        value = example(operand) if isinstance(operand, fx.Node) else operand
        if isinstance(value, torch.Tensor):
            if coordinates is None:
                coordinates = broadcast(self.coordinates, self.shape, self.shape_of(operand))
            return self.functions.element(operand, coordinates, facts, self.levels if levels is None else levels)
        if isinstance(value, bool):
            return value
        if isinstance(value, (int, torch.SymInt)):
            return self.functions.size(value)
        if isinstance(value, float):
            return Real(value)
        raise Unsupported(f"an operand that is a {type(value).__name__}")

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


class Functions:
    """The elements of every node of some graphs.

    `outer` says which value a body's placeholder is, where it is always the same one. What any of the graphs writes in
    place is never read twice as one value. `ones`: tensors of which every element is taken to be one.
    """

    def __init__(
        self, modules: Sequence[fx.GraphModule], outer: dict[fx.Node, fx.Node], ones: frozenset[fx.Node] = frozenset()
    ) -> None:
        self.outer = outer
        self.ones = ones
        self.reached: set[fx.Node] = set()  # nodes whose elements are atoms
        self._fresh = itertools.count()
        self._known: dict[tuple[fx.Node, Coordinates, Facts, Levels], Element] = {}
        self.symbols: dict[Atom, torch.SymInt] = {}  # sizes that are no more than a symbol
        self._steps = self._depth = 0
        self._sizes = {expression for module in modules for expression in _dimensions(module)}
        self._written = {node for module in modules for node in _written(module)}

    def writes(self, node: fx.Node) -> bool:
        """Whether a graph writes what a node holds."""
        return node in self._written

    # --- Sizes -------------------------------------------------------------------------------------------------------

    def size(self, value: int | torch.SymInt) -> Linear:
        """A number of elements, or another integer that tracing knows, as a form over the symbols."""
        if isinstance(value, int):
            return Linear(int(value))
        expression = value.node.expr
        found = Linear(0)
        for term in expression.expand().as_ordered_terms():
            factor, rest = term.as_coeff_Mul()
            if not factor.is_Integer:
                raise Unsupported(f"the size {expression}")
            found += Linear(int(factor)) if rest == 1 else Linear.of(self._symbol(rest, value)) * int(factor)
        return found

    def _symbol(self, expression: Any, value: torch.SymInt) -> Atom:
        low = high = None
        known = value.node.shape_env.var_to_range.get(expression)
        if known is not None:
            low = int(known.lower) if known.lower.is_Integer else None
            high = int(known.upper) if known.upper.is_Integer else None
        if expression in self._sizes:
            low = max(low or 0, 0)
            high = min(_LARGEST_SIZE, _LARGEST_SIZE if high is None else high)
        atom = Atom(("size", expression), low, high)
        if value.node.expr == expression:
            self.symbols[atom] = value
        return atom

    def shape(self, node: Any) -> Coordinates:
        value = example(node)
        if not isinstance(value, torch.Tensor):
            raise Unsupported(f"{node} is no tensor")
        return tuple(self.size(size) for size in value.shape)

    def inside(self, facts: Facts, coordinates: Coordinates, shape: Coordinates) -> Facts:
        for place, size in zip(coordinates, shape):
            facts = facts.within(place, size)
        return facts

    def new(self, name: str) -> Linear:
        """A number that is bound nowhere yet."""
        return Linear.of(Atom((name, next(self._fresh))))

    # --- Elements ----------------------------------------------------------------------------------------------------

    def element(self, node: fx.Node, coordinates: Coordinates, facts: Facts, levels: Levels = ()) -> Element:
        """What a tensor holds at coordinates that `facts` place inside of it. Raises TooComplex."""
        while node in self.outer and node not in self.ones:
            node = self.outer[node]
        if node in self.ones:
            return _one(example(node).dtype)
        key = (node, coordinates, facts, levels)
        if key not in self._known:
            self._steps = self._steps + 1 if self._depth else 0
            if self._steps > _MAX_STEPS:
                raise TooComplex(f"more than {_MAX_STEPS} elements")
            self._depth += 1
            try:
                self._known[key] = self._computed(node, coordinates, facts, levels)
            finally:
                self._depth -= 1
        return self._known[key]

    def _computed(self, node: fx.Node, coordinates: Coordinates, facts: Facts, levels: Levels) -> Element:
        from .index_operations import operation  # it is a table of functions of At

        entry = operation(node) if node not in self._written else None
        if entry is None:
            return self.atom(node, coordinates, levels)
        try:
            return entry(At(self, node, coordinates, facts, levels))
        except TooComplex:
            raise
        except Exception:  # Unsupported, or an argument of a form that no table foresaw
            return self.atom(node, coordinates, levels)

    def atom(self, node: fx.Node, coordinates: Coordinates, levels: Levels) -> Element:
        """An element of which nothing is known but that it is the same each time."""
        self.reached.add(node)
        dtype = example(node).dtype
        key: Any = ("element", node, coordinates, levels)
        if node in self._written:
            key = ("written", next(self._fresh))
        if dtype == torch.bool:
            return Flag(key)
        if dtype in INTEGERS:
            limits = torch.iinfo(dtype)
            return Linear.of(Atom(key, limits.min, limits.max))
        return Unknown(key)


def _one(dtype: torch.dtype) -> Element:
    if dtype == torch.bool:
        return True
    return Linear(1) if dtype in INTEGERS else Real(1.0)


def _written(module: fx.GraphModule) -> set[fx.Node]:
    """Nodes whose memory some node of the graph writes, before or after."""
    memory: set[Any] = set()
    for node in module.graph.nodes:
        effect = effect_of(node, module)
        if effect.kind == WRITE:
            for target in effect.written:
                memory |= memories(example(target))
    return {
        node
        for node in module.graph.nodes
        if isinstance(example(node), torch.Tensor) and memory & memories(example(node))
    }


def _dimensions(module: fx.GraphModule) -> set[Any]:
    """Symbols that are the size of a dimension."""
    found = set()
    for node in module.graph.nodes:
        value = example(node)
        if isinstance(value, torch.Tensor):
            found |= {size.node.expr for size in value.shape if isinstance(size, torch.SymInt)}
    return found
