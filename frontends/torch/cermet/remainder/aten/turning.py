"""Work on turned matrices in the order in which memory has them, and the largest of all elements by rows.

A product of floats of eight bits takes its second operand turned, so `x.t()` is scaled and cast. A call that computes
each element by itself gives of matrices that are all turned what it gives of those that are not, turned: `f(x.t())`
becomes `f(x).t()`, whose rows lie in memory. The largest of a turned matrix, or of its columns, is that of the matrix,
or of its rows.

The largest of all elements is the largest of the rows' largest: those come out of the kernel that makes the rows.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

from ...graph.layouts import written
from ...graph.numbers import sizes
from .rewriting import Rewriting, is_drawn, is_pointwise

_aten = torch.ops.aten
_OF_ALL = {_aten.max.default: _aten.amax.default, _aten.min.default: _aten.amin.default}
_OF_ROWS = frozenset(_OF_ALL.values())
_SHORTEST = 32  # columns of a row whose largest is taken by itself


def turn(graph: fx.Graph) -> int:
    """In place, in a functional graph; returns how many calls others stand for."""
    writing = Rewriting(graph)
    for node in list(graph.nodes):
        if node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor):
            with graph.inserting_before(node):
                for rewrite in (_computed, _largest_of_columns, _largest):
                    made = rewrite(writing, node)
                    if made is not None:
                        writing.replace(node, made)
                        break
    writing.erase_dead()
    return writing.times


def _computed(writing: Rewriting, node: fx.Node) -> fx.Node | None:
    """Of a call that computes each element of turned matrices by itself: what it gives of the matrices, turned."""
    if not _is_elementwise(node) or node.meta["val"].dim() != 2:
        return None
    bases = {each: base for each in node.all_input_nodes if (base := _base(each)) and sizes(each) == sizes(node)}
    if not bases or not all(each in bases or _is_number(each) or _is_vector(each) for each in node.all_input_nodes):
        return None

    def turned(each: fx.Node) -> fx.Node:
        if each in bases:
            return bases[each]
        if _is_number(each):
            return each
        flat = each.meta["val"].dim() == 1
        return writing.call(each, *(_aten.unsqueeze.default, each, 1) if flat else (_aten.t.default, each))

    arguments, keywords = fx.map_arg((node.args, node.kwargs), turned)
    return writing.call(node, _aten.t.default, writing.call(node, node.target, *arguments, **keywords))


def _largest_of_columns(writing: Rewriting, node: fx.Node) -> fx.Node | None:
    """Of a turned matrix, or of a dimension of it."""
    base = _base(node.args[0]) if node.target in _OF_ALL or node.target in _OF_ROWS else None
    if base is None:
        return None
    if node.target in _OF_ALL:
        made = writing.call(node, node.target, base)
        return _largest(writing, made) or made
    dims = node.args[1] if len(node.args) > 1 else []
    shape = list(node.meta["val"].shape)
    if len(dims) != 1 or not all(isinstance(size, int) for size in shape):
        return None
    made = writing.call(node, node.target, base, [1 - dims[0] % 2], *node.args[2:])
    return writing.call(node, _aten.view.default, made, shape)


def _largest(writing: Rewriting, node: fx.Node) -> fx.Node | None:
    """Of all elements."""
    of_rows = _OF_ALL.get(node.target)
    value = node.args[0].meta["val"] if of_rows is not None else None
    if value is None or value.dim() < 2 or not value.is_floating_point():
        return None
    if not isinstance(value.shape[-1], int) or value.shape[-1] < _SHORTEST:
        return None
    return writing.call(node, node.target, writing.call(node, of_rows, node.args[0], [-1]))


def _is_elementwise(node: fx.Node) -> bool:
    """Whether a call gives the same elements of what it is given in any order."""
    if node.target is _aten._to_copy.default:
        return not any(value for name, value in node.kwargs.items() if name != "dtype")
    return is_pointwise(node) and not is_drawn(node)


def _base(node: Any) -> fx.Node | None:
    """The matrix of which a node is the turned one."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    if not isinstance(value, torch.Tensor) or not node.args or value.dim() != 2:
        return None
    turns = {_aten.t.default: [()], _aten.transpose.int: [(0, 1), (1, 0)], _aten.permute.default: [([1, 0],)]}
    if tuple(node.args[1:]) not in turns.get(node.target, ()):
        return None
    base = node.args[0].meta["val"]  # its strides as they are written, which guards nothing
    return node.args[0] if [*map(written, base.stride())] == [written(base.shape[1]), "1"] else None


def _is_number(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor) and node.meta["val"].dim() == 0


def _is_vector(node: fx.Node) -> bool:
    """Whether a tensor is repeated along a dimension of a matrix."""
    value = node.meta.get("val")
    is_tensor = isinstance(value, torch.Tensor)
    return is_tensor and (value.dim() == 1 or value.dim() == 2 and "1" in map(written, value.shape))
