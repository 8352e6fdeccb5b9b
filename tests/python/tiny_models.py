"""transformers' own classes in tiny sizes, with random weights that leave nothing at its initial one or zero."""

from __future__ import annotations

import torch
import transformers

LAYERS = 2
VOCABULARY = 128
# Norms with weights in a model of LAYERS layers; each layer has one GLU.
NORMS = {"Llama": 2 * LAYERS + 1, "Mistral": 2 * LAYERS + 1, "Qwen2": 2 * LAYERS + 1, "Qwen3": 4 * LAYERS + 1}


def tiny(family: str, dtype: torch.dtype = torch.float32, device: str = "cpu", seed: int = 0, **changes):
    settings = dict(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=128,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=None,
    )
    config = getattr(transformers, f"{family}Config")(**settings | changes)
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    redraw(model, seed)
    return model.to(device, dtype)


def redraw(model: torch.nn.Module, seed: int) -> None:
    """Fresh parameters in place: matrices of their initial size, norm weights around 1, biases around 0."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=random)
            centre = 1.0 if "norm" in name else 0.0
            scale = 0.2 if parameter.dim() == 1 else parameter.shape[-1] ** -0.5
            parameter.copy_(centre + scale * noise)


def words(rows: int = 2, length: int = 16, device: str = "cpu", seed: int = 0) -> torch.Tensor:
    random = torch.Generator().manual_seed(1000 + seed)
    return torch.randint(VOCABULARY, (rows, length), generator=random).to(device)
