"""Tensors of integers, truths and masks as functions of their coordinates, read off an FX graph.

`Functions.element` gives what a node holds at symbolic coordinates: a linear form, a formula of comparisons, a constant
real, or a fork between such. A view is a change of coordinates, arithmetic is arithmetic of forms, an integer that
might wrap, an index that might be out of bounds and every call that no table knows is an atom of its own. So what is
said about an element holds for every value of the graph's inputs and of its symbolic sizes.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
import torch.fx as fx

from ...graph.effects import WRITE, effect_of
from ...graph.memory import memories
from ...graph.nodes import example
from ...text import INTEGERS
from .elements import At, Coordinates, Element, Levels, Real, Unknown, Unsupported
from .linear import Atom, Facts, Flag, Linear
from .operations import operation

_MAX_STEPS = 4000  # elements of one question
_LARGEST_SIZE = 1 << 48  # of one dimension: more elements than any memory holds
SMALL = (1 << 31) - 1  # what an input's numbers are no further from zero than, where that is assumed


class TooComplex(Exception):
    """A question that takes more steps than it is worth."""


class Functions:
    """The elements of every node of some graphs, the outermost one first.

    `outer` says which value a body's placeholder is, where it is always the same one. What any of the graphs writes in
    place is never read twice as one value.
    """

    def __init__(self, modules: Sequence[fx.GraphModule], outer: dict[fx.Node, fx.Node]) -> None:
        self.outer = outer
        self.inputs = tuple(modules[0].graph.find_nodes(op="placeholder"))
        self._sizes = {expression for module in modules for expression in _dimensions(module)}
        self._written = {node for module in modules for node in _written(module)}
        self._begin(frozenset(), False)

    def assuming(self, ones: frozenset[fx.Node] = frozenset(), small: bool = False) -> Functions:
        """Those of the same graphs, of which nothing was asked yet. `ones`: tensors of which every element is taken to
        be one. `small`: the integers that the outermost graph is given are taken to be SMALL; `assumed_small` has those
        of which that mattered."""
        others = copy.copy(self)  # the graphs are long, and looked through once
        others._begin(ones, small)
        return others

    def _begin(self, ones: frozenset[fx.Node], small: bool) -> None:
        self.ones = ones
        self._small = set(self.inputs) if small else set()
        self.assumed_small: set[fx.Node] = set()
        self.reached: set[fx.Node] = set()  # nodes whose elements are atoms
        self.atoms: dict[Atom | Flag, None] = {}  # their elements, but for reals
        self._fresh = itertools.count()
        self._known: dict[tuple[fx.Node, Coordinates, Facts, Levels], Element] = {}
        self.symbols: dict[Atom, torch.SymInt] = {}  # sizes that are no more than a symbol
        self._steps = self._depth = 0

    @contextlib.contextmanager
    def settled(self, nodes: Collection[fx.Node]) -> Iterator[None]:
        """Within it, these are what they are behind the last write of their memory."""
        written, known = self._written, self._known
        self._written, self._known = written - set(nodes), {}
        try:
            yield
        finally:
            self._written, self._known = written, known

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

    def element(
        self,
        node: fx.Node,
        coordinates: Coordinates,
        facts: Facts,
        levels: Levels = (),
        reader: fx.Node | None = None,
    ) -> Element:
        """What a tensor holds at coordinates that `facts` place inside of it: of memory that a graph writes, what the
        call `reader` finds there. Raises TooComplex."""
        while node in self.outer and node not in self.ones:
            node = self.outer[node]
        if node in self.ones:
            return _one(example(node).dtype)
        if reader is not None and node in self._written:
            return self._atom(node, ("read", reader, node, coordinates, levels))
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
        written = node in self._written
        return self._atom(node, ("written", next(self._fresh)) if written else ("element", node, coordinates, levels))

    def _atom(self, node: fx.Node, key: Any) -> Element:
        self.reached.add(node)
        dtype = example(node).dtype
        if dtype != torch.bool and dtype not in INTEGERS:
            return Unknown(key)
        if dtype == torch.bool:
            atom: Atom | Flag = Flag(key)
        else:
            limits = torch.iinfo(dtype)
            small = node in self._small and node not in self._written and limits.max > SMALL
            self.assumed_small |= {node} if small else set()
            atom = Atom(key, -SMALL, SMALL) if small else Atom(key, limits.min, limits.max)
        self.atoms.setdefault(atom)
        return atom if isinstance(atom, Flag) else Linear.of(atom)


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
    if not memory:
        return set()
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
