"""Dimensions of the models that benchmarks measure: transformers' classes with random weights."""
from __future__ import annotations

import dataclasses

import torch
import transformers

from device import DEVICE

_COMMON = dict(use_cache=False, bos_token_id=0, eos_token_id=0, pad_token_id=0)


@dataclasses.dataclass(frozen=True)
class Model:
    family: str  # "Llama": LlamaConfig, LlamaForCausalLM, modeling_llama
    settings: dict  # of the configuration; its layers are the whole model's
    batch: int
    tokens: int  # of a training step's sequence; those of an image are the configuration's
    layers: int | None = None  # how many of them a step's benchmark takes; all where that is None
    optimizer: bool = False  # whether a step ends with AdamW's
    task: str = "CausalLM"  # what the model's class is for
    lora: int | None = None  # the rank of peft's adapters on all products but the head's; other weights are frozen
    scaled: str | None = None  # torchao's recipe for products in floats of eight bits, all but the head's
    checkpointing: bool = False  # whether layers are computed again in the backward
    documents: int = 1  # that each row is packed of, told by positions that begin again
    padding: float = 0.0  # the part of a batch that it is, at the ends of rows

    def config(self, **changes) -> transformers.PretrainedConfig:
        """The configuration, with fewer layers or another vocabulary where `changes` say so."""
        return getattr(transformers, f"{self.family}Config")(**{**_COMMON, **self.settings, **changes})

    def build(self, **changes) -> torch.nn.Module:
        """The model in bfloat16, on the GPU where there is one; peft's adapters as peft makes them, in float32."""
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            with torch.device(DEVICE):
                model = getattr(transformers, f"AutoModelFor{self.task}").from_config(self.config(**changes))
        finally:
            torch.set_default_dtype(before)
        if self.scaled is not None:
            from torchao.float8 import Float8LinearConfig, convert_to_float8_training

            config = Float8LinearConfig.from_recipe_name(self.scaled)
            if DEVICE == "cpu":
                config = dataclasses.replace(config, emulate=True)
            head = model.get_output_embeddings()
            convert_to_float8_training(model, config=config, module_filter_fn=lambda module, _: module is not head)
        if self.checkpointing:
            model.gradient_checkpointing_enable()
            model.enable_input_require_grads()
        if self.lora is None:
            return model
        import peft

        # Drawn, where peft would begin with zeros: then the loss depends on the adapters, and products of zeros are
        # faster than others.
        return peft.get_peft_model(model, peft.LoraConfig(r=self.lora, lora_dropout=0.0, target_modules=_PRODUCTS,
                                                          init_lora_weights=False, task_type="CAUSAL_LM"))

    def tiny(self) -> Model:
        """One of a few widths and two layers, to try a benchmark out."""
        settings = {name: _TINY.get(name, value) for name, value in self.settings.items()}
        return dataclasses.replace(self, settings=settings, batch=2, tokens=min(self.tokens, 32), layers=None)

    def inputs(self) -> dict[str, torch.Tensor]:
        """What a training step is given, random; of masked tokens 15 % have a label, and no padding and no document's
        first token has one."""
        if self.task == "ImageClassification":
            size = self.config().image_size
            images = torch.randn(self.batch, 3, size, size, device=DEVICE, dtype=torch.bfloat16)
            labels = torch.randint(self.config().num_labels, (self.batch,), device=DEVICE)
            return {"pixel_values": images, "labels": labels}
        words = torch.randint(self.settings["vocab_size"], (self.batch, self.tokens), device=DEVICE)
        shown = torch.arange(self.tokens, device=DEVICE) < self._lengths()[:, None]
        if self.task == "CausalLM":
            labels = words.masked_fill(~shown, -100)
            if self.documents > 1:
                places = self._places()
                return {"input_ids": words, "position_ids": places, "labels": labels.masked_fill(places == 0, -100)}
            return {"input_ids": words, "labels": labels} | ({"attention_mask": shown.long()} if self.padding else {})
        masked = torch.rand(self.batch, self.tokens, device=DEVICE) < 0.15
        labels = words.masked_fill(~(masked & shown), -100)
        return {"input_ids": words, "attention_mask": shown.long(), "labels": labels}

    def _lengths(self) -> torch.Tensor:
        """Of rows without their padding: evenly from the shortest to the whole."""
        parts = torch.linspace(1 - 2 * self.padding, 1, self.batch)
        return (parts * self.tokens).round().clamp(min=1).long().to(DEVICE)

    def _places(self) -> torch.Tensor:
        """Positions in documents whose lengths differ from row to row: the first is shorter by a tenth for each."""
        rows = []
        for row in range(self.batch):
            whole = self.tokens // self.documents
            first = whole - row * (whole // 10)
            rest = torch.arange(self.tokens - first) % -(-(self.tokens - first) // (self.documents - 1))
            rows.append(torch.cat([torch.arange(first), rest]))
        return torch.stack(rows).to(DEVICE)

    def masks(self, layers: int) -> dict[str, int]:
        """How many of so many layers' masks Cermet replaces, by what they mean."""
        if self.documents > 1 or self.padding:
            return {"document_mask" if self.documents > 1 else "padding_mask": layers}
        kinds = getattr(self.config(num_hidden_layers=layers), "layer_types", None)
        window = self.settings.get("sliding_window") or self.tokens
        narrow = layers if kinds is None else kinds.count("sliding_attention")
        narrow *= window < self.tokens
        return {name: times for name, times in (("window_mask", narrow), ("causal_mask", layers - narrow)) if times}

    @property
    def random(self) -> bool:
        """Whether a step draws random numbers, so that no two losses are equal."""
        return any("dropout" in name or name.endswith("pdrop") for name, rate in self.settings.items() if rate)

    @property
    def has_experts(self) -> bool:
        return "num_experts" in self.settings

    @property
    def norms_per_layer(self) -> int:
        """But for those of queries and keys."""
        return 4 if self.family in ("Gemma2", "Gemma3Text") else 2


def _sizes(hidden, intermediate, layers, heads, kv_heads, vocabulary, positions=8192, **more) -> dict:
    return dict(hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers, num_attention_heads=heads,
                num_key_value_heads=kv_heads, vocab_size=vocabulary, max_position_embeddings=positions, **more)


_APART, _TIED = {"tie_word_embeddings": False}, {"tie_word_embeddings": True}
_BERT = dict(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16, vocab_size=30522,
             hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
_NO_DROPOUT = {"GPT2": dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
               "Bert": dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)}
_PRODUCTS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
_TINY = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             head_dim=16, vocab_size=512, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, n_embd=64,
             n_layer=2, n_head=4, sliding_window=8)
_QWEN_7B = _sizes(3584, 18944, 28, 28, 4, 152064, **_APART)
# Slices of eight layers of large models, and models whole.
MODELS = {
    "Llama-3-8B": Model("Llama", _sizes(4096, 14336, 32, 32, 8, 128256, **_APART), 4, 2048, 8),
    "Llama-3-8B, checkpointing": Model("Llama", _sizes(4096, 14336, 32, 32, 8, 128256, **_APART), 4, 2048, 8,
                                       checkpointing=True),
    "Llama-3-8B, float8": Model("Llama", _sizes(4096, 14336, 32, 32, 8, 128256, **_APART), 4, 2048, 8,
                                scaled="tensorwise"),
    "Llama-3-8B, float8 by rows": Model("Llama", _sizes(4096, 14336, 32, 32, 8, 128256, **_APART), 4, 2048, 8,
                                        scaled="rowwise"),
    "Qwen3-8B": Model("Qwen3", _sizes(4096, 12288, 36, 32, 8, 151936, head_dim=128, **_APART), 4, 2048, 8),
    "Phi-3-mini": Model("Phi3", _sizes(3072, 8192, 32, 32, 32, 32064, positions=4096, **_APART), 4, 2048, 8),
    "Phi-3-mini, AdamW": Model("Phi3", _sizes(3072, 8192, 32, 32, 32, 32064, positions=4096, **_APART), 4, 1024,
                               optimizer=True),
    "Qwen2.5-0.5B": Model("Qwen2", _sizes(896, 4864, 24, 14, 2, 151936, **_TIED), 8, 1024),
    "Llama-3.2-1B": Model("Llama", _sizes(2048, 8192, 16, 32, 8, 128256, head_dim=64, **_TIED), 8, 1024),
    "Llama-3.2-1B, 32768 tokens": Model("Llama", _sizes(2048, 8192, 16, 32, 8, 128256, head_dim=64, positions=32768,
                                                        **_TIED), 1, 32768, checkpointing=True),
    "Gemma-2-2B": Model("Gemma2", _sizes(2304, 9216, 26, 8, 4, 256000, head_dim=256), 8, 1024),
    # transformers runs these experts by its default, "grouped_mm": tokens sorted by expert and torch's grouped product
    # over them. Its "eager" would be a loop over the experts that were hit.
    "Qwen3-MoE": Model("Qwen3Moe", _sizes(2048, 6144, 48, 32, 4, 151936, head_dim=128, num_experts=128,
                                          num_experts_per_tok=8, moe_intermediate_size=768, **_APART), 4, 1024, 8),
    "Qwen2.5-7B, LoRA": Model("Qwen2", _QWEN_7B, 2, 2048, lora=16),
    "Qwen2.5-7B, LoRA, checkpointing": Model("Qwen2", _QWEN_7B, 2, 2048, lora=16, checkpointing=True),
    "GPT-2-large": Model("GPT2", dict(n_embd=1280, n_layer=36, n_head=20, vocab_size=50257, n_positions=1024,
                                      **_NO_DROPOUT["GPT2"]), 8, 1024),
    "BERT-large": Model("Bert", _BERT, 32, 512, task="MaskedLM"),
    "BERT-large, no dropout": Model("Bert", {**_BERT, **_NO_DROPOUT["Bert"]}, 32, 512, task="MaskedLM"),
    # What attention's masks mean: documents, windows alone and between full layers, padding.
    "Llama-3.2-1B, documents": Model("Llama", _sizes(2048, 8192, 16, 32, 8, 128256, head_dim=64, **_TIED), 2, 4096,
                                     documents=4),
    "Mistral-7B, window": Model("Mistral", _sizes(4096, 14336, 32, 32, 8, 32000, positions=32768, sliding_window=1024,
                                                  **_APART), 2, 8192, 8),
    "Gemma-3-1B": Model("Gemma3Text", _sizes(1152, 6912, 26, 4, 1, 262144, positions=32768, head_dim=256,
                                             sliding_window=512, **_TIED), 2, 4096),
    "Llama-3.2-1B, padding": Model("Llama", _sizes(2048, 8192, 16, 32, 8, 128256, head_dim=64, **_TIED), 8, 1024,
                                   padding=0.3),
    "BERT-large, padding": Model("Bert", {**_BERT, **_NO_DROPOUT["Bert"]}, 32, 512, task="MaskedLM", padding=0.3),
    "ViT-L/16": Model("ViT", dict(hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16,
                                  num_labels=1000), 64, 197, task="ImageClassification"),
}
