"""Thin linear layers in f32 on and onto tensors of sixteen bits (ops/wide_linears.py): found in Dynamo's graph, where
they are a cast, a product, an addition and another cast, and written behind autograd.

A GPU multiplies f32 at a fifteenth of the rate of bf16, and a product in f32 reads and writes copies in f32 of tensors
in bf16 that are otherwise in no memory. So a thin matrix in f32 becomes the parts in bf16 that it is the sum of: products
with them are exact, and are added in f32. What is added to a tensor of bf16 is added where that lies, and rounded with
it, once.

The units that multiply bf16 cut off what they add, so that an error grows with how many numbers are added; where those
are rounded, with the root of that. So a long sum is made in pieces, which are added with rounding: measured, of as many
numbers at once as `_PIECE` says the error is half of that of a product in f32. A sum over rows whose number is a symbol,
or has no such divisor, is made of as many equal pieces whatever that is, and a rest of fewer than those.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor

from ..graph import fakes, layouts, seeded
from ..graph.edit import erase_unused, rewriting
from ..graph.effects import PURE, effect_of
from ..graph.memory import wrapped
from ..graph.nodes import after_autograd, example
from ..graph.traffic import judged
from ..ops import regions, wide_linears
from ..ops.wide_linears import EACH, LEFT, RIGHT, split, split_down
from .linears import Writer, changes_calls, row_major, sizes

_aten = torch.ops.aten
_linear = torch._C._nn.linear
_NARROW = torch.bfloat16
_CASTS = {"to", "float", "bfloat16", "type"}
_SUMS, _FACTORS = {operator.add, torch.add}, {operator.mul, torch.mul}
_THIN = 128  # columns of a layer or its input, at most: what is made in parts is small then
_EVEN = 8  # numbers of bf16 that a row, and a piece of one, are a multiple of (aten/alignment.py)
_MANY = 128  # rows of a tensor, at least: of fewer, the kernels that make parts cost more than a product gains
_PIECE = 4  # times the root of how many numbers a sum has are added at most before that is rounded
_DEVICES, _CAPABILITY = {"cuda"}, (8, 0)  # whose units multiply bf16
_WIDE_RESULTS = {"cuda"}  # where torch's products of bf16 have results in f32

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
    x = _cast(source if dropped is None else source.args[0], _NARROW, torch.float32)
    return (x, weight, dropped) if x is not None and _plain(example(x)) else None


def _added(node: fx.Node) -> tuple[fx.Node, fx.Node, fx.Node, fx.Node, float] | None:
    """The layer of `(held + linear(x, weight) * factor).to(held.dtype)`, and `held`, x, the weight and the factor."""
    total = _cast(node, torch.float32, _NARROW)
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
        if _shape(held) == _shape(total) and example(held).dtype == _NARROW:
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
        and sum(not isinstance(size, int) for size in value.shape) < 2  # a view's other sizes tell it
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
    return 0 < columns <= _THIN and columns % _EVEN == 0


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
            node.replace_all_uses_with(_SPELLED[node.target](_Writer(node, views, keys if in_parts else None), *node.args))
        module.graph.erase_node(node)
    return keys


class _Writer(Writer):
    """`keys`: of what is launched; None where nothing may be."""

    def __init__(self, node: fx.Node, views: dict[tuple[Any, fx.Node], fx.Node], keys: set[int] | None) -> None:
        super().__init__(node, views)
        self._keys = keys

    def in_parts(self, rows: fx.Node) -> bool:
        """Whether products with a matrix of so many rows are made of parts."""
        device = self.value.device
        if self._keys is None or device.type not in _DEVICES or judged(rows.meta["val"].shape[0]) < _MANY:
            return False
        return device.type != "cuda" or torch.cuda.get_device_capability(device) >= _CAPABILITY

    def pieces(self, rows: fx.Node, dim: int, step: int = 1) -> int:
        """Into how many equal pieces, each a multiple of `step`, a product of parts that adds over a dimension of such a
        matrix divides that, or if that is of rows all but fewer than so many; 0 where it is none."""
        size = rows.meta["val"].shape[dim]
        if not self.in_parts(rows):
            return 0
        if isinstance(size, int):
            most = int(_PIECE * size**0.5) // step * step
            inner = next((inner for inner in range(most, 0, -step) if size % inner == 0), 0)
            if inner and 4 * inner >= min(size, most):
                return size // inner
        return 0 if dim else math.ceil(2 * judged(size) ** 0.5 / _PIECE)  # short enough for four times as many rows

    def cast(self, source: fx.Node, dtype: torch.dtype) -> fx.Node:
        value = source.meta["val"]
        made = fakes.fresh(value, value.shape, value.stride(), dtype)
        return self.call(made, _aten._to_copy.default, source, dtype=dtype)

    def times(self, source: fx.Node, factor: float) -> fx.Node:
        return source if factor == 1.0 else self.call(fakes.like(source.meta["val"]), _aten.mul.Tensor, source, factor)

    def product(self, left: fx.Node, right: fx.Node) -> fx.Node:
        """Of two matrices of one type."""
        a, b = left.meta["val"], right.meta["val"]
        return self.call(_dense(a, [a.shape[0], b.shape[1]], a.dtype), _aten.mm.default, left, right)

    def shaped(self, rows: fx.Node, dims: Sequence[Any] | None = None) -> fx.Node:
        """A dense value of other dimensions; without them, of the node's own."""
        if dims is None:
            return self.result(_aten.view.default, rows, sizes(self.value.shape))
        value = rows.meta["val"]
        return self.call(fakes.view(value, dims, _strides(dims)), _aten.view.default, rows, sizes(dims))

    def split(self, matrix: fx.Node, sides: tuple[int, ...], factor: float = 1.0) -> fx.Node:
        """The parts of a matrix in f32, side by side. A backward asks for others than its forward, which are made again
        where the f32 is, in a third of their memory."""
        rows, columns = matrix.meta["val"].shape
        return self._launch(split(columns, sides, factor), matrix, [rows, len(sides) * columns])

    def split_down(self, matrix: fx.Node, sides: tuple[int, ...]) -> fx.Node:
        """The same, one below the other."""
        rows, columns = matrix.meta["val"].shape
        return self._launch(split_down(rows, columns, sides), matrix, [len(sides) * rows, columns])

    def _launch(self, key: int, matrix: fx.Node, dims: Sequence[Any]) -> fx.Node:
        self._keys.add(key)
        return self.call(_dense(matrix.meta["val"], dims, _NARROW), regions.launch_op(1, 1), matrix, key)

    def _in_pieces(self, left: fx.Node, right: fx.Node, pieces: int) -> list[fx.Node]:
        """The product in f32 of two matrices of bf16, as that of each piece, and that of a rest."""
        size = right.meta["val"].shape[0]
        if isinstance(size, int) and size % pieces == 0:
            return [self._of_each(left, right, pieces)]
        border, at = self._border(right, pieces)
        of_left, of_right = ([self._cut(each, dim, border, at, is_rest) for is_rest in (False, True)]
                             for dim, each in ((1, left), (0, right)))
        return [self._of_each(*sides, count) for sides, count in zip(zip(of_left, of_right), (pieces, 1))]

    def _border(self, matrix: fx.Node, pieces: int) -> tuple[Any, Any]:
        """How many rows of a matrix are in equal pieces, as an argument and as a size."""
        rows = matrix.meta["val"].shape[0]
        at = rows // pieces * pieces
        if isinstance(rows, int):
            return at, at
        count = self.call(rows, _aten.sym_size.int, matrix, 0)
        return self.call(at, operator.mul, self.call(rows // pieces, operator.floordiv, count, pieces), pieces), at

    def _cut(self, matrix: fx.Node, dim: int, border: Any, at: Any, is_rest: bool) -> fx.Node:
        value = matrix.meta["val"]
        dims = list(value.shape)
        dims[dim] = dims[dim] - at if is_rest else at
        made = fakes.view(value, dims, value.stride(), at * value.stride(dim) if is_rest else 0)
        return self.call(made, _aten.slice.Tensor, matrix, dim, *((border, sys.maxsize) if is_rest else (0, border)))

    def _of_each(self, left: fx.Node, right: fx.Node, pieces: int) -> fx.Node:
        """The products of as many equal pieces."""
        a, b = left.meta["val"], right.meta["val"]
        rows, columns, inner = a.shape[0], b.shape[1], a.shape[1] // pieces
        (down, along), (below, beside) = a.stride(), b.stride()
        dims, strides = [rows, pieces, inner], [down, inner * along, along]
        of_left = self.call(fakes.view(a, dims, strides), _aten.view.default, left, sizes(dims))
        turned = fakes.view(a, [pieces, rows, inner], [strides[1], down, along])
        of_left = self.call(turned, _aten.permute.default, of_left, [1, 0, 2])
        dims, strides = [pieces, inner, columns], [inner * below, below, beside]
        of_right = self.call(fakes.view(b, dims, strides), _aten.view.default, right, sizes(dims))
        made = _dense(a, [pieces, rows, columns], torch.float32)
        if a.device.type in _WIDE_RESULTS:
            return self.call(made, _aten.bmm.dtype, of_left, of_right, torch.float32)
        wide = [self.cast(each, torch.float32) for each in (of_left, of_right)]
        return self.call(made, _aten.bmm.default, *wide)

    def sum(self, source: fx.Node, *dims: int) -> fx.Node:
        value = source.meta["val"]
        left = [size for dim, size in enumerate(value.shape) if dim not in dims]
        return self.call(_dense(value, left, value.dtype), _aten.sum.dim_IntList, source, list(dims))

    def with_parts(self, narrow: fx.Node, parts: fx.Node, pieces: int) -> fx.Node:
        """The product of a matrix in bf16 with one in f32 that is given as EACH of its parts."""
        total, *rest = (self._sum(each) for each in self._in_pieces(narrow, parts, pieces))
        for each in rest:
            total = self.call(fakes.like(total.meta["val"]), _aten.add.Tensor, total, each)
        return total

    def _sum(self, products: fx.Node) -> fx.Node:
        """Over pieces and parts."""
        pieces, rows, columns = products.meta["val"].shape
        return self.sum(self.shaped(products, [pieces, rows, len(EACH), columns // len(EACH)]), 0, 2)

    def of_parts(self, parts: fx.Node, narrow: fx.Node, pieces: int) -> fx.Node:
        """The product of the transpose of a matrix in f32 that is given as its LEFT parts with one in bf16: made as its
        transpose, of whose sums parts lie side by side."""
        value = parts.meta["val"]
        columns = value.shape[1] // len(LEFT) * len(EACH)
        each = fakes.view(value, [value.shape[0], columns], value.stride())
        each = self.call(each, _aten.slice.Tensor, parts, 1, 0, columns)
        made = self.turned(self.with_parts(self.turned(narrow), each, pieces))
        return self.result(_aten.clone.default, made, memory_format=torch.contiguous_format)


def _dense(value: FakeTensor, dims: Sequence[Any], dtype: torch.dtype) -> FakeTensor:
    return fakes.fresh(value, dims, _strides(dims), dtype)


def _strides(dims: Sequence[Any]) -> list[Any]:
    strides: list[Any] = [1]
    for size in reversed(dims[1:]):
        strides.insert(0, size * strides[0])
    return strides


def _forward(write: _Writer, x: fx.Node, weight: fx.Node) -> fx.Node:
    rows = write.rows(x)
    if pieces := write.pieces(rows, 1, _EVEN):
        return write.shaped(write.with_parts(rows, write.turned(write.split_down(weight, EACH)), pieces))
    rows = write.rows(write.cast(x, torch.float32))
    return write.result_of_rows(_aten._unsafe_view.default, _aten.mm.default, rows, write.turned(weight))


def _input(write: _Writer, cotangent: fx.Node, weight: fx.Node, dtype: torch.dtype) -> fx.Node:
    rows = write.rows(cotangent)
    if write.in_parts(rows) and dtype == _NARROW:
        return write.shaped(write.product(write.split(rows, LEFT), write.split_down(weight, RIGHT)))
    wide = write.shaped(write.product(rows, weight), write.value.shape)
    return write.result(_aten._to_copy.default, wide, dtype=dtype)


def _weight(write: _Writer, cotangent: fx.Node, x: fx.Node) -> fx.Node:
    rows = write.rows(cotangent)
    if pieces := write.pieces(rows, 0):
        return write.of_parts(write.split(rows, LEFT), write.rows(x), pieces)
    return write.result(_aten.mm.default, write.turned(rows), write.rows(write.cast(x, torch.float32)))


def _add_forward(write: _Writer, held: fx.Node, x: fx.Node, weight: fx.Node, factor: float) -> fx.Node:
    rows = write.rows(x)
    if write.in_parts(rows):
        parts, columns = write.split(rows, LEFT, factor), write.turned(write.split(weight, RIGHT))
        return write.result_of_rows(_aten.view.default, _aten.addmm.default, write.rows(held), parts, columns)
    layer = write.shaped(write.product(rows, write.turned(weight)), write.value.shape)
    added = write.times(layer, factor)
    total = write.call(fakes.like(layer.meta["val"]), _aten.add.Tensor, held, added)
    return write.result(_aten._to_copy.default, total, dtype=held.meta["val"].dtype)


def _add_input(write: _Writer, cotangent: fx.Node, weight: fx.Node, factor: float) -> fx.Node:
    rows = write.rows(cotangent)
    if pieces := write.pieces(rows, 1, _EVEN):
        return write.shaped(write.with_parts(rows, write.split(weight, EACH, factor), pieces))
    rows = write.rows(write.times(write.cast(cotangent, torch.float32), factor))
    return write.result_of_rows(_aten.view.default, _aten.mm.default, rows, weight)


def _add_weight(write: _Writer, cotangent: fx.Node, x: fx.Node, factor: float) -> fx.Node:
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
