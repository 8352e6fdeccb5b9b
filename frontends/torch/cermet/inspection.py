"""`cermet.explain`: what Cermet would replace in a model, without compiling anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch.fx as fx

from . import environment, pipeline
from .graph.edit import copy_of
from .options import Options
from .record import Settings
from .report import apart
from .report.breaks import GraphBreaks
from .report.explanation import Explanation
from .report.findings import Findings


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
    environment.log()
    found, breaks = Explanation(), GraphBreaks()

    def capture(module: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        found.merge(explained(module, Options("auto", False, {})))
        return module.forward

    apart.run(model, capture, *args, **kwargs)
    found.graph_breaks = breaks.new()
    return found


def explained(module: fx.GraphModule, options: Options) -> Explanation:
    """What the backend would do with a graph, which stays as it is."""
    settings = Settings.of(options, failing=_failing, describe=Findings.of, launched=False)
    record = pipeline.run(copy_of(module), settings, until="release")
    found = record.explanation()
    found.remainders.append(str(record.choice))
    return found


def _failing(error: Exception, what: str) -> None:
    """A match that a failure of ours is over is told of like others that are left alone."""
    if what != "a match":
        raise error
