"""Pieces of an explanation's page: everything that came from outside is escaped here."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from ..errors import Error
from ..ops import library, regions

CUDA_TARGET = "sm_90"  # whose text a page shows where the places are on no GPU
_GENERATED = re.compile(r"^// \S+ for sm_\d+: (\w+) skeleton$", re.MULTILINE)  # where a source's generated part begins


def escape(text: object) -> str:
    return html.escape(str(text), quote=True)


def amount(count: int) -> str:
    """`1.5 MiB`, the number itself as a tooltip."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    shown = f"{count} B" if unit == "B" else f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"
    return f'<span title="{count:,} bytes">{shown}</span>'


def section(identity: str, title: str, content: str) -> str:
    return f'<section aria-labelledby="{identity}"><h2 id="{identity}">{title}</h2>{content}</section>'


def columns(first: Iterable[str], numbers: Iterable[str], last: Iterable[str]) -> str:
    """A table's head: names of columns of text, of numbers, and of text again."""
    cells = [f'<th scope="col">{name}</th>' for name in first]
    cells += [f'<th scope="col" class="number">{name}</th>' for name in numbers]
    cells += [f'<th scope="col">{name}</th>' for name in last]
    return f"<thead><tr>{''.join(cells)}</tr></thead>"


def number_cell(shown: str) -> str:
    return f"<td class='number'>{shown}</td>"


def disclosed(title: str, text: str, kind: str) -> str:
    return (
        f'<details class="{kind}"><summary>{escape(title)}</summary>'
        f'<pre tabindex="0"><code>{escape(text.strip())}</code></pre></details>'
    )


def kernels(direction: str, key: int, target: str, device_code: dict[str, str]) -> Iterable[str]:
    """The CUDA C++ of what a launch runs; what kernels share goes into `device_code`, text to title."""
    target = target if target.startswith("sm_") else CUDA_TARGET
    try:
        steps = regions.plan(key, target)["steps"]
    except Error as error:
        yield f"<p>No {direction} for {escape(target)}: {escape(error)}</p>"
        return
    for step in steps:
        if step["kind"] != "kernel":
            continue
        title = f"{direction}: {step['name']} for {target}"
        try:
            source = library.context().kernel_source(step["spec"])
        except Error:
            yield disclosed(f"{title} (specification)", step["spec"], "spec")
            continue
        found = list(_GENERATED.finditer(source))
        begins = found[-1].start() if found else 0
        if found:
            device_code.setdefault(source[:begins], f"{found[-1][1]} skeleton")
        yield disclosed(title, source[begins:], "cuda")
