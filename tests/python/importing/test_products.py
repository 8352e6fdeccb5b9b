"""Products of one row behind autograd: kernels of ours that read a matrix once, beside what they are added to."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import cermet
import graphs
from cermet.importing.translations import products
from cermet.ops import regions
from cermet.remainder import clusters
from truth import relative, spacing

COLUMNS, ROWS = 1024, 600  # of a matrix; a product alone has to read a megabyte
SHIPPED = set(products._DEVICES)
NARROW = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])


@pytest.fixture(autouse=True)
def everywhere(monkeypatch):
    monkeypatch.setattr(products, "_DEVICES", {"cpu", "cuda"})
    with torch._functorch.config.patch(enable_autograd_cache=False):  # each graph is seen
        yield


@pytest.fixture
def calls(monkeypatch):
    """The names of all calls of the graphs that run."""
    seen, fuse = [], clusters.fuse

    def fused(module, *arguments):
        found = fuse(module, *arguments)
        seen.extend(str(node.target) for node in module.graph.nodes if node.op == "call_function")
        return found

    monkeypatch.setattr(clusters, "fuse", fused)
    return seen


def matrices(dtype, device="cpu", columns=COLUMNS, rows=ROWS, leading=(1, 1)):
    x = torch.randn(*leading, columns, dtype=torch.float64)
    weight, bias = torch.randn(rows, columns, dtype=torch.float64), torch.randn(rows, dtype=torch.float64)
    return [each.to(device, dtype) for each in (x, weight, bias)]


def run(function, *operands):
    with torch.no_grad():
        return graphs.compiled(function, "aot")(*operands)


def is_right(mine, function, *operands):
    """At most what one rounding makes."""
    with torch.no_grad():
        truth = function(*(each.double() for each in operands))
    return mine.dtype == operands[0].dtype and mine.shape == truth.shape and relative(mine, truth) < spacing(mine.dtype) / 2


@NARROW
@pytest.mark.parametrize("columns", [COLUMNS, 1027, 14336])
@pytest.mark.parametrize("leading", [(1,), (1, 1), (1, 1, 1)])
def test_a_linear_layer(dtype, columns, leading, device, calls):
    x, weight, bias = matrices(dtype, device, columns, leading=leading)
    for function, operands in ((F.linear, (x, weight)), (F.linear, (x, weight, bias))):
        assert is_right(run(function, *operands), function, *operands)
    assert not {"aten.mm.default", "aten.addmm.default"} & set(calls)


@NARROW
def test_what_is_added_is_added_in_the_same_kernel(dtype, device, calls):
    def function(x, weight, residual):
        return residual + F.linear(x, weight)

    x, weight, _ = matrices(dtype, device)
    residual = torch.randn(1, 1, ROWS, device=device).to(dtype)
    before = cermet.counters()["launches"]
    assert relative(run(function, x, weight, residual), function(*(e.double() for e in (x, weight, residual)))) < 2e-2
    assert cermet.counters()["launches"] == before + 1 and "aten.mm.default" not in calls


def test_layers_behind_one_another(device, calls):
    """Each is a kernel: no product is made again for the rows of the next."""

    def function(x, first, second):
        return F.linear(F.linear(x, first), second)

    x, first, _ = matrices(torch.bfloat16, device)
    second = torch.randn(COLUMNS, ROWS, device=device).bfloat16()
    before = cermet.counters()["launches"]
    found = run(function, x, first, second)
    with torch.no_grad():
        truth = function(*(each.double() for each in (x, first, second)))
    assert relative(found, truth) < 2 * spacing(torch.bfloat16)
    assert cermet.counters()["launches"] == before + 2 and "aten.mm.default" not in calls


def of_columns(x, matrix):
    return x.view(1, -1) @ matrix


@pytest.mark.parametrize(
    ("function", "operands"),
    [
        pytest.param(F.linear, matrices(torch.bfloat16, leading=(1, 2))[:2], id="of two rows"),
        pytest.param(F.linear, matrices(torch.float32)[:2], id="of f32"),
        pytest.param(of_columns, [matrices(torch.bfloat16)[0], torch.randn(COLUMNS, ROWS).bfloat16()], id="of columns"),
        pytest.param(F.linear, matrices(torch.bfloat16, columns=1 << 17, rows=8)[:2], id="of long rows"),
    ],
)
def test_others_are_somebody_elses(function, operands, calls):
    run(function, *operands)
    assert "aten.mm.default" in calls


def test_a_cpus_library_keeps_its_own(monkeypatch, calls):
    assert SHIPPED == {"cuda"}
    monkeypatch.setattr(products, "_DEVICES", SHIPPED)
    run(F.linear, *matrices(torch.bfloat16)[:2])
    assert "aten.mm.default" in calls


def test_it_is_one_kernel_that_stores_its_result_where_that_is(monkeypatch):
    """A number a row, in another shape than the rows have."""
    keys, fuse = [], clusters.fuse

    def fused(*arguments):
        found = fuse(*arguments)
        keys.extend(key for region in found.replaced.regions for key in region.keys())
        return found

    monkeypatch.setattr(clusters, "fuse", fused)
    run(F.linear, *matrices(torch.bfloat16)[:2])
    (key,) = keys
    plan = regions.plan(key, "sm_90")
    assert len(plan["steps"]) == 1 and not [each for each in plan["values"] if each["kind"] == "buffer"]


def test_a_step_of_one_row(calls):
    """Gradients are products of columns, or of one column: somebody else's."""
    x, weight, bias = (each.requires_grad_() for each in matrices(torch.bfloat16))
    found = graphs.compiled(F.linear, "aot")(x, weight, bias)
    cotangent = torch.randn_like(found)
    mine = torch.autograd.grad(found, (x, weight, bias), cotangent)
    wide = [each.detach().double().requires_grad_() for each in (x, weight, bias)]
    truth = torch.autograd.grad(F.linear(*wide), wide, cotangent.double())
    for one, other in zip(mine, truth):
        assert relative(one, other) < spacing(torch.bfloat16)
