"""A graph with its bodies on its way through the passes, what is known of it so far, and what its door wants."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch.fx as fx

from .attention import masks, variants
from .attention.warming import WarmUp
from .failures import Failing, failing
from .fusing import replacement
from .graph import nodes
from .graph.decision import Decision, NearMiss, Recalled, Region, Tail
from .importing import complexes
from .importing.importer import Imported
from .loss import sums, tails
from .loss.edges import Edge
from .loss.logits import Returned
from .loss.sums import Sum
from .ops.preparation import Preparation
from .options import Options
from .remainder import choice
from .remainder.choice import Choice
from .remainder.content import Remainder
from .rematerialization.plan import Plan
from .repetition.rates import Rates
from .report.explanation import Explanation
from .report.findings import Findings
from .report.runs import Run


class Masks(enum.Enum):
    """What becomes of masks that mean something under a condition of the inputs."""

    ALONE = "alone"  # a near miss: there is only one graph
    EITHER = "either"  # they stay, and variants of the graph are made for such inputs
    GIVEN = "given"  # those go that ask for ones: this is that variant
    COMPACT = "compact"  # those of padding go with all that is hidden: this is that variant
    SEGMENTS = "segments"  # those go that tensors of integers decide: this is that variant


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a door wants.

    `options`: whose choice of a remainder decides which regions gain; without, every region is made. `functional`: what
    remains runs through AOTAutograd (matches.check). `returned`: what becomes of logits that the graph returns; with
    Returned.EDGE and LAZY the caller attaches the record's edges (edges.attach). `describe`: what is to be told of each
    graph.
    `launched`: the regions will run, so their kernels are made ready. `overlapped`: others make them meanwhile, and the
    caller waits for the record's `preparation`.
    """

    failing: Failing = failing(strict=True)
    options: Options | None = None
    functional: bool = True
    returned: Returned = Returned.DECLINED
    masks: Masks = Masks.ALONE
    describe: Callable[[Decision], Findings] | None = None
    launched: bool = True
    overlapped: bool = False

    @classmethod
    def of(cls, options: Options, **others: Any) -> Settings:
        """For a graph whose callable is the door's own, with a remainder by `options`."""
        eager = options.remainder == "eager"
        returned = Returned.LAZY if options.lazy_logits else Returned.EDGE
        chosen = {
            "failing": failing(options.strict),
            "functional": not eager,
            "returned": Returned.EAGER if eager else returned,
            "masks": Masks.EITHER,
        }
        return cls(options=options, **(chosen | others))


@dataclasses.dataclass
class Part:
    """One graph of a record, the traced one or a body in it, and what is known of it so far."""

    record: Record = dataclasses.field(repr=False)
    module: fx.GraphModule
    have: set[str] = dataclasses.field(default_factory=set)
    sums: list[Sum] = dataclasses.field(default_factory=list)  # of linear layers, as one node
    tails: dict[fx.Node, Tail] = dataclasses.field(default_factory=dict)  # by the linear layer that they follow
    views: list[fx.Node] = dataclasses.field(default_factory=list)  # of complex numbers, as real ones
    imported: Imported | None = None
    answer: dict[str, list] = dataclasses.field(default_factory=dict)  # libcermet's, to the graph's text
    decision: Decision | None = None
    left: Remainder = dataclasses.field(default_factory=Remainder)
    findings: Findings = dataclasses.field(default_factory=Findings)
    replaced: replacement.Replaced | None = None

    @property
    def returned(self) -> Returned:
        return self.record.settings.returned if self.module is self.record.module else Returned.DECLINED

    def failed(self, error: Exception) -> None:
        """It stays as it is from here on, without what was added for regions."""
        self.left.unknown = True
        if "regions" not in self.have:
            complexes.drop_views(self.module, self.views, ())
            tails.restore(self.module, self.tails.values())
            sums.restore(self.module, self.sums)
            self.views, self.tails, self.sums = [], {}, []
        self.record.failed(error)


class Record:
    """A graph with its bodies on its way through the passes."""

    def __init__(self, module: fx.GraphModule, settings: Settings) -> None:
        self.settings = settings
        self.have: set[str] = set()
        self.take(module)
        self.masks = masks.Found([], [])
        self.variants: dict[Masks, variants.Variant] = {}  # by what becomes of masks there; the better first
        self.recalled: list[Recalled] = []  # what a graph of shown places alone does not make
        self.preparation: Preparation | None = None  # of what the regions will run
        self.warm_up: WarmUp | None = None  # of its attentions
        self.grouped = self.grouped_products = self.written_out = self.released = self.dropouts = self.wide_linears = 0
        self.rates: Rates | None = None  # numbers that are inputs now
        self.tiled = 0  # parts of checkpointed layers whose rows are in tiles
        self.inductor = False  # it would run what regions do not
        self.ran_by = ""  # who runs what is left, and why
        self.failures: list[str] = []
        self.runs: list[Run] = []  # what direct calls run, as far as that was told
        self.plans: list[Plan] = []  # what their forward keeps, likewise

    def take(self, module: fx.GraphModule) -> None:
        """In the place of its graph, of whose parts nothing is known yet."""
        self.module = module
        self.parts = [Part(self, part) for part in nodes.modules(module)]

    def failed(self, error: Exception, what: str = "a graph") -> None:
        """Does what the door does about a failure, and keeps it. May raise."""
        self.settings.failing(error, what)
        self.failures.append(f"{type(error).__name__}: {error}")

    def inputs(self, given: Sequence[Any]) -> list[Any]:
        """What its graph is given: what the traced one is, and behind that fake values of what this variant is told."""
        places = self.module.graph.find_nodes(op="placeholder")
        return [*given, *(nodes.example(node) for node in places[len(given) :])]

    @property
    def _replaced(self) -> Iterator[Part]:
        return (part for part in self.parts if part.replaced is not None)

    @property
    def regions(self) -> list[Region]:
        """Those that are in the graph and its bodies."""
        return [region for part in self._replaced for region in part.replaced.regions]

    @property
    def near_misses(self) -> list[NearMiss]:
        return [
            miss for part in self._replaced for miss in [*part.decision.near_misses, *part.replaced.near_misses]
        ]

    @property
    def edges(self) -> list[Edge]:
        """What the caller attaches outside of the graph."""
        return [edge for part in self._replaced for edge in part.replaced.edges]

    @property
    def choice(self) -> Choice:
        """Who should run what is left, by what is known of it so far."""
        left = Remainder()
        for part in self.parts:
            left.add(part.left)
        return choice.choose(self.settings.options, left)

    def explanation(self) -> Explanation:
        """What was told of the graph."""
        found = Explanation(graphs=1, failures=list(self.failures), runs=list(self.runs), plans=list(self.plans))
        if "unmasked" in self.have:
            found.take_masks(self.masks, self.settings.masks in (Masks.SEGMENTS, Masks.COMPACT))
        for part in self._replaced:
            found.merge(part.findings)
            found.decline(part.replaced.near_misses)
        return found
