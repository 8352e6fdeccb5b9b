"""What is decided about a graph before it is rewritten: the regions that it will have, and the near misses."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.fx as fx

from .layouts import Order


@dataclasses.dataclass(frozen=True)
class NearMiss:
    """A place that has a pattern's core but is left alone: `condition` is the one thing that failed."""

    pattern: str
    at: str  # the FX node
    condition: str
    source: str = ""  # `file:line: code` of the user's program, as far as tracing knows it

    def __str__(self) -> str:
        return f"{self.pattern} at {self.at}: {self.condition}" + (f" ({self.source})" if self.source else "")


class Declined(Exception):
    """A match that is left alone; its text says why."""


@dataclasses.dataclass(frozen=True)
class Recalled:
    """A result that a variant of a graph leaves to the graph."""

    output: int
    like: torch.Tensor  # its fake value


@dataclasses.dataclass(frozen=True)
class Tail:
    """What follows a linear layer, a second time."""

    linear: fx.Node
    returned: fx.Node  # what the loss goes on to read
    copies: tuple[fx.Node, ...]  # the last is what the graph returns instead
    body: fx.GraphModule  # the same calls on one tensor


@dataclasses.dataclass(frozen=True)
class Head:
    """A loss region that makes the gradient of its logits in the forward, and takes over their linear layer's."""

    linear: fx.Node | None  # None: the logits are given, and their gradient is what is wanted
    position: int  # of the logits among the region's operands
    made: bool  # nothing else reads the logits: the op makes them
    returned: bool  # they need an edge outside
    tail: Tail | None  # what is returned is made of them
    keys: tuple[tuple[int, ...], tuple[int, ...]]  # what it launches, forward and backward (regions.py)
    chunk: int = 0  # the most rows whose logits exist at once; 0 for all
    kept: tuple[fx.Node, ...] = ()  # with pieces: of whose form the forward keeps a tensor
    of_values: bool = False  # its cotangents come with the backward, which makes the logits again (values.py)

    @property
    def lazy(self) -> bool:
        """The graph returns them, and nothing in it makes them."""
        return self.made and self.returned


@dataclasses.dataclass
class Region:
    """One place to rewrite, found and checked."""

    pattern: str
    key: int
    wanted: tuple[bool, ...] | None  # which inputs need a gradient; None where nothing does
    like: tuple[Order, ...]  # the memory orders of those inputs' gradients
    runs: tuple[int, ...]  # what its own op launches: forward, and for a gradient backward
    operands: list[fx.Node]
    since: list[fx.Node]  # writes that must come before
    until: list[fx.Node]  # writes that must come after
    results: list[fx.Node]
    replaced: set[fx.Node]
    state: tuple[Any, ...]  # grad mode and autocast in which the sequence runs
    values: list[torch.Tensor]  # the fake results
    device: torch.device
    source: str
    counts: dict[str, int]  # the sites that it stands for, by name
    head: Head | None = None  # how it makes its gradient in the forward, if it does

    def launches(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The keys of what a forward runs, and of what a backward runs."""
        return (self.runs[:1], self.runs[1:]) if self.head is None else self.head.keys

    def keys(self) -> tuple[int, ...]:
        """What it launches."""
        forward, backward = self.launches()
        return forward + backward

    def dying(self) -> set[fx.Node]:
        """Replaced nodes that nothing will read once the results are replaced."""
        alive = set(self.replaced)
        changed = True
        while changed:
            stays = {
                node
                for node in alive
                if node not in self.results and any(user not in alive for user in node.users)
            }
            # A result that stays because something else reads it is still replaced: its own inputs may die.
            alive -= stays
            changed = bool(stays)
        return alive


@dataclasses.dataclass
class Decision:
    """What a graph's rewriting will be."""

    module: fx.GraphModule
    regions: list[Region]
    near_misses: list[NearMiss]
    states: dict[fx.Node, tuple[Any, ...]]  # the grad mode and autocast of every node, once it has run
    computing: frozenset[str]  # names of nodes that compute for each element, or reduce
    failures: list[Exception]  # of ours, each over one match that is left alone

    @property
    def unmade(self) -> set[fx.Node]:
        """What the graph returns of logits and will not make."""
        heads = [region.head for region in self.regions if region.head is not None]
        return {copy for head in heads if head.lazy and head.tail is not None for copy in head.tail.copies}

    def leave(self, pattern: str, at: str, source: str, error: Exception) -> None:
        """Notes a failure over one match."""
        self.failures.append(error)
        reason = f"Cermet failed: {type(error).__name__}: {error}"
        self.near_misses.append(NearMiss(pattern, at, reason, source))
