"""Device time of the fusions that models get, forward and backward, as they stand there: every region that the backend
replaces in one layer of a transformers model of real size, on tensors of the traced shapes and strides, beside Inductor.

A model of one layer is traced as torch.compile traces it. Each different region (its text, layouts and gradient) runs
as the op that the backend puts into the graph; Inductor runs the operations that the region replaced. Measured as
bench/kernels.py does, with the same copy as the ceiling: bytes are every input read once and every output written once,
of a backward what the derived gradient reads and writes. Losses are in bench/cross_entropy.py.

    python bench/fusions.py [--out FILE] [--model Llama-3-8B ...] [--repeats 30]
"""
from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "gpu")]
import environment
from models import MODELS
from timer import DeviceTimer, as_tuple, bytes_of, measure_copy

from cermet import pipeline
from cermet.fusing import unfused
from cermet.graph.decision import Region
from cermet.graph.nodes import example
from cermet.ops import regions

VOCABULARY = 32000  # losses are measured elsewhere
NAMES = ("Llama-3-8B", "Qwen3-8B", "Phi-3-mini", "Gemma-2-2B")


def trace(name: str, batch: int, tokens: int) -> list[tuple[Region, unfused.Unfused]]:
    """The model's different regions but for losses, each with what it replaces."""
    model = MODELS[name].build(num_hidden_layers=2, vocab_size=VOCABULARY)
    text = torch.randint(VOCABULARY, (batch, tokens), device="cuda")
    found: dict[tuple, tuple[Region, unfused.Unfused]] = {}

    def keep(module, _):
        for region in pipeline.run(module, until="rest").parts[0].decision.regions:
            if region.pattern != "cross_entropy":
                found.setdefault((region.key, region.wanted), (region, unfused.extract(module, region)))
        return module.forward

    torch._dynamo.reset()
    torch.compile(model, backend=keep)(input_ids=text, labels=text)
    return list(found.values())


def like(value: torch.Tensor) -> torch.Tensor:
    """Random numbers in a tensor of the traced one's sizes and strides."""
    sizes, strides = [int(size) for size in value.shape], [int(stride) for stride in value.stride()]
    tensor = torch.empty_strided(sizes, strides, dtype=value.dtype, device="cuda")
    if value.dtype.is_floating_point:
        return tensor.copy_(torch.randn(sizes, device="cuda")) if 0 not in strides else tensor.fill_(0.5)
    return tensor.zero_()


def distance(mine: torch.Tensor, other: torch.Tensor) -> float:
    size = other.double().norm().item()
    return (mine.double() - other.double()).norm().item() / size if size else mine.double().norm().item()


def measure(timer: DeviceTimer, region: Region, plain: unfused.Unfused) -> dict:
    tensors = [like(example(node)) for node in region.operands]
    wanted = region.wanted or [False] * len(tensors)
    leaves = [tensor.requires_grad_(flag) for tensor, flag in zip(tensors, wanted)]
    of = [leaf for leaf, flag in zip(leaves, wanted) if flag]
    others = [like(example(node)) for node in plain.others]
    op = regions.region_op(len(tensors), len(region.results))
    compiled = torch.compile(lambda *given: plain.module(*given, *others), dynamic=False)
    ours, theirs = as_tuple(op(*leaves, region.key)), as_tuple(compiled(*leaves))
    worst = max(distance(a, b) for a, b in zip(ours, theirs))
    moved = [bytes_of([*tensors, *ours])]
    mine, peer = [lambda _: as_tuple(op(*leaves, region.key))], [lambda _: as_tuple(compiled(*leaves))]
    if of:
        cotangents = [torch.randn_like(output) for output in ours]
        derived = regions.gradient(region.key, region.wanted, region.like)
        made = regions.launch(derived.forward, tensors)
        sources = {"input": tensors, "output": made[: derived.outputs], "saved": made[derived.outputs :],
                   "cotangent": cotangents}
        moved[0] += bytes_of(made[derived.outputs :])
        gradients = torch.autograd.grad(ours, of, cotangents)
        worst = max([worst, *map(distance, gradients, torch.autograd.grad(theirs, of, cotangents))])
        moved.append(bytes_of([*(sources[origin][index] for origin, index in derived.backward_inputs), *gradients]))
        mine.append(lambda outputs: torch.autograd.grad(outputs, of, cotangents))
        peer.append(lambda outputs: torch.autograd.grad(outputs, of, cotangents))
    if not worst < 3e-2:
        raise RuntimeError(f"{region.pattern} at {region.source}: {worst:.2e} from Inductor's")
    answer = {"pattern": region.pattern, "counts": dict(region.counts),
              "operands": [f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in tensors]}
    del ours, theirs
    for direction, size, a, b in zip(("forward", "backward"), moved, timer.measure(lambda: None, mine),
                                     timer.measure(lambda: None, peer)):
        copy = measure_copy(timer, size)["us"]
        answer[direction] = {"bytes": size, "copy_us": copy, "cermet": a, "inductor": b, "fraction": copy / a["us"],
                             "inductor_fraction": copy / b["us"]}
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out")
    parser.add_argument("--model", nargs="*", default=list(NAMES), choices=list(MODELS))
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=30)
    options = parser.parse_args()
    torch.manual_seed(0)
    timer = DeviceTimer(options.repeats)
    cases, failed = [], False
    for name in options.model:
        for region, plain in trace(name, options.batch, options.tokens):
            try:
                case = {"model": name, **measure(timer, region, plain)}
            except Exception as error:  # one region must not cost the others
                case, failed = {"model": name, "pattern": region.pattern, "failed": str(error)}, True
                print(f"{name:12s} {region.pattern:14s} failed: {error}")
            cases.append(case)
            for direction in ("forward", "backward"):
                if direction in case:
                    part = case[direction]
                    print(f"{name:12s} {region.pattern:14s} {direction:8s} {part['cermet']['us']:8.1f} us  "
                          f"{part['fraction']:5.2f} of copy   Inductor {part['inductor']['us']:8.1f} us  "
                          f"{part['inductor_fraction']:5.2f}   {' '.join(case['operands'])}", flush=True)
            torch._dynamo.reset()
        torch.cuda.empty_cache()
    if options.out:
        environment.write(options.out, "fusions", {"batch": options.batch, "tokens": options.tokens, "cases": cases})
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
