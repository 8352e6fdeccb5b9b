"""Graphs of plain small operations (tests/graphs), forward and gradient, on the GPU: `cermet run --check` compares each
output with the float64 interpreter."""
from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from core import nvrtc, package_folder
from plain import GRAPHS, wanted

ROOT = Path(__file__).resolve().parents[2]


def program(name: str) -> Path:
    """A tool of the bundle, or of the build folder."""
    found = [path for path in (ROOT / "bin" / name, ROOT / "build/bin" / name) if path.exists()]
    if not found:
        pytest.skip(f"{name} is neither in {ROOT / 'bin'} nor in {ROOT / 'build/bin'}")
    return found[0]


def run(*command) -> str:
    environment = dict(os.environ)
    environment.setdefault("CERMET_COMPILER_LIBRARY", str(package_folder() / "libcermet_compiler.so"))
    if nvrtc():
        environment.setdefault("CERMET_NVRTC", nvrtc().decode())
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda path: path.stem)
def test_plain_graphs(core, graph, tmp_path):
    text = graph.read_text()
    gradient = core.differentiate(text, wanted(text, core.program(text).inputs))
    for part, content in (("forward", gradient["forward"]), ("backward", gradient["backward"]), ("plain", text)):
        path = tmp_path / f"{part}.mlir"
        path.write_text(content)
        for size in (1, 7, 33):
            symbols = {dim for value in core.program(content).inputs for dim in value["dims"] if isinstance(dim, str)}
            sizes = [argument for symbol in sorted(symbols) for argument in ("--size", f"{symbol}={size}")]
            output = run(program("cermet"), "run", path, "-t", "cuda", "--check", "--no-cache", "--repeat", 1, *sizes)
            assert "WRONG" not in output

