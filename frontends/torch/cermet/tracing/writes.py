"""What a trace wrote so far into objects that were there before it.

Dynamo keeps such writes until the graph has run. A guard says what an object held before them, so who is told of a
module by its guards must know that nobody wrote in between what the module reads.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch._dynamo.side_effects import SideEffects
from torch._dynamo.variables.base import AttributeMutationExisting, ValueMutationExisting
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.dicts import ConstDictVariable
from torch._dynamo.variables.lazy import LazyVariableTracker
from torch._dynamo.variables.lists import ListVariable
from torch._dynamo.variables.tensor import TensorVariable

from ..patching import replace

# Of Dynamo, 2.10 to 2.15: what reads an attribute that was written, and what writes.
_READS = "load_attr", "has_pending_mutation_of_attr"
_WRITES = "store_attr", "mutation"
_READ, _WROTE, _FOUND = "cermet_read", "cermet_wrote", "cermet_found"  # on what Dynamo knows of the writes
_HOLDS_WRITTEN = "is_underlying_vt_modified", "is_base_vt_modified"  # of an object that is a dict or a list, too
_EXISTING = AttributeMutationExisting, ValueMutationExisting


class Unknown(Exception):
    """Something was written that can be written to again without a trace of it."""


class Same:
    """Equals what is the same object, and keeps it."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self._value is other._value


def counted() -> None:
    """From now on reads and writes are."""
    for names, counter in ((_READS, _READ), (_WRITES, _WROTE)):
        for name in names:
            replace(SideEffects, name, functools.partial(_counting, counter))


def _counting(counter: str, theirs: Callable[..., Any]) -> Callable[..., Any]:
    def counting(self: Any, item: Any, *rest: Any, **named: Any) -> Any:
        found = theirs(self, item, *rest, **named)
        if found is not False and isinstance(item.mutation_type, _EXISTING):
            vars(self)[counter] = vars(self).get(counter, 0) + 1
        return found

    return counting


def reads_of(effects: SideEffects) -> int:
    """How often a trace read again what it had written into an attribute of what was there."""
    return int(vars(effects).get(_READ, 0))


def written(effects: SideEffects) -> list[Any]:
    """All of it; two are equal if nothing was written in between. Raises Unknown where that cannot be told."""
    wrote, kept = vars(effects).get(_WROTE, 0), vars(effects).get(_FOUND)
    if kept is None or kept[0] != wrote:
        kept = vars(effects)[_FOUND] = wrote, _all(effects)
    if kept[1] is None:
        raise Unknown
    return kept[1]


def _all(effects: SideEffects) -> list[Any] | None:
    found: list[Any] = []
    for variable in list(effects.id_to_variable.values()):
        if isinstance(variable.mutation_type, _EXISTING) and effects.is_modified(variable):
            parts = _parts(effects, variable)
            if parts is None:
                return None
            found += parts
    return found


def _parts(effects: SideEffects, variable: Any) -> list[Any] | None:
    if any(getattr(variable, name)(effects) for name in _HOLDS_WRITTEN if hasattr(variable, name)):
        return None
    if stored := effects.store_attr_mutations.get(variable):  # whatever it is: who reads it is counted
        return [(Same(variable), name, Same(value)) for name, value in stored.items()]
    if type(variable) not in (ConstDictVariable, ListVariable):
        return None
    held = variable.items
    keys, values = (held.keys(), held.values()) if isinstance(held, dict) else ((), held)
    if not all(map(_cannot_be_written, values)):
        return None
    return [(Same(variable), [*map(Same, keys)], [*map(Same, values)])]


def _cannot_be_written(value: Any) -> bool:
    """Or Dynamo keeps what is written into it: what is lazy was there before the trace."""
    return isinstance(value, LazyVariableTracker) or isinstance(value, (ConstantVariable, TensorVariable))
