"""What runs behind autograd, on an explanation's page: a section for each kind of graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..ops import regions
from .markup import amount, columns, disclosed, escape, kernels, number_cell, section
from .runs import ATTENTION, MEMORY, PRODUCT, Call, Launch, Run
from .table import number, repeated, source_of, taken_of

_KINDS = ((MEMORY, "left to others"), (PRODUCT, "product"), (ATTENTION, "attention"))


def sections(runs: Sequence[Run], device_code: dict[str, str]) -> Iterator[str]:
    for run in runs:
        times = number(len(run.launches), "launch")
        said = f"{times}, {number(sum(call.times for call in run.calls), 'call')} of others that move memory."
        parts = [f"<p>{said} Equal launches are one row.</p>", _launches(run, device_code), _calls(run)]
        yield section(run.kind, f"What the {run.kind} graph runs", "".join(parts))


def _launches(run: Run, device_code: dict[str, str]) -> str:
    if not run.launches:
        return ""
    timed = any(launch.microseconds is not None for launch in run.launches)
    rows = "".join(_row(launch, times, timed, device_code, run.kind) for launch, times in run.rows)
    numbers = ["Times", "Bytes", *(["Microseconds"] if timed else [])]
    heads = columns(["Kernels"], numbers, ["Operands and results", "Source"])
    return f'<div class="wide"><table class="plainly">{heads}<tbody>{rows}</tbody></table></div>'


def _row(launch: Launch, times: int, timed: bool, device_code: dict[str, str], kind: str) -> str:
    text = disclosed("graph text", regions.text(launch.text), "ir")
    code = "".join(kernels(kind, launch.text, launch.target, device_code))
    arrow = (
        f"<code>{escape(repeated(launch.operands))}</code> → <code>{escape(repeated(launch.results))}</code>"
    )
    lines = "<br>".join(
        f'<code title="{escape(source)}">{escape(source_of(source))}</code>' for source in launch.sources
    )
    taken = number_cell(taken_of(launch.microseconds)) if timed else ""
    return (
        f"<tr><td>{escape(', '.join(launch.kernels))}{text}{code}</td>{number_cell(f'{times:,}')}"
        f"{number_cell(amount(launch.bytes_moved))}{taken}<td>{arrow}</td><td>{lines}</td></tr>"
    )


def _calls(run: Run) -> str:
    if not run.calls:
        return ""
    timed = any(call.microseconds is not None for call in run.calls)
    rows = "".join(_call(call, title, timed) for kind, title in _KINDS for call in run.calls_of(kind))
    heads = columns(["Call", "Kind"], ["Times", "Bytes", *(["Microseconds"] if timed else [])], [])
    return f'<table class="plainly">{heads}<tbody>{rows}</tbody></table>'


def _call(call: Call, title: str, timed: bool) -> str:
    taken = number_cell(taken_of(call.microseconds)) if timed else ""
    return (
        f"<tr><td><code>{escape(call.op)}</code></td><td>{title}</td>{number_cell(f'{call.times:,}')}"
        f"{number_cell(amount(call.bytes_moved))}{taken}</tr>"
    )
