"""The TorchDynamo backend: `torch.compile(model, backend="cermet")`, found by its entry point without an import.

Sequences that Cermet knows are replaced in the Dynamo graph, before autograd; who runs what remains is decided by what
that is (choice.py).
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch.fx as fx

from . import environment, pipeline
from .attention import variants
from .loss import edges
from .options import parse
from .record import Masks, Record, Settings
from .remainder import choice
from .report import output

_log = logging.getLogger("cermet")


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
    given, where = parse(mode, options), environment.report()
    settings = Settings.of(given, describe=output.describe if where else None)
    record, run, said = _compiled(gm, example_inputs, settings)
    if record.variant is not None and "unmasked" in record.have:
        try:
            variant = dataclasses.replace(settings, masks=Masks.GIVEN, describe=None)
            other, unpadded, _ = _compiled(record.variant.module, example_inputs, variant)
            record.failures += other.failures
            if "unmasked" in other.have:
                run = variants.choosing(run, unpadded, record.variant.places)
        except Exception as error:
            record.failed(error)
    if where:
        found = record.explanation()
        found.remainders.append(said)
        output.report(found, where)
    return run


def _compiled(
    module: fx.GraphModule, example_inputs: Sequence[Any], settings: Settings
) -> tuple[Record, Callable[..., Any], str]:
    """A graph through the pipeline, the callable that runs it, and who does that and why."""
    outputs = edges.outputs(module)
    record = pipeline.run(module, settings)
    pipeline.tally(record)
    chosen = record.choice
    _log.info("the remainder is %s: %s", chosen.remainder, chosen.reason)
    run, notes = choice.run(module, example_inputs, chosen.remainder, settings.options)
    for note in notes:
        _log.info("a graph: %s", note)
    return record, edges.attach(run, record.edges, outputs), "; ".join([str(chosen), *notes])
