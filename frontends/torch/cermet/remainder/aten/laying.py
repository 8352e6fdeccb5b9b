"""Values that lie turned in memory, and all that is computed of them, lie in rows where that moves fewer bytes.

What a convolution gives is turned into rows of columns by a view (patches of an image, frames of speech). A sum with it
lies as it does, and so does each sum with that: all residuals of an encoder. Each norm and each product copies them
into rows, and sums read one operand along the rows and the other across. With one copy behind the view, all of them are
as their readers want them.

The other way round, a program may copy the heads of its queries, keys and values into rows of their own, of which
attention has no need: it reads any, and gives what it computes, gradients too, as its operands lie. With the heads
where the products left them, the products behind it find what they read, and neither direction copies anything.

What is promised to others keeps its strides: it is turned back.
"""

from __future__ import annotations

import heapq
import operator
from collections.abc import Sequence
from typing import Any

import sympy
import torch
import torch.fx as fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ...graph.layouts import written
from ...graph.memory import is_view
from ...graph.nodes import example, tensor_nodes
from ...graph.traffic import hint, judged, size_of
from .images import convolves_rows, lies_in_rows
from .rewriting import Call, is_pointwise, way_back

_aten = torch.ops.aten
_RESHAPES = {_aten.view.default, _aten._unsafe_view.default, _aten.reshape.default}
_PRODUCTS = {_aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default}
_ATTENTION = "aten._scaled_dot_product"
_ANY_ORDER = (_ATTENTION, "aten.native_dropout")
_OF_ROWS = {  # calls that copy what lies turned, and give rows
    _aten.native_layer_norm.default, _aten.native_layer_norm_backward.default,
    _aten._softmax.default, _aten._softmax_backward_data.default,
}  # fmt: skip
_OF_ONE_ORDER = {_aten.native_group_norm.default, _aten.native_group_norm_backward.default}  # in which all must lie
_CONVOLUTIONS = {_aten.convolution.default, _aten.convolution_backward.default}
_ALIGNED = 16  # bytes: what attention reads at once


class _Unknown(Exception):
    """A call of which nothing is known for operands that lie otherwise."""


def lay(graph: fx.Graph, promised: Sequence[fx.Node]) -> int:
    """In place, in a functional graph, whose values of `promised` keep their strides; returns how many values are
    copied into rows, or no longer are."""
    roots = [node for node in graph.nodes if _begins(node) or _is_for_attention(node)]
    if not roots:
        return 0
    kept = [node for node in promised if isinstance(node, fx.Node)]
    places = {node: place for place, node in enumerate(graph.nodes)}
    roots = [root for root in roots if _Trial(graph, [root], kept, places).gains()]
    if not roots or not (together := _Trial(graph, roots, kept, places)).gains():
        return 0
    together.write()
    return len(roots)


# --- Orders ----------------------------------------------------------------------------------------------------------


def _order(value: Any) -> tuple[int, ...] | None:
    """The dimensions from outermost to innermost in memory, of a tensor that is dense; else None. Dimensions of size 1
    lie where they stand."""
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or value.is_sparse:
        return None
    sizes, strides = list(map(hint, value.shape)), list(map(hint, value.stride()))
    several = sorted((axis for axis, size in enumerate(sizes) if size != 1), key=lambda axis: -strides[axis])
    expected = 1
    for axis in reversed(several):
        if strides[axis] != expected:
            return None
        expected *= sizes[axis]
    return tuple(several)


def _is_turned(value: Any) -> bool:
    order = _order(value)
    return order is not None and list(order) != sorted(order)


def _in_rows(value: Any) -> bool:
    order = _order(value)
    return order is not None and list(order) == sorted(order)


def _is_plain(value: Any) -> bool:
    """Whether sizes are numbers, symbols and products of those: of others, a quotient for one, a call may ask more, and
    what is asked of sizes is a guard."""
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    if not isinstance(value, torch.Tensor):
        return True
    sizes = [size.node.expr for size in value.shape if not isinstance(size, int)]
    return all(factor.is_Symbol or factor.is_Integer for size in sizes for factor in sympy.Mul.make_args(size))


def _is_elementwise(node: fx.Node) -> bool:
    """Whether a result lies as the operands do."""
    return is_pointwise(node) or node.target is _aten._to_copy.default


def _begins(node: fx.Node) -> bool:
    """Whether a value lies turned, what is computed of it does, too, or is computed of rows, and nothing that is
    computed made it so."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dim() < 3 or _is_elementwise(node) or not _is_turned(value):
        return False
    return _is_plain(value) and any(_follows(user, value) or user.target in _OF_ROWS for user in node.users)


def _wants_rows(node: fx.Node) -> bool:
    """Whether a call is given rows where a root lies in them."""
    return _is_elementwise(node) or node.target in _OF_ROWS


def _is_for_attention(node: fx.Node) -> bool:
    """Whether a value is a copy into rows that attention alone reads, which could read what is copied."""
    if node.target is not _aten.clone.default or not all(_attends(user, node) for user in node.users):
        return False
    source = example(node.args[0])
    if not node.users or source.layout is not torch.strided or _in_rows(source) or not _is_plain(source):
        return False
    if not all(map(hint, source.stride())):
        return False  # heads that are repeated
    many = max(_ALIGNED // source.element_size(), 1)
    apart = [each % many == 0 for each in (*source.stride()[:-1], source.storage_offset())]
    return all(map(statically_known_true, [source.stride(-1) == 1, *apart]))


def _attends(user: fx.Node, value: fx.Node) -> bool:
    """Whether a call is attention to what is in a value, or its gradient of that."""
    if not str(user.target).startswith(_ATTENTION):
        return False
    behind = "_backward" in str(user.target)  # a cotangent is before them
    return not any(value in tensor_nodes(each) for each in (*user.args[3 + behind:], user.kwargs))


def _follows(user: fx.Node, value: torch.Tensor) -> bool:
    result = user.meta.get("val")
    return _is_elementwise(user) and isinstance(result, torch.Tensor) and _order(result) == _order(value) and [
        *map(written, result.shape)
    ] == [*map(written, value.shape)]


def _in_rows_of_its_own(value: torch.Tensor) -> torch.Tensor:
    return _aten.clone.default(value, memory_format=torch.contiguous_format)


# --- Otherwise -------------------------------------------------------------------------------------------------------


class _Trial:
    """A graph as it would be if `roots` lay in rows, or those for attention as what they are copies of."""

    def __init__(
        self, graph: fx.Graph, roots: Sequence[fx.Node], promised: Sequence[fx.Node], places: dict[fx.Node, int]
    ) -> None:
        """`places`: of the graph's nodes in its order."""
        self._graph, self._promised, self._places = graph, promised, places
        self._mode = example(roots[0]).fake_mode
        self._idle = [root for root in roots if _is_for_attention(root)]
        with self._mode:
            self._rows = {root: _in_rows_of_its_own(example(root)) for root in roots if root not in self._idle}
        # What nodes have that is other than before.
        self._values: dict[fx.Node, Any] = {copy: example(copy.args[0]) for copy in self._idle}
        self._copied: dict[fx.Node, torch.Tensor] = {}  # operands of reshapes that must be copied first
        self.gain = sum(_bytes(example(copy)) for copy in self._idle) - sum(map(_bytes, self._rows.values()))

    def gains(self) -> bool:
        """Whether fewer bytes would be moved."""
        try:
            self._run()
        except _Unknown:
            return False
        return self.gain > 0

    def _run(self) -> None:
        """What is computed of the roots, and of what is others than before, in the graph's order. Raises _Unknown."""
        pending: list[tuple[int, fx.Node]] = []

        def read(value: fx.Node) -> None:
            for user in value.users:
                if self._is_other(value, user):
                    heapq.heappush(pending, (self._places[user], user))

        for root in (*self._rows, *self._idle):
            read(root)
        done = None
        while pending:
            _, node = heapq.heappop(pending)
            if node is done or node.op != "call_function":
                continue
            done, before = node, _copies(node, example)
            self._compute(node)
            self.gain += before - _copies(node, lambda each: self._of(each, node), self._result(node))
            if node in self._values:
                read(node)
        for node in self._kept():
            self.gain -= _bytes(example(node))
            if _forms(self._turned_back(example(node), way_back(example(node)))[-1]) != _forms(example(node)):
                raise _Unknown(node.name)

    def _is_other(self, operand: fx.Node, reader: fx.Node) -> bool:
        return operand in self._values or operand in self._rows and _wants_rows(reader)

    def _of(self, operand: fx.Node, reader: fx.Node) -> Any:
        if operand in self._rows and _wants_rows(reader):
            return self._rows[operand]
        return self._values.get(operand, operand.meta.get("val"))

    def _result(self, node: fx.Node) -> Any:
        return self._values.get(node, node.meta.get("val"))

    def _compute(self, node: fx.Node) -> None:
        old = node.meta.get("val")
        if node.target is operator.getitem:
            self._put(node, self._of(node.args[0], node)[node.args[1]])
            return
        if not isinstance(old, (torch.Tensor, tuple, list)):
            return  # a size
        known = isinstance(node.target, torch._ops.OpOverload) and not node.target._schema.is_mutable and _is_plain(old)
        if not known or node.meta.get("unbacked_bindings"):
            raise _Unknown(node.name)
        if node.target in _OF_ONE_ORDER and len({_order(each) for each in self._images(node)}) > 1:
            raise _Unknown(node.name)
        arguments, keywords = fx.map_arg((node.args, node.kwargs), lambda each: self._of(each, node))
        with self._mode:
            try:
                made = node.target(*arguments, **keywords)
            except Exception as error:  # whatever a call raises of operands that lie otherwise
                if node.target not in _RESHAPES:
                    raise _Unknown(node.name) from error
                rows = _in_rows_of_its_own(arguments[0])
                self._copied[node] = rows
                self.gain -= _bytes(rows)
                made = node.target(rows, *arguments[1:], **keywords)
        self._put(node, made)

    def _images(self, node: fx.Node) -> list[torch.Tensor]:
        values = [self._of(each, node) for each in node.all_input_nodes]
        return [each for each in values if isinstance(each, torch.Tensor) and each.dim() > 2]

    def _put(self, node: fx.Node, value: Any) -> None:
        if is_view(node) or _forms(value) != _forms(node.meta.get("val")):
            self._values[node] = value

    def _kept(self) -> list[fx.Node]:
        """What is promised and would lie otherwise."""
        return [
            node for node in dict.fromkeys(self._promised)
            if node in self._values and _forms(self._values[node]) != _forms(example(node))
        ]

    def write(self) -> None:
        kept = {node: example(node) for node in self._kept()}
        for root, rows in self._rows.items():
            readers = [user for user in root.users if _wants_rows(user)]
            with self._graph.inserting_after(root):
                copy = self._call(root, rows, _aten.clone.default, root, memory_format=torch.contiguous_format)
            for user in readers:
                user.replace_input_with(root, copy)
        for node, rows in self._copied.items():
            with self._graph.inserting_before(node):
                copy = self._call(node.args[0], rows, _aten.clone.default, node.args[0],
                                  memory_format=torch.contiguous_format)
            node.replace_input_with(node.args[0], copy)
        for copy in self._idle:
            del self._values[copy]
            copy.replace_all_uses_with(copy.args[0])
            self._graph.erase_node(copy)
        for node, value in self._values.items():
            node.meta["val"] = value
            node.meta.pop("tensor_meta", None)
        for node, old in kept.items():
            self._turn_back(node, old)

    def _turned_back(self, value: torch.Tensor, way: Sequence[Call]) -> list[torch.Tensor]:
        """What each of the calls gives."""
        found = []
        with self._mode:
            for target, arguments, keywords in way:
                value = target(value, *arguments, **keywords)
                found.append(value)
        return found

    def _turn_back(self, node: fx.Node, old: torch.Tensor) -> None:
        """Others get it as it lay before."""
        output, value, way = self._graph.output_node(), node, way_back(old)
        with self._graph.inserting_before(output):
            for made, (target, arguments, keywords) in zip(self._turned_back(example(node), way), way):
                value = self._call(node, made, target, value, *arguments, **keywords)
        output.replace_input_with(node, value)

    def _call(self, like: fx.Node, value: Any, target: Any, *arguments: Any, **keywords: Any) -> fx.Node:
        call = self._graph.call_function(target, arguments, keywords)
        call.meta = {**like.meta, "val": value}
        call.meta.pop("tensor_meta", None)
        return call


def _forms(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_forms(each) for each in value]
    return [*map(written, value.stride()), written(value.storage_offset())] if isinstance(value, torch.Tensor) else None


# --- What it costs ---------------------------------------------------------------------------------------------------


def _bytes(value: torch.Tensor) -> int:
    return size_of(value, judged)


def _copies(node: fx.Node, of: Any, result: Any = None) -> int:
    """The bytes that a call copies, or reads or writes across their order, because of how its operands lie."""
    if node.target in _PRODUCTS or is_view(node):
        return 0
    operands = [value for each in node.all_input_nodes if isinstance(value := of(each), torch.Tensor)]
    result = node.meta.get("val") if result is None else result
    follows = _is_elementwise(node) or node.target is _aten.clone.default
    if follows and isinstance(result, torch.Tensor):
        shape = [*map(written, result.shape)]
        alike = [value for value in operands if [*map(written, value.shape)] == shape]
        return sum(_bytes(value) for value in alike if _order(value) != _order(result))
    if str(node.target).startswith(_ANY_ORDER) or node.target in _CONVOLUTIONS and not convolves_rows(node):
        return 0
    if node.target in _CONVOLUTIONS:
        return sum(_bytes(value) for value in operands if value.dim() > 2 and not lies_in_rows(value))
    return sum(_bytes(value) for value in operands if value.dim() > 2 and not _in_rows(value))
