"""Which dimensions of a value count the rows of a batch and the places in a row, and where a call leaves them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import sympy
import torch
import torch.fx as fx

from ..graph.decision import Declined
from ..graph.nodes import example
from ..importing.translations.operators import spelling

# Sizes that no other dimension has.
_ROWS, _PLACES = 7919, 7907


@dataclasses.dataclass(frozen=True)
class Axes:
    """`place` counts the places; those of all rows behind one another where there is no `row`."""

    place: int
    row: int | None = None

    def __contains__(self, dimension: int) -> bool:
        return dimension in (self.place, self.row)

    def behind(self, count: int) -> Axes:
        """With so many dimensions before the first."""
        return Axes(self.place + count, None if self.row is None else self.row + count)

    def beside(self, dimension: int) -> Axes:
        """With a dimension put in."""
        row = None if self.row is None else self.row + (self.row >= dimension)
        return Axes(self.place + (self.place >= dimension), row)

    def without(self, dimension: int) -> Axes:
        """Before a dimension was put in."""
        row = None if self.row is None else self.row - (self.row > dimension)
        return Axes(self.place - (self.place > dimension), row)


@dataclasses.dataclass(frozen=True)
class Batch:
    """How many rows there are, and how many places each has."""

    rows: sympy.Expr
    length: sympy.Expr

    def regrouped(self, axes: Axes, before: Sequence[Any], after: Sequence[Any]) -> Axes:
        """Where the axes are in another shape of the same elements in row-major order. Raises Declined."""
        ahead, sizes = _ahead(before), _ahead(after)
        place = ahead[axes.place][0]
        first = place if axes.row is None else ahead[axes.row][0]
        joined = axes.row is None or place == first * self.rows  # rows and places lie behind one another
        row = _found(sizes, (first, self.rows))
        place = _found(sizes, (first * self.rows if joined else place, self.length))
        if row is not None and place is not None and row < place:
            return Axes(place, row)
        both = _found(sizes, (first, self.rows * self.length)) if joined else None
        if both is None:
            raise Declined("another shape mixes rows or places with other dimensions")
        return Axes(both)


def expression(size: Any) -> sympy.Expr:
    return sympy.Integer(size) if isinstance(size, int) else size.node.expr


def _ahead(shape: Sequence[Any]) -> list[tuple[sympy.Expr, sympy.Expr]]:
    """Of each dimension how many elements the dimensions before it have, and its size."""
    found, product = [], sympy.Integer(1)
    for size in map(expression, shape):
        found.append((product, size))
        product *= size
    return found


def _found(sizes: Sequence[tuple[sympy.Expr, sympy.Expr]], wanted: tuple[sympy.Expr, sympy.Expr]) -> int | None:
    return next((index for index, size in enumerate(sizes) if size == wanted), None)


# --- Calls that treat all places alike -------------------------------------------------------------------------------

# Whose result shows by its shape which dimensions they work on: those keep their sizes that they leave alone.
MOVING = frozenset(
    "transpose permute movedim getitem select_index narrow mean sum amax amin var std norm vector_norm logsumexp chunk "
    "split unbind tensor_split repeat_interleave".split()
)
# Along one dimension, whose result has the shape of the operand; with the place of that argument.
ALONG = {"softmax": 1, "log_softmax": 1, "cumsum": 1, "normalize": 2}
# Over the last dimensions: of their second argument.
OVER_LAST = frozenset(["layer_norm", "rms_norm"])


def name_of(node: fx.Node) -> str:
    return spelling(node) or str(getattr(node.target, "__name__", node.target))


def argument(node: fx.Node, place: int, name: str, default: Any = None) -> Any:
    return node.args[place] if place < len(node.args) else node.kwargs.get(name, default)


def moved(node: fx.Node, axes: Axes) -> Axes:
    """Where one of MOVING leaves the axes of its first operand. Raises Declined where it works on them."""
    shape = [int(size) if isinstance(size, int) else 0 for size in example(node.args[0]).shape]
    shape[axes.place] = _PLACES
    if axes.row is not None:
        shape[axes.row] = _ROWS
    if 0 in shape or shape.count(_PLACES) != 1 or shape.count(_ROWS) > 1:
        raise Declined(f"{node.name} has an operand of sizes that are not known")
    probe = torch.empty(shape, device="meta")
    arguments, named = fx.node.map_arg((node.args[1:], node.kwargs), _number)
    try:
        found = (
            getattr(probe, node.target)(*arguments, **named)
            if node.op == "call_method"
            else node.target(probe, *arguments, **named)
        )
    except Exception as error:  # pieces of given sizes, which are others
        raise Declined(f"{node.name} works on rows or places: {error}") from error
    for each in found if isinstance(found, (tuple, list)) else [found]:
        sizes = list(each.shape)
        if sizes.count(_PLACES) != 1 or sizes.count(_ROWS) != (axes.row is not None):
            raise Declined(f"{node.name} works on rows or places")
    return Axes(sizes.index(_PLACES), sizes.index(_ROWS) if axes.row is not None else None)


def _number(node: fx.Node) -> Any:
    raise Declined(f"{node.name} is no number that is known")


def along(node: fx.Node, dimensions: Any, axes: Axes, rank: int) -> None:
    """Raises Declined where a call works on one of the axes."""
    for dimension in dimensions if isinstance(dimensions, (tuple, list)) else [dimensions]:
        if not isinstance(dimension, int) or dimension % rank in axes:
            raise Declined(f"{node.name} works on rows or places")
