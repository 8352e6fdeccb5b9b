"""A tensor times a number that lies on the device, in f32 and rounded once.

- `cermet_v1::scaled(Tensor value, Tensor scale, int key, bool last)`: `value` times `scale`, by the region `key`. With
  `last` nobody reads `value` afterwards, unless autograd keeps it for another backward; where it does not, the product
  takes the memory of `value`, and if the number is 1 the kernel has nothing to do (flat.cuh). So a gradient that a
  forward has made costs its backward one read of the cotangent, from which `loss.backward()` starts with 1.
"""

from __future__ import annotations

import functools

import torch

from ..text import ELEMENT_TYPES, Builder, TensorType
from . import regions


def scaled(value: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """`value` times a 0-d tensor; the columns of `value` are no symbol."""
    return op()(value, scale, key_of(value.dtype, int(value.shape[-1]), scale.dtype), False)


def key_of(dtype: torch.dtype, columns: int, scale: torch.dtype) -> int:
    """The region that multiplies [rows, columns] by a 0-d tensor."""
    return regions.register(_text(ELEMENT_TYPES[dtype], columns, ELEMENT_TYPES[scale]))


@functools.cache
def _text(element: str, columns: int, scale: str) -> str:
    builder = Builder("scale")
    rows = TensorType(("r0", columns), element)
    wide = rows.with_element("f32")
    x, factor = builder.argument(rows, "x"), builder.argument(TensorType((), scale), "scale")
    if element != "f32":
        x = builder.convert("cast", x, wide, "x")
    if scale != "f32":
        factor = builder.convert("cast", factor, TensorType((), "f32"), "scale")
    product = builder.binary("mul", x, builder.convert("broadcast", factor, wide, "scale"), "product")
    builder.result(product if element == "f32" else builder.convert("cast", product, rows, "rounded"))
    return builder.text()


def _run(value: torch.Tensor, scale: torch.Tensor, key: int, last: bool) -> torch.Tensor:
    rows = value.reshape(-1, value.shape[-1])
    if last and value.is_contiguous() and not _again(value):
        return regions.launch_over_op(2, 1)(rows, scale, _over(key)).view(value.shape)
    return regions.launch_op(2, 1)(rows, scale, key).view(value.shape)


@functools.cache
def _over(key: int) -> int:
    """The same region, of which the product takes the memory of the tensor."""
    return regions.placed(key, (0,))


def _again(value: torch.Tensor) -> bool:
    """Whether `value` may be read again: by another backward, as autograd says of the one that runs (without any it
    says so too), or by a recorded graph that runs again, whatever was asked for when it was recorded."""
    if torch._C._autograd._get_current_graph_task_keep_graph():
        return True
    return value.is_cuda and torch.cuda.is_current_stream_capturing()


def _fake(value: torch.Tensor, scale: torch.Tensor, key: int, last: bool) -> torch.Tensor:
    return torch.empty_like(value, memory_format=torch.contiguous_format)


def _define() -> torch.library.Library:
    ops = torch.library.Library(regions.NAMESPACE, "FRAGMENT")
    ops.define("scaled(Tensor value, Tensor scale, int key, bool last) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
    for backend, run in (("CPU", _run), ("CUDA", _run), ("Meta", _fake)):
        ops.impl("scaled", run, backend)
    return ops


_library = _define()


@functools.cache
def op() -> torch._ops.OpOverload:
    return getattr(torch.ops, regions.NAMESPACE).scaled.default
