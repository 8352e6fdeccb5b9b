"""The TorchDynamo backend: `torch.compile(model, backend="cermet")`, found by its entry point without an import.

Sequences that Cermet knows are replaced in the Dynamo graph, before autograd; who runs what remains is decided by what
that is (choice.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx as fx

from . import environment
from .attention import packed, variants
from .counting import count
from .fusing import gains, matches, replacement
from .fusing.replacement import Replaced
from .graph import nodes
from .loss import edges
from .loss.logits import Returned
from .ops import preparation
from .options import Options, parse
from .remainder import choice, content
from .remainder.choice import Choice
from .remainder.content import Remainder
from .report import output
from .report.explanation import Explanation

_log = logging.getLogger("cermet")
_warned = False
# What `rewrite` has had, so that no pass of ours looks again. Not in `meta`: what DDPOptimizer splits shares one.
_rewritten: weakref.WeakSet[fx.GraphModule] = weakref.WeakSet()


@dataclasses.dataclass
class Rewritten(Replaced):
    """What was done to a graph and its bodies, what is left in them for a fuser, and who should run that."""

    remainder: Remainder = dataclasses.field(default_factory=Remainder)
    choice: Choice | None = None


def compile(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compiles one graph of Dynamo's.

    Args:
        gm: a graph at the Dynamo level; it is rewritten in place.
        example_inputs: its fake inputs.
        mode: what `torch.compile(mode=...)` was given; it means what it means to Inductor.
        options: `remainder`, who runs what is not replaced: "auto" (default, choice.py), "aot" (AOTAutograd, ATen
            called directly), "inductor" or "eager"; `strict`, whether a failure of Cermet's raises (by default only
            under CERMET_STRICT=1: the graph, or one match in it, is left as it was, a warning is logged once and
            `cermet.counters()["fallbacks"]` counts it); `mode`, as above; every other key is an Inductor option.

    Raises:
        cermet.Error: an unknown option, mode or remainder, or, if strict, what went wrong.
    """
    settings = parse(mode, options)
    found, where = Explanation(graphs=1), environment.report()
    eager = settings.remainder == "eager"
    returned = Returned.EAGER if eager else Returned.EDGE

    def compiled(module: fx.GraphModule) -> Callable[..., Any]:
        outputs = edges.outputs(module)
        told = found if where and module is gm else None  # not of a variant of the same graph
        done = rewrite(module, settings.strict, not eager, told, returned, settings)
        chosen = done.choice
        _log.info("the remainder is %s: %s", chosen.remainder, chosen.reason)
        run, notes = choice.run(module, example_inputs, chosen.remainder, settings)
        for note in notes:
            _log.info("a graph: %s", note)
        if told is not None:
            told.remainders.append("; ".join([str(chosen), *notes]))
        return edges.attach(run, done.edges, outputs)

    run = variants.compile(gm, compiled, functools.partial(failed, settings.strict, found), found.take_masks)
    if where:
        output.report(found, where)
    return run


def rewrite(
    gm: fx.GraphModule,
    strict: bool = False,
    functional: bool = True,
    found: Explanation | None = None,
    returned: Returned = Returned.DECLINED,
    settings: Options | None = None,
) -> Rewritten:
    """Replaces what matches in a graph and in the bodies of its higher-order operators; returns what was replaced.

    `functional`: what remains runs through AOTAutograd (matches.decide). If Cermet fails, the graph is left as it
    was; if strict, the error is raised. `found` receives what was replaced, and what was not. `returned`: what becomes
    of logits that `gm` returns; with Returned.EDGE the caller attaches the edges in the answer (edges.attach).
    With `settings` the answer says who should run the remainder (`choice`), and a region that does not gain over that
    is left alone (gains.py).
    """
    count("graphs")
    _rewritten.add(gm)
    done = Rewritten([], [], [])

    def fail(error: Exception) -> None:
        done.remainder.unknown = True
        failed(strict, found, error)

    decisions = []
    for module in nodes.modules(gm):
        try:
            decision = matches.decide(module, functional, returned if module is gm else Returned.DECLINED)
            decisions.append(decision)
            for error in decision.failures:
                failed(strict, found, error, "a match")
            done.remainder.add(content.of(decision))
        except Exception as error:
            fail(error)
    if settings is not None:
        decisions = list(_gaining(decisions, settings, done.remainder, fail))
    with contextlib.suppress(Exception):  # all graphs at once; whose fault it was is found below
        preparation.prepare(_keys(decisions))
    for decision in decisions:
        try:
            preparation.prepare(_keys([decision]))
            part = None if found is None else output.describe(decision)
            replaced = replacement.apply(decision)
        except Exception as error:
            fail(error)
            continue
        if found is not None and part is not None:
            part.decline(replaced.near_misses)
            found.merge(part)
        done.regions += replaced.regions
        done.near_misses += [*decision.near_misses, *replaced.near_misses]
        done.edges += replaced.edges
    if functional:
        try:
            count("released", packed.release(gm, done.regions))
        except Exception as error:
            failed(strict, found, error)
    if settings is not None:
        done.choice = choice.choose(settings, done.remainder)
    count("regions", len(done.regions))
    count("near_misses", len(done.near_misses))
    for near_miss in done.near_misses:
        _log.info("near miss: %s", near_miss)
    return done


def rewritten(gm: fx.GraphModule) -> bool:
    """Whether `rewrite` has had this graph."""
    return gm in _rewritten


def _gaining(
    decisions: Sequence[matches.Decision],
    settings: Options,
    remainder: Remainder,
    failed: Callable[[Exception], None],
) -> Iterator[matches.Decision]:
    """The decisions without the regions that do not gain."""
    inductor = choice.choose(settings, remainder).remainder == "inductor"
    for decision in decisions:
        try:
            gains.drop(decision, inductor, settings.autotune)
            yield decision
        except Exception as error:
            failed(error)


def _keys(decisions: Sequence[matches.Decision]) -> list[tuple[int, torch.device]]:
    """What the regions will run, on which devices."""
    return [(key, region.device) for decision in decisions for region in decision.regions for key in region.keys()]


def failed(strict: bool, found: Explanation | None, error: Exception, what: str = "a graph") -> None:
    """What becomes of a failure of ours while a graph is changed: it is raised, or logged, counted and reported."""
    if strict:
        raise error
    _fall_back(error, what)
    if found is not None:
        found.failures.append(f"{type(error).__name__}: {error}")


def _fall_back(error: Exception, what: str) -> None:
    global _warned
    count("fallbacks")
    level = logging.DEBUG if _warned else logging.WARNING
    _log.log(
        level,
        "%s is left as it was because Cermet failed: %s: %s (further failures are counted in "
        'cermet.counters()["fallbacks"]; options={"strict": True} raises them)',
        what,
        type(error).__name__,
        error,
        exc_info=_log.isEnabledFor(logging.DEBUG),
    )
    _warned = True
