"""A training step (forward, backward, of one model AdamW's too) with random weights: Cermet, eager, Inductor and Liger.

All contenders share one set of weights and see the same tokens. After each one's first step (from torch.compile or what
stands for it, imports included, to the end of the step; caches are fresh, so it is a cold one) they take turns, in
alternating order: `--rounds` times, each runs `--steps` steps in a row between two events. The table gives the median of
the rounds, their spread, peak memory, the first step's seconds, the loss, and where a step's GPU time goes (profiler:
matmul, attention, Cermet's kernels, all else; idle is what is left of the step). First steps run in one process in the
order of the table: a later compiled contender finds what the first one imported and Inductor's worker processes
started, a second Cermet finds the first one's kernels. A first step's seconds are told by part, too (parts.py).
With --warm these contenders take their first step again, three times in turns, each in a process of its own that finds
the caches; the table gives the median. With --pack those of them that are Cermet's take it a third way: in processes
whose caches are all empty, torch's too, with a pack of what the first step had asked for, under CERMET_CACHE=only.
"Inductor, no mask" runs a model whose causal mask was taken out by hand: what that alone gives.

    python bench/step.py [--model NAME ...] [--contender NAME ...] [--check] [--warm NAME ...] [--pack] [--layers N]
                         [--out FILE]

--check exits 1 unless Cermet's losses equal eager's to 4 digits and Cermet replaced every norm, RoPE, mask and, but for
those of experts, GLU.
"""
from __future__ import annotations

import argparse
import gc
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cold  # before torch, which reads where its caches are

import torch

import alone
import device
import environment
import parts
import shares
from contenders import CONTENDERS, Contender
from models import MODELS, Model

SHOWN = ("eager", "inductor", "inductor-unmasked", "cermet-aot", "cermet-inductor", "liger", "liger-compiled")
WARM_ROUNDS = 3
COMPILED = [name for name in CONTENDERS if name not in ("eager", "liger")]


def run_first(key: str, model: torch.nn.Module, optimizer, batch) -> Contender | None:
    """A contender that has made its first step."""
    device.synchronize()
    before, start = parts.so_far(), time.perf_counter()
    contender = CONTENDERS[key](model)
    if contender is None:
        return None
    contender.key, contender.optimizer = key, optimizer
    contender.loss = contender.step(batch).item()
    device.synchronize()
    contender.first_step_s = time.perf_counter() - start
    contender.first_step_parts = parts.since(before, contender.first_step_s)
    return contender


def run_round(contender: Contender, batch, steps: int) -> None:
    for _ in range(2):
        contender.step(batch)
    device.reset_peak()
    contender.rounds_ms.append(device.milliseconds(lambda: contender.step(batch), steps))
    contender.peak_gb = device.peak_gb()


def check(contenders: list[Contender], model, batch, described: Model, layers: int) -> list[str]:
    """What does not hold, a line each."""
    import cermet

    wrong = []
    truth = contenders[0].loss
    half_of_digit_4 = 0.5 * 10 ** (math.floor(math.log10(abs(truth))) - 3)
    for contender in contenders[1:]:
        for loss in (contender.loss, *(row["loss"] for row in contender.warm + contender.packed)):
            if contender.name.startswith("cermet") and not described.random and not abs(loss - truth) < half_of_digit_4:
                wrong.append(f"{contender.name}: loss {loss:.6f}, eager's is {truth:.6f}")
    if "num_key_value_heads" not in described.settings:  # an encoder, or a decoder before rotations
        return wrong
    counts = dict(cermet.explain(model, **batch).counts)
    print(f"replaced: {counts}")
    expected = {"norms": described.norms_per_layer * layers + 1, "ropes": layers, "glu": layers}
    masks = described.masks(layers)
    if device.DEVICE == "cuda" or masks == {"causal_mask": layers}:  # a CPU has no kernel for what others mean
        expected |= masks
    counts["norms"] = counts.get("rms_norm", 0) + counts.get("add_rms_norm", 0)
    counts["ropes"] = counts.get("rope", 0)
    if described.family == "Gemma2":  # softcapped attention is no causal one
        expected = {what: number for what, number in expected.items() if not what.endswith("_mask")}
    if described.has_experts:  # a GLU between grouped products may be one of theirs
        del expected["glu"]
    return wrong + [f"cermet replaced {counts.get(name, 0)} {name}, expected {number}"
                    for name, number in expected.items() if counts.get(name, 0) != number]


def run_again(name: str, model: str, arguments: argparse.Namespace, pack: Path | None = None) -> dict:
    """Seconds and loss of a contender's first step in a new process that finds what the first one left in the caches,
    or with a pack nothing but that."""
    command = ["--model", model, "--contender", name, "--rounds", "0"]
    command += ["--layers", str(arguments.layers)] if arguments.layers else []
    command += ["--tiny"] if arguments.tiny else []
    settings = {"CERMET_PACKS": str(pack), "CERMET_CACHE": "only"} if pack else {}
    (found,) = alone.run("step.py", command, keep_caches=pack is None, settings=settings)["models"]
    if not found["contenders"]:
        raise RuntimeError(str(found["failures"]))
    row = found["contenders"][0]
    if pack and (row["stored"]["made"] or not row["stored"]["from packs"]):
        raise RuntimeError(f"of {pack} came {row['stored']}")
    return {key: row[key] for key in ("first_step_s", "loss", "stored")}


def stored(contender: Contender) -> dict | None:
    """How many plans, matches, gradients and kernels this process made, and took from packs and the directory."""
    if not contender.name.startswith("cermet"):
        return None
    import cermet

    counted = cermet.counters()
    ways = {"made": "compiled", "from packs": "from_packs", "from the directory": "from_directory"}
    return {what: counted[f"plans_{counter}"] + counted[f"kernels_{counter}"] for what, counter in ways.items()}


def measure(name: str, arguments: argparse.Namespace) -> dict:
    described = MODELS[name].tiny() if arguments.tiny else MODELS[name]
    layers = arguments.layers or described.layers or described.config().num_hidden_layers
    torch.manual_seed(0)
    model = described.build(num_hidden_layers=layers)
    model.train()
    batch = described.inputs()
    print(f"{name}: {layers} layers, batch {described.batch}, {described.tokens} tokens", flush=True)

    # One for all, since their parameters are the same; a rate of 0 costs what any does and keeps every loss.
    optimizer = None
    if described.optimizer:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0, fused=True)

    contenders, failures, kernels = [], {}, {}
    for key in arguments.contender or SHOWN:
        try:
            contender = run_first(key, model, optimizer, batch)
            if contender is None:
                print(f"{key}: not installed here")
                continue
            contenders.append(contender)
            print(f"{contender.name}: first step {contender.first_step_s:.1f} s, loss {contender.loss:.6f}", flush=True)
            print(f"    seconds: {parts.written(contender.first_step_parts)}", flush=True)
        except Exception as problem:  # one contender's failure must not cost the others their figures
            failures[key] = f"{type(problem).__name__}: {problem}"
            print(f"{key} failed: {failures[key][:2000]}", flush=True)
    folder = tempfile.TemporaryDirectory(prefix="cermet-bench-pack-")
    pack = Path(folder.name) / "model.cpack"
    if arguments.pack:
        import cermet

        with cermet.record(pack) as recorded:  # of all that was asked for in this process
            pass
        print(f"pack: {recorded.entries} entries, {recorded.bytes} bytes", flush=True)
    for number in range(arguments.rounds):
        for contender in contenders if number % 2 == 0 else reversed(contenders):
            run_round(contender, batch, arguments.steps)
    for contender in contenders if arguments.rounds else ():
        contender.gpu_ms, kernels[contender.name] = shares.of(lambda: contender.step(batch))
    asked = [contender for contender in contenders if contender.key in arguments.warm]
    for number in range(1 if arguments.tiny else WARM_ROUNDS):
        for contender in asked if number % 2 == 0 else reversed(asked):
            ways = {"warm": (contender.warm, None)}
            if arguments.pack and contender.name.startswith("cermet"):
                ways["from a pack"] = (contender.packed, pack)
            for way, (rows, only) in ways.items():
                try:
                    rows.append(run_again(contender.key, name, arguments, only))
                except RuntimeError as problem:
                    failures[f"{contender.key}, {way}"] = str(problem)
                    print(f"{contender.key}, {way}, failed: {problem}", flush=True)

    kinds = shares.KINDS
    print(f"\n{'':18s}{'step ms':>9s}{'spread':>8s}{'peak GB':>9s}{'first s':>9s}{'warm s':>8s}{'pack s':>8s}"
          + f"{'loss':>10s}" + "".join(f"{kind:>11s}" for kind in (*kinds, "idle")))
    rows = []
    for c in contenders if arguments.rounds else ():
        step, spread = statistics.median(c.rounds_ms), max(c.rounds_ms) - min(c.rounds_ms)
        c.gpu_ms["idle"] = max(step - sum(c.gpu_ms.values()), 0.0)
        again = "".join(f"{statistics.median(row['first_step_s'] for row in rows):8.1f}" if rows else f"{'':8s}"
                        for rows in (c.warm, c.packed))
        print(f"{c.name:18s}{step:9.1f}{spread:8.1f}{c.peak_gb:9.1f}{c.first_step_s:9.1f}{again}{c.loss:10.4f}"
              + "".join(f"{c.gpu_ms.get(kind, 0):11.2f}" for kind in (*kinds, "idle")))
    for c in contenders:
        rows.append({"contender": c.name, "step_ms": statistics.median(c.rounds_ms) if c.rounds_ms else None,
                     "rounds_ms": c.rounds_ms, "peak_gb": c.peak_gb, "first_step_s": c.first_step_s,
                     "first_step_parts": c.first_step_parts, "warm": c.warm, "packed": c.packed,
                     "stored": stored(c), "loss": c.loss, "gpu_ms": c.gpu_ms,
                     "kernels": kernels.get(c.name)})
    wrong = [f"{key}: {why}" for key, why in failures.items() if key.startswith("cermet")]
    if arguments.check and contenders:
        wrong += check(contenders, model, batch, described, layers)
    for line in wrong:
        print(f"WRONG {line}", flush=True)
    return {"model": name, "layers": layers, "batch": described.batch, "tokens": described.tokens, "dtype": "bfloat16",
            "random": described.random, "rounds": arguments.rounds, "steps_in_a_row": arguments.steps,
            "contenders": rows, "failures": failures, "wrong": wrong}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="bench-out/step.json")
    parser.add_argument("--model", choices=MODELS, nargs="+", default=["Llama-3-8B"])
    parser.add_argument("--contender", choices=CONTENDERS, nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--layers", type=int, help="instead of the model's own number")
    parser.add_argument("--tiny", action="store_true", help="of a few widths, on a CPU too: only to try it out")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--warm", choices=COMPILED, nargs="+", default=())
    parser.add_argument("--pack", action="store_true", help="those of --warm that are Cermet's also from a pack")
    arguments = parser.parse_args()
    if arguments.pack and not any(name.startswith("cermet") for name in arguments.warm):
        parser.error("--pack is of Cermet's contenders that --warm names, and it names none")
    if not (torch.cuda.is_available() or arguments.tiny):
        sys.exit("bench/step.py measures a GPU and there is none here")
    measured = []
    for name in arguments.model:
        measured.append(measure(name, arguments))
        torch._dynamo.reset()
        gc.collect()
        torch.cuda.empty_cache()
        environment.write(arguments.out, "step", {"models": measured})  # what is measured is kept whatever comes next
    sys.exit(any(each["wrong"] for each in measured))


if __name__ == "__main__":
    main()
