"""Linear layers on their way through AOTAutograd: one call each while it traces (ops/linears.py), ATen's calls before
and behind.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor

from ..graph import layouts
from ..graph.effects import transform_edge
from ..graph.memory import wrapped
from ..graph.nodes import example, target_name
from ..ops.linears import BIAS, FORWARD, INPUT, LINEAR, WEIGHT

_aten = torch.ops.aten
_aten_linear = torch._C._nn.linear


@contextlib.contextmanager
def joined(module: fx.GraphModule) -> Iterator[None]:
    """Makes linear layers of Dynamo's graph one call each meanwhile.

    What is not three dimensions of one type, plain and row-major, stays, as does all under autocast and between the
    edges of torch.func's transforms: there ATen makes other calls of a layer.
    """
    layers = {node: node.args for node in _layers(module.graph)}
    for node, given in layers.items():
        node.target, node.args = LINEAR, (*given, None)[:3]
    try:
        if layers:
            module.recompile()
        yield
    finally:
        for node, given in layers.items():
            node.target, node.args = _aten_linear, given
        if layers:
            module.recompile()


def _layers(graph: fx.Graph) -> list[fx.Node]:
    if any(map(torch.is_autocast_enabled, ("cpu", "cuda"))) or any(map(_changes_calls, graph.nodes)):
        return []
    return [node for node in graph.find_nodes(op="call_function", target=_aten_linear) if _is_plain(node)]


def _changes_calls(node: fx.Node) -> bool:
    return transform_edge(node) is not None or "autocast" in target_name(node)


def _is_plain(node: fx.Node) -> bool:
    if node.kwargs or len(node.args) not in (2, 3):
        return False
    given = [example(each) if isinstance(each, fx.Node) else each for each in node.args]
    tensors = given[:2] if given[-1] is None else given
    if not all(isinstance(each, FakeTensor) and not wrapped(each) for each in tensors):
        return False
    x, weight = tensors[:2]
    symbols = [size for size in x.shape[:-1] if not isinstance(size, int)]
    known = all(isinstance(size, int) for tensor in tensors[1:] for size in tensor.shape)
    return (
        x.dim() == 3
        and weight.dim() == 2
        and len({(tensor.dtype, tensor.device, tensor.layout) for tensor in tensors}) == 1
        and x.dtype.is_floating_point
        and x.layout is torch.strided
        and all(tensor.dim() == 1 for tensor in tensors[2:])
        and known
        and isinstance(x.shape[-1], int)
        and len(symbols) < 2  # a view has one size that follows from the others
        and _row_major(x)
    )


def _row_major(x: torch.Tensor) -> bool:
    """Of three dimensions; by their strides as they are written, which guards nothing."""
    expected = (x.shape[1] * x.shape[2], x.shape[2], 1)
    return list(map(layouts.written, x.stride())) == list(map(layouts.written, expected))


def spell(module: fx.GraphModule) -> int:
    """Writes ATen's calls in the places of linear layers', in place, as autograd would have; returns of how many."""
    nodes = [node for node in module.graph.nodes if node.target in _SPELLED]
    for node in nodes:
        with module.graph.inserting_before(node):
            node.replace_all_uses_with(_SPELLED[node.target](_Writer(node), *node.args))
        module.graph.erase_node(node)
    return len(nodes)


class _Writer:
    """Writes calls in the place of a node, each with what tracing left on that, and a fake value of its own."""

    def __init__(self, node: fx.Node) -> None:
        self._node = node
        self.shape = node.meta["val"].shape

    def call(self, target: Any, *arguments: Any, values: Sequence[Any] = (), **keywords: Any) -> fx.Node:
        """`values`: the arguments of the fake value, where they are others."""
        made = self._node.graph.call_function(target, arguments, keywords)
        given = [each.meta["val"] if isinstance(each, fx.Node) else each for each in values or arguments]
        with self._node.meta["val"].fake_mode, torch.no_grad():
            made.meta = {**self._node.meta, "val": target(*given, **keywords)}
        return made

    def view(self, source: fx.Node, shape: Sequence[Any], view: Any = _aten.view.default) -> fx.Node:
        """Of a symbolic size it says that it follows from the others."""
        value = source.meta["val"]
        if value.dim() == 3 and not _row_major(value):
            source = self.call(_aten.clone.default, source, memory_format=torch.contiguous_format)
            view = _aten._unsafe_view.default
        written = [size if isinstance(size, int) else -1 for size in shape]
        return self.call(view, source, written, values=(source, list(shape)))

    def rows(self, source: fx.Node) -> fx.Node:
        """A matrix of the last dimension's."""
        outer, inner, columns = source.meta["val"].shape
        return self.view(source, [outer * inner, columns])


def _forward(write: _Writer, x: fx.Node, weight: fx.Node, bias: fx.Node | None) -> fx.Node:
    if bias is not None:
        made = write.call(_aten.addmm.default, bias, write.rows(x), write.call(_aten.t.default, weight))
        return write.view(made, write.shape)
    columns = write.call(_aten.t.default, weight)
    return write.view(write.call(_aten.mm.default, write.rows(x), columns), write.shape, _aten._unsafe_view.default)


def _input(write: _Writer, cotangent: fx.Node, weight: fx.Node) -> fx.Node:
    return write.view(write.call(_aten.mm.default, write.rows(cotangent), weight), write.shape)


def _weight(write: _Writer, cotangent: fx.Node, x: fx.Node) -> fx.Node:
    columns = write.call(_aten.t.default, write.rows(cotangent))
    return write.call(_aten.mm.default, columns, write.rows(x))


def _bias(write: _Writer, cotangent: fx.Node) -> fx.Node:
    total = write.call(_aten.sum.dim_IntList, write.rows(cotangent), [0], True)
    return write.view(total, write.shape)


_SPELLED: dict[Any, Callable[..., fx.Node]] = {FORWARD: _forward, INPUT: _input, WEIGHT: _weight, BIAS: _bias}
