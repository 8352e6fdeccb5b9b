"""Heads with a low-rank adapter, whose logits are a sum of linear layers, and what tests of them share."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from heads import HIDDEN, VOCABULARY, inputs, loss_of
from pieces import compiled, heads_of
from truth import (
    MEDIAN_SEEDS,
    Float64,
    assert_as_good_as_eager,
    assert_far_no_more_often_than_eager,
    far_from_eager,
    relative,
)

ROWS, RANK = 200, 8
OPERANDS = ("hidden", "weight", "bias", "down", "up")
KINDS = ("f32", "bf16", "bf16 with an adapter in f32")
Errors = dict[str, list[float]]  # by tensor, one for each seed


def adapted(hidden, weight, bias, down, up, labels, scaling=1.7):
    """As PEFT's layer: the adapter may be of a wider type, and the sum is rounded to the head's."""
    logits = F.linear(hidden, weight, bias)
    dtype = logits.dtype
    logits = logits + F.linear(F.linear(hidden.to(down.dtype), down), up) * scaling
    return loss_of(logits.to(dtype), labels)


def several(hidden, weight, one, two, three, labels):
    """In every way to write it; the head's own weight is not the first."""
    logits = F.linear(hidden[..., :RANK], one) * 0.5 + F.linear(hidden, weight)
    logits = torch.add(logits, F.linear(hidden[..., 1 : 1 + RANK], two), alpha=-2)
    return loss_of(logits + 3 * (F.linear(hidden[..., 2 : 2 + RANK], three) * 0.25), labels)


def in_place(hidden, weight, one, two, three, labels):
    logits = F.linear(hidden, weight)
    logits += F.linear(hidden[..., :RANK], one) * 0.5
    return loss_of(logits.add_(F.linear(hidden[..., 2 : 2 + RANK], three)), labels)


def given(kind="f32", device="cpu", seed=0, rows=ROWS, columns=VOCABULARY, with_bias=True):
    """Hidden state, weight, bias, both halves of an adapter as large as the head, and labels."""
    torch.manual_seed(seed)
    dtype = torch.float32 if kind == "f32" else torch.bfloat16
    hidden = torch.randn(1, rows, HIDDEN, device=device).to(dtype).requires_grad_()
    sizes = (columns, HIDDEN), (columns,), (RANK, HIDDEN), (columns, RANK)
    weight, bias, down, up = (torch.randn(size, device=device) * size[-1] ** -0.5 for size in sizes)
    narrow = [value.to(dtype).requires_grad_() for value in (weight, bias)]
    adapter = torch.float32 if kind.endswith("f32") else dtype
    wide = [value.to(adapter).requires_grad_() for value in (down, up)]
    labels = torch.randint(columns, (rows,), device=device)
    labels[1::5] = -100
    return hidden, narrow[0], narrow[1] if with_bias else None, *wide, labels


def of_several(dtype=torch.float32, device="cpu"):
    hidden, weight, labels = inputs(dtype, device, rows=ROWS)
    others = [torch.randn(VOCABULARY, RANK, device=device).to(dtype).requires_grad_() for _ in range(3)]
    return hidden, weight, *others, labels


def leaves_of(operands):
    return [each for each in operands if isinstance(each, torch.Tensor) and each.requires_grad]


def dtype_of(kind: str) -> torch.dtype:
    return torch.float32 if kind == "f32" else torch.bfloat16


def linear_heads(function, *arguments, budget: int = 1) -> list[tuple[str, int]]:
    """Those that make logits, with the rows of a piece."""
    return [head for head in heads_of(function, *arguments, budget=budget) if head[0].startswith("linear_head")]


def close_to_eager(ours, eager, limit=1e-5):
    for mine, theirs in zip(ours, eager, strict=True):
        assert mine.stride() == theirs.stride()
        assert relative(mine, theirs.double()) < limit


def in_pieces(function, arguments, budget: int, remainder: str = "aot"):
    """It compiled, whose head was seen to come in pieces."""
    (head,) = linear_heads(function, *arguments, budget=budget)
    assert head[0].startswith("linear_head_1_") and head[1] > 0
    return compiled(function, budget, remainder)


def errors_of(call, function, make, names, wanted=None, seeds=MEDIAN_SEEDS) -> tuple[Errors, Errors]:
    """Ours and eager's, of the loss and of every gradient, over the seeds of the rule."""
    errors: tuple[Errors, Errors] = ({}, {})
    for seed in range(seeds):
        *operands, labels = make(seed)
        for name, operand in zip(names, operands):
            if operand is not None and wanted is not None:
                operand.requires_grad_(name in wanted)
        of = [name for name, operand in zip(names, operands) if operand is not None and operand.requires_grad]
        with Float64():
            exact = [None if each is None else each.detach().double() for each in operands]
            for each, operand in zip(exact, operands):
                each is None or each.requires_grad_(operand.requires_grad)
            loss = function(*exact, labels)
            truth = [loss.detach(), *torch.autograd.grad(loss, leaves_of(exact))]
        for into, run in zip(errors, (call, function)):
            loss = run(*operands, labels)
            values = [loss.detach(), *torch.autograd.grad(loss, leaves_of(operands))]
            for name, value, true in zip(("loss", *of), values, truth, strict=True):
                into.setdefault(name, []).append(relative(value, true))
    return errors


def assert_good(ours, eager, dtype, cancelling=("loss",)):
    """By the rule for numbers, of which a difference of sums, which cancels, keeps its last part."""
    far = set(far_from_eager(ours, eager, dtype))
    near = ours.keys() - far
    assert far <= set(cancelling)
    assert_as_good_as_eager(*({name: errors[name] for name in near} for errors in (ours, eager)), dtype)
    assert_far_no_more_often_than_eager(*({name: errors[name] for name in far} for errors in (ours, eager)), dtype)
