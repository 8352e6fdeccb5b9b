"""One place for each fact: no file of the C++ rooms holds a second table of what runtime/abi has, and no file of the
Python package what libcermet answers."""

import pathlib
import re

import pytest
from test_includes import ROOT, sources

# The names of element types in plans and in graph texts.
if not (ROOT / "runtime").is_dir():
    pytest.skip("the sources are not here", allow_module_level=True)
ROWS = re.findall(r"^  TYPE\(\w+, (\w+), (\w+),", (ROOT / "runtime/abi/ElementType.h").read_text(), re.M)
NAMES = "|".join(sorted({name for row in ROWS for name in row}))
# What a file would hold that had a table of its own: so many of these words.
TABLES = {
    "runtime/abi/ElementType.h": (rf'"({NAMES})"', 4),
    "runtime/abi/OperandKind.h": (r'"(tile|row|column|scalar|index|gathered)"', 4),
    "runtime/abi/Targets.h": (r"\b(sm_\d\d+)\b", 3),
    "runtime/abi/Limits.h": (r"\b(\w*(?:HeadColumns|[mM]ax\w*Inputs|[mM]ax\w*Outputs)) = \d", 1),
    "runtime/context/Config.cpp": (r'"(CERMET_[A-Z_]+)"', 2),
}


def words(path: pathlib.Path, pattern: str) -> set[str]:
    return set(re.findall(pattern, path.read_text()))


@pytest.mark.parametrize("home", TABLES)
def test_there_is_no_second_table(home):
    pattern, least = TABLES[home]
    files = [*sources(), *(ROOT / "frontends").rglob("*.c")]
    elsewhere = [path.relative_to(ROOT).as_posix() for path in files if len(words(path, pattern)) >= least]
    assert [name for name in elsewhere if name != home] == []


def test_the_words_of_a_table_are_found(tmp_path):
    copy = tmp_path / "Copy.h"
    copy.write_text('constexpr const char* names[] = {"f32", "bf16", "f16", "i64"};\n')
    pattern, least = TABLES["runtime/abi/ElementType.h"]
    assert len(words(copy, pattern)) >= least


PACKAGE = ROOT / "frontends/torch/cermet"


def limits_of_their_own(text: str) -> list[str]:
    """Limits that a module states as numbers."""
    return re.findall(r"^(MAX_\w+|_MAX_RANK)\b.* = \d", text, re.M)


def read_again(text: str) -> set[str]:
    """Variables of libcermet's whose values a module reads."""
    ours = words(ROOT / "runtime/context/Config.cpp", TABLES["runtime/context/Config.cpp"][0])
    return ours & set(re.findall(r"(?:getenv\(|environ\.get\(|environ\[)\"(\w+)\"", text))


def test_python_asks_for_limits_and_settings():
    texts = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in PACKAGE.rglob("*.py")}
    assert {name: limits_of_their_own(text) for name, text in texts.items() if limits_of_their_own(text)} == {}
    assert {name: read_again(text) for name, text in texts.items() if read_again(text)} == {}


def test_what_python_would_know_again_is_found():
    assert limits_of_their_own("MAX_INPUTS, MAX_OUTPUTS = 16, 8\n") and limits_of_their_own("MAX_INPUTS = 8  # of the region\n")
    assert read_again('value = os.environ.get("CERMET_LOG", "")') == {"CERMET_LOG"}
