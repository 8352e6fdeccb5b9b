"""Dimensions of the models that benchmarks measure: transformers' classes with random weights."""
from __future__ import annotations

import dataclasses

import torch
import transformers

_COMMON = dict(use_cache=False, bos_token_id=0, eos_token_id=0, pad_token_id=0)


@dataclasses.dataclass(frozen=True)
class Model:
    family: str  # "Llama": LlamaConfig, LlamaForCausalLM, modeling_llama
    settings: dict  # of the configuration; its layers are the whole model's
    batch: int
    tokens: int  # of a training step
    layers: int | None = None  # how many of them a step's benchmark takes; all where that is None
    optimizer: bool = False  # whether a step ends with AdamW's

    def config(self, **changes) -> transformers.PretrainedConfig:
        """The configuration, with fewer layers or another vocabulary where `changes` say so."""
        return getattr(transformers, f"{self.family}Config")(**{**_COMMON, **self.settings, **changes})

    def build(self, **changes) -> torch.nn.Module:
        """The model on the GPU in bfloat16."""
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            with torch.device("cuda"):
                return getattr(transformers, f"{self.family}ForCausalLM")(self.config(**changes))
        finally:
            torch.set_default_dtype(before)

    @property
    def norms_per_layer(self) -> int:
        """But for those of queries and keys."""
        return 4 if self.family == "Gemma2" else 2


def _sizes(hidden, intermediate, layers, heads, kv_heads, vocabulary, positions=8192, **more) -> dict:
    return dict(hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers, num_attention_heads=heads,
                num_key_value_heads=kv_heads, vocab_size=vocabulary, max_position_embeddings=positions, **more)


_APART, _TIED = {"tie_word_embeddings": False}, {"tie_word_embeddings": True}
# Slices of eight layers of large models, and models whole.
MODELS = {
    "Llama-3-8B": Model("Llama", _sizes(4096, 14336, 32, 32, 8, 128256, **_APART), 4, 2048, 8),
    "Qwen3-8B": Model("Qwen3", _sizes(4096, 12288, 36, 32, 8, 151936, head_dim=128, **_APART), 4, 2048, 8),
    "Phi-3-mini": Model("Phi3", _sizes(3072, 8192, 32, 32, 32, 32064, positions=4096, **_APART), 4, 2048, 8),
    "Phi-3-mini, AdamW": Model("Phi3", _sizes(3072, 8192, 32, 32, 32, 32064, positions=4096, **_APART), 4, 1024,
                               optimizer=True),
    "Qwen2.5-0.5B": Model("Qwen2", _sizes(896, 4864, 24, 14, 2, 151936, **_TIED), 8, 1024),
    "Llama-3.2-1B": Model("Llama", _sizes(2048, 8192, 16, 32, 8, 128256, head_dim=64, **_TIED), 8, 1024),
    "Gemma-2-2B": Model("Gemma2", _sizes(2304, 9216, 26, 8, 4, 256000, head_dim=256), 8, 1024),
}
