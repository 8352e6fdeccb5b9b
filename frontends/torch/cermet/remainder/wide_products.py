"""How products with a thin matrix in f32 are written, of parts in bf16 and in pieces (wide_linears.py).

A GPU multiplies f32 at a fifteenth of the rate of bf16. So the matrix becomes the parts in bf16 that it is the sum of:
products with them are exact, and are added in f32.

The units that multiply bf16 cut off what they add, so that an error grows with how many numbers are added; where those
are rounded, with the root of that. So a long sum is made in pieces, which are added with rounding: measured, of as many
numbers at once as `_PIECE` says the error is half of that of a product in f32. A sum over rows whose number is a symbol,
or has no such divisor, is made of as many equal pieces whatever that is, and a rest of fewer than those.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor

from ..graph import fakes, layouts
from ..graph.traffic import judged
from ..ops import regions
from ..ops.wide_linears import EACH, LEFT, split, split_down
from .linears import Writer

_aten = torch.ops.aten
NARROW = torch.bfloat16
EVEN = 8  # numbers of bf16 that a row, and a piece of one, are a multiple of (aten/alignment.py)
_MANY = 128  # rows of a tensor, at least: of fewer, the kernels that make parts cost more than a product gains
_PIECE = 4  # times the root of how many numbers a sum has are added at most before that is rounded
_DEVICES, _CAPABILITY = {"cuda"}, (8, 0)  # whose units multiply bf16
WIDE_RESULTS = {"cuda"}  # where torch's products of bf16 have results in f32


class WideWriter(Writer):
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
            return self.result(_aten.view.default, rows, self.sizes(self.value.shape))
        made = fakes.view(rows.meta["val"], dims, layouts.strides(dims, None))
        return self.call(made, _aten.view.default, rows, self.sizes(dims))

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
        return self.call(_dense(matrix.meta["val"], dims, NARROW), regions.launch_op(1, 1), matrix, key)

    def _in_pieces(self, left: fx.Node, right: fx.Node, pieces: int) -> list[fx.Node]:
        """The product in f32 of two matrices of bf16, as that of each piece, and that of a rest."""
        size = right.meta["val"].shape[0]
        if isinstance(size, int) and size % pieces == 0:
            return [self._of_each(left, right, pieces)]
        border, at = self._border(right, pieces)
        products = []
        for is_rest in (False, True):
            sides = (self._cut(matrix, dim, border, at, is_rest) for dim, matrix in ((1, left), (0, right)))
            products.append(self._of_each(*sides, 1 if is_rest else pieces))
        return products

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
        of_left = self.call(fakes.view(a, dims, strides), _aten.view.default, left, self.sizes(dims))
        turned = fakes.view(a, [pieces, rows, inner], [strides[1], down, along])
        of_left = self.call(turned, _aten.permute.default, of_left, [1, 0, 2])
        dims, strides = [pieces, inner, columns], [inner * below, below, beside]
        of_right = self.call(fakes.view(b, dims, strides), _aten.view.default, right, self.sizes(dims))
        made = _dense(a, [pieces, rows, columns], torch.float32)
        if a.device.type in WIDE_RESULTS:
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
    return fakes.fresh(value, dims, layouts.strides(dims, None), dtype)
