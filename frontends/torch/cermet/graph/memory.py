"""Which memory a traced value lies in: the one answer for everybody who asks whether two share theirs.

A tensor that a transform of torch.func wraps (one that vmap batches, one that grad or jvp tracks) lies where what it
wraps lies, and a wrapper subclass where its parts do. Where torch shows no storage (a sparse tensor), the answer is
HIDDEN: it may be the memory of any other such tensor.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable
from typing import Any

import torch
import torch.fx as fx
from torch._C import _functorch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from . import fakes
from .layouts import written
from .nodes import example

HIDDEN = "hidden"


def memories(value: Any) -> frozenset[Hashable]:
    """What names the memory of a tensor, or of all tensors in a tuple or list; nothing for anything else. Two values
    share memory if their answers have something in common."""
    if isinstance(value, (tuple, list)):
        return frozenset().union(*map(memories, value))
    if not isinstance(value, torch.Tensor):
        return frozenset()
    try:
        if type(value) is FakeTensor:  # wraps none, and nothing wraps it
            return frozenset([value.untyped_storage()._cdata])
        if _functorch.is_functorch_wrapped_tensor(value):
            return memories(_functorch.get_unwrapped(value))
        if is_traceable_wrapper_subclass(value):
            return memories([getattr(value, name) for name in value.__tensor_flatten__()[0]])
        return frozenset([value.untyped_storage()._cdata])
    except Exception:  # torch says in many ways that it shows none
        return frozenset([HIDDEN])


def shared(one: Any, other: Any) -> bool:
    """Whether two values may lie in the same memory."""
    return not memories(one).isdisjoint(memories(other))


def is_view(node: fx.Node) -> bool:
    """Whether a value is one of those that it is made of, in their memory; a number is nobody's memory, too."""
    if node.target is operator.getitem:
        return False
    value = example(node)
    if not isinstance(value, torch.Tensor):
        return False
    read = map(example, node.all_input_nodes)
    return shared(value, [each for each in read if isinstance(each, torch.Tensor)])


def wrapped(value: torch.Tensor) -> str:
    """Why a tensor is none by itself, as the end of a sentence; "" for a plain one."""
    if _functorch.is_batchedtensor(value):
        return "is a tensor that torch.vmap batches, expected a plain one"
    if _functorch.is_functorch_wrapped_tensor(value):
        return "is a tensor that torch.func differentiates, expected a plain one"
    if is_traceable_wrapper_subclass(value):
        return f"is a {type(value).__name__}, expected a plain tensor"
    return ""


def _is_same(base: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether a base is its view as a value of the same type lies."""
    return (
        written(base.storage_offset()) == written(value.storage_offset())
        and [*map(written, base.shape)] == [*map(written, value.shape)]
        and [*map(written, base.stride())] == [*map(written, value.stride())]
    )


class Moved:
    """Fake values in other memory: each in new memory, but for what shares memory with another or with what was given."""

    def __init__(self) -> None:
        self._bases: dict[int, torch.Tensor] = {}

    def given(self, inside: Any, outside: Any) -> None:
        """What lies where `inside` does lies where `outside` does."""
        if isinstance(inside, torch.Tensor) and isinstance(outside, torch.Tensor):
            self._bases[inside.untyped_storage()._cdata] = outside

    def of(self, value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.of, value))
        mode = getattr(value, "fake_mode", None)
        if mode is None or value.layout != torch.strided:
            return value
        base = self._bases.get(value.untyped_storage()._cdata)
        if base is None:
            made = fakes.fresh(value, value.shape, value.stride(), value.dtype)
            self._bases[value.untyped_storage()._cdata] = made
            return made
        if base.dtype != value.dtype:
            with mode, torch.no_grad():
                base = base.view(value.dtype)
        elif _is_same(base, value):
            return base
        return fakes.view(base, value.shape, value.stride(), value.storage_offset() - base.storage_offset())


def leave_out(graph: fx.Graph, is_copy: Callable[[fx.Node], bool]) -> None:
    """Calls behind autograd that give what they are given, in place: each becomes its operand, and views of it views of
    that."""
    moved, places = Moved(), frozenset()
    for node in list(graph.nodes):
        if is_copy(node):
            moved.given(node.meta["val"], node.args[0].meta["val"])
            places |= memories(node.meta["val"])
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        elif not places.isdisjoint(memories(node.meta.get("val"))):
            node.meta["val"] = moved.of(node.meta["val"])
