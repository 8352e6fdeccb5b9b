"""Tracing a model with Dynamo beside whatever is compiled of it, which stays as it is.

Dynamo keeps what it compiles on code objects. So the model's outermost function runs from a copy of its code; frames
that Dynamo enters behind a graph break are forgotten again where nobody else had them compiled, and have entries of
their own where somebody had (under torch that isolates them; before, among the others', which no other backend takes).
"""

from __future__ import annotations

import collections
import contextlib
import inspect
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._dynamo import convert_frame, eval_frame, pgo
from torch._dynamo.exc import BackendCompilerFailed

from ..errors import Error
from ..messages import said_while_traced

_LIMITS = ("recompile_limit", "accumulated_recompile_limit")  # those of who compiled a frame before
_PROFILES = ("automatic_dynamic_local_pgo", "automatic_dynamic_remote_pgo")


def run(model: Callable[..., Any], backend: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Calls a model, compiled or not, as compiled by `backend`, which Dynamo gives each graph. A cermet.Error of the
    backend's is raised as itself."""
    said_while_traced()
    known = inspect.signature(torch.compile).parameters
    isolated = {name: True for name in ("isolate_recompiles",) if name in known}
    with random_numbers_kept(), _frames_forgotten(), _uncompiled(model) as call:
        try:
            torch.compile(call, backend=backend, **isolated)(*args, **kwargs)
        except BackendCompilerFailed as error:
            if isinstance(error.inner_exception, Error):
                raise error.inner_exception from None
            raise


@contextlib.contextmanager
def random_numbers_kept() -> Iterator[None]:
    """Puts back the generators of torch (of the CPU and of each CUDA device), of `random` and of numpy."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    numpy, state = sys.modules.get("numpy"), random.getstate()
    theirs = numpy.random.get_state() if numpy is not None else None
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            random.setstate(state)
            if numpy is not None:
                numpy.random.set_state(theirs)


@contextlib.contextmanager
def _frames_forgotten() -> Iterator[None]:
    """Forgets what is compiled meanwhile of frames that nobody had compiled, and the sizes that were seen."""
    frames, config = convert_frame.input_codes, torch._dynamo.config
    before = {id(code): code for reference in frames.seen if (code := reference()) is not None}
    sizes = pgo._CODE_STATE, pgo._INIT_CODE_STATE
    pgo._CODE_STATE, pgo._INIT_CODE_STATE = collections.defaultdict(pgo.CodeState), None
    changes = dict.fromkeys(_LIMITS, sys.maxsize) | {name: False for name in _PROFILES if hasattr(config, name)}
    try:
        with config.patch(changes):
            yield
    finally:
        pgo._CODE_STATE, pgo._INIT_CODE_STATE = sizes
        with convert_frame.compile_lock:
            fresh = [code for reference in frames.seen if id(code := reference()) not in before and code is not None]
            frames.seen[:] = [reference for reference in frames.seen if id(reference()) in before]
            for code in fresh:
                frames.seen_ids.discard(id(code))
                eval_frame.reset_code(code)


@contextlib.contextmanager
def _uncompiled(model: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """The model as it was before anybody compiled it, its outermost function with code of its own."""
    while isinstance(model, eval_frame.OptimizedModule):
        model = model._orig_mod
    if not isinstance(model, torch.nn.Module):
        yield _copied(eval_frame.innermost_fn(model))
        return
    with contextlib.ExitStack() as undo:
        for part in model.modules():
            if isinstance(part, eval_frame.OptimizedModule):
                undo.enter_context(_attribute(part, "forward", part._orig_mod.__call__))
            if part.__dict__.get("_compiled_call_impl") is not None:
                undo.enter_context(_attribute(part, "_compiled_call_impl", None))
        undo.enter_context(_attribute(model, "forward", _copied(model.forward)))
        undo.enter_context(_attribute(model, "_is_torch_compile", True))  # a mark that torch would leave
        yield model


@contextlib.contextmanager
def _attribute(module: torch.nn.Module, name: str, value: Any) -> Iterator[None]:
    """An attribute of a module's own, for a while."""
    there, before = name in module.__dict__, module.__dict__.get(name)
    module.__dict__[name] = value
    try:
        yield
    finally:
        module.__dict__.pop(name, None)
        if there:
            module.__dict__[name] = before


def _copied(call: Callable[..., Any]) -> Callable[..., Any]:
    """A function or method with a code object of its own; anything else as it is."""
    if isinstance(call, types.MethodType):
        return types.MethodType(_copied(call.__func__), call.__self__)
    if not isinstance(call, types.FunctionType):
        return call
    code, closure = call.__code__.replace(), call.__closure__
    copy = types.FunctionType(code, call.__globals__, call.__name__, call.__defaults__, closure)
    copy.__kwdefaults__, copy.__dict__ = call.__kwdefaults__, dict(call.__dict__)
    return copy
