"""Decoding with a static cache, with random weights: ms a token by batch size and filling, under CUDA graphs.

Eight layers of Llama-3-8B over transformers' StaticCache, a part of which eager has filled (`16:1024/2048` is 16
sequences with 1024 tokens in a cache of 2048); then a token a call, the likeliest of the one before. The compiled
contenders record CUDA graphs (`mode="reduce-overhead"`). Each contender and scene has a process of its own with fresh
caches. The first token's seconds run from torch.compile, imports included; then, after some tokens that are not timed,
`--rounds` times `--tokens` tokens in a row between two events, from the same place in the cache. The table gives the
median of the rounds, their spread, and where a token's GPU time goes (profiler: matmul, attention, Cermet's kernels,
all else; idle is what is left of the time).

    python bench/decode.py [--scene 1:1024/2048 ...] [--contender NAME ...] [--rounds 5] [--limit 100] [--out FILE]

It exits 1 where Cermet fails or the first token's logits are not eager's.
"""
from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import time
from pathlib import Path
from typing import Callable

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cold  # before torch, which reads where its caches are

import torch
import transformers

import alone
import device
import environment
import shares
from models import MODELS
from timer import relative_error

MODEL, WARM_UP = "Llama-3-8B", 8
TOLERANCE = 3e-2  # relative L2, of logits in bfloat16


def cermet(remainder: str) -> Callable:
    options = {"remainder": remainder, "mode": "reduce-overhead", "strict": True}
    return lambda model: torch.compile(model, backend="cermet", options=options)


CONTENDERS = {"eager": lambda model: model, "inductor": lambda model: torch.compile(model, mode="reduce-overhead"),
              "cermet-aot": cermet("aot"), "cermet-auto": cermet("auto")}


@dataclasses.dataclass(frozen=True)
class Scene:
    batch: int
    filled: int  # of the cache's room
    room: int

    @classmethod
    def of(cls, text: str) -> "Scene":
        batch, _, cache = text.partition(":")
        filled, _, room = cache.partition("/")
        return cls(int(batch), int(filled), int(room))

    def __str__(self) -> str:
        return f"{self.batch}:{self.filled}/{self.room}"

    def tiny(self) -> "Scene":
        return Scene(min(self.batch, 2), self.filled // 64, self.room // 32)


SCENES = [Scene(1, 1024, 2048), Scene(16, 1024, 2048), Scene(1, 512, 8192)]


class Decoding:
    """A model with its cache, `filled` tokens in it."""

    def __init__(self, model: torch.nn.Module, batch: int, filled: int, room: int):
        self.filled = filled
        self.cache = transformers.StaticCache(config=model.config, max_cache_len=room)
        words = torch.randint(model.config.vocab_size, (batch, filled), device=device.DEVICE)
        last = model(input_ids=words, past_key_values=self.cache, use_cache=True, logits_to_keep=1)
        self.first = self.next(last.logits)

    @staticmethod
    def next(logits: torch.Tensor) -> torch.Tensor:
        return logits[:, -1].argmax(-1, keepdim=True)

    def rewind(self) -> None:
        """What comes next is written over what came behind the filled tokens."""
        for layer in self.cache.layers:
            layer.cumulative_length.fill_(self.filled)

    def logits(self, call: Callable, token: torch.Tensor) -> torch.Tensor:
        torch.compiler.cudagraph_mark_step_begin()
        return call(input_ids=token, past_key_values=self.cache, use_cache=True).logits

    def run(self, call: Callable, tokens: int) -> None:
        token = self.first
        for _ in range(tokens):
            token = self.next(self.logits(call, token))


@torch.no_grad()
def measure(scene: Scene, key: str, arguments: argparse.Namespace) -> dict:
    """One contender's row, in this process."""
    described = MODELS[MODEL].tiny() if arguments.tiny else MODELS[MODEL]
    scene, tokens = (scene.tiny(), 8) if arguments.tiny else (scene, arguments.tokens)
    torch.manual_seed(0)
    model = described.build(**({"num_hidden_layers": described.layers} if described.layers else {})).eval()
    decoding = Decoding(model, scene.batch, scene.filled, scene.room)
    truth = decoding.logits(model, decoding.first).double()
    decoding.rewind()
    device.synchronize()
    start = time.perf_counter()
    call = CONTENDERS[key](model)
    first = decoding.logits(call, decoding.first).double()
    device.synchronize()
    seconds = time.perf_counter() - start
    error = relative_error(first, truth)
    decoding.rewind()
    decoding.run(call, WARM_UP)
    device.reset_peak()
    rounds = []
    for _ in range(arguments.rounds):
        decoding.rewind()
        rounds.append(device.milliseconds(lambda: decoding.run(call, tokens), 1) / tokens)
    row = {"key": key, "contender": key.replace("-", ", "), "first_token_s": seconds, "relative_error": error,
           "rounds_ms": rounds, "token_ms": statistics.median(rounds), "peak_gb": device.peak_gb()}
    decoding.rewind()
    row["gpu_ms"], row["kernels"] = shares.of(lambda: decoding.run(call, 1))
    row["gpu_ms"]["idle"] = max(row["token_ms"] - sum(row["gpu_ms"].values()), 0.0)
    return row


def ask(scene: Scene, key: str, arguments: argparse.Namespace) -> dict:
    command = ["--scene", str(scene), "--contender", key, "--rounds", str(arguments.rounds),
               "--tokens", str(arguments.tokens), *(["--tiny"] if arguments.tiny else [])]
    return alone.ask("decode.py", key, command, arguments.limit)


def problem_of(row: dict) -> str:
    """What is wrong with a row; "" where nothing is."""
    if "failed" in row:
        return row["failed"]
    error = row["relative_error"]
    return "" if error < TOLERANCE else f"logits are {error:.1e} from eager's, expected below {TOLERANCE:.0e}"


def told(row: dict) -> str:
    spread = max(row["rounds_ms"]) - min(row["rounds_ms"])
    return (f"{row['token_ms']:8.3f} ms a token (spread {spread:.3f}), first token {row['first_token_s']:.1f} s, peak "
            f"{row['peak_gb']:.1f} GB, GPU ms " + ", ".join(f"{kind} {ms:.3f}" for kind, ms in row["gpu_ms"].items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="bench-out/decode.json")
    parser.add_argument("--scene", type=Scene.of, nargs="+", default=SCENES,
                        help="batch size:tokens in the cache/its room")
    parser.add_argument("--contender", choices=CONTENDERS, nargs="+", default=list(CONTENDERS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128, help="in a row, of a round")
    parser.add_argument("--limit", type=float, default=100, help="seconds of one contender's process")
    parser.add_argument("--tiny", action="store_true", help="of a few widths, on a CPU too: only to try it out")
    parser.add_argument("--here", action="store_true", help="in this process: what the others are asked for")
    arguments = parser.parse_args()
    if not (torch.cuda.is_available() or arguments.tiny):
        sys.exit("bench/decode.py measures a GPU and there is none here")
    if arguments.here:
        key = arguments.contender[0]
        return alone.answer(arguments.out, key, lambda: measure(arguments.scene[0], key, arguments))

    scenes, wrong = [], False
    for scene in arguments.scene:
        rows: list[dict] = []
        scenes.append({**dataclasses.asdict(scene), "model": MODEL, "contenders": rows})
        for key in arguments.contender:
            row = ask(scene, key, arguments)
            rows.append(row)
            if "failed" not in row:
                print(f"{scene!s:13s} {row['contender']:14s}{told(row)}", flush=True)
            if problem := problem_of(row):
                wrong |= key.startswith("cermet")
                print(f"{scene!s:13s} {key} WRONG: {problem}", flush=True)
            environment.write(arguments.out, "decode", {"scenes": scenes})  # kept whatever comes next
    sys.exit(wrong)


if __name__ == "__main__":
    main()
