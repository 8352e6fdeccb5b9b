"""Group norms behind autograd are kernels of the engine's, forward and backward, with what is around them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.fx as fx
import torch.nn.functional as F
from test_clusters_behind_autograd import called as called_in
from test_clusters_behind_autograd import launches
from truth import EVERY_SEED, MEDIAN_SEEDS, Float64, double, relative
from truth import assert_far_no_more_often_than_eager, assert_none_is_far_from_eager, far_from_eager

import cermet
from cermet.ops import group_norms as texts
from cermet.ops import preparation, regions
from cermet.remainder import clusters

OPTIONS = {"remainder": "aot", "strict": True}
NORMS = {"aten.native_group_norm.default", "aten.native_group_norm_backward.default"}


def called(graphs: list[fx.Graph]) -> set[str]:
    return set().union(*map(called_in, graphs))


def cotangent(y: torch.Tensor) -> torch.Tensor:
    return torch.cos(torch.arange(y.numel(), dtype=y.dtype) % 63).reshape(y.shape)


def step(function: Callable[..., torch.Tensor], given: list[Any], wanted: list[bool]) -> dict[str, torch.Tensor]:
    """The result and the gradients that are wanted, all of them for one cotangent."""
    leaves = [
        each.detach().clone(memory_format=torch.preserve_format).requires_grad_(wants) if each is not None else None
        for each, wants in zip(given, wanted, strict=True)
    ]
    y = function(*leaves)
    y.backward(cotangent(y))
    places = [place for place, each in enumerate(leaves) if each is not None and each.requires_grad]
    return {"y": y.detach(), **{f"gradient {place}": leaves[place].grad for place in places}}


def compare(
    function: Callable[..., torch.Tensor],
    make: Callable[[], list[Any]],
    dtype: torch.dtype,
    wanted: list[bool] | None = None,
    dynamic: bool = False,
    seeds: int = EVERY_SEED,
) -> None:
    """By the rule for numbers; results and gradients have eager's types and strides."""
    call = torch.compile(function, backend="cermet", dynamic=dynamic, options=OPTIONS)
    before = cermet.counters()["fallbacks"]

    def errors(seeds: int) -> list[dict[str, list[float]]]:
        found: list[dict[str, list[float]]] = [{}, {}]
        for seed in range(seeds):
            torch.manual_seed(seed)
            given = make()
            wants = wanted or [True] * len(given)
            with Float64():
                truth = step(function, [None if each is None else each.double() for each in given], wants)
            mine, eager = step(call, given, wants), step(function, given, wants)
            for name, value in mine.items():
                assert (value.dtype, value.stride()) == (eager[name].dtype, eager[name].stride()), name
                for of, each in zip(found, (value, eager[name])):
                    of.setdefault(name, []).append(relative(each, truth[name]))
        return found

    if far_from_eager(*errors(seeds), dtype):  # sums of few numbers cancel: whether it is luck, more seeds tell
        assert_far_no_more_often_than_eager(*errors(MEDIAN_SEEDS), dtype)
    assert cermet.counters()["fallbacks"] == before


def operands(*shape: int, dtype: torch.dtype, affine: str = "wb", mean: float = 0.0) -> list[Any]:
    x = (torch.randn(*shape) * 2 + mean).to(dtype)
    parameters = [torch.randn(shape[1]).to(dtype) if each in affine else None for each in "wb"]
    return [x, *parameters]


SHAPES = {
    "picture": (3, 12, 5, 7),
    "line": (2, 6, 37),
    "volume": (2, 8, 3, 2, 5),
    "one picture": (1, 4, 9, 9),
    "long": (2, 8, 96, 96),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])
@pytest.mark.parametrize("affine", ["wb", "w", ""], ids=lambda affine: affine or "plain")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_numbers_and_gradients(shape, affine, dtype, ran):
    groups = {12: 3, 6: 2, 8: 4, 4: 1}[shape[1]]

    def function(x, weight, bias):
        return F.silu(F.group_norm(x, groups, weight, bias, 1e-4))

    compare(function, lambda: operands(*shape, dtype=dtype, affine=affine, mean=1.0), dtype)
    assert len(ran) == 2 and not NORMS & called(ran), called(ran)


@pytest.mark.parametrize("groups", [1, 3, 12])
def test_a_group_of_one_channel_and_one_of_all(groups, ran):
    def make():
        return operands(3, 12, 5, 7, dtype=torch.float32)

    compare(lambda *given: F.group_norm(given[0], groups, *given[1:]), make, torch.float32)
    assert not NORMS & called(ran)


@pytest.mark.parametrize("wanted", [each for each in itertools.product((True, False), repeat=3) if any(each)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_only_gradients_that_are_wanted_are_made(wanted, dtype, ran):
    def function(x, weight, bias):
        return F.group_norm(x, 4, weight, bias)

    compare(function, lambda: operands(3, 12, 5, 7, dtype=dtype), dtype, list(wanted))
    assert not NORMS & called(ran)
    x, weight, bias = wanted
    assert launches(ran[1]) == 1 + 2 * x + (weight or bias), "sums, those of groups and the gradient of x, parameters"


def test_parameters_of_another_type_than_x(ran):
    def make():
        x, *parameters = operands(3, 12, 5, 7, dtype=torch.bfloat16)
        return [x, *(each.float() for each in parameters)]

    compare(lambda *given: F.group_norm(given[0], 4, *given[1:]), make, torch.bfloat16)
    assert not NORMS & called(ran)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_rows_that_are_a_symbol(dtype, ran):
    function = lambda x, weight, bias: F.silu(F.group_norm(x, 4, weight, bias))  # noqa: E731
    call = torch.compile(function, backend="cermet", dynamic=True, options=OPTIONS)
    for rows in (3, 5, 2):
        given = operands(rows, 8, 6, 6, dtype=dtype)
        torch._dynamo.mark_dynamic(given[0], 0)
        for place in (1, 2, 3):
            torch._dynamo.mark_static(given[0], place)
        leaves = [each.requires_grad_() for each in given]
        with Float64():
            truth = step(function, [each.detach().double() for each in given], [True] * 3)
        eager = step(function, given, [True] * 3)
        y = call(*leaves)
        y.backward(cotangent(y.detach()))
        mine = {"y": y.detach()} | {f"gradient {place}": each.grad for place, each in enumerate(leaves)}
        errors = [{name: [relative(found[name], truth[name])] for name in truth} for found in (mine, eager)]
        assert_none_is_far_from_eager(*errors, dtype)
    assert len(ran) == 2 and not NORMS & called(ran)


COTANGENTS = {
    "of a sum": lambda y: y.sum() * 2,
    "transposed": lambda y: (y.transpose(-1, -2) * torch.arange(5.0, dtype=y.dtype)).sum(),
    "of a slice": lambda y: (y[:, 1:7, ::2] ** 2).sum(),
}


@pytest.mark.parametrize("loss", COTANGENTS.values(), ids=COTANGENTS)
def test_cotangents_that_lie_in_memory_in_another_way(loss, ran):
    def function(x, weight, bias):
        return loss(F.group_norm(x, 4, weight, bias))

    compare(function, lambda: operands(3, 12, 5, 5, dtype=torch.float32), torch.float32)
    assert not NORMS & called(ran)


def channels_last() -> list[Any]:
    x, *parameters = operands(3, 12, 5, 7, dtype=torch.float32)
    return [x.contiguous(memory_format=torch.channels_last), *parameters]


DECLINED = {
    "a number for each channel": lambda: operands(5, 12, dtype=torch.float32),
    "channels of one element": lambda: operands(5, 12, 1, 1, dtype=torch.float32),
    "f64": lambda: operands(3, 12, 5, 7, dtype=torch.float64),
    "channels last": channels_last,
    "no rows": lambda: operands(0, 12, 5, 7, dtype=torch.float32),
}


@pytest.mark.parametrize("make", DECLINED.values(), ids=DECLINED)
def test_what_no_kernel_takes_stays(make, ran):
    compare(lambda *given: F.group_norm(given[0], 4, *given[1:]), make, torch.float32, seeds=2)
    assert NORMS <= called(ran)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_what_is_around_a_norm_joins_its_kernels(dtype, ran):
    """Forward: statistics; norm and activation. Backward: the activation's gradient, of a norm that is made again, with
    the sums of channels; those of groups; the gradient of x; parameters."""
    def function(x, weight, bias):
        return F.silu(F.group_norm(x, 8, weight, bias))

    compare(function, lambda: operands(2, 32, 16, 16, dtype=dtype), dtype)
    forward, backward = ran
    assert not {name for name in called(ran) if "silu" in name}
    assert (launches(forward), launches(backward)) == (2, 4)


def test_a_norm_without_weights_is_one_kernel_in_each_direction(ran):
    def function(x):
        return F.silu(F.group_norm(x, 8))

    compare(function, lambda: operands(2, 32, 16, 16, dtype=torch.float32)[:1], torch.float32)
    assert list(map(launches, ran)) == [1, 1]
    kernels = [regions.plan(node.args[-1], "host")["steps"] for graph in ran for node in graph.nodes if is_launch(node)]
    assert list(map(len, kernels)) == [1, 1], kernels


@pytest.mark.parametrize("channels", [1, 4])
@pytest.mark.parametrize("weight", ["", "bf16"], ids=["plain", "weighted"])
def test_each_text_is_one_kernel(weight, channels):
    form = texts.Form((8 * channels, 5, 7), "bf16", 8, channels)
    made = [texts.statistics(form, 1e-5), texts.norm(form, weight, weight), texts.channel_sums(form, "f32", True)]
    made += [texts.gradient(form, "f32", weight, "bf16"), texts.parameters(form, ("bf16", "bf16"))]
    made += [texts.group_sums(form, weight)] if weight else []
    for key in made:
        steps = regions.plan(key, "sm_90")["steps"]
        assert [step["kind"] for step in steps] == ["kernel"], steps


def is_launch(node: fx.Node) -> bool:
    return node.op == "call_function" and "launch" in str(node.target)


def test_a_norm_without_gradients(ran):
    def function(x, weight, bias):
        return F.silu(F.group_norm(x, 4, weight, bias))

    given = operands(3, 12, 33, 17, dtype=torch.float32)
    with torch.no_grad():
        y = torch.compile(function, backend="cermet", options=OPTIONS)(*given)
        truth = function(*(each.double() for each in given))
        errors = [{"y": [relative(each, truth)]} for each in (y, function(*given))]
    assert_none_is_far_from_eager(*errors, torch.float32)
    assert launches(ran[0]) == 2 and not NORMS & called(ran)


def test_kernels_that_cannot_be_made_leave_atens_call(monkeypatch, ran):
    class Fails(preparation.Preparation):
        def wait(self) -> None:
            super().wait()
            if self.keys:
                raise cermet.Error("no kernel today")

        def __init__(self, keys: Any) -> None:
            self.keys = list(keys)
            super().__init__(self.keys)

    monkeypatch.setattr(clusters, "Preparation", Fails)
    given = operands(2, 32, 16, 16, dtype=torch.float32)
    function = lambda *given: F.group_norm(given[0], 8, *given[1:])  # noqa: E731
    call = torch.compile(function, backend="cermet", options={"remainder": "aot", "strict": False})
    mine, eager = (step(each, given, [True] * 3) for each in (call, function))
    for name, value in mine.items():
        assert torch.equal(value, eager[name]), name
    assert NORMS <= called(ran[-2:])


def of_picture(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dim() == 4


class Block(torch.nn.Module):
    """A residual block of a network of convolutions."""

    def __init__(self, channels: int = 32, wider: int = 64, groups: int = 8) -> None:
        super().__init__()
        self.first = torch.nn.GroupNorm(groups, channels, eps=1e-6)
        self.second = torch.nn.GroupNorm(groups, wider, eps=1e-6)
        self.into = torch.nn.Conv2d(channels, wider, 3, padding=1)
        self.out = torch.nn.Conv2d(wider, wider, 3, padding=1)
        self.beside = torch.nn.Conv2d(channels, wider, 1)
        self.time = torch.nn.Linear(24, wider)

    def forward(self, x: torch.Tensor, time: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        h = self.into(F.silu(self.first(x)))
        h = h + self.time(F.silu(time))[:, :, None, None]
        h = self.out(F.silu(self.second(h)))
        return F.mse_loss((h + self.beside(x)).float(), target.float())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_a_residual_block_has_float64s_loss_and_gradients(dtype, ran):
    model = Block().to(dtype)
    call = torch.compile(model, backend="cermet", options=OPTIONS)
    ours: dict[str, list[float]] = {}
    theirs: dict[str, list[float]] = {}

    def trained(function: Callable[..., torch.Tensor], owner: torch.nn.Module, *given: torch.Tensor) -> dict[str, Any]:
        owner.zero_grad()
        x = given[0].detach().clone().requires_grad_()
        loss = function(x, *given[1:])
        loss.backward()
        gradients = {name: each.grad.clone() for name, each in owner.named_parameters()}
        return {"loss": loss.detach(), "x": x.grad, **gradients}

    for seed in range(EVERY_SEED):
        torch.manual_seed(seed)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
        given = [torch.randn(*shape).to(dtype) for shape in ((2, 32, 12, 12), (2, 24), (2, 64, 12, 12))]
        wide = double(model)
        with Float64():
            truth = trained(wide, wide, *(each.double() for each in given))
        for errors, function in ((ours, call), (theirs, model)):
            for name, value in trained(function, model, *given).items():
                errors.setdefault(name, []).append(relative(value, truth[name]))
    assert_none_is_far_from_eager(ours, theirs, dtype)
    assert len(ran) == 2 and not NORMS & called(ran)
    calls = [node for graph in ran for node in graph.nodes if node.op == "call_function"]
    pictures = {str(node.target) for node in calls if of_picture(node)}
    assert not any("silu" in name for name in pictures), pictures
