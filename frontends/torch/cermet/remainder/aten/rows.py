"""The calls of a graph on images become calls on their rows of channels, as images.py plans it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from ...graph.layouts import written
from ...graph.nodes import example
from ...ops import regions
from .images import (
    CONVOLUTION,
    CONVOLUTION_BACKWARD,
    OF_IMAGES,
    RESHAPES,
    Plan,
    gives_rows,
    in_planes,
    in_rows,
    is_image,
    is_planes_mean,
    lies_in_planes,
    lies_in_rows,
    turned,
    wants_planes,
)
from .rewriting import Rewriting, way_back

_aten = torch.ops.aten


def lay(graph: fx.Graph, launches: set[int]) -> int:
    """In place, in a functional graph; returns how many convolutions are given rows. The keys of what is launched in
    the place of other launches are put into `launches`."""
    plan = Plan(graph)
    if not plan.gains():
        return 0
    _Writing(graph, plan, launches).run()
    return len(plan.convolutions)


def _are_known(places: Sequence[Any]) -> bool:
    return all(isinstance(size, int) for size in places[1:])


def _strides(value: torch.Tensor) -> list[str]:
    return [*map(written, value.stride())]


def _lay_like_cudnn(convolution: fx.Node) -> None:
    """What is given rows gives rows, the gradient of a weight too. Tracing without a GPU says otherwise."""

    def in_rows_of_its_own(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dim() != 4:
            return value
        with value.fake_mode:
            return value.to(memory_format=torch.channels_last)

    convolution.meta["val"] = torch.utils._pytree.tree_map(in_rows_of_its_own, convolution.meta["val"])


class _Writing:
    """A graph whose calls are given rows, as planned."""

    def __init__(self, graph: fx.Graph, plan: Plan, launches: set[int]) -> None:
        self._graph, self._plan, self._launches = graph, plan, launches
        self._rewriting = Rewriting(graph)
        self._rows: dict[fx.Node, fx.Node] = {}  # of images
        self._views: dict[fx.Node, fx.Node] = {}  # of rows, with the sizes of their images
        self._copies: dict[fx.Node, fx.Node] = {}  # of images, in planes
        self._weights: dict[fx.Node, fx.Node] = {}

    def run(self) -> None:
        old = [node for node in self._graph.nodes if node in self._plan.calls]
        for node in old:
            if node.target is not operator.getitem:
                with self._graph.inserting_before(node):
                    self._write(node)
        for node in old:
            if node in self._rows and any(user not in self._plan.calls for user in node.users):
                self._give_planes(node)
        for node in reversed(old):
            if not node.users:
                self._graph.erase_node(node)
        self._rewriting.erase_dead()

    def _call(self, like: fx.Node, target: Any, *arguments: Any, **keywords: Any) -> fx.Node:
        return self._rewriting.call(like, target, *arguments, **keywords)

    def _write(self, node: fx.Node) -> None:
        if node.target in OF_IMAGES:
            self._write_call(node)
        elif regions.launched(node) is not None:
            operands, key = [self._operand(each, node) for each in node.args[:-1]], turned(node)
            self._launches.add(key)
            self._put(node, self._call(node, node.target, *operands, key))
        elif node.target in RESHAPES:
            batch, channels, *places = node.args[1]
            rows = self._of(node.args[0])
            if not lies_in_planes(example(rows)):
                rows = self._call(node, _aten.clone.default, rows, memory_format=torch.contiguous_format)
            self._rows[node] = self._call(node, _aten.view.default, rows, [batch, *places, channels])
        elif gives_rows(node):
            self._replace(node, self._call(node, _aten.clone.default, self._of(node.args[0].args[0])))
        elif is_planes_mean(node):
            image, dims = node.args[:2]
            total = self._call(node, node.target, self._of(image), [*range(1, len(dims) + 1)], False, **node.kwargs)
            for _ in range(example(node).dim() - 2):
                total = self._call(node, _aten.unsqueeze.default, total, -1)
            self._replace(node, total)
        elif node.target is _aten.expand.default:
            rows = self._call(node, _aten.permute.default, node.args[0], in_rows(example(node).dim()))
            batch, channels, *places = node.args[1]
            self._rows[node] = self._call(node, node.target, rows, [batch, *places, channels])
        elif node.target is _aten.slice.Tensor:
            image, dim, *rest = *node.args, *(() if len(node.args) > 1 else (0,))
            dim = in_rows(example(image).dim()).index(dim % example(image).dim())
            self._rows[node] = self._call(node, node.target, self._of(image), dim, *rest)
        elif node.target is _aten.constant_pad_nd.default:
            image, pads, *value = node.args
            self._rows[node] = self._call(node, node.target, self._of(image), [0, 0, *pads], *value)
        elif node.target is _aten.cat.default:
            self._rows[node] = self._call(node, node.target, [*map(self._of, node.args[0])], example(node).dim() - 1)
        elif node.target not in (_aten.permute.default, _aten.transpose.int):
            self._write_elementwise(node)

    def _write_call(self, node: fx.Node) -> None:
        """ATen's call, on images that lie in rows."""
        arguments = list(node.args)
        for at in OF_IMAGES[node.target][0]:
            arguments[at] = self._image(node.args[at])
        if node.target is CONVOLUTION_BACKWARD:
            self._write_gradients(node, arguments)
            return
        if node.target is CONVOLUTION:
            arguments[1] = self._weight(node.args[1])
        made = self._call(node, node.target, *arguments, **node.kwargs)
        if node.target is CONVOLUTION:
            _lay_like_cudnn(made)
        self._put(node, made)

    def _write_gradients(self, node: fx.Node, arguments: list[Any]) -> None:
        """Of a convolution. A bias's is a sum, which a kernel may have beside other work."""
        of_input, of_weight, of_bias = arguments[-1]
        cotangent, weight = node.args[0], arguments[2]
        arguments[2] = self._weight(weight)
        if of_bias:
            rows = self._of(cotangent)
            total = self._call(node, _aten.sum.dim_IntList, rows, [*range(example(rows).dim() - 1)])
            self._put_item(node, 2, total)
        by_itself = wants_planes(node)
        if by_itself:
            planes = [self._planes(each) for each in node.args[:2]]
            mask = [False, True, False]
            made = self._call(node, node.target, *planes, weight, *arguments[3:-1], mask)
            self._put_item(node, 1, self._call(node, operator.getitem, made, 1))
        mask = [of_input, of_weight and not by_itself, False]
        if any(mask):
            made = self._call(node, node.target, *arguments[:-1], mask)
            _lay_like_cudnn(made)
            for index in (index for index in (0, 1) if mask[index]):
                self._put_item(node, index, self._call(node, operator.getitem, made, index))

    def _put_item(self, node: fx.Node, index: int, value: fx.Node) -> None:
        for item in (user for user in node.users if user.args[1] == index):
            self._put_one(item, value)

    def _write_elementwise(self, node: fx.Node) -> None:
        def of(value: fx.Node) -> fx.Node:
            return self._operand(value, node, example(node).dim())

        given = {name: value for name, value in node.kwargs.items() if name != "memory_format"}
        arguments, keywords = fx.map_arg((node.args, given), of)
        self._rows[node] = self._call(node, node.target, *arguments, **keywords)

    def _put(self, node: fx.Node, made: fx.Node) -> None:
        """Puts a call's results, images among them, in the place of another's."""
        if isinstance(example(node), torch.Tensor):
            self._put_one(node, made)
            return
        for item in list(node.users):
            self._put_one(item, self._call(item, operator.getitem, made, item.args[1]))

    def _put_one(self, node: fx.Node, value: fx.Node) -> None:
        if node in self._plan.rows:
            launch = value.args[0] if value.target is operator.getitem else value
            self._rows[node] = value if regions.launched(launch) is not None else self._in_rows(value)
        else:
            self._replace(node, value)

    def _replace(self, node: fx.Node, value: fx.Node) -> None:
        """By a value that lies as it does."""
        node.replace_all_uses_with(self._laid(value, node))

    def _laid(self, value: fx.Node, node: fx.Node) -> fx.Node:
        """A value laid as another of its sizes."""
        like, found = example(node), example(value)
        if not isinstance(found, torch.Tensor) or _strides(found) == _strides(like):
            return value
        if all(isinstance(size, int) for size in like.shape) and found.is_contiguous() and like.is_contiguous():
            # As another in all dimensions but those of size 1.
            return self._call(node, _aten.as_strided.default, value, [*like.shape], [*like.stride()])
        for target, arguments, keywords in way_back(like):
            value = self._call(node, target, value, *arguments, **keywords)
        return value

    def _of(self, value: fx.Node) -> fx.Node:
        """An image's rows."""
        if value not in self._rows:
            self._rows[value] = self._behind(value, lambda: self._in_rows(value))
        return self._rows[value]

    def _in_rows(self, value: fx.Node) -> fx.Node:
        like = example(value)
        if lies_in_planes(like) and not lies_in_rows(like) and _are_known(like.shape):
            return self._transposed(value, value, True)
        rows = self._call(value, _aten.permute.default, value, in_rows(like.dim()))
        if lies_in_rows(like):
            return rows
        return self._call(value, _aten.clone.default, rows, memory_format=torch.contiguous_format)

    def _planes(self, value: fx.Node) -> fx.Node:
        """An image in planes, as it is or as a copy."""
        if value not in self._copies:
            rows, like = self._of(value), example(value)
            is_kept = value not in self._plan.rows and lies_in_planes(like)
            self._copies[value] = value if is_kept else self._behind(rows, lambda: self._in_planes(value, rows))
        return self._copies[value]

    def _in_planes(self, image: fx.Node, rows: fx.Node) -> fx.Node:
        like = example(image)
        if _are_known(like.shape) and "0" not in _strides(example(rows)):
            return self._transposed(image, rows, False)
        planes = self._call(image, _aten.permute.default, rows, in_planes(like.dim()))
        return self._call(image, _aten.clone.default, planes, memory_format=torch.contiguous_format)

    def _transposed(self, image: fx.Node, value: fx.Node, to_rows: bool) -> fx.Node:
        """The rows of what lies in planes, or its planes of its rows: of each image one matrix."""
        batch, channels, *places = example(image).shape
        batch, count = batch if isinstance(batch, int) else -1, math.prod(places)
        given, sizes = (channels, count), (*places, channels)
        if not to_rows:
            given, sizes = (count, channels), (channels, *places)
        matrix = self._call(image, _aten.view.default, value, [batch, *given])
        turned = self._call(image, _aten.transpose.int, matrix, 1, 2)
        copy = self._call(image, _aten.clone.default, turned, memory_format=torch.contiguous_format)
        return self._call(image, _aten.view.default, copy, [batch, *sizes])

    def _image(self, value: fx.Node) -> fx.Node:
        """A view of an image's rows with its sizes."""
        rows = self._of(value)
        if rows not in self._views:
            order = in_planes(example(value).dim())
            self._views[rows] = self._behind(rows, lambda: self._call(value, _aten.permute.default, rows, order))
        return self._views[rows]

    def _operand(self, value: fx.Node, reader: fx.Node, rank: int = 0) -> fx.Node:
        """What an elementwise call, whose result has `rank` dimensions, reads in the place of a value."""
        tensor = example(value)
        if not isinstance(tensor, torch.Tensor) or max(tensor.dim(), rank) < 3 or not tensor.dim():
            return value
        if value in self._rows or is_image(tensor) and tensor.dim() >= rank and "0" not in _strides(tensor):
            return self._of(value)
        for _ in range(rank - tensor.dim()):
            value = self._call(reader, _aten.unsqueeze.default, value, 0)
        return self._call(reader, _aten.permute.default, value, in_rows(example(value).dim()))

    def _weight(self, weight: fx.Node) -> fx.Node:
        if lies_in_rows(example(weight)):
            return weight
        if weight not in self._weights:
            copied, keywords = _aten.clone.default, {"memory_format": torch.channels_last}
            self._weights[weight] = self._behind(weight, lambda: self._call(weight, copied, weight, **keywords))
        return self._weights[weight]

    def _behind(self, value: fx.Node, write: Callable[[], fx.Node]) -> fx.Node:
        """Writes calls behind a value, in their order."""
        after = value.next
        while after.op == "placeholder":
            after = after.next
        with self._graph.inserting_before(after):
            return write()

    def _give_planes(self, node: fx.Node) -> None:
        """Whoever else reads an image gets it as it lay."""
        rows, like = self._rows[node], example(node)

        def laid() -> fx.Node:
            return self._laid(self._call(node, _aten.permute.default, rows, in_planes(like.dim())), node)

        is_copied = lies_in_planes(like) and not lies_in_rows(like)
        copy = self._planes(node) if is_copied else self._behind(rows, laid)
        node.replace_all_uses_with(copy, delete_user_cb=lambda user: user not in self._plan.calls)
