"""Whether what a trace read of one module stands in another one as well, by the guards that Dynamo set."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.source import AttrSource, NNModuleSource
from torch._guards import Guard, Source

from .sources import Moved, Values

_ALIAS, _OTHER = "DUPLICATE_INPUT", "source_b"  # a guard that two sources have one object
_HAS, _TENSOR = "HASATTR", "TENSOR_MATCH"
_VALUE = "value"  # what a guard was set for
_CONSTANTS = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, slice, range)


def form(tensor: torch.Tensor) -> tuple[Any, ...]:
    """All that a trace can ask of a tensor but its numbers and whose memory it has."""
    numbers = [*tensor.shape]
    if tensor.layout is torch.strided:
        numbers += [*tensor.stride(), tensor.storage_offset()]
    sizes = tuple(number.node.expr if isinstance(number, torch.SymInt) else number for number in numbers)
    kind = type(tensor), tensor.dtype, tensor.device, tensor.layout, tensor.dim(), tensor.is_conj(), tensor.is_neg()
    return *kind, sizes, tensor.requires_grad, tensor.is_leaf, tensor.is_leaf and tensor.grad is None


def _are_tensors(one: Any, other: Any) -> bool:
    return isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) and form(one) == form(other)


def _are_constants(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if type(one) is type(other) and isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_are_constants, one, other))
    # 0.0 is not -0.0, nor 1 True; nan is nan
    return type(one) is type(other) and isinstance(one, _CONSTANTS) and repr(one) == repr(other)


def _are_as_long(one: Any, other: Any) -> bool:
    return one is other or type(one) is type(other) and len(one) == len(other)


def _have_keys(one: Any, other: Any) -> bool:
    return _are_as_long(one, other) and all(map(_are_constants, one, other))  # in their order


def _are_of_one_type(one: Any, other: Any) -> bool:
    return type(one) is type(other)


def _are_one(one: Any, other: Any) -> bool:
    return one is other


def _are_there(one: Any, other: Any) -> bool:
    return (one is None) == (other is None)


# By the kinds of Dynamo's guards, 2.10 to 2.15: when one that holds of the one value holds of the other.
_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "TYPE_MATCH": _are_of_one_type,
    **dict.fromkeys(("ID_MATCH", "CLASS_MATCH", "FUNCTION_MATCH"), _are_one),
    **dict.fromkeys(("CLOSURE_MATCH", "BUILTIN_MATCH", "MODULE_MATCH"), _are_one),
    **dict.fromkeys(("CONSTANT_MATCH", "EQUALS_MATCH", "BOOL_MATCH", "NONE_MATCH"), _are_constants),
    **dict.fromkeys(("SEQUENCE_LENGTH", "EMPTY_NN_MODULE_HOOKS_DICT"), _are_as_long),
    **dict.fromkeys(("DICT_KEYS_MATCH", "MAPPING_KEYS_CHECK"), _have_keys),
    _TENSOR: _are_tensors,
    "NOT_NONE_MATCH": _are_there,
}
# Likewise, of what the guard is given besides.
_HOLDS_GIVEN: dict[str, Callable[[Any, dict[str, Any]], bool]] = {
    _HAS: lambda value, given: hasattr(value, given["attr"]),
    "NOT_PRESENT_IN_GENERIC_DICT": lambda value, given: given["attr"] in vars(value),
    **dict.fromkeys(
        ("DICT_CONTAINS", "DICT_NOT_CONTAINS", "SET_CONTAINS", "SET_NOT_CONTAINS"),
        lambda value, given: given["key"] in value,
    ),
}


@dataclasses.dataclass(frozen=True)
class Guards:
    """What the trace of a module's call guards of the module."""

    guards: list[Guard]
    in_order: list[Source]  # dicts whose keys are guarded in their order

    @staticmethod
    def of(translator: Any, module: Source) -> Guards:
        output, apart = translator.output, Moved(module, module)
        guards = [guard for guard in output.guards if apart.begins(guard.originating_source)]
        return Guards(guards, [source for source in output.guard_on_key_order if apart.begins(source)])

    def hold(self, moved: Moved, values: Values) -> bool:
        """Whether the other module has alike all that is guarded."""
        return all(_holds(guard, moved, values) for guard in self.guards)

    @property
    def tensors(self) -> list[Source]:
        """Of those that are inputs of the graph, in their order."""
        return [guard.originating_source for guard in self.guards if guard.create_fn_name() == _TENSOR]

    def install(self, moved: Moved, translator: Any) -> None:
        """The same ones, of the other module."""
        output = translator.output
        for guard in self.guards:
            create, given = guard.create_fn, _given(guard)
            if guard.create_fn_name() == _TENSOR:
                continue  # of an input, which has its own
            if moved(guard.originating_source) == guard.originating_source:
                continue  # one module's call again
            if _OTHER in given:
                create = functools.partial(create.func, **given | {_OTHER: moved(given[_OTHER])})
            elif _VALUE in given:
                create = create.func
            made = Guard(moved(guard.originating_source), create, user_stack=guard.user_stack)
            output.guards.add(made, collect_debug_stack=False)
        output.guard_on_key_order.update(map(moved, self.in_order))


def _holds(guard: Guard, moved: Moved, values: Values) -> bool:
    kind, given, source = guard.create_fn_name(), _given(guard), guard.originating_source
    if kind == _ALIAS:
        return values(moved(source)) is values(moved(given[_OTHER]))
    if kind == _HAS and not given:  # of torch before 2.13, whose guard is of the attribute
        source = source.base if isinstance(source, NNModuleSource) else source
        if not isinstance(source, AttrSource):
            return False
        source, given = source.base, {"attr": source.member}
    one, other = values(source), values(moved(source))
    if kind in _HOLDS_GIVEN:
        return _HOLDS_GIVEN[kind](one, given) == _HOLDS_GIVEN[kind](other, given)
    return kind in _HOLDS and _HOLDS[kind](one, other)


def _given(guard: Guard) -> dict[str, Any]:
    return guard.create_fn.keywords if isinstance(guard.create_fn, functools.partial) else {}
