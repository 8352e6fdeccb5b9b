"""Device time of functions by themselves, as users compile them: torch.compile(f, backend="cermet"), Inductor, eager.

LayerNorm, RMSNorm, GroupNorm, activations (of one as its operations, too), an embedding, a table of positions that each
sequence of a batch is given, and cumulative sums (alone, and of a softmax as top-p sampling has them), forward and
backward, and the loss of given logits with its gradient in one, in bfloat16. Measured as bench/kernels.py does, with the
same copy as the ceiling. Bytes: of a forward every input read once and every output written once (of a table the rows
that it gives); of a backward the inputs that the formula needs and the cotangent read once, the gradients written once;
what a contender saves beyond that is its own cost. Outputs and gradients are compared with float64 first.

    python bench/functions.py [--only NAME ...] [--contender NAME ...] [--repeats 20] [--tiny] [--out FILE]
"""
from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import time
from pathlib import Path
from typing import Callable

sys.path.insert(0, str(Path(__file__).resolve().parent))
import cold  # before torch, which reads where its caches are

import torch
import torch.nn.functional as F

import environment
import shares
from device import DEVICE
from timer import DeviceTimer, HostTimer, as_tuple, bytes_of, measure_copy, relative_error

EPS = 1e-5
IGNORED = -100
TOLERANCE = 1e-2  # relative L2, in bfloat16
TINY = (16, 64)
TOKENS, CHANNELS = 8192, 256


@dataclasses.dataclass(frozen=True)
class Function:
    """`call` of `inputs(rows, columns)`; of those a backward reads `reads` and gives the others' gradients where they
    have one. A loss and its gradient are one measurement. `truth` is the same in float64, where `call` casts."""

    call: Callable
    inputs: Callable[[int, int], list[torch.Tensor]]
    sizes: tuple[tuple[int, int], ...]
    reads: tuple[int, ...] = (0,)
    joint: bool = False
    table: int | None = None  # an input of which a forward reads as much as it gives
    truth: Callable | None = None


def rows_of(rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, columns, device=DEVICE).bfloat16().requires_grad_()


def vector_of(columns: int, middle: float) -> torch.Tensor:
    return (middle + 0.1 * torch.randn(columns, device=DEVICE)).bfloat16().requires_grad_()


def labels_of(rows: int, columns: int) -> torch.Tensor:
    labels = torch.randint(columns, (rows,), device=DEVICE)
    labels[::17] = IGNORED
    return labels


def layer_norm(x, weight, bias):
    return F.layer_norm(x, (x.shape[-1],), weight, bias, EPS)


def rms_norm(x, weight):  # as transformers writes it
    wide = x.to(torch.float32)
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)).to(x.dtype)


def images_of(rows: int, columns: int) -> list[torch.Tensor]:
    channels = min(rows, CHANNELS)
    x = rows_of(rows, columns).detach().view(-1, channels, columns).requires_grad_()
    return [x, vector_of(channels, 1), vector_of(channels, 0)]


def table_of(rows: int, columns: int) -> list[torch.Tensor]:
    return [rows_of(rows, columns), torch.randint(rows, (min(TOKENS, 2 * rows),), device=DEVICE)]


def group_norm(x, weight, bias):
    return F.group_norm(x, x.shape[1] // 8, weight, bias, EPS)


def gelu_of_calls(x):  # as transformers writes it
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def positions_of(rows: int, columns: int) -> list[torch.Tensor]:
    return [rows_of(rows, columns).detach(), rows_of(1, columns)]


def exclusive(chances):
    return chances.cumsum(-1) - chances


def activation(call: Callable) -> Function:
    return Function(call, lambda rows, columns: [rows_of(rows, columns)], ((8192, 4096),))


FUNCTIONS = {
    "layer_norm": Function(layer_norm, lambda rows, columns: [rows_of(rows, columns), vector_of(columns, 1),
                                                              vector_of(columns, 0)],
                           ((8192, 1024), (8192, 1280), (8192, 4096)), reads=(0, 1)),
    "group_norm": Function(group_norm, images_of, ((8192, 4096),), reads=(0, 1)),
    "embedding": Function(lambda table, tokens: F.embedding(tokens, table), table_of, ((32000, 2048),), reads=(1,),
                          table=0),
    "positions": Function(lambda x, table: x + table, positions_of, ((8, 1024 * 1280),), reads=()),
    "cumsum": Function(lambda x: x.cumsum(-1, dtype=torch.float32).to(x.dtype),
                       lambda rows, columns: [rows_of(rows, columns)], ((8192, 4096), (8192, 1280), (512, 128256)),
                       reads=(), truth=lambda x: x.cumsum(-1)),
    "top_p": Function(lambda x: exclusive(x.softmax(-1, dtype=torch.float32)).to(x.dtype),
                      lambda rows, columns: [rows_of(rows, columns)], ((8192, 4096), (512, 128256)),
                      truth=lambda x: exclusive(x.softmax(-1))),
    "gelu": activation(F.gelu),
    "gelu_tanh": activation(lambda x: F.gelu(x, approximate="tanh")),
    "gelu_of_calls": activation(gelu_of_calls),
    "quick_gelu": activation(lambda x: x * torch.sigmoid(1.702 * x)),
    "silu": activation(F.silu),
    "relu_squared": activation(lambda x: F.relu(x).square()),
    "mish": activation(F.mish),
    "tanh": activation(torch.tanh),
    "cross_entropy": Function(lambda x, labels: F.cross_entropy(x.float(), labels, ignore_index=IGNORED),
                              lambda rows, columns: [rows_of(rows, columns), labels_of(rows, columns)],
                              ((8192, 32000), (8192, 128256), (8192, 50257)), reads=(0, 1), joint=True,
                              truth=lambda x, labels: F.cross_entropy(x, labels, ignore_index=IGNORED)),
    "rms_norm": Function(rms_norm, lambda rows, columns: [rows_of(rows, columns), vector_of(columns, 1)],
                         ((3000, 1024),), reads=(0, 1),
                         truth=lambda x, weight: F.rms_norm(x, (x.shape[-1],), weight, EPS)),
}
CONTENDERS = {"cermet": lambda call: torch.compile(call, backend="cermet", dynamic=False),
              "inductor": lambda call: torch.compile(call, dynamic=False), "eager": lambda call: call}


class Case:
    """A function at one size with its inputs, cotangents and what is true of them."""

    def __init__(self, name: str, rows: int, columns: int):
        self.function = FUNCTIONS[name]
        torch.manual_seed(rows + columns)
        self.inputs = self.function.inputs(rows, columns)
        self.leaves = [tensor for tensor in self.inputs if tensor.requires_grad]
        wide = [t.detach().double().requires_grad_() if t.requires_grad else t for t in self.inputs]
        outputs = as_tuple((self.function.truth or self.function.call)(*wide))
        self.cotangents = [torch.randn_like(output).bfloat16() for output in outputs]
        if self.function.joint:  # a loss is a float32 number, and backward() starts from 1
            self.cotangents = [torch.ones((), device=DEVICE)]
        gradients = torch.autograd.grad(outputs, [tensor for tensor in wide if tensor.requires_grad],
                                        [cotangent.double() for cotangent in self.cotangents])
        self.truth = [tensor.detach() for tensor in (*outputs, *gradients)]

    def gradients(self, outputs: tuple) -> tuple:
        return torch.autograd.grad(outputs, self.leaves, self.cotangents)

    def bytes(self) -> dict[str, int]:
        gradients = bytes_of(self.leaves)  # as large as what they are of
        read = bytes_of([self.inputs[index] for index in self.function.reads])
        if self.function.joint:
            return {"loss and gradient": read + gradients}
        outputs = bytes_of(self.cotangents)
        whole = [tensor for index, tensor in enumerate(self.inputs) if index != self.function.table]
        given = outputs if self.function.table is None else 2 * outputs
        return {"forward": bytes_of(whole) + given, "backward": read + outputs + gradients}

    def segments(self, call: Callable) -> list[Callable]:
        if self.function.joint:
            return [lambda _: self.gradients(as_tuple(call(*self.inputs)))]
        return [lambda _: as_tuple(call(*self.inputs)), self.gradients]


def measure(timer: DeviceTimer | HostTimer, case: Case, call: Callable, copies: dict[int, float]) -> dict:
    """By direction the time, its bytes and fraction of a copy, and the kernels that ran; the worst relative error."""
    start = time.perf_counter()
    outputs = as_tuple(call(*case.inputs))
    found = [*(tensor.detach() for tensor in outputs), *case.gradients(outputs)]
    worst = max(relative_error(mine, true) for mine, true in zip(found, case.truth, strict=True))
    answer = {"first_call_s": time.perf_counter() - start, "relative_error": worst}
    if not worst < TOLERANCE:
        raise RuntimeError(f"relative error {worst:.1e}, expected below {TOLERANCE:.0e}")
    del outputs, found
    for (direction, size), found in zip(case.bytes().items(), timer.measure(lambda: None, case.segments(call))):
        if size not in copies:
            copies[size] = measure_copy(timer, size)["us"]
        ours = sum(shares.kind_of(name) == "cermet" for name in found["kernels"])
        answer[direction] = found | {"bytes": size, "copy_us": copies[size], "fraction": copies[size] / found["us"],
                                     "ours": ours}
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="bench-out/functions.json")
    parser.add_argument("--only", choices=FUNCTIONS, nargs="+", default=list(FUNCTIONS))
    parser.add_argument("--contender", choices=CONTENDERS, nargs="+", default=list(CONTENDERS))
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--tiny", action="store_true", help="of a few columns, on a CPU too: only to try it out")
    arguments = parser.parse_args()
    if not (torch.cuda.is_available() or arguments.tiny):
        sys.exit("bench/functions.py measures a GPU and there is none here")
    timer = (DeviceTimer if torch.cuda.is_available() else HostTimer)(arguments.repeats)
    cases, copies, failed = [], {}, False
    for name in arguments.only:
        for rows, columns in [TINY] if arguments.tiny else FUNCTIONS[name].sizes:
            case = Case(name, rows, columns)
            for key in arguments.contender:
                row = {"function": name, "rows": rows, "columns": columns, "contender": key}
                torch._dynamo.reset()
                try:
                    row |= measure(timer, case, CONTENDERS[key](case.function.call), copies)
                except Exception as problem:  # the others keep their figures
                    row["failed"] = f"{type(problem).__name__}: {problem}"[:2000]
                    print(f"{name:14s}{rows:>6d}x{columns:<7d}{key:9s} failed: {row['failed']}", flush=True)
                    failed |= key == "cermet"
                cases.append(row)
                for direction in case.bytes() if "failed" not in row else ():
                    part = row[direction]
                    print(f"{name:14s}{rows:>6d}x{columns:<7d}{key:9s} {direction:18s}{part['us']:9.1f} us  "
                          f"{part['fraction']:5.2f} of copy, {len(part['kernels'])} kernels, {part['ours']} of Cermet's",
                          flush=True)
            del case
        environment.write(arguments.out, "functions", {"repeats": arguments.repeats, "cases": cases})  # is kept
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    sys.exit(failed)


if __name__ == "__main__":
    main()
