"""Launches every named region and every graph of tests/graphs, forward and backward, on plain driver memory: what
compute-sanitizer runs.

No torch: its own kernels and its caching allocator would hide what a tool looks for. Inputs are written in full and
outputs are not, so that initcheck sees a read of anything unwritten. Sizes are small, since tools slow kernels a
hundredfold: one that fits a vector, one that does not, one whose rows take a block, one with several rows a block.
"""
from __future__ import annotations

import ctypes
import math
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import plain
import regions
from core import Core, Program, Tensor

FORMATS = {"f32": "f", "f16": "e", "f64": "d", "i64": "q", "i32": "i", "i16": "h", "i8": "b", "u8": "B", "i1": "?"}
FORMATS |= {"f8e4m3": "B", "f8e5m2": "B"}  # written by no graph's input
INTEGERS_BELOW = 4  # rows and columns of such numbers are there
ROWS = (1, 7)  # of plain graphs, in every symbolic dimension
CASES = [("bf16", 4096, 9), ("bf16", 127, 37), ("f16", 128, 65), ("f32", 1000, 5), ("bf16", 20000, 3)]


class Memory:
    """cuMemAlloc through the driver alone. Every tensor is its own allocation of exactly its bytes."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.do("cuInit", 0)
        context = ctypes.c_void_p()
        self.do("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.do("cuCtxSetCurrent", context)
        self.held: list[int] = []

    def do(self, name: str, *arguments) -> None:
        result = getattr(self.driver, name)(*arguments)
        if result:
            raise RuntimeError(f"{name} returned CUDA error {result}")

    def allocate(self, size: int) -> int:
        address = ctypes.c_uint64()
        self.do("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(size, 1)))
        self.held.append(address.value)
        return address.value

    def tensor(self, sizes, dtype: str, filled: bool) -> Tensor:
        count, form = math.prod(sizes), "f" if dtype == "bf16" else FORMATS[dtype]
        width = 2 if dtype == "bf16" else struct.calcsize(f"<{form}")
        address = self.allocate(count * width)
        if filled:  # numbers between -1 and 1 that differ from each other, or integers
            steps = (i * 2654435761 % 1024 for i in range(count))
            ramp = [step / 512 - 1 if form in "fed" else step % (2 if form == "?" else INTEGERS_BELOW) for step in steps]
            if dtype == "bf16":
                data = b"".join(struct.pack("<f", value)[2:] for value in ramp)
            else:
                data = struct.pack(f"<{count}{form}", *ramp)
            self.do("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))
        strides = [math.prod(sizes[i + 1:]) for i in range(len(sizes))]
        return Tensor(address, list(sizes), strides, dtype)

    def release(self) -> None:
        self.do("cuCtxSynchronize")
        for address in self.held:
            self.do("cuMemFree_v2", ctypes.c_uint64(address))
        self.held.clear()


def run(memory: Memory, program: Program, inputs: list[Tensor]) -> list[Tensor]:
    outputs = [memory.tensor(sizes, dtype, filled=False)
               for sizes, dtype in program.output_shapes([tensor.sizes for tensor in inputs])]
    size = program.workspace_size(inputs)
    program.launch(0, [*inputs, *outputs], memory.allocate(size) if size else 0, size)
    memory.do("cuCtxSynchronize")
    return outputs


def run_both_ways(memory: Memory, core: Core, text: str, wanted: list[bool], inputs: list[Tensor]) -> None:
    """A graph, and its gradient by cotangents of the outputs' shapes; all of its memory is given back."""
    gradient = core.differentiate(text, wanted)
    results = run(memory, core.program(gradient["forward"]), inputs)
    count = gradient["outputs"]
    cotangents = [memory.tensor(result.sizes, result.dtype, True) for result in results[:count]]
    sources = {"input": inputs, "output": results[:count], "saved": results[count:], "cotangent": cotangents}
    run(memory, core.program(gradient["backward"]),
        [sources[use["from"]][use["index"]] for use in gradient["backward_inputs"]])
    memory.release()


def main() -> None:
    memory, core = Memory(), Core(cache=None)  # the directory cache: the four tools compile once between them
    graphs = 0
    for pattern in regions.PATTERNS:
        for dtype, columns, rows in CASES:
            tiles = regions.TILES[pattern]
            inputs = [memory.tensor((rows, columns), dtype, True) for _ in range(tiles)]
            if regions.HAS_WEIGHT[pattern]:
                inputs.append(memory.tensor((columns,), dtype, True))
            run_both_ways(memory, core, regions.text(pattern, dtype, columns), [True] * len(inputs), inputs)
            graphs += 1
    for path in plain.GRAPHS:
        text = path.read_text()
        whole = core.program(text)
        for rows in ROWS:
            inputs = [memory.tensor(sizes, value["dtype"], True)
                      for value, sizes in zip(whole.inputs, plain.sizes(whole.inputs, rows))]
            run(memory, whole, inputs)  # where nothing is saved
            run_both_ways(memory, core, text, plain.wanted(text, whole.inputs), inputs)
            graphs += 1
    print(f"{graphs} graphs, counters {core.counters()}")


if __name__ == "__main__":
    main()
