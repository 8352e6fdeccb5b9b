"""From where Dynamo has a value, told of another module: `layers[5].mlp.weight` for `layers[1].mlp.weight`."""

from __future__ import annotations

import dataclasses
import functools
import types
from typing import Any

from torch._dynamo.source import AttrSource, ConstDictKeySource, DictGetItemSource, GetItemSource, NNModuleSource
from torch._guards import ChainedSource, Source

_BASE = "base"  # what a source's text calls the value of the one that it continues


def without_kind(source: Source | None) -> Source | None:
    """A module's, without what Dynamo says of the module's kind."""
    while isinstance(source, NNModuleSource):
        source = source.base
    return source


def list_of(source: Source | None) -> Source | None:
    """That of the list which holds a module by its number; None of other modules."""
    if isinstance(source, (DictGetItemSource, GetItemSource)):
        number = source.index.index if isinstance(source.index, ConstDictKeySource) else source.index
    elif isinstance(source, AttrSource):
        number = source.member
    else:
        return None
    return without_kind(source.base) if str(number).isdigit() else None


class Moved:
    """The sources that begin with one module's, as they begin with another's."""

    def __init__(self, old: Source, new: Source) -> None:
        self._old = old
        self._found: dict[Source, Source] = {old: new}

    def begins(self, source: Source) -> bool:
        """Whether it begins with the old one."""
        while source != self._old and isinstance(source, ChainedSource):
            source = source.base
        return source == self._old

    def __call__(self, source: Source) -> Source:
        """The source itself where it does not begin with the old one."""
        found = self._found.get(source)
        if found is None:
            found = self._found[source] = self._moved(source)
        return found

    def _moved(self, source: Source) -> Source:
        changed = {}
        for field in dataclasses.fields(source) if isinstance(source, ChainedSource) else ():
            value = getattr(source, field.name)
            if isinstance(value, Source) and (moved := self(value)) is not value:
                changed[field.name] = moved
        return dataclasses.replace(source, **changed) if changed else source


class Values:
    """What stands where sources say, as it was before the traced function ran."""

    def __init__(self, tx: Any) -> None:
        root = tx.output.root_tx
        self._scope = {"G": root.f_globals, "L": root.f_locals}
        self._found: dict[Source, Any] = {}

    def __call__(self, source: Source) -> Any:
        if source not in self._found:
            self._found[source] = self._value(source)
        return self._found[source]

    def _value(self, source: Source) -> Any:
        if not isinstance(source, ChainedSource) or type(source).get_value is not ChainedSource.get_value:
            return source.get_value(self._scope, {}, self._found)
        # The same, for which torch compiles the text each time.
        return eval(_compiled(source._name_template), self._scope, {_BASE: self(source.base)})


@functools.cache
def _compiled(template: str) -> types.CodeType:
    return compile(template.format(_BASE), "<source>", "eval")
