"""A measurement in a process of its own: nothing is imported or compiled yet, memory is its own, and a limit ends it.

A benchmark asks itself for the row of one contender with --here (`ask`), and there writes it (`answer`).
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Callable


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


def answer(out: str, key: str, measure: Callable[[], dict]) -> None:
    try:
        row = measure()
    except Exception as problem:  # who asked is told, and goes on with others
        traceback.print_exc()
        row = {"key": key, "failed": f"{type(problem).__name__}: {problem}"[:2000]}
    Path(out).write_text(json.dumps(row))
