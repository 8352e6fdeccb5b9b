"""Graphs of plain small operations (tests/graphs), and which of their inputs a gradient is derived of."""
from __future__ import annotations

import re
from pathlib import Path
from typing import Sequence

GRAPHS = sorted((Path(__file__).resolve().parents[1] / "graphs").glob("*.mlir"))
FLOATS = ("f32", "bf16", "f16")


def wanted(text: str, inputs: Sequence[dict]) -> list[bool]:
    """Whether of each of a plan's inputs: of those that the graph's first line names, or of every float."""
    named = re.search(r"of its gradient: \d+ \(([^)]*)\)", text.splitlines()[0])
    return [value["name"] in named[1].split() if named else value["dtype"] in FLOATS for value in inputs]


def sizes(inputs: Sequence[dict], size: int) -> list[list[int]]:
    """Of each of a plan's inputs, where every symbol is `size`."""
    return [[size if isinstance(dim, str) else dim for dim in value["dims"]] for value in inputs]
