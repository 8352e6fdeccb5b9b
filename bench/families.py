"""Every family of causal models that transformers knows, tiny, with random weights and in float32: do its numbers hold?

Each has a process of its own, compiles twice and is compared with float64: `steps`, the gradients of three training
steps of other lengths, the last two with padding, and `tokens`, the logits of eight tokens decoded from a static cache,
one prompt padded on the left. An error is the norm of the difference by the norm. A family holds where the largest of
Cermet's is at most twice eager's and 1e-5; what rounding decides (an expert, a ReLU's edge) may go either way in both.
Left out, with the reason in the results, are those that eager does not run this way, in float64 too, those that are not
small where their configuration names sizes as others do, and those that compute something else where Dynamo traces
them, whoever compiles that.

    python bench/families.py [--family NAME ...] [--layers 2] [--jobs 16] [--seconds 560] [--out FILE]

It exits 1 unless all hold that end within --limit.
"""
from __future__ import annotations

import argparse
import copy
import math
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cold  # before torch, which reads where its caches are

import torch
import transformers
from torch._dynamo.utils import counters
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

import alone
import device
import environment

SMALL = {
    384: "vocab_size", 256: "max_position_embeddings n_positions n_ctx",
    128: "intermediate_size ffn_dim d_ff ffn_hidden_size hidden_dim encoder_ffn_dim decoder_ffn_dim",
    64: "hidden_size n_embd d_model dim embed_dim embedding_size word_embed_proj_dim max_source_positions",
    32: "moe_intermediate_size shared_expert_intermediate_size", 24: "q_lora_rank",
    16: "head_dim kv_lora_rank qk_nope_head_dim v_head_dim sliding_window mamba_head_dim mamba_d_head block_size",
    8: "qk_rope_head_dim state_size ssm_state_size mamba_d_state mamba_num_heads mamba_n_heads",
    4: "num_attention_heads n_head n_heads num_heads decoder_attention_heads encoder_attention_heads num_experts "
       "num_local_experts n_routed_experts time_step_rank window_size",
    2: "num_key_value_heads num_experts_per_tok eos_token_id",
    1: "n_group topk_group first_k_dense_replace bos_token_id", 0: "pad_token_id decoder_start_token_id",
}
SIZES = {name: size for size, names in SMALL.items() for name in names.split()}
LAYERS = "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers"
USUAL = 2  # layers
MOST = 300e6  # parameters of a model that is tried
STEPS = ((40, 0), (33, 5), (57, 9))  # tokens, of them padding in the second row
ROUNDING = 1e-5


def of_layers(layers: int) -> dict[str, int]:
    """The sizes of a model of so many."""
    return dict.fromkeys(LAYERS.split(), layers) | {"depths": layers - 1}


def config_of(family: str, layers: int) -> transformers.PretrainedConfig:
    kind = CONFIG_MAPPING[family]
    usual = kind()
    changes = {name: 0.0 for name, value in vars(usual).items() if "drop" in name and isinstance(value, float)}
    for name, size in (SIZES | of_layers(layers)).items():
        if type(getattr(usual, name, None)) in (int, float) and name not in kind.attribute_map:
            changes[name] = size
    return kind(**changes)


def model_of(family: str, layers: int) -> torch.nn.Module:
    name = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[family]
    kind, config = getattr(transformers, name if isinstance(name, str) else name[0]), config_of(family, layers)
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in kind(config).parameters())
    if size > MOST:
        raise ValueError(f"{size} parameters")
    torch.manual_seed(0)
    model = kind(config).float()
    return prepared(model)


def prepared(model: torch.nn.Module) -> torch.nn.Module:
    """With no weight that is one of many equal ones, and no dropout."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.02)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model.to(device.DEVICE)


def words(tokens: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 300, (2, tokens), generator=generator).to(device.DEVICE)
    return ids, torch.ones_like(ids)


def steps(model: torch.nn.Module, backend: str | None) -> list[torch.Tensor]:
    """The gradients of each step."""
    model.train().config.use_cache = False
    call, found = torch.compile(model, backend=backend) if backend else model, []
    for tokens, padding in STEPS:
        ids, mask = words(tokens, tokens)
        mask[1, tokens - padding:] = 0
        model.zero_grad()
        call(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss.backward()
        found.append(torch.cat([torch.zeros_like(each).flatten() if each.grad is None else each.grad.flatten()
                                for each in model.parameters()]))
    return found


def tokens(model: torch.nn.Module, backend: str | None) -> list[torch.Tensor]:
    """The logits of each token."""
    model.eval().config.use_cache = True
    ids, mask = words(12, 0)
    mask[1, :4] = 0
    if backend:
        model.forward = torch.compile(model.forward, backend=backend)
    with torch.no_grad():
        out = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=8, min_new_tokens=8, do_sample=False,
                             cache_implementation="static", disable_compile=True, output_logits=True,
                             return_dict_in_generate=True)
    return list(out.logits)


SCENES = {"steps": steps, "tokens": tokens}


def in_float64(model: torch.nn.Module) -> torch.nn.Module:
    twin = copy.deepcopy(model).double()
    for module in twin.modules():
        if getattr(module, "config", None) is not None:
            module.config._experts_implementation = "eager"  # grouped products have no float64
    return twin


def error(found: list[torch.Tensor], exact: list[torch.Tensor]) -> float:
    """The largest; NaN where one is."""
    errors = [(one.double() - two).norm() / two.norm() for one, two in zip(found, exact, strict=True)]
    return float(f"{torch.stack(errors).max().item():.1e}")


def compare(scene, model: torch.nn.Module) -> dict:
    """The largest errors of Cermet's and of eager's, and how many graphs and breaks Dynamo made of it."""
    try:
        exact = scene(in_float64(model), None)
        usual = error(scene(copy.deepcopy(model), None), exact)
    except Exception as problem:
        return left_out(problem)
    if not math.isfinite(usual):
        return {"left_out": "not finite"}
    counters.clear()
    begin = time.perf_counter()
    try:
        ours = error(scene(copy.deepcopy(model), "cermet"), exact)
    except Exception as problem:
        traceback.print_exc()
        return {"failed": f"{type(problem).__name__}: {problem}"[:600]}
    row = {"cermet": ours, "eager": usual, "holds": ours <= 2 * usual + ROUNDING,
           "graphs": counters["stats"]["unique_graphs"], "breaks": sum(counters["graph_break"].values()),
           "seconds": round(time.perf_counter() - begin, 1)}
    if not row["holds"] and ours <= 2 * error(scene(copy.deepcopy(model), "eager"), exact) + ROUNDING:
        return {"left_out": "the model computes something else where Dynamo traces it"}
    return row


def left_out(problem: Exception) -> dict:
    return {"left_out": f"{type(problem).__name__}: {problem}"[:160]}


def measure(family: str, layers: int) -> dict:
    torch.set_num_threads(1)
    try:
        model = model_of(family, layers)
    except Exception as problem:
        return {"key": family} | dict.fromkeys(SCENES, left_out(problem))
    return {"key": family} | {name: compare(scene, model) for name, scene in SCENES.items()}


def add_layers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--layers", type=int, default=USUAL, metavar="N", choices=range(USUAL, 100),
                        help=f"of a model; of seven and more that are alike Cermet compiles five (default: {USUAL})")


def of_such(scene: str, layers: int) -> str:
    """A scene's name in results, which models of other layers do not take the place of."""
    return scene if layers == USUAL else f"{scene}, {layers} layers"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="bench-out/families.json")
    parser.add_argument("--family", choices=MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, nargs="+", metavar="NAME",
                        default=list(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES))
    add_layers(parser)
    alone.add_arguments(parser)
    arguments = parser.parse_args()
    if arguments.here:
        return alone.answer(arguments.out, arguments.family[0], lambda: measure(arguments.family[0], arguments.layers))

    asked = {family: ["--family", family, "--layers", str(arguments.layers)] for family in arguments.family}
    cases = []
    for family, row in alone.each("families.py", asked, arguments, torch.cuda.device_count()):
        told = {name: row[name] for name in ("failed", "late", "left_out") if name in row}
        cases += [{"family": family, "scene": of_such(name, arguments.layers)} | row.get(name, told) for name in SCENES]
        print(*cases[-len(SCENES):], sep="\n", flush=True)
    environment.write(arguments.out, "families", {"cases": cases})
    wrong = [f"{case['family']} {case['scene']}" for case in cases
             if not case.get("holds", not case.keys().isdisjoint(("left_out", "late")))]
    print(f"{len(wrong)} of {len(cases)} do not hold: {', '.join(wrong)}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
