"""A tensor times a number that lies on the device, in f32 and rounded once: a region's launch.

A launch over its operand (rematerialization/places.py) has nothing to do where the number is 1 (flat.cuh). So a
gradient that a forward has made costs its backward one read of the cotangent, from which `loss.backward()` starts with
1.
"""

from __future__ import annotations

import functools

import torch

from ..text import ELEMENT_TYPES, Builder, TensorType
from . import regions


def scaled(value: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """`value` times a 0-d tensor; the columns of `value` are no symbol."""
    key = key_of(value.dtype, int(value.shape[-1]), scale.dtype)
    return regions.launch(key, [value.reshape(-1, value.shape[-1]), scale])[0].view(value.shape)


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
