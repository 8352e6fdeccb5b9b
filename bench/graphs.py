"""Device time of graphs nobody wrote a kernel for (tests/graphs), forward and gradient: Cermet's engine beside Inductor.

Measured as bench/kernels.py does, with the same copy as the ceiling. Cermet runs the graph text and the backward text of
its gradient through the C interface; Inductor the same arithmetic in torch, through autograd. Bytes: every input read
once and every output written once, saved values included, of Cermet's own texts.

    python bench/graphs.py [--out FILE] [--only layer_norm ...] [--repeats 30]
"""
from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests" / "gpu")]
import environment
from core import Core, Tensor
from timer import DeviceTimer, as_tuple, measure_copy

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i64": torch.int64, "i32": torch.int32,
          "i1": torch.bool}
NAMES = {value: key for key, value in DTYPES.items()}


def norm(x, weight):
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def two_norms(x, residual, first, second):
    hidden = norm(x, first) + residual
    return norm(hidden, second), hidden


def cross_entropy(logits, label):
    return F.cross_entropy(logits.float(), label[:, 0], reduction="none")[:, None]


def packed_geglu(packed):
    gate, up = packed.chunk(2, -1)
    return up * F.gelu(gate, approximate="tanh")


# graph -> (sizes of its symbols, the same in torch)
GRAPHS = {
    "layer_norm": ({"r0": 65536}, lambda x, weight, bias: F.layer_norm(x, (768,), weight, bias)),
    "softmax": ({"a": 32, "b": 1024}, lambda x: x.float().softmax(-1).to(x.dtype)),
    "gelu_mul_add": ({"r0": 65536}, lambda x, y, r: F.gelu(x) * y + r),
    "two_norms": ({"b": 4, "t": 2048}, two_norms),
    "packed_geglu": ({"r0": 8192}, packed_geglu),
    "cross_entropy": ({"r0": 4096}, cross_entropy),
}


class Program:
    """A text with its tensors, launched on the current stream."""

    def __init__(self, core: Core, text: str, symbols: dict[str, int], given: list[torch.Tensor] | None = None):
        self.program = core.program(text)
        self.steps = len(self.program.json["steps"])
        self.inputs = given or [self.make(value, symbols) for value in self.program.inputs]
        shapes = self.program.output_shapes([tensor.shape for tensor in self.inputs])
        self.outputs = [torch.empty(sizes, dtype=DTYPES[dtype], device="cuda") for sizes, dtype in shapes]
        self.tensors = [Tensor(t.data_ptr(), t.shape, t.stride(), NAMES[t.dtype]) for t in (*self.inputs, *self.outputs)]
        self.size = self.program.workspace_size(self.tensors[:len(self.inputs)])
        self.workspace = torch.empty(self.size + 256, dtype=torch.uint8, device="cuda")

    @staticmethod
    def make(value: dict, symbols: dict[str, int]) -> torch.Tensor:
        sizes = [symbols.get(dim, dim) for dim in value["dims"]]
        if value["dtype"] in ("i64", "i32"):
            return torch.randint(32000, sizes, device="cuda", dtype=DTYPES[value["dtype"]])
        return torch.randn(sizes, device="cuda").to(DTYPES[value["dtype"]])

    def __call__(self) -> list[torch.Tensor]:
        self.program.launch(torch.cuda.current_stream().cuda_stream, self.tensors,
                            -(-self.workspace.data_ptr() // 256) * 256, self.size)
        return self.outputs

    def bytes(self) -> int:
        return sum(math.prod(t.shape) * t.element_size() for t in (*self.inputs, *self.outputs))


def measure(timer: DeviceTimer, core: Core, name: str) -> dict:
    symbols, plain = GRAPHS[name]
    text = (ROOT / "tests/graphs" / f"{name}.mlir").read_text()
    floats = [value["dtype"] in ("f32", "bf16", "f16") for value in core.program(text).inputs]
    gradient = core.differentiate(text, floats)
    forward = Program(core, gradient["forward"], symbols)
    outputs = forward()
    count = gradient["outputs"]
    cotangents = [torch.randn_like(output) for output in outputs[:count]]
    sources = {"input": forward.inputs, "output": outputs[:count], "saved": outputs[count:], "cotangent": cotangents}
    backward = Program(core, gradient["backward"], symbols,
                       [sources[use["from"]][use["index"]] for use in gradient["backward_inputs"]])

    leaves = [t.detach().clone().requires_grad_(wanted) for t, wanted in zip(forward.inputs, floats)]
    wanted = [leaf for leaf, is_float in zip(leaves, floats) if is_float]
    compiled = torch.compile(plain, dynamic=False)
    theirs = as_tuple(compiled(*leaves))
    gradients = torch.autograd.grad(theirs, wanted, cotangents)
    for index, (mine, other) in enumerate(zip([*outputs[:count], *backward()], [*theirs, *gradients])):
        distance = ((mine.double() - other.double()).norm() / other.double().norm()).item()
        if not distance < 2e-2:
            raise RuntimeError(f"{name}: tensor {index} is {distance:.2e} from Inductor's")
    del theirs, gradients
    ours = timer.measure(lambda: None, [lambda _: forward(), lambda _: backward()])
    peer = timer.measure(lambda: None, [lambda _: as_tuple(compiled(*leaves)),
                                        lambda outputs: torch.autograd.grad(outputs, wanted, cotangents)])
    answer = {"graph": name, "symbols": symbols}
    for direction, program, mine, other in zip(("forward", "backward"), (forward, backward), ours, peer):
        copy = measure_copy(timer, program.bytes())["us"]
        answer[direction] = {"steps": program.steps, "bytes": program.bytes(), "copy_us": copy, "cermet": mine,
                             "inductor": other, "fraction": copy / mine["us"], "inductor_fraction": copy / other["us"]}
        print(f"{name:14s} {direction:8s} {program.steps} step  {mine['us']:8.1f} us  {copy / mine['us']:5.2f} of copy   "
              f"inductor {other['us']:8.1f} us  {copy / other['us']:5.2f}", flush=True)
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="bench-out/graphs.json")
    parser.add_argument("--only", choices=GRAPHS, action="append")
    parser.add_argument("--repeats", type=int, default=30)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bench/graphs.py measures a GPU and there is none here")
    timer, core, failed = DeviceTimer(arguments.repeats), Core(), False
    cases = []
    for name in arguments.only or GRAPHS:
        try:
            cases.append(measure(timer, core, name))
        except Exception as problem:  # the others keep their figures
            failed = True
            print(f"{name:14s} failed: {str(problem).splitlines()[0]}", flush=True)
            cases.append({"graph": name, "failed": str(problem)})
        torch.cuda.empty_cache()
    environment.write(arguments.out, "graphs", {"repeats": arguments.repeats, "cases": cases})
    sys.exit(failed)


if __name__ == "__main__":
    main()
