"""What runs behind autograd, on an explanation's page: a section for each kind of graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..ops import regions
from .markup import amount, disclosed, escape, kernels, section
from .runs import ATTENTION, MEMORY, PRODUCT, Call, Launch, Run
from .table import number, repeated, source_of

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
    heads = _heads(["Kernels"], numbers, ["Operands and results", "Source"])
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
    taken = _number(_microseconds(launch.microseconds)) if timed else ""
    return (
        f"<tr><td>{escape(', '.join(launch.kernels))}{text}{code}</td>{_number(f'{times:,}')}"
        f"{_number(amount(launch.bytes_moved))}{taken}<td>{arrow}</td><td>{lines}</td></tr>"
    )


def _calls(run: Run) -> str:
    if not run.calls:
        return ""
    timed = any(call.microseconds is not None for call in run.calls)
    rows = "".join(_call(call, title, timed) for kind, title in _KINDS for call in run.calls_of(kind))
    heads = _heads(["Call", "Kind"], ["Times", "Bytes", *(["Microseconds"] if timed else [])], [])
    return f'<table class="plainly">{heads}<tbody>{rows}</tbody></table>'


def _call(call: Call, title: str, timed: bool) -> str:
    taken = _number(_microseconds(call.microseconds)) if timed else ""
    return (
        f"<tr><td><code>{escape(call.op)}</code></td><td>{title}</td>{_number(f'{call.times:,}')}"
        f"{_number(amount(call.bytes_moved))}{taken}</tr>"
    )


def _heads(first: Sequence[str], numbers: Sequence[str], last: Sequence[str]) -> str:
    cells = [f'<th scope="col">{name}</th>' for name in first]
    cells += [f'<th scope="col" class="number">{name}</th>' for name in numbers]
    cells += [f'<th scope="col">{name}</th>' for name in last]
    return f"<thead><tr>{''.join(cells)}</tr></thead>"


def _number(shown: str) -> str:
    return f"<td class='number'>{shown}</td>"


def _microseconds(taken: float | None) -> str:
    return "" if taken is None else f"{taken:,.1f}"
