"""Models of many kinds, as users find them in transformers: is a training step ever slower than Inductor's?

Encoders, decoders, encoder-decoders, vision, speech and mixtures of experts, of the sizes in KINDS, random weights in
bfloat16, or in float32 under autocast, dropout as their configurations have it. No kind has anything in Cermet that
knows it. Each has a process of its own with fresh caches, which compiles and runs a step (forward, loss, backward) with
Cermet and then with Inductor: seconds to the end of the first step, then the lower quartile of six times five steps
between two events, a step's kernels by the profiler, and the peak above what is there before a step.

    python bench/kinds.py [--kind NAME ...] [--contender cermet inductor] [--limit 240] [--seconds 560] [--out FILE]

On a machine of several GPUs each lane takes a share: --lane 0/4. Lanes share the host: while one compiles, a step of
another whose launches take longer than its kernels spreads. It exits 1 where Cermet fails.
"""
from __future__ import annotations

import argparse
import math
import os
import sys
import time
from pathlib import Path
from typing import Any, Callable

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cold  # before torch, which reads where its caches are

import torch
import transformers

import alone
import device
import environment
from families import SIZES, USUAL, of_layers

LARGE = {"hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 24}
WIDE = {"hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 8, "intermediate_size": 8192}
SMALLER = SIZES | of_layers(USUAL) | {"image_size": 64, "patch_size": 16, "embed_dim": 32, "d_kv": 16}
SHORTER = {"depths": [1, 1, 1, 1], "num_heads": [2, 2, 4, 4], "hidden_sizes": [32, 32, 64, 64]}


def words(batch: int, tokens: int, masked: bool = False) -> Callable[[Any], dict]:
    def made(config) -> dict:
        ids = torch.randint(5, config.vocab_size - 1, (batch, tokens))
        return {"input_ids": ids, "labels": ids} | ({"attention_mask": torch.ones_like(ids)} if masked else {})
    return made


def translated(batch: int, tokens: int, answer: int) -> Callable[[Any], dict]:
    def made(config) -> dict:
        ids, labels = (torch.randint(5, config.vocab_size - 1, (batch, length)) for length in (tokens, answer))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    return made


def images(batch: int, size: int = 224) -> Callable[[Any], dict]:
    def made(config) -> dict:
        side = getattr(getattr(config, "vision_config", config), "image_size", size)
        side = side if isinstance(side, int) and side < size else size
        return {"pixel_values": torch.randn(batch, 3, side, side), "labels": torch.randint(0, 2, (batch,))}
    return made


def captioned(batch: int) -> Callable[[Any], dict]:
    def made(config) -> dict:
        side, vocabulary = config.vision_config.image_size, config.text_config.vocab_size
        return {"pixel_values": torch.randn(batch, 3, side, side), "return_loss": True,
                "input_ids": torch.randint(5, vocabulary - 1, (batch, 77))}
    return made


def segmented(batch: int, size: int) -> Callable[[Any], dict]:
    return lambda config: {"pixel_values": torch.randn(batch, 3, size, size),
                           "labels": torch.randint(0, 2, (batch, size, size))}


def spoken(batch: int, frames: int, words: int) -> Callable[[Any], dict]:
    return lambda config: {"input_features": torch.randn(batch, config.num_mel_bins, frames),
                           "labels": torch.randint(5, config.vocab_size - 1, (batch, words))}


def heard(batch: int, samples: int, letters: int) -> Callable[[Any], dict]:
    return lambda config: {"input_values": torch.randn(batch, samples),
                           "labels": torch.randint(1, 31, (batch, letters))}


# name -> (model, what its configuration says, a batch)
KINDS: dict[str, tuple[str, dict, Callable[[Any], dict]]] = {
    "ALBERT": ("AlbertForMaskedLM", {**LARGE, "intermediate_size": 4096}, words(16, 512, True)),
    "BART": ("BartForConditionalGeneration", {}, translated(16, 512, 128)),
    "BEiT": ("BeitForImageClassification", {"use_relative_position_bias": True}, images(64)),
    "BERT, autocast": ("BertForMaskedLM", {}, words(32, 512, True)),
    "BLOOM": ("BloomForCausalLM", {"hidden_size": 1024, "n_layer": 24, "n_head": 16}, words(8, 512)),
    "CLIP": ("CLIPModel", {}, captioned(128)),
    "Cohere": ("CohereForCausalLM", {**WIDE, "vocab_size": 128000}, words(4, 1024)),
    "ConvNeXt": ("ConvNextForImageClassification",
                 {"depths": [3, 3, 27, 3], "hidden_sizes": [128, 256, 512, 1024]}, images(64)),
    "DINOv2": ("Dinov2ForImageClassification", {"image_size": 224}, images(64)),
    "DeBERTa-v3": ("DebertaV2ForMaskedLM",
                   {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
                    "relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm",
                    "share_att_key": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False},
                   words(16, 512, True)),
    "DeepSeek-V2": ("DeepseekV2ForCausalLM",
                    {"hidden_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 16,
                     "moe_intermediate_size": 1408, "n_routed_experts": 64, "num_experts_per_tok": 6,
                     "n_shared_experts": 2, "first_k_dense_replace": 1, "q_lora_rank": None, "n_group": 1,
                     "topk_group": 1, "topk_method": "greedy"}, words(4, 1024)),
    "EfficientNet": ("EfficientNetForImageClassification",
                     {"width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280, "image_size": 224},
                     images(64)),
    "Falcon": ("FalconForCausalLM", {"hidden_size": 2048, "num_attention_heads": 32, "num_hidden_layers": 8},
               words(4, 1024)),
    "GPT-NeoX": ("GPTNeoXForCausalLM", {**LARGE, "intermediate_size": 4096}, words(8, 1024)),
    "Gemma-3": ("Gemma3ForCausalLM",
                {"hidden_size": 1152, "num_hidden_layers": 12, "intermediate_size": 6912, "num_attention_heads": 4,
                 "num_key_value_heads": 1, "head_dim": 256}, words(4, 1024)),
    "Granite-MoE": ("GraniteMoeForCausalLM",
                    {"hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4,
                     "intermediate_size": 512, "num_local_experts": 32, "num_experts_per_tok": 8, "vocab_size": 50000},
                    words(4, 1024)),
    "LFM2": ("Lfm2ForCausalLM",
             {"hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4,
              "intermediate_size": 4096, "vocab_size": 64000}, words(4, 1024)),
    "Llama, autocast": ("LlamaForCausalLM", {**WIDE, "num_key_value_heads": 4}, words(4, 1024)),
    "MPT": ("MptForCausalLM", {"d_model": 1024, "n_heads": 16, "n_layers": 12}, words(4, 1024)),
    "Mixtral": ("MixtralForCausalLM",
                {"hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4,
                 "intermediate_size": 3584}, words(4, 1024)),
    "MobileNetV2": ("MobileNetV2ForImageClassification", {}, images(64)),
    "MobileViT": ("MobileViTForImageClassification", {}, images(64, 256)),
    "ModernBERT": ("ModernBertForMaskedLM", {}, words(8, 1024, True)),
    "OLMo-2": ("Olmo2ForCausalLM", WIDE, words(8, 1024)),
    "OPT": ("OPTForCausalLM", {**LARGE, "ffn_dim": 4096}, words(8, 1024)),
    "PVT": ("PvtForImageClassification", {}, images(64)),
    "RegNet": ("RegNetForImageClassification", {}, images(64)),
    "ResNet": ("ResNetForImageClassification", {}, images(64)),
    "SegFormer": ("SegformerForSemanticSegmentation",
                  {"depths": [3, 4, 6, 3], "hidden_sizes": [64, 128, 320, 512], "decoder_hidden_size": 768},
                  segmented(8, 512)),
    "SigLIP": ("SiglipForImageClassification",
               {"vision_config": {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 12,
                                  "num_attention_heads": 16, "image_size": 384, "patch_size": 14}}, images(16, 384)),
    "StarCoder2": ("Starcoder2ForCausalLM", {**WIDE, "num_key_value_heads": 4}, words(4, 2048)),
    "Swin": ("SwinForImageClassification", {"embed_dim": 128, "depths": [2, 2, 18, 2], "num_heads": [4, 8, 16, 32]},
             images(64)),
    "T5": ("T5ForConditionalGeneration",
           {"d_model": 768, "d_ff": 2048, "d_kv": 64, "num_layers": 12, "num_heads": 12,
            "feed_forward_proj": "gated-gelu", "decoder_start_token_id": 0}, translated(16, 512, 128)),
    "ViTMAE": ("ViTMAEForPreTraining", {}, lambda config: {"pixel_values": torch.randn(64, 3, 224, 224)}),
    "WavLM": ("WavLMForCTC",
              {"layerdrop": 0.0, "mask_time_prob": 0.0, "ctc_loss_reduction": "mean", "vocab_size": 32},
              heard(8, 160000, 60)),
    "Whisper": ("WhisperForConditionalGeneration",
                {"d_model": 768, "encoder_layers": 12, "decoder_layers": 12, "encoder_attention_heads": 12,
                 "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072},
                spoken(16, 3000, 200)),
    "XLM-R": ("XLMRobertaForMaskedLM", {"vocab_size": 250002, "max_position_embeddings": 514}, words(16, 512, True)),
    "gpt-oss": ("GptOssForCausalLM",
                {"hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 4,
                 "intermediate_size": 1024, "num_local_experts": 16, "num_experts_per_tok": 4, "vocab_size": 64000},
                words(4, 1024)),
    "wav2vec 2.0": ("Wav2Vec2ForCTC",
                    {"layerdrop": 0.0, "mask_time_prob": 0.0, "ctc_loss_reduction": "mean", "vocab_size": 32},
                    heard(8, 160000, 60)),
}
CONTENDERS = ("cermet", "inductor")
AUTOCAST = ", autocast"


def smaller(settings: dict) -> dict:
    return {name: smaller(value) if isinstance(value, dict)
            else (SHORTER if isinstance(value, list) else SMALLER).get(name, value) for name, value in settings.items()}


def shorter(value: Any) -> Any:
    """Of two rows, words of which there are a few."""
    if not isinstance(value, torch.Tensor):
        return value
    words = value.dim() == 2 and not value.is_floating_point()
    return (value[:2, :32] if words else value[:2]).contiguous()


def made(kind: str, tiny: bool) -> tuple[torch.nn.Module, dict]:
    name, settings, batch = KINDS[kind]
    torch.manual_seed(0)
    model = getattr(transformers, name)
    config = model.config_class(**(smaller(settings) if tiny else settings))
    if hasattr(config, "use_cache") and not getattr(config, "is_encoder_decoder", False):
        config.use_cache = False
    dtype = torch.float32 if kind.endswith(AUTOCAST) else torch.bfloat16
    with torch.device(device.DEVICE):
        given = batch(config)
        built = model(config).train().to(dtype)
    if tiny:
        given = {name: shorter(value) for name, value in given.items()}
    return built, {name: value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
                   for name, value in given.items()}


def measure(kind: str, contenders: list[str], tiny: bool) -> dict:
    model, batch = made(kind, tiny)
    rows = []
    for contender in contenders:
        torch._dynamo.reset()
        call = torch.compile(model, backend=contender)

        def step() -> torch.Tensor:
            with torch.autocast(device.DEVICE, torch.bfloat16, enabled=kind.endswith(AUTOCAST)):
                loss = call(**batch).loss
            loss.backward()
            model.zero_grad(set_to_none=True)
            return loss.detach()

        device.synchronize()
        began = time.perf_counter()
        torch.manual_seed(1)
        loss = float(step())
        device.synchronize()
        row = {"contender": contender, "first_step_seconds": round(time.perf_counter() - began, 1), "loss": loss}
        for _ in range(1 if tiny else 3):
            step()
        row |= memory(step)
        times = sorted(device.milliseconds(step, 1 if tiny else 5) for _ in range(6))
        row |= {"milliseconds": round(times[1], 2), "spread": round(times[-2] - times[1], 2)}
        rows.append(row | kernels(step))
        if not math.isfinite(loss):
            raise ValueError(f"{contender}'s loss is {loss}")
    parameters = sum(each.numel() for each in model.parameters())
    return {"kind": kind, "parameters": parameters, "rows": rows}


def memory(step: Callable[[], Any]) -> dict:
    if device.DEVICE != "cuda":
        return {}
    device.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    device.synchronize()
    return {"peak_gb": round((torch.cuda.max_memory_allocated() - before) / 1e9, 2)}


def kernels(step: Callable[[], Any]) -> dict:
    """How many a step has, and how long they take."""
    if device.DEVICE != "cuda":
        return {}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        device.synchronize()
    found = profile.key_averages()
    return {"kernels": sum(each.count for each in found),
            "kernel_milliseconds": round(sum(each.device_time_total for each in found) / 1e3, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="bench-out/kinds.json")
    parser.add_argument("--kind", choices=KINDS, nargs="+", metavar="NAME", default=list(KINDS))
    parser.add_argument("--contender", choices=CONTENDERS, nargs="+", default=list(CONTENDERS))
    parser.add_argument("--lane", default="0/1", help="which GPU of how many: its share of the kinds runs there")
    parser.add_argument("--limit", type=float, default=240, help="seconds of one kind")
    parser.add_argument("--seconds", type=float, default=3600, help="after which no kind is begun")
    parser.add_argument("--tiny", action="store_true", help="small sizes: only to try it out")
    parser.add_argument("--here", action="store_true", help="in this process: what the others are asked for")
    arguments = parser.parse_args()
    if arguments.here:
        kind = arguments.kind[0]
        return alone.answer(arguments.out, kind, lambda: measure(kind, arguments.contender, arguments.tiny))

    lane, lanes = map(int, arguments.lane.split("/"))
    if lanes > 1:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(lane)
    end, cases = time.monotonic() + arguments.seconds, []
    for kind in arguments.kind[lane::lanes]:
        left = end - time.monotonic()
        if left < 20:
            break
        asked = ["--kind", kind, "--contender", *arguments.contender, *["--tiny"] * arguments.tiny]
        cases.append({"kind": kind} | alone.ask("kinds.py", kind, asked, min(left, arguments.limit)))
        print(cases[-1], flush=True)
    environment.write(arguments.out, "kinds", {"cases": cases})
    sys.exit(any("failed" in case and "late" not in case for case in cases))


if __name__ == "__main__":
    main()
