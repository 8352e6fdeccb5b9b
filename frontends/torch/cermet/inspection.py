"""`cermet.explain`: what Cermet would replace in a model, and what would run then, without compiling anything."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch.fx as fx
from torch._dynamo.exc import TorchDynamoException

from . import environment, pipeline
from .errors import Error
from .fusing import timing
from .fusing.replacement import Replaced
from .garbage import uncollected
from .graph.edit import copy_of
from .options import Options, parse
from .records import Record, Settings
from .rematerialization.plan import Plan
from .remainder import direct
from .report import apart, runs
from .report.breaks import GraphBreaks
from .report.explanation import Explanation
from .report.findings import Findings


def explain(
    model: Callable[..., Any],
    *args: Any,
    measure: bool = False,
    options: dict[str, Any] | None = None,
    **kwargs: Any,
) -> Explanation:
    """Traces `model(*args, **kwargs)` with TorchDynamo and says what Cermet would replace in it.

    The model runs once, eagerly, as traced, and what a run of it writes is written: the running statistics of a batch
    norm, a cache that is passed in. For as long, it cannot be called from another thread. Its parameters, what is
    compiled of it and of other models, and the random generators (torch's, numpy's and Python's own) are left alone.

    Args:
        model: a module or function of tensors, compiled or not: `torch.compile(model)`, and a module that was compiled
            in place (`model.compile()`), it or parts of it, are explained as what they were made of.
        args, kwargs: what it is called with; the gradient mode and `model.training` are those of the caller.
        measure: also time what would run behind autograd, each launch and each call alone on made-up tensors, which
            makes the kernels.
        options: of the backend, as `torch.compile` would be given them.

    Returns:
        An Explanation: `counts`, `places`, `near_misses`, `graph_breaks`, `foreign`, `left`, `remainders` (what the
        option of that name, left to itself, would choose), `runs` (what the graphs behind autograd launch and call:
        forward and backward, or inference where nothing wants a gradient), `launches` (how often, by kind), `plans`
        (of each graph with a backward what is saved for that, for whom and why, and what it makes again).

    Raises:
        cermet.Error: the compiler refused a graph, an option is none that is known, or `memory` cannot be held.
    """
    environment.log()
    given = parse(None, options)
    found, breaks = Explanation(), GraphBreaks()

    def capture(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        found.merge(explained(module, inputs, given, measure))
        return module.forward

    apart.run(model, capture, *args, **kwargs)
    found.graph_breaks = breaks.new()
    return found


@uncollected()
def explained(
    module: fx.GraphModule, inputs: Sequence[Any], options: Options, measure: bool = False
) -> Explanation:
    """What the backend would do with a graph, which stays as it is, where it is called with these inputs."""
    settings = Settings.of(options, failing=_failing, describe=Findings.of, launched=False)
    record = rewritten(module, inputs, settings)
    said = str(record.choice)
    if record.choice.remainder == "aot":
        said += _run(record, inputs, options, timing.calls() if measure else None)
    found = record.explanation()
    found.remainders.append(said)
    return found


def rewritten(module: fx.GraphModule, inputs: Sequence[Any], settings: Settings) -> Record:
    """The record of a graph's copy, or of its variant, that the backend would run for these inputs."""
    record = pipeline.run(copy_of(module), settings, until="unmask")
    for masks, variant in record.variants.items():
        if variant.condition(inputs) is not None:
            record = pipeline.run(variant.module, dataclasses.replace(settings, masks=masks), until="unmask")
            break
    return pipeline.finish(record, since="unmask")


def _run(record: Record, inputs: Sequence[Any], options: Options, measure: runs.Measure | None) -> str:
    """Adds to a record what the graphs behind autograd would run; what is against that where it is the program's."""
    heard: list[tuple[str, fx.GraphModule, Replaced, Callable[[], Plan] | None]] = []
    try:
        given = record.inputs(inputs)
        direct.compile(record.module, given, options, lambda *graph: heard.append(graph), _failing_behind, False)
    except (Error, TorchDynamoException):
        raise
    except Exception as error:
        return f"; but torch's AOTAutograd fails: {type(error).__name__}: {error}"
    sources = runs.sources_of(record.regions)
    record.runs += [runs.of(*graph, sources, measure) for *graph, _ in heard]
    record.plans += [planned() for *_, planned in heard if planned is not None]
    return ""


def _failing_behind(error: Exception, what: str) -> None:
    """What is no failure of AOTAutograd's is raised as ours."""
    if not what.startswith("a match"):
        raise Error(f"{what}: {type(error).__name__}: {error}") from error


def _failing(error: Exception, what: str) -> None:
    """A match that a failure of ours is over is told of like others that are left alone."""
    if what != "a match":
        raise error
