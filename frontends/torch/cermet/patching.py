"""What others' modules and classes have, replaced for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any


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
