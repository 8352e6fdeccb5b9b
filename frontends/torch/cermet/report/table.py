"""An explanation as plain text of at most 120 columns, save where a name is longer."""

from __future__ import annotations

import collections
import itertools
import os
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from ..attention.masks import Meaning
from ..rematerialization import plan as plans
from ..rematerialization.plan import Again, Plan
from .findings import Findings, Place
from .runs import ATTENTION, MEMORY, PRODUCT, Call, Run

WIDTH = 120
Row = TypeVar("Row")
_INDENT = "    "


def number(count: int, noun: str) -> str:
    """`1 graph`, `2 graphs`, `2 near misses`, `2 launches`."""
    plural = noun + ("es" if noun.endswith(("s", "ch")) else "s")
    return f"{count:,} {noun if count == 1 else plural}"


def source_of(source: str) -> str:
    """A source line with the shortest name of its file: as one would import it, or from the working directory."""
    roots = [os.getcwd(), *sys.path]
    fitting = [root for root in roots if root and source.startswith(root.rstrip(os.sep) + os.sep)]
    return source[len(max(fitting, key=len).rstrip(os.sep)) + 1 :] if fitting else source


def masks_of(found: Findings) -> Iterator[tuple[str, list[str]]]:
    """A title for the masks of each meaning, and where they were."""
    for meaning in Meaning:
        yield f"{meaning} masks", [source_of(where) for name, where in found.masks if name == meaning.value]


def less(before: int, after: int) -> str:
    """How much `after` saves: `58 % less`."""
    if not before or before == after:
        return ""
    share = round(100 * abs(before - after) / before)
    return f"{share} % {'less' if after < before else 'more'}"


def repeated(items: Sequence[str]) -> str:
    """`f32[2, 16], f32[16] x2`: neighbours that are equal once."""
    groups = ((item, len(list(group))) for item, group in itertools.groupby(items))
    return ", ".join(item if times == 1 else f"{item} x{times}" for item, times in groups)


def kernels_of(place: Place) -> str:
    """`1`, or with a backward `1 + 2`."""
    return f"{len(place.forward)} + {len(place.backward)}" if place.backward else str(len(place.forward))


def reason_of(graph_break: str) -> str:
    """The first lines of Dynamo's account: what happened, and its explanation."""
    lines = [line.strip() for line in graph_break.splitlines() if line.strip()]
    kept = lines[:1] + [line.removeprefix("Explanation: ") for line in lines if line.startswith("Explanation: ")]
    return ": ".join(kept)


def totals(found: Findings) -> tuple[int, int, int]:
    """Bytes of all places: before, after, saved."""
    return tuple(sum(getattr(place, name) for place in found.places)
                 for name in ("bytes_before", "bytes_after", "saved_bytes"))  # fmt: skip


def text(found: Findings) -> str:
    counts = ", ".join(f"{times} {name}" for name, times in found.counts.items() if times) or "nothing replaced"
    lines = [f"{number(found.graphs, 'graph')}, {number(len(found.graph_breaks), 'graph break')}: {counts}"]
    if found.places:
        before, after, saved = totals(found)
        change = less(before, after)
        lines.append(
            f"bytes moved by the forward of these: {before:,} before, {after:,} after"
            + (f" ({change})" if change else "")
            + (f"; {saved:,} of them saved for the backward" if saved else "")
        )
        lines += ["", *_places(found)]
    for title, sources in masks_of(found):
        lines += _section(title, sources)
    lines += _section("near misses", [str(near_miss) for near_miss in found.near_misses])
    lines += _section("graph breaks", map(reason_of, found.graph_breaks))
    lines += _section("kernels of others", found.foreign.elements())
    lines += _section("left as they were because Cermet failed", found.failures)
    lines += _section("who runs what is left", found.remainders)
    if found.left:
        left = [f"{item.times} {item.op} ({item.bytes_moved:,} bytes)" for item in found.left]
        lines += ["", "elementwise work and reductions in no region:"]
        lines += textwrap.wrap(", ".join(left), WIDTH, initial_indent="  ", subsequent_indent="  ")
    for run in found.runs:
        lines += ["", *_run(run)]
    for plan in found.plans:
        lines += ["", *_plan(plan)]
    return "\n".join(lines)


def _places(found: Findings) -> list[str]:
    table = [("pattern", "sites", "kernels", "bytes before", "bytes after", "saved", "")]
    details: list[list[str]] = [[]]
    for place, times in found.rows:
        numbers = (f"{value:,}" for value in (place.bytes_before, place.bytes_after, place.saved_bytes))
        table.append(
            (place.pattern, str(times), kernels_of(place), *numbers, less(place.bytes_before, place.bytes_after))
        )
        arrow = f"{repeated(place.operands)} -> {repeated(place.results)}"
        kernels = repeated(place.forward) + (f" | {repeated(place.backward)}" if place.backward else "")
        details.append([_clipped(source_of(place.source)), *_wrapped(arrow), *_wrapped(f"kernels: {kernels}")])
    return _aligned(table, details)


def _aligned(table: Sequence[tuple[str, ...]], details: Sequence[list[str]]) -> list[str]:
    """Rows whose first column is words and whose others are numbers, each above its details."""
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = []
    for row, more in zip(table, details):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]
        lines.append("  ".join(cells).rstrip())
        lines += [_INDENT + line for line in more if line]
    return lines


def _run(run: Run) -> list[str]:
    """What a graph behind autograd launches, and what it calls of others."""
    moved = sum(launch.bytes_moved for launch in run.launches)
    lines = [f"the {run.kind} graph runs {number(len(run.launches), 'launch')} ({moved:,} bytes)"]
    table = [("kernels", "times", "bytes", "microseconds")]
    details: list[list[str]] = [[]]
    for launch, times in run.rows:
        table.append((repeated(launch.kernels), str(times), f"{launch.bytes_moved:,}", taken_of(launch.microseconds)))
        arrow = f"{repeated(launch.operands)} -> {repeated(launch.results)}"
        details.append([*(_clipped(source_of(source)) for source in launch.sources), *_wrapped(arrow)])
    if not any(row[3] for row in table[1:]):
        table = [row[:3] for row in table]
    if run.launches:
        lines += _aligned(table, details)
    for kind, title in ((MEMORY, "left to others"), (PRODUCT, "products"), (ATTENTION, "attention")):
        calls = ", ".join(map(_call, run.calls_of(kind)))
        if calls:
            lines += textwrap.wrap(f"{title}: {calls}", WIDTH, initial_indent="  ", subsequent_indent="    ")
    return lines


def _call(call: Call) -> str:
    taken = "" if call.microseconds is None else f", {call.microseconds:,.1f} us"
    return f"{call.times} {call.op} ({call.bytes_moved:,} bytes{taken})"


def _plan(plan: Plan) -> list[str]:
    """What a forward keeps, for whom and why, and what its backward makes again and where."""
    lines = textwrap.wrap(f"saved for the backward, {plan_said(plan)}", WIDTH, subsequent_indent="  ")
    table = [("saved", "times", "bytes", "microseconds")]
    details: list[list[str]] = [[]]
    for saved, times in counted(plan.saved):
        table.append((saved.made_by.name, str(times), f"{saved.bytes:,}", taken_of(saved.microseconds)))
        said = f"{saved.value} for {repeated(list(map(place_of, saved.readers)))}; kept: {saved.why}"
        details.append([_clipped(source_of(saved.made_by.source)), *_wrapped(said)])
    if plan.saved:
        lines += _aligned(table, details)
    table, details = [("made again", "times", "bytes spared", "microseconds")], [[]]
    passing = [again for again in plan.again if not again.spared]
    for again, times in counted(again for again in plan.again if again.spared):
        table.append((again.made_by.name, str(times), f"{again.spared:,}", taken_of(again.microseconds)))
        said = f"{repeated(again.values)} {where_of(again)}"
        details.append([_clipped(source_of(again.made_by.source)), *_wrapped(said)])
    if len(table) > 1:
        lines += _aligned(table, details)
    if passing:
        taken = sum(again.microseconds or 0.0 for again in passing)
        lines.append(f"  and {number(len(passing), 'call')} on the way to these: {taken:,.1f} microseconds")
    return lines


def plan_said(plan: Plan) -> str:
    """A plan in one sentence."""
    kept, made = f"{plan.saved_bytes:,} bytes of {number(len(plan.saved), 'value')}", ""
    if plan.again:
        made = f"; {plan.spared_bytes:,} bytes are made again in {plan.microseconds:,.1f} microseconds"
    return (
        f"memory {plan.memory!r}: {kept}, beside {plan.inputs:,} of inputs that are there anyway{made}; at most "
        f"{plan.peak:,} bytes are held"
    )


def counted(rows: Iterable[Row]) -> list[tuple[Row, int]]:
    """Equal rows and how many there are."""
    return list(collections.Counter(rows).items())


def place_of(call: plans.Call) -> str:
    """`aten.mm (modeling_llama.py:164)`."""
    path, line = (*call.source.split(":", 2), "")[:2]
    return f"{call.name} ({os.path.basename(path)}:{line})" if call.source else call.name


def where_of(again: Again) -> str:
    """Where a value is made again: `a further store of cluster (activations.py:103)`."""
    asked = ", as torch.utils.checkpoint asks" if again.asked else ""
    kernel = "" if again.where == plans.OWN and again.kernel.name == again.made_by.name else place_of(again.kernel)
    return " ".join(filter(None, (again.where, kernel))) + asked


def taken_of(microseconds: float | None) -> str:
    """Microseconds, if they are known."""
    return "" if microseconds is None else f"{microseconds:,.1f}"


def _clipped(line: str) -> str:
    room = WIDTH - len(_INDENT)
    return line if len(line) <= room else line[: room - 3] + "..."


def _wrapped(line: str) -> list[str]:
    return textwrap.wrap(line, WIDTH - len(_INDENT), subsequent_indent="  ", break_long_words=False)


def _section(title: str, items: Iterable[str]) -> list[str]:
    counted = collections.Counter(items)
    if not counted:
        return []
    shown = [f"{item} (x{times})" if times > 1 else item for item, times in counted.items()]
    wrapped = (textwrap.wrap(item, WIDTH, initial_indent="  ", subsequent_indent="    ") for item in shown)
    return ["", f"{title}:", *itertools.chain.from_iterable(wrapped)]
