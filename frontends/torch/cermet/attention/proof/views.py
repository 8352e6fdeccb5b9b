"""Views of tensors in functions.py: where in its operand a call's element lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx

from ...graph.nodes import example
from .elements import At, Coordinates, Element, Entry, Unsupported, broadcast, fork, is_number, lifted
from .linear import Facts, Linear, divided, is_zero


def _identity(at: At) -> Element:
    return at.read(at.argument(0, "input"))


def _reshape(at: At) -> Element:
    operand = at.argument(0, "input")
    return at.read(operand, _reshaped(at.coordinates, at.shape, at.shape_of(operand), at.facts))


def _reshaped(coordinates: Coordinates, new: Coordinates, old: Coordinates, facts: Facts) -> Coordinates:
    """Where an element lies in a shape of as many elements in the same order."""
    found: list[Linear] = []
    one = Linear(1)
    left, places = list(new), list(coordinates)
    index = 0
    while index < len(old):
        size = old[index]
        if size == one:
            found.append(Linear(0))
            index += 1
            continue
        while left and left[0] == one:
            del left[0], places[0]
        if not left:
            raise Unsupported("a reshape of these shapes")
        if left[0] == size:
            found.append(places[0])
            del left[0], places[0]
            index += 1
            continue
        taken, product = _merged(left, places, size)
        if product is not None:  # several new dimensions are one old one
            del left[:taken], places[:taken]
            found.append(product)
            index += 1
            continue
        taken, parts = _split(left[0], places[0], old[index:], facts)
        del left[0], places[0]
        found += parts
        index += taken
    return tuple(found)


def _times(size: Linear, factor: Linear) -> Linear | None:
    if size.fixed:
        return factor * size.constant
    return size * factor.constant if factor.fixed else None


def _merged(left: Sequence[Linear], places: Sequence[Linear], size: Linear) -> tuple[int, Linear | None]:
    """How many leading dimensions have `size` elements, and the index in them."""
    product, index = left[0], places[0]
    for taken in range(1, len(left)):
        grown = _times(product, left[taken])
        if grown is None or not left[taken].fixed:
            return 0, None
        index = index * left[taken].constant + places[taken]
        product = grown
        if product == size:
            return taken + 1, index
    return 0, None


def _split(size: Linear, place: Linear, old: Sequence[Linear], facts: Facts) -> tuple[int, list[Linear]]:
    """How many leading dimensions of `old` have `size` elements, and the index in each."""
    product = old[0]
    taken = 1
    while product != size:
        if taken == len(old) or (grown := _times(product, old[taken])) is None or not old[taken].fixed:
            raise Unsupported("a reshape of these shapes")
        product = grown
        taken += 1
    parts: list[Linear] = []
    for inner in reversed(old[1:taken]):
        found = divided(place, inner.constant, facts)
        if found is None:
            raise Unsupported("an index that is no multiple")
        place, remainder = found
        parts.insert(0, remainder)
    return taken, [place, *parts]


def _permute(at: At) -> Element:
    operand = at.argument(0, "input")
    rank = len(at.shape)
    order = at.node.kwargs.get("dims", at.node.args[1:])
    order = order[0] if len(order) == 1 and isinstance(order[0], (tuple, list)) else order
    coordinates: list[Linear] = [Linear(0)] * rank
    for place, dimension in enumerate(order):
        coordinates[dimension % rank] = at.coordinates[place]
    return at.read(operand, tuple(coordinates))


def _transpose(at: At) -> Element:
    operand, rank = at.argument(0, "input"), len(at.shape)
    if len(at.node.args) == 1 and not at.node.kwargs:
        first, second = (0, 1) if rank == 2 else (0, 0)
        if rank > 2:
            raise Unsupported("a transpose without dimensions")
    else:
        first = at.argument(1, "dim0", at.node.kwargs.get("axis0")) % rank
        second = at.argument(2, "dim1", at.node.kwargs.get("axis1")) % rank
    coordinates = list(at.coordinates)
    coordinates[first], coordinates[second] = coordinates[second], coordinates[first]
    return at.read(operand, tuple(coordinates))


def _movedim(at: At) -> Element:
    source, destination = at.argument(1, "source"), at.argument(2, "destination")
    if not isinstance(source, int) or not isinstance(destination, int):
        raise Unsupported("several dimensions at once")
    coordinates = list(at.coordinates)
    moved = coordinates.pop(destination % len(coordinates))
    coordinates.insert(source % (len(coordinates) + 1), moved)
    return at.read(at.argument(0, "input"), tuple(coordinates))


def _at_dimension(at: At, dimension: int, place: Linear) -> Coordinates:
    """This element's coordinates with a dimension of the operand put in."""
    return (*at.coordinates[:dimension], place, *at.coordinates[dimension:])


def _select_index(at: At) -> Element:
    operand = at.argument(0, "input")
    shape = at.shape_of(operand)
    dimension = at.argument(1, "dim") % len(shape)
    place = at.inside(at.number(at.argument(2, "index")), shape[dimension], at.facts)
    return at.read(operand, _at_dimension(at, dimension, place))


def _narrow(at: At) -> Element:
    operand, dimension = at.argument(0, "input"), at.argument(1, "dim")
    start = at.number(at.argument(2, "start"))
    return _sliced(at, operand, dimension % len(at.shape), start, 1)


def _slice(at: At) -> Element:
    start = at.argument(2, "start")
    dimension = at.argument(1, "dim", 0) % len(at.shape)
    return _sliced(at, at.argument(0, "input"), dimension, at.number(0 if start is None else start),
                   at.argument(4, "step", 1))


def _first(at: At, start: Linear, size: Linear) -> Linear:
    """Where a slice that has elements begins."""
    if at.facts.implies(start):
        return start
    if not at.facts.implies(-start - 1):
        raise Unsupported("a slice from before or after the beginning")
    if at.facts.implies(size + start):
        return size + start
    if at.facts.implies(-size - start):
        return Linear(0)
    raise Unsupported("a slice from before or after the beginning")


def _sliced(at: At, operand: Any, dimension: int, start: Linear, step: Any) -> Element:
    if not isinstance(step, int):
        raise Unsupported("a step that is no number")
    first = _first(at, start, at.shape_of(operand)[dimension])
    return at.read(operand, at.elsewhere(dimension, first + at.coordinates[dimension] * step))


def _flip(at: At) -> Element:
    operand = at.argument(0, "input")
    dimensions = at.node.kwargs.get("dims", at.node.args[1:])
    dimensions = [item for given in (dimensions if isinstance(dimensions, (tuple, list)) else [dimensions])
                  for item in (given if isinstance(given, (tuple, list)) else [given])]
    coordinates, shape = list(at.coordinates), at.shape
    for dimension in dimensions:
        coordinates[dimension] = shape[dimension] - coordinates[dimension] - 1
    return at.read(operand, tuple(coordinates))


def _repeat_interleave(at: At) -> Element:
    operand, times, dimension = at.argument(0, "input"), at.argument(1, "repeats"), at.argument(2, "dim")
    if not isinstance(times, int) or dimension is None:
        raise Unsupported("repeats that are no number")
    dimension %= len(at.shape)
    found = divided(at.coordinates[dimension], times, at.facts)
    if found is None:
        raise Unsupported("an index that is no multiple")
    return at.read(operand, at.elsewhere(dimension, found[0]))


def _stack(at: At) -> Element:
    parts, dimension = at.argument(0, "tensors"), at.argument(1, "dim", 0) % len(at.shape)
    place, rest = at.coordinates[dimension], at.elsewhere(dimension)
    if any(at.dtype_of(part) != at.dtype for part in parts):
        raise Unsupported("parts of several types")
    element = at.read(parts[-1], rest)
    for number, part in reversed(list(enumerate(parts[:-1]))):
        here = is_zero(place - number)
        known = at.facts.decide(here)
        element = fork(here if known is None else known, at.read(part, rest), element)
    return element


# --- vmap ------------------------------------------------------------------------------------------------------------


def _add_batch(at: At) -> Element:
    """Inside of vmap: one entry of a tensor, the one that the level is at."""
    operand, dimension, level = at.node.args
    dimension %= len(at.shape_of(operand))
    return at.read(operand, _at_dimension(at, dimension, dict(at.levels)[level]),
                   levels=tuple(item for item in at.levels if item[0] != level))


def _remove_batch(at: At) -> Element:
    """Outside of vmap: its results as one tensor."""
    operand, level, _, dimension = at.node.args
    dimension %= len(at.shape)
    return at.read(operand, at.elsewhere(dimension), levels=(*at.levels, (level, at.coordinates[dimension])))


# --- Indices that are tensors ----------------------------------------------------------------------------------------


def _through(at: At, operand: Any, indices: dict[int, Element], coordinates: list[Linear | None]) -> Element:
    """The operand's element where the indices say; the other coordinates are given."""
    shape = at.shape_of(operand)
    dimensions = list(indices)

    def read(facts: Facts, *places: Element) -> Element:
        found = list(coordinates)
        for dimension, place in zip(dimensions, places):
            if not isinstance(place, Linear):
                raise Unsupported("an index that is no integer")
            found[dimension] = at.inside(place, shape[dimension], facts)
        return at.read(operand, tuple(found), facts)  # type: ignore[arg-type]

    return lifted(read, at.facts, *indices.values())


def _gather(at: At) -> Element:
    operand, dimension, index = at.argument(0, "input"), at.argument(1, "dim"), at.argument(2, "index")
    dimension %= len(at.shape)
    return _through(at, operand, {dimension: at.read(index, at.coordinates)}, list(at.coordinates))


def _index_select(at: At) -> Element:
    operand, dimension, index = at.argument(0, "input"), at.argument(1, "dim"), at.argument(2, "index")
    dimension %= len(at.shape)
    place = at.read(index, (at.coordinates[dimension],) if at.shape_of(index) else ())
    return _through(at, operand, {dimension: place}, list(at.coordinates))


def _index(at: At) -> Element:
    items = [slice(None) if item is None else item for item in at.argument(1, "indices")]
    shape = at.shape_of(at.argument(0, "input"))
    return _indexed(at, at.argument(0, "input"), shape, items + [slice(None)] * (len(shape) - len(items)))


def _getitem(at: At) -> Element:
    operand, index = at.argument(0, "input"), at.argument(1, "index")
    items = list(index) if isinstance(index, (tuple, list)) else [index]
    if not isinstance(example(operand), torch.Tensor):
        raise Unsupported("an element of a list")
    shape = at.shape_of(operand)
    used = sum(item is not None and item is not Ellipsis for item in items)
    rest: list[Any] = [slice(None)] * (len(shape) - used)
    place = items.index(Ellipsis) if any(item is Ellipsis for item in items) else len(items)
    items[place : place + 1] = rest
    return _indexed(at, operand, shape, items)


def _indexed(at: At, operand: Any, shape: Coordinates, items: list[Any]) -> Element:
    tensors = [place for place, item in enumerate(items) if _is_tensor(item)]
    indices = [items[place] for place in tensors]
    if any(at.dtype_of(item) == torch.bool for item in indices):
        raise Unsupported("an index of truths")
    scalars = [item for item in indices if not at.shape_of(item)]
    rank = max((len(at.shape_of(item)) for item in indices), default=0)
    kept = [item for item in items if not is_number(item)]  # torch applies numbers first
    where = [place for place, item in enumerate(kept) if _is_tensor(item)]
    adjacent = not where or where == list(range(where[0], where[-1] + 1))
    if not adjacent and scalars:
        raise Unsupported("a scalar tensor among indices that are apart")
    before = where[0] if adjacent and where else 0
    mine = list(at.coordinates)
    common, sizes = tuple(mine[before : before + rank]), at.shape[before : before + rank]
    del mine[before : before + rank]
    coordinates: list[Linear | None] = []
    through: dict[int, Element] = {}
    position = 0  # among the result's own dimensions
    for item in items:
        dimension = len(coordinates)
        if item is None:
            position += 1
        elif _is_tensor(item):
            through[dimension] = at.read(item, broadcast(common, sizes, at.shape_of(item)))
            coordinates.append(None)
        elif is_number(item):
            coordinates.append(at.inside(at.number(item), shape[dimension], at.facts))
        else:
            step = 1 if item.step is None else item.step
            start = at.number(0 if item.start is None else item.start)
            if not isinstance(step, int):
                raise Unsupported("a step that is no number")
            coordinates.append(_first(at, start, shape[dimension]) + mine[position] * step)
            position += 1
    if position != len(mine) or len(coordinates) != len(shape):
        raise Unsupported("an index of another rank")
    return _through(at, operand, through, coordinates)


def _is_tensor(item: Any) -> bool:
    return isinstance(item, fx.Node) and isinstance(example(item), torch.Tensor)


VIEWS: dict[str, Entry] = {
    "identity": _identity,
    "detach": _identity,
    "expand": _identity,  # as broadcasting does
    "reshape": _reshape,
    "permute": _permute,
    "transpose": _transpose,
    "movedim": _movedim,
    "select_index": _select_index,
    "narrow": _narrow,
    "slice": _slice,
    "flip": _flip,
    "repeat_interleave": _repeat_interleave,
    "stack": _stack,
    "gather": _gather,
    "index_select": _index_select,
    "take_along_dim": _gather,
    "getitem": _getitem,
    "index": _index,
    "add_batch_dim": _add_batch,
    "remove_batch_dim": _remove_batch,
}
