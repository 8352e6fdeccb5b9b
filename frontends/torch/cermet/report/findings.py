"""What Cermet replaces in some graphs, where that came from, what it nearly matched and what it left: what tables and
pages are made of."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence

import torch.fx as fx

from ..attention import masks
from ..graph.decision import Decision, NearMiss, Region
from ..graph.nodes import example
from ..graph.traffic import describe, hint, moved_by, size_of
from ..ops import regions
from ..remainder import content
from ..remainder.content import Part
from ..rematerialization.plan import Plan
from ..targets import devices
from . import runs
from .runs import Run

COUNTED = (
    "rms_norm", "add_rms_norm", "qk_norm", "rope", "qk_norm_rope", "glu", "cross_entropy", "causal_mask", "full_mask",
    "window_mask", "document_mask", "padding_mask", "length_mask", "cluster",
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
    texts: tuple[tuple[int, ...], tuple[int, ...]]  # keys of the graph texts that run, forward and backward
    target: str
    at: str = dataclasses.field(compare=False)  # the FX node of the first result


@dataclasses.dataclass
class Findings:
    """What there is to say about some graphs."""

    places: list[Place] = dataclasses.field(default_factory=list)
    masks: list[tuple[str, str]] = dataclasses.field(default_factory=list)  # that go: sites' name; where, given what
    near_misses: list[NearMiss] = dataclasses.field(default_factory=list)
    graph_breaks: list[str] = dataclasses.field(default_factory=list)
    foreign: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)  # by name
    left: list[Part] = dataclasses.field(default_factory=list)  # the most bytes first
    failures: list[str] = dataclasses.field(default_factory=list)  # of ours: what they were over is left as it was
    remainders: list[str] = dataclasses.field(default_factory=list)  # who runs what is left of each graph, and why
    runs: list[Run] = dataclasses.field(default_factory=list)  # of each kind, where direct calls run what is left
    plans: list[Plan] = dataclasses.field(default_factory=list)  # of each such graph that has a backward
    graphs: int = 0

    @property
    def launches(self) -> dict[str, int]:
        """How many of ours a graph of each kind ("forward", "backward", "inference") makes when it runs."""
        return {run.kind: len(run.launches) for run in self.runs}

    @property
    def counts(self) -> dict[str, int]:
        """Sites by name: those of COUNTED always, others after them. A norm counts once, by its most fused name."""
        counted: collections.Counter[str] = collections.Counter()
        for place in self.places:
            counted.update(dict(place.counts))
        counted.update(name for name, _ in self.masks)
        return {name: counted[name] for name in [*COUNTED, *sorted(counted.keys() - set(COUNTED))]}

    @property
    def rows(self) -> list[tuple[Place, int]]:
        """Equal places and how many there are, in the order of the graph."""
        return list(collections.Counter(self.places).items())

    @classmethod
    def of(cls, decision: Decision) -> Findings:
        """What is decided about a graph that is not rewritten yet. Raises cermet.Error."""
        replaced = {node for region in decision.regions for node in region.replaced}
        return cls(
            places=[_place(region) for region in decision.regions],
            near_misses=list(decision.near_misses),
            foreign=content.foreign(decision.module),
            left=content.fusible(decision, replaced),
        )

    def take_masks(self, found: masks.Found, by_segments: bool) -> None:
        """Takes in what is known about the masks of a graph and its bodies. Of two for one attention it is the one that
        segments decide, or the other."""
        told: dict[fx.Node, masks.Mask] = {}
        for mask in found.masks:
            if mask.attention not in told or by_segments == (mask.proof.segments is not None):
                told[mask.attention] = mask
        self.masks += [(mask.meaning.value, str(mask)) for mask in told.values()]
        self.near_misses += found.near_misses

    def decline(self, misplaced: Sequence[NearMiss]) -> None:
        """Takes back places for which there was no place in the graph."""
        gone = {near_miss.at for near_miss in misplaced}
        self.places = [place for place in self.places if place.at not in gone]
        self.near_misses += misplaced

    def merge(self, other: Findings) -> None:
        self.places += other.places
        self.masks += other.masks
        self.near_misses += other.near_misses
        self.graph_breaks += other.graph_breaks
        self.foreign.update(other.foreign)
        self.left = content.merged([*self.left, *other.left])
        self.failures += other.failures
        self.remainders += other.remainders
        self.runs = runs.merged([*self.runs, *other.runs])
        self.plans += other.plans
        self.graphs += other.graphs


def _place(region: Region) -> Place:
    target = devices.target_of(region.device)
    forward, backward = region.launches()
    in_pieces = region.head is not None and region.head.chunk > 0
    saved = sum(size_of(example(node)) for node in region.head.kept) if in_pieces else _saved_bytes(forward[0], region)
    tensors = [example(node) for node in [*dict.fromkeys(region.operands), *region.results]]
    return Place(
        region.pattern,
        region.source,
        tuple(describe(example(node)) for node in region.operands),
        tuple(describe(example(node)) for node in region.results),
        _kernels(forward, target),
        _kernels(backward, target),
        sum(map(moved_by, region.replaced)),
        sum(map(size_of, tensors)) + saved,
        saved,
        tuple(region.counts.items()),
        (forward, backward),
        target,
        region.results[0].name,
    )


def _kernels(keys: Iterable[int], target: str) -> tuple[str, ...]:
    return tuple(itertools.chain.from_iterable(runs.kernels(key, target) for key in keys))


def _saved_bytes(forward: int, region: Region) -> int:
    """Of what a forward returns after the region's results."""
    signature = regions.signature(forward, region.device)
    sizes: dict[int | str, int] = {}
    for port, node in zip(signature.inputs, region.operands):
        sizes.update(zip(port.dims, map(hint, example(node).shape)))
    return sum(
        math.prod(sizes.get(dim, dim) for dim in port.dims) * port.dtype.itemsize
        for port in signature.outputs[len(region.results) :]
    )
