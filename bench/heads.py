"""A head and its loss with both gradients in bfloat16: time and peak by how many bytes of logits may exist at once.

`F.cross_entropy(F.linear(hidden, weight).float(), labels)` and its gradients, by torch.compile(f, backend="cermet")
with one `logits_bytes` after the other ("whole" for as many as there are), beside eager and the head's three products
alone (logits, and the gradients of hidden state and weight), all in turns in one process. Peak is what a step allocates
above its inputs, gradients included. Loss and gradients are compared with float64 first.

    python bench/heads.py [--rows 8192] [--hidden 4096] [--vocabulary 128256] [--budget 128 512 whole]
                          [--frozen] [--rounds 7] [--steps 5] [--tiny] [--out FILE]
"""
from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Callable

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cold  # before torch, which reads where its caches are

import torch
import torch.nn.functional as F

import environment
from device import DEVICE, milliseconds, reset_peak, synchronize
from timer import relative_error

IGNORED = -100
TOLERANCE = 1e-2  # relative L2, in bfloat16
MIB = 2**20


def loss_of(hidden: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(F.linear(hidden, weight).float(), labels, ignore_index=IGNORED)


class Case:
    """A head at one size with what is true of it."""

    def __init__(self, rows: int, columns: int, vocabulary: int, frozen: bool):
        torch.manual_seed(rows + vocabulary)
        hidden = torch.randn(rows, columns, device=DEVICE).bfloat16().requires_grad_()
        weight = (torch.randn(vocabulary, columns, device=DEVICE) * columns**-0.5).bfloat16().requires_grad_(not frozen)
        labels = torch.randint(vocabulary, (rows,), device=DEVICE)
        labels[::17] = IGNORED
        self.inputs = (hidden, weight, labels)
        self.leaves = [tensor for tensor in self.inputs if tensor.requires_grad]

    def step(self, call: Callable) -> tuple[torch.Tensor, ...]:
        loss = call(*self.inputs)
        return loss.detach(), *torch.autograd.grad(loss, self.leaves)

    def check(self, calls: dict[str, Callable]) -> dict[str, float]:
        """The worst relative error of each."""
        hidden, weight, labels = self.inputs
        wide = [tensor.detach().double().requires_grad_(tensor.requires_grad) for tensor in (hidden, weight)]
        loss = F.cross_entropy(F.linear(*wide), labels, ignore_index=IGNORED)
        truth = [loss.detach(), *torch.autograd.grad(loss, [tensor for tensor in wide if tensor.requires_grad])]
        del loss, wide
        worst = {}
        for name, call in calls.items():
            worst[name] = max(relative_error(mine, true) for mine, true in zip(self.step(call), truth, strict=True))
            if not worst[name] < TOLERANCE:
                raise RuntimeError(f"{name}: relative error {worst[name]:.1e}, expected below {TOLERANCE:.0e}")
        return worst

    def products(self) -> Callable[[], None]:
        """The three, or with a frozen weight two, with a gradient that is there."""
        hidden, weight, _ = (tensor.detach() for tensor in self.inputs)
        gradient = torch.mm(hidden, weight.t())

        def work() -> None:
            torch.mm(hidden, weight.t())
            torch.mm(gradient, weight)
            if self.inputs[1].requires_grad:
                torch.mm(gradient.t(), hidden)

        return work

    def peak(self, call: Callable) -> float:
        """GB above the inputs; 0 on a CPU, where nobody counts."""
        if DEVICE != "cuda":
            return 0.0
        self.step(call)
        synchronize()
        before = torch.cuda.memory_allocated()
        reset_peak()
        self.step(call)
        synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 1e9


def compiled(budget: str, case: Case) -> Callable:
    logits = case.inputs[0].shape[0] * case.inputs[1].shape[0] * case.inputs[0].element_size()
    given = logits if budget == "whole" else max(1, int(float(budget) * MIB))
    torch._dynamo.reset()
    options = {"remainder": "aot", "strict": True, "logits_bytes": given}
    return torch.compile(loss_of, backend="cermet", dynamic=False, options=options)


def measure(case: Case, budgets: list[str], rounds: int, steps: int) -> list[dict]:
    calls = {"eager": loss_of, **{budget: compiled(budget, case) for budget in budgets}}
    errors = case.check(calls)
    peaks = {name: case.peak(call) for name, call in calls.items()}
    works = {"products": case.products(), **{name: (lambda call=call: case.step(call)) for name, call in calls.items()}}
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            work()
            times[name].append(milliseconds(work, steps))
    least = statistics.median(times["products"])
    found = []
    for name, mine in times.items():
        middle = statistics.median(mine)
        peak, error = peaks.get(name, 0.0), errors.get(name, 0.0)
        found.append({"name": name, "ms": middle, "ms_min": min(mine), "ms_max": max(mine),
                      "of_products": middle / least, "peak_gb": peak, "relative_error": error})
        print(f"{name:>9s} {middle:9.3f} ms  {middle / least:5.3f} of the products  {peak:6.2f} GB  error {error:.1e}",
              flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--vocabulary", type=int, default=128256)
    parser.add_argument("--budget", nargs="+", default=["128", "512", "whole"], help="MiB of logits, or whole")
    parser.add_argument("--frozen", action="store_true", help="the weight has no gradient")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--out")
    options = parser.parse_args()
    sizes = (200, 32, 96) if options.tiny else (options.rows, options.hidden, options.vocabulary)
    found = measure(Case(*sizes, options.frozen), options.budget, options.rounds, options.steps)
    if options.out:
        names = ("rows", "hidden", "vocabulary")
        environment.write(options.out, "heads", {**dict(zip(names, sizes)), "frozen": options.frozen, "cases": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
