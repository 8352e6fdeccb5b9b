"""Convolutions of long windows are products, and give what convolutions give."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from truth import relative, spacing

from cermet.remainder.aten import long_windows

BATCH, GROUPS, INNER, OUTER, LENGTH, WINDOW = 2, 3, 8, 16, 75, 64
_aten = torch.ops.aten


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    monkeypatch.setattr(long_windows, "_DEVICES", {"cpu", "cuda"})


def forward(padding=WINDOW // 2, bias=True, stride=1, dilation=1, groups=GROUPS):
    def convolved(x, weight, biases):
        given = biases if bias else None
        return _aten.convolution(x, weight, given, [stride], [padding], [dilation], False, [0], groups)

    return convolved


def backward(padding=WINDOW // 2, wanted=(True, True, True)):
    def gradients(x, weight, biases):
        sizes = len(x), len(weight), x.shape[2] + 2 * padding - WINDOW + 1
        places = torch.arange(sizes[0] * sizes[1] * sizes[2], device=x.device).to(torch.float64)
        cotangent = torch.sin(places * 3).view(sizes).to(x.dtype)
        found = _aten.convolution_backward(
            cotangent, x, weight, [len(biases)], [1], [padding], [1], False, [0], GROUPS, list(wanted)
        )
        return tuple(each for each, is_wanted in zip(found, wanted) if is_wanted)

    return gradients


def operands(dtype=torch.bfloat16, groups=GROUPS, inner=INNER, window=WINDOW, turned=False, device="cpu"):
    x = torch.randn(BATCH, groups * inner, LENGTH, device=device).to(dtype)
    x = x.transpose(1, 2).contiguous().transpose(1, 2) if turned else x
    weight = torch.randn(groups * OUTER, inner, window, device=device).to(dtype) / 20
    return x, weight, torch.randn(groups * OUTER, device=device).to(dtype)


def rewritten(function, given, expected):
    module = make_fx(function, tracing_mode="fake")(*given)
    assert long_windows.spell(module.graph) == expected
    module.graph.lint()
    module.recompile()
    return module


def assert_as_good(module, function, given):
    def tuple_of(value):
        return value if isinstance(value, tuple) else (value,)

    wide = tuple_of(function(*(each.double() for each in given)))
    for mine, theirs, true in zip(tuple_of(module(*given)), tuple_of(function(*given)), wide, strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape and mine.stride() == theirs.stride()
        errors = [((each.double() - true).norm() / true.norm()).item() for each in (mine, theirs)]
        assert errors[0] <= 1.05 * errors[1] + torch.finfo(mine.dtype).eps / 8, errors


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("padding", [0, 31, WINDOW // 2, WINDOW - 1])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_a_convolution(bias, turned, padding, dtype, device):
    function, given = forward(padding, bias), operands(dtype, turned=turned, device=device)
    module = rewritten(function, given, 1)
    assert not any(node.target is _aten.convolution.default for node in module.graph.nodes)
    assert_as_good(module, function, given)


@pytest.mark.parametrize("padding", [0, WINDOW // 2, WINDOW - 1])
@pytest.mark.parametrize("wanted", [(True, True, True), (True, True, False), (True, False, False)])
def test_its_gradients(wanted, padding, device):
    function, given = backward(padding, wanted), operands(device=device)
    module = rewritten(function, given, 1)
    calls = [node for node in module.graph.nodes if node.target is _aten.convolution_backward.default]
    assert [node.args[-1] for node in calls] == ([[False, *wanted[1:]]] if any(wanted[1:]) else [])
    assert_as_good(module, function, given)


def gradients(layer, given, weight):
    result = layer(given)
    wide = result.to(torch.promote_types(result.dtype, torch.float32))
    return torch.autograd.grad(wide.square().sum(), [given, weight])


def test_a_compiled_convolution(ran):
    x, weight, bias = operands()
    layer = torch.nn.Conv1d(GROUPS * INNER, GROUPS * OUTER, WINDOW, padding=WINDOW // 2, groups=GROUPS).bfloat16()
    given = x.requires_grad_()
    compiled = torch.compile(layer, backend="cermet", options={"remainder": "aot", "strict": True})
    mine, theirs = (gradients(each, given, layer.weight) for each in (compiled, layer))
    exact = copy.deepcopy(layer).double()
    true = gradients(exact, given.detach().double().requires_grad_(), exact.weight)
    for ours, eager, wanted in zip(mine, theirs, true, strict=True):
        assert relative(ours, wanted) <= 2 * relative(eager, wanted) + spacing(torch.bfloat16)
    products, convolutions = (
        sum(str(node.target) == name for graph in ran for node in graph.nodes)
        for name in ("aten.bmm.default", "aten.convolution.default")
    )
    assert (products, convolutions) == (2, 0)


def test_without_a_gradient_of_what_is_convolved_it_stays():
    module = rewritten(backward(wanted=(False, True, True)), operands(), 0)
    assert sum(node.target is _aten.convolution_backward.default for node in module.graph.nodes) == 1


@pytest.mark.parametrize(
    ("form", "given"),
    [
        ({}, {"window": 63}),
        ({"stride": 2}, {}),
        ({"dilation": 2, "padding": 64}, {}),
        ({"padding": WINDOW}, {}),
        ({"groups": 1}, {"groups": 1}),
        ({}, {"inner": 12}),
        ({}, {"dtype": torch.float32}),
    ],
    ids=["a short window", "steps", "gaps", "much padding", "one group", "12 channels", "f32"],
)
def test_others_stay(form, given):
    rewritten(forward(**form), operands(**given), 0)


def test_groups_that_would_take_much_memory_are_products_by_themselves(monkeypatch):
    given = operands(groups=5)
    form = long_windows._form(*given[:2], WINDOW // 2, 5, INNER, OUTER)
    monkeypatch.setattr(long_windows, "_LARGEST", 2 * form.bytes)
    function = forward(groups=5)
    module = rewritten(function, given, 1)
    assert sum(node.target is _aten.bmm.default for node in module.graph.nodes) == 3
    assert_as_good(module, function, given)
    monkeypatch.setattr(long_windows, "_LARGEST", form.bytes - 1)
    rewritten(function, given, 0)
