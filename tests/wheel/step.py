"""One step of the installed package, forward and backward, against float64: `python step.py FOLDER` that it lies in."""

import os
import platform
import sys

import torch

import cermet

folder = os.path.realpath(sys.argv[1])
found = os.path.realpath(cermet.__file__)
assert found.startswith(folder + os.sep), f"cermet is {found}, expected in {folder}"


def glu(gate, up):
    return torch.nn.functional.silu(gate) * up


def step(function, dtype):
    """The result and the gradients of the same numbers."""
    numbers = torch.linspace(-4, 4, 2 * 4 * 32, dtype=torch.float64).reshape(2, 4, 32)
    gate, up = (part.to(dtype).requires_grad_() for part in numbers.unbind())
    result = function(gate, up)
    result.square().sum().backward()
    return result.detach(), gate.grad, up.grad


expected = step(glu, torch.float64)
got = step(torch.compile(glu, backend="cermet"), torch.float32)
for name, one, other in zip(("result", "gradient of gate", "gradient of up"), got, expected):
    difference = (one.double() - other).abs().max().item()
    assert difference <= 1e-5 * other.abs().max().item(), f"{name} is off by {difference}"
counters = cermet.counters()
assert counters["kernels_compiled"] > 0 and counters["launches"] > 0, counters
print(f"Python {platform.python_version()}, torch {torch.__version__}: {counters['kernels_compiled']} kernels compiled")
