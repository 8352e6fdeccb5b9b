"""Joins of what no kernel of the engine's makes, with the sums over their rows, as one launch.

The gradients of queries, keys and values come out of attention's backward; where one product made all three, they are
joined for its gradients, and the bias sums the rows of the whole. ATen copies each, and a kernel reads the copy again.
The launch has a program for each, side by side, which reads it once, stores it where the whole has it, and sums it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

import torch
import torch.fx as fx

from ..graph.memory import is_view
from ..graph.nodes import example
from ..importing.importer import strides_if_not_contiguous
from ..importing.translations.operators import translation, translation_of_several
from ..ops import regions
from ..text import ELEMENT_TYPES, Builder, TensorType
from .aten.rewriting import Rewriting
from .launching import PROGRAMS

_aten = torch.ops.aten
_JOIN, _SUM = _aten.cat.default, _aten.sum.dim_IntList
_VIEWS = {_aten.view.default, _aten.reshape.default, _aten._unsafe_view.default}
DTYPES = {torch.bfloat16, torch.float16, torch.float32}


def spell(graph: fx.Graph) -> set[int]:
    """Writes launches in the place of such joins, in place; returns their keys."""
    rewriting, keys = Rewriting(graph), set()
    for node in list(graph.nodes):
        if node.target is not _JOIN or not takes(node):
            continue
        sums = _sums(node)
        whole, parts = example(node), node.args[0]
        strides = tuple(tuple(strides_if_not_contiguous(example(part)) or ()) for part in parts)
        columns = tuple(example(part).shape[-1] for part in parts)
        key = regions.register(_text(ELEMENT_TYPES[whole.dtype], whole.dim(), columns, strides))
        if regions.not_lowered(key, whole.device):
            continue
        keys.add(key)
        with graph.inserting_before(node):
            launch = rewriting.call(node, regions.launch_op(len(parts), 2), *parts, key)
            joined, total = (rewriting.call(node, operator.getitem, launch, index) for index in range(2))
        for each in sums:
            with graph.inserting_before(each):
                rewriting.replace(each, rewriting.call(each, _aten.view.default, total, list(example(each).shape)))
        rewriting.replace(node, joined)
    rewriting.erase_dead()
    return keys


def takes(join: fx.Node) -> bool:
    """Whether a join is summed, and one that can be a launch with its sums."""
    return bool(_sums(join)) and _is_taken(join)


def _is_taken(join: fx.Node) -> bool:
    """Whether parts of known columns are joined to rows of a type that kernels have, and none is a kernel's."""
    value, values = example(join), [example(part) for part in join.args[0]]
    dim = join.args[1] if len(join.args) > 1 else 0
    if value.dtype not in DTYPES or value.dim() < 2 or dim not in (-1, value.dim() - 1):
        return False
    alike = all((each.dtype, each.device, each.dim()) == (value.dtype, value.device, value.dim()) for each in values)
    known = all(isinstance(each.shape[-1], int) and each.shape[-1] and each.stride(-1) == 1 for each in values)
    dense = strides_if_not_contiguous(value) is None
    return len(values) <= PROGRAMS and alike and known and dense and not any(map(is_made, join.args[0]))


def is_made(value: fx.Node) -> bool:
    """Whether the engine may compute a value, and then store it where the whole has it."""
    while is_view(value):
        value = value.all_input_nodes[0]
    if value.target is operator.getitem:
        value = value.args[0]
    if value.op != "call_function":
        return False
    translated = translation(value) or translation_of_several(value)
    return translated is not None or regions.launched(value) is not None


def _sums(join: fx.Node) -> list[fx.Node]:
    """Sums over all rows of a join, or of its view as a matrix."""
    found, columns = [], example(join).shape[-1]
    for user in join.users:
        is_matrix = user.target in _VIEWS and example(user).dim() == 2 and example(user).shape[-1] == columns
        found += [each for each in (user.users if is_matrix else (user,)) if _sums_rows(each)]
    return found


def _sums_rows(node: fx.Node) -> bool:
    if node.target is not _SUM or example(node).dtype != example(node.args[0]).dtype or not node.args[1]:
        return False
    rank = example(node.args[0]).dim()
    return sorted(dim % rank for dim in node.args[1]) == list(range(rank - 1))


@functools.cache
def _text(element: str, rank: int, columns: Sequence[int], strides: Sequence[Sequence[int]]) -> str:
    builder = Builder("joined_sums")
    rows = tuple(f"r{dim}" for dim in range(rank - 1))
    parts = [
        builder.argument(TensorType((*rows, width), element), f"part{index}", list(stride) or None)
        for index, (width, stride) in enumerate(zip(columns, strides, strict=True))
    ]
    sums = []
    for part in parts:
        wide = part if element == "f32" else builder.convert("cast", part, part.type.with_element("f32"), "wide")
        total = builder.convert("sum_rows", wide, TensorType(part.type.dims[-1:], "f32"), "rows")
        rounded = total.type.with_element(element)
        sums.append(total if element == "f32" else builder.convert("cast", total, rounded, "rounded"))
    builder.result(builder.concat(parts, rank - 1, TensorType((*rows, sum(columns)), element), "whole"))
    builder.result(builder.concat(sums, 0, TensorType((sum(columns),), element), "sum"))
    return builder.text()
