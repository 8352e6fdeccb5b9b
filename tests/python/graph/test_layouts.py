"""Memory orders: a replaced value keeps its strides, and a gradient has its input's."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

import cermet
import graphs
from cermet.graph import layouts
from cermet.ops import library, regions
from cermet.importing.importer import import_graph

COLUMNS = 32


def close(ours, eager):
    torch.testing.assert_close(ours, eager, rtol=2e-5, atol=2e-5)


def key_of(function, *args, orders=()) -> int:
    (region,) = library.context().match(import_graph(graphs.trace(function, *args)).text)["regions"]
    return regions.register(region["text"], orders)


# --- Orders of tensors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "order"),
    [
        (lambda: torch.empty(2, 5, 4, 8), None),
        (lambda: torch.empty(2, 5, 4, 8).transpose(1, 2), (0, 2, 1, 3)),
        (lambda: torch.empty(5, 2, 4, 8).permute(2, 1, 0, 3), (2, 1, 0, 3)),
        (lambda: torch.empty(1, 5, 4, 8).transpose(1, 2), (0, 2, 1, 3)),  # a batch of one stays outermost
        (lambda: torch.empty(2, 5, 1, 8).transpose(1, 2), None),  # one head: nothing moves
        (lambda: torch.empty(3, 2, 1).transpose(0, 1), (1, 0, 2)),
        (lambda: torch.empty(2, 4, 8).transpose(1, 2), None),  # the last dimension is not innermost
        (lambda: torch.empty(2, 5, 4, 16)[..., :8].transpose(1, 2), None),  # not dense
        (lambda: torch.empty(5, 1, 8).expand(5, 4, 8).transpose(0, 1), None),
        (lambda: torch.empty(()), None),
        (lambda: torch.empty(7), None),
        (lambda: torch.empty(0, 5, 8).transpose(0, 1), None),
    ],
)
def test_the_order_of_a_tensor_gives_its_strides(made, order):
    value = made()
    assert layouts.order_of(value) == order
    if order is not None:
        ours = layouts.strides(value.shape, order)
        assert [s for s, size in zip(ours, value.shape) if size != 1] == [
            s for s, size in zip(value.stride(), value.shape) if size != 1
        ]


@pytest.mark.parametrize(
    ("made", "order"),
    [
        (lambda: torch.empty(2, 5, 4, 16)[..., :8].transpose(1, 2), (0, 2, 1, 3)),
        (lambda: torch.empty(2, 5, 4, 16)[..., :8], None),
        (lambda: torch.empty(5, 1, 8).expand(5, 4, 8).transpose(0, 1), None),  # elements repeat
        (lambda: torch.empty(2, 4, 8).transpose(1, 2), None),
        (lambda: torch.empty(2, 5, 4, 8).transpose(1, 2), (0, 2, 1, 3)),
    ],
)
def test_the_order_like_a_tensor_is_that_of_its_strides(made, order):
    assert layouts.order_like(made()) == order


def test_every_permutation_of_symbolic_sizes():
    from torch._dynamo.source import ConstantSource
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    environment = ShapeEnv()
    mode = FakeTensorMode(shape_env=environment)
    for rows in itertools.permutations(range(3)):
        inverse = [rows.index(axis) for axis in range(3)]
        context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * 3 + [DimDynamic.STATIC])
        real = torch.empty(3, 5, 7, 8)
        fake = mode.from_tensor(real, symbolic_context=context, source=ConstantSource(f"x{rows}"))
        order = layouts.order_of(fake.permute(*inverse, 3))
        expected = (*rows, 3) if rows != (0, 1, 2) else None
        assert order == expected and layouts.order_like(fake.permute(*inverse, 3)) == expected
    assert not environment.guards


# --- Launches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(2, 5, 4), (1, 5, 4), (2, 1, 4), (2, 5, 1), (0, 5, 4)])
def test_a_launch_writes_its_outputs_in_their_orders(shape, device):
    gate, up = torch.randn(2, *shape, COLUMNS, device=device)
    for rows in itertools.permutations(range(3)):
        order = (*rows, 3)
        key = key_of(graphs.glu, *torch.randn(2, 2, 3, 4, COLUMNS), orders=[order])
        (ours,) = regions.launch(key, [gate, up])
        close(ours, graphs.glu(gate, up))
        assert list(ours.stride()) == layouts.strides(shape + (COLUMNS,), order)
        torch.library.opcheck(regions.launch_op(2, 1), (gate, up, key))


def test_keys_tell_orders_apart_and_row_major_is_none():
    args = torch.randn(2, 2, 3, 4, COLUMNS)
    plain = key_of(graphs.glu, *args)
    assert plain == key_of(graphs.glu, *args, orders=[None])
    keys = {key_of(graphs.glu, *args, orders=[(*rows, 3)]) for rows in itertools.permutations(range(3))}
    assert len(keys | {plain}) == 7  # the identity in words is not the identity in silence, and never asked for


def test_an_order_that_a_plan_cannot_write_is_known():
    plan = {
        "values": [
            {"kind": "output", "dims": ["a", "b", 8]},
            {"kind": "output", "dims": ["a", "b", 8], "together": [[0, 1]]},
            {"kind": "output", "dims": ["a", 1, "b", 8], "together": [[0, 2]]},
        ]
    }
    assert layouts.writable(plan, [(1, 0, 2), None, (1, 0, 2, 3)]) == [True, True, True]
    assert layouts.writable(plan, [None, (1, 0, 2), (2, 1, 0, 3)]) == [True, False, False]


# --- Through the backend ---------------------------------------------------------------------------------------------


def transposed_norm(x, weight):
    return graphs.rms_norm(x.transpose(1, 2), weight)


@pytest.mark.parametrize("remainder", ["eager", "aot", "inductor"])
def test_a_replaced_value_keeps_permuted_strides(remainder, device):
    x = torch.randn(2, 5, 4, COLUMNS, device=device, requires_grad=True)
    weight = torch.randn(COLUMNS, device=device, requires_grad=True)
    before = cermet.counters()
    ours = graphs.compiled(transposed_norm, remainder)(x, weight)
    eager = transposed_norm(x, weight)
    assert ours.stride() == eager.stride() == (640, 32, 128, 1)
    close(ours, eager)
    cotangent = torch.randn(2, 4, 5, COLUMNS, device=device)
    close(torch.autograd.grad(ours, (x, weight), cotangent), torch.autograd.grad(eager, (x, weight), cotangent))
    after = cermet.counters()
    assert after["regions"] == before["regions"] + 1 and after["late_gradients"] == before["late_gradients"]


@pytest.mark.parametrize("remainder", ["eager", "aot"])
def test_symbolic_sizes_keep_permuted_strides(remainder):
    call = torch.compile(
        transposed_norm, backend="cermet", fullgraph=True, options={"remainder": remainder, "strict": True}
    )
    weight = torch.randn(COLUMNS)
    before = cermet.counters()["regions"]
    for rows in ((2, 5, 4), (3, 7, 4), (4, 6, 4), (5, 9, 4)):
        x = torch.randn(*rows, COLUMNS, requires_grad=True)
        ours, eager = call(x, weight), transposed_norm(x, weight)
        assert ours.stride() == eager.stride()
        close(ours, eager)
        close(torch.autograd.grad(ours.sum(), x), torch.autograd.grad(eager.sum(), x))
    assert cermet.counters()["regions"] == before + 2  # once as numbers, once as symbols


def test_a_gradient_has_the_order_of_its_input():
    x = torch.randn(2, 5, 4, COLUMNS).transpose(1, 2).requires_grad_()
    weight = torch.randn(COLUMNS)
    key = key_of(graphs.rms_norm, torch.randn(2, 4, 5, COLUMNS), weight)
    y = regions.region_op(2, 1)(x, weight, key)
    (ours,) = torch.autograd.grad(y.sum(), x)
    close(ours, torch.autograd.grad(graphs.rms_norm(x, weight).sum(), x)[0])
    assert ours.stride() == x.stride() and y.is_contiguous()


def test_a_gradient_of_what_is_not_dense_is_dense_in_its_order():
    x = torch.randn(2, 5, 4, 2 * COLUMNS)[..., :COLUMNS].transpose(1, 2).detach().requires_grad_()
    key = key_of(graphs.glu, *torch.randn(2, 2, 4, 5, COLUMNS))
    up = torch.randn(1, 1, 5, COLUMNS).expand(2, 4, 5, COLUMNS).detach().requires_grad_()
    ours = torch.autograd.grad(regions.region_op(2, 1)(x, up, key).sum(), (x, up))
    close(ours, torch.autograd.grad(graphs.glu(x, up).sum(), (x, up)))
    assert ours[0].stride() == (640, 32, 128, 1) and ours[1].is_contiguous()


def test_a_last_dimension_that_is_not_innermost_is_declined():
    def function(gate, up):
        return torch.nn.functional.silu(gate.transpose(1, 2)) * up.transpose(1, 2)

    gate, up = torch.randn(2, 2, 6, COLUMNS)
    module = graphs.trace(function, gate, up)
    decision = graphs.decided(module)
    assert decision.regions == [] and any("has strides" in miss.condition for miss in decision.near_misses)
    torch.testing.assert_close(graphs.compiled(function)(gate, up), function(gate, up), rtol=0, atol=0)


# --- Copies of what is replaced --------------------------------------------------------------------------------------


@pytest.mark.parametrize("remainder", ["eager", "aot", "inductor"])
@pytest.mark.parametrize(
    "copy",
    [
        lambda y, x: y.contiguous(),
        lambda y, x: y.clone(memory_format=torch.contiguous_format),
        lambda y, x: y.clone(),
        lambda y, x: torch.cat([y, x.transpose(1, 2)[..., COLUMNS:]], dim=-1),  # as a rotation of whole heads joins
    ],
    ids=["contiguous", "clone", "clone-as-it-is", "cat-with-nothing"],
)
def test_a_copy_of_a_result_is_written_by_the_region(copy, remainder, device):
    def function(x, weight):
        return copy(transposed_norm(x, weight), x)

    x = torch.randn(2, 5, 4, COLUMNS, device=device, requires_grad=True)
    weight = torch.randn(COLUMNS, device=device, requires_grad=True)
    module = graphs.trace(function, x, weight)
    (region,) = graphs.decided(module).regions
    assert region.results[0].target in ("contiguous", "clone", torch.cat)
    ours, eager = graphs.compiled(function, remainder)(x, weight), function(x, weight)
    assert ours.stride() == eager.stride()
    close(ours, eager)
    close(torch.autograd.grad(ours.sum(), (x, weight)), torch.autograd.grad(eager.sum(), (x, weight)))


@pytest.mark.parametrize(
    "function",
    [
        lambda y: (y, y.clone()),
        lambda y: y.clone() + y.exp(),
        lambda y: y.to(torch.float64),
        lambda y: torch.cat([y, y[..., :1]], dim=-1),
        lambda y: y.transpose(1, 2).contiguous(),
    ],
    ids=["returned", "read-twice", "another-type", "joined", "a-view-first"],
)
def test_what_is_no_copy_of_the_whole_alone_stays(function):
    def call(x, weight):
        return function(transposed_norm(x, weight))

    x, weight = torch.randn(2, 5, 4, COLUMNS), torch.randn(COLUMNS)
    before = cermet.counters()["regions"]
    ours, eager = graphs.compiled(call, "aot")(x, weight), call(x, weight)
    assert cermet.counters()["regions"] == before + 1
    torch.testing.assert_close(ours, eager, rtol=2e-5, atol=2e-5)


def test_a_copy_that_the_kernels_cannot_write_stays():
    """The region then writes what it would have written without it."""

    def function(x, weight):
        return graphs.rms_norm(x, weight).clone(memory_format=torch.channels_last)

    x, weight = torch.randn(2, 5, 4, COLUMNS), torch.randn(COLUMNS)
    (region,) = graphs.decided(graphs.trace(function, x, weight)).regions
    assert region.results[0].target != "clone"
    ours, eager = graphs.compiled(function, "aot")(x, weight), function(x, weight)
    assert ours.stride() == eager.stride()
    close(ours, eager)


def test_a_copy_in_another_mode_stays():
    def function(x, weight):
        y = transposed_norm(x, weight)
        with torch.no_grad():
            return y.clone()

    x, weight = torch.randn(2, 5, 4, COLUMNS, requires_grad=True), torch.randn(COLUMNS)
    (region,) = graphs.decided(graphs.trace(function, x, weight)).regions
    assert region.results[0].target != "clone"
    close(graphs.compiled(function, "aot")(x, weight), function(x, weight))
