"""Products that are cut into pieces: what a backward reads of them is copied where the rest can go then."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import cermet
import graphs
from tiny_models import tiny, words
from truth import relative

HEADS, HEAD, TOKENS = 4, 16, 24
WIDTH = HEADS * HEAD


def heads(piece):
    return piece.view(*piece.shape[:2], -1, HEAD).transpose(1, 2)


def rotated(x, cos, sin):
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-high, low], dim=-1) * sin


def attention(q, k, v, cos, sin):
    out = F.scaled_dot_product_attention(rotated(q, cos, sin), rotated(k, cos, sin), v, is_causal=True)
    return out.transpose(1, 2).reshape(out.shape[0], out.shape[2], -1)


def by_slices(x, weight, cos, sin):
    qkv = F.linear(x, weight)
    q, k, v = qkv[..., :WIDTH], qkv[..., WIDTH : 2 * WIDTH], qkv[..., 2 * WIDTH :]
    return attention(heads(q), heads(k), heads(v), cos, sin)


def by_chunk(x, weight, cos, sin):
    q, k, v = F.linear(x, weight).chunk(3, dim=-1)
    return attention(heads(q), heads(k), heads(v), cos, sin)


def inputs(dtype=torch.float32):
    x = torch.randn(2, TOKENS, 32).to(dtype).requires_grad_()
    weight = (torch.randn(3 * WIDTH, 32) * 32**-0.5).to(dtype).requires_grad_()
    angles = torch.randn(TOKENS, HEAD // 2).repeat(1, 2)
    return x, weight, angles.cos().to(dtype), angles.sin().to(dtype)


def released(function, *arguments, **options) -> tuple[int, list[torch.Tensor], torch.Tensor]:
    """How many pieces were copied, what is saved for the backward, and the result."""
    before = cermet.counters()["released"]
    result = graphs.compiled(function, **options)(*arguments)
    return cermet.counters()["released"] - before, list(result.grad_fn.saved_tensors), result


@pytest.mark.parametrize("remainder", ["aot", "inductor"])
@pytest.mark.parametrize("function", [by_slices, by_chunk])
def test_the_values_alone_are_kept(function, remainder):
    arguments = inputs()
    copied, saved, result = released(function, *arguments, remainder=remainder)
    product = 2 * TOKENS * 3 * WIDTH * 4
    assert copied == 1 and all(tensor.untyped_storage().nbytes() < product for tensor in saved)
    expected = function(*arguments)
    torch.testing.assert_close(result, expected)
    cotangent = torch.randn_like(expected)
    for ours, eager in zip(*(torch.autograd.grad(value, arguments[:2], cotangent) for value in (result, expected))):
        torch.testing.assert_close(ours, eager)


def without_a_rotation(x, weight, cos, sin):
    q, k, v = F.linear(x, weight).chunk(3, dim=-1)
    return F.scaled_dot_product_attention(heads(q), heads(k), heads(v))


def most_of_it(x, weight, cos, sin):
    """Keys are read as they are."""
    q, k, v = F.linear(x, weight).chunk(3, dim=-1)
    return F.scaled_dot_product_attention(rotated(heads(q), cos, sin), heads(k), heads(v))


def read_whole(x, weight, cos, sin):
    qkv = F.linear(x, weight)
    q, k, v = qkv.chunk(3, dim=-1)
    return attention(heads(q), heads(k), heads(v), cos, sin) + qkv.square().mean()


def written(x, weight, cos, sin):
    qkv = F.linear(x, weight)
    v = heads(qkv[..., 2 * WIDTH :])
    v.mul_(0.5)
    return attention(heads(qkv[..., :WIDTH]), heads(qkv[..., WIDTH : 2 * WIDTH]), v, cos, sin)


@pytest.mark.parametrize("function", [without_a_rotation, most_of_it, read_whole, written])
def test_what_would_not_let_the_product_go_is_left_alone(function):
    arguments = inputs()
    copied, _, result = released(function, *arguments, remainder="aot")
    assert copied == 0
    expected = function(*arguments)
    for ours, eager in zip(*(torch.autograd.grad(value.sum(), arguments[:2]) for value in (result, expected))):
        torch.testing.assert_close(ours, eager)


def test_a_piece_that_is_returned_stays_a_view():
    def function(x, weight, cos, sin):
        q, k, v = F.linear(x, weight).chunk(3, dim=-1)
        v = heads(v)
        return attention(heads(q), heads(k), v, cos, sin), v

    arguments = inputs()
    before = cermet.counters()["released"]
    ours, theirs = graphs.compiled(function, "aot")(*arguments), function(*arguments)
    assert cermet.counters()["released"] == before and [value.stride() for value in ours] == [
        value.stride() for value in theirs
    ]


def test_nothing_is_copied_without_a_gradient():
    arguments = inputs()
    before = cermet.counters()["released"]
    with torch.no_grad():
        torch.testing.assert_close(graphs.compiled(by_chunk, "aot")(*arguments), by_chunk(*arguments))
    assert cermet.counters()["released"] == before


def test_new_lengths_release_too():
    _, weight, cos, sin = inputs()
    call = torch.compile(
        by_slices, backend="cermet", dynamic=True, fullgraph=True, options={"remainder": "aot", "strict": True}
    )
    for tokens in (TOKENS, TOKENS - 5, 7):
        x = torch.randn(2, tokens, 32, requires_grad=True)
        ours, eager = (run(x, weight, cos[:tokens], sin[:tokens]) for run in (call, by_slices))
        torch.testing.assert_close(ours, eager)
        torch.testing.assert_close(*(torch.autograd.grad(value.sum(), weight) for value in (ours, eager)))


@pytest.mark.parametrize("remainder", ["aot", "inductor"])
def test_a_model_with_packed_products(remainder):
    model, text = tiny("Phi3").train(), words()
    options = {"remainder": remainder, "strict": True}
    before = cermet.counters()["released"]
    call = torch.compile(model, backend="cermet", fullgraph=True, options=options)
    grads = []
    for run in (call, model):
        loss = run(input_ids=text, labels=text).loss
        grads.append(torch.autograd.grad(loss, list(model.parameters())))
    assert cermet.counters()["released"] - before == model.config.num_hidden_layers
    for ours, eager in zip(*grads):
        assert relative(ours, eager.double()) < 1e-5
