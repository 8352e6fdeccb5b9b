"""Captures of tiny models in processes of their own, and processes that have nothing but what these wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]  # where tiny_models is
SCRIPT = """
import sys
sys.path.insert(0, {here!r})
import torch
from tiny_models import tiny

def llama():
    return tiny("Llama", torch.bfloat16)

def qwen3():
    return tiny("Qwen3", torch.bfloat16)

def number():
    return 3

def broken():
    raise ValueError("no configuration")
"""
STEPS = """
import json, sys
sys.path.insert(0, {here!r})
import torch
import cermet
from tiny_models import tiny, words
calls, marked = json.loads(sys.argv[2]), json.loads(sys.argv[3])
model = tiny(sys.argv[1], torch.bfloat16)
call = torch.compile(model, backend="cermet")
found = []
for rows, length in calls:
    text, labels = words(rows, length), words(rows, length, seed=1)
    for tensor in (text, labels):
        for dimension in marked:
            torch._dynamo.mark_dynamic(tensor, dimension)
    model.train()
    model.zero_grad()
    loss = call(input_ids=text, labels=labels).loss
    loss.backward()
    found += [loss.item(), torch.stack([p.grad.double().norm() for p in model.parameters()]).norm().item()]
    model.eval()
    with torch.no_grad():
        found += [call(input_ids=text, labels=labels).loss.item(), call(input_ids=text).logits.double().norm().item()]
maps = open("/proc/self/maps").read()
print("ANSWER" + json.dumps(dict(numbers=found, counters=cermet.counters(), compiler="libcermet_compiler" in maps)))
"""
ONLY = {"CERMET_CACHE": "only", "CERMET_CACHE_DIR": "", "CERMET_COMPILER_LIBRARY": "/nowhere.so"}


def capture(
    folder: Path, model: str, *arguments: str, script: str = SCRIPT, **variables: str
) -> subprocess.CompletedProcess[str]:
    """`python -m cermet capture my_script:MODEL ...` in `folder`."""
    folder.mkdir(exist_ok=True)
    (folder / "my_script.py").write_text(script.format(here=str(HERE)))
    environment = os.environ | {"CERMET_CACHE_DIR": str(folder / "cache")} | variables
    command = [sys.executable, "-m", "cermet", "capture", model, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, timeout=560)


def steps(
    folder: Path, family: str, calls: list[tuple[int, int]], marked: tuple[int, ...] = (), **variables: str
) -> dict[str, Any]:
    """What a process answers that trains, evaluates and infers with batches of these rows and lengths."""
    code = STEPS.format(here=str(HERE))
    environment = os.environ | {
        "CERMET_CACHE_DIR": str(folder / "own"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / f"inductor-{len(list(folder.iterdir()))}"),
    }
    ran = subprocess.run(
        [sys.executable, "-c", code, family, json.dumps(calls), json.dumps(marked)],
        capture_output=True, text=True, env=environment | variables, timeout=560,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-4000:]
    return json.loads(ran.stdout.split("ANSWER")[1])


def entries(pack: Path) -> list[tuple[str, str]]:
    """Kind and key of each entry of a pack, without the build id (docs/cache-format.md)."""
    data = pack.read_bytes()
    count = int.from_bytes(data[12:16], "little")
    found = []
    for record in (data[24 + 40 * index : 64 + 40 * index] for index in range(count)):
        begin = int.from_bytes(record[24:32], "little")
        header, key = (int.from_bytes(data[begin + at : begin + at + size], "little") for at, size in ((12, 4), (16, 8)))
        kind = json.loads(data[begin + 32 : begin + 32 + header])["kind"]
        text = data[begin + 32 + header : begin + 32 + header + key].decode()
        found.append((kind, text.partition("\n")[2]))
    return found
