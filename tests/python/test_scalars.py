"""Gradients of parameters of one element. Such a gradient is one sum over everything whose terms cancel, and its error one
number: what eager's is for one seed is luck, so that only its median over many seeds is compared."""

from __future__ import annotations

import statistics

import pytest
import torch
import transformers

import truth
from tiny_models import VOCABULARY, words

SEEDS = range(truth.MEDIAN_SEEDS)


def clip() -> torch.nn.Module:
    shared = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4)
    text = dict(vocab_size=VOCABULARY, max_position_embeddings=32, bos_token_id=0, eos_token_id=VOCABULARY - 1)
    config = transformers.CLIPConfig(
        text_config=shared | text, vision_config=shared | dict(image_size=16, patch_size=4), projection_dim=32
    )
    return transformers.CLIPModel(config)


def gradient(model, call, text, pixels):
    model.zero_grad(set_to_none=True)
    call(input_ids=text, pixel_values=pixels, return_loss=True).loss.backward()
    return model.logit_scale.grad


@pytest.mark.parametrize("remainder", ["aot", "inductor"])
def test_clips_scale_in_bf16(remainder):
    model = clip().bfloat16().train()
    call = torch.compile(model, backend="cermet", options={"strict": True, "remainder": remainder})
    ours, eager = [], []
    for seed in SEEDS:
        random = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name != "logit_scale":
                    centre = float("norm" in name and name.endswith("weight"))
                    scale = 0.2 if parameter.dim() == 1 else parameter.shape[-1] ** -0.5
                    parameter.copy_(centre + scale * torch.randn(parameter.shape, generator=random))
        pixels = torch.randn(4, 3, 16, 16, generator=random).bfloat16()
        text = words(rows=4, seed=seed)
        text[:, -1] = VOCABULARY - 1
        wide = truth.double(model)
        with truth.Float64():
            true = gradient(wide, wide, text, pixels.double())
        ours.append(truth.relative(gradient(model, call, text, pixels), true))
        eager.append(truth.relative(gradient(model, model, text, pixels), true))
    mine, theirs = statistics.median(ours), statistics.median(eager)
    assert mine <= 1.05 * theirs, f"median error {mine:.3e}, eager's {theirs:.3e}"
