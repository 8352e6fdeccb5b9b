"""Sums of rows by number: what the gradient of an embedding is made of (remainder/embeddings.py).

- `cermet_v1::embedding_bag(Tensor source, Tensor index, Tensor begins, Tensor ends, Tensor? sums, bool wide)`: of row r
  of the result the rows of `source` [rows, columns] whose numbers `index` has from begins[r] to before ends[r], added
  in f32; of the source's dtype or, where it is `wide`, f32. `sums` has in row i the sum of the PART rows that `index`
  has from place PART i on. It has no gradient, and is a region's launch where no kernel beside it takes it.
"""

from __future__ import annotations

import functools

import torch

from .. import native
from ..text import ELEMENT_TYPES, Builder, TensorType, Value
from . import regions

PART = native.limit("bag_part")


def _run(
    source: torch.Tensor,
    index: torch.Tensor,
    begins: torch.Tensor,
    ends: torch.Tensor,
    sums: torch.Tensor | None,
    wide: bool,
) -> torch.Tensor:
    elements = [ELEMENT_TYPES[tensor.dtype] for tensor in (source, index, begins)]
    key = regions.register(_text(*elements, int(source.shape[1]), sums is not None, wide))
    given = [source, index, begins, ends] if sums is None else [source, index, begins, ends, sums]
    return regions.launch(key, given)[0]


@functools.cache
def _text(source: str, index: str, bounds: str, columns: int, has_sums: bool, wide: bool) -> str:
    builder = Builder("embedding_bag")
    rows, numbers = TensorType(("rows", columns), source), TensorType(("numbers",), index)
    bags = TensorType(("bags",), bounds)
    operands = [
        builder.argument(type, name)
        for type, name in ((rows, "source"), (numbers, "index"), (bags, "begins"), (bags, "ends"))
    ]
    sums: Value | None = builder.argument(TensorType(("parts", columns), "f32"), "sums") if has_sums else None
    result = TensorType(("bags", columns), "f32" if wide else source)
    builder.result(builder.embedding_bag(*operands, sums, result, "sum"))
    return builder.text()


def _fake(
    source: torch.Tensor, index: torch.Tensor, begins: torch.Tensor, ends: torch.Tensor, sums: object, wide: bool
) -> torch.Tensor:
    dtype = torch.float32 if wide else source.dtype
    return source.new_empty((begins.shape[0], source.shape[1]), dtype=dtype)


def _define() -> torch.library.Library:
    ops = torch.library.Library(regions.NAMESPACE, "FRAGMENT")
    schema = "(Tensor source, Tensor index, Tensor begins, Tensor ends, Tensor? sums, bool wide) -> Tensor"
    ops.define(f"embedding_bag{schema}", tags=(torch.Tag.pt2_compliant_tag,))
    ops.impl("embedding_bag", _fake, "Meta")
    for device in ("CPU", "CUDA"):
        ops.impl("embedding_bag", _run, device)
    return ops


_library = _define()
OP = getattr(torch.ops, regions.NAMESPACE).embedding_bag.default
