"""Views of views that are made at once: the same numbers in the same memory, whatever strides a value has by then."""

from __future__ import annotations

import random

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from cermet.remainder import views
from cermet.remainder.straight import StraightLine


def line(function, *given, mode="fake"):
    return StraightLine(make_fx(function, tracing_mode=mode)(*given))


def count(written, wanted=None):
    """The lines that call something, or this, but for what asks how a value lies."""
    called = [text.strip().split(" = ")[-1].split("(")[0] for text in written.source.splitlines() if "(" in text]
    found = [written._constants.get(name) for name in called]
    return sum(each is wanted if wanted is not None else each not in (None, views.laid) for each in found)


def equal(written, function, *given):
    mine, theirs = written(list(given)), function(*given)
    assert mine.shape == theirs.shape and mine.dtype == theirs.dtype and torch.equal(mine, theirs)


def heads(x):
    return x.view(2, 6, 4, 8).transpose(1, 2).reshape(8, 6, 8).transpose(1, 2) * 1


def columns(x):
    return x.t().unsqueeze(0).expand(3, 32, 12).select(0, 1)[4:20:2].permute(1, 0) * 1


def parts(x):
    one, other = x.view(2, 6, 32).split([8, 24], dim=-1)
    return one.flatten(0, 1) * other.unflatten(-1, (3, 8)).unbind(2)[1].reshape(12, 8)


@pytest.mark.parametrize("function, made, others", [(heads, 2, 2), (columns, 1, 1), (parts, 2, 1)])
def test_a_chain_is_one_call(function, made, others):
    x = torch.randn(12, 32)
    written = line(function, x)
    assert count(written, views.viewed) == made and count(written) == made + others
    equal(written, function, x)


def test_views_of_a_result():
    """What a backward is given is looked at by the forward, too."""
    x = torch.randn(12, 32)
    written = line(lambda x: (made := x * 2, made.view(2, 6, 32).transpose(0, 1).sum(0)), x)
    assert count(written) == count(written, views.viewed) + 2 == 3
    made, summed = written([x])
    assert torch.equal(made, x * 2) and torch.equal(summed, (x * 2).view(2, 6, 32).sum(1))


def test_what_leads_back_is_no_call():
    x = torch.randn(4, 6)
    written = line(lambda x: x.t().t().view(24).view(4, 6) * 2, x)
    assert count(written) == 2
    equal(written, lambda x: x * 2, x)


@pytest.mark.parametrize("seed", range(40))
def test_random_chains(seed):
    """In each order of memory, of an input that begins in the middle of its memory, and of what is made of it."""
    choice = random.Random(seed)
    steps = [choice.randrange(9) for _ in range(7)]
    numbers = [choice.randrange(64) for _ in steps]

    def chain(x):
        for step, number in zip(steps, numbers):
            axis = number % max(x.dim(), 1)
            if step == 0 and x.dim() > 1:
                x = x.transpose(axis, (axis + 1) % x.dim())
            elif step == 1:
                x = x.reshape(-1)
            elif step == 2 and x.dim():
                x = x.unflatten(axis, (-1, 2)) if x.shape[axis] % 2 == 0 and x.shape[axis] else x.unsqueeze(0)
            elif step == 3 and x.dim() and x.shape[axis]:
                x = x.narrow(axis, number % x.shape[axis], (x.shape[axis] + 1 - number % x.shape[axis]) // 2)
            elif step == 4:
                x = x.expand(2, *x.shape)
            elif step == 5 and x.dim() and x.shape[axis]:
                x = x.select(axis, -1)
            elif step == 6 and x.dim() and x.shape[axis] > 1:
                x = x.split(x.shape[axis] // 2, axis)[1]
            elif step == 7 and x.dim():
                x = torch.as_strided(x, (2, 2), (1, 0), x.storage_offset()) if x.numel() > 1 else x.squeeze()
            elif step == 8:
                x = x.t() if x.dim() == 2 else x.squeeze()
        return x

    def function(x):
        return chain(x) + 1, chain(x * 2).clone(), chain(x.transpose(0, 1)) * 3

    for x in (torch.randn(4, 3, 8), torch.randn(8, 3, 6)[2:6].transpose(1, 2)[:, :, :2], torch.randn(4, 0, 2)):
        for mine, theirs in zip(line(function, x)([x]), function(x)):
            assert mine.shape == theirs.shape and torch.equal(mine, theirs)


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x.t().contiguous().t(),
        lambda x: torch.cat([x, x], 1)[:, : x.shape[1]],
        lambda x: x[:, :1].expand_as(x),
    ],
)
def test_strides_that_tracing_did_not_see(other):
    x = torch.randn(12, 32)
    written = line(heads, x)
    given = other(x)
    kept = given.clone()
    equal(written, heads, given)
    assert torch.equal(given, kept)


def test_laid():
    x = torch.randn(3, 1, 4)
    for strange in (x.as_strided((3, 1, 4), (4, 77, 1)), torch.randn(0, 5).t(), x.transpose(0, 2)):
        wanted = torch.empty(strange.shape).stride()
        assert views.laid(strange, wanted).stride() == wanted and torch.equal(views.laid(strange, wanted), strange)
    assert views.laid(x.as_strided((3, 1, 4), (4, 77, 1)), (4, 4, 1)).data_ptr() == x.data_ptr()


def test_a_result_is_of_the_program_s_own_call():
    """Autograd knows of whom a result is a view."""
    x = torch.randn(4, 6)
    written = line(lambda x: x.view(2, 12).t(), x)
    result = written([x])
    assert torch.equal(result, x.view(2, 12).t())
    version = x._version
    result.add_(1)
    assert x._version == version + 1


def test_what_is_written_is_seen_by_all_that_look():
    def function(cache, rows):
        seen = cache.view(2, 3, 8).transpose(0, 1)
        seen.select(0, 1).copy_(rows)
        return cache.view(6, 8)[3:].sum(1) + seen.sum((1, 2))

    cache, rows = torch.randn(6, 8), torch.randn(2, 8)
    written = line(function, cache, rows)
    mine, theirs = cache.clone(), cache.clone()
    version = mine._version
    assert torch.equal(written([mine, rows]), function(theirs, rows))
    assert torch.equal(mine, theirs) and mine._version > version


@pytest.mark.parametrize("function", [
    lambda x: torch.view_as_real(torch.view_as_complex(x.view(-1, 2)).conj().resolve_conj()) + 1,
    lambda x: x.view(torch.int16).view(8, 2, 4).transpose(0, 1).view(torch.float32) + 1,
    lambda x: torch.real(x.cfloat().view(-1, 4).t()) + 1,
])
def test_other_types_of_the_same_bytes(function):
    x = torch.randn(8, 4)
    equal(line(function, x), function, x)


def test_symbolic_sizes_are_left_to_torch():
    x = torch.randn(6, 8)

    def function(x):
        return x.view(-1, 2, 4).transpose(0, 1) * 2

    written = line(function, x, mode="symbolic")
    assert not count(written, views.viewed)
    equal(written, function, x)


def test_torch_without_the_call(monkeypatch):
    monkeypatch.setattr(views, "viewed", None)
    x = torch.randn(12, 32)
    equal(line(heads, x), heads, x)


@pytest.mark.parametrize("unpack", [torch.clone, lambda x: x.t().contiguous().t() if x.dim() == 2 else x.clone()])
def test_hooks_of_saved_tensors_may_lay_them_otherwise(unpack, device):
    torch.manual_seed(3)
    x, w = (torch.randn(size, device=device, requires_grad=True) for size in ((2, 6, 32), (32, 32)))

    def loss(x, w):
        heads = (x @ w).view(2, 6, 4, 8).transpose(1, 2)
        return (torch.tanh(heads @ heads.transpose(-1, -2)) @ heads).transpose(1, 2).reshape(2, 6, 32).square().sum()

    def gradients(call):
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x, unpack):
            return torch.autograd.grad(call(x, w), (x, w))

    mine, theirs = gradients(torch.compile(loss, backend="cermet")), gradients(loss)
    for one, other in zip(mine, theirs):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_a_cache_keeps_how_values_are_seen():
    x = torch.randn(12, 32)
    written = line(heads, x)
    written.prepare_for_serialization()
    written.post_compile([], None, {})
    equal(written, heads, x)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize(
    "of", [lambda y: y, lambda y: y.transpose(0, 1), lambda y: y[:, 1:]], ids=["all", "turned", "part"]
)
def test_a_result_may_be_written(of, dynamic):
    """What a product gives is seen as what a program returns: for autograd no view."""
    torch.manual_seed(0)
    module = torch.nn.Linear(8, 6)
    call = torch.compile(lambda x: of(module(x)), backend="cermet", dynamic=dynamic)
    for rows in (4, 5) if dynamic else (4,):
        x, gradients = torch.randn(rows, 3, 8, requires_grad=True), []
        for each in (call, lambda x: of(module(x))):
            x.grad = None
            y = each(x)
            y *= 2
            y.sum().backward()
            gradients.append((y.detach(), x.grad))
        assert all(torch.allclose(*pair) for pair in zip(*gradients))
    with torch.no_grad():
        y = call(x)
        y += 1
        assert torch.allclose(y, of(module(x)) + 1)
