"""What others' modules and classes have, replaced for a while or from now on."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_OURS = "_cermet"  # a mark on what stands there for good


@contextlib.contextmanager
def replacing(owner: Any, stand_ins: Mapping[str, Any]) -> Iterator[None]:
    """Puts these in the places of what an owner has by their names, if it has: versions of it differ. Every thread sees
    them; the caller holds whatever lock others take who must not."""
    before = {name: getattr(owner, name) for name in stand_ins if hasattr(owner, name)}
    try:
        for name in before:
            setattr(owner, name, stand_ins[name])
        yield
    finally:
        for name, theirs in before.items():
            setattr(owner, name, theirs)


def replace(owner: Any, name: str, stand_in: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """From now on, what `stand_in` makes of what an owner has by a name, if it has: versions of it differ. Once,
    however often it is asked for."""
    theirs = getattr(owner, name, None)
    if theirs is not None and not hasattr(theirs, _OURS):
        ours = functools.wraps(theirs)(stand_in(theirs))
        setattr(ours, _OURS, True)
        setattr(owner, name, ours)
