"""What others' modules and classes have, replaced for a while or from now on."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_OURS = "_cermet"  # a mark on what stands there for good
# What holds the backend that a program named: of Dynamo's, torch.compile's, functools.partial's and DDP's.
_WITHIN = "_torchdynamo_orig_backend", "compiler_fn", "func", "backend_compile_fn", "__self__"
_DEEPEST = 8
_TABLE, _ENTRY = "tp_methods", "handler"  # by which Dynamo's variables, since torch 2.14, find their methods
_handed_over: list[Callable[[Any], bool]] = []


@contextlib.contextmanager
def replacing(owner: Any, stand_ins: Mapping[str, Any]) -> Iterator[None]:
    """Puts these in the places of what an owner has by their names, if it has: versions of it differ. Every thread sees
    them; the caller holds whatever lock others take who must not."""
    before = {name: getattr(owner, name) for name in stand_ins if hasattr(owner, name)}
    try:
        for name in before:
            _put(owner, name, stand_ins[name])
        yield
    finally:
        for name, theirs in before.items():
            _put(owner, name, theirs)


def _put(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, types.ModuleType):  # one of settings lets nothing else be set
        vars(owner)[name] = value
    else:
        setattr(owner, name, value)


def replace(owner: Any, name: str, stand_in: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """From now on, what `stand_in` makes of what an owner has by a name, if it has: versions of it differ. Once,
    however often it is asked for."""
    theirs = getattr(owner, name, None)
    if theirs is not None and not hasattr(theirs, _OURS):
        ours = functools.wraps(theirs)(stand_in(theirs))
        setattr(ours, _OURS, True)
        setattr(owner, name, ours)
        for entry in getattr(owner, _TABLE, {}).values():
            if getattr(entry, _ENTRY, None) is theirs:
                setattr(entry, _ENTRY, ours)


def traces_for_us(translator: Any) -> bool:
    """Whether one of Dynamo's `InstructionTranslator`s traces what Cermet compiles: what stands in Dynamo is there for
    every backend."""
    compiler = translator.output.compiler_fn
    for _ in range(_DEEPEST):
        compiler = next((within for name in _WITHIN if (within := getattr(compiler, name, None)) is not None), compiler)
    is_ours = str(getattr(compiler, "__module__", None)).partition(".")[0] == __package__
    return is_ours or any(is_handed_over(compiler) for is_handed_over in _handed_over)


def traces_for_us_too(is_handed_over: Callable[[Any], bool]) -> None:
    """From now on, also where this is true of the backend that a program named."""
    _handed_over.append(is_handed_over)
