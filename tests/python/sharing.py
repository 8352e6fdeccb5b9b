"""What each of two processes does with its half of a batch: `pair.Pair` runs these functions."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import unittest.mock
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import cermet
import truth
from cermet import pipeline
from cermet.loss.lazy import Logits
from steps import exact, step
from tiny_models import tiny, words

SMALL_BUCKET = 30_000  # bytes: several for a model of this size, so that DDPOptimizer splits its graph


@dataclasses.dataclass
class Case:
    """How a model is spread over the processes and compiled."""

    spread: str = "ddp"  # "ddp", "ddp inside" (DDP of a compiled model), "fsdp whole", "fsdp blocks" or "fsdp layers"
    options: dict[str, Any] = dataclasses.field(default_factory=lambda: {"remainder": "aot"})
    backend: str = "cermet"  # or "enable": Inductor with cermet.enable()
    checkpointed: bool = False
    logits: bool = False  # differentiates the logits, too
    static_graph: bool = False  # as DDP means it
    bucket: int | None = None  # bytes of gradients that DDP reduces at once; None for its own choice
    cut: bool = True  # whether DDPOptimizer may
    lengths: tuple[int, int] = (16, 16)  # of the two ranks' words
    seeds: int = truth.EVERY_SEED


@dataclasses.dataclass
class Found:
    """One rank's results."""

    ours: dict[str, list[float]]  # errors by tensor, one for each seed; gathered by rank 0 only
    eager: dict[str, list[float]]
    gradients: str  # a digest of all of ours
    plan: list[list[tuple[str, int, tuple[int, ...]]]]  # by graph: each region's pattern, key and what it runs
    counters: dict[str, int]
    breaks: dict[str, dict[str, int]]  # Dynamo's graph breaks by backend
    unmade: bool = False  # whether the compiled model returned logits that nobody had made


def _model(case: Case) -> torch.nn.Module:
    model = tiny("Llama").train()
    if case.checkpointed:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def _spread(case: Case, compiled: Callable[..., Any] | None) -> tuple[torch.nn.Module, Callable[..., Any]]:
    """The module that has the parameters, and what to call. `compiled` is torch.compile with a backend, or None."""
    model = _model(case)
    wrap = compiled or (lambda module: module)
    settings: dict[str, Any] = {"static_graph": case.static_graph}
    if case.bucket:
        settings["bucket_cap_mb"] = case.bucket / 2**20
        dist._DEFAULT_FIRST_BUCKET_BYTES = case.bucket
    if case.spread == "ddp":
        return model, wrap(DistributedDataParallel(model, **settings))
    if case.spread == "ddp inside":
        return model, DistributedDataParallel(wrap(model), **settings)
    if case.spread == "fsdp layers":  # each layer compiled alone, as regional compilation does
        for layer in model.model.layers:
            if compiled:
                layer.forward = compiled(layer.forward)
            fully_shard(layer)
        return model, fully_shard(model)
    if case.spread == "fsdp blocks":
        for layer in model.model.layers:
            fully_shard(layer)
    return model, wrap(fully_shard(model))


def _share(text: torch.Tensor) -> torch.Tensor:
    rank = dist.get_rank()
    return text[rank : rank + 1]


def _step(case: Case, model: torch.nn.Module, call: Callable[..., Any], text: torch.Tensor) -> dict[str, torch.Tensor]:
    """`steps.step` of all ranks' rows: the mean of the losses, the whole gradients."""
    if case.logits:
        model.zero_grad(set_to_none=True)
        output = call(input_ids=text, labels=text)
        (output.loss + output.logits.square().mean()).backward()
        values = {"loss": output.loss.detach()} | {name: value.grad for name, value in model.named_parameters()}
    else:
        values = step(call, model, text)
    values = {name: getattr(value, "full_tensor", lambda: value)().clone() for name, value in values.items()}
    dist.all_reduce(values["loss"])
    values["loss"] /= dist.get_world_size()
    return values


def _exact(case: Case, texts: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """The mean over the ranks' rows in one process, in float64."""
    model = _model(case)
    shares = []
    for text in texts:
        if case.logits:
            wide = truth.double(model)
            with truth.Float64():
                output = wide(input_ids=text, labels=text)
                (output.loss + output.logits.square().mean()).backward()
            shares.append({"loss": output.loss.detach()} | {n: value.grad for n, value in wide.named_parameters()})
        else:
            shares.append(exact(model, text))
    return {name: torch.stack([share[name] for share in shares]).mean(0) for name in shares[0]}


@contextlib.contextmanager
def _recorded_plan() -> Iterator[list[list[tuple[str, int, tuple[int, ...]]]]]:
    plan = []
    tally = pipeline.tally

    def recorded(record: Any) -> None:
        plan.append([(region.pattern, region.key, region.keys()) for region in record.regions])
        tally(record)

    with unittest.mock.patch.object(pipeline, "tally", recorded):
        yield plan


def accumulate(case: Case) -> Found:
    """Gradients over three batches of which only the last is synchronised, as Accelerate's `accumulate` does."""
    batches = [words(2, seed=seed) for seed in range(3)]
    before = cermet.counters()
    compiled = lambda module: torch.compile(module, backend="cermet", options=case.options)
    results = []
    with _recorded_plan() as plan:
        for wrap in (compiled, None):
            model, call = _spread(dataclasses.replace(case, spread="ddp inside"), wrap)
            for index, text in enumerate(batches):
                with contextlib.nullcontext() if index == 2 else call.no_sync():
                    (call(input_ids=_share(text), labels=_share(text)).loss / len(batches)).backward()
            results.append({name: value.grad for name, value in model.named_parameters()})
            if wrap is not None:
                after = cermet.counters()
    parts = [_exact(case, [text[row : row + 1] for row in range(2)]) for text in batches]
    true = {name: torch.stack([part[name] for part in parts]).mean(0) for name in results[0]}
    ours, eager = ({name: [truth.relative(found[name], true[name])] for name in found} for found in results)
    counters = {name: after[name] - before[name] for name in after}
    return Found(ours, eager, _digest([results[0]]), plan, counters, {})


def _digest(steps: list[dict[str, torch.Tensor]]) -> str:
    digest = hashlib.sha256()
    for values in steps:
        for name in sorted(values):
            digest.update(values[name].numpy().tobytes())
    return digest.hexdigest()


def _breaks() -> dict[str, int]:
    found = torch._dynamo.utils.counters["graph_break"]
    return {reason.splitlines()[0]: times for reason, times in found.items()}


def train(case: Case) -> Found:
    """Steps of a compiled model beside those of the same model eager, both spread as the case says."""
    if case.backend == "enable":
        cermet.enable()
        compiled = lambda module: torch.compile(module, backend="inductor")
    else:
        compiled = lambda module: torch.compile(module, backend="cermet", options=case.options)
    before = cermet.counters()
    rank, length = dist.get_rank(), max(case.lengths)
    batches = [words(2, length, seed=seed) for seed in range(case.seeds)]
    shares = [[text[row : row + 1, : case.lengths[row]] for row in range(2)] for text in batches]
    try:
        with _recorded_plan() as plan, torch._dynamo.config.patch(optimize_ddp=case.cut):
            model, call = _spread(case, compiled)
            ours = [_step(case, model, call, share[rank]) for share in shares]
            again = {"input_ids": shares[0][rank], "labels": shares[0][rank]}
            unmade = case.bucket is not None and isinstance(call(**again).logits, Logits)
        breaks = {"cermet": _breaks()}
        after = cermet.counters()
    finally:
        cermet.disable()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    traced = dataclasses.replace(case, seeds=1)
    model, call = _spread(traced, lambda module: torch.compile(module, backend="aot_eager"))
    _step(case, model, call, shares[0][rank])
    breaks["aot_eager"] = _breaks()
    torch._dynamo.reset()
    model, call = _spread(case, None)
    eager = [_step(case, model, call, share[rank]) for share in shares]
    found: tuple[dict[str, list[float]], dict[str, list[float]]] = {}, {}
    if rank == 0:
        for mine, theirs, share in zip(ours, eager, shares):
            true = _exact(case, share)
            for errors, values in zip(found, (mine, theirs)):
                for name, value in values.items():
                    errors.setdefault(name, []).append(truth.relative(value, true[name]))
    counters = {name: after[name] - before[name] for name in after}
    return Found(*found, _digest(ours), plan, counters, breaks, unmade)
