"""Linear layers on their way through AOTAutograd: one call each while it traces (ops/linears.py), ATen's calls before
and behind.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor

from ..graph import fakes, layouts
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
    if changes_calls(graph):
        return []
    return [node for node in graph.find_nodes(op="call_function", target=_aten_linear) if _is_plain(node)]


def changes_calls(graph: fx.Graph) -> bool:
    """Whether ATen may make other calls of a layer than those that are written here."""
    edges = (transform_edge(node) is not None or "autocast" in target_name(node) for node in graph.nodes)
    return any(map(torch.is_autocast_enabled, ("cpu", "cuda"))) or any(edges)


def _is_plain(node: fx.Node) -> bool:
    if node.kwargs or len(node.args) not in (2, 3):
        return False
    given = [example(each) if isinstance(each, fx.Node) else each for each in node.args]
    tensors = given[:2] if given[-1] is None else given
    if not all(isinstance(each, FakeTensor) and not wrapped(each) for each in tensors):
        return False
    x, weight = tensors[:2]
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
        and row_major(x)
    )


def row_major(x: torch.Tensor) -> bool:
    """Of three dimensions; by their strides as they are written, which guards nothing."""
    expected = (x.shape[1] * x.shape[2], x.shape[2], 1)
    return list(map(layouts.written, x.stride())) == list(map(layouts.written, expected))


def spell(module: fx.GraphModule) -> int:
    """Writes ATen's calls in the places of linear layers', in place, as autograd would have; returns of how many."""
    nodes = [node for node in module.graph.nodes if node.target in _SPELLED]
    views: dict[tuple[Any, fx.Node], fx.Node] = {}
    for node in nodes:
        with module.graph.inserting_before(node):
            node.replace_all_uses_with(_SPELLED[node.target](Writer(node, views), *node.args))
        module.graph.erase_node(node)
    return len(nodes)


class Writer:
    """Writes calls in the place of a node, each with what tracing left on that, and a fake value. Fake tensors take
    their time: the node's own value is its last call's, and the same view of the same tensor is made once (`views`)."""

    def __init__(self, node: fx.Node, views: dict[tuple[Any, fx.Node], fx.Node]) -> None:
        self._node, self._views = node, views
        self.value = node.meta["val"]

    def call(self, value: torch.Tensor, target: Any, *arguments: Any, **keywords: Any) -> fx.Node:
        """A call that gives a value."""
        made = self._node.graph.call_function(target, arguments, keywords)
        made.meta = {**self._node.meta, "val": value}
        return made

    def result(self, target: Any, *arguments: Any, **keywords: Any) -> fx.Node:
        """The call that gives the node's value."""
        return self.call(self.value, target, *arguments, **keywords)

    def result_of_rows(self, view: Any, target: Any, *arguments: Any) -> fx.Node:
        """The call that gives the rows of the node's value, and a view of it as that."""
        outer, inner, columns = self.value.shape
        made = self.call(fakes.view(self.value, [outer * inner, columns], [columns, 1]), target, *arguments)
        return self.result(view, made, self.sizes(self.value.shape))

    def turned(self, source: fx.Node) -> fx.Node:
        """The transpose of a matrix."""
        if (known := self._views.get((_aten.t.default, source))) is None:
            value = source.meta["val"]
            turned = fakes.view(value, value.shape[::-1], value.stride()[::-1])
            known = self.call(turned, _aten.t.default, source)
            self._views[_aten.t.default, source] = known
        return known

    def rows(self, source: fx.Node) -> fx.Node:
        """The last dimension's, in a matrix."""
        if (known := self._views.get((_aten.view.default, source))) is not None:
            return known
        dense, view, value = source, _aten.view.default, source.meta["val"]
        if not row_major(value):
            with value.fake_mode, torch.no_grad():
                value = _aten.clone.default(value, memory_format=torch.contiguous_format)
            dense = self.call(value, _aten.clone.default, source, memory_format=torch.contiguous_format)
            view = _aten._unsafe_view.default
        outer, inner, columns = value.shape
        shape = [outer * inner, columns]
        made = self.call(fakes.view(value, shape, [columns, 1]), view, dense, self.sizes(shape))
        self._views[_aten.view.default, source] = made
        return made

    def sum_of_rows(self, source: fx.Node) -> fx.Node:
        value = fakes.view(self.value, [1, *self.value.shape], [*self.value.shape, 1])
        return self.call(value, _aten.sum.dim_IntList, self.rows(source), [0], True)

    def sizes(self, shape: Sequence[Any]) -> list[int | fx.Node]:
        """As a view is told of them: a single symbolic one follows from the others."""
        symbols = [size for size in shape if not isinstance(size, int)]
        return [size if isinstance(size, int) else self._size(size) if symbols[1:] else -1 for size in shape]

    def _size(self, size: torch.SymInt) -> fx.Node:
        """A size that an operand of the node has: an input of the graph, or asked of that."""
        text = layouts.written(size)
        for given in itertools.takewhile(lambda node: node.op == "placeholder", self._node.graph.nodes):
            if isinstance(example(given), torch.SymInt) and layouts.written(example(given)) == text:
                return given
        operands = ((each, dim) for each in self._node.all_input_nodes for dim in range(example(each).dim()))
        found = next((each, dim) for each, dim in operands if layouts.written(example(each).shape[dim]) == text)
        return self.call(size, _aten.sym_size.int, *found)


def _forward(write: Writer, x: fx.Node, weight: fx.Node, bias: fx.Node | None) -> fx.Node:
    if bias is not None:
        rows = write.rows(x)
        return write.result_of_rows(_aten.view.default, _aten.addmm.default, bias, rows, write.turned(weight))
    columns = write.turned(weight)
    return write.result_of_rows(_aten._unsafe_view.default, _aten.mm.default, write.rows(x), columns)


def _input(write: Writer, cotangent: fx.Node, weight: fx.Node) -> fx.Node:
    return write.result_of_rows(_aten.view.default, _aten.mm.default, write.rows(cotangent), weight)


def _weight(write: Writer, cotangent: fx.Node, x: fx.Node) -> fx.Node:
    return write.result(_aten.mm.default, write.turned(write.rows(cotangent)), write.rows(x))


def _bias(write: Writer, cotangent: fx.Node) -> fx.Node:
    total = write.sum_of_rows(cotangent)
    return write.result(_aten.view.default, total, list(total.meta["val"].shape[1:]))


_SPELLED: dict[Any, Callable[..., fx.Node]] = {FORWARD: _forward, INPUT: _input, WEIGHT: _weight, BIAS: _bias}
