"""Device time of a loss with its gradient: Cermet's one kernel for both beside Inductor, at the sizes of real vocabularies.

The mean cross-entropy of bf16 logits over rows, as transformers computes it (in float32, ignored labels), and the
gradient of the logits for a cotangent of 1. Cermet runs the graph that the backend makes of `F.cross_entropy` (labels
counted, loss and gradient made in one pass over the logits, losses summed) through the C interface; Inductor compiles
forward and backward. The ceiling is a copy that reads the logits once and writes as much, measured as bench/kernels.py
does. Both are checked against float64 on a part of the rows.

    python bench/cross_entropy.py [--out FILE] [--rows 8192] [--vocabulary 32000 128256] [--repeats 20]
"""
from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "gpu")]
import environment
from core import Core
from graphs import Program
from timer import DeviceTimer, measure_copy

from cermet.ops import library
from cermet.importing.importer import import_graph

IGNORED = -100


def loss_text(rows: int, columns: int) -> str:
    """The region that the backend finds in the loss, marked for a gradient in the forward."""
    found = []

    def keep(module, _):
        found.append(library.context().match(import_graph(module).text))
        return module.forward

    logits = torch.empty(rows, columns, device="meta", dtype=torch.bfloat16)
    labels = torch.empty(rows, device="meta", dtype=torch.int64)
    torch._dynamo.reset()
    torch.compile(lambda x, t: F.cross_entropy(x.float(), t), backend=keep)(logits, labels)
    (region,) = found[0]["regions"]
    head, body = region["text"].split(" {\n", 2)[1:]
    return region["text"].split(" {\n", 1)[0] + " {\n" + head + " attributes {cermet.gradient_in_forward} {\n" + body


def truth(logits: torch.Tensor, labels: torch.Tensor, part: slice) -> torch.Tensor:
    wide = logits[part].double().requires_grad_()
    total = F.cross_entropy(wide, labels[part], reduction="sum", ignore_index=IGNORED)
    (total / (labels != IGNORED).sum()).backward()
    return wide.grad


def measure(timer: DeviceTimer, core: Core, rows: int, columns: int) -> dict:
    gradient = core.differentiate(loss_text(rows, columns), [True, False])
    logits = torch.randn(rows, columns, device="cuda").bfloat16()
    labels = torch.randint(columns, (rows,), device="cuda")
    labels[::17] = IGNORED
    ours = Program(core, gradient["forward"], {}, [logits, labels])
    leaf = logits.detach().requires_grad_()
    compiled = torch.compile(lambda x, t: F.cross_entropy(x.float(), t), dynamic=False)

    def inductor(_):
        return torch.autograd.grad(compiled(leaf, labels), leaf)

    part = slice(100, 132)
    wanted = truth(logits, labels, part)
    loss, made = ours()
    errors = {name: ((value[part].double() - wanted).norm() / wanted.norm()).item()
              for name, value in (("cermet", made), ("inductor", inductor(None)[0]))}
    if not max(errors.values()) < 1e-2:
        raise RuntimeError(f"{rows}x{columns}: relative errors {errors}, expected below 1e-2 in bfloat16")
    answer = {"rows": rows, "columns": columns, "relative_errors": errors, "loss": loss.item(),
              "cermet": timer.measure(lambda: None, [lambda _: ours()])[0],
              "inductor": timer.measure(lambda: None, [inductor])[0]}
    answer["copy_us"] = measure_copy(timer, 2 * logits.numel() * logits.element_size())["us"]
    for name in ("cermet", "inductor"):
        answer[name]["fraction"] = answer["copy_us"] / answer[name]["us"]
        print(f"{rows}x{columns} {name:9s} {answer[name]['us']:8.1f} us  {answer[name]['fraction']:.2f} of copy, "
              f"{len(answer[name]['kernels'])} kernels, gradient's error {errors[name]:.1e}", flush=True)
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out")
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--vocabulary", type=int, nargs="*", default=[32000, 128256, 152064])
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    torch.manual_seed(0)
    timer, core = DeviceTimer(options.repeats), Core()
    cases = []
    for columns in options.vocabulary:
        cases.append(measure(timer, core, options.rows, columns))
        torch._dynamo.reset()
        torch.cuda.empty_cache()
    if options.out:
        environment.write(options.out, "cross_entropy", {"cases": cases})
    return 0


if __name__ == "__main__":
    sys.exit(main())
