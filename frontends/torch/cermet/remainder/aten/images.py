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

import operator
from collections.abc import Iterator, Sequence
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
from .rewriting import is_drawn, is_pointwise

_aten = torch.ops.aten
_DEVICES = frozenset({"cuda"})
_HALVES = (torch.bfloat16, torch.float16)
CONVOLUTION, CONVOLUTION_BACKWARD = _aten.convolution.default, _aten.convolution_backward.default
RESHAPES = {_aten.view.default, _aten._unsafe_view.default, _aten.reshape.default}
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
OF_IMAGES: dict[Any, tuple[Sequence[int], Sequence[int]]] = {
    CONVOLUTION: ((0,), (0,)),
    CONVOLUTION_BACKWARD: ((0, 1), (0,)),
    _aten._native_batch_norm_legit_functional.default: ((0,), (0,)),
    _aten._native_batch_norm_legit.no_stats: ((0,), (0,)),
    _aten._native_batch_norm_legit_no_training.default: ((0,), (0,)),
    _aten.native_batch_norm_backward.default: ((0, 1), (0,)),
    _aten.max_pool2d_with_indices.default: ((0,), (0, 1)),
    _aten.max_pool2d_with_indices_backward.default: ((0, 1, 7), (0,)),
    _aten.avg_pool2d.default: ((0,), (0,)),
    _aten.avg_pool2d_backward.default: ((0, 1), (0,)),
}


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


def is_image(value: Any) -> bool:
    return _is_plain(value) and value.dim() >= 3 and isinstance(value.shape[1], int)


def convolves_rows(node: fx.Node) -> bool:
    """Whether a convolution, or its gradient, is one that cuDNN has for rows, and no slower."""
    backward = node.target is CONVOLUTION_BACKWARD
    x = example(node.args[backward])
    values = map(example, node.args[: backward + 2])
    if not all(_is_plain(each) and each.dim() == 4 and each.dtype == x.dtype for each in values):
        return False
    if x.device.type not in _DEVICES or not torch.backends.cudnn.enabled or not isinstance(x.shape[1], int):
        return False
    # In f32 some planes are multiplied exactly, and rows in TF32.
    return x.dtype in _HALVES or x.dtype == torch.float32 and lies_in_rows(x)


def wants_planes(node: fx.Node) -> bool:
    """Whether the gradient of a weight in planes is found faster of such: of groups of several channels."""
    *_, groups, wanted = node.args
    return wanted[1] and 1 < groups < example(node.args[1]).shape[1] and lies_in_planes(example(node.args[2]))


def _is_elementwise(node: fx.Node) -> bool:
    """Whether a call gives the same elements of what it is given in any order; numbers that it draws are others."""
    is_known = node.target in _ELEMENTWISE or is_pointwise(node)
    return is_known and not is_drawn(node) and isinstance(example(node), torch.Tensor)


def is_planes_mean(node: fx.Node) -> bool:
    """Whether a call sums an image's planes, or takes their means."""
    if node.target not in _MEANS or not node.args[1]:
        return False
    rank = example(node.args[0]).dim()
    return sorted(dim % rank for dim in node.args[1]) == [*range(2, rank)]


def _repeats_places(node: fx.Node) -> bool:
    """Whether a number for each channel is repeated for each place of an image."""
    if node.target is not _aten.expand.default or not is_image(example(node)):
        return False
    source = example(node.args[0])
    return source.dim() == example(node).dim() and all(written(size) == "1" for size in source.shape[2:])


def _merges_places(node: fx.Node) -> bool:
    """Whether a reshape makes one dimension of an image's places, or several of one."""
    old, new = example(node.args[0]).shape, example(node).shape
    return min(len(old), len(new)) > 2 and [*map(written, old[:2])] == [*map(written, new[:2])]


def gives_rows(node: fx.Node) -> bool:
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


class Plan:
    """Which values lie in rows, where each convolution that wants them gets them."""

    def __init__(self, graph: fx.Graph) -> None:
        self.rows: set[fx.Node] = set()  # images
        self.calls: set[fx.Node] = set()  # on rows
        self.convolutions: list[fx.Node] = []
        self._graph = graph
        if any(graph.find_nodes(op="call_function", target=each) for each in (CONVOLUTION, CONVOLUTION_BACKWARD)):
            for node in graph.nodes:
                if node.op == "call_function":
                    self._see(node)

    def _see(self, node: fx.Node) -> None:
        results = self._results(node)
        if results is None:
            return
        self.calls.add(node)
        if node.target in (CONVOLUTION, CONVOLUTION_BACKWARD):
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
        if node.target in (CONVOLUTION, CONVOLUTION_BACKWARD):
            return OF_IMAGES[node.target][1] if convolves_rows(node) and self._has_only_items(node) else None
        if _repeats_places(node):
            return (0,)
        if not any(each in self.rows for each in tensor_nodes((node.args, node.kwargs))):
            is_turned = node.target is _aten.clone.default and node.args[0].op == "call_function"
            source = node.args[0].args[0] if is_turned and _turns_to_rows(node.args[0]) else None
            return () if source in self.rows and gives_rows(node) else None
        if node.target in OF_IMAGES:
            operands, results = OF_IMAGES[node.target]
            images = all(is_image(example(node.args[at])) for at in operands)
            return results if images and self._has_only_items(node) else None
        if regions.launched(node) is not None:
            images = [index for index, value in enumerate(examples(node)) if value.dim() > 2]
            return images if self._has_only_items(node) and turned(node) is not None else None
        if node.target in RESHAPES:
            return (0,) if node.args[0] in self.rows and _merges_places(node) else None
        if node.target in (_aten.permute.default, _aten.transpose.int):
            return () if _turns_to_rows(node) and node.users and all(map(gives_rows, node.users)) else None
        if is_planes_mean(node):
            return ()
        if not is_image(example(node)):
            return None
        if _is_elementwise(node):
            return (0,) if self._is_of_its_sizes(node) else None
        if _is_padded_around(node) or node.target is _aten.slice.Tensor:
            return (0,)
        if node.target is _aten.cat.default and node.args[1:] in ((1,), (1 - example(node).dim(),)):
            return (0,) if all(map(is_image, map(example, node.args[0]))) else None
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
            if node.target is CONVOLUTION_BACKWARD and wants_planes(node):
                yield from (each for each in node.args[:2] if lies_in_rows(example(each)) or each in self.rows)
            elif node.target is CONVOLUTION_BACKWARD and not lies_in_rows(example(node.args[2])):
                yield node.args[2]  # its gradient is turned back
        for node in self.rows:
            if not lies_in_rows(example(node)) and any(user not in self.calls for user in node.users):
                yield node

    def images(self, node: fx.Node) -> list[fx.Node]:
        """What a call on rows reads that must lie in rows."""
        if node.target in OF_IMAGES:
            return [node.args[at] for at in OF_IMAGES[node.target][0]]
        if node.target is operator.getitem or node.target in _VIEWS:
            return []
        return [each for each in tensor_nodes((node.args, node.kwargs)) if is_image(example(each))]


def _bytes(node: fx.Node) -> int:
    return size_of(example(node), judged)


# --- Launches --------------------------------------------------------------------------------------------------------


def turned(node: fx.Node) -> int | None:
    """The key of what computes a launch's results of the rows of its images, as rows; None where nothing tells."""
    *operands, key = node.args
    images = [each for each in (*map(example, operands), *examples(node)) if each.dim() > 2]
    ranks = {each.dim() for each in images}
    if len(ranks) != 1 or not all(map(is_image, images)):
        return None
    order = in_rows(ranks.pop())
    try:
        return regions.register(slices.turned(regions.text(key), order, images[-1].shape[1]))
    except Error:
        return None
