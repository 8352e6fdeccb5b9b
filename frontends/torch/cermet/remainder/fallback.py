"""Graphs that Inductor gets from Cermet and does not compile run by direct calls, instead of ending the program.

A graph that fails when it is handed over goes to `aot`, from a copy that was made before. A backward that fails when it
is first called has a forward of Inductor's by then; it runs as it is, ATen called directly (straight.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch.fx as fx
from torch._dynamo.exc import BackendCompilerFailed, TorchDynamoException

from ..counting import count
from ..options import Options
from . import direct, inductor_calls

_log = logging.getLogger("cermet")
_warned = False


def compile(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    options: Options,
    keyed: Callable[[str, Options], AbstractContextManager[None]],
) -> tuple[Callable[..., Any], str]:
    """The callable of a graph at the Dynamo level, and what Inductor said where it failed. Raises that where strict,
    and where direct calls fail, too: it is then the program's. `keyed`: what torch's caches call a graph."""
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    from ..graph.edit import copy_of

    inductor_calls.lower_in_inductor()
    as_it_is = options.strict or options.cuda_graphs  # a recorded forward needs a backward of Inductor's
    inner = compile_fx_inner if as_it_is else _backwards_too(compile_fx_inner)
    copy = None if options.strict else copy_of(module)
    try:
        with keyed("inductor", options):
            patches = options.inductor
            return compile_fx(module, list(example_inputs), inner_compile=inner, config_patches=patches), ""
    except Exception as error:
        if copy is None or not _is_failure(error):
            raise
        try:
            with keyed("aot", options):
                compiled = direct.compile(copy, example_inputs, options)
        except Exception:
            raise error from None
        _tell("a graph", error)
        return compiled, _said(error)


def _is_failure(error: Exception) -> bool:
    """Whether an exception says that compiling failed, rather than that Dynamo is to trace in another way."""
    return isinstance(error, BackendCompilerFailed) or not isinstance(error, TorchDynamoException)


def _backwards_too(compile_inner: Callable[..., Any]) -> Callable[..., Any]:
    """Inductor's compiling of one graph of AOTAutograd's, which for a backward does not fail."""
    from ..graph.edit import copied
    from .straight import StraightLine

    def inner(graph: fx.GraphModule, example_inputs: Sequence[Any], **settings: Any) -> Any:
        if not settings.get("is_backward", False):
            return compile_inner(graph, example_inputs, **settings)
        copy = fx.GraphModule(graph, copied(graph.graph))
        try:
            return compile_inner(graph, example_inputs, **settings)
        except Exception as error:
            if not _is_failure(error):
                raise
            _tell("the backward of a graph", error)
            return StraightLine(copy, refuses_grad=direct.LOSES_GRAD)

    return inner


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _tell(what: str, error: Exception) -> None:
    global _warned
    count("inductor_failures")
    level = logging.DEBUG if _warned else logging.WARNING
    _log.log(
        level,
        "%s runs by direct calls because Inductor did not compile it: %s (further ones are counted in "
        'cermet.counters()["inductor_failures"]; options={"strict": True} raises them)',
        what,
        _said(error),
        exc_info=_log.isEnabledFor(logging.DEBUG),
    )
    _warned = True
