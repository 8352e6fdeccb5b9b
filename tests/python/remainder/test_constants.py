"""What a program computes of nothing on the CPU, and a GPU reads, is there before the first call."""

from __future__ import annotations

import pytest
import torch
from torch._functorch._aot_autograd import autograd_cache
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import cermet
from cermet.remainder import pickling
from cermet.remainder.aten import constants

_aten = torch.ops.aten


def positions(n):
    """Each word's place among those before and behind it, as a table of biases has them; made on the CPU."""
    place = torch.arange(n)
    apart = place[:, None] - place[None, :]
    apart[0] += 1
    apart[:, 0] = 2
    return apart.clamp(-3, 3) + 3


def biased(table, scores):
    found = positions(scores.shape[-1]).view(-1)
    return scores + _aten.index.Tensor(table, [found]).view(scores.shape[-1], -1, 2).permute(2, 0, 1)


def graph(function, *given):
    """A graph as it is traced where there is a GPU."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        given = [torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device="cuda") for each in given]
        return make_fx(torch.func.functionalize(function))(*given)


def held(function, *given):
    """The graph with what it holds, its calls, and whether it gives the same."""
    module = graph(function, *given)
    times = constants.hold(module)
    module.graph.lint()
    module.recompile()
    names = [node.target for node in module.graph.nodes if node.op == "get_attr"]
    place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for node in module.graph.nodes if place.type == "cpu" else ():  # what is there only with a GPU
        node.kwargs = {name: value for name, value in node.kwargs.items() if name != "device"}
    module.recompile()
    mine, theirs = module(*(each.to(place) for each in given)), function(*(each.to(place) for each in given))
    torch.testing.assert_close(mine, theirs)
    calls = [node.target for node in module.graph.nodes if node.op == "call_function"]
    return times, [getattr(module, name) for name in names], calls


def test_what_a_gpu_reads_is_held():
    times, tensors, calls = held(biased, torch.randn(7, 2), torch.randn(2, 8, 8))
    assert times == len(tensors) == 1 and torch.equal(tensors[0].cpu(), positions(8).view(-1))
    assert tensors[0].is_cuda == torch.cuda.is_available()
    assert not {_aten.arange.default, _aten.select_scatter.default, _aten.clamp.default} & set(calls)


def test_layers_that_make_it_again():
    def layers(table, scores):
        for _ in range(3):
            scores = biased(table, scores)
        return scores

    assert held(layers, torch.randn(7, 2), torch.randn(2, 8, 8))[0] == 1


@torch.library.custom_op("cermet_tests::cut", mutates_args=())
def cut(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The host reads the lengths."""
    assert lengths.device.type == "cpu"
    return x[: lengths.numel()].clone()


@cut.register_fake
def _(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return x.new_empty((lengths.numel(), *x.shape[1:]))


def test_a_call_that_wants_the_cpu_s_gets_it():
    times, tensors, _ = held(lambda x: cut(x, torch.arange(3, 0, -1)) * 2, torch.randn(5, 2))
    assert times == 1 and not tensors[0].is_cuda


def test_a_number_stays_an_argument():
    def scaled(x):
        return x * (torch.tensor(3.0) / torch.arange(5).sum())

    times, tensors, calls = held(scaled, torch.randn(4))
    assert times == 1 and tensors[0].item() == pytest.approx(0.3) and not tensors[0].is_cuda
    assert calls == [_aten.mul.Tensor]


def test_what_changes_is_made_each_time():
    """Random numbers, what is made of an input, and what only the CPU reads."""
    def drawn(table):
        return _aten.index.Tensor(table, [torch.randint(7, (5,)).clamp(2, 2)])

    assert held(drawn, torch.randn(7, 2))[0] == 0

    def counted(table):
        return table * 2, torch.arange(5) + 1

    assert held(counted, torch.randn(7, 2))[0] == 0


def test_what_is_returned_is_a_caller_s(monkeypatch):
    def moved(x):
        table = torch.arange(5).to(x.device)
        return x * torch.arange(4).to(x.device), table.view(1, 5)

    monkeypatch.setattr(constants, "_is_there", lambda device: True)
    monkeypatch.setattr(constants._Holder, "held", lambda holder, node, device: holder.made.setdefault(node, node))
    module = graph(moved, torch.randn(4))
    assert constants.hold(module) == 1


def test_a_large_one_is_made_each_time(monkeypatch):
    monkeypatch.setattr(constants, "_LARGEST", 64 * 8 - 1)
    assert held(biased, torch.randn(7, 2), torch.randn(2, 8, 8))[0] == 0


def one() -> int:
    return int((torch.zeros(1) + 1).item())


class Copied:
    """Which runs calls of torch's when it is kept and when it is there again, as a GPU's tensor does."""

    def __reduce__(self):
        assert one() == 1
        return one, ()


def test_what_is_held_is_kept_whatever_mode_is_on():
    with FakeTensorMode():
        assert pickling.loads(pickling.dumps({"c": Copied()})) == {"c": 1}
        with pickling.outside_of_modes():
            assert autograd_cache.pickle.loads(autograd_cache.pickle.dumps(Copied())) == 1


def copied(monkeypatch):
    """Each tensor is kept as a GPU's."""
    theirs = torch.Tensor.__reduce_ex__

    def reduced(tensor, protocol):
        assert isinstance(tensor, FakeTensor) or one() == 1
        return theirs(tensor, protocol)

    monkeypatch.setattr(torch.Tensor, "__reduce_ex__", reduced)


@pytest.mark.parametrize("grad", [False, True], ids=["infers", "trains"])
def test_a_second_compile_has_what_the_first_one_held(device, grad, monkeypatch):
    def slopes(table, scores):
        return biased(table, scores) * torch.tensor([[[0.5]], [[0.25]]], device=scores.device)

    table = torch.randn(11, 2, device=device, requires_grad=grad)
    scores = torch.randn(2, 8, 8, device=device, requires_grad=grad)
    copied(monkeypatch)
    found, counts = [], torch._dynamo.utils.counters["aot_autograd"]
    for _ in range(2):
        torch._dynamo.reset()
        counts.clear()
        before = cermet.counters()["cache_bypasses"]
        result = torch.compile(slopes, backend="cermet", options={"strict": True})(table, scores)
        found.append([result, *(torch.autograd.grad(result.square().sum(), (table, scores)) if grad else ())])
        assert cermet.counters()["cache_bypasses"] == before
    assert counts["autograd_cache_hit"] == 1
    torch.testing.assert_close(*found)
    right = slopes(table, scores)
    gradients = torch.autograd.grad(right.square().sum(), (table, scores)) if grad else ()
    torch.testing.assert_close(found[0], [right, *gradients])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_step_does_not_wait():
    """A model that makes a table of indices on the CPU in each of its layers, and moves another there."""
    def step(table, scores):
        for _ in range(2):
            scores = biased(table, scores)
        return torch.tanh(scores * torch.linspace(0, 1, 8).to("cuda")).sum()

    table, scores = (torch.randn(size, device="cuda", requires_grad=True) for size in ((7, 2), (2, 8, 8)))
    compiled = torch.compile(step, backend="cermet")
    mine = torch.autograd.grad(compiled(table, scores), (table, scores))
    theirs = torch.autograd.grad(step(table, scores), (table, scores))
    torch.testing.assert_close(mine, theirs)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        torch.autograd.grad(compiled(table, scores), (table, scores))
        torch.cuda.synchronize()
    assert not [event.key for event in profile.key_averages() if "HtoD" in event.key]
