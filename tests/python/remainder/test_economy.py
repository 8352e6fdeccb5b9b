"""What a first step leaves out of AOTAutograd's work, and Python's: Inductor's modules, texts, collections."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
import threading
import weakref

import pytest
import torch
import torch.fx as fx
from tiny_models import tiny, words
from torch._dynamo.callback import CallbackArgs, CallbackTrigger, callback_handler
from torch._dynamo.output_graph import SubgraphTracer
from torch._functorch import config
from torch._logging import _internal as logs
from torch.fx.experimental.proxy_tensor import make_fx

import cermet
from cermet import garbage
from cermet.remainder import economy, straight
from cermet.remainder.aten.merging import merge

STEP = """
import sys, torch
def f(x, w): return torch.nn.functional.silu(x @ w).sum()
x, w = (torch.randn(8, 8, requires_grad=True) for _ in range(2))
torch.compile(f, backend="cermet", options={"remainder": "aot"})(x, w).backward()
print([name for name in ("lowering", "pattern_matcher", "decomposition") if f"torch._inductor.{name}" in sys.modules])
"""


def test_a_training_step_imports_nothing_that_inductor_lowers_with(tmp_path):
    settings = {"CERMET_CACHE_DIR": str(tmp_path / "cermet"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    ran = subprocess.run([sys.executable, "-c", STEP], capture_output=True, text=True, env=os.environ | settings)
    assert ran.stdout.strip() == "[]", ran.stdout + ran.stderr


def f(x, y):
    return torch.nn.functional.silu(x @ y).sum()


def operands():
    return [torch.randn(8, 8, requires_grad=True) for _ in range(2)]


def test_nothing_is_collected_while_a_graph_is_compiled(monkeypatch):
    seen, run = [], fx.GraphModule.recompile
    monkeypatch.setattr(fx.GraphModule, "recompile", lambda self: (seen.append(gc.isenabled()), run(self))[1])
    torch.compile(f, backend="cermet")(*operands()).backward()
    assert False in seen and gc.isenabled(), f"collected at recompiles: {seen}, afterwards: {gc.isenabled()}"


def test_nothing_is_collected_while_dynamo_traces(monkeypatch):
    seen, create = [], SubgraphTracer.create_proxy

    def heard(*given, **named):
        seen.append(gc.isenabled())
        return create(*given, **named)

    monkeypatch.setattr(SubgraphTracer, "create_proxy", heard)
    garbage.uncollected_while_traced()  # as the import of the backend does: the fixture has reset Dynamo
    garbage.uncollected_while_traced()
    for fails in (False, True):
        seen.clear()

        def g(x, y):
            x = f(x, y)
            return x.reshape(7) if fails else x

        with pytest.raises(Exception) if fails else contextlib.nullcontext():
            torch.compile(g, backend="cermet", fullgraph=True)(*operands())
        assert seen and not any(seen) and gc.isenabled(), f"collected: {seen}, afterwards: {gc.isenabled()}"


def test_a_trace_that_began_before_anybody_listened_leaves_the_collector_as_it_is():
    garbage.uncollected_while_traced()
    callback_handler.run_end_callbacks(CallbackArgs(CallbackTrigger.DYNAMO, ""))
    assert gc.isenabled()


@contextlib.contextmanager
def another_that_compiles():
    inside, leave = threading.Event(), threading.Event()

    def compiles():
        with garbage.uncollected():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=compiles)
    thread.start()
    inside.wait()
    try:
        yield
    finally:
        leave.set()
        thread.join()


def test_a_program_that_never_collects_is_left_alone_and_the_last_thread_begins_again():
    try:
        gc.disable()
        with garbage.uncollected():
            pass
        assert not gc.isenabled(), "collects, expected as it was"
    finally:
        gc.enable()
    with another_that_compiles():
        with pytest.raises(ValueError), garbage.uncollected():
            raise ValueError
        assert not gc.isenabled(), "collects beside a thread that compiles"
    assert gc.isenabled(), "does not collect behind the last thread"


@torch._dynamo.config.patch(run_gc_after_compile=True)
def test_what_a_first_step_was_given_goes_with_its_caller():
    """Without a collection that anybody asks for: what Dynamo caught holds the frames of all its callers."""
    garbage.uncollected_while_traced()  # as a process begins: behind a reset, what the collector met twice while
    model = tiny("Llama")  # Dynamo traced stays for long
    call = torch.compile(model, backend="cermet")

    def step():
        given = words(2, 8)
        call(input_ids=given, labels=given).loss.backward()
        return weakref.ref(given)

    thresholds = gc.get_threshold()
    gc.unfreeze()
    gc.set_threshold(700, 10, 10)  # Python's own
    try:
        held = step()
        made = [[] for _ in range(1000)]  # as a program does
        assert held() is None and made
    finally:
        gc.set_threshold(*thresholds)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_process_that_was_forked_beside_a_compiling_thread_collects():
    with another_that_compiles():
        child = os.fork()
        if not child:
            os._exit(0 if gc.isenabled() else 1)
    assert os.waitpid(child, 0)[1] == 0, "the forked process does not collect"


def test_graphs_are_printed_for_who_asks_alone(monkeypatch, capsys):
    monkeypatch.setattr(logs.trace_log, "handlers", [])  # torch has one, which goes when it finds nothing to write to
    module = fx.symbolic_trace(lambda x: x + 1)
    text = module.print_readable(print_output=False)
    assert "add" in text
    with economy.unprinted():
        assert module.print_readable(print_output=False) == ""
        module.print_readable()
    assert "add" in capsys.readouterr().out
    assert module.print_readable(print_output=False) == text


def test_graphs_are_printed_where_torch_logs_them(caplog):
    torch._logging.set_logs(aot_graphs=True)
    try:
        with economy.unprinted():
            assert "add" in fx.symbolic_trace(lambda x: x + 1).print_readable(print_output=False)
    finally:
        torch._logging.set_logs()


def merged(build) -> list[str]:
    """The calls of a graph of one operand, a 2 x 2 tensor, behind merging."""
    graph = fx.Graph()
    operand = graph.placeholder("x")
    mode = torch._subclasses.FakeTensorMode()
    operand.meta["val"] = mode.from_tensor(torch.zeros(2, 2))

    def call(target, *args):
        node = graph.call_function(target, args)
        values = torch.fx.map_arg(args, lambda each: each.meta["val"])
        with mode:
            node.meta["val"] = target(*values)
        return node

    graph.output(build(call, operand))
    module = fx.GraphModule(torch.nn.Module(), graph)
    merge(module)
    module.graph.lint()
    return [str(node.target).split(".")[1] for node in graph.nodes if node.op == "call_function"]


ATEN = torch.ops.aten


def test_equal_calls_become_one():
    def build(call, x):
        ends = [call(ATEN.exp.default, call(ATEN.add.Tensor, x, 1)) for _ in range(2)]
        return call(ATEN.mul.Tensor, *ends)

    assert merged(build) == ["add", "exp", "mul"]


def test_numbers_of_other_types_are_not_equal():
    def build(call, x):
        return call(ATEN.mul.Tensor, call(ATEN.add.Tensor, x, 1), call(ATEN.add.Tensor, x, 1.0))

    assert merged(build) == ["add", "add", "mul"]


def test_what_is_returned_keeps_its_memory():
    assert merged(lambda call, x: (call(ATEN.add.Tensor, x, 1), call(ATEN.add.Tensor, x, 1))) == ["add", "add"]


def test_random_numbers_stay_apart():
    def build(call, x):
        return call(ATEN.add.Tensor, call(ATEN.rand_like.default, x), call(ATEN.rand_like.default, x))

    assert merged(build) == ["rand_like", "rand_like", "add"]


def test_nothing_is_the_same_behind_a_write():
    def build(call, x):
        before = call(ATEN.exp.default, x)
        call(ATEN.copy_.default, x, call(ATEN.add.Tensor, x, 1))
        return call(ATEN.mul.Tensor, before, call(ATEN.exp.default, x))

    assert merged(build) == ["exp", "add", "copy_", "exp", "mul"]


def test_a_user_may_have_torchs_own_merging_off_or_on():
    before = cermet.counters()["fallbacks"]
    with config.patch(cse=True):
        operands = [torch.randn(8, 8, requires_grad=True) for _ in range(2)]
        torch.compile(f, backend="cermet", options={"remainder": "aot"})(*operands).backward()
        assert config.cse and cermet.counters()["fallbacks"] == before


# --- What stays one call ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode, rank", [("nearest", 1), ("nearest-exact", 2), ("linear", 1), ("bilinear", 2),
                                        ("bicubic", 2), ("trilinear", 3)])
def test_what_resizes_and_its_gradient_are_a_call_each(mode, rank, device, monkeypatch):
    graphs, write = [], straight._write
    monkeypatch.setattr(straight, "_write", lambda module, *others: (graphs.append(module), write(module, *others))[1])

    def function(x):
        return torch.nn.functional.interpolate(x.exp(), scale_factor=2.0, mode=mode).square()

    x = torch.randn(2, 3, *(5,) * rank, device=device, requires_grad=True)
    mine, theirs = torch.compile(function, backend="cermet", options={"remainder": "aot"})(x), function(x)
    torch.testing.assert_close(mine, theirs)
    for one, other in zip(*(torch.autograd.grad(each.sum(), x) for each in (mine, theirs))):
        torch.testing.assert_close(one, other)
    targets = [str(node.target) for graph in graphs for node in graph.graph.nodes]
    assert sum("upsample" in target for target in targets) == 2 and not any("index" in target for target in targets)


@pytest.mark.parametrize("asked", ["sizes", "factors"])
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_sizes_that_are_symbols_are_resized(mode, asked):
    def function(x):
        sizes = {"size": (2 * x.shape[2], 3 * x.shape[3])} if asked == "sizes" else {"scale_factor": (2.0, 3.0)}
        return torch.nn.functional.interpolate(x.exp(), mode=mode, **sizes).square()

    call = torch.compile(function, backend="cermet", dynamic=True, options={"remainder": "aot", "strict": True})
    before = cermet.counters()["graphs"]
    for size in (5, 6, 9):
        x = torch.randn(2, 3, size, size + 1, dtype=torch.float64, requires_grad=True)
        mine, theirs = call(x), function(x)
        torch.testing.assert_close(mine, theirs)
        for one, other in zip(*(torch.autograd.grad(each.sum(), x) for each in (mine, theirs))):
            torch.testing.assert_close(one, other)
    assert cermet.counters()["graphs"] == before + 1


def test_what_resizes_is_spelled_out_for_others():
    def spelled():
        packets = (torch.ops.aten.upsample_nearest2d, torch.ops.aten.upsample_bicubic2d)
        return [dict(call.py_kernels) for packet in packets for call in (packet.default, packet.vec)]

    before = spelled()
    with economy.resized_at_once():
        assert all(kernels != theirs for kernels, theirs in zip(spelled(), before))
    assert spelled() == before


def test_numbers_that_each_layer_writes_are_one():
    def function(x):
        for _ in range(3):
            table = torch.zeros(4, 4, dtype=torch.int64)
            table[0, :] = 7
            table[1, 0] = 8
            x = x + table.sum()
        return x

    graph = make_fx(torch.func.functionalize(function), tracing_mode="fake")(torch.randn(2))
    merge(graph)
    graph.graph.lint()
    graph.recompile()
    held = [str(node.target) for node in graph.graph.nodes if node.op == "get_attr"]
    sums = [node for node in graph.graph.nodes if node.target is torch.ops.aten.sum.default]
    assert len(held) <= 2 and len(sums) == 1, graph.code
    x = torch.randn(2)
    torch.testing.assert_close(graph(x), function(x))
