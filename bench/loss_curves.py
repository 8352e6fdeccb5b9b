"""Loss curves of a tiny Llama in bf16, Cermet's beside eager's, each against the float32 curve of the same seed.

For every seed one set of weights and one stream of batches; AdamW, `--steps` steps. The figure is the mean distance from
the float32 curve over the last 50 steps, Cermet's over eager's: 1.0 is as near to float32 as eager is.

    python bench/loss_curves.py [--out FILE] [--seeds 5] [--steps 200] [--remainder inductor]
"""
from __future__ import annotations

import argparse
import copy
import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

sys.path.insert(0, str(Path(__file__).resolve().parent))
import environment

LAST = 50


def batches(seed: int, steps: int, device: str):
    """Texts with something to learn: each token follows from the one before it, but for one in eight."""
    random = torch.Generator().manual_seed(seed)
    follows = torch.randperm(512, generator=random)
    for _ in range(steps):
        text = torch.empty(8, 128, dtype=torch.int64)
        text[:, 0] = torch.randint(512, (8,), generator=random)
        noise = torch.randint(512, (8, 128), generator=random)
        chance = torch.rand(8, 128, generator=random) < 0.125
        for place in range(1, 128):
            text[:, place] = torch.where(chance[:, place], noise[:, place], follows[text[:, place - 1]])
        yield text.to(device)


def curve(model: torch.nn.Module, call, seed: int, steps: int, device: str) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for text in batches(seed, steps, device):
        loss = call(input_ids=text, labels=text).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses).double().tolist()


def distance(losses: list[float], truth: list[float]) -> float:
    return sum(abs(a - b) for a, b in zip(losses[-LAST:], truth[-LAST:])) / LAST


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--remainder", default="inductor")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = LlamaConfig(vocab_size=512, hidden_size=256, intermediate_size=704, num_hidden_layers=4,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, use_cache=False)
    cases = []
    for seed in range(options.seeds):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).to(device)
        narrow = [copy.deepcopy(model).bfloat16() for _ in range(2)]
        compiled = torch.compile(narrow[1], backend="cermet", options={"strict": True, "remainder": options.remainder})
        curves = {name: curve(each, call, seed, options.steps, device)
                  for name, each, call in (("float32", model, model), ("eager", narrow[0], narrow[0]),
                                           ("cermet", narrow[1], compiled))}
        eager, ours = (distance(curves[name], curves["float32"]) for name in ("eager", "cermet"))
        cases.append({"seed": seed, "eager": eager, "cermet": ours, "curves": curves})
        print(f"seed {seed}: last loss {curves['float32'][-1]:.4f} in float32, {curves['eager'][-1]:.4f} eager, "
              f"{curves['cermet'][-1]:.4f} cermet; distance {eager:.5f} and {ours:.5f}", flush=True)
    ratio = sum(case["cermet"] for case in cases) / sum(case["eager"] for case in cases)
    print(f"mean distance over the last {LAST} steps: cermet {ratio:.3f} x eager's")
    if options.out:
        environment.write(options.out, "loss_curves", {"steps": options.steps, "remainder": options.remainder,
                                                       "ratio": ratio, "cases": cases})
    return int(ratio > 1.1)


if __name__ == "__main__":
    sys.exit(main())
