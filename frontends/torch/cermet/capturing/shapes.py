"""What a model is called with, as a user writes it: `input_ids=2x1..4096, pixel_values=2x3x224x224:bfloat16`.

A size is a number, or a range, which is a symbol: one graph serves all of it. What is decided by such a size is decided
by the power of two below it (graph/traffic.py), so a range is as many calls as it has of those. An input may be one
before it, `labels=input_ids`: the same tensor. Many kinds of call are better in a file, JSON or TOML, whose list
`calls` has an object of NAME and SHAPE for each.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch

from ..errors import Error
from ..graph.traffic import counted

_SYNTAX = "expected NAME=SIZExSIZE..., a SIZE as 512 or 1..4096, and :DTYPE behind it where it is no usual one"
_EXAMPLES = {
    ".json": 'like {"calls": [{"input_ids": "2x1..4096"}]}',
    ".toml": 'like [[calls]] and below it input_ids = "2x1..4096"',
}
_INTEGERS = re.compile(r".*(_ids|_mask|labels|positions?|_lengths?)")


@dataclasses.dataclass(frozen=True)
class Input:
    """A tensor of a call: sizes as (least, most), which are equal where the size is a number."""

    name: str
    sizes: tuple[tuple[int, int], ...]
    dtype: torch.dtype | None  # None: the model's
    same: str = ""  # the input that it is, where it is one of those before


@dataclasses.dataclass(frozen=True)
class Size:
    number: int
    symbolic: bool


@dataclasses.dataclass(frozen=True)
class Call:
    """One set of sizes, by the names of inputs."""

    sizes: Mapping[str, tuple[Size, ...]]
    inputs: Mapping[str, Input]

    def __str__(self) -> str:
        shapes = ("x".join(f"{size.number}.." if size.symbolic else str(size.number) for size in each)
                  for each in self.sizes.values())  # fmt: skip
        return ", ".join(f"{name}={shape}" for name, shape in zip(self.sizes, shapes))


def kinds(text: str) -> list[tuple[Input, ...]]:
    """The kinds of call that a user names: one in itself, or all of a file. Raises cermet.Error where it is neither."""
    if not text.endswith((".json", ".toml")):
        return [parse(text)]
    held = _held(text)
    listed = held.get("calls") if isinstance(held, dict) and held.keys() == {"calls"} else None
    if not isinstance(listed, list) or not listed:
        raise Error(f"{text} holds no calls, expected one list `calls` and nothing else, {_EXAMPLES[text[-5:]]}")
    for call in listed:
        if not isinstance(call, dict) or not call or not all(isinstance(shape, str) for shape in call.values()):
            raise Error(f"{text} has the call {call!r}, expected names with shapes as texts, {_EXAMPLES[text[-5:]]}")
    return [parse(",".join(f"{name}={shape}" for name, shape in call.items())) for call in listed]


def _held(path: str) -> object:
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Error(f"--shapes is {path!r}, a file that cannot be read: {error}") from None
    if path.endswith(".toml") and sys.version_info < (3, 11):
        raise Error(f"--shapes is {path!r}, and Python reads TOML from 3.11 on; write JSON, {_EXAMPLES['.json']}")
    try:
        if path.endswith(".json"):
            return json.loads(text)
        import tomllib

        return tomllib.loads(text)
    except ValueError as error:
        raise Error(f"{path} cannot be understood: {error}") from None


def parse(text: str) -> tuple[Input, ...]:
    """The inputs of one kind of call. Raises cermet.Error where the text is none."""
    inputs = [_input(part.strip(), text) for part in text.split(",") if part.strip()]
    if not inputs:
        raise Error(f"shapes are {text!r}, {_SYNTAX}")
    known: dict[str, Input] = {}
    for each in inputs:
        if each.name in known:
            raise Error(f"shapes are {text!r}, which name {each.name} twice, expected each input once")
        if each.same and each.same not in known:
            raise Error(
                f"shapes are {text!r}, where {each.name} is {each.same}, expected the name of an input before it"
            )
        known[each.name] = dataclasses.replace(known[each.same], name=each.name, same=each.same) if each.same else each
    return tuple(known.values())


def _input(part: str, text: str) -> Input:
    if same := re.fullmatch(r"([A-Za-z_]\w*)=([A-Za-z_]\w*)", part):
        return Input(same[1], (), None, same[2])
    found = re.fullmatch(r"([A-Za-z_]\w*)=([0-9x.]*)(?::(\w+))?", part)
    if found is None:
        raise Error(f"shapes are {text!r}, of which {part!r} is no input; {_SYNTAX}")
    name, sizes, dtype = found.groups()
    return Input(name, tuple(_size(each, part) for each in sizes.split("x") if sizes), _dtype(dtype, name, part))


def _size(size: str, part: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", size)
    least = int(found[1]) if found else 0
    most = int(found[2] or found[1]) if found else 0
    if not 1 <= least <= most:
        raise Error(f"{part!r} has the size {size!r}, expected a number from 1 on, or a range of them like 1..4096")
    return least, most


def _dtype(name: str | None, of: str, part: str) -> torch.dtype | None:
    if name is None:
        return torch.int64 if _INTEGERS.fullmatch(of) else None
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise Error(f"{part!r} has the type {name!r}, expected one of torch's, like int64 or bfloat16")
    return dtype


def calls(inputs: tuple[Input, ...]) -> Iterator[Call]:
    """Every call that decides something in another way. Equal ranges vary together."""
    ranges = list(dict.fromkeys(size for each in inputs for size in each.sizes if size[0] < size[1]))
    for chosen in itertools.product(*map(_representatives, ranges)):
        known = dict(zip(ranges, chosen))
        yield Call(
            {each.name: tuple(known.get(size) or Size(size[0], False) for size in each.sizes) for each in inputs},
            {each.name: each for each in inputs},
        )


def _representatives(size: tuple[int, int]) -> list[Size]:
    """One size of each kind; 1 is none for a symbol, since torch makes a graph of its own for it."""
    least, most = size
    found = [Size(1, False)] if least == 1 else []
    least = max(least, 2)
    while least <= most:
        found.append(Size(least, True))
        least = 2 * counted(least)
    return found
