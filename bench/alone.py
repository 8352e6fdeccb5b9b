"""A measurement in a process of its own: nothing is imported or compiled yet, memory is its own, and a limit ends it.

A benchmark asks itself for the row of one contender with --here (`ask`, of many at once `each`), and there writes it
(`answer`).
"""
from __future__ import annotations

import argparse
import concurrent.futures
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Callable, Iterator


class Late(RuntimeError):
    """It had not ended when its time was up."""


def run(script: str, arguments: list[str], seconds: float | None = None, keep_caches: bool = False,
        settings: dict[str, str] | None = None) -> dict:
    """The JSON that a script of this folder writes to the --out that it is given; RuntimeError says why there is none.

    What it prints goes where this process prints. `settings` are added to its environment."""
    environment = {**os.environ, **(settings or {})} | ({"CERMET_BENCH_KEEP_CACHES": "1"} if keep_caches else {})
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [sys.executable, str(Path(__file__).resolve().parent / script), *arguments, "--out", str(out)]
        try:
            status = subprocess.run(command, env=environment, timeout=seconds).returncode
        except subprocess.TimeoutExpired:
            raise Late(f"not done after {seconds:.0f} s") from None
        if not out.exists():
            raise RuntimeError(f"ended with status {status} and no result")
        return json.loads(out.read_text())


def ask(script: str, key: str, arguments: list[str], seconds: float, settings: dict[str, str] | None = None) -> dict:
    """The row that the script answers with, or one that says under "failed" why there is none, with "late" where only
    its time was up."""
    try:
        return run(script, [*arguments, "--here"], seconds, settings=settings)
    except Late as problem:
        return {"key": key, "failed": str(problem), "late": True}
    except RuntimeError as problem:
        return {"key": key, "failed": str(problem)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those of a benchmark that asks itself for many rows (`each`)."""
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="rows that are measured at once")
    parser.add_argument("--seconds", type=float, default=3600, help="after which none is begun")
    parser.add_argument("--limit", type=float, default=300, help="seconds of one")
    parser.add_argument("--tiny", action="store_true", help="changes nothing: all are")
    parser.add_argument("--here", action="store_true", help="in this process: what the others are asked for")


def each(script: str, asked: dict[str, list[str]], given: argparse.Namespace, gpus: int) -> Iterator[tuple[str, dict]]:
    """The row of each key, which is asked for with these arguments, in their order; of several GPUs each has a share.
    One that is not begun says so under "left_out"."""
    end = time.monotonic() + given.seconds

    def row(place: int, key: str) -> dict:
        if time.monotonic() > end:
            return {"key": key, "left_out": "no time was left"}
        settings = {"CUDA_VISIBLE_DEVICES": str(place % gpus)} if gpus > 1 else None
        return ask(script, key, asked[key], given.limit, settings)

    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        yield from zip(asked, pool.map(row, itertools.count(), asked))


def answer(out: str, key: str, measure: Callable[[], dict]) -> None:
    try:
        row = measure()
    except Exception as problem:  # who asked is told, and goes on with others
        traceback.print_exc()
        row = {"key": key, "failed": f"{type(problem).__name__}: {problem}"[:2000]}
    Path(out).write_text(json.dumps(row))
