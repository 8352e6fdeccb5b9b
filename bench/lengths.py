"""A training step over batches that differ, random weights: seconds until all have run once, then ms a step.

Sixteen batches of 8 of 513 to 1024 tokens, in a drawn order, with the mask that tokenizers give: of ones ("full"), or
zero behind each row's own length, where labels are ignored ("padded"; one row of a batch is as long as the batch). Or
twenty as SFTTrainer packs them ("packed"): documents of 32 to 768 tokens in 8 rows of at most 1024, each where it
leaves the least room, laid behind one another with positions that begin again. There "flash" is transformers with
flash_attention_2, where that is installed. "marked" is Cermet with `torch._dynamo.mark_dynamic` on every tensor's
length, so that torch traces once, and "dynamic" with `torch.compile(dynamic=True)`. Each contender has a process of its
own with fresh caches. The seconds run from torch.compile or what stands for it, imports included, to the end of the
last length's first step, and are told by part of all that was compiled (parts.py). Then, after each length once more,
`--rounds` times all lengths in a row between two events; the table gives a step's mean over the lengths, the median of
the rounds and their spread, and peak memory. A process that takes longer than `--limit` seconds is ended, and has no
figures.

    python bench/lengths.py [--scene full padded packed] [--contender NAME ...] [--rounds 3] [--limit 150] [--out FILE]

It exits 1 where Cermet fails or a loss is not eager's to 4 digits.
"""
from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cold  # before torch, which reads where its caches are

import torch

import alone
import device
import environment
import parts
from contenders import CONTENDERS
from models import MODELS, Model

MODEL = "Llama-3.2-1B"
SCENES = {"full": 16, "padded": 16, "packed": 20}  # and how many batches
SHOWN = ("eager", "liger", "cermet-aot", "cermet-marked", "cermet-auto", "inductor")
IGNORED = -100


def lengths_of(described: Model, count: int) -> list[int]:
    """Different ones above half of the model's, the same in every process."""
    return random.Random(0).sample(range(described.tokens // 2 + 1, described.tokens + 1), count)


def batch_of(described: Model, length: int, padded: bool) -> dict[str, torch.Tensor]:
    torch.manual_seed(length)
    words = torch.randint(1, described.settings["vocab_size"], (described.batch, length), device=device.DEVICE)
    own = torch.full((described.batch, 1), length, device=device.DEVICE)
    if padded:
        own[1:] = torch.randint(length // 2, length + 1, (described.batch - 1, 1), device=device.DEVICE)
    kept = torch.arange(length, device=device.DEVICE) < own
    return {"input_ids": words.masked_fill(~kept, described.config().pad_token_id), "attention_mask": kept.long(),
            "labels": words.masked_fill(~kept, IGNORED)}


def packed_batch(described: Model, number: int) -> dict[str, torch.Tensor]:
    """Of documents in an order of their own, by best fit, as `packing=True` does, and the collator's flattening."""
    drawn, room = random.Random(number), [described.tokens] * described.batch
    rows: list[list[int]] = [[] for _ in room]
    for length in sorted((drawn.randint(described.tokens // 32, described.tokens * 3 // 4) for _ in range(
            described.batch * 4)), reverse=True):
        fitting = [row for row, left in enumerate(room) if left >= length]
        if fitting:
            row = min(fitting, key=room.__getitem__)
            rows[row].append(length)
            room[row] -= length
    places = torch.cat([torch.arange(length) for row in rows for length in row])[None].to(device.DEVICE)
    torch.manual_seed(number)
    words = torch.randint(1, described.settings["vocab_size"], places.shape, device=device.DEVICE)
    return {"input_ids": words, "position_ids": places, "labels": words.masked_fill(places == 0, IGNORED)}


def batches_of(described: Model, scene: str, count: int) -> list[dict[str, torch.Tensor]]:
    if scene == "packed":
        return [packed_batch(described, number) for number in range(count)]
    return [batch_of(described, length, scene == "padded") for length in lengths_of(described, count)]


def measure(scene: str, key: str, arguments: argparse.Namespace) -> dict:
    """One contender's row, in this process."""
    described = MODELS[MODEL].tiny() if arguments.tiny else MODELS[MODEL]
    torch.manual_seed(0)
    model = described.build().train()
    batches = batches_of(described, scene, arguments.lengths)
    lengths = [batch["input_ids"].shape[1] for batch in batches]
    device.synchronize()
    before, start = parts.so_far(), time.perf_counter()
    contender = CONTENDERS[key](model)
    if contender is None:
        return {"key": key, "missing": True}
    seconds, losses = [], []
    for length, batch in zip(lengths, batches):
        losses.append(contender.step(batch).item())
        device.synchronize()
        seconds.append(time.perf_counter() - start)
        print(f"{contender.name}: length {length} done at {seconds[-1]:.1f} s, loss {losses[-1]:.6f}", flush=True)
    taken = parts.since(before, seconds[-1])
    print(f"{contender.name}: {parts.written(taken)}", flush=True)
    row = {"key": key, "contender": contender.name, "lengths": lengths, "seconds": seconds, "losses": losses,
           "parts": taken, "graphs": torch._dynamo.utils.counters["stats"]["unique_graphs"]}
    if key.startswith("cermet"):
        import cermet

        row["counters"] = cermet.counters()

    def all_lengths():
        for batch in batches:
            contender.step(batch)

    all_lengths()
    device.reset_peak()
    rounds = [device.milliseconds(all_lengths, 1) / len(batches) for _ in range(arguments.rounds)]
    return row | {"rounds_ms": rounds, "step_ms": statistics.median(rounds), "peak_gb": device.peak_gb()}


def _count(scene: str, arguments: argparse.Namespace) -> int:
    return arguments.lengths or (4 if arguments.tiny else SCENES[scene])


def ask(scene: str, key: str, arguments: argparse.Namespace) -> dict:
    command = ["--scene", scene, "--contender", key, "--rounds", str(arguments.rounds),
               "--lengths", str(_count(scene, arguments)), *(["--tiny"] if arguments.tiny else [])]
    return alone.ask("lengths.py", key, command, arguments.limit)


def wrong(rows: list[dict]) -> list[str]:
    """What does not hold, a line each."""
    found = {row["key"]: row for row in rows}
    lines = [f"{key}: {row['failed']}" for key, row in found.items() if key.startswith("cermet") and "failed" in row]
    truth = found.get("eager", {}).get("losses", [])
    for key, row in found.items():
        for length, mine, loss in zip(row.get("lengths", []), row.get("losses", []), truth):
            if key.startswith("cermet") and not abs(mine - loss) < 5e-4 * abs(loss):
                lines.append(f"{key}: loss {mine:.6f} at length {length}, eager's is {loss:.6f}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="bench-out/lengths.json")
    parser.add_argument("--scene", choices=SCENES, nargs="+", default=list(SCENES))
    parser.add_argument("--contender", choices=CONTENDERS, nargs="+")
    parser.add_argument("--lengths", type=int, help="how many batches, or 4 where it is tiny")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=150, help="seconds of one contender's process")
    parser.add_argument("--tiny", action="store_true", help="of a few widths, on a CPU too: only to try it out")
    parser.add_argument("--here", action="store_true", help="in this process: what the others are asked for")
    arguments = parser.parse_args()
    if not (torch.cuda.is_available() or arguments.tiny):
        sys.exit("bench/lengths.py measures a GPU and there is none here")
    if arguments.here:
        key = arguments.contender[0]
        return alone.answer(arguments.out, key, lambda: measure(arguments.scene[0], key, arguments))

    scenes, lines = [], []
    for scene in arguments.scene:
        described = MODELS[MODEL].tiny() if arguments.tiny else MODELS[MODEL]
        rows: list[dict] = []
        scenes.append({"scene": scene, "model": MODEL, "batch": described.batch, "lengths": _count(scene, arguments),
                       "tokens": described.tokens, "limit_s": arguments.limit, "contenders": rows})
        print(f"{MODEL}, batch {described.batch}, {_count(scene, arguments)} lengths, {scene}", flush=True)
        for key in arguments.contender or (*SHOWN, *(["flash"] if scene == "packed" else [])):
            row = ask(scene, key, arguments)
            if "missing" in row:
                print(f"{key}: not installed here")
                continue
            rows.append(row)
            if "failed" in row:
                print(f"{key} failed: {row['failed']}", flush=True)
            environment.write(arguments.out, "lengths", {"scenes": scenes})  # kept whatever comes next
        print(f"\n{'':20s}{'all run, s':>11s}{'graphs':>8s}{'step ms':>9s}{'spread':>8s}{'peak GB':>9s}")
        for row in rows:
            if "failed" not in row:
                spread = max(row["rounds_ms"]) - min(row["rounds_ms"])
                print(f"{row['contender']:20s}{row['seconds'][-1]:11.1f}{row['graphs']:8d}{row['step_ms']:9.1f}"
                      f"{spread:8.1f}{row['peak_gb']:9.1f}", flush=True)
        lines += [f"{scene}: {line}" for line in wrong(rows)]
    for line in lines:
        print(f"WRONG {line}", flush=True)
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
