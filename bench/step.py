"""A training step (forward and backward) of a Llama with random weights: Cermet beside eager, Inductor and Liger.

All contenders share one set of weights and see the same tokens. After each one's first step (its compile; caches are
fresh, so it is a cold one) they take turns, in alternating order: `--rounds` times, each runs `--steps` steps in a row between two events. The
table gives the median of the rounds and their spread, peak memory, the first step's seconds, the loss, and where a step's
GPU time goes (profiler: matmul, attention, Cermet's kernels, all else). First steps run in one process in the order of the
table: a later compiled contender finds Inductor's worker processes started, a second Cermet finds the first one's kernels.

    python bench/step.py [--out FILE] [--contender eager ...] [--check] [--layers 8 --batch 4 --tokens 2048]

--check exits 1 unless every contender's loss equals eager's to 4 digits and Cermet replaced 2L+1 norms and L GLUs.
"""
from __future__ import annotations

import argparse
import copy
import math
import os
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable

# Cold caches, so that a first step is a first step; the variables are read when torch and cermet are imported.
if not os.environ.get("CERMET_BENCH_KEEP_CACHES"):
    fresh = tempfile.mkdtemp(prefix="cermet-bench-")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{fresh}/inductor"
    os.environ["TRITON_CACHE_DIR"] = f"{fresh}/triton"
    os.environ["CERMET_CACHE_DIR"] = f"{fresh}/cermet"

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama import modeling_llama

sys.path.insert(0, str(Path(__file__).resolve().parent))
import environment

MATMUL = re.compile(r"gemm|nvjet|cutlass|xmma|cublas|splitK|matmul", re.IGNORECASE)
ATTENTION = re.compile(r"flash|fmha|sdpa|attention|cudnn_generated", re.IGNORECASE)
OURS = re.compile(r"^(cermet|(add_)?rms_norm|glu)", re.IGNORECASE)


class Contender:
    """One way to run the model. `call(**batch)` returns transformers' output; names it needs in modeling_llama are in
    place only while it runs (Liger replaces functions of the module, which the others must not see)."""

    def __init__(self, name: str, model: torch.nn.Module, call: Callable, module_names: dict | None = None):
        self.name, self.model, self.call, self.module_names = name, model, call, module_names or {}
        self.first_step_s = self.loss = self.peak_gb = None
        self.rounds_ms: list[float] = []
        self.gpu_ms: dict[str, float] = {}

    def step(self, batch) -> torch.Tensor:
        before = {name: getattr(modeling_llama, name) for name in self.module_names}
        for name, value in self.module_names.items():
            setattr(modeling_llama, name, value)
        try:
            self.model.zero_grad(set_to_none=True)
            loss = self.call(**batch).loss
            loss.backward()
            return loss.detach()
        finally:
            for name, value in before.items():
                setattr(modeling_llama, name, value)


def twin_of(model: torch.nn.Module) -> torch.nn.Module:
    """A second model over the same parameters and buffers."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared)


def make_eager(model):
    return Contender("eager", model, model)


def make_inductor(model):
    return Contender("inductor", model, torch.compile(model))


def make_cermet(remainder: str):
    def make(model):
        options = {"remainder": remainder, "strict": True}
        return Contender(f"cermet, {remainder}", model, torch.compile(model, backend="cermet", options=options))

    return make


def make_liger(model):
    try:
        from liger_kernel.transformers import apply_liger_kernel_to_llama
    except ImportError:
        return None
    before = dict(vars(modeling_llama))
    twin = twin_of(model)
    apply_liger_kernel_to_llama(model=twin)
    patched = {name: value for name, value in vars(modeling_llama).items() if before.get(name) is not value}
    for name in patched:
        setattr(modeling_llama, name, before[name])
    return Contender("liger", twin, twin, patched)


CONTENDERS = {"eager": make_eager, "inductor": make_inductor, "cermet-inductor": make_cermet("inductor"),
              "cermet-aot": make_cermet("aot"), "liger": make_liger}


def run_first(contender: Contender, batch) -> None:
    torch.cuda.synchronize()
    start = time.perf_counter()
    loss = contender.step(batch)
    contender.loss = loss.item()
    torch.cuda.synchronize()
    contender.first_step_s = time.perf_counter() - start


def run_round(contender: Contender, batch, steps: int) -> None:
    for _ in range(2):
        contender.step(batch)
    torch.cuda.reset_peak_memory_stats()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(steps):
        contender.step(batch)
    end.record()
    end.synchronize()
    contender.rounds_ms.append(begin.elapsed_time(end) / steps)
    contender.peak_gb = torch.cuda.max_memory_allocated() / 1e9


def kind_of(kernel: str) -> str:
    if OURS.match(kernel):
        return "cermet"
    if ATTENTION.search(kernel):
        return "attention"
    return "matmul" if MATMUL.search(kernel) else "rest"


def profile(contender: Contender, batch, steps: int = 3) -> dict:
    """Milliseconds of GPU time a step by kind, and the kernels of ours and of the rest that take most of it.

    A step of large matmuls runs at the GPU's power limit: after an idle second clocks are high and every kernel is some
    percent faster, so what is seen comes after steps that are not."""
    for _ in range(8):
        contender.step(batch)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for _ in range(steps):
            contender.step(batch)
        torch.cuda.synchronize()
    sums: dict[str, float] = {}
    names: dict[str, list] = {}
    for event in seen.profiler.kineto_results.events():
        if event.device_type() != torch.autograd.DeviceType.CUDA:
            continue
        name, ms = event.name(), event.duration_ns() / 1e6 / steps
        sums[kind_of(name)] = sums.get(kind_of(name), 0.0) + ms
        entry = names.setdefault(name[:100], [0.0, 0])
        entry[0] += ms
        entry[1] += 1
    contender.gpu_ms = sums
    largest = sorted(((ms, count / steps, name) for name, (ms, count) in names.items()), reverse=True)
    return {kind: [{"ms": ms, "calls": calls, "kernel": name} for ms, calls, name in largest if kind_of(name) == kind][:12]
            for kind in ("cermet", "rest", "attention", "matmul")}


def check(contenders: list[Contender], model, batch, layers: int) -> list[str]:
    """What does not hold, a line each."""
    import cermet

    wrong = []
    truth = contenders[0].loss
    for contender in contenders[1:]:
        if not abs(contender.loss - truth) < 0.5 * 10 ** (math.floor(math.log10(abs(truth))) - 3):  # half of digit 4
            wrong.append(f"{contender.name}: loss {contender.loss:.6f}, eager's is {truth:.6f}")
    counts = dict(cermet.explain(model, **batch).counts)
    norms = counts.get("rms_norm", 0) + counts.get("add_rms_norm", 0)
    print(f"replaced: {counts}")
    if norms != 2 * layers + 1:
        wrong.append(f"cermet replaced {norms} norms, expected {2 * layers + 1}")
    if counts.get("glu", 0) != layers:
        wrong.append(f"cermet replaced {counts.get('glu', 0)} GLUs, expected {layers}")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="bench-out/step.json")
    parser.add_argument("--contender", choices=CONTENDERS, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bench/step.py measures a GPU and there is none here")

    config = LlamaConfig(vocab_size=128256, hidden_size=4096, intermediate_size=14336,
                         num_hidden_layers=arguments.layers, num_attention_heads=32, num_key_value_heads=8,
                         max_position_embeddings=8192, rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
                         use_cache=False, tie_word_embeddings=False, bos_token_id=128000, eos_token_id=128001)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    model.train()
    words = torch.randint(config.vocab_size, (arguments.batch, arguments.tokens), device="cuda")
    batch = {"input_ids": words, "labels": words}

    contenders, failures, kernels = [], {}, {}
    for name in arguments.contender or CONTENDERS:
        try:
            contender = CONTENDERS[name](model)
            if contender is None:
                print(f"{name}: not installed here")
                continue
            run_first(contender, batch)
            contenders.append(contender)
            print(f"{contender.name}: first step {contender.first_step_s:.1f} s, loss {contender.loss:.6f}", flush=True)
        except Exception as problem:  # one contender's failure must not cost the others their figures
            failures[name] = f"{type(problem).__name__}: {problem}"
            print(f"{name} failed: {failures[name][:2000]}", flush=True)
    for number in range(arguments.rounds):
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            run_round(contender, batch, arguments.steps)
    for contender in contenders:
        kernels[contender.name] = profile(contender, batch)

    kinds = ("matmul", "attention", "cermet", "rest")
    print(f"\n{'':18s}{'step ms':>9s}{'spread':>8s}{'peak GB':>9s}{'first s':>9s}{'loss':>10s}"
          + "".join(f"{kind:>11s}" for kind in kinds))
    rows = []
    for c in contenders:
        spread = max(c.rounds_ms) - min(c.rounds_ms)
        print(f"{c.name:18s}{statistics.median(c.rounds_ms):9.1f}{spread:8.1f}{c.peak_gb:9.1f}{c.first_step_s:9.1f}"
              f"{c.loss:10.4f}" + "".join(f"{c.gpu_ms.get(kind, 0):11.2f}" for kind in kinds))
        rows.append({"contender": c.name, "step_ms": statistics.median(c.rounds_ms), "rounds_ms": c.rounds_ms,
                     "peak_gb": c.peak_gb, "first_step_s": c.first_step_s, "loss": c.loss, "gpu_ms": c.gpu_ms,
                     "kernels": kernels[c.name]})
    wrong = [f"{name}: {why}" for name, why in failures.items() if name.startswith("cermet")]
    if arguments.check and contenders:
        wrong += check(contenders, model, batch, arguments.layers)
    for line in wrong:
        print(f"WRONG {line}")
    environment.write(arguments.out, "step", {
        "model": {"hidden": 4096, "layers": arguments.layers, "batch": arguments.batch, "tokens": arguments.tokens,
                  "dtype": "bfloat16"},
        "rounds": arguments.rounds, "steps_in_a_row": arguments.steps, "contenders": rows, "failures": failures,
        "wrong": wrong})
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
