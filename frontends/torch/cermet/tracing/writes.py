"""What a trace wrote so far into objects that were there before it.

Dynamo keeps such writes until the graph has run. A guard says what an object held before them, so who is told of a
module by its guards must know that nobody wrote in between what the module reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch._dynamo.side_effects import SideEffects
from torch._dynamo.variables.base import AttributeMutationExisting, ValueMutationExisting
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.dicts import ConstDictVariable
from torch._dynamo.variables.lazy import LazyVariableTracker
from torch._dynamo.variables.lists import ListVariable
from torch._dynamo.variables.tensor import TensorVariable

from ..patching import replace

_READS = "load_attr", "has_pending_mutation_of_attr"  # of Dynamo, 2.10 to 2.15
_COUNT = "cermet_reads"  # on what Dynamo knows of the writes


class Unknown(Exception):
    """Something was written that can be written to again without a trace of it."""


class Same:
    """Equals what is the same object, and keeps it."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self._value is other._value


def counted() -> None:
    """From now on `reads` counts."""
    for name in _READS:
        replace(SideEffects, name, _reading)


def _reading(theirs: Callable[..., Any]) -> Callable[..., Any]:
    def reads(self: Any, item: Any, *rest: Any, **named: Any) -> Any:
        found = theirs(self, item, *rest, **named)
        if found is not False and isinstance(item.mutation_type, AttributeMutationExisting):
            vars(self)[_COUNT] = reads_of(self) + 1
        return found

    return reads


def reads_of(effects: SideEffects) -> int:
    """How often a trace read again what it had written into an attribute of what was there."""
    return int(vars(effects).get(_COUNT, 0))


def written(effects: SideEffects) -> list[Any]:
    """All of it; two are equal if nothing was written in between. Raises Unknown where that cannot be told."""
    return [part for variable in list(effects.id_to_variable.values()) if _is_written(effects, variable)
            for part in _parts(effects, variable)]


def _is_written(effects: SideEffects, variable: Any) -> bool:
    kind = variable.mutation_type
    return isinstance(kind, (AttributeMutationExisting, ValueMutationExisting)) and effects.is_modified(variable)


def _parts(effects: SideEffects, variable: Any) -> Iterator[Any]:
    if stored := effects.store_attr_mutations.get(variable):
        for name, value in stored.items():  # whatever it is: who reads it is counted
            yield Same(variable), name, Same(value)
        return
    if type(variable) not in (ConstDictVariable, ListVariable):
        raise Unknown
    held = variable.items
    keys, values = (held.keys(), held.values()) if isinstance(held, dict) else ((), held)
    if not all(map(_cannot_be_written, values)):
        raise Unknown
    yield Same(variable), [*map(Same, keys)], [*map(Same, values)]


def _cannot_be_written(value: Any) -> bool:
    """Or Dynamo keeps what is written into it: what is lazy was there before the trace."""
    return isinstance(value, LazyVariableTracker) or isinstance(value, (ConstantVariable, TensorVariable))
