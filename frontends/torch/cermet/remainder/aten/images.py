"""Images lie in rows of channels, and not in planes, where convolutions are to read and write them.

cuDNN multiplies rows of channels on tensor cores: given planes, it turns what it reads and what it gives, two copies
of each image around each convolution; and a convolution of each channel by itself, which needs no product, takes four
times as long in planes. A program that lays its images in planes, as torch does by default, is given rows all along:
from the first convolution to the last, through what stands between them, forward and backward. Each call on images
becomes one on their rows [batch, ..., channels], or, of what ATen has for images alone, on a view of those that has
the program's sizes. Whoever else reads an image gets it in planes.

Only where that copies fewer bytes than the convolutions would.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._subclasses.fake_tensor import FakeTensor

from ...errors import Error
from ...graph.layouts import lies, written
from ...graph.memory import wrapped
from ...graph.nodes import example, examples, tensor_nodes
from ...graph.traffic import judged, size_of
from ...ops import regions, slices
from .rewriting import Rewriting, way_back

_aten = torch.ops.aten
_DEVICES = frozenset({"cuda"})
_HALVES = (torch.bfloat16, torch.float16)
_CONVOLUTION, _CONVOLUTION_BACKWARD = _aten.convolution.default, _aten.convolution_backward.default
_RESHAPES = {_aten.view.default, _aten._unsafe_view.default, _aten.reshape.default}
# Elementwise, though torch does not say so.
_ELEMENTWISE = {
    _aten.clone.default, _aten._to_copy.default, _aten.detach.default, _aten.alias.default, _aten.empty_like.default,
    _aten.full_like.default, _aten.zeros_like.default, _aten.ones_like.default, _aten.fill.Scalar,
    _aten.hardswish.default, _aten.hardtanh_backward.default, _aten.hardswish_backward.default,
    _aten.hardsigmoid_backward.default, _aten.leaky_relu_backward.default, _aten.elu_backward.default,
    _aten.mish_backward.default, _aten.softplus_backward.default, _aten.log_sigmoid_backward.default,
    _aten.hardshrink_backward.default, _aten.softshrink_backward.default,
}  # fmt: skip
_VIEWS = {_aten.permute.default, _aten.transpose.int, _aten.expand.default, _aten.slice.Tensor}
_MEANS = {_aten.mean.dim, _aten.sum.dim_IntList}
# Calls on images of any order, which give what they give in that of what they read: which of their operands, and of
# their results, are images.
_OF_IMAGES: dict[Any, tuple[Sequence[int], Sequence[int]]] = {
    _CONVOLUTION: ((0,), (0,)),
    _CONVOLUTION_BACKWARD: ((0, 1), (0,)),
    _aten._native_batch_norm_legit_functional.default: ((0,), (0,)),
    _aten._native_batch_norm_legit.no_stats: ((0,), (0,)),
    _aten._native_batch_norm_legit_no_training.default: ((0,), (0,)),
    _aten.native_batch_norm_backward.default: ((0, 1), (0,)),
    _aten.max_pool2d_with_indices.default: ((0,), (0, 1)),
    _aten.max_pool2d_with_indices_backward.default: ((0, 1, 7), (0,)),
    _aten.avg_pool2d.default: ((0,), (0,)),
    _aten.avg_pool2d_backward.default: ((0, 1), (0,)),
}


def lay(graph: fx.Graph, launches: set[int]) -> int:
    """In place, in a functional graph; returns how many convolutions are given rows. The keys of what is launched in the
    place of other launches are put into `launches`."""
    plan = _Plan(graph)
    if not plan.gains():
        return 0
    _Writing(graph, plan, launches).run()
    return len(plan.convolutions)


# --- What lies how ---------------------------------------------------------------------------------------------------


def in_rows(rank: int) -> list[int]:
    """The order of an image's dimensions in its rows."""
    return [0, *range(2, rank), 1]


def in_planes(rank: int) -> list[int]:
    """The order of the dimensions of rows in their image."""
    return [0, rank - 1, *range(1, rank - 1)]


def lies_in_rows(value: torch.Tensor) -> bool:
    """Whether an image's channels lie beside one another in memory, and nothing between its rows."""
    return lies(value, in_rows(value.dim()))


def lies_in_planes(value: torch.Tensor) -> bool:
    """Whether a tensor is row-major."""
    return lies(value, range(value.dim()))


def _is_plain(value: Any) -> bool:
    return isinstance(value, FakeTensor) and not wrapped(value) and value.layout is torch.strided


def _is_image(value: Any) -> bool:
    return _is_plain(value) and value.dim() >= 3 and isinstance(value.shape[1], int)


def convolves_rows(node: fx.Node) -> bool:
    """Whether a convolution, or its gradient, is one that cuDNN has for rows, and no slower."""
    backward = node.target is _CONVOLUTION_BACKWARD
    x = example(node.args[backward])
    values = map(example, node.args[: backward + 2])
    if not all(_is_plain(each) and each.dim() == 4 and each.dtype == x.dtype for each in values):
        return False
    if x.device.type not in _DEVICES or not torch.backends.cudnn.enabled or not isinstance(x.shape[1], int):
        return False
    # In f32 some planes are multiplied exactly, and rows in TF32.
    return x.dtype in _HALVES or x.dtype == torch.float32 and lies_in_rows(x)


def _wants_planes(node: fx.Node) -> bool:
    """Whether the gradient of a weight in planes is found faster of such: of groups of several channels."""
    *_, groups, wanted = node.args
    return wanted[1] and 1 < groups < example(node.args[1]).shape[1] and lies_in_planes(example(node.args[2]))


def _is_elementwise(node: fx.Node) -> bool:
    """Whether a call gives the same elements of what it is given in any order; numbers that it draws are others."""
    if not isinstance(node.target, torch._ops.OpOverload) or node.target._schema.is_mutable:
        return False
    tags = node.target.tags
    is_known = node.target in _ELEMENTWISE or torch.Tag.pointwise in tags
    return is_known and torch.Tag.nondeterministic_seeded not in tags and isinstance(example(node), torch.Tensor)


def _is_planes_mean(node: fx.Node) -> bool:
    """Whether a call sums an image's planes, or takes their means."""
    if node.target not in _MEANS or not node.args[1]:
        return False
    rank = example(node.args[0]).dim()
    return sorted(dim % rank for dim in node.args[1]) == [*range(2, rank)]


def _repeats_places(node: fx.Node) -> bool:
    """Whether a number for each channel is repeated for each place of an image."""
    if node.target is not _aten.expand.default or not _is_image(example(node)):
        return False
    source = example(node.args[0])
    return source.dim() == example(node).dim() and all(written(size) == "1" for size in source.shape[2:])


def _merges_places(node: fx.Node) -> bool:
    """Whether a reshape makes one dimension of an image's places, or several of one."""
    old, new = example(node.args[0]).shape, example(node).shape
    return min(len(old), len(new)) > 2 and [*map(written, old[:2])] == [*map(written, new[:2])]


def _gives_rows(node: fx.Node) -> bool:
    """Whether a copy of a turned image is its rows."""
    if node.target is not _aten.clone.default or node.kwargs.get("memory_format") is not torch.contiguous_format:
        return False
    return _turns_to_rows(node.args[0])


def _turns_to_rows(node: fx.Node) -> bool:
    rank = example(node).dim()
    if node.target is _aten.permute.default:
        return [dim % rank for dim in node.args[1]] == in_rows(rank)
    return node.target is _aten.transpose.int and rank == 3 and sorted(dim % rank for dim in node.args[1:]) == [1, 2]


def _is_padded_around(node: fx.Node) -> bool:
    return node.target is _aten.constant_pad_nd.default and len(node.args[1]) <= 2 * (example(node).dim() - 2)


class _Plan:
    """Which values lie in rows, where each convolution that wants them gets them."""

    def __init__(self, graph: fx.Graph) -> None:
        self.rows: set[fx.Node] = set()  # images
        self.calls: set[fx.Node] = set()  # on rows
        self.convolutions: list[fx.Node] = []
        self._graph = graph
        if any(graph.find_nodes(op="call_function", target=each) for each in (_CONVOLUTION, _CONVOLUTION_BACKWARD)):
            for node in graph.nodes:
                if node.op == "call_function":
                    self._see(node)

    def _see(self, node: fx.Node) -> None:
        results = self._results(node)
        if results is None:
            return
        self.calls.add(node)
        if node.target in (_CONVOLUTION, _CONVOLUTION_BACKWARD):
            self.convolutions.append(node)
        value = node.meta.get("val")
        if isinstance(value, (tuple, list)):
            items = [user for user in node.users if user.target is operator.getitem]
            self.calls.update(items)
            self.rows.update(item for item in items if item.args[1] in results and example(item) is not None)
        elif results:
            self.rows.add(node)

    def _results(self, node: fx.Node) -> Sequence[int] | None:
        """Which of a call's results are images in rows; None for one that is not given rows."""
        if node.target in (_CONVOLUTION, _CONVOLUTION_BACKWARD):
            return _OF_IMAGES[node.target][1] if convolves_rows(node) and self._has_only_items(node) else None
        if _repeats_places(node):
            return (0,)
        if not any(each in self.rows for each in tensor_nodes((node.args, node.kwargs))):
            is_turned = node.target is _aten.clone.default and node.args[0].op == "call_function"
            source = node.args[0].args[0] if is_turned and _turns_to_rows(node.args[0]) else None
            return () if source in self.rows and _gives_rows(node) else None
        if node.target in _OF_IMAGES:
            operands, results = _OF_IMAGES[node.target]
            images = all(_is_image(example(node.args[at])) for at in operands)
            return results if images and self._has_only_items(node) else None
        if regions.launched(node) is not None:
            images = [index for index, value in enumerate(examples(node)) if value.dim() > 2]
            return images if self._has_only_items(node) and turned(node) is not None else None
        if node.target in _RESHAPES:
            return (0,) if node.args[0] in self.rows and _merges_places(node) else None
        if node.target in (_aten.permute.default, _aten.transpose.int):
            return () if _turns_to_rows(node) and node.users and all(map(_gives_rows, node.users)) else None
        if _is_planes_mean(node):
            return ()
        if not _is_image(example(node)):
            return None
        if _is_elementwise(node):
            return (0,) if self._is_of_its_sizes(node) else None
        if _is_padded_around(node) or node.target is _aten.slice.Tensor:
            return (0,)
        if node.target is _aten.cat.default and node.args[1:] in ((1,), (1 - example(node).dim(),)):
            return (0,) if all(map(_is_image, map(example, node.args[0]))) else None
        return None

    def _has_only_items(self, node: fx.Node) -> bool:
        """Whether each result is read by itself."""
        several = isinstance(node.meta.get("val"), (tuple, list))
        return not several or all(user.target is operator.getitem for user in node.users)

    def _is_of_its_sizes(self, node: fx.Node) -> bool:
        """Whether a call's result has the sizes of an image that lies in rows, and no other is larger."""
        sizes = [*map(written, example(node).shape)]
        operands = [each for each in tensor_nodes((node.args, node.kwargs)) if each in self.rows]
        return any([*map(written, example(each).shape)] == sizes for each in operands)

    def gains(self) -> bool:
        """Whether fewer bytes are copied than convolutions would turn, or no more where a program has rows itself."""
        copied = sum(map(_bytes, dict.fromkeys(self._copied())))
        images = [*self._turned_by_convolutions()]
        turned = sum(_bytes(each) for each in images if not lies_in_rows(example(each)))
        has_rows = any(lies_in_rows(example(each)) for each in images)
        return turned > copied or has_rows and turned == copied

    def _turned_by_convolutions(self) -> Iterator[fx.Node]:
        for node in self.convolutions:
            yield from self.images(node)
            yield from [node] if node in self.rows else self.rows.intersection(node.users)

    def _copied(self) -> Iterator[fx.Node]:
        for node in self.calls:
            for operand in self.images(node):
                if operand not in self.rows and not lies_in_rows(example(operand)):
                    yield operand
            if node.target is _CONVOLUTION_BACKWARD and _wants_planes(node):
                yield from (each for each in node.args[:2] if lies_in_rows(example(each)) or each in self.rows)
            elif node.target is _CONVOLUTION_BACKWARD and not lies_in_rows(example(node.args[2])):
                yield node.args[2]  # its gradient is turned back
        for node in self.rows:
            if not lies_in_rows(example(node)) and any(user not in self.calls for user in node.users):
                yield node

    def images(self, node: fx.Node) -> list[fx.Node]:
        """What a call on rows reads that must lie in rows."""
        if node.target in _OF_IMAGES:
            return [node.args[at] for at in _OF_IMAGES[node.target][0]]
        if node.target is operator.getitem or node.target in _VIEWS:
            return []
        return [each for each in tensor_nodes((node.args, node.kwargs)) if _is_image(example(each))]


def _are_known(places: Sequence[Any]) -> bool:
    return all(isinstance(size, int) for size in places[1:])


def _strides(value: torch.Tensor) -> list[str]:
    return [*map(written, value.stride())]


def _bytes(node: fx.Node) -> int:
    return size_of(example(node), judged)


def _lay_like_cudnn(convolution: fx.Node) -> None:
    """What is given rows gives rows, the gradient of a weight too. Tracing without a GPU says otherwise."""

    def in_rows_of_its_own(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dim() != 4:
            return value
        with value.fake_mode:
            return value.to(memory_format=torch.channels_last)

    convolution.meta["val"] = torch.utils._pytree.tree_map(in_rows_of_its_own, convolution.meta["val"])


# --- Launches --------------------------------------------------------------------------------------------------------


def turned(node: fx.Node) -> int | None:
    """The key of what computes a launch's results of the rows of its images, as rows; None where nothing tells."""
    *operands, key = node.args
    images = [each for each in (*map(example, operands), *examples(node)) if each.dim() > 2]
    ranks = {each.dim() for each in images}
    if len(ranks) != 1 or not all(map(_is_image, images)):
        return None
    order = in_rows(ranks.pop())
    try:
        return regions.register(slices.turned(regions.text(key), order, images[-1].shape[1]))
    except Error:
        return None


# --- Writing ---------------------------------------------------------------------------------------------------------


class _Writing:
    """A graph whose calls are given rows, as planned."""

    def __init__(self, graph: fx.Graph, plan: _Plan, launches: set[int]) -> None:
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
        if node.target in _OF_IMAGES:
            self._write_call(node)
        elif regions.launched(node) is not None:
            operands, key = [self._operand(each, node) for each in node.args[:-1]], turned(node)
            self._launches.add(key)
            self._put(node, self._call(node, node.target, *operands, key))
        elif node.target in _RESHAPES:
            batch, channels, *places = node.args[1]
            rows = self._of(node.args[0])
            if not lies_in_planes(example(rows)):
                rows = self._call(node, _aten.clone.default, rows, memory_format=torch.contiguous_format)
            self._rows[node] = self._call(node, _aten.view.default, rows, [batch, *places, channels])
        elif _gives_rows(node):
            self._replace(node, self._call(node, _aten.clone.default, self._of(node.args[0].args[0])))
        elif _is_planes_mean(node):
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
        for at in _OF_IMAGES[node.target][0]:
            arguments[at] = self._image(node.args[at])
        if node.target is _CONVOLUTION_BACKWARD:
            self._write_gradients(node, arguments)
            return
        if node.target is _CONVOLUTION:
            arguments[1] = self._weight(node.args[1])
        made = self._call(node, node.target, *arguments, **node.kwargs)
        if node.target is _CONVOLUTION:
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
        by_itself = _wants_planes(node)
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
        if value in self._rows or _is_image(tensor) and tensor.dim() >= rank and "0" not in _strides(tensor):
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
