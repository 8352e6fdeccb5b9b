"""`options={"autotune": True}`: a region's kernels and the operations that they replace, timed on this machine.

Both run on made-up tensors of the region's shapes, strides and types; with a backward where the region has one. On a
GPU the time between two events counts, on the CPU the clock's. What was measured is remembered beside the kernels that
the cache directory keeps, by region, shapes, device and build, so that another process measures nothing; processes of
one job that share no directory may decide differently.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._python_dispatch import _disable_current_modes

from .. import locks
from ..counting import count
from ..graph import seeded
from ..graph.decision import Region
from ..graph.nodes import example
from ..graph.traffic import describe, hint
from ..ops import preparation, regions
from ..ops.build import build
from ..ops.library import context
from .unfused import extract

_log = logging.getLogger("cermet")
_lock = locks.lock()
_known: dict[str, Times] = {}
_ROUNDS, _SECONDS = 5, 0.01  # the best of so many rounds, each of about so long


@dataclasses.dataclass(frozen=True)
class Times:
    """Microseconds of one run."""

    ours: float
    unfused: float


def times(module: fx.GraphModule, region: Region) -> Times | None:
    """Of a region that its graph still holds unfused; None where it cannot be measured (no memory, no such graph)."""
    key = _key(region)
    with _lock:
        found = _known.get(key) or _read(key)
        if found is None:
            try:
                found = _measure(module, region)
            except Exception as error:
                _log.info("%s is not timed: %s: %s", region.pattern, type(error).__name__, error)
                return None
            count("timed")
            _write(key, found)
        _known[key] = found
    return found


# --- Measuring -------------------------------------------------------------------------------------------------------


def _measure(module: fx.GraphModule, region: Region) -> Times:
    preparation.prepare((key, region.device) for key in region.keys())
    unfused = extract(module, region)
    for node in unfused.module.graph.nodes:
        if node.target is seeded.dropout:  # which no region would leave to torch's
            seeded.as_torch(node)
    unfused.module.recompile()
    with unset_fake_temporarily(), _disable_current_modes(), torch.set_grad_enabled(region.wanted is not None):
        random = torch.Generator(region.device).manual_seed(0)
        inputs = [_made(node, random) for node in region.operands]
        others = [_made(node, random) for node in unfused.others]
        sizes = [hint(example(node)) for node in unfused.sizes]
        wanted = [tensor for tensor, needed in zip(inputs, region.wanted or ()) if needed]
        for tensor in wanted:
            tensor.requires_grad_()
        op = regions.region_op(len(inputs), len(region.results))

        def ours() -> list[torch.Tensor]:
            made = op(*inputs, region.key)
            return list(made) if isinstance(made, (tuple, list)) else [made]

        run = (ours, lambda: unfused.run(inputs, others, sizes))
        return Times(*(_time(_with_backward(function, wanted), region.device) for function in run))


def calls() -> Callable[[fx.Node], float | None]:
    """Times calls of graphs behind autograd: the microseconds of one, on made-up tensors; None where it cannot be
    measured. Calls of one operation on tensors of one form are timed once."""
    known: dict[str, float | None] = {}

    def taken(node: fx.Node) -> float | None:
        key = f"{node.target} {fx.node.map_arg((node.args, node.kwargs), _form)}"
        if key not in known:
            try:
                known[key] = _call(node)
            except Exception as error:
                _log.info("%s is not timed: %s: %s", node.name, type(error).__name__, error)
                known[key] = None
        return known[key]

    return taken


def _call(node: fx.Node) -> float:
    results = example(node)
    device = (results[0] if isinstance(results, (tuple, list)) else results).device
    with unset_fake_temporarily(), _disable_current_modes(), torch.no_grad():
        random = torch.Generator(device).manual_seed(0)
        made: dict[fx.Node, Any] = {}
        for source in node.all_input_nodes:
            value = example(source)
            made[source] = _made(source, random) if isinstance(value, torch.Tensor) else hint(value)
        args, kwargs = fx.node.map_arg((node.args, node.kwargs), made.__getitem__)
        return _time(lambda: node.target(*args, **kwargs), device)


def _with_backward(function: Callable[[], list[torch.Tensor]], wanted: list[torch.Tensor]) -> Callable[[], Any]:
    if not wanted:
        return function
    with torch.no_grad():
        cotangents = [torch.ones_like(result) for result in function()]

    def run() -> Any:
        made = [(result, cotangent) for result, cotangent in zip(function(), cotangents) if result.requires_grad]
        return torch.autograd.grad([pair[0] for pair in made], wanted, [pair[1] for pair in made], allow_unused=True)

    return run


def _made(node: fx.Node, random: torch.Generator) -> torch.Tensor:
    """A tensor like a traced one: small integers, so that they are labels and rows, and floats around zero."""
    value = example(node)
    shape, strides = [hint(size) for size in value.shape], [hint(stride) for stride in value.stride()]
    tensor = torch.empty_strided(shape, strides, dtype=value.dtype, device=value.device)
    if value.dtype.is_floating_point:
        return tensor.normal_(generator=random)
    return tensor.random_(0, 2, generator=random)


def _time(run: Callable[[], Any], device: torch.device) -> float:
    """The best round's microseconds of one run."""
    clock = _device_clock if device.type == "cuda" else _host_clock
    for _ in range(2):
        run()
    times = max(1, round(_SECONDS / max(clock(run, 1), 1e-6)))
    return 1e6 * min(clock(run, times) / times for _ in range(_ROUNDS))


def _host_clock(run: Callable[[], Any], times: int) -> float:
    began = time.perf_counter()
    for _ in range(times):
        run()
    return time.perf_counter() - began


def _device_clock(run: Callable[[], Any], times: int) -> float:
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    before.record()
    for _ in range(times):
        run()
    after.record()
    after.synchronize()
    return before.elapsed_time(after) / 1e3


# --- Remembering -----------------------------------------------------------------------------------------------------


def _key(region: Region) -> str:
    """All that decides the times, as text."""
    device = torch.cuda.get_device_name(region.device) if region.device.type == "cuda" else f"{region.device.type}"
    tensors = [_form(node) for node in region.operands]
    return "\n".join([build(), torch.__version__, device, str(region.key), str(region.wanted), *tensors])


def _form(node: fx.Node) -> str:
    """Type, shape and strides of a value; of another than a tensor itself."""
    value = example(node)
    if not isinstance(value, torch.Tensor):
        return str(value)
    return f"{describe(value)} {[hint(size) for size in value.shape]} {[hint(stride) for stride in value.stride()]}"


def _file(key: str) -> pathlib.Path | None:
    """Beside what libcermet keeps, wherever that is; None where it keeps nothing."""
    directory = context().cache_directory()
    name = f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
    return pathlib.Path(directory) / "gain" / name if directory else None


def _read(key: str) -> Times | None:
    file = _file(key)
    try:
        kept = json.loads(file.read_text()) if file is not None else {}
        return Times(float(kept["ours"]), float(kept["unfused"])) if kept.get("key") == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(key: str, found: Times) -> None:
    """Published by rename; a failure is logged, no more."""
    file = _file(key)
    if file is None:
        return
    try:
        for folder in (*reversed(file.parent.parents), file.parent):  # `parents=True` would leave those to the umask
            folder.mkdir(mode=0o700, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=".tmp.", delete=False) as part:
            json.dump({"key": key, **dataclasses.asdict(found)}, part)
        os.replace(part.name, file)
    except OSError as error:
        _log.info("a measured time is not kept: %s", error)
