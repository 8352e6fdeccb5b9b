"""The two ways through the rooms in docs/design.md: their files exist, and Python's run in the order in which they stand."""

from __future__ import annotations

import inspect
import pathlib
import re
import sys

import graphs
import pytest
import torch

import cermet

ROOT = pathlib.Path(__file__).resolve().parents[2]
DESIGN, PACKAGE = ROOT / "docs" / "design.md", ROOT / "frontends" / "torch" / "cermet"
pytestmark = pytest.mark.skipif(not DESIGN.exists(), reason="the source tree is not here, only the tests")


def ways() -> list[list[str]]:
    """The files that each of them names, in order."""
    section = DESIGN.read_text().partition("## Two ways through the rooms")[2].partition("\n## ")[0]
    return [re.findall(r"`([\w/]+\.(?:py|cpp))`", steps) for steps in re.split(r"\n\n1\. ", section)[1:]]


def test_their_files_exist_and_none_comes_twice():
    assert len(ways()) == 2
    for files in ways():
        assert len(files) >= 15 and sorted(set(files)) == sorted(files)
        assert [file for file in files if not (ROOT / file).exists() and not (PACKAGE / file).exists()] == []


def test_python_runs_in_their_order():
    package = pathlib.Path(cermet.__file__).parent
    called: dict[str, None] = {}

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(str(package)):
            called.setdefault(pathlib.Path(code.co_filename).relative_to(package).as_posix())  # a function's

    torch._dynamo.reset()
    sys.setprofile(note)
    try:
        torch.compile(graphs.rms_norm, backend="cermet")(torch.randn(4, 32, requires_grad=True), torch.ones(32))
    finally:
        sys.setprofile(None)
    named = [file for file in ways()[0] if (PACKAGE / file).exists()]
    assert [file for file in called if file in named] == named
