"""Bytes that a traced graph moves. A view, or a cast to the type that is already there, moves none; a repeated
dimension is read once; a symbolic size counts with the size that it was traced with."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
import torch.fx as fx

from .memory import HIDDEN, memories
from .nodes import example, tensor_nodes


def hint(size: Any) -> int:
    """A size as it was when traced, without a guard; 1 where nothing is known."""
    if isinstance(size, int):
        return size
    value = getattr(size.node, "hint", None)
    return int(value) if value is not None else 1


def counted(size: int) -> int:
    """What a symbolic size counts as where something is decided by it: the power of two that is not above it. So a
    graph's first call decides nothing that the next would decide otherwise, and few calls stand for all."""
    return 1 << (size.bit_length() - 1) if size > 0 else size


def describe(tensor: torch.Tensor) -> str:
    """`bf16[8, 2048, 4096]`; a symbolic size by its name."""
    name = str(tensor.dtype).removeprefix("torch.")
    for long, short in (("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i"), ("complex", "c")):
        if name.startswith(long):
            name = short + name.removeprefix(long)
            break
    sizes = (str(size) if isinstance(size, int) else str(size.node.expr) for size in tensor.shape)
    return f"{name}[{', '.join(sizes)}]"


def size_of(tensor: torch.Tensor) -> int:
    """Bytes of what a tensor refers to, each once."""
    sizes = (
        hint(size)
        for size, stride in zip(tensor.shape, tensor.stride())
        if not (isinstance(stride, int) and stride == 0)
    )
    return math.prod(sizes) * tensor.element_size()


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)


def moved_by(node: fx.Node) -> int:
    """Bytes that one operation of a graph reads and writes when it runs alone."""
    sources = dict.fromkeys(tensor_nodes((node.args, node.kwargs)))
    read = [tensor for source in sources for tensor in _tensors(example(source))]
    memory = memories(read) - {HIDDEN}
    written = [tensor for tensor in _tensors(example(node)) if memory.isdisjoint(memories(tensor))]
    return sum(map(size_of, [*read, *written])) if written else 0
