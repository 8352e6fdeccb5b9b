"""Each call that the dialect has words for: traced, imported and executed beside eager, at torch's level and ATen's.

Odd sizes; an exact case is equal in every bit, the others differ by the order of a sum or the last place of a function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from cermet.ops import regions
from cermet.importing.importer import import_graph
from cermet.importing.translations.promotion import common_dtype
from cermet.text import TensorType, Value
from executed import executed, same
from graphs import traced

X, Y = (3, 5, 6), (3, 5, 6)
_aten = torch.ops.aten


def _positive(x: torch.Tensor) -> torch.Tensor:
    return x.abs() + 0.125


EXACT: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y,
    "add broadcast": lambda x, y: torch.add(x, y[:, :1]),
    "add half a power of two": lambda x, y: torch.add(x, y, alpha=0.5) - torch.sub(y, x, alpha=4),
    "rsub": lambda x, y: torch.rsub(x, y) + (2 - x) + torch.rsub(x, 0.5),
    "product with a number": lambda x, y: x * 0.1,
    "quotient by a number": lambda x, y: x / 3.0,
    "reversed quotient": lambda x, y: 2.0 / _positive(x),
    "reciprocal": lambda x, y: torch.reciprocal(_positive(x)) + _positive(y).reciprocal(),
    "powers": lambda x, y: x**2 + x.pow(3) + torch.pow(_positive(x), -1) + _positive(x) ** -2 + torch.square(y),
    "abs and neg": lambda x, y: abs(-x) - torch.abs(y.neg()) + torch.negative(x),
    "relu": lambda x, y: F.relu(x) + torch.relu(y) + x.relu(),
    "prelu": lambda x, y: (F.prelu(x, y[0, :, 0]), F.prelu(y, x[0, 0, :1]), F.prelu(x[0], y[0, 0])),
    "max and min": lambda x, y: torch.maximum(x, y) + torch.min(x, y[:1]) + torch.max(x, y) + x.minimum(y),
    "clamp": lambda x, y: x.clamp(-0.3, 0.7) + torch.clamp(y, min=0.1) + torch.clamp_max(x, 0.2) + x.clip(max=0.5),
    "clamp by tensors": lambda x, y: torch.clamp(x, y - 1, y + 0.5),
    "comparisons": lambda x, y: ((x < y), x.ge(y), torch.eq(x, y), x > 0.1, x <= 0, torch.ne(x, 0.5), 0 < x),
    "truths": lambda x, y: ((x > 0) & (y > 0), (x > 0) | (y > 0), (x > 0) ^ (y > 0), ~(x > 0), (x > 0).logical_not()),
    "logical": lambda x, y: (torch.logical_and(x, y > 0), x.relu().logical_or(y > 0), torch.logical_xor(x > 0, y > 1)),
    "where": lambda x, y: torch.where(x > 0, x, y) + torch.where(y > 0, 0.1, x) + x.where(y > 0, 0.0),
    "masked_fill": lambda x, y: x.masked_fill(y > 0, 0.1) + torch.masked_fill(x, y[:1] > 0, float("-inf")).clamp(-9),
    "arithmetic of booleans": lambda x, y: ((x > 0) + (y > 0), (x > 0) * (y > 0), x * (y > 0), (x > 0) + 1),
    "integers": lambda x, y: ((x * 9).long() * 3 - 2 + (y * 9).int(), (x * 9).int() / 3, (y * 9).long() * 0.5),
    "integer comparisons": lambda x, y: ((x * 9).long() < (y * 9).int(), (x * 9).long() == 3, (x * 9).long() > 0.5),
    "casts": lambda x, y: (x.long(), x.int(), x.bool(), (x * 5).to(torch.int16), (x > 0).to(x.dtype), x.double()),
    "transposes as packets": lambda x, y: (_aten.mT(x), _aten.numpy_T(x[0]), _aten.mH(y)),
    "transposes": lambda x, y: (x.transpose(0, 1), torch.permute(x, (2, 0, 1)), x.permute(1, -1, 0), x.mT, x[0].T),
    "more transposes": lambda x, y: (x[0].t(), torch.movedim(x, 0, -1), x.swapaxes(1, 2), x.movedim((0, 1), (2, 0))),
    "slices": lambda x, y: (x[..., :2], x[:, 1:-1], x[-1], x[:, 2], x[1:, None, ..., -2:], x[0, 1, 2], x[2:9]),
    "steps": lambda x, y: (x[..., ::2], x[..., 1::2], x[..., 2:5:3], x[::1], x[:, :, None, 1::3]),
    "narrow and select": lambda x, y: (x.narrow(-1, 1, 3), torch.select(x, 1, -2), x.narrow(0, -2, 1)),
    "chunks": lambda x, y: x.chunk(2, -1)[1] * torch.chunk(y, 2, dim=-1)[0],
    "splits": lambda x, y: (x.split(4, -1)[1], torch.split(x, [1, 2, 3], dim=2)[1], x.split_with_sizes([2, 3], 1)[0]),
    "a split of which all is used": lambda x, y: torch.cat(x.tensor_split(4, 2)[::-1], -1),
    "unbind": lambda x, y: x.unbind(1)[3] + torch.unbind(y)[0][:1] - x.unbind(-1)[0][0, 0],
    "concats": lambda x, y: (torch.cat([x, y]), torch.concat((y, x, y), dim=-1)),
    "stack": lambda x, y: (torch.stack([x, y]), torch.stack((-y, x), dim=-1).flatten(-2)),
    "mixed concat": lambda x, y: torch.cat([x, y.double()], 1),
    "concat with the empty": lambda x, y: torch.cat([torch.zeros(0, dtype=x.dtype), x], dim=-2) + y,
    "concat with an empty slice": lambda x, y: torch.cat((x, x[:, :0]), 1) - y,
    "pads": lambda x, y: (F.pad(x, (1, 2)), F.pad(x, (0, 0, 1, 0), value=2.5), F.pad(x, (-1, 1)), F.pad(x, (0, 0))),
    "integer pad": lambda x, y: F.pad((x * 9).long(), (0, 1), value=-100)[..., 1:],
    "repeat_interleave": lambda x, y: (x.repeat_interleave(2, -1), torch.repeat_interleave(x, 3, dim=1)),
    "repeat": lambda x, y: (x.repeat(2, 1, 1, 1), x[:, :1].repeat(1, 4, 1), x.repeat(1, 2, 3)),
    "expand": lambda x, y: (x[:1].expand(4, 5, 6), x[:1].expand_as(y), torch.broadcast_to(x[0], (2, 5, 6))),
    "reshapes": lambda x, y: (x.flatten(1), x.unflatten(-1, (2, 3)), x.view(-1, 6), x.unsqueeze(1).squeeze(), x.ravel()),
    "copies": lambda x, y: (x.contiguous() + 1, x.transpose(0, 1).contiguous() * 2, y.clone() - 1, torch.clone(x) * 2),
    "constants": lambda x, y: x + torch.zeros(6, dtype=x.dtype) + torch.ones_like(y) + x.new_full((5, 1), 0.5),
    "more constants": lambda x, y: (torch.full((2,), 0.1), torch.full_like(x, 3), x.new_zeros(3), torch.ones(2) + 1),
    "ranges": lambda x, y: (torch.arange(7), torch.arange(1, 20, 3), torch.arange(5, dtype=x.dtype) * x[0, 0, 0]),
    "causal mask": lambda x, y: torch.arange(5)[None, :] <= torch.arange(5)[:, None],
    "triangles": lambda x, y: (torch.tril(x), x.triu(1), torch.triu(torch.ones(4, 4, dtype=torch.bool), diagonal=-1)),
    "amax": lambda x, y: (x.amax(-1), torch.amin(y, dim=-1, keepdim=True), x.max(-1).values, torch.min(y, 2)[0]),
    "counts": lambda x, y: ((x > 0).cumsum(-1), (y * 9).int().cumsum(2), (x * 99).int().cumsum(-1, dtype=torch.int8)),
    "embedding": lambda x, y: F.embedding((x[0] * 2).abs().long().clamp(0, 4), y[0]),
    "tensor of rank 0": lambda x, y: x * y[0, 0, 0] + y[1, 1, 1] / _positive(x),
}
CLOSE: dict[str, Callable[..., Any]] = {
    "exp and log": lambda x, y: (x.exp(), torch.log(_positive(x)), torch.exp(-y)),
    "rsqrt": lambda x, y: (torch.rsqrt(_positive(x)), _positive(y) ** -0.5),
    "powers": lambda x, y: (_positive(x) ** 1.3, 2.3**x, torch.pow(_positive(x), y), _positive(x).pow(-3)),
    "square root": lambda x, y: torch.sqrt(_positive(x)) + _positive(y) ** 0.5,
    "tanh and erf": lambda x, y: (torch.tanh(x), x.erf(), F.tanh(y)),
    "sigmoid and silu": lambda x, y: (x.sigmoid(), F.sigmoid(y), F.silu(x), torch.sigmoid(y)),
    "softplus": lambda x, y: (F.softplus(x), F.softplus(y * 9, 2.0, 5.0), F.softplus(x * 40, beta=0.5)),
    "log_sigmoid": lambda x, y: (F.logsigmoid(x * 9), F.logsigmoid(y)),
    "gelu": lambda x, y: (F.gelu(x), F.gelu(y, approximate="tanh")),
    "softcap": lambda x, y: torch.tanh(x / 30.0) * 30.0,
    "integer functions": lambda x, y: (torch.exp((x * 3).long()), torch.sqrt((x * 9).int().abs())),
    "sums": lambda x, y: (x.sum(-1), torch.sum(y, dim=2, keepdim=True), x.sum((0, 1)), x.sum(), y[0].sum((0, 1))),
    "means": lambda x, y: (x.mean(-1, keepdim=True), x.mean(), torch.mean(y, (0, 1)), y.mean((-1, 0, 1), True)),
    "sums in a type": lambda x, y: (x.sum(-1, dtype=torch.float64), (x > 0).sum(-1, dtype=torch.float32)),
    "means in a type": lambda x, y: (x.mean(-1, dtype=torch.float32), x[0, 0].mean(), y.long().float().mean()),
    "softmax": lambda x, y: (x.softmax(-1), F.softmax(y, dim=2), torch.softmax(x, -1, dtype=torch.float32)),
    "logsumexp": lambda x, y: (torch.logsumexp(x, -1), y.logsumexp(2, keepdim=True)),
    "cumulative sums": lambda x, y: (x.cumsum(-1), torch.cumsum(y, dim=2, dtype=torch.float64), x.exp().cumsum(2)),
    "variance": lambda x, y: (x.var(-1), torch.std(y, -1, keepdim=True), x.var(-1, False), y.var(2, correction=2)),
    "rms_norm": lambda x, y: (F.rms_norm(x, (6,)), F.rms_norm(y, [6], x[0, 0], 1e-6)),
    "layer_norm": lambda x, y: (F.layer_norm(x, (6,)), F.layer_norm(y, (6,), x[0, 0], y[0, 0], 1e-3)),
}


def inputs(dtype: torch.dtype) -> list[torch.Tensor]:
    return [torch.randn(X).to(dtype), torch.randn(Y).to(dtype)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("level", ["torch", "aten"])
@pytest.mark.parametrize("name", EXACT)
def test_exact(name, level, dtype):
    _check(EXACT[name], level, dtype, exact=True, empty="empty" in name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("level", ["torch", "aten"])
@pytest.mark.parametrize("name", CLOSE)
def test_close(name, level, dtype):
    _check(CLOSE[name], level, dtype, exact=False)


def _check(function: Callable[..., Any], level: str, dtype: torch.dtype, exact: bool, empty: bool = False) -> None:
    args = inputs(dtype)
    run = executed(*traced(function, *args, aten=level == "aten"), exact)
    opaque = run.evaluation.operations.count("opaque")
    assert opaque == empty and not run.imported.refusals, f"{run.imported.refusals}\n{run.imported.text}"


def _written_between(x, y):
    turned = y.flip(-1)
    y.add_(1)
    return turned.cumsum(-1).flip(-1)


@pytest.mark.parametrize("level", ["torch", "aten"])
@pytest.mark.parametrize(
    "function, reverse",
    [
        (lambda x, y: x.flip(-1).cumsum(-1).flip(-1), 1),
        (lambda x, y: torch.flip(x.exp().flip(2).cumsum(2), (2,)), 1),
        (_written_between, 1),
        (lambda x, y: x.flip(1).cumsum(-1).flip(1), 0),
        (lambda x, y: x.flip(-1).cumsum(-1) + y.cumsum(-1).flip(-1), 0),
        (lambda x, y: x.flip(0, -1).cumsum(-1).flip(0, -1), 0),
    ],
)
def test_sums_of_what_is_turned_round_are_those_from_each_column_on(function, reverse, level):
    run = executed(*traced(function, *inputs(torch.float32), aten=level == "aten"), False)
    assert run.imported.text.count("{reverse}") == reverse, run.imported.text


# ATen's own calls for gradients, from a cotangent and what the forward had.
BACKWARD: dict[str, Callable[..., Any]] = {
    "sigmoid": lambda g, x: _aten.sigmoid_backward(g, x.sigmoid()),
    "tanh": lambda g, x: _aten.tanh_backward(g, x.tanh()),
    "silu": lambda g, x: _aten.silu_backward(g, x),
    "gelu": lambda g, x: _aten.gelu_backward(g, x),
    "gelu of tanh": lambda g, x: _aten.gelu_backward(g, x, approximate="tanh"),
    "relu": lambda g, x: _aten.threshold_backward(g, x.relu(), 0),
    "threshold": lambda g, x: _aten.threshold_backward(g, x, 0.25),
    "softmax": lambda g, x: _aten._softmax_backward_data(g, x.softmax(-1), -1, x.dtype),
    "log_softmax": lambda g, x: _aten._log_softmax_backward_data(g, x.log_softmax(-1), 2, x.dtype),
    "dropout": lambda g, x: _aten.native_dropout_backward(g, x > 0, 1.25),
    "a bias": lambda g, x: (_aten.sum.dim_IntList(g, [0], True), _aten.sum.dim_IntList(x, [0, 1])),
    "statistics": lambda g, x: _aten.native_layer_norm(x, [6], g[0, 0], x[0, 0], 1e-5),
    "layer_norm": lambda g, x: _norm_backward(g, x, x[0, 0], g[1, 1], [True, False, False])[0],
    "layer_norm without weights": lambda g, x: _norm_backward(g, x, None, None, [True, False, False])[0],
    "layer_norm's parameters": lambda g, x: _norm_backward(g, x, x[0, 0], g[1, 1], [False, True, True])[1:],
}


def _norm_backward(g: torch.Tensor, x: torch.Tensor, weight: Any, bias: Any, wanted: list[bool]) -> Any:
    _, mean, deviation = _aten.native_layer_norm(x, [6], weight, bias, 1e-5)
    return _aten.native_layer_norm_backward(g, x, [6], mean, deviation, weight, bias, wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("name", BACKWARD)
def test_calls_for_gradients(name, dtype):
    if name == "layer_norm's parameters" and dtype == torch.bfloat16:
        pytest.skip("on a CPU torch adds the rows of these in bf16")
    _check(BACKWARD[name], "aten", dtype, exact=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("hidden", [lambda y: y > 0, lambda y: (y > 0) | (y[..., :1] > 0)],
                         ids=["some", "whole rows"])
def test_a_row_of_which_nothing_is_shown_has_no_shares(hidden, dtype):
    def function(x, y):
        return _aten._safe_softmax(x.masked_fill(hidden(y), -float("inf")), -1)

    _check(function, "aten", dtype, exact=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_kernels_compute_the_same(dtype):
    """The texts that become kernels and views alone, compiled for the CPU."""
    ran = [name for name, function in (EXACT | CLOSE).items() if name != "steps" and _launched(name, function, dtype)]
    assert len(ran) >= 40, f"only {ran} were run"


def _launched(name: str, function: Callable[..., Any], dtype: torch.dtype) -> bool:
    module, given = traced(function, *inputs(dtype))
    imported = import_graph(module)
    key = regions.register(imported.text)
    expected = module(*given)
    if not given or len(expected) > regions.MAX_OUTPUTS or regions.not_lowered(key, given[0].device):
        return False
    regions.prepare(key, given[0].device)
    scale = max(value.abs().max().item() for value in given)
    for index, (mine, theirs) in enumerate(zip(regions.launch(key, given), expected, strict=True)):
        report = f"{name}: result {index} is {mine}, expected {theirs}\n{imported.text}"
        assert same(mine, theirs, exact=False, scale=scale), report
    return True


def test_what_is_promoted_follows_the_default_dtype():
    whole = Value("%x", TensorType((3,), "i64"))
    before = torch.get_default_dtype()
    try:
        for default in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(default)
            assert common_dtype([None, 0.5], [whole, 0.5]) == default
    finally:
        torch.set_default_dtype(before)
