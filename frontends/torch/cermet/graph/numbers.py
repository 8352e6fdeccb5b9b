"""What an ATen graph says of tensors of integers that number rows: which are permutations, between what all
elements lie, and what comparisons of them can only say."""

from __future__ import annotations

import operator
from typing import Any

import torch
import torch.fx as fx

from .layouts import written
from .nodes import example

_aten = torch.ops.aten
_SAME = {_aten.alias.default, _aten.detach.default, _aten.clone.default}
_VIEWS = {
    _aten.view.default,
    _aten._unsafe_view.default,
    _aten.unsqueeze.default,
    _aten.squeeze.dim,
    _aten.squeeze.dims,
    _aten.expand.default,
    _aten.permute.default,
    _aten.transpose.int,
    _aten.t.default,
    _aten.slice.Tensor,
    _aten.select.int,
}
_CHOICES = {_aten.index.Tensor, _aten.gather.default, _aten.index_select.default}
SORTS = {_aten.sort.default, _aten.sort.stable}
_TYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_NARROW = (torch.uint8, torch.int16, torch.int32)
_COMPARISONS = {
    _aten.lt.Scalar: operator.lt,
    _aten.le.Scalar: operator.le,
    _aten.gt.Scalar: operator.gt,
    _aten.ge.Scalar: operator.ge,
}
_NOT = {_aten.logical_not.default, _aten.bitwise_not.default}
_EMPTY = {_aten.empty_like.default, _aten.empty.memory_format, _aten.new_empty.default}
_BOUNDS = "bounds of numbers"  # in meta: a backward graph is given what a forward graph computed
_UNKNOWN = (None, None)

Bounds = tuple[int | None, int | None]


def sizes(node: fx.Node) -> list[str]:
    return [written(size) for size in example(node).shape]


def plain(node: fx.Node) -> fx.Node:
    """The node behind calls that give the same tensor, or a copy of it."""
    while node.target in _SAME:
        node = node.args[0]
    return node


def is_permutation(node: Any) -> bool:
    """Whether a tensor of one dimension has each of 0, 1, ... once, by what makes it."""
    if not isinstance(node, fx.Node) or not isinstance(example(node), torch.Tensor) or example(node).dim() != 1:
        return False
    node = plain(node)
    return _sorted(node) is not None or is_permutation(_scattered(node))


def known_inverse(node: fx.Node) -> fx.Node | None:
    """The inverse of a permutation, if the graph has it."""
    node = plain(node)
    inverted = _scattered(node) or _sorted(node)
    if is_permutation(inverted):
        return plain(inverted)
    for user in node.users:
        sorting = [pick for pick in user.users if _sorted(pick) is node] if user.target in SORTS else []
        for found in (user, *sorting):
            if _scattered(found) is node or found in sorting:
                return found
    return None


def quotient(node: fx.Node) -> tuple[fx.Node, int] | None:
    """The permutation, and by what positive number `node` has it divided, rounded down."""
    node = plain(node)
    floor = node.target is _aten.floor_divide.default
    floor |= node.target is _aten.div.Tensor_mode and node.kwargs.get("rounding_mode") in ("floor", "trunc")
    if not floor or not is_permutation(node.args[0]):
        return None
    by = node.args[1]
    return (plain(node.args[0]), by) if isinstance(by, int) and by > 0 else None


def bounds(node: fx.Node) -> Bounds:
    """The least and the greatest that any element of a tensor of integers can be, as far as its graph says."""
    if not isinstance(value := example(node), torch.Tensor) or value.dtype not in _TYPES:
        return _UNKNOWN
    return node.meta.get(_BOUNDS) or _bounds(plain(node))


def _bounds(node: fx.Node) -> Bounds:
    if (noted := node.meta.get(_BOUNDS)) is not None:
        return noted
    if is_permutation(node):
        return _places(node, 0)
    if node.target in _VIEWS | _CHOICES:
        return bounds(node.args[0])
    if node.target is _aten._to_copy.default:
        found = bounds(node.args[0])
        return found if holds(example(node).dtype, *found) else _UNKNOWN
    if node.target is operator.getitem:
        return _picked(*node.args)
    if node.target in (_aten.argmax.default, _aten.argmin.default):
        return _places(node.args[0], *node.args[1:2])
    if node.target is _aten.clamp.default:
        return _clamped(*limited(node))
    return _divided(node) or _counted(node) or _UNKNOWN


def _places(source: fx.Node, dim: int | None = None) -> Bounds:
    """Of places along a dimension; in all of a tensor where that is None."""
    value = example(source)
    size = value.numel() if dim is None else value.shape[dim] if value.dim() else 1
    return 0, size - 1 if isinstance(size, int) else None


def _picked(call: fx.Node, result: int) -> Bounds:
    """Of a result of an order, or of the largest."""
    if call.target is _aten.topk.default:
        dim = call.args[2] if len(call.args) > 2 else -1
    elif call.target is _aten.sort.default:
        dim = call.args[1] if len(call.args) > 1 else -1
    elif call.target is _aten.sort.stable:
        dim = call.args[1] if len(call.args) > 1 else call.kwargs.get("dim", -1)
    else:
        return _UNKNOWN
    return _places(call.args[0], dim) if result == 1 else bounds(call.args[0])


def limited(clamp: fx.Node) -> tuple[fx.Node, Any, Any]:
    """What a call of clamp is given: the tensor, the least and the greatest."""
    source, *limits = clamp.args
    named = dict(zip(("min", "max"), limits)) | clamp.kwargs
    return source, named.get("min"), named.get("max")


def _clamped(source: fx.Node, least: Any, greatest: Any) -> Bounds:
    dtype = example(source).dtype
    if not all(limit is None or isinstance(limit, int) and holds(dtype, limit) for limit in (least, greatest)):
        return _UNKNOWN
    below, above = bounds(source)
    if least is not None:
        below = max(least, least if below is None else below)
        above = above if above is None else max(above, least)
    if greatest is not None:  # which holds where both cannot
        above = min(greatest, greatest if above is None else above)
        below = below if below is None else min(below, greatest)
    return below, above


def _divided(node: fx.Node) -> Bounds | None:
    """Of what is not negative, by a positive number, rounded down."""
    floor = node.target is _aten.floor_divide.default
    floor |= node.target is _aten.div.Tensor_mode and node.kwargs.get("rounding_mode") in ("floor", "trunc")
    if not floor or not isinstance(by := node.args[1], int) or by <= 0 or not isinstance(node.args[0], fx.Node):
        return None
    below, above = bounds(node.args[0])
    if below is None or below < 0:
        return None
    return below // by, above if above is None else above // by


def _counted(node: fx.Node) -> Bounds | None:
    if not _counts_up(node):
        return None
    count = example(node).shape[0]
    start = 0 if node.target is _aten.arange.default else node.args[0]
    found = start, start + count - 1 if isinstance(count, int) else None
    return found if holds(example(node).dtype, *found) else None


def holds(dtype: torch.dtype, *numbers: int | None) -> bool:
    """Whether a type has all of these numbers, without rounding; of what is not known, one of integers that is widest."""
    if not dtype.is_floating_point:
        least, greatest = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        return dtype == torch.int64 or all(each is not None and least <= each <= greatest for each in numbers)
    return all(each is not None and abs(each) * torch.finfo(dtype).eps <= 2 for each in numbers)


def narrowest(found: Bounds, dtype: torch.dtype) -> torch.dtype:
    """The narrowest type that holds every number between two; of what is not known, their own."""
    if None in found:
        return dtype
    narrow = next((each for each in _NARROW if holds(each, *found)), dtype)
    return narrow if narrow.itemsize < dtype.itemsize else dtype


def answer(mask: Any) -> bool | None:
    """What every element of a mask is, where all are the same."""
    if not isinstance(mask, fx.Node):
        return None
    mask = plain(mask)
    if mask.target in _VIEWS:
        return answer(mask.args[0])
    if mask.target in _NOT and example(mask).dtype == torch.bool:
        opposite = answer(mask.args[0])
        return None if opposite is None else not opposite
    compare = _COMPARISONS.get(mask.target)
    if compare is None or not is_whole(mask.args[1]):
        return None
    below, above = bounds(mask.args[0])
    if compare in (operator.lt, operator.le):
        below, above = above, below  # the end where it is hardest to hold, and the one where it is easiest
    if below is not None and compare(below, mask.args[1]):
        return True
    if above is not None and not compare(above, mask.args[1]):
        return False
    return None


def is_whole(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def never_negative(node: fx.Node) -> bool:
    """Whether no element of a tensor of integers can be below 0, as it can where numbers count from the end."""
    below, _ = bounds(node)
    return below is not None and below >= 0


def note_numbers(graph: fx.Graph) -> None:
    """Leaves the bounds of tensors of integers on them, for graphs that are given these."""
    for node in graph.nodes:
        if (found := bounds(node)) != _UNKNOWN:
            node.meta[_BOUNDS] = found


def _sorted(node: fx.Node) -> fx.Node | None:
    """What a tensor has the order of, if that has one dimension."""
    if node.target is not operator.getitem or node.args[1] != 1 or node.args[0].target not in SORTS:
        return None
    source = node.args[0].args[0]
    return plain(source) if example(source).dim() == 1 else None


def _scattered(node: fx.Node) -> fx.Node | None:
    """The numbers p, as many as `node` has, in whose places `node` has 0, 1, ...: x[p] = arange(n)."""
    if node.target is not _aten.index_put.default or len(node.args) != 3 or len(node.args[1]) != 1:
        return None
    target, (places,), values = node.args
    if not isinstance(places, fx.Node) or target.target not in _EMPTY or not _counts_up(values, first=0):
        return None
    return plain(places) if sizes(node) == sizes(places) == sizes(values) and len(sizes(node)) == 1 else None


def _counts_up(node: fx.Node, first: int | None = None) -> bool:
    """Whether it is start, start + 1, ... of integers, none of them negative."""
    if node.target is _aten.arange.default:
        start = 0
    elif node.target is _aten.arange.start:
        start = node.args[0]
    elif node.target is _aten.arange.start_step and (len(node.args) < 3 or node.args[2] == 1):
        start = node.args[0]
    else:
        return False
    value = example(node)
    is_whole = isinstance(start, int) and start >= 0 and not value.dtype.is_floating_point
    return is_whole and (first is None or start == first)
