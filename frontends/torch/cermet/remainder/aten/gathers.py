"""Gradients of rows that were chosen by a permutation become rows chosen by its inverse.

A mixture of experts sorts its tokens by expert: row i of what it computes with is token p[i] // k, where p is the order
of what every token chose k of. Autograd knows no more of p than of other numbers: it adds rows into zeros, which ATen
sorts the numbers for once more. But every row of such a gradient is the sum of the k rows that p has sent there, and
its inverse says which these are.

What is chosen of rows that nothing else reads is computed behind the choice: rows of a product are the product of rows.
So a choice meets another one, which it may undo, and memory that a kernel reads in place.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

from ...graph.layouts import written
from ...graph.numbers import is_permutation, known_inverse, note_numbers, plain, quotient, sizes
from ...ops import regions
from ...ops.slices import in_groups, is_by_rows
from .rewriting import Rewriting, is_pointwise

_aten = torch.ops.aten
_CHOICE, _ADDITION = _aten.index.Tensor, _aten.index_put.default
ZEROS = {_aten.new_zeros.default, _aten.zeros.default, _aten.zeros_like.default}
_RESHAPES = {_aten.view.default, _aten._unsafe_view.default}
_COPIES = {_aten.clone.default, _aten.contiguous.default}


def choose(graph: fx.Graph, launches: set[int] | None = None) -> int:
    """Rewrites a functional ATen graph in place; returns how many sums and choices of rows are others. The keys of
    launches of chosen rows are added to `launches`; without it what launches make is chosen behind them."""
    rewriting = _Rewriting(graph, launches)
    for node in list(graph.nodes):
        if node.target in (_ADDITION, _aten.index_add.default):
            rewriting.added(node)
    for node in list(graph.nodes):
        if node.target is _CHOICE:
            rewriting.chosen(node)
    rewriting.erase_dead()
    note_numbers(graph)
    return rewriting.times


class _Rewriting(Rewriting):
    def __init__(self, graph: fx.Graph, launches: set[int] | None) -> None:
        super().__init__(graph)
        self.launches = launches
        self.inverses: dict[fx.Node, fx.Node] = {}

    def added(self, node: fx.Node) -> None:
        """Rows added into zeros."""
        addition = _addition(node)
        if addition is None:
            return
        numbers, rows = addition
        divided = (plain(numbers), 1) if is_permutation(numbers) else quotient(numbers)
        if divided is None or sizes(numbers) != sizes(rows)[:1]:
            return
        permutation, times = divided
        total = node.meta["val"].shape[0]
        if written(total * times) != sizes(numbers)[0]:
            return
        with self.graph.inserting_before(node):
            inverse = self._inverse(permutation, node)
            if times == 1:
                result = self.call(node, _CHOICE, rows, [inverse])
            else:
                places = self.call(node, _aten.view.default, inverse, [-1, times])
                result = self.call(node, _aten.sum.dim_IntList, self.call(node, _CHOICE, rows, [places]), [1])
        self.replace(node, result)

    def chosen(self, node: fx.Node) -> None:
        """Rows of what is computed row by row, by a permutation or by its inverse in groups."""
        numbers = node.args[1][0] if len(node.args[1]) == 1 else None
        if numbers is None:
            return
        reader = next(iter(node.users)) if len(node.users) == 1 else None
        grouped = reader is not None and is_permutation(numbers) and self._groups(node, reader)
        places = numbers
        with self.graph.inserting_before(node):
            if grouped:
                places = self.call(node, _aten.view.default, numbers, [-1, sizes_of(reader)[1]])
            value = self._rows(node, node.args[0], places)
            if value is None and grouped:
                value = self.call(node, _CHOICE, node.args[0], [places])
        if value is not None:
            self.replace(reader if grouped else node, value)

    def _groups(self, node: fx.Node, reader: fx.Node) -> bool:
        """Whether a reshape does nothing but make two dimensions of the first."""
        if reader.target not in _RESHAPES or reader.args[0] is not node:
            return False
        before, after = sizes(node), sizes(reader)
        return len(after) == len(before) + 1 and after[2:] == before[1:] and isinstance(sizes_of(reader)[1], int)

    def _rows(self, like: fx.Node, source: fx.Node, places: fx.Node) -> fx.Node | None:
        """The rows of `source` at places, in groups or not, where that is more than one choice of what it is."""
        base = _numbers_of(places)
        if (expanded := _repeated(source)) is not None:
            once, times = expanded
            return self.call(like, _CHOICE, once, [self._quotient(like, places, times)])
        if not is_permutation(base):
            return None
        shape = sizes_of(places)
        if source.target is _CHOICE and len(source.args[1]) == 1 and _undoes(source.args[1][0], base):
            before = source.args[0]
            columns, is_grouped = sizes_of(before)[1:], len(shape) > 1
            if sizes(before)[:1] != sizes(base) or is_grouped and not all(isinstance(size, int) for size in columns):
                return None
            copy = self.call(like, _aten.clone.default, before)  # as a choice is; simplify drops it where it may
            if not is_grouped:
                return copy
            return self.call(like, _aten.view.default, copy, [-1, shape[1], *columns])
        if source.target is _aten.unsqueeze.default and source.args[1] in (-1, len(sizes(source)) - 1):
            return self.call(like, _aten.unsqueeze.default, self._chosen(like, source.args[0], places), -1)
        if len(source.users) != 1:
            return None
        if self.launches is not None and (key := _by_rows(source)) is not None:
            return self._launched(like, source, key, places)
        if not _is_elementwise(source):
            return None
        rank, total = len(sizes(source)), sizes(source)[0]

        def part(argument: Any) -> Any:
            if not isinstance(argument, fx.Node) or not isinstance(argument.meta.get("val"), torch.Tensor):
                return argument
            has_rows = len(sizes(argument)) == rank and sizes(argument)[0] == total
            return self._chosen(like, argument, places) if has_rows else argument

        arguments = [part(argument) for argument in source.args]
        return self.call(like, source.target, *arguments, **{name: part(it) for name, it in source.kwargs.items()})

    def _launched(self, like: fx.Node, source: fx.Node, key: int, places: fx.Node) -> fx.Node:
        """A launch of chosen rows."""
        ports = regions.signature(key, source.meta["val"].device).inputs
        has_rows = [any(isinstance(size, str) for size in port.dims) for port in ports]
        arguments = [self._chosen(like, it, places) if has else it for it, has in zip(source.args, has_rows)]
        grouped = regions.register(in_groups(regions.text(key), sizes_of(places)[1:]))
        self.launches.add(grouped)
        return self.call(source, source.target, *arguments, grouped)

    def _chosen(self, like: fx.Node, source: fx.Node, places: fx.Node) -> fx.Node:
        rows = self._rows(like, source, places)
        return self.call(like, _CHOICE, source, [places]) if rows is None else rows

    def _quotient(self, like: fx.Node, places: fx.Node, by: int) -> fx.Node:
        for user in places.users:
            if user.target is _aten.floor_divide.default and user.args[1] == by and user < like:
                return user
        return self.call(like, _aten.floor_divide.default, places, by)

    def _inverse(self, permutation: fx.Node, before: fx.Node) -> fx.Node:
        found = self.inverses.get(permutation) or known_inverse(permutation)
        if found is not None and found < before:
            return found
        value = permutation.meta["val"]
        with self.graph.inserting_before(permutation.next):
            empty = self.call(permutation, _aten.empty_like.default, permutation)
            count = value.shape[0]
            if not isinstance(count, int):
                count = self.call(permutation, _aten.sym_size.int, permutation, 0)
            ascending = self.call(permutation, _aten.arange.default, count, device=value.device)
            inverse = self.call(permutation, _ADDITION, empty, [permutation], ascending)
        self.inverses[permutation] = inverse
        return inverse


def _by_rows(node: fx.Node) -> int | None:
    """The key of a launch of one result, row-major, whose rows are each made of its operands' same row."""
    key = regions.launched(node)
    if key is None or node.target is not regions.launch_op(len(node.args) - 1, 1):
        return None
    ((text, orders, _),) = regions.kept([key])
    return key if not orders and is_by_rows(text) else None


def _is_elementwise(node: fx.Node) -> bool:
    if node.target is _aten._to_copy.default:
        return node.meta["val"].device == node.args[0].meta["val"].device
    return is_pointwise(node)


def sizes_of(node: fx.Node) -> list[Any]:
    return list(node.meta["val"].shape)


def _addition(node: fx.Node) -> tuple[fx.Node, fx.Node] | None:
    """Numbers of rows of zeros, and what is added there."""
    if node.target is _ADDITION:
        accumulates = node.args[3] if len(node.args) > 3 else node.kwargs.get("accumulate", False)
        (target, listed, rows), numbers = node.args[:3], None
        numbers = listed[0] if accumulates and len(listed) == 1 else None
    else:
        target, dim, numbers, rows = node.args[:4]
        numbers = numbers if dim == 0 and node.kwargs.get("alpha", 1) == 1 and len(node.args) == 4 else None
    is_zero = target.target in ZEROS or target.target is _aten.full.default and target.args[1] == 0
    if numbers is None or not is_zero or sizes(node)[1:] != sizes(rows)[1:]:
        return None
    return numbers, rows


def _numbers_of(places: fx.Node) -> fx.Node:
    """The tensor of one dimension that places are, in groups or not."""
    return plain(places.args[0]) if places.target in _RESHAPES else plain(places)


def _undoes(numbers: Any, base: fx.Node) -> bool:
    if not isinstance(numbers, fx.Node) or not is_permutation(numbers):
        return False
    inverse = known_inverse(base)
    return inverse is not None and plain(inverse) is plain(numbers)


def _repeated(node: fx.Node) -> tuple[fx.Node, int] | None:
    """Of what has each row of a tensor several times, one behind the other: the tensor, and how often."""
    if node.target not in _RESHAPES:
        return None
    source = node.args[0]
    while source.target in _COPIES:
        source = source.args[0]
    if source.target is not _aten.expand.default or source.args[0].target is not _aten.unsqueeze.default:
        return None
    single = source.args[0]
    once, wide = single.args[0], sizes_of(source)
    if single.args[1] != 1 or len(wide) != len(sizes(once)) + 1 or not isinstance(wide[1], int):
        return None
    if sizes(single)[:1] + sizes(single)[2:] != sizes(source)[:1] + sizes(source)[2:]:
        return None
    return (once, wide[1]) if sizes(node)[1:] == sizes(once)[1:] and len(sizes(node)) == len(sizes(once)) else None
