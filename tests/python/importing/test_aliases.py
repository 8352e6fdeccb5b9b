"""A write makes new versions of whatever shares its memory: translated views, opaque views and elements of tuples.

Every program is executed beside its text, so that a reader of a stale version shows as a wrong number.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from executed import executed
from graphs import traced

VIEWS = {
    "slice": lambda h: h[:, 1:4],
    "step": lambda h: h[..., ::2],
    "row": lambda h: h[2],
    "transpose": lambda h: h.transpose(0, 1),
    "T": lambda h: h.T,
    "permute": lambda h: h.unsqueeze(0).permute(2, 0, 1),
    "narrow": lambda h: h.narrow(0, 1, 2),
    "select": lambda h: h.select(1, 3),
    "chunk": lambda h: h.chunk(2, -1)[1],
    "split": lambda h: torch.split(h, [1, 5], -1)[1],
    "unbind": lambda h: h.unbind(0)[1],
    "view": lambda h: h.view(2, -1),
    "contiguous": lambda h: h.contiguous(),
    "cast that is none": lambda h: h.float(),
    "movedim": lambda h: h.movedim(0, 1),
    "expand": lambda h: h[None].expand(2, 4, 6),
    "diagonal": lambda h: torch.diagonal(h),
    "dropout that is none": lambda h: F.dropout(h, 0.5, False),
}
WRITES = {
    "add_": lambda t: t.add_(1.0),
    "mul_": lambda t: t.mul_(2.0),
    "fill_": lambda t: t[..., :1].fill_(3.0),
    "copy_": lambda t: t.copy_(t * 0.5 + 1),
    "setitem": lambda t: t.__setitem__((Ellipsis, slice(0, 1)), -1.0),
    "masked_fill_": lambda t: t.masked_fill_(t > 0, -2.0),
    "iadd": lambda t: t.__iadd__(t),
    "relu_": lambda t: F.relu(t, inplace=True),
    "out": lambda t: torch.add(t, 1.0, out=t),
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_write_to_the_base_is_seen_through_the_view(view):
    def function(x):
        h = x * 2.0
        v = VIEWS[view](h)
        results = [v + 1.0]
        for write in WRITES.values():
            write(h)
            results += [v * 3.0, h - 1.0, VIEWS[view](h).abs()]
        return results

    executed(*traced(function, torch.randn(4, 6)))


@pytest.mark.parametrize("view", [view for view in VIEWS if view != "expand"])
def test_a_write_through_the_view_is_seen_in_the_base(view):
    def function(x):
        h = x * 2.0
        v, other = VIEWS[view](h), h.view(-1)
        results = [h.neg()]
        for name, write in WRITES.items():
            if name != "out":  # Dynamo traces it to what is contiguous alone
                write(v)
                results += [h * 3.0, v - 1.0, other.abs()]
        return results

    executed(*traced(function, torch.randn(4, 6)))


def test_a_slice_is_replaced():
    def function(x, y):
        h = x + 0.5
        left = h[..., :2]
        h[..., :2] = y
        h[:, 3] += 1.0
        h.index_put_((torch.tensor([0, 1]),), y[0, 0] * 2)
        return left * 2.0, h.sum(-1)

    executed(*traced(function, torch.randn(4, 6), torch.randn(4, 2)), exact=False)


def test_elements_of_a_tuple_that_are_read_after_a_write():
    """As no tracer writes it, but as a graph may say it: the split before the write, the getitem after it."""

    def function(x):
        h = x * 2.0
        pieces = h.chunk(3, -1)
        h.add_(1.0)
        return pieces

    module, given = traced(function, torch.randn(4, 6))
    items = [node for node in module.graph.nodes if "getitem" in node.name]
    output = next(node for node in module.graph.nodes if node.op == "output")
    for node in items:
        output.prepend(node)
    module.recompile()
    run = executed(module, given)
    assert 'effect = "write", versions' in run.imported.text


def test_a_write_to_elements_of_a_list():
    def function(x):
        h = x * 2.0
        pieces = h.unbind(0)
        torch._foreach_add_(pieces, 1.0)
        return h * 2.0, pieces[0] * pieces[2]

    executed(*traced(function, torch.randn(4, 6)))


def test_an_unknown_view_of_several():
    """Results of a call without words, which are views: `hsplit`."""

    def function(x):
        h = x * 2.0
        left, right = torch.hsplit(h, 2)
        left.mul_(3.0)
        return h + 1.0, left - 1.0, right.abs()

    executed(*traced(function, torch.randn(4, 6)))


def test_what_two_readers_of_one_element_see():
    def function(x):
        pieces = (x * 2.0).chunk(2, -1)
        first, again = pieces[0], pieces[0]
        first.add_(1.0)
        return first * again

    module, given = traced(function, torch.randn(4, 6))
    executed(module, given)
