"""Everything that a process will ask of libcermet about a model, on a device that need not be here, as a pack.

The model is traced without numbers, on fake tensors of the device, and taken through all that the backend does with it;
kernels are compiled and not loaded. So what is asked is what a process with that device asks (targets/).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch._subclasses.fake_tensor import FakeTensorMode

from .. import recording
from ..counting import snapshot
from ..errors import Error
from ..garbage import uncollected
from ..ops import op_library, regions
from ..options import parse
from ..recording import Recording
from ..targets import devices
from ..targets.stand_in import standing_in
from ..targets.target import Target
from . import models
from .shapes import Call, Input, calls

TRAIN, EVALUATE, INFER = STEPS = ("train", "evaluate", "infer")
LABELS, LIKE = "labels", "input_ids"


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What a pack shall serve.

    `steps`: some of STEPS. All but INFER have labels, made like `input_ids` where no shape names them; EVALUATE is left
    out where there are none. `autocast`: the type of an autocast around each call. `options`: the backend's.
    """

    shapes: Sequence[tuple[Input, ...]]
    targets: Sequence[Target]
    steps: Sequence[str] = STEPS
    autocast: torch.dtype | None = None
    options: dict[str, Any] | None = None


def capture(
    make: Callable[[], Any], wanted: Wanted, path: str | os.PathLike[str], told: Callable[[str, int, int], None]
) -> Recording:
    """Writes the pack of a model that `make` returns. `told` hears what is traced next, its number and how many there
    are. Raises cermet.Error."""
    if parse(None, wanted.options).autotune:
        raise Error("option autotune is True, expected False: it times kernels on the device, which is not here")
    traces = [(call, step) for shape in wanted.shapes for call in calls(shape) for step in wanted.steps]
    all, done, fallbacks = len(wanted.targets) * len(traces), 0, snapshot()["fallbacks"]
    with recording.record(path) as recorded:
        for target in wanted.targets:
            regions.forget()
            with standing_in(target, op_library.stand_in_for_cuda), devices.capturing(target):
                mode = FakeTensorMode()
                model = models.made(make, mode, torch.device(target.device))
                for call, step in traces:
                    told(f"{target.name}, {step}, {call}", done, all)
                    if step != EVALUATE or _with_labels(model, call):
                        _trace(model, mode, target, call, step, wanted)
                    done += 1
    recorded.fallbacks = snapshot()["fallbacks"] - fallbacks
    return recorded


@uncollected()
def _trace(model: Any, mode: FakeTensorMode, target: Target, call: Call, step: str, wanted: Wanted) -> None:
    torch._dynamo.reset()  # each as a process does that begins with it
    training = step == TRAIN
    with mode, contextlib.ExitStack() as state:
        inputs = _inputs(model, torch.device(target.device), call, step)
        if wanted.autocast is not None:
            state.enter_context(torch.autocast(target.device, wanted.autocast))
        state.enter_context(torch.set_grad_enabled(training))
        compiled = torch.compile(model.train(training), backend="cermet", options=wanted.options)
        try:
            compiled(**inputs)
        except Exception as error:
            inner = error.inner_exception if isinstance(error, BackendCompilerFailed) else error
            if isinstance(inner, Error):
                raise Error(f"{target.name}, {step}, {call}: {inner}") from error
            instead = "; where it reads a number that it computes, capture it on such a device by cermet.record()"
            raise Error(
                f"{target.name}, {step}, {call}: the model cannot be called without numbers: "
                f"{type(inner).__name__}: {inner}{instead}"
            ) from error


def _with_labels(model: Any, call: Call) -> bool:
    return LABELS in call.sizes or LIKE in call.sizes and models.takes(model, LABELS)


def _inputs(model: Any, device: torch.device, call: Call, step: str) -> dict[str, torch.Tensor]:
    made: dict[str, torch.Tensor] = {}
    names = dict(call.sizes)
    if step == INFER:
        names.pop(LABELS, None)
    elif LABELS not in names and _with_labels(model, call):
        names[LABELS] = names[LIKE]
    for name, sizes in names.items():
        given = call.inputs.get(name)
        if not models.takes(model, name) and not models.takes_any(model):
            raise Error(f"shapes name {name!r}, which the model does not take")
        if given is not None and given.same:
            made[name] = made[given.same]
            continue
        dtype = torch.int64 if given is None else given.dtype or models.dtype_of(model)
        made[name] = torch.zeros([size.number for size in sizes], dtype=dtype, device=device)
        for place, size in enumerate(sizes):
            if size.symbolic:
                torch._dynamo.mark_dynamic(made[name], place)
    return made
