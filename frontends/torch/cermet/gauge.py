"""`cermet.memory`: what a training step holds at its most, before it runs.

The model is traced without numbers, on copies of its tensors that have no memory, and taken through all that the
backend would do with it; what lives at each call of the graphs that would run is then a sum
(rematerialization/liveness.py). Which variant a mask's numbers would choose is not known: it is the graph with the mask.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map_only

from . import environment
from .errors import Error
from .failures import failing
from .garbage import uncollected
from .graph.memory import memories
from .graph.nodes import example
from .inspection import rewritten
from .options import bytes_of, parse
from .records import Settings
from .rematerialization import liveness
from .rematerialization.liveness import Held, Peak, Step
from .remainder import direct
from .report import apart

_ORDER = (liveness.WEIGHT, liveness.GRADIENT, liveness.SAVED, liveness.TRANSIENT, liveness.INPUT, liveness.RESULT)
_NAMES = {
    liveness.WEIGHT: "weights",
    liveness.GRADIENT: "gradients",
    liveness.SAVED: "saved for the backward",
    liveness.TRANSIENT: "transient",
    liveness.INPUT: "inputs",
    liveness.RESULT: "results",
}
_LISTED = 12  # lines of saved and of transient values
_TRIES = 6  # traces to find a batch


@dataclasses.dataclass(frozen=True)
class Memory:
    """What is held while a step takes the most, in bytes of the device that the model is on; `str()` is a table.

    Optimizer states, what a CUDA context and its libraries take, and what runs outside of the traced graphs is not in
    it. `largest_batch` is of the first dimension of the inputs, and None where no room was given.
    """

    peak: Peak
    batch: int | None
    room: int | None
    largest_batch: int | None
    measured: int | None  # of a step that ran

    @property
    def planned(self) -> int:
        return self.peak.bytes

    def __str__(self) -> str:
        head = f"{_gigabytes(self.planned)} at the most, while {self.peak.call} runs"
        if self.measured is not None:
            head += f"; measured {_gigabytes(self.measured)}"
        lines = [head]
        for kind in _ORDER:
            part = self.peak.of(kind)
            lines.append(f"  {_NAMES[kind]:<24}{_gigabytes(part):>12}{part / max(self.planned, 1):8.1%}")
        for kind in (liveness.SAVED, liveness.TRANSIENT):
            rows = list(_grouped(self.peak, kind))
            if rows:
                lines += ["", f"{_NAMES[kind]}, the most first"]
                lines += [_line(held, times) for held, times in rows[:_LISTED]]
            if len(rows) > _LISTED:
                rest = sum(held.bytes * times for held, times in rows[_LISTED:])
                lines.append(f"  {_gigabytes(rest):>12}  in {len(rows) - _LISTED} other kinds of values")
        if self.room is not None:
            lines += ["", f"{_gigabytes(self.room)} hold a batch of {self.largest_batch}; planned was {self.batch}"]
        return "\n".join(lines)


def memory(
    model: torch.nn.Module,
    *args: Any,
    room: int | str | None = None,
    options: dict[str, Any] | None = None,
    measure: bool = False,
    **kwargs: Any,
) -> Memory:
    """Says what a step of `torch.compile(model, backend="cermet", options=options)` would hold, without running it.

    Args:
        model: a module; it and its gradients stay as they are. What of it is on `meta` is planned where its other
            tensors and the inputs are; where all are on `meta`, on a GPU if torch can use one, else on the CPU.
        args, kwargs: what it is called with, in the gradient mode and with the `model.training` of the caller.
        room: bytes, or a text like "80GB", that a step may take: what the device has, less an optimizer's states. Finds
            the largest batch for it, which takes some more traces.
        options: of the backend; `memory` may not be a size.
        measure: also run a forward and a backward and say what that took, of CUDA's allocator, or on a CPU of torch's.

    Raises:
        cermet.Error: a graph of the model would not run by direct calls; the room is no size; there is no batch of it;
            what is on `meta` is to be measured.
    """
    environment.log()
    if isinstance(parse(None, options).memory, int):
        raise Error(f"option memory is {options['memory']!r}, expected a name: its size is what is asked for here")
    if measure and _on_meta(_held(model, args, kwargs)):
        raise Error("measure is given, but a tensor of the model or of its inputs is on meta, expected one with memory")
    try:
        limit = None if room is None else bytes_of(room)
    except ValueError as error:
        raise Error(f"room: {error}") from None
    peak = _planned(model, args, kwargs, options)
    batch = _batch(args, kwargs)
    if limit is not None and batch is None:
        raise Error("room is given, but no input has a first dimension, expected one: the batch")
    largest = None
    if limit is not None:

        def of_batch(size: int) -> int:
            return _planned(model, *_resized(args, kwargs, batch, size), options).bytes

        largest = _largest(of_batch, batch, peak.bytes, limit)
    measured = _measured(model, args, kwargs, options) if measure else None
    return Memory(peak, batch, limit, largest, measured)


# --- Planning --------------------------------------------------------------------------------------------------------


@uncollected()
def _planned(model: torch.nn.Module, args: Any, kwargs: Any, options: dict[str, Any] | None) -> Peak:
    given = parse(None, options)
    settings = Settings.of(given, failing=failing(strict=True), launched=False)
    steps: list[Step] = []

    def capture(module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        weights = {place for place, node in enumerate(_inputs(module)) if isinstance(example(node), torch.nn.Parameter)}
        record = rewritten(module, inputs, settings)
        if record.choice.remainder != "aot":
            raise Error(f"{record.choice}; expected a graph that direct calls run: nothing is planned of others")
        graphs: list[fx.GraphModule] = []
        fakes = record.inputs(inputs)
        direct.compile(record.module, fakes, given, lambda _, graph, *__: graphs.append(graph), settings.failing, False)
        steps.append(liveness.step(*graphs, weights=weights))
        return module.forward

    mode = FakeTensorMode()
    with FakeCopyMode(mode):
        shadow = copy.deepcopy(model)
    args, kwargs = tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
    with mode:
        args, kwargs = _placed(shadow, args, kwargs)
        apart.run(shadow, capture, *args, **kwargs)
    return _together(steps, _weights(shadow))


def _placed(shadow: torch.nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Moves what is on `meta`, where nothing runs, to where it will: where the other tensors are, else to a GPU if
    torch can use one. A copied model's in place; returns the inputs."""
    leaves = _held(shadow, args, kwargs)
    if not _on_meta(leaves):
        return args, kwargs
    there = [value.device for value in leaves if value.device.type != "meta" and value.dim()]
    device = there[0] if there else torch.device("cuda" if torch.cuda.is_available() else "cpu")
    moved: dict[int, torch.Tensor] = {}  # tied ones stay tied

    def place(value: torch.Tensor) -> torch.Tensor:
        if value.device.type != "meta":
            return value
        if id(value) not in moved:
            made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
            if isinstance(value, torch.nn.Parameter):
                made = torch.nn.Parameter(made, value.requires_grad)
            moved[id(value)] = made.requires_grad_(value.requires_grad)
        return moved[id(value)]

    for module in shadow.modules():
        for owned in (module._parameters, module._buffers):
            owned.update({name: place(value) for name, value in owned.items() if value is not None})
    return tree_map_only(torch.Tensor, place, (args, kwargs))


def _on_meta(leaves: Sequence[torch.Tensor]) -> bool:
    return any(value.device.type == "meta" for value in leaves)


def _inputs(module: fx.GraphModule) -> list[fx.Node]:
    return [node for node in module.graph.nodes if node.op == "placeholder"]


def _weights(model: torch.nn.Module) -> list[Held]:
    """All of a model's, each memory once, those too that no graph reads: what runs outside of them does."""
    found = {frozenset(memories(each)): liveness.weight(name, each) for name, each in model.named_parameters()}
    return list(found.values())


def _together(steps: Sequence[Step], weights: Sequence[Held]) -> Peak:
    """Of graphs that run one after another, and their backwards in the other order, beside a model's weights."""
    peaks = [Peak(sum(each.bytes for each in weights), "", tuple(weights))]
    for place, step in enumerate(steps):
        beside = [held for other in steps[:place] for held in (*other.inputs, *other.saved)]
        if step.peak.of(liveness.GRADIENT):
            beside += [held for other in steps[place + 1 :] for held in other.gradients]
        there = [each for each in (*step.peak.held, *beside) if each.kind != liveness.WEIGHT]
        held = sorted((*weights, *there), key=lambda each: -each.bytes)
        peaks.append(Peak(sum(each.bytes for each in held), step.peak.call, tuple(held)))
    return max(peaks, key=lambda peak: peak.bytes)


# --- The largest batch -----------------------------------------------------------------------------------------------


def _batch(args: Any, kwargs: Any) -> int | None:
    sizes = [value.shape[0] for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor) and value.dim()]
    return int(sizes[0]) if sizes else None


def _resized(args: Any, kwargs: Any, batch: int, size: int) -> tuple[Any, Any]:
    """Inputs whose first dimension is another."""

    def resized(value: torch.Tensor) -> torch.Tensor:
        if not value.dim() or value.shape[0] != batch:
            return value
        return torch.empty((1, *value.shape[1:]), dtype=value.dtype, device=value.device).expand(size, *value.shape[1:])

    return tree_map_only(torch.Tensor, resized, (args, kwargs))


def _largest(planned: Callable[[int], int], batch: int, bytes_of_batch: int, room: int) -> int:
    """The largest batch that is planned within a room: what is held grows in proportion to it, but for steps."""
    known = {batch: bytes_of_batch}
    low, high = 0, None  # the largest that is known to fit, and the least that is known not to
    size = batch * 2
    for _ in range(_TRIES):
        if size not in known:
            known[size] = planned(size)
        low = max((each for each, taken in known.items() if taken <= room), default=0)
        high = min((each for each, taken in known.items() if taken > room), default=None)
        if high is not None and high - low <= 1:
            break
        (less, of_less), (more, of_more) = sorted(known.items())[:: max(len(known) - 1, 1)]
        each = max((of_more - of_less) / (more - less), 1.0)
        size = int((room - of_less) / each) + less
        size = max(size, low + 1) if high is None else min(max(size, low + 1), high - 1)
    return low


# --- Measuring -------------------------------------------------------------------------------------------------------


def _measured(model: torch.nn.Module, args: Any, kwargs: Any, options: dict[str, Any] | None) -> int:
    """Of the second of two steps: the first one compiles."""
    call = torch.compile(model, backend="cermet", options=options)
    device = next((value.device for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)), None)
    _run(call, model, args, kwargs)
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        _run(call, model, args, kwargs)
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device)
    there = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in _held(model, args, kwargs)}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        _run(call, model, args, kwargs)
    now = most = 0
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most + sum(there.values())


def _held(model: torch.nn.Module, args: Any, kwargs: Any) -> list[torch.Tensor]:
    leaves = [*model.parameters(), *model.buffers(), *tree_leaves((args, kwargs))]
    return [value for value in leaves if isinstance(value, torch.Tensor)]


def _run(call: Callable[..., Any], model: torch.nn.Module, args: Any, kwargs: Any) -> None:
    """A forward, and the backward of what it returns; no parameter gets a gradient from it."""
    with apart.random_numbers_kept():
        results = call(*args, **kwargs)
        loss = getattr(results, "loss", None)
        values = tree_leaves(results) if loss is None else [loss]
        wanted = [each for each in values if isinstance(each, torch.Tensor) and each.requires_grad]
        parameters = [each for each in model.parameters() if each.requires_grad]
        if wanted and parameters:
            torch.autograd.grad(wanted, parameters, [torch.ones_like(each) for each in wanted], allow_unused=True)


# --- Telling ---------------------------------------------------------------------------------------------------------


def _grouped(peak: Peak, kind: str) -> Iterator[tuple[Held, int]]:
    """Equal values and how many there are, the most bytes first."""
    counted = collections.Counter(held for held in peak.held if held.kind == kind)
    yield from sorted(counted.items(), key=lambda item: -item[0].bytes * item[1])


def _line(held: Held, times: int) -> str:
    path, line, code = (*held.source.split(":", 2), "", "")[:3]
    where = f"{os.path.basename(path)}:{line}:{code}" if held.source else held.made_by
    return f"  {_gigabytes(held.bytes * times):>12}  {times:>4} × {held.value}  {where}"


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.3f} GB" if size >= 1e7 else f"{size / 1e6:.3f} MB"
