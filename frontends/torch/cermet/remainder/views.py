"""Views of views as one call each: other sizes and strides for the memory of a value.

A call of ATen's that only looks at memory in another way costs the host a third of one that launches a kernel, and a
transformer has three of them for each product. Where sizes are numbers, what such a chain leads to is known, and the
last of it is made of the first value at once. A value whose strides are not those that tracing saw is laid as they are.
"""

from __future__ import annotations

import operator
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx as fx
from torch.utils._mode_utils import no_dispatch

from ..graph.effects import effect_of
from ..graph.nodes import example
from ..ops import regions

_aten = torch.ops.aten
_VIEWS = {_aten._unsafe_view.default, _aten.reshape.default}  # beside those that torch calls so
_ABSOLUTE = _aten.as_strided.default  # counts from where memory begins, which is nowhere said
# Of a tensor, sizes, strides, and how many elements behind its first one: as Inductor's programs do.
viewed = getattr(torch._C._dynamo.guards, "_reinterpret_tensor", None)


class View(NamedTuple):
    """How a value is seen."""

    root: fx.Node
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int  # elements of the root's that are before it


def of(module: fx.GraphModule, nodes: Sequence[fx.Node]) -> dict[fx.Node, View]:
    """The nodes that are views of another whose memory nothing writes, unless they are a graph's results; `nodes` are
    its in the order in which they run."""
    found: dict[fx.Node, View] = {}
    if viewed is None:
        return found
    written, returned = _written(module, nodes), _returned(nodes)
    known: dict[Hashable, tuple[Any, ...]] = {}
    places: dict[fx.Node, tuple[fx.Node, Any]] = {}  # roots, and values that lie in a tensor of nothing as these do
    with no_dispatch(), torch.no_grad():
        for node in nodes:
            if node in written:
                continue
            if node not in returned and _looks(node, places):
                root, source = places[node.args[0]]
                value = _applied(node, source, known)
                if _is_seen(value, example(node), places[root][1]):
                    found[node] = View(root, tuple(value.shape), value.stride(), value.storage_offset())
                if node in found or isinstance(value, (tuple, list)):
                    places[node] = root, value
                    continue
            if (own := _root(node)) is not None:
                places[node] = node, own
    return found


def laid(value: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The same numbers with these strides; dimensions of one element have any."""
    differing = (size for size, one, other in zip(value.shape, value.stride(), strides) if one != other)
    if not value.numel() or all(size == 1 for size in differing):
        return viewed(value, tuple(value.shape), strides)
    return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device).copy_(value)


def _written(module: fx.GraphModule, nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """What a call writes, and what that is a view of; but what a launch writes over, nobody looks at any more."""
    calls = [node for node in nodes if node.op == "call_function" and regions.launched(node) is None]
    return _with_sources(nodes, [each for node in calls for each in effect_of(node, module).written])


def _returned(nodes: Sequence[fx.Node]) -> set[fx.Node]:
    """The results that are views, and the views that those are of."""
    results = [each for node in nodes if node.op == "output" for each in node.all_input_nodes]
    return _with_sources(nodes, filter(only_looks, results))


def _with_sources(nodes: Sequence[fx.Node], some: Iterable[fx.Node]) -> set[fx.Node]:
    found = set(some)
    for node in reversed(nodes):
        if node in found and only_looks(node):
            found.update(node.all_input_nodes[:1])
    return found


def only_looks(node: fx.Node) -> bool:
    """Whether a call gives its first operand's memory in another way, or, where that cannot be, a copy."""
    target = node.target
    return target in _VIEWS or isinstance(target, torch._ops.OpOverload) and target.is_view and target is not _ABSOLUTE


def _looks(node: fx.Node, places: Mapping[fx.Node, Any]) -> bool:
    """Whether a call gives a view, by numbers alone, of a value whose place is known."""
    source = node.all_input_nodes[0] if len(node.all_input_nodes) == 1 else None
    if source not in places or node.args[0] is not source:
        return False
    several = isinstance(places[source][1], (tuple, list))
    return several if node.target is operator.getitem else only_looks(node) and not several


def _root(node: fx.Node) -> torch.Tensor | None:
    """A tensor of no memory that lies as a value does, if that is one of known sizes and strides."""
    value = example(node)
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_conj() or value.is_neg():
        return None
    if not all(isinstance(each, int) for each in (*value.shape, *value.stride())):
        return None
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def _applied(node: fx.Node, source: Any, known: dict[Hashable, tuple[Any, ...]]) -> Any:
    """`known`: what views made of what lay so. Most of torch's views of tensors of no memory are Python."""
    if node.target is operator.getitem:
        return source[node.args[1]]
    lies = source.dtype, source.shape, source.stride(), source.storage_offset()
    key = node.target, repr((node.args[1:], node.kwargs)), *lies
    if key in known:
        return source.as_strided(*known[key])
    try:
        value = node.target(source, *node.args[1:], **node.kwargs)
    except RuntimeError:  # no view of what lies so
        return None
    if _is_seen(value, value, source):
        known[key] = value.shape, value.stride(), value.storage_offset()
    return value


def _is_seen(value: Any, traced: Any, root: torch.Tensor) -> bool:
    """Whether a value is what was traced, a root's own numbers in its memory."""
    if not isinstance(value, torch.Tensor) or not isinstance(traced, torch.Tensor):
        return False
    in_place = value.untyped_storage()._cdata == root.untyped_storage()._cdata and value.dtype == root.dtype
    return in_place and value.shape == traced.shape and not (value.is_conj() or value.is_neg())
