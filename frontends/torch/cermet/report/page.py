"""An explanation as one HTML page: no request leaves it, and everything that came from outside is escaped."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from ..graph.decision import NearMiss
from ..ops import library, regions
from ..remainder.content import Part
from . import page_plan, page_runs
from .findings import Findings, Place
from .markup import amount, disclosed, escape, kernels, section
from .page_parts import SCRIPT, STYLE
from .table import kernels_of, less, masks_of, number, repeated, source_of, totals

_COLUMNS = (
    ("Pattern", "text"),
    ("Sites", "number"),
    ("Kernels", "number"),
    ("Bytes before", "number"),
    ("Bytes after", "number"),
    ("Change", "number"),
    ("Operands and results", "text"),
    ("Source", "text"),
)


def html(found: Findings) -> str:
    """The page's text. Where a kernel's CUDA C++ cannot be had, its specification stands in its place."""
    device_code: dict[str, str] = {}  # text that kernels share -> its title
    rows = "".join(_row(index, place, times, device_code) for index, (place, times) in enumerate(found.rows))
    sections = [
        _places(rows) if found.places else "" if found.masks else "<p>Nothing in this program was replaced.</p>",
        *(_listed(title.replace(" ", "-"), title.capitalize(), sources) for title, sources in masks_of(found)),
        _near_misses(found.near_misses),
        _listed("breaks", "Graph breaks", found.graph_breaks),
        _listed("foreign", "Kernels of others", list(found.foreign.elements())),
        _listed("failures", "Left as they were because Cermet failed", found.failures),
        _listed("remainders", "Who runs what is left", found.remainders),
        _left(found.left),
        *page_runs.sections(found.runs, device_code),
        *page_plan.sections(found.plans),
        _shared(device_code),
    ]
    title = f"{number(found.graphs, 'graph')}, {number(len(found.graph_breaks), 'graph break')}"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>Cermet: what was fused</title>
<style>{STYLE}</style>
</head>
<body>
<header><h1>What Cermet fuses</h1><p>{title}</p></header>
<main>
{_tiles(found)}
{"".join(sections)}
</main>
<footer>{escape(library.version())}. Bytes of regions are those of the forward: before, what every replaced operation
reads and writes by itself, views being free; after, operands, results and saved values once.</footer>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _tiles(found: Findings) -> str:
    before, after, saved = totals(found)
    launches = sum(found.launches.values()) or sum(len(place.forward) + len(place.backward) for place in found.places)
    note = "besides operands and results"
    if found.plans:
        saved = sum(plan.saved_bytes for plan in found.plans)
        note = f"of {number(sum(len(plan.saved) for plan in found.plans), 'value')}"
    counts = {name: times for name, times in found.counts.items() if times}
    backward = "backward" in found.launches or any(place.backward for place in found.places)
    directions = "forward and backward" if backward else "forward"
    tiles = [
        (f"{sum(counts.values()):,}", "sites fused", ", ".join(f"{times} {name}" for name, times in counts.items())),
        (f"{launches:,}", "launches a step", directions),
        (amount(before), "moved before", ""),
        (amount(after), "moved after", less(before, after)),
        (amount(saved), "saved for the backward", note),
        (f"{len(found.near_misses):,}", "near misses", ""),
        (f"{len(found.graph_breaks):,}", "graph breaks", ""),
    ]
    cells = (
        f"<li><strong>{value}</strong><span>{escape(label)}</span><small>{escape(note)}</small></li>"
        for value, label, note in tiles
    )
    return f'<ul class="tiles" aria-label="Summary">{"".join(cells)}</ul>'


def _places(rows: str) -> str:
    heads = "".join(
        f'<th scope="col" class="{kind}" aria-sort="none"><button type="button">{name}</button></th>'
        for name, kind in _COLUMNS
    )
    said = "Equal places are one row. A row opens to its graph text, its CUDA C++ and its bytes; a column's name sorts."
    table = f'<div class="wide"><table id="places"><thead><tr>{heads}</tr></thead>{rows}</table></div>'
    return section("regions", "Regions", f"<p>{said}</p>{table}")


def _cell(shown: str, key: object = "", kind: str = "text") -> str:
    return f'<td class="{kind}" data-key="{escape(key)}">{shown}</td>'


def _row(index: int, place: Place, times: int, device_code: dict[str, str]) -> str:
    before, after = place.bytes_before, place.bytes_after
    change = less(before, after)
    share = min(100.0, 100 * after / before) if before else 100.0
    file, colon, code = source_of(place.source).partition(": ")
    cells = [
        _cell(
            f'<button type="button" class="open" aria-expanded="false" aria-controls="detail-{index}">'
            f"{escape(place.pattern)}</button>",
            place.pattern,
        ),
        _cell(str(times), times, "number"),
        _cell(kernels_of(place), len(place.forward) + len(place.backward), "number"),
        _cell(amount(before), before, "number"),
        _cell(amount(after), after, "number"),
        _cell(f'{_bar(share)}<span class="share">{change}</span>', after / before if before else 1, "number"),
        _cell(_arrow(place), repeated(place.operands)),
        _cell(f'<code title="{escape(place.source)}">{escape(file + colon)} {escape(code)}</code>', file),
    ]
    detail = f'<td colspan="{len(_COLUMNS)}"><div>{_detail(place, device_code)}</div></td>'
    return f"""<tbody><tr class="place">{"".join(cells)}</tr>
<tr class="detail" id="detail-{index}" hidden>{detail}</tr></tbody>
"""


def _bar(share: float) -> str:
    return f'<span class="bar" aria-hidden="true"><i style="width:{share:.1f}%"></i></span>'


def _arrow(place: Place) -> str:
    return f"<code>{escape(repeated(place.operands))}</code> → <code>{escape(repeated(place.results))}</code>"


def _detail(place: Place, device_code: dict[str, str]) -> str:
    largest = max(place.bytes_before, place.bytes_after, 1)
    amounts = [("before", place.bytes_before), ("after", place.bytes_after), ("of it saved", place.saved_bytes)]
    bars = "".join(
        f"<tr><th scope='row'>{label}</th><td class='number'>{count:,}</td><td>{_bar(100 * count / largest)}</td></tr>"
        for label, count in amounts
    )
    parts = [
        f'<div class="bytes"><h3>Bytes moved by the forward</h3><table><tbody>{bars}</tbody></table></div>',
        "<h3>Graph text</h3>",
        *(disclosed(title, regions.text(key), "ir") for title, key in _titled(place)),
        "<h3>CUDA C++</h3>",
        *itertools.chain.from_iterable(
            kernels(title, key, place.target, device_code) for title, key in _titled(place)
        ),
    ]
    return "".join(parts)


def _titled(place: Place) -> Iterable[tuple[str, int]]:
    return ((way, key) for way, keys in zip(("forward", "backward"), place.texts) for key in keys)


def _near_misses(near_misses: Sequence[NearMiss]) -> str:
    if not near_misses:
        return ""
    rows = "".join(
        f"<tr><td>{escape(miss.pattern)}</td><td><code>{escape(miss.at)}</code></td>"
        f'<td>{escape(miss.condition)}</td>'
        f'<td><code title="{escape(miss.source)}">{escape(source_of(miss.source))}</code></td></tr>'
        for miss in near_misses
    )
    heads = "".join(f'<th scope="col">{name}</th>' for name in ("Pattern", "At", "The condition that failed", "Source"))
    table = f'<table class="plainly"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
    return section("near", "Near misses", f'<div class="wide">{table}</div>')


def _listed(identity: str, title: str, items: Sequence[str]) -> str:
    if not items:
        return ""
    counted = {item: items.count(item) for item in items}
    shown = "".join(
        f"<li><pre>{escape(item.strip())}</pre>{f' <span>x{times}</span>' if times > 1 else ''}</li>"
        for item, times in counted.items()
    )
    return section(identity, title, f'<ul class="plain">{shown}</ul>')


def _left(left: Sequence[Part]) -> str:
    if not left:
        return ""
    rows = "".join(
        f"<tr><td><code>{escape(item.op)}</code></td><td class='number'>{item.times:,}</td>"
        f"<td class='number'>{amount(item.bytes_moved)}</td></tr>"
        for item in left
    )
    heads = '<th scope="col">Operation</th>' + "".join(
        f'<th scope="col" class="number">{name}</th>' for name in ("Times", "Bytes")
    )
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    return section("left", "Elementwise work and reductions in no region", table)


def _shared(device_code: dict[str, str]) -> str:
    if not device_code:
        return ""
    parts = "".join(disclosed(title, text, "device") for text, title in device_code.items())
    said = "What stands before each kernel's own text: the prelude and the skeleton that it instantiates."
    return section("device", "Device code", f"<p>{said}</p>{parts}")
