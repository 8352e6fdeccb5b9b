"""Losses of a linear head, and what tests of them share."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import graphs
from cermet import pipeline
from cermet.loss.logits import Returned
from cermet.records import Settings

ROWS, HIDDEN, VOCABULARY = 12, 32, 96


def loss_of(logits, labels):
    """As transformers writes it: in float32."""
    return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), labels)


def contrasted(hidden, weight, labels):
    """Each row's own column is the right one, as between two batches: its region reads the logits alone."""
    logits = F.linear(hidden, weight).view(-1, VOCABULARY)
    return F.cross_entropy(logits.float(), torch.arange(len(logits), device=logits.device))


def dead(hidden, weight, labels):
    return loss_of(F.linear(hidden, weight), labels)


def returned(hidden, weight, labels):
    logits = F.linear(hidden * 1.5, weight)
    return loss_of(logits, labels), logits


def inputs(dtype=torch.float32, device="cpu", rows=ROWS):
    hidden = torch.randn(2, rows // 2, HIDDEN, device=device).to(dtype).requires_grad_()
    weight = (torch.randn(VOCABULARY, HIDDEN, device=device) * HIDDEN**-0.5).to(dtype).requires_grad_()
    labels = torch.randint(VOCABULARY, (rows,), device=device)
    labels[1::5] = -100
    return hidden, weight, labels


def close(ours, eager, dtype=torch.float32):
    """Two computations of one thing: some units in the last place of the largest element."""
    for mine, theirs in zip(ours, eager):
        limit = {torch.float32: 2e-6, torch.bfloat16: 2e-2}[dtype] * max(theirs.abs().max().item(), 1e-30)
        torch.testing.assert_close(mine, theirs, rtol=0, atol=limit)


def targets(function, *args, remainder="aot") -> list[str]:
    """The cermet ops of the rewritten graph."""
    module = graphs.trace(function, *args)
    how = Returned.EAGER if remainder == "eager" else Returned.EDGE
    pipeline.run(module, Settings(functional=remainder != "eager", returned=how))
    return [str(node.target).split(".")[1] for node in module.graph.nodes if "cermet_v1" in str(node.target)]
