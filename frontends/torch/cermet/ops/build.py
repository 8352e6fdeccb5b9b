"""What names this build of Cermet in the keys of every cache that is not libcermet's own."""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
from collections.abc import Iterator
from typing import TYPE_CHECKING

from . import library

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


@functools.cache
def build() -> str:
    """The libraries' version and build id, and a hash of all Python sources."""
    return f"{library.version()} {fingerprint(importlib.resources.files('cermet'))}"


def fingerprint(package: Traversable) -> str:
    """A hash of every Python source of a package, by its place in it."""
    texts = sorted(_sources(package, ""))
    return hashlib.sha256(repr(texts).encode()).hexdigest()[:16]


def _sources(folder: Traversable, at: str) -> Iterator[tuple[str, bytes]]:
    for path in folder.iterdir():
        place = f"{at}/{path.name}"
        if path.name.endswith(".py"):
            yield place, path.read_bytes()
        elif path.is_dir():
            yield from _sources(path, place)
