"""What a process knows of regions, by their keys."""

from __future__ import annotations

import ctypes
from typing import Any

from .. import locks
from ..errors import Error
from ..graph.layouts import Order
from . import library
from .signatures import Gradient, Signature

Places = tuple[int | None, ...]  # for each result, the operand whose memory it takes


class Registry:
    """Texts by key, and what was derived from them. A key's meaning never changes, so nothing is ever dropped."""

    def __init__(self) -> None:
        self.lock = locks.recursive_lock()
        self.texts: dict[int, str] = {}
        self.orders: dict[int, tuple[Order, ...]] = {}  # of the keys whose results are not all row-major
        self.places: dict[int, Places] = {}  # of the keys of which a result takes an operand's memory
        self.plans: dict[tuple[str, str], tuple[ctypes.c_void_p, dict[str, Any]]] = {}  # by text and target
        self.signatures: dict[int, Signature] = {}
        self.gradients: dict[tuple[int, tuple[bool, ...], tuple[Order, ...]], Gradient] = {}
        self.loaded: dict[tuple[str, int], ctypes.c_void_p] = {}  # by text and device
        self.executables: dict[tuple[int, int], ctypes.c_void_p] = {}
        self.stored: set[tuple[int, str]] = set()  # keys and targets whose kernels are there for a pack

    def text(self, key: int) -> str:
        with self.lock:
            if key not in self.texts:
                raise Error(
                    f"no region with key {key} is registered in this process: the graph that uses it was compiled by "
                    "another version of cermet or outside of its backend; clear torch's compile caches"
                )
            return self.texts[key]

    def orders_of(self, key: int, outputs: int) -> tuple[Order, ...]:
        with self.lock:
            return self.orders.get(key, (None,) * outputs)

    def plan(self, key: int, target: str) -> tuple[ctypes.c_void_p, dict[str, Any]]:
        """Made where it is not known."""
        text = self.text(key)
        with self.lock:
            found = self.plans.get((text, target))
        if found is None:
            found = library.context().compile(text, target)
            with self.lock:
                found = self.plans.setdefault((text, target), found)
        return found
