"""Losses of a linear head whose logits come in pieces, and what tests of them share."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import graphs
from cermet import options, pipeline
from cermet.records import Settings
from heads import HIDDEN, VOCABULARY, dead, loss_of

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])


def rows_of(rows: int, dtype=torch.float32, columns: int = VOCABULARY) -> int:
    """The budget of so many rows of logits."""
    return rows * columns * torch.empty((), dtype=dtype).element_size()


def compiled(function, budget: int, remainder: str = "aot", **others):
    return graphs.compiled(function, remainder, logits_bytes=budget, **others)


def heads_of(function, *arguments, budget: int = rows_of(1)) -> list[tuple[str, int]]:
    """Its heads with the rows of a piece."""
    module = graphs.trace(function, *arguments)
    pipeline.run(module, Settings(options=options.parse(None, {"logits_bytes": budget})))
    nodes = [node for node in module.graph.nodes if "cermet_v1" in str(node.target)]
    return [(str(node.target).split(".")[1], node.args[-1] if "linear" in str(node.target) else 0) for node in nodes]


# What a loss may be made of; all of them have a gradient in the forward pass.


def flat(hidden, weight, labels):
    return loss_of(F.linear(hidden.view(-1, HIDDEN), weight), labels)


def capped(hidden, weight, labels):
    return loss_of(torch.tanh(F.linear(hidden, weight) / 2.0) * 2.0, labels)


def scaled(hidden, weight, labels):
    return loss_of(F.linear(hidden, weight) * 0.5, labels)


def smoothed(hidden, weight, labels):
    logits = F.linear(hidden, weight).view(-1, VOCABULARY).float()
    return F.cross_entropy(logits, labels, label_smoothing=0.1)


def summed(hidden, weight, labels):
    """As Trainer counts over several batches."""
    logits = F.linear(hidden, weight).view(-1, VOCABULARY).float()
    return F.cross_entropy(logits, labels, reduction="sum") / (labels != -100).sum()


def z_loss(hidden, weight, labels):
    logits = F.linear(hidden, weight).view(-1, VOCABULARY).float()
    return F.cross_entropy(logits, labels) + 1e-2 * torch.logsumexp(logits, -1).square().mean()


def two_losses(hidden, weight, labels):
    logits = F.linear(hidden, weight).view(-1, VOCABULARY)
    return loss_of(logits, labels) + 0.5 * loss_of(logits, labels.flip(0))


LOSSES = (dead, flat, capped, scaled, smoothed, summed, z_loss, two_losses)


def allocations(run) -> list[int]:
    """Bytes that the allocator gave, by torch's profiler."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    return [event.nbytes() for event in events if event.nbytes() > 0]
