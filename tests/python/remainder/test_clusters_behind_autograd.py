"""The second stage: what an ATen graph computes for each element and row is the engine's, across regions' borders."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F
import forked
from truth import EVERY_SEED, Float64, assert_none_is_far_from_eager, double, relative

import cermet

ROWS, COLUMNS = 96, 320


class Encoder(torch.nn.Module):
    """A layer of an encoder whose norms come after the sums, without its attention."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(COLUMNS, 2 * COLUMNS)
        self.down = torch.nn.Linear(2 * COLUMNS, COLUMNS)
        self.norm = torch.nn.LayerNorm(COLUMNS)
        self.out = torch.nn.LayerNorm(COLUMNS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x + torch.tanh(x))
        return self.out(self.down(F.gelu(self.up(x))) + x)


class Decoder(torch.nn.Module):
    """What is around the attention of a layer whose norms come before: products with biases that read one norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.RMSNorm(COLUMNS, eps=1e-6)
        self.last = torch.nn.RMSNorm(COLUMNS, eps=1e-6)
        self.query, self.key, self.value, self.out = (torch.nn.Linear(COLUMNS, COLUMNS) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(torch.tanh(x) * x)
        attended = torch.sigmoid(self.query(h)) * self.key(h) + self.value(h)
        return self.last(self.out(attended) + x)


def called(graph: fx.Graph) -> set[str]:
    return {str(node.target) for node in graph.nodes if node.op == "call_function"}


def launches(graph: fx.Graph) -> int:
    return sum("launch" in str(node.target) for node in graph.nodes if node.op == "call_function")


def step(function: Callable[..., torch.Tensor], model: torch.nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    x = x.detach().clone().requires_grad_()
    y = function(x)
    y.backward(torch.cos(y.detach() * 3))
    return {"y": y.detach(), "x": x.grad} | {name: p.grad.clone() for name, p in model.named_parameters()}


def assert_as_near_as_eager(call: Callable[..., torch.Tensor], model: torch.nn.Module, dtype: torch.dtype) -> None:
    """To float64, for several seeds."""
    ours, theirs = {}, {}
    for seed in range(EVERY_SEED):
        torch.manual_seed(seed)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
        x = torch.randn(ROWS, COLUMNS).to(dtype)
        wide = double(model)
        with Float64():
            truth = step(wide, wide, x.double())
        for errors, function in ((ours, call), (theirs, model)):
            for name, value in step(function, model, x).items():
                errors.setdefault(name, []).append(relative(value, truth[name]))
    assert_none_is_far_from_eager(ours, theirs, dtype)


dynamics = pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])


@dynamics
@dtypes
@pytest.mark.parametrize("memory", ["fast", "auto"])
@pytest.mark.parametrize("layer", [Encoder, Decoder])
def test_a_layer_is_as_near_to_float64_as_eager(layer, memory, dtype, dynamic, ran):
    before = cermet.counters()
    model = layer().to(dtype)
    options = {"remainder": "aot", "strict": True, "memory": memory}
    call = torch.compile(model, backend="cermet", dynamic=dynamic, options=options)
    assert_as_near_as_eager(call, model, dtype)
    after = cermet.counters()
    assert after["clusters"] > before["clusters"] and after["fallbacks"] == before["fallbacks"]
    assert len(ran) == 2, "one forward, one backward, for all seeds"
    forward, backward = map(called, ran)
    assert not forward & {"aten.native_layer_norm.default", "aten.add.Tensor"}, forward
    assert not backward & {"aten.gelu_backward.default", "aten.add.Tensor", "aten.sum.dim_IntList"}, backward
    if memory == "fast":
        assert launches(ran[1]) == 3, "what two products or a graph's ends stand between"


class Gated(torch.nn.Module):
    """One half of a product, wider than what a kernel reads in another order, gates the other."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(COLUMNS, 4 * COLUMNS, bias=False)
        self.down = torch.nn.Linear(2 * COLUMNS, COLUMNS, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.up(x).chunk(2, dim=-1)
        return self.down(up * F.silu(gate))


@dynamics
@dtypes
def test_halves_of_one_tensor_are_read_once_for_what_is_made_again_and_its_gradient(dtype, dynamic, ran):
    model = Gated().to(dtype)
    call = torch.compile(model, backend="cermet", dynamic=dynamic, options={"remainder": "aot", "strict": True})
    assert_as_near_as_eager(call, model, dtype)
    assert len(ran) == 2 and [*map(launches, ran)] == [1, 1]


def ordered(x: torch.Tensor, y: torch.Tensor, order: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """The backward is given a symbol beside tensors."""
    x = x.clone()
    x[:, order] = y - y.mean(1, keepdim=True)
    return x


def taken(x: torch.Tensor, y: torch.Tensor, order: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Tracing finds a symbol to be a number when it has made sizes of it."""
    z = x.clone()
    z[:, order] = x
    return z.take_along_dim(numbers[..., None], -1)


@pytest.mark.parametrize("function", [ordered, taken])
def test_rows_that_are_written_in_an_order_may_be_of_any_number(function):
    call = torch.compile(function, backend="cermet", fullgraph=True, options={"remainder": "aot", "strict": True})
    for rows in (18, 8):
        order, numbers = torch.randperm(rows), torch.randint(0, 32, (2, rows))
        values, results = [torch.randn(2, rows, 32) for _ in range(2)], []
        for which in (call, function):
            leaves = [value.clone().requires_grad_() for value in values]
            for each, dim in ((leaves[0], 1), (leaves[1], 1), (order, 0), (numbers, 1)):
                torch._dynamo.maybe_mark_dynamic(each, dim)
            z = which(*leaves, order, numbers)
            results.append((z, *torch.autograd.grad(z.square().sum(), leaves, materialize_grads=True)))
        for ours, theirs in zip(*results):
            assert torch.allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("remainder", ["aot", "eager"])
def test_what_only_detached_values_follow_from_has_no_gradient(remainder):
    """And none of zeros, also where one region gives those and others."""

    def function(x, y, scale, bias):
        total = y + y
        normed = (total - total.mean(-1, keepdim=True)) * torch.rsqrt(total.var(-1, keepdim=True) + 0.1)
        noted.copy_(F.layer_norm(normed + x, (COLUMNS,), scale, bias).detach())
        return normed.cumsum(-1) / COLUMNS

    noted = torch.empty(ROWS, COLUMNS)
    given = [torch.randn(size, requires_grad=True) for size in ((ROWS, COLUMNS), (ROWS, COLUMNS), COLUMNS, COLUMNS)]
    call = torch.compile(function, backend="cermet", options={"remainder": remainder, "strict": True})
    call(*given).square().sum().backward()
    assert [value.grad is None for value in given] == [True, False, True, True]


class Embeddings(torch.nn.Module):
    """Rows of two tables, as many of the second as the first has words at most, and their norm."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = torch.nn.Embedding(500, COLUMNS), torch.nn.Embedding(64, COLUMNS)
        self.norm = torch.nn.LayerNorm(COLUMNS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        places = torch.arange(words.shape[1]).expand(words.shape)
        return self.norm(self.words(words) + self.places(places))


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_rows_of_tables_are_read_by_the_kernel_that_adds_them(dtype, dynamic, ran):
    model = Embeddings().to(dtype)
    words = torch.randint(500, (4, 48))
    call = torch.compile(model, backend="cermet", dynamic=dynamic, options={"remainder": "aot", "strict": True})
    ours, eager = call(words), model(words)
    with Float64():
        truth = double(model)(words)
    errors = [{"y": [relative(value, truth)]} for value in (ours, eager)]
    assert_none_is_far_from_eager(*errors, dtype)
    assert not called(ran[0]) & {"aten.embedding.default", "aten.add.Tensor", "aten.native_layer_norm.default"}, ran[0]


def test_a_failure_leaves_the_graph_as_it_was(monkeypatch, ran):
    from cermet.remainder import clusters

    def fails(*_: object) -> None:
        raise RuntimeError("no import today")

    monkeypatch.setattr(clusters, "import_graph", fails)
    before = cermet.counters()
    model, x = Encoder(), torch.randn(ROWS, COLUMNS)
    expected = step(model, model, x)
    call = torch.compile(model, backend="cermet", options={"remainder": "aot", "strict": False})
    for name, value in step(call, model, x).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-5)
    after = cermet.counters()
    assert after["clusters"] == before["clusters"] and after["fallbacks"] == before["fallbacks"] + 2
    torch._dynamo.reset()
    with pytest.raises(Exception, match="no import today"):
        torch.compile(model, backend="cermet", options={"remainder": "aot", "strict": True})(x)


def test_nothing_is_done_under_check(monkeypatch, ran):
    monkeypatch.setenv("CERMET_CHECK", "1")
    before = cermet.counters()
    model = Encoder()
    step(torch.compile(model, backend="cermet", options={"remainder": "aot"}), model, torch.randn(ROWS, COLUMNS))
    assert cermet.counters()["clusters"] == before["clusters"]


PROCESS = """
import json, sys
sys.path[:0] = {path!r}
import torch, cermet
from test_clusters_behind_autograd import COLUMNS, ROWS, Encoder, step
torch.manual_seed(3)
model, x = Encoder(), torch.randn(ROWS, COLUMNS)
call = torch.compile(model, backend="cermet", options={{"remainder": "aot"}})
sums = {{name: value.double().sum().item() for name, value in step(call, model, x).items()}}
hits = torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"]
print("ANSWER" + json.dumps(dict(sums=sums, hits=hits, counters=cermet.counters())))
"""


def test_a_second_process_finds_the_clusters_in_torchs_cache(tmp_path):
    here = os.path.dirname(os.path.abspath(__file__))
    environment = os.environ | {
        "CERMET_CACHE_DIR": str(tmp_path / "cermet"),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
    }

    def process() -> dict:
        code = PROCESS.format(path=[here, os.path.dirname(here)])
        done = forked.run("-c", code, env=environment)
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout.split("ANSWER")[1])

    cold, warm = process(), process()
    assert cold["counters"]["clusters"] > 0 and cold["hits"] == 0
    assert warm["hits"] > 0 and warm["counters"]["clusters"] == 0, "made by the first process"
    assert warm["counters"]["kernels_compiled"] == warm["counters"]["plans_compiled"] == 0
    assert warm["counters"]["launches"] == cold["counters"]["launches"] > 0
    assert warm["sums"] == cold["sums"]


def test_kernels_that_cannot_be_made_leave_the_graph_as_it_was(monkeypatch, tmp_path):
    """Also in what AOTAutogradCache keeps, which another process would launch."""
    from cermet.ops import preparation
    from cermet.remainder import clusters, straight

    class Fails(preparation.Preparation):
        def wait(self) -> None:
            super().wait()
            raise cermet.Error("no such kernel today")

    kept, told = [], []
    prepare = straight.StraightLine.prepare_for_serialization

    def keep(self: straight.StraightLine) -> None:
        prepare(self)
        kept.append(self._regions)

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(straight.StraightLine, "prepare_for_serialization", keep)
    for broken in (False, True):
        monkeypatch.setattr(clusters, "Preparation", Fails if broken else preparation.Preparation)
        before = cermet.counters()
        model, x = Encoder(), torch.randn(ROWS, COLUMNS)
        expected = step(model, model, x)
        torch._dynamo.reset()
        call = torch.compile(model, backend="cermet", options={"remainder": "aot", "strict": False})
        for name, value in step(call, model, x).items():
            torch.testing.assert_close(value, expected[name], rtol=1e-4, atol=1e-5)
        after = cermet.counters()
        assert (after["clusters"] == before["clusters"]) == broken
        assert after["fallbacks"] == before["fallbacks"] + 2 * broken
        assert len(kept) == 2
        told.append(sum(map(len, kept)))
        kept.clear()
        torch._inductor.utils.clear_caches()
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "other"))
    assert told[0] > told[1], "the clusters are in what the first keeps"
    with pytest.raises(Exception, match="no such kernel today"):
        torch.compile(Encoder(), backend="cermet", options={"remainder": "aot", "strict": True})(x)
