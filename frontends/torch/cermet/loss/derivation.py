"""What libcermet derives of a loss region: its gradient in the forward pass, and the parts by which its rows come in
pieces.

The gradient's rows need nothing of one another but what no logits decide (how many labels count), and the loss needs
one number or a few of each. So a region is cut into parts (ir/gradient/RowParts.h): what is known before any row is
read, what a piece of the rows gives, which rows give anything, and what is made of all rows' numbers. No option of a
loss has a name here.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import torch

from .. import locks, native
from ..errors import Error
from ..ops import library, regions
from ..targets import devices

MAX_INPUTS = native.limit("loss_inputs")  # of the region
MAX_OUTPUTS = native.limit("loss_outputs")


@dataclasses.dataclass(frozen=True)
class Part:
    """One of them, and where its inputs come from: each is one of the region's, or a result of another part."""

    key: int
    inputs: tuple[tuple[str, int], ...]
    outputs: int


@dataclasses.dataclass(frozen=True)
class Parts:
    before: Part | None
    rows: Part  # of a piece: numbers of each row for `after`, then the gradient of the logits if that is asked for
    after: Part
    kept: Part | None = None  # of a piece: whether a row may give `rows` anything but zeros; None where each may

    def keys(self) -> tuple[int, ...]:
        return tuple(part.key for part in (self.before, self.kept, self.rows, self.after) if part is not None)


@dataclasses.dataclass(frozen=True)
class Derived:
    """Of a region and the input that its logits are. None where the compiler has none, or where no op takes so many
    tensors."""

    forward: int | None  # the region that returns the loss and the gradient for a cotangent of 1
    gradient: Parts | None  # the same in parts
    loss: Parts | None  # the loss alone, in parts


_lock = locks.lock()
_known: dict[tuple[int, int], Derived] = {}


def derive(key: int, position: int) -> Derived:
    """What there is of region `key`, whose input `position` are the logits."""
    with _lock:
        if (key, position) in _known:
            return _known[key, position]
    wanted = tuple(index == position for index in range(len(regions.signature(key).inputs)))
    answer = library.context().differentiate(_marked(regions.text(key)), wanted)
    made = Derived(None, None, None)
    if answer.get("unit") and (answer["outputs"], answer["saved"]) == (1, 1):
        parts = answer.get("row_parts", {})
        gradient, loss = (_parts(parts.get(name), position) for name in ("gradient", "loss"))
        made = Derived(regions.register(answer["forward"]), gradient, loss)
    with _lock:
        return _known.setdefault((key, position), made)


def _marked(text: str) -> str:
    """A graph text whose function asks for its gradient in the forward pass."""
    name = "cermet.gradient_in_forward"
    if name in text:
        return text
    marked, times = re.subn(
        r"^(\s*func\.func [^\n]*?)( attributes \{([^\n]*)\})? \{$",
        lambda found: f"{found[1]} attributes {{{', '.join(filter(None, [name, found[3]]))}}} {{",
        text,
        count=1,
        flags=re.MULTILINE,
    )
    if times != 1:
        raise Error(f"a region's text has no function whose signature is one line:\n{text}")
    return marked


def _parts(answer: Mapping[str, Any] | None, position: int) -> Parts | None:
    """From libcermet's; each is one op."""
    if answer is None:
        return None
    made = {
        name: Part(
            regions.register(part["text"]),
            tuple((item["from"], item["index"]) for item in part["inputs"]),
            part["outputs"],
        )
        for name, part in answer.items()
    }
    rows = made["rows"]
    if rows.inputs.count(("input", position)) != 1 or len(rows.inputs) > MAX_INPUTS + 1:
        return None
    kept = made.get("kept")
    if kept is not None and not 0 < len(kept.inputs) <= regions.MAX_INPUTS:
        kept = None  # all are
    others = [part for name, part in made.items() if name not in ("rows", "kept")]
    if rows.outputs > MAX_OUTPUTS or any(part.outputs > regions.MAX_OUTPUTS for part in others):
        return None
    if not all(0 < len(part.inputs) <= regions.MAX_INPUTS for part in others):  # of none, a launch has no sizes
        return None
    return Parts(made.get("before"), rows, made["after"], kept)


def in_place(key: int, position: int, device: torch.device) -> bool:
    """Whether a region's last output may take the memory of input `position` (docs/plan-format.md, "Outputs")."""
    values = regions.plan(key, devices.target_of(device))["values"]
    return position in [value for value in values if value["kind"] == "output"][-1].get("in_place", ())
