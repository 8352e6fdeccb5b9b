"""Attention that is written out becomes a call of attention's kernels, with sinks or without; what is no such stays."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from transformers import GptOssConfig, GptOssForCausalLM

import graphs
import truth
from attending import BATCH, WIDTH, Counted
from cermet.attention import masks, written_out
from cermet.errors import Error
from cermet.ops import attending
from mask_spellings import indices
from reference_kernel import reference  # noqa: F401

HEADS, SHARED, LENGTH, REACH = 16, 4, 48, 12  # so many heads that no seed is luck for the sinks' gradient
NEVER = torch.finfo(torch.bfloat16).min


def causal(length, dtype, device="cpu"):
    query, key = (each.to(device) for each in indices(length))
    return torch.where(key <= query, torch.zeros((), dtype=dtype, device=device), NEVER)[None, None]


def window(length, dtype, device="cpu"):
    query, key = (each.to(device) for each in indices(length))
    is_near = (key <= query) & (key > query - REACH)
    return torch.where(is_near, torch.zeros((), dtype=dtype, device=device), NEVER)[None, None]


def full(length, dtype, device="cpu"):
    return torch.zeros(1, 1, length, length, dtype=dtype, device=device)


def repeated(value):
    batch, heads, length, width = value.shape
    times = HEADS // SHARED
    return value[:, :, None].expand(batch, heads, times, length, width).reshape(batch, heads * times, length, width)


def plain(mask=causal, dropout=0.0, softmax_dtype=torch.float32, scaled=lambda scores: scores * WIDTH**-0.5):
    """As transformers' models write it."""

    def attend(query, key, value):
        scores = scaled(torch.matmul(query, repeated(key).transpose(2, 3)))
        scores = scores + mask(query.shape[2], query.dtype, query.device)
        weights = F.softmax(scores, dim=-1, dtype=softmax_dtype).to(query.dtype)
        weights = F.dropout(weights, p=dropout, training=True)
        return torch.matmul(weights, repeated(value)).transpose(1, 2).contiguous()

    return attend


def sinking(mask=causal, largest=True):
    def attend(query, key, value, sinks):
        scores = torch.matmul(query, repeated(key).transpose(2, 3)) * WIDTH**-0.5
        scores = scores + mask(query.shape[2], query.dtype, query.device)
        sink = sinks.reshape(1, -1, 1, 1).expand(query.shape[0], -1, query.shape[-2], -1)
        both = torch.cat([scores, sink], dim=-1)
        if largest:
            both = both - both.max(dim=-1, keepdim=True).values
        weights = F.softmax(both, dim=-1, dtype=both.dtype)[..., :-1]
        weights = F.dropout(weights, p=0.0, training=True).to(value.dtype)
        return torch.matmul(weights, repeated(value)).transpose(1, 2).contiguous()

    return attend


def operands(seed=0, dtype=torch.bfloat16, length=LENGTH, sinks=False, device="cpu"):
    numbers = torch.Generator().manual_seed(seed)
    shapes = [(BATCH, heads, length, WIDTH) for heads in (HEADS, SHARED, SHARED)] + [(HEADS,)] * sinks
    made = [2 * torch.randn(shape, generator=numbers) for shape in shapes]
    return [each.to(device, dtype).requires_grad_() for each in made]


def gradients(function, given):
    leaves = [each.detach().clone().requires_grad_() for each in given]
    result = function(*leaves)
    weight = torch.randn(result.shape, generator=torch.Generator().manual_seed(7)).to(result)
    found = torch.autograd.grad((result * weight).sum(), leaves)
    return dict(zip(("result", "query", "key", "value", "sinks"), (result.detach(), *found)))


def assert_as_good(call, function, **kind):
    """The rule for numbers, over seeds."""
    ours, eager, dtype = {}, {}, torch.bfloat16
    for seed in range(truth.EVERY_SEED):
        given = operands(seed, **kind)
        with truth.Float64():
            true = gradients(function, [each.detach().double() for each in given])
        for errors, found in ((ours, gradients(call, given)), (eager, gradients(function, given))):
            for name, value in true.items():
                errors.setdefault(name, []).append(truth.relative(found[name], value))
    truth.assert_as_good_as_eager(ours, eager, dtype)


@pytest.mark.parametrize("mask", [causal, window, full])
@pytest.mark.parametrize("sinks", [False, True])
def test_it_is_called_and_as_good_as_written_out(sinks, mask, device, reference):  # noqa: F811
    function, counted = sinking(mask) if sinks else plain(mask), Counted()
    call = graphs.compiled(function, remainder="aot")
    assert_as_good(call, function, sinks=sinks, device=device)
    assert counted()["written_out_attentions"] == 1 and "fallbacks" not in counted()
    assert counted()["grouped_attentions"] == 1  # no head is repeated


@pytest.mark.parametrize(
    "function",
    [plain(softmax_dtype=None), plain(scaled=lambda scores: scores / 3), plain(scaled=lambda scores: scores)],
    ids=["a softmax of its own type", "divided", "not scaled"],
)
def test_other_spellings(function, reference):  # noqa: F811
    assert written_out.apply(graphs.trace(function, *operands())) == 1
    assert_as_good(graphs.compiled(function, remainder="aot"), function)


def test_without_the_largest_taken_away(reference):  # noqa: F811
    module = graphs.trace(sinking(largest=False), *operands(sinks=True))
    written_out.apply(module)
    masks.apply(module, masks.find(module).masks)
    (call,) = [node for node in module.graph.nodes if node.target is attending.ATTEND_SINKING]
    assert not any("softmax" in str(node.target) for node in module.graph.nodes), call


@pytest.mark.parametrize("dynamic", [False, True])
def test_lengths_that_vary(dynamic, reference):  # noqa: F811
    function, counted = sinking(), Counted()
    call = graphs.compiled(function, remainder="aot")
    for length in (LENGTH, LENGTH + 5, LENGTH + 8):
        given = operands(length=length, sinks=True)
        if dynamic:
            for each in given[:3]:
                torch._dynamo.mark_dynamic(each, 2)
        with truth.Float64():
            true = function(*(each.detach().double() for each in given))
        mine, theirs = (truth.relative(each, true) for each in (call(*given), function(*given)))
        assert mine <= theirs
    assert counted()["written_out_attentions"] >= 1


def shown_twice(query, key, value):
    scores = torch.matmul(query, repeated(key).transpose(2, 3)) + causal(query.shape[2], query.dtype)
    weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    return torch.matmul(weights, repeated(value)), weights


def learned(query, key, value):
    scores = torch.matmul(query, repeated(key).transpose(2, 3)) + query.sum(-1, keepdim=True)
    return torch.matmul(F.softmax(scores, dim=-1), repeated(value))


def in_f32(query, key, value):
    scores = torch.matmul(query.float(), repeated(key).float().transpose(2, 3)) + causal(query.shape[2], torch.float32)
    return torch.matmul(F.softmax(scores, dim=-1).to(value.dtype), repeated(value))


def written_meanwhile(query, key, value):
    key = key * 2
    scores = torch.matmul(query, repeated(key).transpose(2, 3)) + causal(query.shape[2], query.dtype)
    key.mul_(3)
    return torch.matmul(F.softmax(scores, dim=-1), repeated(value)) + key.sum()


def added_in_place(query, key, value):
    scores = torch.matmul(query, repeated(key).transpose(2, 3)) * 0.5
    scores += causal(query.shape[2], query.dtype)
    return torch.matmul(F.softmax(scores, dim=-1), repeated(value))


def test_a_mask_that_is_added_in_place(reference):  # noqa: F811
    assert written_out.apply(graphs.trace(added_in_place, *operands())) == 1
    assert_as_good(graphs.compiled(added_in_place, remainder="aot"), added_in_place)


@pytest.mark.parametrize(
    "function",
    [written_meanwhile, shown_twice, learned, in_f32, plain(dropout=0.1), plain(scaled=torch.tanh)],
    ids=["a write between", "weights that are returned", "a mask that is learned", "products in f32", "dropout", "bounded"],
)
def test_what_is_no_such_attention_stays(function, reference):  # noqa: F811
    module = graphs.trace(function, *operands())
    before = str(module.graph)
    assert written_out.apply(module) == 0 and str(module.graph) == before


def test_a_gradient_of_a_gradient_is_refused(reference):  # noqa: F811
    query, key, value, sinks = operands(dtype=torch.float32, sinks=True)
    given = query, key, value, None, None, None, -1, 0, None, "reference"
    (found,) = torch.autograd.grad(attending.ATTEND_SINKING(*given, sinks).sum(), sinks, create_graph=True)
    with pytest.raises(Error, match="double backward is not supported"):
        torch.autograd.grad(found.sum(), sinks)


def shown(query, key, value, sinks, padding):
    """A batch with the padding mask that tokenizers give."""
    mask = causal(query.shape[2], query.dtype) == 0
    mask = torch.where(mask & padding.bool()[:, None, None, :], torch.zeros((), dtype=query.dtype), NEVER)
    return sinking(lambda *_: mask)(query, key, value, sinks)


def test_a_batch_without_padding_is_called_and_one_with_it_stays_written_out(reference):  # noqa: F811
    padding, counted = torch.ones(BATCH, LENGTH, dtype=torch.int64), Counted()
    given = operands(sinks=True)
    call = graphs.compiled(shown, remainder="aot")
    for hidden in (0, 7):
        padding[1, :hidden] = 0
        with truth.Float64():
            true = shown(*(each.detach().double() for each in given), padding)
        mine, theirs = (truth.relative(each(*given, padding), true) for each in (call, shown))
        assert mine <= theirs * (1.05 if hidden else 1)
    assert counted()["calls_unpadded"] == counted()["calls_padded"] == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_mask_of_which_nothing_is_known(dtype):
    """Attention adds it."""

    def attend(query, key, value, mask):
        return plain(lambda *_: mask)(query, key, value)

    given = [*operands(dtype=dtype), torch.randn(BATCH, 1, LENGTH, LENGTH).to(dtype)]
    module = graphs.trace(attend, *given)
    assert written_out.apply(module) == 1
    with truth.Float64():
        true = attend(*(each.detach().double() for each in given))
    mine, theirs = (truth.relative(each(*given), true) for each in (graphs.compiled(attend, remainder="aot"), attend))
    assert mine <= theirs


@pytest.mark.parametrize("remainder", ["eager", "aot", "inductor"])
def test_a_model_with_sinks_and_windows(remainder, device, reference):  # noqa: F811
    torch.manual_seed(0)
    config = GptOssConfig(
        hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=16, num_local_experts=4, num_experts_per_tok=2, vocab_size=96, sliding_window=8, use_cache=False,
    )  # fmt: skip
    model, counted = GptOssForCausalLM(config).to(device, torch.bfloat16), Counted()
    words = torch.randint(96, (2, 24), device=device)
    call = graphs.compiled(model, remainder=remainder)
    losses = [step(input_ids=words, labels=words).loss for step in (model, call)]
    torch.testing.assert_close(losses[1], losses[0], atol=0.03, rtol=0)
    losses[1].backward()
    assert counted()["written_out_attentions"] == 2 and "fallbacks" not in counted()
    assert all(layer.self_attn.sinks.grad.abs().sum() > 0 for layer in model.model.layers)
