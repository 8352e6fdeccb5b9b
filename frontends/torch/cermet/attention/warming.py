"""Attentions called ahead, by another thread, while a graph with such ones is compiled.

Where torch takes cuDNN's attention, the first call in a process loads cuDNN's compiler and compiles a kernel, and so
does the first gradient: 1.4 to 2.3 seconds on an H200, in which the step would do nothing else. A call ahead has the
shapes and strides of the graph's example values; nothing reads what it gives.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Iterable
from typing import Any

import torch
import torch.fx as fx
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensor

from .. import locks
from ..graph.decision import Declined
from ..graph.nodes import example
from ..graph.traffic import hint
from ..targets import devices
from . import calls

_log = logging.getLogger("cermet")
_DEVICES = ("cuda",)  # whose libraries compile in a first call
_BYTES = 1 << 30  # of one operand at most: it is there beside what the program has
_FEW = 8  # forms of one graph at most
_SETTINGS = ("is_causal", "scale", "enable_gqa")

_lock = locks.lock()
_known: set[Form] = set()  # that this process has called, or need not call


@dataclasses.dataclass(frozen=True)
class Tensor:
    """How an operand or a mask lies in memory."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    differentiated: bool = False

    def made(self, device: torch.device) -> torch.Tensor:
        """Of zeros, or of truths."""
        memory = torch.full((self.elements,), self.dtype == torch.bool, dtype=self.dtype, device=device)
        return memory.as_strided(self.shape, self.strides).requires_grad_(self.differentiated)

    @property
    def elements(self) -> int:
        """Of the memory that it lies in."""
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides))


@dataclasses.dataclass(frozen=True)
class Form:
    """What a call is compiled for."""

    device: torch.device
    operands: tuple[Tensor, ...]
    mask: Tensor | None
    settings: tuple[tuple[str, Any], ...]
    differentiated: bool

    def call(self) -> None:
        operands = [operand.made(self.device) for operand in self.operands]
        mask = None if self.mask is None else self.mask.made(self.device)
        with torch.set_grad_enabled(self.differentiated):
            result = F.scaled_dot_product_attention(*operands, mask, **dict(self.settings))
        if self.differentiated:
            leaves = [operand for operand in operands if operand.requires_grad]
            torch.autograd.grad(result, leaves, torch.zeros_like(result))


class WarmUp:
    """Calls of those forms of attention in some graphs that this process has not called."""

    def __init__(self, modules: Iterable[fx.GraphModule]) -> None:
        nodes = [node for module in modules for node in calls.attentions(module)]
        forms = {form: node for node in reversed(nodes) if (form := _form(node)) is not None}
        with _lock:
            new = [form for form in forms if form not in _known and not devices.recorded(form.device)][:_FEW]
            _known.update(new)
        new = [form for form in new if _has_kernel(forms[form])]
        self._thread: threading.Thread | None = None
        if new:
            self._thread = threading.Thread(target=_call, args=(new,), name="cermet-attention")
            self._thread.start()

    def wait(self) -> None:
        """Returns when all are done, or have failed."""
        if self._thread is not None:
            self._thread.join()


def _call(forms: Iterable[Form]) -> None:
    for form in forms:
        try:
            form.call()
        except Exception as error:  # the graph's own call says it to whom it concerns
            _log.info("an attention was not called ahead: %s", error)


def _has_kernel(node: fx.Node) -> bool:
    """Or it is products and a softmax, which hold all scores and are compiled for nothing."""
    try:
        _, kernel = calls.traced(node, calls.arguments(node))
    except Declined:
        return False
    return kernel is not None


def _form(node: fx.Node) -> Form | None:
    """None where a call is on no such device, draws numbers, or cannot be made."""
    result, given = example(node), calls.arguments(node)
    if not isinstance(result, torch.Tensor) or result.device.type not in _DEVICES or given.get("dropout_p"):
        return None
    operands = tuple(_tensor(given.get(name), result.dtype) for name in ("query", "key", "value"))
    mask = given.get("attn_mask")
    masked = None if mask is None else _tensor(mask, result.dtype)
    settings = tuple((name, given[name]) for name in _SETTINGS if name in given)
    unknown = any(isinstance(value, (fx.Node, torch.SymFloat)) for _, value in settings)
    if unknown or None in operands or (mask is not None and masked is None):
        return None
    if masked is not None:  # a gradient of a mask has kernels of its own
        masked = dataclasses.replace(masked, differentiated=False)
    return Form(devices.indexed(result.device), operands, masked, settings, _differentiated(result, operands))


def _differentiated(result: torch.Tensor, operands: Iterable[Tensor]) -> bool:
    return result.requires_grad and any(operand.differentiated for operand in operands)


def _tensor(node: Any, dtype: torch.dtype) -> Tensor | None:
    """As an example value's hints say, in the type that autocast gives it."""
    value = example(node) if isinstance(node, fx.Node) else None
    if not isinstance(value, FakeTensor):  # of a tensor that has parts elsewhere nobody knows its own
        return None
    sizes = [*value.shape, *value.stride()]
    if not all(isinstance(size, int) or size.node.has_hint() for size in sizes):
        return None
    dtype = torch.bool if value.dtype == torch.bool else dtype
    found = Tensor(tuple(map(hint, value.shape)), tuple(map(hint, value.stride())), dtype, value.requires_grad)
    return found if 0 not in found.shape and found.elements * dtype.itemsize <= _BYTES else None
