"""`cermet.explain`: what Cermet replaces in a model, where it came from, what it nearly matched and what it left."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from . import apart, leftovers, masks, regions, remainder, rewriter, targets
from .importer import example
from .leftovers import Left
from .logits import Returned
from .options import Options
from .rewriter import NearMiss
from .traffic import describe, hint, moved_by, size_of

COUNTED = (
    "rms_norm", "add_rms_norm", "qk_norm", "rope", "qk_norm_rope", "glu", "cross_entropy", "causal_mask", "cluster",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Place:
    """One sequence that becomes one fused operation. Two places that differ only in where they are compare equal."""

    pattern: str
    source: str  # `file:line: code` of the user's program
    operands: tuple[str, ...]  # `bf16[8, 2048, 4096]`
    results: tuple[str, ...]
    forward: tuple[str, ...]  # names of the kernels
    backward: tuple[str, ...]  # none where nothing wants a gradient
    bytes_before: int  # of the forward: what each replaced operation reads and writes by itself
    bytes_after: int  # of the forward: operands, results and saved values, each once
    saved_bytes: int  # of what the forward writes for the backward alone
    counts: tuple[tuple[str, int], ...]  # sites by name
    texts: tuple[int, ...]  # keys of the graph texts that run: the forward's, then those of the backward
    target: str
    at: str = dataclasses.field(compare=False)  # the FX node of the first result


@dataclasses.dataclass
class Explanation:
    """What `explain` found; `str()` is a table and `html()` a page."""

    places: list[Place] = dataclasses.field(default_factory=list)
    masks: list[str] = dataclasses.field(default_factory=list)  # causal ones: where, and given what
    near_misses: list[NearMiss] = dataclasses.field(default_factory=list)
    graph_breaks: list[str] = dataclasses.field(default_factory=list)
    foreign: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)  # by name
    left: list[Left] = dataclasses.field(default_factory=list)  # the most bytes first
    failures: list[str] = dataclasses.field(default_factory=list)  # of ours: what they were over is left as it was
    remainders: list[str] = dataclasses.field(default_factory=list)  # who runs what is left of each graph, and why
    graphs: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """Sites by name: those of COUNTED always, others after them. A norm counts once, by its most fused name."""
        counted: collections.Counter[str] = collections.Counter()
        for place in self.places:
            counted.update(dict(place.counts))
        counted["causal_mask"] = len(self.masks)
        return {name: counted[name] for name in [*COUNTED, *sorted(counted.keys() - set(COUNTED))]}

    @property
    def rows(self) -> list[tuple[Place, int]]:
        """Equal places and how many there are, in the order of the graph."""
        return list(collections.Counter(self.places).items())

    def add(self, decision: rewriter.Decision) -> None:
        """Takes in what is decided about a graph that is not rewritten yet. Raises cermet.Error."""
        self.places += [_place(region) for region in decision.regions]
        self.near_misses += decision.near_misses
        self.foreign.update(leftovers.foreign(decision.module))
        replaced = {node for region in decision.regions for node in region.replaced}
        self.left = leftovers.merged([*self.left, *leftovers.fusible(decision, replaced)])

    def take_masks(self, found: masks.Found) -> None:
        """Takes in what is known about the masks of a graph and its bodies."""
        self.masks += [str(mask) for mask in found.masks]
        self.near_misses += found.near_misses

    def decline(self, misplaced: Sequence[NearMiss]) -> None:
        """Takes back places for which there was no place in the graph."""
        gone = {near_miss.at for near_miss in misplaced}
        self.places = [place for place in self.places if place.at not in gone]
        self.near_misses += misplaced

    def merge(self, other: Explanation) -> None:
        self.places += other.places
        self.masks += other.masks
        self.near_misses += other.near_misses
        self.graph_breaks += other.graph_breaks
        self.foreign.update(other.foreign)
        self.left = leftovers.merged([*self.left, *other.left])
        self.failures += other.failures
        self.remainders += other.remainders
        self.graphs += other.graphs

    def __str__(self) -> str:
        from .table import text

        return text(self)

    def html(self) -> str:
        """One self-contained page: the table, and for each row its graph texts and CUDA C++."""
        from .page import html

        return html(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes `html()` to a file. Raises OSError."""
        page = self.html()
        with open(path, "w", encoding="utf-8") as file:
            file.write(page)


def explain(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Traces `model(*args, **kwargs)` with TorchDynamo and says what Cermet would replace in it.

    The model runs once, eagerly, as traced, and what a run of it writes is written: the running statistics of a batch
    norm, a cache that is passed in. For as long, it cannot be called from another thread. Its parameters, what is
    compiled of it and of other models, and the random generators (torch's, numpy's and Python's own) are left alone.

    Args:
        model: a module or function of tensors, compiled or not: `torch.compile(model)`, and a module that was compiled
            in place (`model.compile()`), it or parts of it, are explained as what they were made of.
        args, kwargs: what it is called with; the gradient mode and `model.training` are those of the caller.

    Returns:
        An Explanation: `counts`, `places`, `near_misses`, `graph_breaks`, `foreign`, `left`, `remainders` (what the
        option of that name, left to itself, would choose).

    Raises:
        cermet.Error: the compiler refused a graph.
    """
    found = Explanation()

    def capture(module: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        found.graphs += 1
        found.take_masks(masks.find(module))
        work = leftovers.Work()
        for part in rewriter.modules(module):
            decision = rewriter.decide(part, returned=Returned.EDGE if part is module else Returned.DECLINED)
            found.add(decision)
            found.failures += [f"{type(error).__name__}: {error}" for error in decision.failures]
            work.add(leftovers.work(decision))
        found.remainders.append(str(remainder.choose(Options("auto", False, {}), work)))
        return module.forward

    breaks = GraphBreaks()
    apart.run(model, capture, *args, **kwargs)
    found.graph_breaks = breaks.new()
    return found


class GraphBreaks:
    """Dynamo's count of graph breaks in this process, from where it was left."""

    def __init__(self, since_start: bool = False) -> None:
        self._seen = {} if since_start else dict(self._now())

    @staticmethod
    def _now() -> collections.Counter[str]:
        return torch._dynamo.utils.counters["graph_break"]

    def new(self) -> list[str]:
        """The reasons of the breaks since the last call."""
        now, seen = dict(self._now()), self._seen
        self._seen = now
        return [reason for reason, times in now.items() for _ in range(times - seen.get(reason, 0))]


def _place(region: rewriter.Region) -> Place:
    target = targets.target_of(region.device)
    keys = region.keys()
    saved = _saved_bytes(keys[0], region)
    tensors = [example(node) for node in [*dict.fromkeys(region.operands), *region.results]]
    kernels = [_kernels(key, target) for key in keys]
    return Place(
        region.pattern,
        region.source,
        tuple(describe(example(node)) for node in region.operands),
        tuple(describe(example(node)) for node in region.results),
        kernels[0],
        tuple(itertools.chain.from_iterable(kernels[1:])),
        sum(map(moved_by, region.replaced)),
        sum(map(size_of, tensors)) + saved,
        saved,
        tuple(region.counts.items()),
        keys,
        target,
        region.results[0].name,
    )


def _kernels(key: int, target: str) -> tuple[str, ...]:
    return tuple(step["name"] for step in regions.plan(key, target)["steps"] if step["kind"] == "kernel")


def _saved_bytes(forward: int, region: rewriter.Region) -> int:
    """Of what a forward returns after the region's results."""
    signature = regions.signature(forward, region.device)
    sizes: dict[int | str, int] = {}
    for port, node in zip(signature.inputs, region.operands):
        sizes.update(zip(port.dims, map(hint, example(node).shape)))
    return sum(
        math.prod(sizes.get(dim, dim) for dim in port.dims) * port.dtype.itemsize
        for port in signature.outputs[len(region.results) :]
    )
