"""Adapters in f32 of layers in bf16: no tensor of the layer's size is in f32, and numbers are as near to float64 as
eager's, whether products are made in f32 or of parts in bf16."""

from __future__ import annotations

import os
import sys

import pytest
import torch
import torch.nn.functional as F
import forked
from test_clusters_behind_autograd import called
from truth import EVERY_SEED, Float64, assert_none_is_far_from_eager, relative

import cermet
from cermet.graph import traffic
from cermet.ops import regions, wide_linears
from cermet.remainder import wide_products
from cermet.rematerialization import costs

HIDDEN, WIDE, RANK = 192, 320, 8
NAMES = ("x", "down", "up", "down2", "up2")


def adapted(x, weight, bias, down, up, factor=0.5):
    y = F.linear(x, weight, bias)
    y = y + F.linear(F.linear(x.to(down.dtype), down), up) * factor
    return y.to(x.dtype)


def one(x, weights, down, up, down2, up2):
    return adapted(x, weights[0], None, down, up)


def two(x, weights, down, up, down2, up2):
    """A gated unit, whose layers share an input, and a residual."""
    wide = F.silu(adapted(x, weights[0], weights[1], down, up)) * F.linear(x, weights[0])
    return x + adapted(wide, weights[2], None, down2, up2, 1.7)


def written_otherwise(x, weights, down, up, down2, up2):
    wide = x.float()
    return torch.add(torch.mul(3, F.linear(F.linear(wide, down), up)), F.linear(x, weights[0])).bfloat16()


def apart(x, weights, down, up, down2, up2):
    """The adapter's input is no cast, and its inner values are read by others."""
    inner = F.linear(x.float().tanh(), down)
    return (F.linear(x, weights[0]) + F.linear(inner, up)).to(x.dtype) * inner.sum(-1, keepdim=True).to(x.dtype)


def router(x, weights, down, up, down2, up2):
    return F.linear(x.to(torch.float32), down).softmax(-1)


PROGRAMS = [one, two, written_otherwise, apart, router]


def given(device="cpu", seed=0, rows=256, batch=2):
    torch.manual_seed(seed)
    x = torch.randn(batch, rows // batch, HIDDEN, device=device).bfloat16()
    sizes = (WIDE, HIDDEN), (WIDE,), (HIDDEN, WIDE)
    weights = [(torch.randn(size, device=device) * size[-1] ** -0.5).bfloat16() for size in sizes]
    sizes = (RANK, HIDDEN), (WIDE, RANK), (RANK, WIDE), (HIDDEN, RANK)
    return x, weights, *(torch.randn(size, device=device) * size[-1] ** -0.5 for size in sizes)


def step(call, values) -> dict[str, torch.Tensor]:
    x, weights, *adapters = values
    x, *adapters = (value.detach().clone().requires_grad_() for value in (x, *adapters))
    y = call(x, weights, *adapters)
    y.backward(torch.cos(torch.arange(y.numel(), device=y.device).view(y.shape) * 3.0).to(torch.bfloat16).to(y.dtype))
    grads = {name: value.grad for name, value in zip(NAMES, (x, *adapters)) if value.grad is not None}
    return {"y": y.detach()} | grads


def double(values):
    x, weights, *adapters = values
    return x.double(), [weight.double() for weight in weights], *(value.double() for value in adapters)


@pytest.fixture(params=["f32", "parts"])
def how(request, monkeypatch):
    """On either device; `parts` is what a GPU has."""
    monkeypatch.setattr(wide_products, "_DEVICES", {"cpu", "cuda"} if request.param == "parts" else set())
    with torch._functorch.config.patch(enable_autograd_cache=False):  # whose key knows of no such change
        yield request.param


only_in_parts = pytest.mark.parametrize("how", ["parts"], indirect=True)


def compiled(function, **options):
    torch._dynamo.reset()
    return torch.compile(function, backend="cermet", options={"remainder": "aot", "strict": True} | options)


def joined(function, values=None, **options) -> int:
    """How many layers became one call."""
    before = cermet.counters()["wide_linears"]
    step(compiled(function, **options), values or given())
    return cermet.counters()["wide_linears"] - before


def assert_as_near_as_eager(call, program, several) -> None:
    """By the rule for numbers, of several values to be given."""
    ours, eager = {}, {}
    for values in several:
        with Float64():
            truth = step(program, double(values))
        for errors, which in ((ours, call), (eager, program)):
            for name, value in step(which, values).items():
                errors.setdefault(name, []).append(relative(value, truth[name]))
    for name in eager:
        dtype = torch.bfloat16 if name in "xy" and program is not router else torch.float32
        assert_none_is_far_from_eager({name: ours[name]}, {name: eager[name]}, dtype)


@pytest.mark.parametrize("program", PROGRAMS)
def test_numbers_are_as_near_as_eagers(program, how, device):
    assert_as_near_as_eager(compiled(program), program, [given(device, seed) for seed in range(EVERY_SEED)])


@only_in_parts
def test_a_number_of_rows_without_a_fitting_divisor_leaves_a_rest(how, device):
    assert_as_near_as_eager(compiled(two), two, [given(device, seed, 254) for seed in range(EVERY_SEED)])


@pytest.mark.parametrize("symbols", [(1,), (0, 1)])
@pytest.mark.parametrize("rows", [254, 256, 334])
def test_all_lengths_are_one_graph(rows, symbols, how, device):
    """Of a symbolic number of rows, which sums are divided by: 4 are fewer than pieces."""

    def call(x, *others):
        torch._dynamo.mark_dynamic(x, symbols)
        return which(x, *others)

    which, counted = compiled(two), torch._dynamo.utils.counters["stats"]
    before = counted["unique_graphs"]
    sizes = [(rows, 2), (rows + 2, 2), (rows + 30, 2), (4, 2)] + [(348, 3)] * (0 in symbols)
    assert_as_near_as_eager(call, two, [given(device, sum(each), *each) for each in sizes])
    assert counted["unique_graphs"] - before == 1


@only_in_parts
@pytest.mark.parametrize("symbols", [(), (1,), (0, 1)])
@pytest.mark.parametrize("rows", [250, 254, 256])  # 127 rows are no piece, and divide the second
def test_nothing_of_a_layers_size_is_in_f32(rows, symbols, how, device, ran):
    values = given(device, rows=rows)
    torch._dynamo.mark_dynamic(values[0], symbols)
    call = compiled(two)
    step(lambda x, *others: call(values[0].requires_grad_() if symbols else x, *others), values)
    assert len(ran) == 2
    sizes = [
        (node.name, traffic.hint(value.numel()))
        for graph in ran
        for node in graph.nodes
        if isinstance(value := node.meta.get("val"), torch.Tensor)
        and value.dtype == torch.float32
        and "_to_copy" not in str(node.target)  # a CPU's, in the place of products with results in f32
    ]
    assert sizes and not any(size in (rows * WIDE, rows * HIDDEN) for _, size in sizes), sizes


@only_in_parts
def test_results_are_added_where_a_layers_lie(how, device, ran):
    step(compiled(two), given(device))
    assert [str(node.target) for node in ran[0].nodes].count("aten.addmm_.default") == 2
    assert "aten.addmm_.default" in called(ran[1])


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_what_a_dropout_keeps_is_in_the_layers_type(p, how, device, ran):
    """The weight is one that shows what is kept."""

    def dropping(x, weights, down, up, down2, up2):
        return F.linear(F.dropout(x.float(), p), down) + 0.0 * F.linear(x, weights[0]).sum()

    x, weights, *others = given(device)
    eye = torch.eye(64, HIDDEN, device=device)
    counted = cermet.counters()
    x, down = (value.detach().clone().requires_grad_() for value in (x, eye))
    y = compiled(dropping)(x, weights, down, *others[1:])
    cotangent = torch.randn_like(y)
    y.backward(cotangent)
    assert cermet.counters()["wide_linears"] - counted["wide_linears"] == 1
    assert cermet.counters()["dropouts"] - counted["dropouts"] == 1  # in kernels of ours, whose backward draws the same
    kept = y.detach() != 0
    whole = x.detach().float()[..., :64]
    assert abs(kept.double().mean().item() - (1 - p)) < 0.02
    assert torch.allclose(y.detach(), kept * whole / (1 - p), rtol=1e-6, atol=0)
    of_x = torch.zeros_like(x)
    of_x[..., :64] = (kept * cotangent / (1 - p)).to(x.dtype)
    assert torch.allclose(x.grad, of_x, rtol=2**-7, atol=0)
    drawn = down.grad @ torch.eye(HIDDEN, 64, device=device)  # of the columns that are seen
    expected = torch.einsum("bso,bsi->oi", cotangent.double(), (kept * whole).double()) / (1 - p)
    assert relative(drawn, expected) < 1e-6
    if how == "parts":
        wide = [node for graph in ran for node in graph.nodes if node.op == "call_function"
                and isinstance(value := node.meta.get("val"), torch.Tensor) and value.dtype == torch.float32
                and value.numel() == x.numel() and "_to_copy" not in str(node.target)]  # fmt: skip
        assert wide == []


def test_layers_are_counted(how, device):
    counts = {program: joined(program, given(device)) for program in PROGRAMS}
    assert counts == {one: 2, two: 4, written_otherwise: 2, apart: 1, router: 1}


def test_others_stay(how, device):
    def wide(x, weights, down, up, down2, up2):
        return F.linear(x.float(), weights[0].float()).to(x.dtype)

    def odd(x, weights, down, up, down2, up2):
        return adapted(x, weights[0], None, down[:5], up[:, :5])

    def biased(x, weights, down, up, down2, up2):
        return F.linear(x.float(), down, down[:, 0])

    def in_place(x, weights, down, up, down2, up2):
        y = F.linear(x, weights[0])
        y += F.linear(x.float().cos(), down[:1].expand(WIDE, -1))
        return y

    def in_f32(x, weights, down, up, down2, up2):
        return F.linear(x, weights[0]) + F.linear(F.linear(x.float().cos(), down), up)

    def autocast(x, weights, down, up, down2, up2):
        with torch.autocast(x.device.type, torch.bfloat16):
            return one(x, weights, down, up, down2, up2)

    def written_between(x, weights, down, up, down2, up2):
        wide, narrow = x.float(), x * 1.0
        held = F.linear(x, weights[0])
        cast = narrow.float()
        narrow.mul_(2.0)  # which the cast does not see
        return held * F.linear(cast, down).sum(-1, keepdim=True).to(x.dtype) + F.linear(wide.cos(), down).mean()

    def without_grad(x, weights, down, up, down2, up2):
        wide = x.float()
        with torch.no_grad():
            seen = F.linear(wide, down)
        return F.linear(x, weights[0]) * seen.sum(-1, keepdim=True)

    programs = (wide, odd, biased, in_place, in_f32, autocast, written_between, without_grad)
    for program in programs:
        assert joined(program, given(device)) == 0, program.__name__


@pytest.mark.parametrize("remainder", ["inductor", "eager"])
def test_another_remainder_keeps_what_the_program_says(remainder, device):
    if remainder == "inductor" and device == "cpu":
        pytest.skip("Inductor's C++ takes its time, and says nothing more")
    assert joined(one, given(device), remainder=remainder) == 0


@only_in_parts
def test_few_rows_stay_in_f32(how, device, ran):
    for rows, made in ((126, False), (128, True)):
        ran.clear()
        step(compiled(one), given(device, rows=rows))
        assert ("aten.addmm_.default" in called(ran[0])) is made


def test_checks_launch_no_parts(how, device, monkeypatch, ran):
    monkeypatch.setenv("CERMET_CHECK", "1")
    step(compiled(one), given(device))
    assert not any("launch" in name for graph in ran for name in called(graph))


def test_inference(how, device):
    values, call = given(device), compiled(two)
    x, weights, *adapters = values
    with torch.no_grad():
        ours, eager = call(x, weights, *adapters), two(x, weights, *adapters)
    with Float64():
        truth = two(*double(values))
    assert relative(ours, truth) <= 2 * relative(eager, truth) + torch.finfo(torch.bfloat16).eps


PROCESS = """
import torch, cermet
import test_wide_linears as test
y = test.step(test.compiled(test.two), test.given())["y"]
found = torch._dynamo.utils.counters["aot_autograd"]
print(found["autograd_cache_hit"], cermet.counters()["cache_bypasses"], y.double().sum().item())
"""


def test_a_later_process_finds_the_graph(tmp_path):
    folders = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "torch"), "CERMET_CACHE_DIR": str(tmp_path / "cermet")}
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    said = []
    for _ in range(2):
        ran = forked.run("-c", PROCESS, env=os.environ | folders | path)
        assert ran.returncode == 0, ran.stderr[-2000:]
        said.append(ran.stdout.split())
    assert [each[:2] for each in said] == [["0", "0"], ["1", "0"]] and said[0][2] == said[1][2]


@pytest.mark.parametrize("columns, factor", [(8, 1.0), (16, 0.3), (128, -2.0)])
def test_parts_add_up_to_the_number(columns, factor, device):
    torch.manual_seed(0)
    x = torch.randn(37, columns, device=device) * 10.0 ** torch.randint(-20, 20, (37, 1), device=device)
    x[3], x[5, ::2] = 0.0, torch.finfo(torch.float32).max / 4
    for sides in (wide_linears.EACH, wide_linears.LEFT, wide_linears.RIGHT):
        (made,) = regions.launch(wide_linears.split(columns, sides, factor), [x])
        pieces = made.view(37, len(sides), columns).double().unbind(1)
        each = {side: piece for side, piece in zip(sides, pieces)}
        assert all(torch.equal(piece, each[side]) for side, piece in zip(sides, pieces))
        wanted = (x * factor).double()
        assert ((sum(each.values()) - wanted).abs() <= 2.0**-24 * wanted.abs() + 1e-40).all()
        if factor == 1.0:
            (down,) = regions.launch(wide_linears.split_down(37, columns, sides), [x])
            assert torch.equal(down.view(len(sides), 37, columns).double(), torch.stack(pieces))


def test_six_products_are_those_of_all_that_counts():
    pairs = set(zip(wide_linears.LEFT, wide_linears.RIGHT))
    assert pairs == {(one, other) for one in range(3) for other in range(3) if one + other < 3} and len(pairs) == 6
    assert wide_linears.LEFT[:3] == wide_linears.EACH


def test_the_calls_are_the_programs_own_outside_of_a_graph(device):
    """As a module that keeps an exported graph calls them."""
    x, weights, down, up, *_ = given(device)
    x, down, up = (value.detach().requires_grad_() for value in (x, down, up))
    held = F.linear(x, weights[0])
    y = wide_linears.ADD_WIDE_LINEAR(held, wide_linears.WIDE_LINEAR(x, down), up, 0.5)
    expected = adapted(x, weights[0], None, down, up)
    assert torch.equal(y, expected)
    cotangent = torch.randn_like(y)
    for ours, eager in zip(*(torch.autograd.grad(each, (x, down, up), cotangent) for each in (y, expected))):
        assert torch.equal(ours, eager)


def test_a_products_type_is_no_shape():
    """Of torch's counts of operations, that of batches of products takes a type for a shape."""
    graph, mode = torch.fx.Graph(), torch._subclasses.FakeTensorMode()
    a, b = graph.placeholder("a"), graph.placeholder("b")
    node = graph.call_function(torch.ops.aten.bmm.dtype, (a, b, torch.float32))
    for each, shape in ((a, (2, 8, 16)), (b, (2, 16, 8)), (node, (2, 8, 8))):
        dtype = torch.float32 if each is node else torch.bfloat16
        each.meta["val"] = mode.from_tensor(torch.ones(shape, dtype=dtype))
    assert isinstance(costs.computing(node), int)
