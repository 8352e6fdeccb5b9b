"""Calls of fake tensors, and fake tensors without numbers whose sizes and strides are known. These are made in a tenth
of the time that a call takes under their mode: the mode asks its cache, or torch's Python, what the result of a call
would be. They ask nothing of a symbolic size: what torch would like to know of one, whether it is 0, would bind the
graph to the answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

from .nodes import example, examples


@contextlib.contextmanager
def calling(mode: FakeTensorMode) -> Iterator[None]:
    """Under which any operation is called as AOTAutograd traces it: one that is composed of others in Python, since
    torch's C++ (a product's of several dimensions) binds a symbolic size to its number."""
    with mode, enable_python_dispatcher():
        yield


def result(node: fx.Node, given: Mapping[fx.Node, torch.Tensor], autocast: bool = False) -> Any:
    """What a call of Dynamo's graph makes of other operands, or of those that it has; with `autocast` under that which
    is on."""
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda each: given.get(each, example(each)))
    call = getattr(torch.Tensor, str(node.target)) if node.op == "call_method" else node.target
    was = examples(node)[0]
    casting = contextlib.nullcontext() if autocast else torch.autocast(was.device.type, enabled=False)
    with calling(was.fake_mode), torch.set_grad_enabled(was.requires_grad), casting:
        return call(*args, **kwargs)


def view(value: FakeTensor, sizes: Sequence[Any], strides: Sequence[Any], behind: Any = 0) -> FakeTensor:
    """A tensor in the memory of `value`, that begins as many elements behind it."""
    with _form(value.fake_mode):
        meta = torch.as_strided(value, sizes, strides, value.storage_offset() + behind)
    return FakeTensor(value.fake_mode, meta, value.fake_device)


def like(value: FakeTensor) -> FakeTensor:
    """A tensor of its own memory with the sizes, the strides and the type of `value`, which wants a gradient where
    that does."""
    return fresh(value, value.shape, value.stride(), value.dtype, value.requires_grad)


def fresh(
    value: FakeTensor, sizes: Sequence[Any], strides: Sequence[Any], dtype: torch.dtype, requires_grad: bool = False
) -> FakeTensor:
    """A tensor of its own memory, where `value` is."""
    with _form(value.fake_mode):
        meta = torch.empty_strided(sizes, strides, dtype=dtype, device="meta")
    return FakeTensor(value.fake_mode, meta.requires_grad_(requires_grad), value.fake_device)


@contextlib.contextmanager
def _form(mode: FakeTensorMode) -> Iterator[None]:
    unasked = contextlib.nullcontext() if mode.shape_env is None else mode.shape_env.suppress_guards()
    with torch.no_grad(), in_kernel_invocation_manager(mode), unasked:
        yield
