"""Rotations as products of complex numbers, of neighbours that become halves, on one key head that all queries share,
and of what was packed and cut twice: each is one rope, in functions and in models that write it so."""

from __future__ import annotations

import pytest
import torch
import transformers

import cermet
import graphs
from test_models import causal, check
from tiny_models import LAYERS, VOCABULARY, redraw

BATCH, HEADS, LENGTH, COLUMNS = 2, 4, 6, 16


def of_complex(q, k, angles):
    factors = torch.polar(torch.ones_like(angles), angles).unsqueeze(1)

    def turned(x):
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * factors).flatten(3).type_as(x)

    return turned(q), turned(k)


def of_neighbours_that_become_halves(q, k, angles):
    cos, sin = (table.to(q.dtype).unsqueeze(1) for table in (angles.cos(), angles.sin()))

    def turned(x):
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.cat([even * cos - odd * sin, odd * cos + even * sin], -1)

    return turned(q), turned(k)


def of_chunks(q, k, angles):
    """Queries and keys are chunks of one tensor; their halves are chunks of a chunk."""
    cos, sin = (table.to(q.dtype).unsqueeze(1) for table in (angles.cos(), angles.sin()))

    def turned(x):
        low, high = x.chunk(2, -1)
        return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)

    return tuple(turned(x) for x in torch.cat([q, k.expand_as(q)], -1).mul(1.0).chunk(2, -1))


FORMS = (of_complex, of_neighbours_that_become_halves, of_chunks)


@pytest.mark.parametrize("keys", [1, 2, HEADS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("form", FORMS)
def test_queries_and_keys_are_one_rope(form, dtype, keys):
    if form is of_chunks and keys not in (1, HEADS):
        pytest.skip("queries and keys of one packed tensor have as many heads")
    q = torch.randn(BATCH, HEADS, LENGTH, COLUMNS).to(dtype)
    k = torch.randn(BATCH, keys, LENGTH, COLUMNS).to(dtype)
    angles = torch.randn(BATCH, LENGTH, COLUMNS // 2)
    found = cermet.explain(form, q, k, angles)
    assert found.counts["rope"] == 1 and found.near_misses == [], str(found)
    for mine, theirs in zip(graphs.compiled(form)(q, k, angles), form(q, k, angles)):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("turning", [COLUMNS // 4, COLUMNS // 2])
def test_heads_of_packed_rows_have_gradients_of_their_own(turning):
    """A row has a query, a key and a value: what turns is read of the first two, and their gradients are no rows with
    zeros for the others."""

    def function(packed, angles):
        cos, sin = (torch.cat([table, table], -1).unsqueeze(1) for table in (angles.cos(), angles.sin()))

        def turned(x):
            first, rest = x[..., :turning], x[..., turning:]
            low, high = first.chunk(2, -1)
            return torch.cat([first * cos + torch.cat([-high, low], -1) * sin, rest], -1)

        query, key, value = packed.chunk(3, -1)
        return turned(query), turned(key), value.exp()

    packed = torch.randn(BATCH, HEADS, LENGTH, 3 * COLUMNS, requires_grad=True)
    angles = torch.randn(BATCH, LENGTH, turning // 2)
    (rope,) = [each for each in cermet.explain(function, packed, angles).places if each.pattern == "rope"]
    assert (len(rope.forward), len(rope.backward)) == (1, 1), rope
    results = [run(packed, angles) for run in (graphs.compiled(function), function)]
    cotangents = [torch.randn_like(each) for each in results[0]]
    mine, theirs = (torch.autograd.grad(each, packed, cotangents)[0] for each in results)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5)


def test_a_conjugate_is_left_alone():
    def function(x, factors):
        return torch.view_as_real(torch.view_as_complex(x) * factors.conj())

    x, factors = torch.randn(3, 8, 2), torch.randn(3, 8, dtype=torch.complex64)
    torch.testing.assert_close(graphs.compiled(function)(x, factors), function(x, factors), rtol=0, atol=0)


def test_a_factor_that_is_written_afterwards_counts_as_it_was():
    def function(x, factors):
        factors = factors * 1.0
        pairs = torch.view_as_complex(x)
        first = torch.view_as_real(pairs * factors).flatten(1)
        factors.mul_(2.0)
        return first, torch.view_as_real(pairs * factors).flatten(1)

    x, factors = torch.randn(3, 8, 2), torch.randn(3, 8, dtype=torch.complex64)
    for mine, theirs in zip(graphs.compiled(function)(x, factors.clone()), function(x, factors.clone())):
        torch.testing.assert_close(mine, theirs)


def model(kind: str) -> torch.nn.Module:
    settings = dict(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=LAYERS, num_attention_heads=4,
        head_dim=16, max_position_embeddings=128, use_cache=False, bos_token_id=0, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    if kind == "Llama4":
        settings |= dict(num_key_value_heads=2, intermediate_size_mlp=96, moe_layers=[], no_rope_layers=[1] * LAYERS)
        made = transformers.Llama4ForCausalLM(transformers.Llama4TextConfig(**settings, use_qk_norm=False))
    else:
        settings |= dict(
            num_key_value_heads=4, kv_lora_rank=32, q_lora_rank=24, qk_rope_head_dim=16, qk_nope_head_dim=16,
            v_head_dim=16, first_k_dense_replace=LAYERS,
        )  # fmt: skip
        made = getattr(transformers, f"{kind}ForCausalLM")(getattr(transformers, f"{kind}Config")(**settings))
    redraw(made, 0)
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["DeepseekV2", "DeepseekV3", "Llama4"])
def test_models_that_write_it_so(kind, dtype):
    found = check(model(kind).to(dtype).train(), causal, dtype, ("eager", "aot"))
    assert found.counts["rope"] == LAYERS and found.near_misses == [], str(found)
