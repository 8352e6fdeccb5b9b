"""What is saved for the backward and what that makes again, on an explanation's page: a section for each graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..rematerialization.plan import Again, Call, Plan, Saved
from .markup import amount, columns, escape, number_cell, section
from .table import counted, place_of, plan_said, repeated, source_of, taken_of, where_of

_SAID = (
    "Equal values are one row. Microseconds are what making one again takes on a GPU that moves 4 TB a second."
)


def sections(plans: Sequence[Plan]) -> Iterator[str]:
    for index, plan in enumerate(plans):
        said = f"<p>{escape(plan_said(plan))}. {_SAID}</p>"
        yield section(f"saved-{index}", "Saved for the backward", said + _saved(plan))
        if plan.again:
            yield section(f"again-{index}", "Made again by the backward", _again(plan))


def _saved(plan: Plan) -> str:
    if not plan.saved:
        return ""
    head = columns(["Value"], ["Times", "Bytes", "Microseconds"], ["For", "Kept", "Source"])
    return _table(head, "".join(_kept(saved, times) for saved, times in counted(plan.saved)))


def _kept(saved: Saved, times: int) -> str:
    numbers = f"{times:,}", amount(saved.bytes), taken_of(saved.microseconds)
    readers = f"<code>{escape(repeated(list(map(place_of, saved.readers))))}</code>"
    name = f"{escape(saved.made_by.name)} <code>{escape(saved.value)}</code>"
    return _row(name, numbers, [readers, escape(saved.why), _source(saved.made_by)])


def _again(plan: Plan) -> str:
    head = columns(["Values"], ["Times", "Bytes spared", "Microseconds"], ["Where", "Source"])
    return _table(head, "".join(_made(again, times) for again, times in counted(plan.again)))


def _made(again: Again, times: int) -> str:
    numbers = f"{times:,}", amount(again.spared), taken_of(again.microseconds)
    name = f"{escape(again.made_by.name)} <code>{escape(repeated(again.values))}</code>"
    return _row(name, numbers, [f"<code>{escape(where_of(again))}</code>", _source(again.made_by)])


def _row(name: str, numbers: Iterable[str], texts: Iterable[str]) -> str:
    cells = [f"<td>{name}</td>", *map(number_cell, numbers), *(f'<td class="text">{text}</td>' for text in texts)]
    return f"<tr>{''.join(cells)}</tr>"


def _table(head: str, rows: str) -> str:
    return f'<div class="wide"><table class="plainly">{head}<tbody>{rows}</tbody></table></div>'


def _source(call: Call) -> str:
    return f'<code title="{escape(call.source)}">{escape(source_of(call.source))}</code>'
