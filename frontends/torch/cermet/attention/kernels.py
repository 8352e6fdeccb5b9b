"""Which of the kernels for attention over segments (ops/attending.py) there is for a call: found by running it.

A kernel is there for a form (device, type, heads, band, ...) where it gives the masked attention's numbers, forward and
backward, for a few small segments of that form: some of one place, some without queries and some without keys. That is
asked once in a process. For ranges of keys (ops/ranges.py) it is the same, with a few ranges and forward alone; for
dropout with the weights that it is seen to drop. A target that is captured cannot be asked; its data say
(targets/attention.py).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from .. import locks
from ..graph.decision import Declined
from ..ops import attending
from ..ops.attending import ATTEND, ATTEND_DROPPING, CAUSAL, FULL, Band
from ..ops.ranges import ATTEND_MASKED, ATTEND_RANGES
from ..targets import devices
from ..targets.attention import segments_obstacle

# Queries and keys of the segments of a probe: of documents, and with some that are one-sided.
_DOCUMENTS = ((1, 1), (70, 70), (2, 2), (129, 129))
_ONE_SIDED = ((0, 3), (70, 70), (5, 0), (0, 1), (129, 129), (1, 0))
_LONGER = ((0, 3), (70, 7), (0, 1), (129, 192))  # keys and queries that are not as many
_DROPPED = 0.25  # of the weights, of a probe that drops
_KEYS = 257  # of a buffer, in a probe of ranges
_UNITS = 8  # of the type's rounding that a result may differ from float64's by, in the norm


@dataclasses.dataclass(frozen=True)
class Form:
    """What a kernel must take. `one_sided`: some segments have queries or keys alone, or other keys than queries."""

    device: torch.device
    dtype: torch.dtype
    heads: int  # of the queries that share one key
    width: int
    value_width: int
    band: Band = FULL
    one_sided: bool = False
    ranged: bool = False  # for ranges of keys, not for segments
    drops: bool = False  # some of the weights
    masked: bool = False  # beside ranges, for masks of the keys between a query's first and last

    def __str__(self) -> str:
        what, band = "ranges of keys" if self.ranged else "segments", f", {self.band}" if str(self.band) else ""
        what = f"{what} under a mask" if self.masked else what
        heads = f"{str(self.dtype).removeprefix('torch.')} heads of {self.width} on {self.device.type}"
        return f"{what} of {heads}{band}{', with dropout' if self.drops else ''}"


_lock = locks.lock()


def kernel_of(form: Form) -> str:
    """The name of a kernel for a form. Raises Declined, with what became of each."""
    with _lock:
        reasons = _said(form) if devices.captured() else _probed(form, tuple(attending.KERNELS))
    name = next((name for name, reason in reasons if not reason), None)
    if name is None:
        tried = "; ".join(f"{name}: {reason}" for name, reason in reasons)
        raise Declined(f"no kernel takes {form} ({tried})")
    return name


def _said(form: Form) -> tuple[tuple[str, str], ...]:
    """What asking each kernel would give on the target that is captured."""
    obstacle = segments_obstacle(devices.captured(), form.dtype, form.width, form.ranged, form.drops)
    if not obstacle and form.value_width != form.width:
        obstacle = f"values have a width of {form.value_width}"
    return tuple((name, obstacle) for name in attending.KERNELS)


@functools.cache
def _probed(form: Form, names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Why each kernel is none for a form; "" for the first that is one, behind which none is tried."""
    found = []
    for name in names:
        found.append((name, _obstacle(name, form)))
        if not found[-1][1]:
            break
    return tuple(found)


def _obstacle(name: str, form: Form) -> str:
    kernel = attending.KERNELS[name]
    if form.device.type not in kernel.devices:
        return f"it runs on {' and '.join(kernel.devices)}"
    if form.ranged and kernel.ranged is None:
        return "it takes no ranges of keys"
    if form.masked and kernel.added is None:
        return "it adds no mask to scores"
    if form.value_width != form.width:
        return f"values have a width of {form.value_width}"
    try:
        with _disable_current_modes(), torch.autocast(form.device.type, enabled=False), torch.enable_grad():
            if form.ranged:
                return _ranged_difference(name, form) or form.masked and _masked_difference(name, form) or ""
            lengths = [_DOCUMENTS]
            if form.one_sided:
                lengths.append(_ONE_SIDED if form.band == CAUSAL else _LONGER)
            return next((wrong for segments in lengths if (wrong := _difference(name, form, segments))), "")
    except Exception as error:  # torch says in many ways that a kernel does not take something
        return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _difference(name: str, form: Form, segments: Sequence[tuple[int, int]]) -> str:
    """How a kernel's numbers differ from float64's; "" where they do not."""
    queries, keys = (sum(lengths[side] for lengths in segments) for side in (0, 1))
    length = max(queries, keys)
    segments = (*segments, (length - queries, 0), (0, length - keys))
    counts = range(len(segments) + 1)
    ends = [[sum(lengths[side] for lengths in segments[:count]) for count in counts] for side in (0, 1)]
    ends_q, ends_k = (torch.tensor(each, dtype=torch.int32, device=form.device) for each in ends)
    told = torch.tensor([len(segments), *(max(lengths[side] for lengths in segments) for side in (0, 1))])
    heads = 2 * form.heads, 2, 2
    operands = [
        _noise(form, (1, head, length, form.width), place).requires_grad_() for place, head in enumerate(heads)
    ]
    how = ends_q, ends_k, told, form.band.left, form.band.right, None, name
    mask, kept = mask_of(segments, form.band, length).to(form.device), None
    if form.drops:
        kept = _kept(form, operands, how)
        share = 1 - (kept & mask).sum().item() / (mask.sum().item() * kept.shape[1])
        if abs(share - _DROPPED) > _DROPPED / 4:
            return f"it drops {share:.2g} of the weights, expected {_DROPPED}"
    result = _attended(form, operands, how)
    weight = _noise(form, result.shape, 3)
    mine = [result, *torch.autograd.grad(result, operands, weight)]
    wide = [operand.detach().double().requires_grad_() for operand in operands]
    right = masked(*wide, mask, kept)
    true = [right, *torch.autograd.grad(right, wide, weight.double())]
    whats = "results", "queries' gradients", "keys' gradients", "values' gradients"
    return next((wrong for each in zip(whats, mine, true) if (wrong := _apart(form, *each))), "")


def _attended(form: Form, operands: Sequence[torch.Tensor], how: Sequence[Any]) -> torch.Tensor:
    """What a kernel gives; where it drops weights, the same each time, and the generator is as it was."""
    if not form.drops:
        return ATTEND(*operands, *how)
    on_cpu = form.device.type == "cpu"
    generator = torch.default_generator if on_cpu else torch.cuda.default_generators[form.device.index or 0]
    before = generator.get_state()
    try:
        generator.manual_seed(0)
        return ATTEND_DROPPING(*operands, *how, _DROPPED)
    finally:
        generator.set_state(before)


def _kept(form: Form, operands: Sequence[torch.Tensor], how: Sequence[Any]) -> torch.Tensor:
    """Which weights a kernel does not drop, `[1, heads, length, length]`: those that values of one key each come
    through."""
    query, key, value = (operand.detach() for operand in operands)
    found = []
    for begin in range(0, key.shape[2], form.width):
        places = torch.arange(begin, min(begin + form.width, key.shape[2]), device=form.device)
        alone = torch.zeros_like(value)
        alone[:, :, places, places - begin] = 1
        found.append(_attended(form, (query, key, alone), how)[..., : len(places)] != 0)
    return torch.cat(found, -1)


def _ranged_difference(name: str, form: Form) -> str:
    """As _difference, of ranges: of one key, of none, behind the buffer's begin and end, and of all keys."""
    first = torch.tensor([[0, 7, -3], [255, 300, 0]], device=form.device)
    last = torch.tensor([[0, 150, 400], [280, 299, 256]], device=form.device)
    places = torch.arange(_KEYS, device=form.device)
    mask = (places >= first[:, None, :, None]) & (places <= last[:, None, :, None])
    operands = _few(form, *first.shape)
    result = ATTEND_RANGES(*operands, first, last, None, name)
    return _apart(form, "results", result, masked(*(operand.double() for operand in operands), mask))


def _masked_difference(name: str, form: Form) -> str:
    """As _ranged_difference, of what a mask says: no key, all, those behind some, all but a few between."""
    places = torch.arange(_KEYS, device=form.device)
    shown = [places < 0, places >= 0, places > 70, (places > 3) & (places < 250) & (places % 5 != 2)]
    mask = torch.stack(shown).view(2, 1, 2, _KEYS)
    operands = _few(form, 2, 2)
    wide = [operand.double() for operand in operands]
    added = torch.zeros_like(mask, dtype=form.dtype).masked_fill(~mask, float("-inf"))
    added += torch.where(places % 2 == 0, _noise(form, mask.shape, 3), 0)
    for given, right in ((mask, masked(*wide, mask)), (added, masked(*wide, mask, added=added.double()))):
        if wrong := _apart(form, "results under a mask", ATTEND_MASKED(*operands, given, None, name), right):
            return wrong
    return ""


def _few(form: Form, rows: int, queries: int) -> list[torch.Tensor]:
    """Operands of a few queries and a buffer of keys."""
    shapes = (rows, 2 * form.heads, queries, form.width), *[(rows, 2, _KEYS, form.width)] * 2
    return [_noise(form, shape, place) for place, shape in enumerate(shapes)]


def _apart(form: Form, what: str, mine: torch.Tensor, true: torch.Tensor) -> str:
    apart = ((mine.detach().double() - true.detach()).norm() / true.detach().norm()).item()
    near = apart <= _UNITS * torch.finfo(form.dtype).eps
    return "" if near else f"its {what} differ by {apart:.2g} from float64's"


def _noise(form: Form, shape: Sequence[int], phase: int) -> torch.Tensor:
    """Numbers between -1 and 1 that no generator makes."""
    count = torch.arange(torch.Size(shape).numel(), dtype=torch.float64)
    numbers = torch.sin(count * 12.9898 + phase) * 43758.5453
    return ((numbers - numbers.floor()) * 2 - 1).reshape(shape).to(form.dtype).to(form.device)


def mask_of(segments: Sequence[tuple[int, int]], band: Band, length: int) -> torch.Tensor:
    """The mask that says what segments and a band mean."""
    mask = torch.zeros(length, length, dtype=torch.bool)
    query = key = 0
    for queries, keys in segments:
        behind = torch.arange(queries)[:, None] + (keys - queries) - torch.arange(keys)[None, :]
        kept = torch.ones_like(behind, dtype=torch.bool)
        if band.left >= 0:
            kept &= behind <= band.left
        if band.right >= 0:
            kept &= -behind <= band.right
        mask[query : query + queries, key : key + keys] = kept
        query, key = query + queries, key + keys
    return mask


def masked(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor,
    kept: torch.Tensor | None = None,
    added: torch.Tensor | float = 0.0,
) -> torch.Tensor:
    """Attention under a mask by products and a softmax; zeros where a query has no key. `kept`: the weights that are
    not dropped; `added`: to scores."""
    key, value = (each.repeat_interleave(query.shape[1] // each.shape[1], 1) for each in (key, value))
    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5 + added
    weights = torch.softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), -1)
    weights = weights.masked_fill(~mask, 0.0)
    return (weights if kept is None else weights * kept / (1 - _DROPPED)) @ value
