"""Random torch programs for the importer: views, writes, tuples, unknown calls, higher-order operators, sizes.

A program is a list of (step, operand indices), which `run` interprets and Dynamo traces.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

Values = list[torch.Tensor]
Program = list[tuple[str, tuple[int, ...]]]


def _even(a: torch.Tensor) -> bool:
    return a.dim() > 0 and a.shape[-1] % 2 == 0


VIEWS: dict[str, Callable[..., Any]] = {
    "last half": lambda a: a[..., a.shape[-1] // 2 :] if _even(a) else a[...],
    "every second": lambda a: a[..., ::2] if _even(a) else a.unsqueeze(0),
    "row": lambda a: a[-1] if a.dim() > 1 else a[None],
    "columns": lambda a: a[..., :2],
    "transposed": lambda a: a.transpose(0, -1),
    "moved": lambda a: a.movedim(0, -1),
    "chunk": lambda a: a.chunk(2, -1)[-1],
    "chunks": lambda a: a.chunk(2, 0),
    "unbound": lambda a: a.unbind(0)[0] if a.dim() > 1 else a.view(-1),
    "split": lambda a: torch.split(a, 1, 0),
    "flat": lambda a: a.reshape(-1),
    "squeezed": lambda a: a.unsqueeze(1).squeeze(),
    "diagonal": lambda a: torch.diagonal(a) if a.dim() == 2 else a.detach(),
    "same": lambda a: a.contiguous(),
    "cast": lambda a: a.float(),
    "not dropped": lambda a: F.dropout(a, 0.25, False),
    "halves": lambda a: torch.hsplit(a, 2) if a.dim() == 2 and _even(a) else (a,),
}
WRITES: dict[str, Callable[..., Any]] = {
    "add_": lambda a: a.add_(0.5),
    "mul_": lambda a: a.mul_(-0.75),
    "clamp_": lambda a: a.clamp_(-1, 1),
    "iadd": lambda a: a.__iadd__(1.0),
    "setitem": lambda a: a.__setitem__((Ellipsis, slice(0, 1)), 0.25),
    "fill a row": lambda a: a[0].fill_(2.0) if a.dim() > 1 else a.zero_(),
    "copy_": lambda a: a.copy_(a.flip(0)),
    "masked_fill_": lambda a: a.masked_fill_(a > 1, 0.0),
    "index_put_": lambda a: a.index_put_((torch.tensor([0]),), torch.tensor(0.5)),
    "relu_": lambda a: F.relu(a, inplace=True),
    "foreach": lambda a: torch._foreach_mul_(list(a.unbind(0)), 0.5) if a.dim() > 1 else a.neg_(),
}
PURE: dict[str, Callable[..., Any]] = {
    "tanh": lambda a: torch.tanh(a),
    "softmax": lambda a: a.softmax(-1),
    "normed": lambda a: a * torch.rsqrt(a.pow(2).mean(-1, keepdim=True) + 1e-5),
    "layer norm": lambda a: F.layer_norm(a, a.shape[-1:]),
    "masked": lambda a: torch.where(a > 0, a, -a / 2),
    "joined": lambda a: torch.cat([a, a * 2], -1)[..., : a.shape[-1]],
    "stacked": lambda a: torch.stack((a, -a), -1).flatten(-2)[..., : a.shape[-1]],
    "padded": lambda a: F.pad(a, (1, 0), value=0.5)[..., 1:],
    "integers": lambda a: (a * 4).long().clamp(-3, 3).float(),
    "largest": lambda a: a.max(-1, keepdim=True).values - a,
    "sorted": lambda a: a.sort(-1)[0],
    "two of topk": lambda a: a.topk(1, -1),
    "statistics": lambda a: torch.var_mean(a, -1, keepdim=True, unbiased=False),
    "cumulative": lambda a: a.cumsum(-1),
    "by sizes": lambda a: a.reshape(a.shape[0], -1) / a.shape[0] + torch.arange(a.shape[0])[:, None],
    "checkpointed": lambda a: checkpoint(lambda x: torch.tanh(x) * x, a, use_reentrant=False),
    "half precision": lambda a: (a.bfloat16() * 0.3).float(),
    "autocast": lambda a: _autocast(a),
    "sum": lambda a: a + a.sum(),
}
BINARY: dict[str, Callable[..., Any]] = {
    "plus": lambda a, b: a + b if a.shape == b.shape else a + b.sum(),
    "times": lambda a, b: a * b if a.shape == b.shape else a * b.mean(),
    "write of another": lambda a, b: a.copy_(b * 0.5) if a.shape == b.shape else a.sub_(b.mean()),
}
STEPS = {**VIEWS, **WRITES, **PURE, **BINARY}


def _autocast(a: torch.Tensor) -> torch.Tensor:
    flat = a.reshape(1, -1)
    with torch.autocast("cpu", torch.bfloat16):
        return (flat @ flat.t()).exp().clamp(max=4.0) + a


def random_program(seed: int) -> Program:
    dice = random.Random(seed)
    program: Program = []
    known = 2
    for _ in range(dice.randrange(4, 16)):
        kind = dice.choice([VIEWS, VIEWS, WRITES, PURE, PURE, BINARY])
        name = dice.choice(list(kind))
        count = 2 if kind is BINARY else 1
        program.append((name, tuple(max(dice.randrange(known), dice.randrange(known)) for _ in range(count))))
        known += 1
    return program


def run(program: Program, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    values: Values = [x * 1.0, y * 1.0]
    for name, operands in program:
        operand = values[operands[0]]
        made = STEPS[name](operand, *(values[index] for index in operands[1:]))
        made = made if isinstance(made, (tuple, list)) else (made,)
        floats = [value for value in made if isinstance(value, torch.Tensor) and value.is_floating_point()]
        values.append(floats[-1] if floats else operand)
    return tuple(value * 1.0 for value in values[-5:])
