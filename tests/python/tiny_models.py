"""transformers' own classes in tiny sizes, with random weights that leave nothing at its initial one or zero; what each
family has of what Cermet fuses, by its number of layers; and the ways in which one is called."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
import transformers

LAYERS = 2
VOCABULARY = 128
PADDING = 4  # words of the first row that a padding mask hides


@dataclasses.dataclass(frozen=True)
class Family:
    """Sites of one model of L layers, in multiples of L and plus a constant."""

    norms: tuple[int, int] = (2, 1)  # that are not of queries or keys, alone or after a sum
    qk_norms: int = 0  # with a rotation or without
    ropes: int = 1
    glus: int = 1
    softcaps: tuple[int, int] = (0, 0)  # of the attention's scores and the logits; eager attention only
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    near_miss: str = ""  # the condition of every near miss, where there are some
    sdpa: bool = True  # whether transformers has it for this family

    def norms_of(self, layers: int = LAYERS) -> int:
        return self.norms[0] * layers + self.norms[1]

    def expected(
        self, layers: int = LAYERS, loss: bool = True, dynamic: bool = False, made: bool = False
    ) -> dict[str, int]:
        """What `sites` must give. The scores of a dynamic length have symbolic columns, which no kernel takes; logits
        beside a loss are made when somebody reads them, or with `made` anyway."""
        counts = {
            "norms": self.norms_of(layers),
            "qk_norms": self.qk_norms * layers,
            "rope": self.ropes * layers,
            "glu": self.glus * layers,
            "softcap": self.softcaps[0] * layers * (not dynamic) + self.softcaps[1] * (made or not loss),
            "cross_entropy": int(loss),
        }
        return {name: times for name, times in counts.items() if times}


def sites(counts: dict[str, int]) -> dict[str, int]:
    """Counts of cermet.explain that families have formulas for, with the names of a norm in one."""
    found = {name: times for name, times in counts.items() if name != "cluster" and not name.endswith("_mask")}
    found["norms"] = found.pop("rms_norm") + found.pop("add_rms_norm")
    found["qk_norms"] = found.pop("qk_norm") + found.pop("qk_norm_rope")
    return {name: times for name, times in found.items() if times}


# The families that Cermet promises, ...
NAMED = {
    "Llama": Family(),
    "Mistral": Family(),
    "Qwen2": Family(),
    "Qwen3": Family(qk_norms=2),
    "Gemma": Family(),
    "Gemma2": Family(norms=(4, 1), softcaps=(1, 1), sdpa=False),
    "Phi3": Family(),
}
# ... and some that nothing was written for.
OTHERS = {
    "Apertus": Family(qk_norms=2, glus=0, near_miss="the gradient: cermet.reduce_sum of these shapes has no kernel"),
    "Arcee": Family(glus=0),
    "BitNet": Family(norms=(4, 1), glus=0),
    "Cohere": Family(norms=(1, 1)),
    "Cohere2": Family(norms=(1, 1)),
    "Ernie4_5": Family(),
    "Exaone4": Family(qk_norms=2),
    "Glm": Family(),
    "Glm4": Family(norms=(4, 1)),
    "GPTNeoX": Family(norms=(0, 0), glus=0),
    "Granite": Family(),
    "Helium": Family(),
    "Mixtral": Family(),
    "Olmo2": Family(qk_norms=2),
    "Qwen2Moe": Family(glus=2),
    "SmolLM3": Family(),
    "Starcoder2": Family(norms=(0, 0), glus=0),
}
FAMILIES = NAMED | OTHERS


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
        pad_token_id=0,
    )
    special = FAMILIES[family].settings if family in FAMILIES else {}
    config = getattr(transformers, f"{family}Config")(**settings | special | changes)
    model = getattr(transformers, f"{family.removesuffix('Text')}ForCausalLM")(config)
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


# --- Ways to call a model --------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Call:
    """A model and what it is called with."""

    model: torch.nn.Module
    arguments: dict[str, Any]
    context: contextlib.AbstractContextManager[Any] = dataclasses.field(default_factory=contextlib.nullcontext)


@dataclasses.dataclass(frozen=True)
class Mode:
    """One difference from training in bf16 with labels."""

    loss: bool = True
    training: bool = True
    dtype: torch.dtype = torch.bfloat16
    attention: str | None = None  # transformers' choice
    change: Callable[[Call], None] | None = None

    def call(self, family: str) -> Call:
        settings = {} if self.attention is None else {"attn_implementation": self.attention}
        text = words()
        arguments = {"input_ids": text} | ({"labels": text.clone()} if self.loss else {})
        call = Call(tiny(family, self.dtype, **settings).train(self.training), arguments)
        if not self.training:
            call.context = torch.no_grad()
        if self.change is not None:
            self.change(call)
        return call


def _items(call: Call) -> None:
    call.arguments["num_items_in_batch"] = torch.tensor(20)


def _last(call: Call) -> None:
    call.arguments["logits_to_keep"] = 1


def _padded(call: Call) -> None:
    mask = torch.ones_like(call.arguments["input_ids"])
    mask[0, :PADDING] = 0
    call.arguments["attention_mask"] = mask
    call.arguments["labels"][0, :PADDING] = -100


def _checkpointed(call: Call) -> None:
    call.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def _autocast(call: Call) -> None:
    call.context = torch.autocast("cpu", torch.bfloat16)


def _dynamic(call: Call) -> None:
    for argument in ("input_ids", "labels"):
        torch._dynamo.mark_dynamic(call.arguments[argument], 1)


MODES = {
    "train": Mode(loss=False),
    "eval": Mode(loss=False, training=False),
    "labels": Mode(training=False),
    "num_items_in_batch": Mode(change=_items),
    "logits_to_keep": Mode(loss=False, training=False, change=_last),
    "padding mask": Mode(change=_padded),
    "eager attention": Mode(attention="eager"),
    "sdpa attention": Mode(attention="sdpa"),
    "gradient checkpointing": Mode(change=_checkpointed),
    "autocast": Mode(dtype=torch.float32, change=_autocast),
    "f32": Mode(dtype=torch.float32),
    "bf16": Mode(),
    "dynamic": Mode(change=_dynamic),
}
