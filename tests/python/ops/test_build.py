"""What names this build of Cermet in torch's caches follows every source of the package."""

from __future__ import annotations

import importlib.resources
import shutil

import pytest

from cermet.ops import build


@pytest.fixture
def package(tmp_path):
    with importlib.resources.as_file(importlib.resources.files("cermet")) as installed:
        ignored = shutil.ignore_patterns("*.so*", "__pycache__")
        return shutil.copytree(installed, tmp_path / "cermet", ignore=ignored)


def test_a_line_of_the_deepest_module_is_another_build(package):
    before = build.fingerprint(package)
    assert build.build().endswith(f" {before}")
    deepest = max(package.rglob("*.py"), key=lambda file: (len(file.parts), str(file)))
    assert len(deepest.relative_to(package).parts) == 3
    deepest.write_text(f"{deepest.read_text()}# another line\n")
    assert build.fingerprint(package) != before


def test_a_module_in_another_place_is_another_build(package):
    before = build.fingerprint(package)
    (package / "text.py").rename(package / "ops" / "text.py")
    assert build.fingerprint(package) != before
