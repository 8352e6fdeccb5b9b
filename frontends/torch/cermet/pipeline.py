"""The order of the work on a graph, from what Dynamo traced to what somebody else runs: PASSES, over one Record.

Every door runs them: `backend` and `enabling` to compile the graph, `inspection` on a copy that nobody runs, to say what
they would do. They differ in their Settings, and in what they do with the record.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import logging
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.fx as fx

from . import passes
from .attention import grouped, masks, packed, variants
from .counting import count
from .failures import Failing, failing
from .fusing import gains, matches, replacement
from .graph import nodes
from .graph.decision import Decision, NearMiss, Region, Tail
from .importing import complexes
from .importing.importer import Imported, import_graph
from .loss import logits, tails
from .loss.edges import Edge
from .loss.logits import Returned
from .ops import library, preparation
from .options import Options
from .passes import Pass
from .remainder import choice, content
from .remainder.choice import Choice
from .remainder.content import Remainder
from .report.explanation import Explanation
from .report.findings import Findings

_log = logging.getLogger("cermet")
# What was compiled, so that no pass of ours looks again. Not in `meta`: what DDPOptimizer splits shares one.
_compiled: weakref.WeakSet[fx.GraphModule] = weakref.WeakSet()


class Masks(enum.Enum):
    """What becomes of masks that are causal given that some inputs are one everywhere."""

    ALONE = "alone"  # a near miss: there is only one graph
    EITHER = "either"  # they stay, and a variant of the graph is made for such inputs
    GIVEN = "given"  # causal: this is that variant


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a door wants.

    `options`: whose choice of a remainder decides which regions gain; without, every region is made. `functional`: what
    remains runs through AOTAutograd (matches.check). `returned`: what becomes of logits that the graph returns; with
    Returned.EDGE the caller attaches the record's edges (edges.attach). `describe`: what is to be told of each graph.
    `launched`: the regions will run, so their kernels are made ready.
    """

    failing: Failing = failing(strict=True)
    options: Options | None = None
    functional: bool = True
    returned: Returned = Returned.DECLINED
    masks: Masks = Masks.ALONE
    describe: Callable[[Decision], Findings] | None = None
    launched: bool = True

    @classmethod
    def of(cls, options: Options, **others: Any) -> Settings:
        """For a graph whose callable is the door's own, with a remainder by `options`."""
        eager = options.remainder == "eager"
        chosen = {
            "failing": failing(options.strict),
            "functional": not eager,
            "returned": Returned.EAGER if eager else Returned.EDGE,
            "masks": Masks.EITHER,
        }
        return cls(options=options, **(chosen | others))


@dataclasses.dataclass
class Part:
    """One graph of a record, the traced one or a body in it, and what is known of it so far."""

    record: Record = dataclasses.field(repr=False)
    module: fx.GraphModule
    have: set[str] = dataclasses.field(default_factory=set)
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
            self.views, self.tails = [], {}
        self.record.failed(error)


class Record:
    """A graph with its bodies on its way through the passes."""

    def __init__(self, module: fx.GraphModule, settings: Settings) -> None:
        self.module = module
        self.settings = settings
        self.have: set[str] = set()
        self.parts = [Part(self, part) for part in nodes.modules(module)]
        self.masks = masks.Found([], [])
        self.variant: variants.Variant | None = None
        self.grouped = self.released = 0
        self.inductor = False  # it would run what regions do not
        self.failures: list[str] = []

    def failed(self, error: Exception, what: str = "a graph") -> None:
        """Does what the door does about a failure, and keeps it. May raise."""
        self.settings.failing(error, what)
        self.failures.append(f"{type(error).__name__}: {error}")

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
        found = Explanation(graphs=1, failures=list(self.failures))
        if "causal" in self.have:
            found.take_masks(self.masks)
        for part in self._replaced:
            found.merge(part.findings)
            found.decline(part.replaced.near_misses)
        return found


def run(module: fx.GraphModule, settings: Settings | None = None, until: str = "") -> Record:
    """Takes a graph at the Dynamo level through the passes, in place, up to the one that is called `until`."""
    record = Record(module, settings or Settings())
    if record.settings.launched:
        _compiled.add(module)
    passes.run(PASSES, record, until)
    return record


def compiled(module: fx.GraphModule) -> bool:
    """Whether a graph has been through the passes to be run."""
    return module in _compiled


def tally(record: Record) -> None:
    """Adds what was done to the process's counters, and logs what nearly was."""
    variant = record.settings.masks is Masks.GIVEN  # its graph's own masks are counted with that graph
    near_misses = [*([] if variant else record.masks.near_misses), *record.near_misses]
    count("graphs")
    count("regions", len(record.regions))
    count("near_misses", len(near_misses))
    count("released", record.released)
    count("grouped_attentions", record.grouped)
    if "causal" in record.have:
        count("causal_masks", sum(bool(mask.given) == variant for mask in record.masks.masks))
    for near_miss in near_misses:
        _log.info("near miss: %s", near_miss)


# --- The passes, each in the words of its room -----------------------------------------------------------------------


def _find_masks(record: Record) -> None:
    record.masks = masks.find(record.module)
    if record.settings.masks is Masks.ALONE:
        record.masks = variants.alone(record.masks)


def _make_variant(record: Record) -> None:
    if record.settings.masks is Masks.EITHER and record.settings.launched and record.masks.given:
        record.variant = variants.of(record.module, record.masks.given)


def _make_causal(record: Record) -> None:
    given = record.settings.masks is Masks.GIVEN
    masks.apply(record.module, [mask for mask in record.masks.masks if given or not mask.given])


def _group_heads(record: Record) -> None:
    record.grouped = grouped.apply(record.module)


def _separate_tails(record: Record, part: Part) -> None:
    if part.returned is Returned.EDGE:
        part.tails = tails.separate(part.module, logits.linear_operands)


def _add_views(record: Record, part: Part) -> None:
    part.views = complexes.add_views(part.module)


def _import(record: Record, part: Part) -> None:
    part.imported = import_graph(part.module)


def _match(record: Record, part: Part) -> None:
    part.answer = library.context().match(part.imported.text)


def _check(record: Record, part: Part) -> None:
    part.decision = matches.check(part.module, part.imported, part.answer, record.settings.functional)


def _take_heads(record: Record, part: Part) -> str | None:
    matches.take_heads(part.decision, part.imported, part.returned, part.tails)
    used = {region.head.linear for region in part.decision.regions if region.head is not None}
    unused = [linear for linear in part.tails if linear not in used]
    tails.restore(part.module, [part.tails.pop(linear) for linear in unused])
    kept = {operand for region in part.decision.regions for operand in region.operands} if not unused else ()
    complexes.drop_views(part.module, part.views, kept)
    if unused:  # the loss reads what the graph returns again
        return "views"
    for error in part.decision.failures:
        record.failed(error, "a match")
    return None


def _measure_rest(record: Record, part: Part) -> None:
    part.left = content.of(part.decision)


def _choose(record: Record) -> None:
    if record.settings.options is not None:
        record.inductor = record.choice.remainder == "inductor"


def _drop_losses(record: Record, part: Part) -> None:
    options = record.settings.options
    if options is not None:
        gains.drop(part.decision, record.inductor, options.autotune)


def _compile_all(record: Record) -> None:
    with contextlib.suppress(Exception):  # whose fault it was is found below
        preparation.prepare(key for part in record.parts for key in _keys(record, part))


def _compile(record: Record, part: Part) -> None:
    preparation.prepare(_keys(record, part))


def _keys(record: Record, part: Part) -> list[tuple[int, torch.device]]:
    """What a graph's regions will launch, on which devices."""
    if part.decision is None or not record.settings.launched:
        return []
    return [(key, region.device) for region in part.decision.regions for key in region.keys()]


def _describe(record: Record, part: Part) -> None:
    if record.settings.describe is not None:
        part.findings = record.settings.describe(part.decision)


def _replace(record: Record, part: Part) -> None:
    part.replaced = replacement.apply(part.decision)


def _release(record: Record) -> None:
    if record.settings.functional:
        record.released = packed.release(record.module, record.regions)


def _pass(name: str, run: Callable[..., str | None], needs: str = "", promises: str = "", **kind: bool) -> Pass:
    return Pass(name, run, frozenset(needs.split()), frozenset(promises.split()), **kind)


PASSES = (
    # Of the graph and its bodies: attention.
    _pass("masks", _find_masks, promises="masks"),
    _pass("variant", _make_variant, needs="masks"),
    _pass("causal", _make_causal, needs="masks", promises="causal"),
    _pass("groups", _group_heads),
    # Of each of them: which regions it will have.
    _pass("tails", _separate_tails, each=True),
    _pass("views", _add_views, each=True),
    _pass("import", _import, promises="text", each=True),
    _pass("match", _match, needs="text", promises="matches", each=True),
    _pass("check", _check, needs="matches", promises="checked", each=True),
    _pass("heads", _take_heads, needs="checked", promises="regions", each=True),
    _pass("rest", _measure_rest, needs="regions", each=True),
    # Of each: whether that gains over who would run it otherwise.
    _pass("choice", _choose, alone=False),
    _pass("gains", _drop_losses, needs="regions", each=True),
    # What the regions launch, and putting them into the graphs.
    _pass("compile", _compile_all),
    _pass("kernels", _compile, needs="regions", promises="kernels", each=True),
    _pass("describe", _describe, needs="kernels", each=True),
    _pass("replace", _replace, needs="kernels", each=True),
    _pass("release", _release),
)
