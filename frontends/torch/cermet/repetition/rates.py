"""Numbers that layers have one each where else they are alike, as the rates at which paths are dropped: each becomes an
input of the graph, so that the layers are windows of a repetition, and their kernels one kernel.

A number is one in single precision where the tensors are, and what is computed with it in half precision is computed in
single precision and rounded, as torch does with a number of Python's.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor

from ..graph import fakes
from ..graph.edit import copy_of
from ..graph.nodes import example
from . import periods
from .lanes import Irregular
from .shortening import shorten

_FEWEST = 3  # numbers, or it is no row of layers
_SAME = 4  # calls at most that have one number: of one layer
_WIDE = torch.float32
_HALF = (torch.bfloat16, torch.float16)
_CALLS = {
    operator.add, operator.sub, operator.mul, operator.truediv,
    torch.add, torch.sub, torch.mul, torch.div, torch.true_divide,
    "add", "sub", "mul", "div", "true_divide",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Rates:
    """Numbers that are inputs of a graph, behind its others."""

    numbers: tuple[float, ...]
    device: torch.device

    def attach(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """What runs the graph, without them."""
        known: tuple[torch.Tensor, ...] = ()

        def with_rates(*arguments: Any) -> Any:
            nonlocal known
            made = known or tuple(torch.tensor(each, dtype=_WIDE, device=self.device) for each in self.numbers)
            if not known and not any(isinstance(each, FakeTensor) for each in made):
                known = made  # at once, whichever thread is here
            return run(*arguments, *made)

        return with_rates


def lift(module: fx.GraphModule) -> tuple[fx.GraphModule, Rates] | None:
    """A copy with such inputs, where more of a graph repeats itself with them."""
    calls = periods.calls(module.graph)
    found = _rows(calls)
    if not found:
        return None
    copy = copy_of(module)
    _put_all(copy, found)
    if _left_out(copy) <= _left_out(module):
        return None
    numbers = tuple(calls[place].args[position] for place, position in found)
    place, _ = found[0]
    return copy, Rates(numbers, example(calls[place]).device)


def _left_out(module: fx.GraphModule) -> int:
    """How many windows would be."""
    try:
        return sum(each.more for each in shorten(module))
    except Irregular:
        return 0


def _rows(calls: Sequence[fx.Node]) -> list[tuple[int, int]]:
    """Calls that are like others but for a number, and which of their operands it is, on one device."""
    groups: dict[Hashable, list[tuple[int, int]]] = {}
    for place, node in enumerate(calls):
        for position in _numbers(node):
            forms = (periods.form(example(each)) for each in (node, node.args[1 - position]))
            groups.setdefault((node.target, position, *forms), []).append((place, position))
    rows = [group for group in groups.values() if _is_a_row([calls[place].args[at] for place, at in group])]
    devices = {example(calls[place]).device for row in rows for place, _ in row}
    return sorted(each for row in rows for each in row) if len(devices) == 1 else []


def _put_all(module: fx.GraphModule, found: Iterable[tuple[int, int]]) -> None:
    calls = periods.calls(module.graph)
    for place, position in found:
        _put(module.graph, calls[place], position)
    module.graph.lint()
    module.recompile()


def _numbers(node: fx.Node) -> Iterator[int]:
    """Which of a call's two operands is a number of Python's, where the other is a tensor that rounds."""
    if node.target not in _CALLS or len(node.args) != 2 or node.kwargs:
        return
    for position in (0, 1):
        other = node.args[1 - position]
        if type(node.args[position]) is float and isinstance(other, fx.Node):
            value = example(other)
            if type(value) is FakeTensor and value.dim() and value.dtype in (_WIDE, *_HALF):
                yield position


def _is_a_row(numbers: list[float]) -> bool:
    return len(set(numbers)) >= _FEWEST and len(numbers) <= _SAME * len(set(numbers))


def _put(graph: fx.Graph, node: fx.Node, position: int) -> None:
    """Makes a call's number an input of the graph."""
    tensor = node.args[1 - position]
    value = example(tensor)
    number = fakes.fresh(value, (), (), _WIDE)
    *_, last = graph.find_nodes(op="placeholder")
    with graph.inserting_after(last):
        place = graph.placeholder(f"number_{len(graph.find_nodes(op='placeholder'))}")
    place._dynamo_source = None  # type: ignore[attr-defined]  # AOTAutograd asks; no guard is about it
    place.meta["example_value"] = number
    if value.dtype == _WIDE:
        node.update_arg(position, place)
        return
    with graph.inserting_before(node):
        wide = graph.call_method("to", (tensor, _WIDE))
        wide.meta = {**node.meta, "example_value": value}
        wide.meta["example_value"] = fakes.result(wide, {}, autocast=True)
    with graph.inserting_after(node):
        narrow = graph.call_method("to", (node, value.dtype))
        narrow.meta = dict(node.meta)
    node.replace_all_uses_with(narrow, lambda user: user is not narrow)
    node.update_arg(1 - position, wide)
    node.update_arg(position, place)
    node.meta = {**node.meta, "example_value": fakes.result(node, {}, autocast=True)}
