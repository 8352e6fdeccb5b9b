"""What one graph behind autograd runs: the launches of ours that are in it, and the calls of others.

A launch came from the lines of the nodes that it stands for; where it is, or took in, a launch of a region that was
found before autograd, from that region's (of regions that are equal and end in one line, from those of each). Bytes of
a launch are its operands and results, each once. A call's are what it reads and writes: of a table that it reads by
numbers as much as it gives, of what it writes in part what it stores.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator

import torch
import torch.fx as fx

from ..fusing.replacement import Replaced
from ..graph import nodes
from ..graph.decision import Region
from ..graph.effects import WRITE, effect_of
from ..graph.nodes import example, examples, source_line, target_name, tensor_nodes
from ..graph.traffic import describe, moved_by, size_of
from ..ops import regions
from ..targets import devices

PRODUCT, ATTENTION, MEMORY = "product", "attention", "memory"
_PRODUCTS = re.compile(r"(^|[._])(mm|bmm|addmm|baddbmm|addbmm|mv|addmv|dot|linear|matmul|conv\w*)(_|$)")
_MAKES = re.compile(r"\.(new_|empty)|_like$")

Measure = Callable[[fx.Node], float | None]
Sources = dict[tuple[int | None, str], tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class Launch:
    """One launch of a region's kernels. Equal ones differ in where they are only."""

    kernels: tuple[str, ...]  # names
    sources: tuple[str, ...]  # `file:line: code` of the user's program, by place
    operands: tuple[str, ...]  # `bf16[8, 2048, 4096]`
    results: tuple[str, ...]
    bytes_moved: int
    text: int  # key of the graph text
    target: str
    microseconds: float | None = None  # where measured


@dataclasses.dataclass(frozen=True)
class Call:
    """Calls of one name that are not ours."""

    op: str
    kind: str  # PRODUCT, ATTENTION, or MEMORY: all else
    times: int
    bytes_moved: int
    microseconds: float | None = None  # of all of them, where each could be measured


@dataclasses.dataclass(frozen=True)
class Run:
    """A graph as it runs, its launches in their order, its calls with the most bytes first."""

    kind: str  # "forward", "backward" or "inference"
    launches: tuple[Launch, ...]
    calls: tuple[Call, ...]

    @property
    def rows(self) -> list[tuple[Launch, int]]:
        """Equal launches and how many there are."""
        return list(collections.Counter(self.launches).items())

    def calls_of(self, kind: str) -> list[Call]:
        return [call for call in self.calls if call.kind == kind]


def merged(found: Iterable[Run]) -> list[Run]:
    """One for each kind: what the graphs of a program run."""
    by_kind: dict[str, list[Run]] = {}
    for run in found:
        by_kind.setdefault(run.kind, []).append(run)
    order = ("inference", "forward", "backward")
    return [
        Run(kind, tuple(launch for run in several for launch in run.launches), _summed(several))
        for kind, several in sorted(by_kind.items(), key=lambda item: order.index(item[0]))
    ]


def _summed(several: Iterable[Run]) -> tuple[Call, ...]:
    return _by_name(call for run in several for call in run.calls)


def _by_name(calls: Iterable[Call]) -> tuple[Call, ...]:
    """One entry for each name, the most bytes first."""
    groups: dict[tuple[str, str], list[Call]] = {}
    for call in calls:
        groups.setdefault((call.op, call.kind), []).append(call)
    found = []
    for (op, kind), several in groups.items():
        taken = [call.microseconds for call in several]
        whole = None if None in taken else math.fsum(taken)
        times, moved = (sum(getattr(call, name) for call in several) for name in ("times", "bytes_moved"))
        found.append(Call(op, kind, times, moved, whole))
    return tuple(sorted(found, key=lambda call: (-call.bytes_moved, call.op)))


def sources_of(found: Iterable[Region]) -> Sources:
    """The lines of regions that were found before autograd, by the key of what they launch and their own line; without
    a key, of what is launched in the place of that: a part of it, rows in groups."""
    made: dict[tuple[int | None, str], dict[str, None]] = {}
    for region in found:
        lines = _lines(region.replaced)
        for key in (*region.keys(), None):
            made.setdefault((key, region.source), {}).update(lines)
    return {place: tuple(lines) for place, lines in made.items()}


def of(kind: str, module: fx.GraphModule, replaced: Replaced, sources: Sources, measure: Measure | None = None) -> Run:
    """What a graph runs, `replaced` having been put into it. `sources`: of the launches that were there before."""
    within = {call: _lines_within(region.replaced, sources) for region, call in zip(replaced.regions, replaced.calls)}
    launches, calls = [], []
    for owner, node in _called(module):
        if _key(node) is None:
            calls += _others(node, owner, measure)
            continue
        lines = within.get(node) or _lines_within([node], sources)
        launch, product = _launch(node, tuple(lines), measure)
        launches.append(launch)
        calls += product
    return Run(kind, tuple(launches), _by_name(calls))


def kernels(key: int, target: str) -> tuple[str, ...]:
    """The names of what a launch of a region runs on a target."""
    return tuple(step["name"] for step in regions.plan(key, target)["steps"] if step["kind"] == "kernel")


def _key(node: fx.Node) -> int | None:
    """Of what a call launches, if it is one of ours."""
    namespace, _, name = target_name(node).partition(".")
    if namespace != regions.NAMESPACE:
        return None
    if name.startswith("launch_"):
        return node.args[-1]
    return node.args[-2] if name.startswith(("linear_launch_", "scaled")) else None


def _called(module: fx.GraphModule) -> Iterator[tuple[fx.GraphModule, fx.Node]]:
    """The calls of a graph; in the place of one that runs a body, those of the body."""
    for node in module.graph.nodes:
        bodies = nodes.bodies(module, node)
        for body in bodies:
            yield from _called(body)
        if node.op == "call_function" and not bodies and node.target is not operator.getitem:
            yield module, node


def _lines(found: Iterable[fx.Node]) -> dict[str, None]:
    return dict.fromkeys(line for line in map(source_line, found) if line)


def _lines_within(found: Iterable[fx.Node], sources: Sources) -> dict[str, None]:
    """The lines of nodes behind autograd; of a launch among them, those of its region."""
    lines: dict[str, None] = {}
    for node in found:
        own, key = source_line(node), _key(node)
        of_region = sources.get((key, own)) or (sources.get((None, own), ()) if key is not None else ())
        lines |= dict.fromkeys(of_region or ([own] if own else []))
    return dict(sorted(lines.items(), key=lambda item: _place(item[0])))


def _place(line: str) -> tuple[str, int]:
    """A line's file and number."""
    found = re.match(r"(.*?):(\d+): ", line)
    return (found[1], int(found[2])) if found else (line, 0)


def _launch(node: fx.Node, sources: tuple[str, ...], measure: Measure | None) -> tuple[Launch, list[Call]]:
    """A launch, and the product that is made in one call with it."""
    key, made = _key(node), examples(node)
    given = [example(operand) for operand in tensor_nodes(node.args)]
    target, product = devices.target_of(made[0].device), []
    if ".linear_launch_" in str(node.target):  # a head's: hidden, weight, the region's other operands, its key, the logits' place
        hidden, weight, *given = given
        logits = made[1]  # whose gradient is of their form
        product = [Call("aten.mm", PRODUCT, 1, sum(map(size_of, (hidden, weight, logits))))]
        given.insert(node.args[-1], logits)
    once = {id(value): value for value in (*given, *made)}
    launch = Launch(
        kernels(key, target),
        sources,
        tuple(map(describe, given)),
        tuple(map(describe, made)),
        sum(map(size_of, once.values())),
        key,
        target,
        measure(node) if measure is not None else None,
    )
    return launch, product


def _others(node: fx.Node, module: fx.GraphModule, measure: Measure | None) -> list[Call]:
    """A call of somebody else's, if it moves memory."""
    wrapped = [item for item in (node.target, *node.args) if isinstance(item, torch._ops.OpOverload)]  # with a state
    called = wrapped[0] if wrapped else node.target
    if called is torch.ops.aten._unsafe_view.default or getattr(called, "is_view", False):
        return []
    name = str(called.overloadpacket) if wrapped else target_name(node)
    kind = _kind(name)
    moved = _moved(node, module, name, kind)
    return [Call(name, kind, 1, moved, measure(node) if measure is not None else None)] if moved else []


def _kind(name: str) -> str:
    return ATTENTION if "attention" in name else PRODUCT if _PRODUCTS.search(name) else MEMORY


def _moved(node: fx.Node, module: fx.GraphModule, name: str, kind: str) -> int:
    """Bytes of a call of somebody else's."""
    effect = effect_of(node, module)
    written = {target for target in effect.written if isinstance(example(target), torch.Tensor)}
    if effect.kind == WRITE and written:
        given = [example(operand) for operand in dict.fromkeys(tensor_nodes((node.args, node.kwargs)))]
        tensors = [value for value in given if isinstance(value, torch.Tensor)]
        pointwise = torch.Tag.pointwise in getattr(node.target, "tags", ())
        integers = any(value.dtype in (torch.int64, torch.int32) for value in tensors[1:])
        by_number = kind == MEMORY and integers and not pointwise
        others = [example(source) for source in node.all_input_nodes if source not in written]
        sizes = [size_of(value) for value in others if isinstance(value, torch.Tensor)]
        stored = sum(size_of(example(target)) for target in written)
        return sum(sizes) + (min(stored, max(sizes, default=stored)) if by_number else stored)
    results = sum(size_of(value) for value in examples(node) if isinstance(value, torch.Tensor))
    if _MAKES.search(name):  # reads no more than a form
        return 0 if "empty" in name else results
    return moved_by(node)
