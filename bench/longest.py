"""The longest sequence that a GPU holds in a training step (forward, backward) of Llama-3.2-1B with checkpointing.

Each contender has a process of its own, one sequence and random words, and begins with `--first` tokens. Each further
length is twice the one before, until the memory is used up or a step takes longer than `--limit` seconds, or the next
one would (its attention takes four times as long). If memory ends it, the half of each doubling that fits is found, to
an eighth of a length. Where time does, what the last two lengths took says how many tokens memory would hold: the table
gives both, the longest that ran and the longest by memory, in 1024 tokens.

    python bench/longest.py [--contender NAME ...] [--first 16384] [--limit 60] [--out FILE]

It exits 1 where Cermet fails, or its longest is not the longest of all.
"""
from __future__ import annotations

import argparse
import gc
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cold  # before torch, which reads where its caches are

import torch

import alone
import device
import environment
from contenders import CONTENDERS
from models import MODELS

MODEL = "Llama-3.2-1B, 32768 tokens"
SHOWN = ("eager", "inductor", "liger", "cermet-aot")
KIBI = 1024
PARTS = 8  # of a length, to which the longest is found


def batch_of(vocabulary: int, tokens: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(tokens)
    words = torch.randint(vocabulary, (1, tokens), device=device.DEVICE)
    return {"input_ids": words, "labels": words}


def step(contender, vocabulary: int, tokens: int) -> dict | None:
    """Seconds and peak of the second step of so many tokens; None where memory does not hold one."""
    gc.collect()
    torch.cuda.empty_cache()
    try:
        for _ in range(2):  # the first one compiles
            device.reset_peak()
            begin = time.perf_counter()
            loss = contender.step(batch_of(vocabulary, tokens)).item()
            device.synchronize()
            seconds = time.perf_counter() - begin
    except torch.OutOfMemoryError:
        contender.model.zero_grad(set_to_none=True)
        return None
    print(f"{contender.name}: {tokens} tokens, {seconds:.2f} s, {device.peak_gb():.2f} GB, loss {loss:.6f}", flush=True)
    return {"tokens": tokens, "seconds": seconds, "peak_gb": device.peak_gb(), "loss": loss}


def measure(key: str, arguments: argparse.Namespace) -> dict:
    """One contender's row, in this process."""
    described = MODELS[MODEL].tiny() if arguments.tiny else MODELS[MODEL]
    torch.manual_seed(0)
    contender = CONTENDERS[key](described.build().train())
    if contender is None:
        return {"key": key, "missing": True}
    vocabulary = described.settings["vocab_size"]
    memory_gb = torch.cuda.mem_get_info()[1] / 1e9 if device.DEVICE == "cuda" else 0.0
    held: list[dict] = []
    tokens, ended = arguments.first, ""
    while not ended:
        found = step(contender, vocabulary, tokens)
        if found is None:
            ended = "memory"
        else:
            held.append(found)
            ended = "time" if 4 * found["seconds"] > arguments.limit or len(held) == arguments.most else ""
            tokens *= 2
    part = tokens // 4
    while ended == "memory" and held and part >= tokens // 2 // PARTS:
        found = step(contender, vocabulary, held[-1]["tokens"] + part)
        held += [found] if found is not None else []
        part //= 2
    row = {"key": key, "contender": contender.name, "ended": ended, "steps": held, "memory_gb": memory_gb}
    return row | {"tokens": held[-1]["tokens"] if held else 0, "by_memory": by_memory(row)}


def by_memory(row: dict) -> int | None:
    """Tokens that would take all of the memory, by the last two lengths."""
    if row["ended"] == "memory" or len(row["steps"]) < 2:
        return None
    before, last = row["steps"][-2:]
    each = (last["peak_gb"] - before["peak_gb"]) / (last["tokens"] - before["tokens"])
    return int(last["tokens"] + (row["memory_gb"] - last["peak_gb"]) / each) if each > 0 else None


def longest(row: dict) -> int:
    return row.get("by_memory") or row.get("tokens", 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="bench-out/longest.json")
    parser.add_argument("--contender", choices=CONTENDERS, nargs="+", default=list(SHOWN))
    parser.add_argument("--first", type=int, default=16 * KIBI, help="tokens")
    parser.add_argument("--most", type=int, default=16, help="lengths that are doubled")
    parser.add_argument("--limit", type=float, default=60, help="seconds of a step")
    parser.add_argument("--tiny", action="store_true", help="of a few widths, on a CPU too: only to try it out")
    parser.add_argument("--here", action="store_true", help="in this process: what the others are asked for")
    arguments = parser.parse_args()
    if not (torch.cuda.is_available() or arguments.tiny):
        sys.exit("bench/longest.py measures a GPU and there is none here")
    if arguments.here:
        return alone.answer(arguments.out, arguments.contender[0], lambda: measure(arguments.contender[0], arguments))

    rows: list[dict] = []
    lines = []
    for key in arguments.contender:
        command = ["--contender", key, "--first", str(arguments.first), "--most", str(arguments.most),
                   "--limit", str(arguments.limit), *(["--tiny"] if arguments.tiny else [])]
        row = alone.ask("longest.py", key, command, 20 * arguments.limit + 300)
        if "missing" in row:
            print(f"{key}: not installed here")
            continue
        rows.append(row)
        if "failed" in row:
            print(f"{key} failed: {row['failed']}", flush=True)
            lines += [f"{key}: {row['failed']}"] if key.startswith("cermet") else []
        else:
            most = f", {row['by_memory'] // KIBI} x 1024 by memory" if row["by_memory"] else ""
            print(f"{row['contender']}: {row['tokens'] / KIBI:.0f} x 1024 tokens ran{most}", flush=True)
        environment.write(arguments.out, "longest", {"model": MODEL, "contenders": rows})
    ours = max((longest(row) for row in rows if row["key"].startswith("cermet")), default=0)
    if device.DEVICE == "cuda" and ours and ours < max(map(longest, rows)):
        lines.append(f"Cermet holds {ours} tokens, another {max(map(longest, rows))}")
    for line in lines:
        print(f"WRONG {line}", flush=True)
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
