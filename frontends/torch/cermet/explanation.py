"""`cermet.explain`: what Cermet would replace in a model, where it came from, and what it nearly matched."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from . import rewriter
from .importer import example
from .rewriter import NearMiss

PATTERNS = ("rms_norm", "add_rms_norm", "glu")


@dataclasses.dataclass(frozen=True)
class Place:
    """One sequence that becomes one fused operation."""

    pattern: str
    source: str  # `file:line: code` of the user's program
    operands: tuple[str, ...]  # `bf16[8, 2048, 4096]`
    bytes_moved: int  # operands read once and results written once; symbolic sizes count with their hints


@dataclasses.dataclass
class Explanation:
    """What `explain` found; `str()` is a table."""

    places: list[Place] = dataclasses.field(default_factory=list)
    near_misses: list[NearMiss] = dataclasses.field(default_factory=list)
    graph_breaks: list[str] = dataclasses.field(default_factory=list)
    graphs: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """Pattern name to number of places. A norm with the addition before it counts as `add_rms_norm` only."""
        counted = collections.Counter(place.pattern for place in self.places)
        return {pattern: counted[pattern] for pattern in sorted({*PATTERNS, *counted}, key=_pattern_order)}

    def __str__(self) -> str:
        counts = ", ".join(f"{number} {pattern}" for pattern, number in self.counts.items())
        lines = [f"{_number(self.graphs, 'graph')}, {_number(len(self.graph_breaks), 'graph break')}: {counts}", ""]
        rows = collections.Counter(self.places)
        table = [("pattern", "places", "operands", "bytes a place", "source")]
        table += [
            (place.pattern, str(times), " ".join(place.operands), f"{place.bytes_moved:,}", place.source)
            for place, times in rows.items()
        ]
        widths = [max(len(row[column]) for row in table) for column in range(4)]
        for row in table:
            lines.append("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths)), row[4]]))
        for title, items in (("near misses", self.near_misses), ("graph breaks", self.graph_breaks)):
            if items:
                lines += ["", f"{title}:", *(f"  {item}" for item in items)]
        return "\n".join(lines)


def _pattern_order(pattern: str) -> tuple[int, str]:
    return (PATTERNS.index(pattern) if pattern in PATTERNS else len(PATTERNS), pattern)


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" + ("" if count == 1 else "s")


def _describe(tensor: torch.Tensor) -> str:
    names = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32", torch.float64: "f64"}
    return f"{names.get(tensor.dtype, tensor.dtype)}[{', '.join(map(str, tensor.shape))}]"


def explain(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Traces `model(*args, **kwargs)` with TorchDynamo and says what Cermet would replace in it.

    The model runs once, eagerly, as traced; its code, parameters and compiled state are left alone, but Dynamo forgets
    what it compiled before (`torch._dynamo.reset()`), as with `torch._dynamo.explain`.

    Args:
        model: a module or function of tensors, not yet compiled.
        args, kwargs: what it is called with; the gradient mode and `model.training` are those of the caller.

    Returns:
        An Explanation: `counts`, `places`, `near_misses`, `graph_breaks`.

    Raises:
        cermet.Error: the compiler refused a graph.
    """
    found = Explanation()

    def capture(module: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        found.graphs += 1
        for part in rewriter.modules(module):
            _record(found, rewriter.decide(part))
        return module.forward

    torch._dynamo.reset()
    breaks = torch._dynamo.utils.counters["graph_break"]
    before = dict(breaks)
    try:
        torch.compile(model, backend=capture)(*args, **kwargs)
        found.graph_breaks = [
            reason for reason, times in breaks.items() for _ in range(times - before.get(reason, 0))
        ]
    finally:
        torch._dynamo.reset()
    return found


def _record(found: Explanation, decision: rewriter.Decision) -> None:
    for region in decision.regions:
        operands = tuple(_describe(example(node)) for node in region.operands)
        found.places.append(Place(region.pattern, region.source, operands, int(region.bytes_moved)))
    found.near_misses += decision.near_misses
