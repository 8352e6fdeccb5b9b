"""The TorchDynamo backend: `torch.compile(model, backend="cermet")`, found by its entry point without an import.

Sequences that Cermet knows are replaced in the Dynamo graph, before autograd; who runs what remains is decided by what
that is (choice.py).
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._dynamo.exc import RestartAnalysis

from . import environment, pipeline
from .attention import variants
from .garbage import uncollected, uncollected_while_traced
from .graph.decision import Declined
from .graph.edit import copy_of
from .graph.snapshots import ModuleSnapshot
from .loss import edges, recall
from .messages import said_while_traced
from .options import parse
from .records import Masks, Record, Settings
from .remainder import choice
from .report import output
from .targets import devices
from .tracing.asked_gradients import passed_over_while_traced
from .tracing.held_numbers import constant_while_traced
from .tracing.layers import twice_while_traced
from .tracing.repeated_regions import given_what_is_theirs

_log = logging.getLogger("cermet")
uncollected_while_traced()  # the first graph, too: torch.compile imports this before Dynamo begins
said_while_traced()
constant_while_traced()
passed_over_while_traced()
given_what_is_theirs()
twice_while_traced()


@uncollected()
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
    uncollected_while_traced()
    given, where = parse(mode, options), environment.report()
    # What is to be told of a graph is of kernels that are there.
    settings = Settings.of(given, describe=output.describe if where else None, overlapped=not where)
    plain = copy_of(gm) if devices.captured() else None
    record = pipeline.run(gm, settings, until="unmask")
    if not record.variants:
        run = _compiled(record, example_inputs)
    else:
        record, run = _in_variants(record, example_inputs)
    if where:
        found = record.explanation()
        found.remainders.append(record.ran_by)
        output.report(found, where)
    return run if plain is None else plain.forward  # what is captured does not run here


_Recall = tuple[Callable[..., Any], recall.Shown]  # the graph of all places, and whose variant recalls


@uncollected()
def _compiled(
    record: Record, example_inputs: Sequence[Any], recalled: _Recall | None = None
) -> Callable[..., Any]:
    """The callable that runs a record's graph, whose masks are known. Where a kernel cannot be made, the graph is
    compiled again and waits for each part's, to leave the part as it was. Raises Declined where a variant for shown
    places cannot be."""
    plain = ModuleSnapshot(record.module) if record.settings.overlapped else None
    run = _running(record, example_inputs, recalled)
    if record.warm_up is not None:
        record.warm_up.wait()
    try:
        if plain is not None and record.preparation is not None:
            record.preparation.wait()
    except Exception:
        _log.info("a kernel cannot be made: the graph is compiled again", exc_info=True)
        waiting = dataclasses.replace(record.settings, overlapped=False)
        return _compiled(pipeline.run(plain.module(), waiting, until="unmask"), example_inputs, recalled)
    pipeline.tally(record)
    return run


def _running(record: Record, example_inputs: Sequence[Any], recalled: _Recall | None) -> Callable[..., Any]:
    outputs = edges.outputs(record.module)
    pipeline.finish(record, since="unmask")
    chosen = record.choice
    _log.info("the remainder is %s: %s", chosen.remainder, chosen.reason)
    told = None
    if record.settings.describe is not None:
        told = output.describe_runs(record.runs, record.plans, record.regions)
    inputs = record.inputs(example_inputs)
    run, notes = choice.run(record.module, inputs, chosen.remainder, record.settings.options, told)
    for note in notes:
        _log.info("a graph: %s", note)
    record.ran_by = "; ".join([str(chosen), *notes])
    if record.rates is not None:
        run = record.rates.attach(run)
    run = edges.attach(run, record.edges, outputs)
    return run if recalled is None else recall.attach(run, record.recalled, *recalled)


def _in_variants(record: Record, example_inputs: Sequence[Any]) -> tuple[Record, Callable[..., Any]]:
    """The callable that chooses between a graph and its variants, and the record of the one that these inputs need. The
    others are made when a call needs them."""
    found: dict[Masks, Record] = {}

    def again(*arguments: Any) -> Any:
        with torch.enable_grad():  # where it is made now
            run = padded.of(arguments) or padded.plain
        return run(*arguments)

    def make(masks: Masks, variant: variants.Variant) -> Callable[..., Any] | None:
        try:
            settings = dataclasses.replace(record.settings, masks=masks)
            found[masks] = other = pipeline.run(variant.module, settings, until="unmask")
            run = _compiled(other, example_inputs, (again, variant.condition) if masks is Masks.COMPACT else None)
        except Declined as reason:
            _log.info("padding stays in the graph: %s", reason)
            return None
        except RestartAnalysis:  # of Dynamo, which traces again in another way
            raise
        except Exception as error:
            record.failed(error)
            return None
        return run if "unmasked" in other.have else None

    padded = variants.Later(record.module, example_inputs, lambda: _compiled(record, example_inputs))
    others = {
        masks: (variant, variants.Later(variant.module, example_inputs, functools.partial(make, masks, variant)))
        for masks, variant in record.variants.items()
    }
    told = record
    for masks, (variant, later) in others.items():
        if devices.captured():  # calls of every kind will come, elsewhere
            later.now()
        elif variant.condition(example_inputs) is not None and later.now() is not None:
            told = found[masks]
            break
    if told is record:
        padded.now()
    record.settings = dataclasses.replace(record.settings, describe=None)  # one report is enough
    return told, variants.choosing(padded, list(others.values()))
