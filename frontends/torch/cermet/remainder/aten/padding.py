"""Zeros around an image that a convolution reads are the convolution's own padding: no image with them is written,
forward or backward.

What symbols pad is traced as if it were padded: the result lies in rows. Where they are not above zero when it runs, as
in the gradient of a pad, ATen cuts instead, and copies what is left in the order in which it lies.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
import torch.fx as fx

from ...graph.nodes import example
from ...graph.traffic import hint
from .rewriting import Rewriting

_aten = torch.ops.aten
_FORWARD, _BACKWARD, _PAD = _aten.convolution.default, _aten.convolution_backward.default, _aten.constant_pad_nd.default
_PADDING = 4  # which of a convolution's arguments that is; of its gradient's three further


def settle(graph: fx.Graph) -> int:
    """Copies what symbols pad into rows, in place, where it lies otherwise and the result does not; returns how many."""
    rewriting = Rewriting(graph)
    for node in graph.find_nodes(op="call_function", target=_PAD):
        known = all(isinstance(each, int) for each in node.args[1])
        if known or _in_rows(example(node.args[0])) or not _in_rows(example(node)):
            continue
        with graph.inserting_before(node):
            keywords = {"memory_format": torch.contiguous_format}
            rows = rewriting.call(node.args[0], _aten.clone.default, node.args[0], **keywords)
        node.update_arg(0, rows)
        rewriting.times += 1
    return rewriting.times


def _in_rows(value: torch.Tensor) -> bool:
    """Whether it lay so when it was traced: symbolic strides are written with bounds that sizes are not."""
    expected = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride()), strict=True):
        if hint(size) != 1 and hint(stride) != expected:
            return False
        expected *= hint(size)
    return True


def absorb(graph: fx.Graph) -> int:
    """In place, in a functional graph; returns how many convolutions pad by themselves."""
    rewriting = Rewriting(graph)
    for node in list(graph.nodes):
        if node.target not in (_FORWARD, _BACKWARD):
            continue
        backward = node.target is _BACKWARD
        pad, transposed = node.args[backward], node.args[6 + backward]
        around = _around(pad) if not transposed else None
        if around is None or backward and not _is_cut(node, around):
            continue
        at = _PADDING + backward
        padding = list(node.args[at])
        padding = padding * len(around) if len(padding) == 1 else padding
        arguments = list(node.args)
        arguments[backward], arguments[at] = pad.args[0], [each + more for each, more in zip(padding, around)]
        with graph.inserting_before(node):
            made = rewriting.call(node, node.target, *arguments, **node.kwargs)
            if backward:
                _put(rewriting, node, made)
            else:
                rewriting.replace(node, made)
        rewriting.idle.update((node, *node.users))
    rewriting.erase_dead()
    return rewriting.times


def _put(rewriting: Rewriting, node: fx.Node, made: fx.Node) -> None:
    """The gradients of a convolution: of an image in the place of what was cut from a padded one's."""
    for item in [user for user in node.users if user.meta.get("val") is not None]:
        value = rewriting.call(node, operator.getitem, made, item.args[1])
        for each in [item] if item.args[1] else list(item.users):
            rewriting.replace(each, value)


def _around(pad: fx.Node) -> list[int] | None:
    """How many zeros a call puts on both sides of each dimension of places; None for any other call."""
    if pad.target is not _PAD or pad.kwargs or any(pad.args[2:]):
        return None
    rank, sides = pad.meta["val"].dim() - 2, pad.args[1]
    if len(sides) % 2 or len(sides) > 2 * rank or not all(isinstance(side, int) and side >= 0 for side in sides):
        return None
    pairs = [*zip(sides[::2], sides[1::2])]
    if any(begin != end for begin, end in pairs):
        return None
    return [0] * (rank - len(pairs)) + [begin for begin, _ in reversed(pairs)]


def _is_cut(node: fx.Node, around: Sequence[int]) -> bool:
    """Whether all that reads the gradient of a padded image takes the image's from it."""
    readers = [user for item in node.users if item.args[1] == 0 for user in item.users]
    sides = [-side for side in reversed(around) for _ in range(2)]
    return all(
        user.target is _PAD and _trailing(list(user.args[1])) == _trailing(sides) and user.op == "call_function"
        for user in readers
    )


def _trailing(sides: list[int]) -> list[int]:
    """Without the dimensions outside, on which nothing is put."""
    while sides and not sides[-1]:
        sides.pop()
    return sides
