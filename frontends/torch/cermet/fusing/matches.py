"""Which matches of an FX graph become region ops, or why one does not.

Each is checked against what a value graph cannot see, namely the order of writes, devices, strides and modes. Nothing
is changed here: `replacement.apply` does that. A replaced value keeps its shape, dtype and strides exactly; otherwise
the match is declined and reported as a near miss.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Mapping
from typing import Any

import torch
import torch.fx as fx

from .. import environment
from ..graph import fakes, layouts, memory
from ..graph.decision import Decision, Declined, NearMiss, Region, Tail
from ..graph.effects import transform_edge
from ..graph.layouts import written
from ..graph.nodes import example, source_line, target_name
from ..importing.importer import Imported
from ..importing.translations.operators import REDUCTIONS, spelling
from ..loss import logits
from ..loss.logits import Returned
from ..ops import regions, slices

# Functions and methods whose result, where shape and dtype are the operand's, is the operand, other operands empty.
_COPIES = {"cat", "concat", "concatenate", "clone", "contiguous"}
_Results = dict[Hashable, list[torch.Tensor]]  # fake ones, by what they are of


def check(module: fx.GraphModule, imported: Imported, answer: dict[str, Any]) -> Decision:
    """What becomes of libcermet's answer to the text of a graph (not of its bodies): regions, and near misses.

    A value that a gradient still needs must not be written later: eager may have kept a copy of it (its cast to
    float32), where a region keeps the value itself. AOTAutograd refuses that, too, though it makes writes functional:
    it asks a tensor for its version as autograd does. A failure over one match leaves it alone.
    """
    by_name = {name: definition.node for name, definition in imported.definitions.items() if definition.version == 0}
    by_name |= {node.name: node for node in module.graph.nodes}
    near_misses = [
        NearMiss(item["pattern"], item["at"], item["condition"], _source(by_name, item["at"]))
        for item in answer["near_misses"]
    ]
    near_misses += [
        NearMiss("cluster", name, reason, _source(by_name, name))
        for name, reason in imported.refusals.items()
        if spelling(by_name[name]) in REDUCTIONS and _is_real(by_name[name])
    ]
    decision = Decision(module, [], near_misses, imported.states, imported.computing, [])
    known: _Results = {}
    for item in answer["regions"]:
        at = item["results"][0]
        try:
            decision.regions.append(_check_with_copies(imported, by_name, item, known))
        except Declined as why:
            near_misses.append(NearMiss(item["pattern"], at, str(why), _source(by_name, at)))
        except Exception as error:
            decision.leave(item["pattern"], at, _source(by_name, at), error)
    return decision


def _is_real(node: fx.Node) -> bool:
    """Integers are places and counts, of which nothing is expected."""
    value = example(node)
    return not isinstance(value, torch.Tensor) or value.is_floating_point()


def take_heads(
    decision: Decision,
    imported: Imported,
    returned: Returned,
    apart: Mapping[fx.Node, Tail],
    budget: int,
    again: bool,
) -> None:
    """Lets losses take over their linear layers (logits.py), but for those that are to be checked. `returned`: what
    becomes of logits that the graph returns; `apart`: what it returns of them that was made apart (tails.py); `budget`:
    bytes of logits that may exist at once; `again`: a backward may make logits once more."""
    if environment.check():
        return
    for region in list(decision.regions):
        try:
            region.head = logits.find(imported, region, region.dying(), returned, apart, budget, again)
        except Exception as error:
            decision.regions.remove(region)
            decision.leave(region.pattern, region.results[0].name, region.source, error)
    unmade = decision.unmade
    decision.regions = [region for region in decision.regions if not unmade.issuperset(region.results)]


def _source(by_name: dict[str, fx.Node], name: str) -> str:
    return source_line(by_name[name]) if name in by_name else ""


def _check_with_copies(
    imported: Imported, by_name: dict[str, fx.Node], item: dict[str, Any], known: _Results
) -> Region:
    """The region of a match. Where nothing but a copy reads a result, it writes the copy if its kernels can."""
    copies = {name: copy.name for name in item["results"] if (copy := _copy_of(by_name.get(name))) is not None}
    if copies:
        changed = {**item, "results": [copies.get(name, name) for name in item["results"]]}
        changed["replaced"] = [*item["replaced"], *item["results"]]
        try:
            return _check(imported, by_name, changed, known)
        except Declined:
            pass
    return _check(imported, by_name, item, known)


def _copy_of(node: fx.Node | None) -> fx.Node | None:
    """The only reader of a value, if that gives the same elements in memory that may be ordered in another way."""
    if node is None or len(node.users) != 1:
        return None
    copy = next(iter(node.users))
    tensors = [value for value in (example(node), example(copy)) if isinstance(value, torch.Tensor)]
    if len(tensors) != 2 or tensors[0].dtype != tensors[1].dtype:
        return None
    if [written(size) for size in tensors[0].shape] != [written(size) for size in tensors[1].shape]:
        return None
    return copy if _COPIES & set(target_name(copy).split(".")) else None


def _check(imported: Imported, by_name: dict[str, fx.Node], item: dict[str, Any], known: _Results) -> Region:
    definitions = []
    for name in item["operands"]:
        if name not in imported.definitions:
            raise Declined(f"the operand {name} is no value of the traced graph")
        definitions.append(imported.definitions[name])
    for name in item["results"]:
        if name not in by_name:
            raise Declined(f"the result {name} is no value of the traced graph")
    operands = [definition.node for definition in definitions]
    results = [by_name[name] for name in item["results"]]
    replaced = {by_name[name] for name in item["replaced"] if name in by_name} | set(results)
    replaced |= {user for node in replaced for user in node.users if user.target is operator.getitem}

    states = {imported.states[node] for node in replaced}
    if len(states) != 1:
        raise Declined("the sequence crosses a change of grad mode or autocast, or the edge of a torch.func transform")
    tensors = [_tensor(node) for node in operands]
    for node in results:
        _tensor(node)
    if any(map(transform_edge, imported.contexts(results[0]))):
        raise Declined(f"{results[0].name} is computed inside of a transform of torch.func (vmap, grad, jvp)")
    device = tensors[0].device
    for tensor, node in zip([*tensors, *map(example, results)], [*operands, *results]):
        if tensor.device != device:
            raise Declined(f"{node.name} is on {tensor.device}, {operands[0].name} on {device}")
    if device.type not in ("cpu", "cuda"):
        raise Declined(f"device {device.type} is not supported")
    for node in results:
        if memory.shared(example(node), tensors):
            raise Declined(f"{node.name} shares memory with an operand")

    if missing := _no_launch(len(operands), len(results)):
        raise Declined(missing)
    if symbol := slices.unbound(item["text"]):
        raise Declined(f"a result is as long as no operand is: {symbol} rows of what is repeated along them")
    key = regions.register(item["text"], [layouts.order_of(example(node)) for node in results])
    if missing := regions.not_lowered(key, device):
        raise Declined(missing)
    for node, tensor, port in zip(operands, tensors, regions.signature(key, device).inputs):
        if tensor.dim() != len(port.dims):  # the one that a call picks, before it drops the dimension
            raise Declined(f"{node.name} has {tensor.dim()} dimensions, the sequence reads it with {len(port.dims)}")
    wanted, like, runs = None, (), (key,)
    if any(example(node).requires_grad for node in results):
        wanted = tuple(tensor.requires_grad for tensor in tensors)
        like = regions.input_orders(tensors, wanted)
        derived = regions.gradient(key, wanted, like, device)
        runs = (derived.forward, derived.backward)
        for run in runs:
            what = regions.signature(run, device)
            if missing := regions.not_lowered(run, device) or _no_launch(len(what.inputs), len(what.outputs)):
                raise Declined(f"the gradient: {missing}")
        named = {"input": item["operands"], "output": item["results"]}
        for name in [named[origin][index] for origin, index in derived.backward_inputs if origin in named]:
            write = imported.definitions[name].until
            if write is not None:
                raise Declined(f"{name} is written in place by {write.name} before the gradient has read it")
    values = _fake_results(key, tensors, results, wanted is not None, known)
    for node, value in zip(results, values):
        _same(node, example(node), value)
    for run in dict.fromkeys((key, runs[0])):
        if (place := regions.unwritable(run, device)) is not None:
            raise Declined(f"the strides of {results[place].name} are none that the fused operation can write")
    return Region(
        item["pattern"],
        key,
        wanted,
        like,
        runs,
        operands,
        [definition.since for definition in definitions if definition.since is not None],
        [definition.until for definition in definitions if definition.until is not None],
        results,
        replaced,
        next(iter(states)),
        values,
        device,
        source_line(results[0]),
        item.get("counts", {item["pattern"]: 1}),
    )


def _no_launch(inputs: int, outputs: int) -> str:
    """Why no op launches kernels of so many tensors, or "". What a forward saves are outputs, too."""
    if inputs > regions.MAX_INPUTS or outputs > regions.MAX_OUTPUTS:
        most = f"{regions.MAX_INPUTS} and {regions.MAX_OUTPUTS}"
        return f"kernels that take {inputs} and give {outputs} tensors, expected at most {most}"
    return ""


def _tensor(node: fx.Node) -> torch.Tensor:
    value = example(node)
    if not isinstance(value, torch.Tensor):
        raise Declined(f"tracing left no tensor for {node.name}")
    if reason := memory.wrapped(value):
        raise Declined(f"{node.name} {reason}")
    if value.is_complex():
        raise Declined(f"{node.name} is {value.dtype}, expected real numbers")
    return value


def _fake_results(
    key: int, tensors: list[torch.Tensor], results: list[fx.Node], differentiable: bool, known: _Results
) -> list[torch.Tensor]:
    """What the region's op gives of fake tensors. It is called once for operands that look the same."""
    # The mode of the nodes' own values: while a backend runs, Dynamo's current mode is another.
    mode = getattr(tensors[0], "fake_mode", None)
    if mode is None:
        raise Declined("the graph was traced without fake tensors")
    look = (mode, key, differentiable, *map(_look, tensors))
    if look in known:
        return list(map(fakes.like, known[look]))
    op = regions.region_op(len(tensors), len(results))
    with mode, torch.set_grad_enabled(differentiable):
        # Detached: later writes, which the fake values have had, are no business of autograd's here.
        value = op(*(tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors), key)
    known[look] = list(value) if isinstance(value, (tuple, list)) else [value]
    return known[look]


def _look(tensor: torch.Tensor) -> Hashable:
    """All that an op knows of a fake tensor."""
    sizes = (tuple(map(written, each)) for each in (tensor.shape, tensor.stride()))
    return tensor.dtype, tensor.device, tensor.requires_grad, *sizes


def _same(node: fx.Node, old: torch.Tensor, new: torch.Tensor) -> None:
    """Declines unless `new` can stand for `old` everywhere."""
    if old.dtype != new.dtype:
        raise Declined(f"{node.name} has dtype {old.dtype}, the fused operation gives {new.dtype}")
    shapes = [[written(size) for size in value.shape] for value in (old, new)]
    if shapes[0] != shapes[1]:
        raise Declined(f"{node.name} has shape {shapes[0]}, the fused operation gives {shapes[1]}")
    if "0" in shapes[0]:
        return
    strides = [
        [written(stride) for size, stride in zip(value.shape, value.stride()) if written(size) != "1"]
        for value in (old, new)
    ]
    if strides[0] != strides[1]:
        raise Declined(f"{node.name} has strides {strides[0]}, the fused operation gives {strides[1]}")
