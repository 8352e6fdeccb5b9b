"""Replaces matched sequences of an FX graph by region ops, or says for each why it does not.

`decide` only looks: it imports a graph, asks libcermet for matches and checks each against what a value graph cannot
see, namely the order of writes, devices, strides and modes. `apply` changes the graph. A replaced value keeps its
shape, dtype and strides exactly; otherwise the match is declined and reported as a near miss.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.symbolic_shapes import guard_scalar
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from . import library, regions
from .effects import PURE, attribute, effect_of, tensor_nodes
from .importer import Imported, example, import_graph
from .operators import symbolic_float

# Higher-order operators whose bodies are ordinary graphs, run where they are called.
_KEPT_META = ("stack_trace", "nn_module_stack", "source_fn_stack")
_BODIES = re.compile(r"checkpoint|^wrap|invoke_subgraph|inner_compile")


@dataclasses.dataclass(frozen=True)
class NearMiss:
    """A place that has a pattern's core but is left alone: `condition` is the one thing that failed."""

    pattern: str
    at: str  # the FX node
    condition: str
    source: str = ""  # `file:line: code` of the user's program, as far as tracing knows it

    def __str__(self) -> str:
        return f"{self.pattern} at {self.at}: {self.condition}" + (f" ({self.source})" if self.source else "")


@dataclasses.dataclass
class Region:
    """One place to rewrite, found and checked."""

    pattern: str
    key: int
    wanted: tuple[bool, ...] | None  # which inputs need a gradient; None where nothing does
    operands: list[fx.Node]
    since: list[fx.Node]  # writes that must come before
    until: list[fx.Node]  # writes that must come after
    results: list[fx.Node]
    replaced: set[fx.Node]
    state: tuple[Any, ...]  # grad mode and autocast in which the sequence runs
    values: list[torch.Tensor]  # the fake results
    device: torch.device
    source: str
    bytes_moved: Any  # operands and results once; an int, or symbolic


@dataclasses.dataclass
class Decision:
    """What a graph's rewriting will be."""

    module: fx.GraphModule
    regions: list[Region]
    near_misses: list[NearMiss]
    states: dict[fx.Node, tuple[Any, ...]]  # of every node, once it has run


class _Declined(Exception):
    pass


def modules(module: fx.GraphModule) -> Iterator[fx.GraphModule]:
    """`module` and the bodies of its higher-order operators (checkpointed layers), innermost included, each once."""
    seen: set[int] = set()
    pending = [module]
    while pending:
        current = pending.pop(0)
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        for node in current.graph.nodes:
            if not isinstance(node.target, torch._ops.HigherOrderOperator) or not _BODIES.search(str(node.target)):
                continue
            for argument in tensor_nodes((node.args, node.kwargs)):
                body = attribute(current, argument.target) if argument.op == "get_attr" else None
                if isinstance(body, fx.GraphModule):
                    pending.append(body)


def source_line(node: fx.Node) -> str:
    """`file:line: code` of the innermost line of the user's program that made a node."""
    trace = node.meta.get("stack_trace") or ""
    found = re.findall(r'File "([^"]+)", line (\d+), in [^\n]*\n\s*([^\n]*)', trace)
    return "{}:{}: {}".format(*found[-1]) if found else ""


def decide(module: fx.GraphModule, functional: bool = True) -> Decision:
    """Matches of one graph (not of its bodies), checked. Raises cermet.Error where the compiler does.

    `functional` says that writes will be made functional before autograd sees them, as AOTAutograd does. Where the
    graph runs as it is, a value that a gradient still needs must not be written later: eager may have kept a copy of it
    (its cast to float32), where a region keeps the value itself.
    """
    imported = import_graph(module)
    answer = library.context().match(imported.text)
    by_name = {node.name: node for node in module.graph.nodes}
    near_misses = [
        NearMiss(item["pattern"], item["at"], item["condition"], _source(by_name, item["at"]))
        for item in answer["near_misses"]
    ]
    found = []
    for item in answer["regions"]:
        try:
            found.append(_check(imported, by_name, item, functional))
        except _Declined as reason:
            at = item["results"][0]
            near_misses.append(NearMiss(item["pattern"], at, str(reason), _source(by_name, at)))
    return Decision(module, found, near_misses, imported.states)


def _source(by_name: dict[str, fx.Node], name: str) -> str:
    return source_line(by_name[name]) if name in by_name else ""


def _check(imported: Imported, by_name: dict[str, fx.Node], item: dict[str, Any], functional: bool) -> Region:
    definitions = []
    for name in item["operands"]:
        if name not in imported.definitions:
            raise _Declined(f"the operand {name} is no value of the traced graph")
        definitions.append(imported.definitions[name])
    for name in item["results"]:
        if name not in by_name:
            raise _Declined(f"the result {name} is no value of the traced graph")
    operands = [definition.node for definition in definitions]
    results = [by_name[name] for name in item["results"]]
    replaced = {by_name[name] for name in item["replaced"] if name in by_name} | set(results)

    states = {imported.states[node] for node in replaced}
    if len(states) != 1:
        raise _Declined("the sequence crosses a change of grad mode or autocast")
    tensors = [_tensor(node) for node in operands]
    for node in results:
        _tensor(node)
    device = tensors[0].device
    for tensor, node in zip([*tensors, *map(example, results)], [*operands, *results]):
        if tensor.device != device:
            raise _Declined(f"{node.name} is on {tensor.device}, {operands[0].name} on {device}")
    if device.type not in ("cpu", "cuda"):
        raise _Declined(f"device {device.type} is not supported")
    storages = [tensor.untyped_storage()._cdata for tensor in tensors]
    for node in results:
        if example(node).untyped_storage()._cdata in storages:
            raise _Declined(f"{node.name} shares memory with an operand")

    key = regions.register(item["text"])
    if missing := regions.not_lowered(key, device):
        raise _Declined(missing)
    wanted = None
    if any(example(node).requires_grad for node in results):
        wanted = tuple(tensor.requires_grad for tensor in tensors)
        kept = regions.gradient(key, wanted).backward_inputs
        named = {"input": item["operands"], "output": item["results"]}
        for name in [named[origin][index] for origin, index in kept if origin in named]:
            write = imported.definitions[name].until
            if write is not None and not functional:
                raise _Declined(f"{name} is written in place by {write.name} before the gradient has read it")
    values = _fake_results(key, tensors, results, wanted is not None)
    for node, value in zip(results, values):
        _same(node, example(node), value)
    moved = sum(value.numel() * value.element_size() for value in [*tensors, *values])
    return Region(
        item["pattern"],
        key,
        wanted,
        operands,
        [definition.since for definition in definitions if definition.since is not None],
        [definition.until for definition in definitions if definition.until is not None],
        results,
        replaced,
        next(iter(states)),
        values,
        device,
        source_line(results[0]),
        moved,
    )


def _tensor(node: fx.Node) -> torch.Tensor:
    value = example(node)
    if not isinstance(value, torch.Tensor):
        raise _Declined(f"tracing left no tensor for {node.name}")
    if is_traceable_wrapper_subclass(value):
        raise _Declined(f"{node.name} is a {type(value).__name__}, expected a plain tensor")
    return value


def _fake_results(
    key: int, tensors: list[torch.Tensor], results: list[fx.Node], differentiable: bool
) -> list[torch.Tensor]:
    # The mode of the nodes' own values: while a backend runs, Dynamo's current mode is another.
    mode = getattr(tensors[0], "fake_mode", None)
    op = regions.region_op(len(tensors), len(results))
    if mode is None:
        raise _Declined("the graph was traced without fake tensors")
    with mode, torch.set_grad_enabled(differentiable):
        value = op(*tensors, key)
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _text(size: Any) -> str:
    return str(size) if isinstance(size, int) else str(size.node.expr)


def _same(node: fx.Node, old: torch.Tensor, new: torch.Tensor) -> None:
    """Declines unless `new` can stand for `old` everywhere."""
    if old.dtype != new.dtype:
        raise _Declined(f"{node.name} has dtype {old.dtype}, the fused operation gives {new.dtype}")
    shapes = [[_text(size) for size in value.shape] for value in (old, new)]
    if shapes[0] != shapes[1]:
        raise _Declined(f"{node.name} has shape {shapes[0]}, the fused operation gives {shapes[1]}")
    if "0" in shapes[0]:
        return
    strides = [
        [_text(stride) for size, stride in zip(value.shape, value.stride()) if _text(size) != "1"]
        for value in (old, new)
    ]
    if strides[0] != strides[1]:
        raise _Declined(f"{node.name} has strides {strides[0]}, the fused operation gives {strides[1]}")


# --- Applying --------------------------------------------------------------------------------------------------------


def _dying(region: Region) -> set[fx.Node]:
    """Replaced nodes that nothing will read once the results are replaced."""
    alive = set(region.replaced)
    changed = True
    while changed:
        stays = {
            node
            for node in alive
            if node not in region.results and any(user not in alive for user in node.users)
        }
        # A result that stays because something else reads it is still replaced: its own inputs may die.
        alive -= stays
        changed = bool(stays)
    return alive


def _place(
    region: Region, order: dict[fx.Node, int], dying: set[fx.Node], states: dict[fx.Node, tuple[Any, ...]]
) -> fx.Node:
    """The node before which the new one goes: after every operand has its right version, before anything needs it,
    under the grad mode and autocast of what it replaces."""
    after = max((order[node] for node in [*region.operands, *region.since]), default=-1)
    readers = [user for node in region.results for user in node.users if user not in dying]
    before = min((order[node] for node in [*readers, *region.until]), default=len(order) - 1)
    nodes = list(order)
    position = after + 1
    while position < before and (nodes[position].op == "placeholder" or states[nodes[position - 1]] != region.state):
        position += 1
    if position > before:
        raise _Declined(
            f"{nodes[before].name} reads a result or writes an operand before {nodes[after].name} exists"
        )
    if states[nodes[position - 1]] != region.state:
        raise _Declined(f"{nodes[before].name} runs under another grad mode or autocast than the sequence")
    return nodes[position]


def apply(decision: Decision) -> tuple[list[Region], list[NearMiss]]:
    """Rewrites the decision's graph; returns what was done and what had no place. On an exception the graph is as it
    was."""
    module = decision.module
    backup = fx.Graph()
    backup.set_codegen(module.graph._codegen)
    output = backup.graph_copy(module.graph, {}, return_output_node=True)
    try:
        done = _apply(decision)
        module.graph.lint()
        module.recompile()
        return done
    except Exception:
        if output is not None:
            value, old = output
            backup.output(value).meta = dict(old.meta)
        module.graph = backup
        raise


def _apply(decision: Decision) -> tuple[list[Region], list[NearMiss]]:
    graph = decision.module.graph
    done: list[Region] = []
    near_misses: list[NearMiss] = []
    became: dict[fx.Node, fx.Node] = {}
    for region in decision.regions:
        region = dataclasses.replace(region, operands=[_current(node, became) for node in region.operands])
        order = {node: index for index, node in enumerate(graph.nodes)}
        dying = _dying(region)
        try:
            place = _place(region, order, dying, decision.states)
        except _Declined as reason:
            near_misses.append(NearMiss(region.pattern, region.results[0].name, str(reason), region.source))
            continue
        for node in region.replaced:
            for argument in node.args:
                scalar = symbolic_float(argument)
                if scalar is not None:
                    guard_scalar(scalar)  # the region holds this number: another one compiles again
        with graph.inserting_before(place):
            became |= _insert(graph, region, decision.states)
        for node in region.results:
            node.replace_all_uses_with(became[node])
        _erase(decision.module, sorted(dying, key=order.__getitem__, reverse=True))
        done.append(region)
    return done, near_misses


def _erase(module: fx.GraphModule, dying: list[fx.Node]) -> None:
    """Removes nodes, users first, and pure nodes that only fed them (a cast to the type that is already there)."""
    pending = list(dying)
    known = set(dying)
    while pending:
        node = pending.pop(0)
        if node.users:
            continue
        inputs = node.all_input_nodes
        module.graph.erase_node(node)
        for source in inputs:
            pure = source.op in ("call_function", "call_method") and effect_of(source, module).kind == PURE
            if pure and not source.users and source not in known:
                known.add(source)
                pending.append(source)


def _current(node: fx.Node, became: dict[fx.Node, fx.Node]) -> fx.Node:
    while node in became:
        node = became[node]
    return node


def _insert(
    graph: fx.Graph, region: Region, states: dict[fx.Node, tuple[Any, ...]]
) -> dict[fx.Node, fx.Node]:
    """The new op, and for several results their getitems; each carries what tracing leaves on a node."""
    first = region.results[0]
    kept = {name: first.meta[name] for name in _KEPT_META if name in first.meta}
    op = regions.region_op(len(region.operands), len(region.results))
    call = graph.call_function(op, (*region.operands, region.key))
    call.meta = dict(kept)
    states[call] = region.state
    if len(region.results) == 1:
        call.meta["example_value"] = region.values[0]
        return {first: call}
    call.meta["example_value"] = tuple(region.values)
    became = {}
    for index, result in enumerate(region.results):
        item = graph.call_function(operator.getitem, (call, index))
        states[item] = region.state
        item.meta = {**kept, "example_value": region.values[index]}
        became[result] = item
    return became


def prepare(found: list[Region]) -> None:
    """Makes what the regions will run ready on their devices: compile, load, publish. Raises cermet.Error."""
    keys: dict[tuple[int, torch.device], None] = {}
    for region in found:
        if region.wanted is None:
            keys[region.key, region.device] = None
        else:
            derived = regions.gradient(region.key, region.wanted)
            keys[derived.forward, region.device] = None
            keys[derived.backward, region.device] = None
    for key, device in keys:
        regions.prepare(key, device)

