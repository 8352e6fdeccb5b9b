"""Graph texts taken apart: what some of a function's values are, given others of them.

Texts are libcermet's own (`differentiate`): one function, one operation a line (docs/ir.md).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Hashable, Iterable, Iterator, Sequence

from ..errors import Error
from ..text import TensorType

_SYMBOLS, _SYMBOL = re.compile(r"#cermet\.symbols<\[([^\]]*)\]>"), re.compile(r'"([^"]*)"')
_NAME = re.compile(r"%\w+")
_OP = re.compile(r"cermet\.(\w+)")
_SHAPE = re.compile(r"tensor<((?:[\d?]+x)*)")
_TYPE = re.compile(r"tensor<((?:[\d?]+x)*)(\w+)(?:, #cermet\.symbols<\[([^\]]*)\]>)?>")
# What may have operands of its result's sizes and yet computes with other elements of them, or with places.
_ELSEWHERE = set("iota random cumsum transpose opaque matmul gather embedding_bag".split())
_LOCATION = re.compile(r' loc\("[^"]*"\)')
_HEAD = re.compile(r"(\s*func\.func @)([\w$.]+)\((.*)\) -> (.*?)( attributes \{.*\})? \{")


@dataclasses.dataclass(frozen=True)
class Function:
    """One function's text: its arguments with their types, its lines by what they define, its results."""

    before: str
    name: str
    arguments: tuple[tuple[str, str], ...]
    lines: tuple[tuple[str, str], ...]  # the name that a line defines, and the line
    results: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, text: str) -> Function:
        """Raises cermet.Error where a text is no such function."""
        rows = _LOCATION.sub("", text).splitlines()
        heads = [row for row in rows if row.lstrip().startswith("func.func")]
        found = _HEAD.fullmatch(heads[0]) if len(heads) == 1 else None
        if found is None or found[5]:
            raise Error(f"expected a graph text of one function without attributes, got:\n{text}")
        arguments = [part.split(": ", 1) for part in _parts(found[3])]
        types = list(_parts(found[4][1:-1] if found[4].startswith("(") else found[4]))
        body = [row.strip() for row in rows[rows.index(heads[0]) + 1 :]]
        last = next(index for index, row in enumerate(body) if row.startswith("return "))
        lines = [(row.split(" = ", 1)[0], row) for row in body[:last]]
        if not all(_NAME.fullmatch(name) for name, _ in lines):
            raise Error(f"expected operations of one result, got:\n{text}")
        results = _NAME.findall(body[last].split(" : ", 1)[0])
        before = rows[0]
        return cls(before, found[2], tuple((n, t) for n, t in arguments), tuple(lines), tuple(zip(results, types)))

    def types(self) -> dict[str, str]:
        """Of every value, by its name."""
        return dict(self.arguments) | {name: line[line.rindex("tensor<") :] for name, line in self.lines}

    def needed(self, values: Iterable[str], given: Iterable[str] = ()) -> tuple[set[str], set[str]]:
        """The names that values follow from, where `given` are known: those that lines define, and arguments."""
        sources = {name: _NAME.findall(line.split(" = ", 1)[1]) for name, line in self.lines}
        known, pending = set(given), list(values)
        found: set[str] = set()
        while pending:
            name = pending.pop()
            if name not in found and name not in known:
                found.add(name)
                pending += sources.get(name, [])
        return found & sources.keys(), found - sources.keys()

    def numbered(self, arguments: Iterable[Hashable], numbers: dict[Hashable, int]) -> dict[str, int]:
        """Of every value a number, which other functions' values have, too, that are computed alike of the same
        `arguments`; `numbers` is what those functions share."""
        found: dict[str, int] = {}
        for (name, _), argument in zip(self.arguments, arguments, strict=True):
            found[name] = numbers.setdefault(("argument", argument), len(numbers))
        for name, line in self.lines:
            computed = line.split(" = ", 1)[1]
            alike = (_NAME.sub("%", computed), tuple(found[each] for each in _NAME.findall(computed)))
            found[name] = numbers.setdefault(alike, len(numbers))
        return found

    def part(self, name: str, values: Sequence[str], given: Sequence[str] = ()) -> tuple[str, list[int]]:
        """The text that computes some values from the arguments it needs, and which those are; values that are `given`
        are further arguments, the last."""
        lines, arguments = self.needed(values, given)
        places = [place for place, (argument, _) in enumerate(self.arguments) if argument in arguments]
        types = self.types()
        taken = [*(self.arguments[place] for place in places), *((each, types[each]) for each in given)]
        listed = ", ".join(types[each] for each in values)
        rows = [
            self.before,
            f"  func.func @{name}({', '.join(f'{argument}: {type}' for argument, type in taken)}) -> "
            + (f"({listed})" if len(values) > 1 else listed)
            + " {",
            *(f"    {line}" for defined, line in self.lines if defined in lines),
            f"    return {', '.join(values)} : {listed}",
            "  }",
            "}",
        ]
        text = "\n".join(rows) + "\n"
        for index, each in enumerate(given):
            text = re.sub(rf"{re.escape(each)}\b", f"%given{index or ''}", text)
        return text, places


def is_by_rows(text: str) -> bool:
    """Whether each row of every result is made, element by element, of the same row of the arguments that have rows:
    whatever order these are in, the result's are in the same. Rows are what the one symbol counts."""
    listed = set(_SYMBOLS.findall(text))
    if len(listed) != 1 or len(_SYMBOL.findall(*listed)) != 1:
        return False
    if "cermet.strides" in text or re.search(r"tensor<(\d+x)+\?", text):
        return False
    try:
        function = Function.read(text)
    except Error:
        return False
    for _, line in function.lines:
        op, shapes = _OP.search(line)[1], set(_SHAPE.findall(line))
        if op in _ELSEWHERE or op != "broadcast" and len(shapes) != 1:
            return False
    return all("?" in type for _, type in function.results)


def in_groups(text: str, sizes: Sequence[int]) -> str:
    """Of what is made by rows: of rows in groups of these sizes."""
    return text.replace("tensor<?x", f"tensor<?x{''.join(f'{size}x' for size in sizes)}")


def turned(text: str, order: Sequence[int], columns: int) -> str:
    """Of what is made element by element of tensors of as many dimensions as `order` has: the same of tensors whose
    dimensions stand in that order, the last of them with so many elements. Raises cermet.Error where anything else is
    computed."""
    function = Function.read(text)
    if "cermet.strides" in text:
        raise Error(f"expected operands that lie in rows, got:\n{text}")
    types = [*function.arguments, *function.results]
    last = next((_dims(type)[order[-1]] for _, type in reversed(types) if len(_dims(type)) == len(order)), None)

    def of(dims: Sequence[int | str]) -> tuple[int | str, ...]:
        known = [columns if dim == last else dim for dim in dims]
        return tuple(known[axis] for axis in order) if len(known) == len(order) else tuple(known)

    for _, line in function.lines:
        op, shapes = _OP.search(line)[1], [_dims(found[0]) for found in _TYPE.finditer(line)]
        alike = len({*shapes}) == 1 or op == "broadcast" and len(shapes[0]) in (0, len(order))
        if op == "reshape":
            alike = all(len({*map(_several, each)}) == 1 for each in (shapes, map(of, shapes)))
        if op in _ELSEWHERE or not alike:
            raise Error(f"expected operations on single elements, got {line}")
    return _TYPE.sub(lambda found: str(TensorType(of(_dims(found[0])), found[2])), text)


def _dims(type: str) -> tuple[int | str, ...]:
    """Of a tensor type's text."""
    found = _TYPE.search(type)
    symbols = iter(_SYMBOL.findall(found[3] or ""))
    return tuple(next(symbols) if size == "?" else int(size) for size in found[1].split("x")[:-1])


def _several(dims: Sequence[int | str]) -> tuple[int | str, ...]:
    return tuple(dim for dim in dims if dim != 1)


def decided(text: str, truths: dict[int, bool]) -> tuple[str, list[int]]:
    """The text where some arguments of truths, by their places, are the same everywhere, and the places of those that
    it still has. Raises cermet.Error where a text is no function that can be taken apart."""
    function = Function.read(text)
    constants = tuple(
        (name, f"{name} = cermet.constant {float(truths[place])} : {type}")
        for place, (name, type) in enumerate(function.arguments)
        if place in truths and "{" not in type
    )
    whole = dataclasses.replace(function, lines=constants + function.lines)
    return whole.part(function.name, [name for name, _ in function.results])


def unbound(text: str) -> str:
    """A symbol of a function's results that no argument has, or "": a launch would not know their size."""
    head = next(line for line in text.splitlines() if "func.func" in line)
    arguments, _, results = head.partition(" -> ")
    known = {symbol for symbols in _SYMBOLS.findall(arguments) for symbol in _SYMBOL.findall(symbols)}
    wanted = [symbol for symbols in _SYMBOLS.findall(results) for symbol in _SYMBOL.findall(symbols)]
    return next((symbol for symbol in wanted if symbol not in known), "")


def _parts(text: str) -> Iterator[str]:
    """Between the commas that are in no bracket."""
    depth, begin = 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "<([{") - (letter in ">)]}")
        if letter == "," and depth == 0:
            yield text[begin:place].strip()
            begin = place + 1
    if text[begin:].strip():
        yield text[begin:].strip()
