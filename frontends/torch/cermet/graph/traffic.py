"""Bytes that a traced graph moves. A view, or a cast to the type that is already there, moves none; a repeated
dimension is read once; a symbolic size is the one that it was traced with, or near it where something is decided."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import sympy
import torch
import torch.fx as fx

from .memory import HIDDEN, memories
from .nodes import example, target_name

# What these choose elements or rows by is in a tensor: they read as many numbers as they give, and not all.
_CHOOSE = {"_unsafe_index", "embedding", "gather", "index", "index_select", "take", "take_along_dim"}


def hint(size: Any) -> int:
    """A size as it was when traced, without a guard; 1 where nothing is known."""
    if isinstance(size, int):
        return size
    value = getattr(size.node, "hint", None)
    return int(value) if value is not None else 1


def counted(size: int) -> int:
    """What a symbol counts as where something is decided by it: the power of two that is not above its hint. So graphs
    of many lengths are one text, which a pack may hold (capturing/shapes.py)."""
    return 1 << (size.bit_length() - 1) if size > 0 else size


def longest(size: int) -> int:
    """The most that a symbol may be which counts as its hint does: what decides where memory is bounded."""
    return 2 * counted(size) - 1 if size > 0 else size


def judged(size: Any, count: Callable[[int], int] = counted) -> int:
    """A size by which something is decided: a number is itself, a symbol counts."""
    if isinstance(size, int):
        return size
    expression, environment = size.node.expr, size.node.shape_env
    known = getattr(environment, "backed_var_to_val", None)  # before torch 2.11 by another name
    known = environment.var_to_val if known is None else known
    values = {symbol: count(int(known[symbol])) for symbol in expression.free_symbols if symbol in known}
    try:
        value = expression.xreplace({symbol: sympy.Integer(number) for symbol, number in values.items()})
    except ArithmeticError:  # a size that holds for the hint and not for what the symbol counts as
        return count(hint(size))
    return int(value) if value.is_Integer and value > 0 else count(hint(size))


def describe(tensor: torch.Tensor) -> str:
    """`bf16[8, 2048, 4096]`; a symbolic size by its name."""
    name = str(tensor.dtype).removeprefix("torch.")
    for long, short in (("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i"), ("complex", "c")):
        if name.startswith(long):
            name = short + name.removeprefix(long)
            break
    sizes = (str(size) if isinstance(size, int) else str(size.node.expr) for size in tensor.shape)
    return f"{name}[{', '.join(sizes)}]"


def size_of(tensor: torch.Tensor, number: Callable[[Any], int] = hint) -> int:
    """Bytes of what a tensor refers to, each once; `number`: of a size."""
    sizes = (
        number(size)
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
    read = [tensor for source in node.all_input_nodes for tensor in _tensors(example(source))]
    memory = memories(read) - {HIDDEN}
    written = [tensor for tensor in _tensors(example(node)) if memory.isdisjoint(memories(tensor))]
    if not written:
        return 0
    sizes = list(map(size_of, read))
    if not _CHOOSE.isdisjoint(target_name(node).split(".")):
        given = sum(math.prod(map(hint, tensor.shape)) for tensor in written)
        sizes = [min(size, given * tensor.element_size()) for size, tensor in zip(sizes, read)]
    return sum(sizes) + sum(map(size_of, written))
