"""Logits that exist only if somebody looks: a tensor that remembers the hidden state and the weight it is the product of.

It stands where the graph would have returned logits that its loss does not need whole. Shape, dtype, device and place
in autograd's graph are there at once. The first call that reads an element multiplies, and from then on it is an
ordinary tensor's double: every call goes to that. A copy to another type, a `detach` and a `clone` wait as well, so that
who only passes outputs on makes nothing. Autograd stands above all of it and sees one tensor (edges.py).

The weight must still be what it was. Read behind an optimizer's step, or where the weight's memory was given back, the
logits that were not made raise and name the option that keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._guards
from torch.utils._pytree import tree_map_only

from .. import locks
from ..errors import Error
from ..targets import devices
from . import terms

_aten = torch.ops.aten
_SAME = (_aten.detach.default, _aten.alias.default, _aten.clone.default)  # and of the operand's metadata
_CAST = _aten._to_copy.default
_KEEP = 'or compile with options={"logits": "keep"}, which makes them in the forward pass'


class _Value:
    """What a tensor will be: made once, by whichever thread comes first."""

    def __init__(self, make: Callable[[], torch.Tensor]) -> None:
        self._make: Callable[[], torch.Tensor] | None = make
        self._lock = locks.lock()
        self._made: torch.Tensor | None = None

    @property
    def known(self) -> bool:
        return self._made is not None

    def get(self) -> torch.Tensor:
        with self._lock:
            if self._made is None:
                self._made = self._make()
                self._make = None  # with all that it holds
        return self._made


class _Remembered:
    """What logits are made of, as it was when this was created."""

    def __init__(self, operands: Sequence[tuple[str, torch.Tensor]]) -> None:
        self._names = [name for name, _ in operands]
        # Without a history, and it counts its source's changes.
        self.operands = [tensor.detach() if tensor.grad_fn is not None else tensor for _, tensor in operands]
        self._versions = [operand._version for operand in self.operands]

    def check(self) -> None:
        """Raises Error where it is no more what it was."""
        for name, operand, version in zip(self._names, self.operands, self._versions):
            if operand._version != version:
                raise Error(
                    f"these logits are made when they are read, and the {name} that they are made of has been written "
                    f"since the forward pass; expected it unchanged: read them before that (the optimizer's step), {_KEEP}"
                )
            if operand.untyped_storage().nbytes() < operand.numel() * operand.element_size():
                raise Error(
                    f"these logits are made when they are read, and the memory of the {name} that they are made of has "
                    f"been given back; expected it there: read them inside of the model's forward pass, {_KEEP}"
                )


class _Product:
    """`tail(linear(hidden, weight, bias) + terms)` as it was when this was created."""

    def __init__(
        self,
        tail: Callable[[torch.Tensor], torch.Tensor] | None,
        factors: Sequence[float],
        *operands: torch.Tensor | None,
    ) -> None:
        self._tail, self._factors = tail, factors
        named = zip(("hidden state", "weight", "bias", *("hidden state", "weight") * len(factors)), operands)
        self._has_bias = operands[2] is not None
        self._of = _Remembered([(name, operand.detach()) for name, operand in named if operand is not None])

    def __call__(self) -> torch.Tensor:
        self._of.check()
        hidden, weight, *others = self._of.operands
        with torch.no_grad(), torch.autocast(hidden.device.type, enabled=False):
            logits = terms.linear(self._factors, hidden, weight, *([] if self._has_bias else [None]), *others)
            return logits if self._tail is None else self._tail(logits)


class Logits(torch.Tensor):
    """The tensor. As an input of a compiled graph, and to whoever asks for its memory, it is made."""

    _value: _Value

    @staticmethod
    def __new__(cls, value: _Value, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Logits:
        made = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=device)
        torch._C._set_throw_on_mutable_data_ptr(made)  # rather than give out a pointer to nothing
        made._value = value
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        waiting = _waiting(func, args, kwargs)
        if waiting is not None:
            return waiting
        if torch.Tag.inplace_view in func.tags:
            raise Error(f"{func} changes the shape of logits in place, expected a call that returns a view; {_KEEP}")
        result = func(*_made(args), **_made(kwargs))
        written = _written(func, args, kwargs)
        return result if written is None else written

    # What asks for memory in ways that no dispatcher sees.

    def _plain(self) -> torch.Tensor:
        """An ordinary tensor of this memory, with this one's place in autograd's graph."""
        return self.view(self.shape)

    def data_ptr(self) -> int:
        return self._value.get().data_ptr()

    def untyped_storage(self) -> torch.UntypedStorage:
        if torch._guards.TracingContext.try_get() is not None:  # a tensor and what it holds are told apart by that
            return super().untyped_storage()
        return self._value.get().untyped_storage()

    def _typed_storage(self) -> Any:
        return self._value.get()._typed_storage()

    def storage(self) -> Any:
        return self._value.get().storage()

    def share_memory_(self) -> Logits:
        self._value.get().share_memory_()
        return self

    def numpy(self, *, force: bool = False) -> Any:
        return self._plain().numpy(force=force)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self._plain().__array__(*args, **kwargs)

    def tolist(self) -> Any:
        return self._plain().tolist()

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self._plain().__dlpack__(**kwargs)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self._plain().__cuda_array_interface__

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._plain().__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        return self._plain().__deepcopy__(memo)

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        return self._plain().__repr__(tensor_contents=tensor_contents)

    def __format__(self, spec: str) -> str:
        return self._plain().__format__(spec)

    # As Dynamo and AOTAutograd take tensors apart that enter a graph.

    @property
    def _elements(self) -> torch.Tensor:
        return self._value.get()

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["_elements"], None

    def _stable_hash_for_caching(self) -> str:
        return __name__

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], meta: None, size: Any, stride: Any) -> Logits:
        elements = inner["_elements"]
        return Logits(_Value(lambda: elements), size, elements.dtype, elements.device)


def _waiting(func: Any, args: Any, kwargs: dict[str, Any]) -> Logits | None:
    """What a call makes of logits that are not there, where it may wait with them."""
    source = args[0] if args else None
    if not isinstance(source, Logits) or source._value.known or len(args) > 1:
        return None
    if func is _CAST:
        others = {name: value for name, value in kwargs.items() if name != "dtype" and value is not None}
        if others.pop("device", source.device) != source.device or any(others.values()):
            return None
        dtype = kwargs.get("dtype") or source.dtype
    elif func in _SAME and not any(value is not None for value in kwargs.values()):
        dtype = source.dtype
    else:
        return None
    before = source._value

    def make() -> torch.Tensor:
        with torch.no_grad():
            return func(before.get(), **kwargs)

    return Logits(_Value(make), source.shape, dtype, source.device)


def _made(values: Any) -> Any:
    return tree_map_only(Logits, lambda logits: logits._value.get(), values)


def _written(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """The argument that a call writes and returns."""
    returns = func._schema.returns
    if len(returns) != 1 or returns[0].alias_info is None or not returns[0].alias_info.is_write:
        return None
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            return args[place] if place < len(args) else kwargs.get(argument.name)
    return None


def product(
    tail: Callable[[torch.Tensor], torch.Tensor] | None,
    factors: Sequence[float],
    operands: Sequence[torch.Tensor | None],
    dtype: torch.dtype,
) -> torch.Tensor:
    """`tail(linear(hidden, weight, bias) + terms)` [..., rows of the weight] of `dtype`, made when it is read. While a
    CUDA graph is captured it is made at once: a replay changes the hidden state and tells nobody."""
    hidden, weight, *_ = operands
    make = _Product(tail, factors, *operands)
    if devices.recorded(hidden.device):
        return make()
    shape = (*hidden.shape[:-1], weight.shape[0])
    return Logits(_Value(make), shape, dtype, hidden.device)


def recalled(
    make: Callable[[], torch.Tensor],
    arguments: Sequence[Any],
    shape: Sequence[int],
    dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor:
    """What `make` makes of a graph's arguments when it is read."""
    tensors = [("input or parameter", each) for each in arguments if isinstance(each, torch.Tensor)]
    of = _Remembered(tensors)

    def checked() -> torch.Tensor:
        of.check()
        with torch.no_grad():
            return make()

    return Logits(_Value(checked), shape, dtype, device)


def made(result: torch.Tensor) -> torch.Tensor:
    """An ordinary tensor, without a history."""
    return result._value.get() if isinstance(result, Logits) else result.detach()
