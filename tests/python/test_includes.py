"""Includes run one way: every `#include` of the C++ rooms against the table in docs/design.md, which names all of them."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIBRARIES = {  # how an include of it begins
    "mlir/": "MLIR", "llvm/": "MLIR", "lld/": "lld", "fmt/": "fmt", "nlohmann/": "JSON", "xxhash.h": "xxHash",
    "CLI/": "CLI11", "torch/": "torch",
}  # fmt: skip
HEADER = "frontends/c/cermet.h"


def table() -> dict[str, set[str]]:
    """What each room may use by its row, in the rows' order."""
    rows = re.findall(r"^\| `([^`]+)` \|[^|]*\|([^|]*)\|$", (ROOT / "docs/design.md").read_text(), re.M)
    return {
        room: {name.strip(" `") for name in uses.split(",") if name.strip()}
        for room, uses in rows
        if (ROOT / room).exists() and not (ROOT / room / "__init__.py").exists()
    }


def reachable(rows: dict[str, set[str]]) -> dict[str, set[str]]:
    """What each room may use, through others too; a row may only name rows above it."""
    result: dict[str, set[str]] = {}
    for room, uses in rows.items():
        result[room] = {room} | uses
        for used in uses & rows.keys():
            assert used in result, f"the row of {room} names {used}, which must stand above it"
            result[room] |= result[used]
    return result


def room_of(path: str) -> str:
    return path if path == HEADER else path.rpartition("/")[0]


def sources() -> list[pathlib.Path]:
    folders = ("ir", "patterns", "compiler", "runtime", "frontends")
    return [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".h", ".cpp")]


def uses_of(path: pathlib.Path) -> set[str]:
    """Rooms and libraries that a file includes; what the build generates lies in no room."""
    result = set()
    for name in re.findall(r'^\s*#\s*include ["<]([^">]+)[">]', path.read_text(), re.M):
        if (ROOT / name).exists():
            result.add(room_of(name))
        result.update(library for start, library in LIBRARIES.items() if name.startswith(start))
    return result


def violations(files: list[pathlib.Path], may_use: dict[str, set[str]]) -> list[str]:
    result = []
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        room = room_of(name)
        if room not in may_use:
            result.append(f"{name} is in no room of the table")
        else:
            result += [f"{name} uses {used}" for used in sorted(uses_of(path) - may_use[room])]
    return result


def test_includes_run_one_way():
    assert violations(sources(), reachable(table())) == []


def test_no_row_allows_what_nothing_needs():
    rows, may_use, used = table(), reachable(table()), {}
    for path in sources():
        used.setdefault(room_of(path.relative_to(ROOT).as_posix()), set()).update(uses_of(path))
    for room, uses in rows.items():
        needed = used.get(room, set()) - {room}
        for name in uses:
            others = set().union(*(may_use.get(other, {other}) for other in uses - {name}), set())
            reached = may_use.get(name, {name})
            assert (needed & reached) - others, f"nothing in {room} needs {name}"


@pytest.mark.parametrize("missing", ["ir/text", "MLIR", "runtime/abi"])
def test_what_the_table_forbids_is_found(missing):
    rows = {room: uses - {missing} for room, uses in table().items()}
    assert violations(sources(), reachable(rows))
