"""Imports run one way: every import of the Python package against the table in docs/design.md, which names its rooms."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

grimp = pytest.importorskip("grimp", reason="import-linter is not installed")
ROOT = pathlib.Path(__file__).resolve().parents[2]
DESIGN, PACKAGE = ROOT / "docs" / "design.md", ROOT / "frontends" / "torch" / "cermet"
pytestmark = pytest.mark.skipif(not DESIGN.exists(), reason="the source tree is not here, only the tests")
LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(sys.argv[1], no_cache=True))"


def table() -> dict[str, set[str]]:
    """What each room may use by its row, in the rows' order; a row may only name rows above it."""
    rows: dict[str, set[str]] = {}
    for room, uses in re.findall(r"^\| `(cermet\.[\w.]+)` \|[^|]+\|([^|]*)\|$", DESIGN.read_text(), re.M):
        rows[room] = set(re.findall(r"`([^`]+)`", uses))
        assert rows[room] <= rows.keys(), f"the row of {room} names {rows[room] - rows.keys()}, expected above it"
    return rows


def reachable(rows: dict[str, set[str]]) -> dict[str, set[str]]:
    """What each room may use, through others too."""
    result: dict[str, set[str]] = {}
    for room, uses in rows.items():
        result[room] = uses.union(*(result[used] for used in uses))
    return result


def room_of(module: str, rows: dict[str, set[str]]) -> str:
    """The row that names a module or the innermost folder around it; "" where none does."""
    return max((room for room in rows if f"{module}.".startswith(f"{room}.")), key=len, default="")


@pytest.fixture(scope="module")
def used() -> dict[str, set[str]]:
    """What the modules of each room import of other rooms."""
    sys.path.insert(0, str(PACKAGE.parent))
    try:
        graph = grimp.build_graph("cermet", cache_dir=None)
    finally:
        sys.path.pop(0)
    rows, found = table(), {}
    for module in graph.modules - {"cermet"}:
        room = room_of(module, rows)
        assert room, f"{module} is in no room of the table"
        others = {room_of(other, rows) for other in graph.find_modules_directly_imported_by(module)}
        found.setdefault(room, set()).update(others - {room})
    return found


def test_imports_are_those_of_the_table(used):
    rows = table()
    assert rows.keys() == used.keys()
    may_use = reachable(rows)
    for room in rows:
        assert used[room] <= may_use[room], f"{room} imports {used[room] - may_use[room]}"
        for name in rows[room]:
            others = set().union(*({other} | may_use[other] for other in rows[room] - {name}))
            assert used[room] & ({name} | may_use[name]) - others, f"nothing in {room} needs {name}"


def lint(folder: pathlib.Path, tmp_path: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """import-linter on the package in `folder`: rows as layers, and no circle between modules or folders anywhere."""
    layers = [room for room in reversed(table()) if room.count(".") == 1]
    config = tmp_path / "contracts.ini"
    config.write_text(
        "[importlinter]\nroot_package = cermet\n\n"
        "[importlinter:contract:layers]\nname = rooms\ntype = layers\nlayers =\n"
        + "".join(f"    {layer}\n" for layer in layers)
        + "\n[importlinter:contract:circles]\nname = no circle\ntype = acyclic_siblings\nancestors =\n    cermet\n    cermet.**\n"
    )
    run = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r}); {LINT}", str(config)]
    return subprocess.run(run, capture_output=True, text=True)


def test_no_import_runs_upward_or_in_a_circle(tmp_path):
    ran = lint(PACKAGE.parent, tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("module", "line", "broken"),
    [
        ("graph/nodes.py", "from ..fusing import matches", "rooms BROKEN"),
        ("graph/nodes.py", "from . import effects", "no circle BROKEN"),
        ("attention/proof/linear.py", "from .. import masks", "no circle BROKEN"),
    ],
)
def test_a_wrong_import_is_found(tmp_path, module, line, broken):
    shutil.copytree(PACKAGE, tmp_path / "cermet", ignore=shutil.ignore_patterns("*.so*", "__pycache__"))
    file = tmp_path / "cermet" / module
    file.write_text(f"{file.read_text()}\n{line}\n")
    ran = lint(tmp_path, tmp_path)
    assert ran.returncode != 0 and broken in ran.stdout, ran.stdout + ran.stderr
