"""The C interface as programs that are built already have it: every function, constant and struct of cermet.h, with sizes
and offsets by the compiler, is a line of frontends/c/cermet.abi. A line may come; one that changes or goes breaks such a
program, and needs another version.

After an intended change: python tests/python/test_interface.py > frontends/c/cermet.abi
"""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER, LIST = ROOT / "frontends/c/cermet.h", ROOT / "frontends/c/cermet.abi"
pytestmark = [
    pytest.mark.skipif(not HEADER.exists(), reason="the source tree is not here, only the tests"),
    pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler"),
]


def squeezed(text: str) -> str:
    return re.sub(r"\s*([(),*])\s*", r"\1", " ".join(text.split())).replace(",", ", ").replace("*", "* ").replace("* *", "**").strip()


def fields(body: str) -> list[tuple[str, str]]:
    """(name, type) of each field of a struct, in order; `uint64_t a, b;` are two."""
    result = []
    for declaration in filter(None, (part.strip() for part in body.split(";"))):
        kind, names = re.fullmatch(r"(.*?[\s*])(\w+(?:\[\w+\])?(?:\s*,\s*\w+)*)", declaration, re.S).groups()
        for name in names.split(","):
            bare, _, extent = name.strip().partition("[")
            result.append((bare, squeezed(kind) + (f"[{extent}" if extent else "")))
    return result


def interface(text: str) -> list[str]:
    """The lines for a header's text; the first has its version."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    version = [re.search(rf"#define CERMET_VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR")]
    lines = [f"version {'.'.join(version)}"]
    lines += [f"function {squeezed(declared)}" for declared in re.findall(r"^CERMET_API ([^;]+);", text, re.M)]
    lines += [f"callback {squeezed(declared)}" for declared in re.findall(r"^typedef ([^;{]*\(\*[^;]+);", text, re.M)]
    program = ["#include <stdio.h>", "#include <stddef.h>", text, "int main(void) {"]
    for name in re.findall(r"^#define (CERMET_MAX_\w+)", text, re.M):
        program.append(f'printf("constant {name} = %llu\\n", (unsigned long long){name});')
    for kind, name, body in re.findall(r"^typedef (enum|struct) (\w+) \{(.*?)\} \w+;", text, re.M | re.S):
        if kind == "enum":
            for constant in re.findall(r"(\w+) = ", body):
                program.append(f'printf("{name}: {constant} = %d\\n", {constant});')
            continue
        for field, of in fields(body):
            sizes = f"offsetof({name}, {field}), sizeof((({name}*)0)->{field})"
            program.append(f'printf("{name}: at %zu, %zu bytes: {of} {field}\\n", {sizes});')
        program.append(f'printf("{name}: %zu bytes\\n", sizeof({name}));')
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder) / "layout.c"
        source.write_text("\n".join([*program, "return 0; }", ""]))
        subprocess.run(["cc", "-std=c11", "-Wall", "-Werror", source, "-o", source.with_suffix("")], check=True)
        layout = subprocess.run([source.with_suffix("")], check=True, capture_output=True, text=True).stdout
    return lines + layout.splitlines()


def breaks(old: list[str], new: list[str]) -> list[str]:
    """Lines that a program of the old header relies on and the new one has not. A struct that begins with its size may
    become longer."""
    growing = {line.split(":")[0] for line in old if re.search(r": at 0, 8 bytes: size_t size$", line)}
    lengths = {match[1]: int(match[2]) for line in new if (match := re.fullmatch(r"(\w+): (\d+) bytes", line))}
    result = []
    for line in old[1:]:
        length = re.fullmatch(r"(\w+): (\d+) bytes", line)
        if line in new or (length and length[1] in growing and lengths.get(length[1], 0) > int(length[2])):
            continue
        result.append(line)
    return result


def test_the_list_is_what_the_header_says():
    old, new = LIST.read_text().splitlines(), interface(HEADER.read_text())
    assert old[0] != new[0] or breaks(old, new) == [], "programs that are built already break; undo it or raise the version"
    assert new == old, "write the list again, as this file's head says"


CHANGES = {  # of the header: what is replaced, by what, and a part of the line that is missed
    "a field in the middle": ("  const char* nvrtc_library;", "  const char* new;\n  const char* nvrtc_library;", "nvrtc_library"),
    "a field that goes": ("  uint64_t plans_from_packs, kernels_from_packs;", "", "plans_from_packs"),
    "a field of another type": ("  int32_t dtype; ", "  int64_t dtype; ", "dtype"),
    "a longer element of arrays": ("  int32_t dtype;  ", "  int32_t dtype;\n  int64_t more;\n", "cermet_tensor: 32 bytes"),
    "another argument": ("int32_t device,\n", "int64_t device,\n", "cermet_prepare"),
    "another answer": ("CERMET_API int32_t cermet_plan_input_count", "CERMET_API int64_t cermet_plan_input_count", "input_count"),
    "a function that goes": ("CERMET_API void cermet_string_free(char* text);", "", "cermet_string_free"),
    "another number": ("CERMET_CAPTURING = 7", "CERMET_CAPTURING = 70", "CERMET_CAPTURING = 7"),
    "another callback": ("int32_t results, void* stream);\nCERMET", "int32_t results);\nCERMET", "cermet_external"),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_breaks_is_found(change):
    was, becomes, part = CHANGES[change]
    text = HEADER.read_text()
    assert was in text
    assert any(part in line for line in breaks(interface(text), interface(text.replace(was, becomes, 1))))


ADDITIONS = {
    "a function": ("CERMET_API void cermet_string_free(char* text);", "CERMET_API void cermet_string_free(char* text);\nCERMET_API void cermet_new(void);"),
    "a field at the end": ("  uint64_t cache_bytes_read, cache_bytes_written;", "  uint64_t cache_bytes_read, cache_bytes_written;\n  uint64_t more;"),
    "a status": ("CERMET_NOT_STORED = 10", "CERMET_NEW = 11, CERMET_NOT_STORED = 10"),
}  # fmt: skip


@pytest.mark.parametrize("addition", ADDITIONS)
def test_an_addition_breaks_nothing(addition):
    was, becomes = ADDITIONS[addition]
    text = HEADER.read_text()
    assert was in text
    old, new = interface(text), interface(text.replace(was, becomes, 1))
    assert breaks(old, new) == [] and len(new) > len(old)


if __name__ == "__main__":
    print("\n".join(interface(HEADER.read_text())))
