"""What a result was measured on, and where it is written: the head and the tail of every benchmark here."""
from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_PACKAGES = ("torch", "triton", "transformers", "peft", "torchao", "liger_kernel", "cermet")


def commit() -> str:
    """CERMET_COMMIT, the file `commit` that a bundle carries, or git's answer; "unknown" is an answer too."""
    if os.environ.get("CERMET_COMMIT"):
        return os.environ["CERMET_COMMIT"]
    if (ROOT / "commit").exists():
        return (ROOT / "commit").read_text().strip()
    asked = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"],
                           capture_output=True, text=True)
    return asked.stdout.strip() or "unknown"


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def describe() -> dict:
    """GPU, driver, versions, commit and time; a GPU's fields are None where there is none."""
    asked = None
    try:
        asked = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
                               capture_output=True, text=True)
    except FileNotFoundError:
        pass
    gpu, driver, memory = ([part.strip() for part in asked.stdout.splitlines()[0].split(",")]
                           if asked and asked.returncode == 0 and asked.stdout else (None, None, None))
    return {"gpu": gpu, "driver": driver, "gpu_memory": memory, "machine": platform.machine(),
            "python": platform.python_version(), "commit": commit(),
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            **{name: version(name) for name in _PACKAGES}}


def write(path: str | Path, benchmark: str, results: dict) -> None:
    """One JSON file: {"benchmark", "environment", **results}."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"benchmark": benchmark, "environment": describe(), **results}, indent=1) + "\n")
    print(f"{benchmark}: {path}")
