"""Trains a small Llama (transformers, random weights) in eager, through torch.compile(model) and through
torch.compile(model, backend="cermet").

All start from the same weights and see the same batches of a small Markov language, so their loss curves must lie on
each other, and none can go below the language's entropy. They take their steps in turns, so that what else the machine
does meets all of them; one whose steps take ten times eager's stops early. Prints tokens per second by the median step,
the first step's seconds, and what Cermet replaced; writes that as a page to OUT/explain.html, the curves to OUT/loss.png
and the numbers to OUT/demo.json.
"""
from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {
    # 2 cores: about a quarter of a second a step
    "cpu": dict(hidden_size=256, intermediate_size=704, num_hidden_layers=4, num_attention_heads=8,
                num_key_value_heads=4, batch=8, tokens=128, dtype=torch.float32, rate=3e-3),
    "cuda": dict(hidden_size=2048, intermediate_size=5632, num_hidden_layers=8, num_attention_heads=16,
                 num_key_value_heads=4, batch=8, tokens=1024, dtype=torch.bfloat16, rate=3e-4),
}
VOCABULARY = 256
SLOW, PATIENCE = 10, 5  # how many times eager's step is too slow, seen after so many steps


class MarkovLanguage:
    """Every word has four possible successors, drawn once; a model learns the table from the text."""

    odds = torch.tensor([0.55, 0.25, 0.15, 0.05])

    def __init__(self, vocabulary: int, seed: int = 0):
        self.random = torch.Generator().manual_seed(seed)
        self.successors = torch.stack([torch.randperm(vocabulary, generator=self.random)[:4] for _ in range(vocabulary)])

    @property
    def entropy(self) -> float:
        """Nats a word, given the word before it: what a perfect model's loss would be."""
        return float(-(self.odds * self.odds.log()).sum())

    def batch(self, rows: int, length: int) -> torch.Tensor:
        """[rows, length] int64 words."""
        text = torch.empty(rows, length, dtype=torch.int64)
        text[:, 0] = torch.randint(len(self.successors), (rows,), generator=self.random)
        choices = torch.multinomial(self.odds, rows * length, replacement=True, generator=self.random).view(rows, length)
        for position in range(1, length):
            text[:, position] = self.successors[text[:, position - 1], choices[:, position]]
        return text


class Run:
    """One way to train: a model of its own, called through `call`, with AdamW."""

    def __init__(self, name: str, model: torch.nn.Module, call: Callable, rate: float):
        self.name, self.call = name, call
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
        self.losses: list[float] = []
        self.seconds: list[float] = []
        self.stopped = False

    def step(self, words: torch.Tensor) -> None:
        start = time.perf_counter()
        loss = self.call(input_ids=words, labels=words).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.losses.append(loss.item())  # waits for the device
        self.seconds.append(time.perf_counter() - start)

    @property
    def median(self) -> float:
        """Seconds of a step once caches and clocks are warm."""
        return statistics.median(self.seconds[len(self.seconds) // 4 + 1 :])


def train(runs: list[Run], batches: list[torch.Tensor]) -> None:
    """Every run sees every batch, each step in another order; one that is SLOW times slower than the first one stops."""
    for number, words in enumerate(batches):
        turns = [run for run in runs if not run.stopped]
        for run in turns if number % 2 == 0 else reversed(turns):
            run.step(words)
            if number == 0:
                print(f"  {run.name}: first step {run.seconds[0]:.2f} s", flush=True)
            elif number >= PATIENCE and run.median > SLOW * runs[0].median:
                run.stopped = True
                print(f"  {run.name}: stopped after {number + 1} steps; one takes over {SLOW} of {runs[0].name}'s", flush=True)
        if (number + 1) % 10 == 0:
            said = ", ".join(f"{run.name} {run.losses[-1]:.3f}" for run in turns)
            print(f"  step {number + 1:3d}, loss: {said}", flush=True)


def plot(runs: list[Run], entropy: float, title: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    styles = {"eager": dict(color="0.6", linewidth=6), "inductor": dict(color="tab:green", linewidth=3),
              "cermet": dict(color="tab:red", linewidth=1.5)}
    for run in runs:
        axes.plot(range(1, len(run.losses) + 1), run.losses, label=run.name, **styles[run.name])
    axes.axhline(entropy, color="tab:blue", linestyle=":", label="entropy of the language")
    axes.set(xlabel="step", ylabel="loss (nats a word)", title=title, ylim=(0, None))
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("demo-out"))
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--remainder", choices=("auto", "aot", "inductor", "eager"), default="auto",
                        help="who runs what Cermet does not replace (default: auto, which chooses by what is left)")
    parser.add_argument("--no-inductor", action="store_true", help="leave out torch.compile(model)")
    arguments = parser.parse_args()
    size = SIZES[arguments.device]
    remainder = arguments.remainder
    arguments.out.mkdir(parents=True, exist_ok=True)

    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=VOCABULARY, max_position_embeddings=size["tokens"], use_cache=False,
                         **{key: size[key] for key in size if key not in ("batch", "tokens", "dtype", "rate")})
    model = LlamaForCausalLM(config).to(arguments.device, size["dtype"])
    inductors, ours_model = copy.deepcopy(model), copy.deepcopy(model)
    language = MarkovLanguage(VOCABULARY)
    batches = [language.batch(size["batch"], size["tokens"]).to(arguments.device) for _ in range(arguments.steps)]
    tokens = size["batch"] * size["tokens"]

    where = torch.cuda.get_device_name() if arguments.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    what = (f"Llama, {config.num_hidden_layers} layers of {config.hidden_size}, "
            f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M weights, {str(size['dtype'])[6:]}")
    print(f"{what}; {size['batch']} x {size['tokens']} tokens a step, {arguments.steps} steps of AdamW on {where}")
    print(f"torch {torch.__version__}, transformers {transformers.__version__}; remainder {remainder!r}", flush=True)

    compiled = torch.compile(ours_model, backend="cermet", options={"remainder": remainder})
    eager, ours = Run("eager", model, model, size["rate"]), Run("cermet", ours_model, compiled, size["rate"])
    peers = [] if arguments.no_inductor else [Run("inductor", inductors, torch.compile(inductors), size["rate"])]
    runs = [eager, *peers, ours]
    train(runs, batches)

    import cermet  # only for its reports: the backend above needs no import

    report = cermet.explain(ours_model, input_ids=batches[0], labels=batches[0])
    print(f"\nWhat Cermet replaced\n{report}\n")
    print(f"{'':8s}{'tokens/s':>10s}{'first step':>13s}{'last loss':>11s}")
    for run in runs:
        print(f"{run.name:8s}{tokens / run.median:10,.0f}{run.seconds[0]:11.2f} s{run.losses[-1]:11.4f}"
              + (f"   (stopped after {len(run.losses)} steps)" if run.stopped else ""))
    ratios = " and ".join(f"{run.median / ours.median:.2f} x {run.name}" for run in runs[:-1])
    apart = " and ".join(f"{run.name}'s {max(abs(a - b) for a, b in zip(eager.losses, run.losses)):.1e}" for run in runs[1:])
    print(f"\ncermet runs at {ratios} here; farthest from eager's curve (rounding grows over steps): {apart}")
    counters = cermet.counters()
    print(f"counters: {counters}")
    picture = arguments.out / "loss.png"
    page = arguments.out / "explain.html"
    page.write_text(report.html())
    plot(runs, language.entropy, what, picture)
    (arguments.out / "demo.json").write_text(json.dumps({
        "device": where, "torch": torch.__version__, "transformers": transformers.__version__, "remainder": remainder,
        "entropy": language.entropy, "tokens_per_step": tokens, "counts": dict(report.counts),
        "runs": {run.name: {"losses": run.losses, "seconds": run.seconds} for run in runs}}, indent=1))
    print(f"loss curves: {picture}; every region with its text, kernels and bytes: {page}")
    print(f"""
What to try next
  the same again            bash demo.sh             (now every kernel comes from the cache)
  all the texts in between  CERMET_DUMP={arguments.out}/dump bash demo.sh   (graph, row program, kernel source)
  another remainder         bash demo.sh --remainder inductor
  your own model            torch.compile(model, backend="cermet"), then print(cermet.explain(model, **batch))""")


if __name__ == "__main__":
    main()
