"""Adds up JUnit files for test.sh.

    totals.py --part FILE STATUS   one part's line; exits 1 when the part ended badly though no test of it failed
    totals.py FOLDER               "N passed, N failed, N skipped" over the folder; exits 1 when a test failed or none ran
"""
from __future__ import annotations

import collections
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path


_SHOWN, _LINES = 20, 30  # failed tests of a part that are named, and the last lines of each


def cases(path: Path) -> Iterator[tuple[str, str, str]]:
    """Name, outcome and what was printed of the test cases of one file. What a process wrote itself, in the folder of
    the file's name, stands in place of that process."""
    for case in ElementTree.parse(path).iter("testcase"):
        name = case.get("name", "")
        own = path.with_suffix("") / f"{name}.xml"
        if own.exists():
            yield from cases(own)
            continue
        kinds = {child.tag for child in case}
        name = f"{case.get('classname', '')}.{name}"
        if kinds & {"failure", "error"} or case.get("status") == "fail":
            yield name, "failed", "\n".join(child.text or "" for child in case)
        elif "skipped" in kinds or case.get("status") in ("disabled", "notrun"):
            yield name, "skipped", ""
        else:
            yield name, "passed", ""


def count(path: Path) -> tuple[int, int, int]:
    """(passed, failed, skipped) test cases of one file."""
    outcomes = collections.Counter(outcome for _, outcome, _ in cases(path))
    return outcomes["passed"], outcomes["failed"], outcomes["skipped"]


def part(path: Path, status: int) -> int:
    if not path.exists():
        print(f"   no results (its runner ended with status {status})")
        return 1
    passed, failed, skipped = count(path)
    for name, text in [(name, text) for name, outcome, text in cases(path) if outcome == "failed"][:_SHOWN]:
        print(f"   failed: {name}")
        for line in [line for line in text.splitlines() if line.strip()][-_LINES:]:
            print(f"      {line}")
    print(f"   {passed} passed, {failed} failed, {skipped} skipped")
    return int(passed + failed == 0 or (status != 0 and failed == 0))


def total(folder: Path) -> int:
    sums = [sum(column) for column in zip(*map(count, sorted(folder.glob("*.xml"))))] or [0, 0, 0]
    print(f"{sums[0]} passed, {sums[1]} failed, {sums[2]} skipped")
    return int(sums[1] > 0 or sums[0] == 0)


if __name__ == "__main__":
    if sys.argv[1] == "--part":
        sys.exit(part(Path(sys.argv[2]), int(sys.argv[3])))
    sys.exit(total(Path(sys.argv[1])))
