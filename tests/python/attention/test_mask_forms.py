"""Masks and biases that are the same for each of a batch are computed once, and no number changes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import graphs
from attending import as_true
from cermet import pipeline
from cermet.attention import calls, mask_forms
from cermet.graph.nodes import example
from cermet.records import Settings

BATCH, HEADS, LENGTH, WIDTH = 16, 4, 77, 16


def shown(query):
    """All, as transformers spells it where it may return no None."""
    places = torch.arange(query.shape[2], device=query.device)
    return (places[None, None, :, None] >= 0).expand(query.shape[0], 1, query.shape[2], query.shape[2])


def beside_a_bias(query, key, value, bias):
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias + shown(query))


def several_calls(query, key, value, bias):
    mask = torch.where(shown(query), 0.0, -1e9) * 0.5
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, :, :, :LENGTH].to(query.dtype) + bias)


def alone(query, key, value, bias):
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias.expand(query.shape[0], -1, -1, -1))


def written_out(query, key, value, bias):
    scores = (query @ key.transpose(2, 3) * 0.25 + bias).softmax(-1).tanh()  # which no kernel of attention does
    return (scores + torch.where(shown(query), 0.25, -1e9).to(query.dtype)).softmax(-1) @ value


def viewed(query, key, value, bias):
    """Another shape of the whole: what is repeated may have none."""
    mask = torch.where(shown(query), 0.5, -1e9)
    return query * mask.reshape(query.shape[0], -1).sum(-1)[:, None, None, None]


def returned(query, key, value, bias):
    return torch.where(shown(query), 0.5, -1e9)


def written(query, key, value, bias):
    mask = torch.where(shown(query), 0.5, -1e9)
    mask[0] = 1.0
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def by_channels(query, key, value, bias):
    mask = F.prelu(shown(query).to(query.dtype), query[0, :1, 0, 0].abs())
    return F.scaled_dot_product_attention(query, key, value, attn_mask=bias + mask)


def of_its_own(query, key, value, bias):
    mask = bias + ((query[..., :1] > 0) * 0.5).to(bias.dtype)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def operands(batch=BATCH, dtype=torch.float32):
    shape = batch, HEADS, LENGTH, WIDTH
    return [*(torch.randn(shape, dtype=dtype) for _ in range(3)), torch.randn(1, HEADS, LENGTH, LENGTH, dtype=dtype)]


def largest(module):
    """Elements of what is of the scores' last two sizes, and of no product."""
    values = [example(node) for node in module.graph.nodes if node.op.startswith("call") and "matmul" not in node.name]
    values = [each for each in values if isinstance(each, torch.Tensor) and each.shape[-2:] == (LENGTH, LENGTH)]
    return max((each.untyped_storage().nbytes() // each.element_size() for each in values), default=0)


@pytest.mark.parametrize("rows", ["known", "symbolic"])
@pytest.mark.parametrize(("function", "calls"), [(beside_a_bias, 1), (several_calls, 5), (alone, 0)])
def test_attention_is_given_one_mask(function, calls, rows):
    given = operands()
    for each in given[:3] if rows == "symbolic" else ():
        torch._dynamo.mark_dynamic(each, 0)
    module, arguments = graphs.traced(function, *given)
    assert mask_forms.shape(module) == calls
    assert largest(module) == HEADS * LENGTH * LENGTH or function is alone
    (attention,) = module.graph.find_nodes(op="call_function", target=F.scaled_dot_product_attention)
    assert tuple(example(attention.kwargs["attn_mask"]).shape) == (1, HEADS, LENGTH, LENGTH)
    torch.testing.assert_close(module(*arguments)[0], function(*given))


def test_what_is_added_to_scores_is_repeated_where_it_is_read():
    given = operands()
    module, arguments = graphs.traced(written_out, *given)
    assert mask_forms.shape(module) == 2
    (mask,) = module.graph.find_nodes(op="call_function", target=torch.where)
    assert example(mask).numel() == LENGTH * LENGTH
    torch.testing.assert_close(module(*arguments)[0], written_out(*given))


def test_it_is_a_pass():
    module, _ = graphs.traced(beside_a_bias, *operands())
    pipeline.run(module, Settings(), until="dropouts")
    (attention,) = module.graph.find_nodes(op="call_function", target=F.scaled_dot_product_attention)
    assert tuple(example(attention.kwargs["attn_mask"]).shape) == (1, HEADS, LENGTH, LENGTH)


def heads_beside_one_another(query, key, value, bias):
    """As a table gives a number for each head: bias [places, places, heads]."""
    mask = bias.permute(2, 0, 1)[None]
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask * 2)


def of_a_table(dtype):
    return [*operands(dtype=dtype)[:3], torch.randn(LENGTH, LENGTH, HEADS, dtype=dtype)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "f32"])
@pytest.mark.parametrize("has_kernel", [False, True])
def test_a_mask_that_no_kernel_takes_is_copied_into_rows(has_kernel, dtype, monkeypatch):
    """In f32, products have other sums than a kernel: torch's choice stays."""

    def traced(node, given):
        lies = example(given["attn_mask"]).stride(-1) == 1
        return example(node), "a kernel" if lies or has_kernel else None

    monkeypatch.setattr(mask_forms, "traced", traced)
    monkeypatch.setattr(calls, "traced", traced)
    given = of_a_table(dtype)
    module, arguments = graphs.traced(heads_beside_one_another, *given)
    mask_forms.shape(module)
    (attention,) = module.graph.find_nodes(op="call_function", target=F.scaled_dot_product_attention)
    mask = example(attention.kwargs["attn_mask"])
    copied = not has_kernel and dtype == torch.bfloat16
    assert tuple(mask.shape) == (1, HEADS, LENGTH, LENGTH) and (mask.stride(-1) == 1) == copied
    torch.testing.assert_close(module(*arguments)[0], heads_beside_one_another(*given))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch has such kernels on a GPU")
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_gpu_has_a_kernel_for_it(dropout):
    def function(query, key, value, bias):
        mask = torch.where(shown(query), bias.permute(2, 0, 1)[None], -1e4)
        result = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        return result.transpose(1, 2).contiguous()  # which lies the same, whoever attends

    def in_rows(query, key, value, bias):
        return function(query, key, value, bias.permute(2, 0, 1).contiguous().permute(1, 2, 0))

    args = [each.cuda().requires_grad_() for each in of_a_table(torch.bfloat16)]
    call = torch.compile(function, backend="cermet", fullgraph=True, options={"strict": True, "remainder": "aot"})
    call(*args).sum().backward()  # what tracing tries is no call
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call(*args).sum().backward()
    called = {event.key for event in profile.key_averages()}
    assert "aten::_scaled_dot_product_efficient_attention" in called and "aten::bmm" not in called
    if not dropout:  # no worse than that kernel: products in f32 are nearer
        as_true(call, in_rows, args)


@pytest.mark.parametrize("function", [viewed, returned, written, of_its_own])
def test_what_others_read_otherwise_stays(function):
    module, _ = graphs.traced(function, *operands())
    before = str(module.graph)
    assert mask_forms.shape(module) == 0 and str(module.graph) == before


@pytest.mark.parametrize("function", [beside_a_bias, several_calls, alone, written_out, of_its_own, by_channels])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_numbers_and_gradients(function, dtype, device):
    args = [each.to(device).requires_grad_() for each in operands(dtype=dtype)]
    as_true(graphs.compiled(function), function, args)
