"""Where Cermet must not fuse a norm or a GLU, where writes do not stand in the way, and what a failure of ours does."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import cermet
import graphs
from cermet import failures
from cermet.fusing import replacement
from declining import declined

X = (4, 6, 32)


def x_and_weight(dtype=torch.float32):
    return torch.randn(X).to(dtype), torch.randn(X[-1]).to(dtype)


def norm(x, weight, eps=1e-6, dim=-1, statistics=torch.float32, exponent=2):
    wide = x.to(statistics)
    variance = wide.pow(exponent).mean(dim, keepdim=True)
    return weight * (wide * torch.rsqrt(variance + eps)).to(x.dtype)


@pytest.mark.parametrize(
    ("function", "condition"),
    [
        (lambda x, w: norm(x, w, eps=-1e-6), "eps is -1e-06, expected a positive finite number"),
        (lambda x, w: norm(x, w, eps=x.abs().mean(-1, keepdim=True)), "eps is not a constant"),
        (lambda x, w: norm(x, w, dim=1), "the mean is not over the last dimension"),
        (lambda x, w: norm(x, w, dim=(1, 2)), "the mean is not over the last dimension"),
    ],
    ids=["negative eps", "eps is a tensor", "middle axis", "two axes"],
)
def test_wrong_eps_or_axis(function, condition):
    declined(function, *x_and_weight(), pattern="rms_norm", condition=condition)


def test_a_float64_norm():
    x, weight = x_and_weight(torch.float64)
    function = lambda x, w: norm(x, w, statistics=torch.float64)
    declined(function, x, weight, pattern="rms_norm", condition="f64 is not supported")


def test_statistics_in_bf16():
    x, weight = x_and_weight(torch.bfloat16)
    function = lambda x, w: norm(x, w, statistics=torch.bfloat16)
    declined(function, x, weight, pattern="rms_norm", condition="computed in bf16, expected f32")


def test_an_inner_value_that_is_returned():
    def function(x, weight):
        wide = x.to(torch.float32)
        normalised = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return weight * normalised, normalised

    declined(function, *x_and_weight(), pattern="rms_norm", condition="is returned by the function")


def test_an_inner_value_with_a_second_user():
    def function(x, weight):
        wide = x.to(torch.float32)
        inverse = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return weight * (wide * inverse), inverse.sum()

    declined(function, *x_and_weight(), pattern="rms_norm", condition="has another user: sum_1")


def test_an_inner_value_that_is_written_in_place():
    def function(x, weight):
        wide = x.to(torch.float32)
        variance = wide.pow(2).mean(-1, keepdim=True)
        wide.add_(1.0)
        return weight * (wide * torch.rsqrt(variance + 1e-6)).to(x.dtype)

    declined(function, *x_and_weight(torch.bfloat16), pattern="rms_norm", condition="is written in place by `add_`")


def test_an_inner_value_whose_view_is_written():
    def function(x, weight):
        wide = x.to(torch.float32)
        view = wide.view(-1)
        variance = wide.pow(2).mean(-1, keepdim=True)
        view.mul_(2.0)
        return weight * (wide * torch.rsqrt(variance + 1e-6)).to(x.dtype)

    declined(function, *x_and_weight(torch.bfloat16), pattern="rms_norm", condition="is written in place by `mul_`")


def test_an_activation_that_is_written_in_place():
    def function(gate, up):
        activated = F.silu(gate)
        activated.clamp_(max=1.0)
        return activated * up

    gate, up = torch.randn(2, 4, 32).unbind()
    torch._dynamo.reset()
    counts = cermet.explain(function, gate, up).counts
    assert counts["glu"] == 0
    torch.testing.assert_close(graphs.compiled(function)(gate, up), function(gate, up), rtol=0, atol=0)


def test_an_activation_with_a_second_user():
    def function(gate, up):
        activated = F.silu(gate)
        return activated * up, activated

    gate, up = torch.randn(2, 4, 32).unbind()
    declined(function, gate, up, pattern="glu", condition="is returned by the function")


def test_a_sequence_that_crosses_a_change_of_grad_mode():
    def function(x, weight):
        wide = x.to(torch.float32)
        with torch.no_grad():
            inverse = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return weight * (wide * inverse)

    x, weight = x_and_weight()
    weight.requires_grad_()
    x.requires_grad_()
    declined(function, x, weight, pattern="rms_norm", condition="crosses a change of grad mode or autocast")
    torch._dynamo.reset()
    grads = [torch.autograd.grad(call(x, weight).sum(), x)[0] for call in (graphs.compiled(function), function)]
    torch.testing.assert_close(*grads, rtol=0, atol=0)


def test_a_result_whose_strides_would_change():
    def function(x, weight):
        return graphs.rms_norm(x.transpose(1, 2), weight)

    x, weight = torch.randn(2, X[-1], 4), torch.randn(X[-1])
    declined(function, x, weight, pattern="rms_norm", condition="has strides")


def test_operands_that_are_written_before_the_last_one_exists():
    """x is read by the norm's first half, then written; only then does the weight come to be."""

    def function(x, weight):
        wide = x.to(torch.float32)
        inner = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
        x.add_(1.0)
        return (weight + x.sum()) * inner

    x, weight = x_and_weight(torch.bfloat16)
    assert cermet.explain(function, x.clone(), weight).counts["rms_norm"] == 0
    ours, eager = x.clone(), x.clone()
    torch.testing.assert_close(graphs.compiled(function)(ours, weight), function(eager, weight), rtol=0, atol=0)
    torch.testing.assert_close(ours, eager, rtol=0, atol=0)


# --- Writes that do not stand in the way -----------------------------------------------------------------------------


def close(ours, eager):
    torch.testing.assert_close(ours, eager, rtol=2e-6, atol=2e-6)


def test_an_operand_written_after_the_norm():
    def function(x, weight):
        y = graphs.rms_norm(x, weight)
        x.add_(1.0)
        return y * 2.0

    x, weight = x_and_weight()
    assert cermet.explain(function, x.clone(), weight).counts["rms_norm"] == 1
    ours, eager = x.clone(), x.clone()
    close(graphs.compiled(function)(ours, weight), function(eager, weight))
    close(ours, eager)


def test_an_operand_written_before_the_norm():
    def function(x, weight):
        x.view(-1).mul_(3.0)
        return graphs.rms_norm(x, weight) + x

    x, weight = x_and_weight()
    assert cermet.explain(function, x.clone(), weight).counts["rms_norm"] == 1
    ours, eager = x.clone(), x.clone()
    close(graphs.compiled(function)(ours, weight), function(eager, weight))
    close(ours, eager)


def test_a_result_written_afterwards():
    def function(x, weight):
        y = graphs.rms_norm(x, weight)
        alias = y.view(-1)
        y.mul_(2.0)
        return alias + 1.0, y

    x, weight = x_and_weight()
    assert cermet.explain(function, x, weight).counts["rms_norm"] == 1
    close(graphs.compiled(function)(x, weight), function(x, weight))


def test_two_norms_of_one_input_and_a_chain_of_norms():
    def function(x, first, second):
        y = graphs.rms_norm(x, first) * graphs.rms_norm(x, second)
        return graphs.rms_norm(graphs.rms_norm(y, first), second)

    x, first = x_and_weight()
    second = torch.randn(X[-1])
    close(graphs.compiled(function)(x, first, second), function(x, first, second))
    torch._dynamo.reset()
    assert cermet.explain(function, x, first, second).counts["rms_norm"] == 4


def test_the_sum_before_a_norm_may_have_other_users():
    def function(x, residual, weight):
        total = x + residual
        return graphs.rms_norm(total, weight), total * 2.0

    x, weight = x_and_weight()
    counts = cermet.explain(function, x, x + 1, weight).counts
    assert {name: times for name, times in counts.items() if times} == {"add_rms_norm": 1}
    close(graphs.compiled(function)(x, x + 1, weight), function(x, x + 1, weight))


# --- Failures of ours ------------------------------------------------------------------------------------------------


def test_a_failure_leaves_the_graph_as_it_was(monkeypatch, caplog):
    def broken(*_):
        raise ValueError("a defect")

    monkeypatch.setattr(replacement, "_insert", broken)
    x, weight = x_and_weight()
    with pytest.raises(Exception, match="a defect"):
        graphs.compiled(graphs.rms_norm)(x, weight)
    torch._dynamo.reset()
    before = cermet.counters()["fallbacks"]
    monkeypatch.setattr(failures, "_warned", False)
    call = torch.compile(graphs.rms_norm, backend="cermet", options={"strict": False, "remainder": "eager"})
    torch.testing.assert_close(call(x, weight), graphs.rms_norm(x, weight), rtol=0, atol=0)
    assert cermet.counters()["fallbacks"] == before + 1
    (record,) = [record for record in caplog.records if record.name == "cermet" and record.levelname == "WARNING"]
    assert "a defect" in record.getMessage() and "strict" in record.getMessage()


def test_what_takes_or_gives_more_tensors_than_an_op_has():
    def chain(x, weight, bias):
        first = F.layer_norm(F.log_softmax(x, -1), X[-1:], bias, weight)
        second = F.rms_norm(first + first, X[-1:], bias, 1e-5)
        return first, second, (second - second.mean(-1, keepdim=True)) * second.var(-1, keepdim=True)

    arguments = [torch.randn(shape, requires_grad=True) for shape in (X, X[-1:], X[-1:])]
    declined(chain, *arguments, pattern="add_rms_norm", condition="tensors, expected at most 16 and 8")


def test_rows_that_only_a_result_has():
    def repeated(x):
        return torch.log(x[:, :1].expand(-1, X[1], -1).abs() + 1) * 0.5

    declined(repeated, torch.randn(X), pattern="cluster", condition="a result is as long as no operand is")


@pytest.mark.parametrize(
    ("remainder", "given"), [("aot", False), ("inductor", False), ("eager", False), ("eager", True)]
)
def test_what_a_gradient_needs_is_written_afterwards(remainder, given):
    """Eager keeps the cast to float32; a region, which would keep the value itself, is none. (Where the graph is
    `given` what it writes, AOTAutograd gets the gradient wrong by itself.)"""

    def function(x, weight):
        x = x if given else x * 0.5
        y = graphs.rms_norm(x, weight)
        x.add_(1.0)
        return y

    x, weight = x_and_weight(torch.bfloat16)
    weight.requires_grad_()
    (expected,) = torch.autograd.grad(function(x.clone(), weight).sum(), weight)
    assert cermet.explain(function, x.clone(), weight).counts["rms_norm"] == 0
    (ours,) = torch.autograd.grad(graphs.compiled(function, remainder)(x.clone(), weight).sum(), weight)
    torch.testing.assert_close(ours, expected, rtol=2e-2, atol=2e-2)
