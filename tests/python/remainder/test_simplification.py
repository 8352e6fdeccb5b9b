"""What an ATen graph does without: copies, and reshapes for a sum."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from cermet.graph import memory
from cermet.remainder.aten.simplification import drop_copies, simplify

CASES = {  # a function, and how many of its copies stay
    "between two calls": (lambda x: torch.cos(torch.sin(x).clone()), 0),
    "of a view": (lambda x: torch.cos(torch.sin(x).view(6, 4).clone()), 0),
    "in another order": (lambda x: torch.cos(torch.sin(x).t().clone(memory_format=torch.contiguous_format)), 1),
    "of an argument": (lambda x: torch.cos(x.clone()), 1),
    "returned": (lambda x: torch.sin(x).clone(), 1),
    "returned as a view": (lambda x: torch.sin(x).clone().view(6, 4), 0),
    "of what is returned": (lambda x: (y := torch.sin(x), torch.cos(y.clone())), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_copies_that_nobody_could_tell_from_what_they_copy_go(name):
    function, expected = CASES[name]
    x = torch.randn(4, 6)
    traced = make_fx(function, tracing_mode="fake")(x)
    simplify(traced.graph)
    traced.recompile()
    copies = [node for node in traced.graph.nodes if node.target is torch.ops.aten.clone.default]
    assert len(copies) == expected, traced.code
    torch.testing.assert_close(traced(x), function(x), rtol=0, atol=0)


@pytest.mark.parametrize("name", CASES)
def test_views_of_a_copy_that_went_lie_where_its_source_does(name):
    function, expected = CASES[name]
    x = torch.randn(4, 6)
    traced = make_fx(lambda x: torch.exp(function(x)[0].view(-1)[2:]), tracing_mode="fake")(x)
    true = traced(x)
    drop_copies(traced.graph)
    traced.recompile()
    for node in traced.graph.nodes:
        if node.op == "call_function":
            made = memory.shared(node.meta["val"], node.args[0].meta["val"])
            assert made == (node.target in (torch.ops.aten.view.default, torch.ops.aten.select.int,
                                            torch.ops.aten.slice.Tensor, torch.ops.aten.t.default)), node
    assert len(traced.graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default)) <= expected
    torch.testing.assert_close(traced(x), true, rtol=0, atol=0)


NOTHING = torch.zeros(0)
JOINS = {  # a function, and the calls that stay
    "made": (lambda x: torch.cat([NOTHING, torch.sin(x)], -2), ["sin"]),
    "made, and read": (lambda x: (y := torch.cat([NOTHING, torch.sin(x)]), torch.cos(y)), ["sin", "cos"]),
    "nothing of a size": (lambda x: torch.cat([torch.sin(x), x[:0]], 0), ["sin"]),
    "given": (lambda x: torch.cat([NOTHING, x]), ["clone"]),
    "returned as well": (lambda x: (y := torch.sin(x), torch.cat([NOTHING, y])), ["sin", "clone"]),
    "turned": (lambda x: torch.cat([NOTHING, torch.sin(x).t()]), ["sin", "clone"]),
    "of two": (lambda x: torch.cat([NOTHING, torch.sin(x), x]), ["sin", "cat"]),
    "padded with nothing": (lambda x: F.pad(torch.sin(x), (0, 0, 0, 0)), ["sin"]),
    "turned, and padded so": (lambda x: torch.cos(F.pad(torch.sin(x).t(), (0, 0)))[::2], ["sin", "cos"]),
    "padded on one side": (lambda x: F.pad(torch.sin(x), (0, 0, 0, 1)), ["sin", "constant_pad_nd"]),
    "of another type": (lambda x: torch.cat([NOTHING.double(), torch.sin(x)]), ["sin", "cat"]),
}


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("name", JOINS)
def test_what_nothing_is_added_to_is_itself(name, mode):
    function, expected = JOINS[name]
    x = torch.randn(4, 6)
    traced = make_fx(function, tracing_mode=mode, _allow_non_fake_inputs=True)(x)
    drop_copies(traced.graph)
    traced.graph.eliminate_dead_code()
    traced.recompile()
    targets = [node.target for node in traced.graph.nodes if node.op == "call_function"]
    calls = [str(target).split(".")[1] for target in targets]
    looked_at = ("sin", "cos", "clone", "cat", "constant_pad_nd")
    assert [each for each in calls if each in looked_at] == expected, traced.code
    mine, theirs = (each if isinstance(each, (tuple, list)) else [each] for each in (traced(x), function(x)))
    for one, other in zip(mine, theirs, strict=True):
        assert torch.equal(one, other) and one.stride() == other.stride()


@pytest.mark.parametrize(
    ("shape", "dims", "reads"),
    [
        ((15, 4), [0], "sin"),
        ((15, 4), [-2], "sin"),
        ((15, 4), [1], "view"),
        ((3, 20), [0], "view"),
        ((60,), [0], "view"),
    ],
)
@pytest.mark.parametrize("keepdim", [False, True], ids=["", "ones that a view drops"])
def test_a_sum_over_all_rows_reads_what_was_reshaped(shape, dims, reads, keepdim):
    def function(x):
        x = torch.sin(x).view(shape)
        return x.sum(dims, keepdim=True).view(x.sum(dims).shape) if keepdim else x.sum(dims)

    x = torch.randn(3, 5, 4)
    traced = make_fx(function, tracing_mode="fake")(x)
    simplify(traced.graph)
    traced.recompile()
    sums = traced.graph.find_nodes(op="call_function", target=torch.ops.aten.sum.dim_IntList)
    assert {total.args[0].name for total in sums} == {reads}, traced.code
    torch.testing.assert_close(traced(x), function(x))


def test_a_graph_without_a_backward_drops_them_too(ran):
    def call(x, w):
        return F.pad((x @ w).view(2, 6, 8), (0, 0, 0, 0)).view(12, 8) @ w

    x, w = torch.randn(12, 8), torch.randn(8, 8)
    with torch.no_grad():
        run = torch.compile(call, backend="cermet", options={"remainder": "aot", "strict": True})
        torch.testing.assert_close(run(x, w), call(x, w))
    [graph] = ran
    assert {str(node.target) for node in graph.nodes if node.op == "call_function"} == {"aten.mm.default"}


@pytest.mark.parametrize(
    ("cut", "goes"),
    [
        ((0, 5, [0, -4]), True),
        ((2, 7, [-2, -2]), True),
        ((-5, 9, [-4, 0]), True),
        ((4, 2**63 - 1, [-4, 0]), True),
        ((0, 5, [0, -3]), False),
        ((2, 7, [-2, -2, -1, 0]), False),
        ((0, 9, [0, 2], 2, 2), False),
    ],
    ids=str,
)
def test_zeros_that_are_cut_off_again_are_never_written(cut, goes):
    start, end, sides, *rest = cut

    def function(x):
        around = torch.ops.aten.slice_backward(x * 2, [3, 4, 9], 2, start, end, rest[1] if rest else 1)
        return torch.ops.aten.constant_pad_nd(around, sides).sum(0)

    x = torch.randn(3, 4, 5)
    traced = make_fx(function, tracing_mode="fake")(x)
    drop_copies(traced.graph)
    traced.graph.eliminate_dead_code()
    traced.graph.lint()
    traced.recompile()
    called = [node.target for node in traced.graph.nodes]
    assert (torch.ops.aten.slice_backward.default not in called) == goes, traced.code
    assert torch.equal(traced(x), function(x))
