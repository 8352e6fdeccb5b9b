"""Copies of turned matrices, as launches: ATen moves their elements one by one, each to another line of memory.

A product of floats of eight bits takes rows of both operands, so what is multiplied along its columns is copied turned:
each weight, and with its gradient each layer's input and cotangent. What a convolution gives, a matrix for each image,
is copied turned before a transformer (aten/laying.py). The copy is a region of one strided operand, whose kernel turns
pieces of it in shared memory (compiler/cuda/device/turned.cuh).
"""

from __future__ import annotations

import functools

import torch
import torch.fx as fx

from ..graph.nodes import example
from ..ops import regions
from ..text import ELEMENT_TYPES, Builder, TensorType
from .launching import SMALLEST

_aten = torch.ops.aten
_DEVICES = frozenset({"cuda"})  # where kernels have shared memory
_RANKS = (2, 3, 4)


def spell(graph: fx.Graph) -> set[int]:
    """Writes launches in the place of clones of turned matrices, in place; returns their keys."""
    keys = set()
    for node in list(graph.nodes):
        if node.target is not _aten.clone.default or not _is_turned(example(node.args[0]), example(node)):
            continue
        value = example(node)
        key = regions.register(_text(ELEMENT_TYPES[value.dtype], value.dim(), value.shape[-1]))
        if regions.not_lowered(key, value.device):
            continue
        keys.add(key)
        with graph.inserting_before(node):
            launch = graph.call_function(regions.launch_op(1, 1), (node.args[0], key))
        launch.meta = dict(node.meta)
        node.replace_all_uses_with(launch)
        graph.erase_node(node)
    return keys


def _is_turned(source: torch.Tensor, copy: torch.Tensor) -> bool:
    """Whether matrices whose columns lie in memory are copied to such whose rows do."""
    if source.dim() not in _RANKS or source.layout is not torch.strided or source.device.type not in _DEVICES:
        return False
    numbers = (*source.shape, *source.stride())
    if not all(isinstance(each, int) for each in numbers) or source.dtype not in ELEMENT_TYPES:
        return False
    is_large = source.numel() * source.element_size() >= SMALLEST
    return is_large and source.stride(-2) == 1 < source.stride(-1) and copy.is_contiguous()


@functools.cache
def _text(element: str, rank: int, columns: int) -> str:
    builder = Builder("turned_copy")
    rows = tuple(f"r{dim}" for dim in range(rank - 1))
    builder.result(builder.argument(TensorType((*rows, columns), element), "x", [*(-1,) * (rank - 2), 1, -1]))
    return builder.text()
