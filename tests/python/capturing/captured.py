"""Captures of tiny models in processes of their own, and processes that have nothing but what these wrote."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import forked

MODELS = Path(__file__).resolve().with_name("captured_models.py")
STEPS = """
import contextlib, json, os, sys
sys.path.insert(0, {folder!r})
import torch
import captured_models, cermet
from tiny_models import words
name, device, calls, marked = (json.loads(argument) for argument in sys.argv[1:])
model = getattr(captured_models, name)().to(device)
before = open("/proc/self/maps").read()  # torch for CUDA opens NVRTC itself
call = torch.compile(model, backend="cermet", options=json.loads(os.environ.get("OPTIONS", "{{}}")))
found = []
recording = contextlib.ExitStack()
if "RECORD" in os.environ:
    recording.enter_context(cermet.record(os.environ["RECORD"]))
for rows, length in calls:
    text, labels = words(rows, length, device), words(rows, length, device, seed=1)
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
recording.close()
maps = open("/proc/self/maps").read()
opened = [name for name in ("libnvrtc", "libcermet_compiler") if name in maps and name not in before]
print("ANSWER" + json.dumps(dict(numbers=found, counters=cermet.counters(), opened=opened)))
"""
ONLY = {
    "CERMET_CACHE": "only",
    "CERMET_CACHE_DIR": "",
    "CERMET_COMPILER_LIBRARY": "/nowhere.so",
    "CERMET_NVRTC": "/nowhere.so",
}


def capture(folder: Path, model: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`python -m cermet capture captured_models.py:MODEL ...` in `folder`."""
    folder.mkdir(exist_ok=True)
    environment = os.environ | {"CERMET_CACHE_DIR": str(folder / "cache")} | variables
    return forked.run("-m", "cermet", "capture", f"{MODELS}:{model}", *arguments, cwd=folder, env=environment)


def steps(
    folder: Path,
    model: str,
    calls: list[tuple[int, int]],
    marked: tuple[int, ...] = (),
    device: str = "cpu",
    **variables: str,
) -> dict[str, Any]:
    """What a process answers that trains, evaluates and infers with batches of these rows and lengths, with dimensions
    `marked` as dynamic. `model`: a function of captured_models.py. RECORD: it writes what it asked for as this pack.
    OPTIONS: of the backend."""
    code = STEPS.format(folder=str(MODELS.parent))
    environment = os.environ | {
        "CERMET_CACHE_DIR": str(folder / "own"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / f"inductor-{len(list(folder.iterdir()))}"),
    }
    ran = forked.run("-c", code, *map(json.dumps, (model, device, calls, marked)), env=environment | variables)
    assert ran.returncode == 0, ran.stderr[-4000:]
    return json.loads(ran.stdout.split("ANSWER")[1])


def entries(pack: Path) -> list[tuple[str, str]]:
    """Kind and key of each entry of a pack, without the build id (docs/cache-format.md)."""
    data = pack.read_bytes()
    count = int.from_bytes(data[12:16], "little")
    found = []
    for record in (data[24 + 40 * index : 64 + 40 * index] for index in range(count)):
        begin = int.from_bytes(record[24:32], "little")
        entry = data[begin : begin + 32]
        header, key = int.from_bytes(entry[12:16], "little"), int.from_bytes(entry[16:24], "little")
        kind = json.loads(data[begin + 32 : begin + 32 + header])["kind"]
        text = data[begin + 32 + header : begin + 32 + header + key].decode()
        found.append((kind, text.partition("\n")[2]))
    return found
