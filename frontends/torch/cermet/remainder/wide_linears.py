"""Thin linear layers in f32 on and onto tensors of sixteen bits (ops/wide_linears.py): found in Dynamo's graph, where
they are a cast, a product, an addition and another cast, and written behind autograd.

A product in f32 is slow on a GPU, and reads and writes copies in f32 of tensors in bf16 that are otherwise in no memory.
So the thin matrix is taken apart (wide_products.py). What is added to a tensor of bf16 is added where that lies, and
rounded with it, once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor

from ..graph import fakes, layouts, seeded
from ..graph.edit import erase_unused, rewriting
from ..graph.effects import PURE, effect_of
from ..graph.memory import wrapped
from ..graph.nodes import after_autograd, example
from ..ops import wide_linears
from ..ops.wide_linears import EACH, LEFT, RIGHT
from .linears import changes_calls, row_major
from .wide_products import EVEN, NARROW, WideWriter

_aten = torch.ops.aten
_linear = torch._C._nn.linear
_CASTS = {"to", "float", "bfloat16", "type"}
_SUMS, _FACTORS = {operator.add, torch.add}, {operator.mul, torch.mul}
_THIN = 128  # columns of a layer or its input, at most: what is made in parts is small then

# --- Before autograd -------------------------------------------------------------------------------------------------


def join(module: fx.GraphModule) -> int:
    """Makes such layers of Dynamo's graph one call each, in place; returns how many."""
    if after_autograd(module.graph) or not any(map(_operands, module.graph.nodes)) or changes_calls(module.graph):
        return 0
    nodes = list(module.graph.nodes)
    places = {node: place for place, node in enumerate(nodes)}
    borders = [place for node, place in places.items() if effect_of(node, module).kind != PURE]

    def calm(first: fx.Node, last: fx.Node) -> bool:
        """Whether what is read behind the first of two nodes is the same before the last."""
        return not any(places[first] < border < places[last] for border in borders)

    with rewriting([module]):
        return sum(_join(module, node, calm) for node in nodes)


def _join(module: fx.GraphModule, node: fx.Node, calm: Callable[[fx.Node, fx.Node], bool]) -> bool:
    if (operands := _of_cast(node)) is not None:
        x, weight, dropped = operands
        if not calm(node.args[0] if dropped is None else dropped.args[0], node):
            return False
        factor = 1.0
        if dropped is not None:
            _, p, _ = dropped.args
            x, factor = _kept(x, dropped), 1 / (1 - p)
        made = _before(node, fakes.like(example(node)), wide_linears.WIDE_LINEAR, x, weight)
        if factor != 1.0:
            made = _before(node, fakes.like(example(node)), operator.mul, made, factor)
    elif (added := _added(node)) is not None and calm(added[0], node):
        made = _before(node, fakes.like(example(node)), wide_linears.ADD_WIDE_LINEAR, *added[1:])
    else:
        return False
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    erase_unused(module, [node])
    return True


def _before(node: fx.Node, value: torch.Tensor, target: Any, *arguments: Any) -> fx.Node:
    with node.graph.inserting_before(node):
        made = node.graph.call_function(target, arguments)
    made.meta = {**node.meta, "example_value": value}
    return made


def _kept(x: fx.Node, dropped: fx.Node) -> fx.Node:
    """What a dropout of x in f32 keeps of it, in x's type: not times anything, so that nothing is rounded."""
    value = example(x)
    _, p, seed = dropped.args
    narrow = _before(dropped, fakes.like(value), seeded.dropout, x, p, seed)
    gone = _before(dropped, fakes.fresh(value, value.shape, value.stride(), torch.bool), operator.eq, narrow, 0)
    return _before(dropped, fakes.like(value), torch.masked_fill, x, gone, 0.0)


def _of_cast(node: fx.Node) -> tuple[fx.Node, fx.Node, fx.Node | None] | None:
    """x and the weight of `linear(x.float(), weight)`, and the dropout of `linear(dropout(x.float()), weight)`."""
    operands = _operands(node)
    if operands is None or not _is_thin(example(operands[1]).shape[0]):
        return None
    source, weight = operands
    dropped = source if source.target is seeded.dropout and isinstance(source.args[1], float) else None
    x = _cast(source if dropped is None else source.args[0], NARROW, torch.float32)
    return (x, weight, dropped) if x is not None and _plain(example(x)) else None


def _added(node: fx.Node) -> tuple[fx.Node, fx.Node, fx.Node, fx.Node, float] | None:
    """The layer of `(held + linear(x, weight) * factor).to(held.dtype)`, and `held`, x, the weight and the factor."""
    total = _cast(node, torch.float32, NARROW)
    if total is None or total.target not in _SUMS or not _is_read_once(total):
        return None
    for held, term in (total.args, total.args[::-1]):
        if not (isinstance(held, fx.Node) and isinstance(term, fx.Node) and _is_read_once(term)):
            continue
        factor = 1.0
        if term.target in _FACTORS and not term.kwargs:
            numbers = [each for each in term.args if isinstance(each, (int, float)) and not isinstance(each, bool)]
            layers = [each for each in term.args if isinstance(each, fx.Node)]
            if len(numbers) != 1 or len(layers) != 1 or not _is_read_once(layers[0]):
                continue
            factor, term = float(numbers[0]), layers[0]
        operands = _operands(term)
        if operands is None or not _is_thin(example(operands[1]).shape[1]) or not _plain(example(held)):
            continue
        if _shape(held) == _shape(total) and example(held).dtype == NARROW:
            return term, held, *operands, factor
    return None


def _operands(node: fx.Node) -> tuple[fx.Node, fx.Node] | None:
    """Those of a linear layer in f32 without a bias."""
    if node.op != "call_function" or node.target is not _linear or node.kwargs or node.args[2:] not in ((), (None,)):
        return None
    x, weight = map(example, node.args[:2])
    f32 = all(isinstance(each, FakeTensor) and each.dtype == torch.float32 for each in (x, weight))
    if not f32 or not _plain(x) or weight.dim() != 2 or wrapped(weight) or weight.device != x.device:
        return None
    return node.args[:2] if all(isinstance(size, int) for size in weight.shape) else None


def _plain(value: Any) -> bool:
    return (
        isinstance(value, FakeTensor)
        and not wrapped(value)
        and value.layout is torch.strided
        and value.dim() == 3
        and isinstance(value.shape[-1], int)
        and row_major(value)
    )


def _cast(node: Any, before: torch.dtype, after: torch.dtype) -> fx.Node | None:
    """What a node casts from one type to another, and does nothing else with."""
    if not isinstance(node, fx.Node) or node.op != "call_method" or node.target not in _CASTS:
        return None
    cast, source = example(node), example(node.args[0])
    if not isinstance(cast, torch.Tensor) or not isinstance(source, torch.Tensor):
        return None
    same = cast.device == source.device and [*map(layouts.written, cast.stride())] == [
        *map(layouts.written, source.stride())
    ]
    return node.args[0] if same and (source.dtype, cast.dtype) == (before, after) else None


def _is_thin(columns: int) -> bool:
    return 0 < columns <= _THIN and columns % EVEN == 0


def _is_read_once(node: fx.Node) -> bool:
    return len(node.users) == 1 and not node.kwargs


def _shape(node: fx.Node) -> list[str]:
    return [*map(layouts.written, example(node).shape)]


# --- Behind autograd -------------------------------------------------------------------------------------------------


def spell(module: fx.GraphModule, in_parts: bool = True) -> set[int]:
    """Writes other calls in the places of such layers' and their gradients', in place: products `in_parts` where a
    device gains by them, else ATen's as eager has them. Returns the keys of what is launched."""
    nodes = [node for node in module.graph.nodes if node.target in _SPELLED]
    views: dict[tuple[Any, fx.Node], fx.Node] = {}
    keys: set[int] = set()
    for node in nodes:
        with module.graph.inserting_before(node):
            write = WideWriter(node, views, keys if in_parts else None)
            node.replace_all_uses_with(_SPELLED[node.target](write, *node.args))
        module.graph.erase_node(node)
    return keys


def _forward(write: WideWriter, x: fx.Node, weight: fx.Node) -> fx.Node:
    rows = write.rows(x)
    if pieces := write.pieces(rows, 1, EVEN):
        return write.shaped(write.with_parts(rows, write.turned(write.split_down(weight, EACH)), pieces))
    rows = write.rows(write.cast(x, torch.float32))
    return write.result_of_rows(_aten._unsafe_view.default, _aten.mm.default, rows, write.turned(weight))


def _input(write: WideWriter, cotangent: fx.Node, weight: fx.Node, dtype: torch.dtype) -> fx.Node:
    rows = write.rows(cotangent)
    if write.in_parts(rows) and dtype == NARROW:
        return write.shaped(write.product(write.split(rows, LEFT), write.split_down(weight, RIGHT)))
    wide = write.shaped(write.product(rows, weight), write.value.shape)
    return write.result(_aten._to_copy.default, wide, dtype=dtype)


def _weight(write: WideWriter, cotangent: fx.Node, x: fx.Node) -> fx.Node:
    rows = write.rows(cotangent)
    if pieces := write.pieces(rows, 0):
        return write.of_parts(write.split(rows, LEFT), write.rows(x), pieces)
    return write.result(_aten.mm.default, write.turned(rows), write.rows(write.cast(x, torch.float32)))


def _add_forward(write: WideWriter, held: fx.Node, x: fx.Node, weight: fx.Node, factor: float) -> fx.Node:
    rows = write.rows(x)
    if write.in_parts(rows):
        parts, columns = write.split(rows, LEFT, factor), write.turned(write.split(weight, RIGHT))
        return write.result_of_rows(_aten.view.default, _aten.addmm.default, write.rows(held), parts, columns)
    layer = write.shaped(write.product(rows, write.turned(weight)), write.value.shape)
    added = write.times(layer, factor)
    total = write.call(fakes.like(layer.meta["val"]), _aten.add.Tensor, held, added)
    return write.result(_aten._to_copy.default, total, dtype=held.meta["val"].dtype)


def _add_input(write: WideWriter, cotangent: fx.Node, weight: fx.Node, factor: float) -> fx.Node:
    rows = write.rows(cotangent)
    if pieces := write.pieces(rows, 1, EVEN):
        return write.shaped(write.with_parts(rows, write.split(weight, EACH, factor), pieces))
    rows = write.rows(write.times(write.cast(cotangent, torch.float32), factor))
    return write.result_of_rows(_aten.view.default, _aten.mm.default, rows, weight)


def _add_weight(write: WideWriter, cotangent: fx.Node, x: fx.Node, factor: float) -> fx.Node:
    rows = write.rows(cotangent)
    if pieces := write.pieces(rows, 0):
        return write.with_parts(write.turned(rows), write.split(write.rows(x), EACH, factor), pieces)
    wide = write.rows(write.times(write.cast(cotangent, torch.float32), factor))
    return write.result(_aten.mm.default, write.turned(wide), write.rows(x))


_SPELLED: dict[Any, Callable[..., fx.Node]] = {
    wide_linears.FORWARD: _forward,
    wide_linears.INPUT: _input,
    wide_linears.WEIGHT: _weight,
    wide_linears.ADD_FORWARD: _add_forward,
    wide_linears.ADD_INPUT: _add_input,
    wide_linears.ADD_WEIGHT: _add_weight,
}
