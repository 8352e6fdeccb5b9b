"""The TorchDynamo backend: `torch.compile(model, backend="cermet")`, found by its entry point without an import.

Sequences that Cermet knows are replaced in the Dynamo graph, before autograd; what remains goes on as `remainder` says.
"""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from . import edges, preparing, replacement, reporting, rewriter
from .counting import count
from .errors import Error
from .explanation import Explanation
from .logits import Returned
from .replacement import Replaced

_log = logging.getLogger("cermet")
_warned = False
REMAINDERS = ("inductor", "aot", "eager")
# What `rewrite` has had, so that no pass of ours looks again. Not in `meta`: what DDPOptimizer splits shares one.
_rewritten: weakref.WeakSet[fx.GraphModule] = weakref.WeakSet()


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
        options: `remainder`, who runs what is not replaced: "inductor" (default), "aot" (AOTAutograd, ATen called
            directly) or "eager"; `strict`, whether a failure of Cermet's raises (by default only under CERMET_STRICT=1:
            the graph is left as it was, a warning is logged once and `cermet.counters()["fallbacks"]` counts it);
            `mode`, as above; every other key is an Inductor option.

    Raises:
        cermet.Error: an unknown option, mode or remainder, or, if strict, what went wrong.
    """
    settings = dict(options or {})
    strict = bool(settings.pop("strict", strict_by_default()))
    remainder = settings.pop("remainder", "inductor")
    mode = settings.pop("mode", mode)
    if remainder not in REMAINDERS:
        raise Error(f"option remainder is {remainder!r}, expected one of {', '.join(map(repr, REMAINDERS))}")
    patches = _inductor_options(mode, settings, remainder)
    found, where = Explanation(graphs=1), reporting.destination()
    returned = Returned.EAGER if remainder == "eager" else Returned.EDGE
    outputs = edges.outputs(gm)
    done = rewrite(gm, strict, remainder != "eager", found if where else None, returned)
    if where:
        reporting.report(found, where)
    return edges.attach(_remainder(gm, example_inputs, remainder, patches), done.edges, outputs)


def _remainder(
    gm: fx.GraphModule, example_inputs: Sequence[Any], remainder: str, patches: dict[str, Any]
) -> Callable[..., Any]:
    if remainder == "eager":
        return gm.forward
    if remainder == "aot":
        return _aot(gm, example_inputs)
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(gm, list(example_inputs), config_patches=patches)


def strict_by_default() -> bool:
    """CERMET_STRICT (docs/environment.md)."""
    value = os.environ.get("CERMET_STRICT", "0")
    if value not in ("0", "1"):
        raise Error(f"CERMET_STRICT is {value!r}, expected 0 or 1")
    return value == "1"


def rewrite(
    gm: fx.GraphModule,
    strict: bool = False,
    functional: bool = True,
    found: Explanation | None = None,
    returned: Returned = Returned.DECLINED,
) -> Replaced:
    """Replaces what matches in a graph and in the bodies of its higher-order operators; returns what was replaced.

    `functional`: what remains runs through AOTAutograd (rewriter.decide). If Cermet fails, the graph is left as it
    was; if strict, the error is raised. `found` receives what was replaced, and what was not. `returned`: what becomes
    of logits that `gm` returns; with Returned.EDGE the caller attaches the edges in the answer (edges.attach).
    """
    count("graphs")
    _rewritten.add(gm)
    done = Replaced([], [], [])

    def failed(error: Exception) -> None:
        if strict:
            raise error
        _fall_back(error)
        if found is not None:
            found.failures.append(f"{type(error).__name__}: {error}")

    decisions = []
    for module in rewriter.modules(gm):
        try:
            decisions.append(rewriter.decide(module, functional, returned if module is gm else Returned.DECLINED))
        except Exception as error:
            failed(error)
    with contextlib.suppress(Exception):  # all graphs at once; whose fault it was is found below
        preparing.prepare(_keys(decisions))
    for decision in decisions:
        try:
            preparing.prepare(_keys([decision]))
            part = None if found is None else reporting.describe(decision)
            replaced = replacement.apply(decision)
        except Exception as error:
            failed(error)
            continue
        if found is not None and part is not None:
            part.decline(replaced.near_misses)
            found.merge(part)
        done.regions += replaced.regions
        done.near_misses += [*decision.near_misses, *replaced.near_misses]
        done.edges += replaced.edges
    count("regions", len(done.regions))
    count("near_misses", len(done.near_misses))
    for near_miss in done.near_misses:
        _log.info("near miss: %s", near_miss)
    return done


def rewritten(gm: fx.GraphModule) -> bool:
    """Whether `rewrite` has had this graph."""
    return gm in _rewritten


def _keys(decisions: Sequence[rewriter.Decision]) -> list[tuple[int, torch.device]]:
    """What the regions will run, on which devices."""
    return [(key, region.device) for decision in decisions for region in decision.regions for key in region.keys()]


def _fall_back(error: Exception) -> None:
    global _warned
    count("fallbacks")
    level = logging.DEBUG if _warned else logging.WARNING
    _log.log(
        level,
        "a graph is left as it was because Cermet failed: %s: %s (further failures are counted in "
        'cermet.counters()["fallbacks"]; options={"strict": True} raises them)',
        type(error).__name__,
        error,
        exc_info=_log.isEnabledFor(logging.DEBUG),
    )
    _warned = True


def _inductor_options(mode: str | None, options: dict[str, Any], remainder: str) -> dict[str, Any]:
    """A mode's options and the given ones, as Inductor's config patches."""
    if remainder != "inductor":
        if options:
            raise Error(
                f"option {next(iter(options))!r} is Inductor's, but the remainder is {remainder!r}; expected only "
                "'remainder' and 'strict'"
            )
        return {}
    import torch._inductor
    from torch._inductor import config

    patches: dict[str, Any] = {}
    if mode not in (None, "default"):
        modes = torch._inductor.list_mode_options()
        if mode not in modes:
            raise Error(f"mode is {mode!r}, expected one of {', '.join(map(repr, modes))}")
        patches.update(modes[mode])
    known = config.get_config_copy()
    for key, value in options.items():
        name = key.replace("-", "_")
        if name not in known:
            raise Error(f"unknown option {key!r}, expected 'remainder', 'strict', 'mode' or an option of Inductor's")
        patches[name] = value
    return patches


def _aot(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """AOTAutograd with the min-cut partitioner; both graphs run as they are, ATen and our ops called directly."""
    from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
    from torch._dynamo.backends.common import aot_autograd

    def run(graph: fx.GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=run, bw_compiler=run, partition_fn=min_cut_rematerialization_partition)
    return backend(gm, list(example_inputs))
