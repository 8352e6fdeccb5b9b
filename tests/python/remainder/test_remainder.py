"""Who runs what Cermet leaves: how it is chosen, and what `aot` makes of the graphs."""

from __future__ import annotations

import html
import re

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

import cermet
import graphs
from cermet.remainder import straight
from cermet.remainder.aten import concatenation
from cermet.remainder.aten.accumulation import accumulate
from tiny_models import tiny, words

REMAINDERS = ("eager", "aot", "inductor", "auto")


@pytest.fixture
def lines(monkeypatch) -> list[str]:
    """The sources of the functions that `aot` makes, with the operations' names."""
    sources: list[str] = []
    write = straight._write

    def record(module, *others):
        source, constants = write(module, *others)
        named = {name: str(value) for name, value in constants.items() if name.startswith("f")}
        sources.append(re.sub(r"\bf\d+\b", lambda found: named[found[0]], source))
        return source, constants

    monkeypatch.setattr(straight, "_write", record)
    return sources


# --- Sums of products ------------------------------------------------------------------------------------------------


def attention_inputs(x, q, k, v):
    """Three layers that share an input, of which the first two are added."""
    return torch.tanh(x @ q) + torch.tanh(x @ k) + torch.tanh(x @ v)


def gradients(call, tensors):
    leaves = [tensor.clone().requires_grad_() for tensor in tensors]
    return torch.autograd.grad(call(*leaves).square().sum(), leaves)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_a_shared_input_accumulate_in_the_matmul(lines, dtype):
    shapes = [(2, 24, 64), (64, 64), (64, 32), (64, 32)]
    q, k, v = (torch.randn(shape) for shape in shapes[1:])
    tensors = [torch.randn(shapes[0]), q, torch.cat([k, k], 1), torch.cat([v, v], 1)]
    tensors = [tensor.to(dtype) for tensor in tensors]
    options = {"remainder": "aot", "strict": True}
    ours = gradients(torch.compile(attention_inputs, backend="cermet", options=options), tensors)
    eager = gradients(attention_inputs, tensors)
    truth = gradients(attention_inputs, [tensor.double() for tensor in tensors])
    assert lines[-1].count("aten.addmm_.default(") == 2, lines[-1]
    for mine, theirs, exact in zip(ours, eager, truth):
        mine, theirs = ((value.double() - exact).norm() for value in (mine, theirs))
        assert mine <= 1.05 * theirs + 1e-6 * exact.norm(), (mine, theirs)


@pytest.mark.parametrize("layers, sums", [(1, 0), (2, 3)])
def test_many_products_are_added_before_what_comes_first(lines, layers, sums):
    """What all layers of a decoder read, and the program: its cotangent is there before the products. Whoever reads the
    sum of few products reads them as well."""

    def call(x, *weights):
        x = torch.sin(x)
        total = torch.cos(x).sum()
        for weight in weights:
            total = total + torch.tanh(x @ weight).square().sum()
        return total, torch.tan(x)

    def gradients(tensors):
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]
        total, read = torch.compile(call, backend="cermet", options={"remainder": "aot", "strict": True})(*leaves)
        return torch.autograd.grad(total + (read * 3).sum(), leaves)

    tensors = [torch.randn(2, 24, 64) / 3] + [torch.randn(64, 64) for _ in range(2 * layers)]
    ours = gradients(tensors)
    leaves = [tensor.double().requires_grad_() for tensor in tensors]
    total, read = call(*leaves)
    exact = torch.autograd.grad(total + (read * 3).sum(), leaves)
    for mine, truth in zip(ours, exact):
        torch.testing.assert_close(mine.double(), truth, rtol=1e-3, atol=1e-3)
    assert lines[-1].count("aten.addmm_.default(") == sums, lines[-1]


def test_what_comes_first_is_read_before_it_is_written():
    """In place, between the products: what is added last is what was there."""
    def call(x, *factors):
        total = x
        for place in range(0, len(factors), 2):
            total = torch.ops.aten.add.Tensor(total, torch.ops.aten.mm.default(*factors[place : place + 2]))
            if place == 2:
                x.mul_(2)
        return total

    given = [torch.rand(4, 4) for _ in range(11)]
    module = make_fx(call)(*given)
    accumulate(module.graph)
    module.recompile()
    expected = call(*[each.clone() for each in given])
    torch.testing.assert_close(module(*[each.clone() for each in given]), expected)


def test_a_product_that_something_else_reads_is_not_written(lines):
    def call(x, y, a, b):
        first = x @ a
        return first + y @ b, first

    tensors = [torch.randn(8, 16), torch.randn(8, 16), torch.randn(16, 16), torch.randn(16, 16)]
    options = {"remainder": "aot", "strict": True}
    for ours, eager in zip(torch.compile(call, backend="cermet", options=options)(*tensors), call(*tensors)):
        torch.testing.assert_close(ours, eager)
    assert "addmm_" not in lines[-1]


# --- Sums of the gradients of slices ---------------------------------------------------------------------------------


def weighted(*parts):
    """A number that each element of each part has another weight in."""
    return sum((part * torch.arange(part.numel(), dtype=part.dtype).view(part.shape).cos()).sum() for part in parts)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("cuts", [(0, 4, 6, 9), (0, 1, 9), (0, 2, 4, 5, 9)])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gradients_of_pieces_are_joined(lines, dim, cuts, dynamic):
    def call(x):
        y = torch.tanh(x)
        pieces = [torch.narrow(y, dim, start, stop - start) for start, stop in zip(cuts, cuts[1:])]
        return weighted(*(piece.exp() for piece in reversed(pieces)))

    shape = [5, 6, 7]
    shape[dim] = cuts[-1]
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    if dynamic:
        torch._dynamo.mark_dynamic(x, 0 if dim else 1)
    options = {"remainder": "aot", "strict": True}
    (ours,) = torch.autograd.grad(torch.compile(call, backend="cermet", options=options)(x), x)
    (eager,) = torch.autograd.grad(call(x), x)
    torch.testing.assert_close(ours, eager, rtol=0, atol=0)
    assert lines[-1].count("aten.cat.default(") == 1 and "slice_backward" not in lines[-1], lines[-1]


@pytest.mark.parametrize(
    "pieces",
    [
        lambda y: (y[:, :4], y[:, 5:]),  # a gap
        lambda y: (y[:, :5], y[:, 4:]),  # an overlap
        lambda y: (y[:, ::2], y[:, 1::2]),
        lambda y: (y[:, :4], y[4:]),  # two dimensions
        lambda y: (y[:, :4], y[:, 4:], y),
    ],
    ids=["gap", "overlap", "steps", "dimensions", "whole"],
)
def test_gradients_of_other_slices_are_added(lines, pieces):
    def call(x):
        return weighted(*(piece.exp() for piece in pieces(torch.tanh(x))))

    x = torch.randn(8, 9, dtype=torch.float64, requires_grad=True)
    options = {"remainder": "aot", "strict": True}
    (ours,) = torch.autograd.grad(torch.compile(call, backend="cermet", options=options)(x), x)
    (eager,) = torch.autograd.grad(call(x), x)
    torch.testing.assert_close(ours, eager)
    assert "aten.add.Tensor(" in lines[-1], lines[-1]


@pytest.mark.parametrize("dim", [0, 2, -2])
def test_gradients_of_indices_are_joined(lines, dim):
    def call(x):
        y = torch.tanh(x)
        return weighted(*(y.select(dim, index).exp() for index in (1, -3, 2)))

    shape = [5, 6, 7, 8]
    shape[dim] = 3
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    options = {"remainder": "aot", "strict": True}
    (ours,) = torch.autograd.grad(torch.compile(call, backend="cermet", options=options)(x), x)
    (eager,) = torch.autograd.grad(call(x), x)
    torch.testing.assert_close(ours, eager, rtol=0, atol=0)
    assert lines[-1].count("aten.cat.default(") == 1 and "select_backward" not in lines[-1], lines[-1]


@pytest.mark.parametrize("indices", [(0, 1), (0, 1, 1, 2)], ids=["gap", "twice"])
def test_gradients_of_other_indices_are_added(lines, indices):
    def call(x):
        return weighted(*(torch.tanh(x)[:, index].exp() for index in indices))

    x = torch.randn(8, 3, dtype=torch.float64, requires_grad=True)
    options = {"remainder": "aot", "strict": True}
    (ours,) = torch.autograd.grad(torch.compile(call, backend="cermet", options=options)(x), x)
    (eager,) = torch.autograd.grad(call(x), x)
    torch.testing.assert_close(ours, eager)
    assert "aten.cat.default(" not in lines[-1], lines[-1]


@pytest.mark.parametrize("turned", [lambda x: x.transpose(1, 2), lambda x: x.permute(0, 2, 1, 3)], ids=["two", "all"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_what_is_joined_and_read_turned_is_joined_turned(turned, dim):
    def call(x, y, z):
        return turned(torch.cat([x, y, z], dim)).clone(memory_format=torch.contiguous_format)

    tensors = [torch.randn(2, 3, 4, 5) for _ in range(3)]
    graph = make_fx(call, tracing_mode="fake")(*tensors)
    assert concatenation.turn(graph.graph) == 1
    graph.graph.lint()
    graph.recompile()
    assert torch.equal(graph(*tensors), call(*tensors)) and "clone" not in graph.code, graph.code


def test_what_is_joined_to_nothing_of_another_rank_stays():
    def call(x):
        return torch.cat([torch.zeros(0), x], 1).transpose(1, 2).clone(memory_format=torch.contiguous_format)

    assert concatenation.turn(make_fx(call, tracing_mode="fake")(torch.randn(2, 3, 4)).graph) == 0


@pytest.mark.parametrize("also", [lambda whole, part: whole, lambda whole, part: part], ids=["whole", "turned"])
def test_what_others_read_as_it_is_joined_stays(also):
    def call(x, y):
        whole = torch.cat([x, y], 1)
        part = whole.transpose(1, 2)
        return part.clone(memory_format=torch.contiguous_format), also(whole, part)

    graph = make_fx(call, tracing_mode="fake")(torch.randn(2, 3, 4), torch.randn(2, 3, 4))
    assert concatenation.turn(graph.graph) == 0


def test_packed_queries_keys_and_values_leave_one_copy_to_direct_calls(lines):
    """Phi-3's layers: the rotation writes what it joins with nothing, and one copy makes the packed gradient."""
    model, text = tiny("Phi3").train(), words()
    options = {"remainder": "aot", "strict": True, "memory": "fast"}  # else attention's result is copied again
    with torch._functorch.config.patch(enable_autograd_cache=False):  # another test's graphs would be found
        torch.compile(model, backend="cermet", options=options)(input_ids=text, labels=text).loss.backward()
    forward, backward = lines
    layers = model.config.num_hidden_layers
    assert forward.count("aten.cat.default(") == 1  # of the frequencies
    assert backward.count("aten.cat.default(") == layers
    assert not re.search("slice_backward|clone", backward), backward


# --- The choice ------------------------------------------------------------------------------------------------------


def report_of(capfd, monkeypatch, function, *tensors, **options) -> str:
    """The line that says who runs what is left."""
    monkeypatch.setenv("CERMET_EXPLAIN", "1")
    torch.compile(function, backend="cermet", options={"strict": True, **options})(*tensors)
    return capfd.readouterr().err.split("who runs what is left:\n")[1].split("\n\n")[0]


def test_a_model_with_nothing_left_runs_directly(capfd, monkeypatch, lines):
    model = tiny("Llama", hidden_size=256, intermediate_size=512).train()
    said = report_of(capfd, monkeypatch, lambda text: model(input_ids=text, labels=text), words())
    assert re.match(r"  aot: [0-4]\.\d % of the graph's bytes are moved outside of named patterns", said), said
    assert len(lines) == 2  # forward and backward


def test_explain_says_what_would_be_chosen():
    model, text = tiny("Llama", hidden_size=256, intermediate_size=512).train(), words()
    found = cermet.explain(model, input_ids=text, labels=text)
    (said,) = found.remainders
    assert said.startswith("aot: ") and said in " ".join(str(found).split()) and html.escape(said) in found.html()


def test_elementwise_work_that_is_left_is_told_and_runs_directly(capfd, monkeypatch, lines):
    def function(x, weight):
        return graphs.rms_norm(x, weight).sin().cumsum(-1).cos()

    said = report_of(capfd, monkeypatch, function, torch.randn(8, 32), torch.randn(32))
    assert re.match(r"  aot: \d+\.\d % of the graph's bytes are moved outside of named patterns \(1 \w+", said), said
    assert len(lines) == 1


def test_an_operation_that_the_importer_does_not_know_is_left_work(capfd, monkeypatch):
    said = report_of(capfd, monkeypatch, lambda x: x @ x + torch.erfinv(x), torch.rand(32, 32) * 0.9)
    assert said.startswith("  aot:") and "1 erfinv" in said


@pytest.mark.parametrize(("p", "training", "left"), [(0.1, True, True), (0.0, True, False), (0.1, False, False)])
def test_a_dropout_that_drops_nothing_is_no_work(capfd, monkeypatch, p, training, left):
    def function(x):
        return torch.nn.functional.dropout(x @ x, p, training)

    said = report_of(capfd, monkeypatch, function, torch.randn(32, 32))
    assert ("dropout" in said) == left and said.startswith("  aot: 0.0 %") != left, said


def test_attention_with_a_body_goes_to_inductor(capfd, monkeypatch):
    from torch.nn.attention.flex_attention import flex_attention

    def function(q, k, v):
        return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score * 0.5)

    with torch.no_grad():
        said = report_of(capfd, monkeypatch, function, *torch.randn(3, 1, 2, 16, 16).unbind())
    assert said.startswith("  inductor: only a compiler makes a kernel of flex_attention"), said


def test_a_write_in_place_is_left_work(capfd, monkeypatch):
    def function(cache, x, places):
        cache.index_copy_(0, places, x @ x)
        return cache @ x

    tensors = (torch.randn(512, 16), torch.randn(16, 16), torch.arange(16))
    said = report_of(capfd, monkeypatch, function, *tensors)
    assert said.startswith("  aot:") and "1 index_copy_" in said


def test_an_option_of_inductors_goes_to_inductor(capfd, monkeypatch):
    said = report_of(capfd, monkeypatch, lambda x: x @ x, torch.randn(8, 8), epilogue_fusion=False)
    assert said.startswith("  inductor: epilogue_fusion is an option of Inductor's")


@pytest.mark.parametrize("remainder", ["aot", "auto", "inductor"])
def test_reduce_overhead_without_a_gpu_runs_as_it_is(remainder):
    def function(x, y):
        return graphs.rms_norm(x @ y, y[0])

    tensors = [torch.randn(32, 32), torch.randn(32, 32)]
    options = {"remainder": remainder, "mode": "reduce-overhead", "strict": True}
    ours = gradients(torch.compile(function, backend="cermet", options=options), tensors)
    for mine, theirs in zip(ours, gradients(function, tensors)):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4 * theirs.abs().max().item())


# --- The function that runs ------------------------------------------------------------------------------------------


def test_dead_values_are_freed_while_it_runs():
    import weakref

    alive: list[str] = []
    watched: dict[str, weakref.ref] = {}

    def note(name, value):
        watched[name] = weakref.ref(value)
        return value

    def look(value):
        alive.append("".join(name for name, reference in sorted(watched.items()) if reference() is not None))
        return value + 1

    graph = torch.fx.Graph()
    first, second = graph.placeholder("first"), graph.placeholder("second")
    made = graph.call_function(note, ("c", graph.call_function(torch.add, (first, second))))
    looked = graph.call_function(look, (made,))
    graph.output((graph.call_function(look, (looked,)),))
    arguments = [note("a", torch.ones(2)), note("b", torch.ones(2))]
    run = straight.StraightLine(torch.fx.GraphModule({}, graph))
    (result,) = run(arguments)
    assert arguments == [] and alive == ["c", ""] and result.tolist() == [4.0, 4.0]


def test_constants_and_nested_arguments_are_passed_as_they_are():
    def function(x, n):
        y = torch.cat([x, x[:, :2]], -1).to(torch.float64).sum((0, 1), keepdim=True)
        return torch.full((n, 2), float("-inf")), y.expand(2, 1), x[..., None].transpose(0, 1)

    x = torch.randn(3, 4)
    ours = torch.compile(function, backend="cermet", dynamic=True, options={"remainder": "aot", "strict": True})
    for n in (3, 5):
        for mine, theirs in zip(ours(x, n), function(x, n)):
            torch.testing.assert_close(mine, theirs)
            assert mine.stride() == theirs.stride()


def _softplus_of_a_view(x, y):
    a = F.elu(x * y)
    return F.softplus(a.view(2, -1, 4, 8).transpose(1, 2)), torch.log(a.abs() + 1)


def _softplus_of_a_product(x, y):
    a = F.softplus(x @ y[0, :2].mT).transpose(1, 2)[:, :, None]
    return a * torch.ones(x.shape[1], 1)


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("function", [_softplus_of_a_view, _softplus_of_a_product])
def test_a_view_of_what_lies_otherwise_than_traced(function, dynamic):
    """`softplus_backward` of a cotangent and of an operand in another order, of which torch's fake tensors take the
    operand's."""

    def gradient(call, x, y):
        result = call(x, y)
        return torch.autograd.grad([value.sin().sum() for value in tree_leaves(result)], x)[0]

    ours = torch.compile(function, backend="cermet", dynamic=dynamic, options={"remainder": "aot", "strict": True})
    for n in (10, 7):
        x, y = torch.randn(2, n, 32, requires_grad=True), torch.randn(2, n, 32)
        torch.testing.assert_close(gradient(ours, x, y), gradient(function, x, y))


def test_a_graph_that_refuses_grad_mode_says_so():
    """What torch before 2.13 needs of a backward (direct.py); here the graph by itself, under any torch."""
    graph = torch.fx.symbolic_trace(lambda x: torch.ops.aten.mul.Tensor(x, 2.0))
    run, x = straight.StraightLine(graph, refuses_grad=True), torch.ones(3)
    with torch.no_grad():
        assert torch.equal(run([x]), x * 2.0)
    with pytest.raises(RuntimeError, match="double backward is not supported"):
        run([x])
    assert torch.equal(straight.StraightLine(graph)([x]), x * 2.0)


# --- Caches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("remainder", ["aot", "inductor"])
def test_another_build_finds_no_graph_in_torchs_cache(monkeypatch, tmp_path, remainder):
    from cermet.remainder import choice
    from torch._dynamo.utils import counters

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    hits = []
    for build in ("one", "one", "two"):
        torch._dynamo.reset()
        counters.clear()
        monkeypatch.setattr(choice, "build", lambda: build)
        options = {"remainder": remainder, "strict": True}
        torch.compile(graphs.rms_norm, backend="cermet", options=options)(torch.randn(4, 32), torch.randn(32))
        hits.append(counters["aot_autograd"]["autograd_cache_hit"])
    assert hits == [0, 1, 0]


def test_a_function_with_a_gradient_of_its_own_is_kept_by_its_bodies(monkeypatch, tmp_path):
    from torch._dynamo.utils import counters

    def scaled(factor):
        class Sine(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x.sin()

            @staticmethod
            def backward(ctx, gradient):
                (x,) = ctx.saved_tensors
                return gradient * x.cos() * factor

        return lambda x: Sine.apply(x) * 2

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    before, hits = cermet.counters()["cache_bypasses"], []
    for factor in (3.0, 3.0, 5.0):
        torch._dynamo.reset()
        counters.clear()
        x = torch.randn(7, requires_grad=True)
        torch.compile(scaled(factor), backend="cermet", options={"strict": True})(x).sum().backward()
        torch.testing.assert_close(x.grad, 2 * factor * x.detach().cos())
        hits.append(counters["aot_autograd"]["autograd_cache_hit"])
    assert hits == [0, 1, 0] and cermet.counters()["cache_bypasses"] == before


def test_autocast_in_the_graph_is_a_bypass_that_is_counted_and_reported(capfd, monkeypatch):
    from torch._dynamo.utils import counters

    def function(x):
        with torch.autocast("cpu", torch.bfloat16):
            return x @ x

    before, theirs = cermet.counters()["cache_bypasses"], counters["aot_autograd"]["autograd_cache_bypass"]
    said = report_of(capfd, monkeypatch, function, torch.randn(8, 8))
    bypasses = counters["aot_autograd"]["autograd_cache_bypass"] - theirs
    assert cermet.counters()["cache_bypasses"] == before + bypasses
    if bypasses == 0:
        pytest.skip(f"torch {torch.__version__} keeps a graph that enters autocast")
    assert said.startswith("  aot: 0.0 %")
    assert "not cached by torch: Unsupported call_function target" in " ".join(said.split())
    assert "_enter_autocast" in said
