"""Functions that are computed more coarsely where their result has sixteen bits: at every finite number of the type."""
from __future__ import annotations

import math

import pytest
import torch
from test_core import DTYPES, run

FUNCTIONS = {"exp": torch.exp, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "erf": torch.erf,
             "softplus": lambda x: -torch.nn.functional.logsigmoid(-x), "silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu,
             # x (1 + tanh(y)) / 2 in a form that does not cancel
             "gelu_tanh": lambda x: x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))}
TINY = {"gelu": 1e-6}  # 1 + erf(x) cancels in the tail, as in torch
COLUMNS = 256


def text(name: str, dtype: str, rows: int) -> str:
    tensor = f"tensor<{rows}x{COLUMNS}x{dtype}>"
    return f"""module attributes {{cermet.version = 1 : i64}} {{
      func.func @every_number(%x: {tensor}) -> {tensor} {{
        %y = cermet.{name} %x : {tensor}
        return %y : {tensor}
      }}
    }}"""


def ordered(values: torch.Tensor) -> torch.Tensor:
    """Neighbours of a sixteen-bit type as neighbouring integers."""
    bits = values.view(torch.int16).int()
    return torch.where(bits < 0, -(bits & 0x7FFF), bits)


@pytest.mark.parametrize("dtype", ("bf16", "f16"))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_number_of_sixteen_bits(core, name, dtype):
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(DTYPES[dtype])
    every = every[every.isfinite()].cuda()
    x = every[:every.numel() // COLUMNS * COLUMNS].view(-1, COLUMNS)
    (found,) = run(core.program(text(name, dtype, len(x))), [x])
    truth = FUNCTIONS[name](x.double()).to(DTYPES[dtype])
    apart = (ordered(found) - ordered(truth)).abs()
    apart[(found.double() - truth.double()).abs() < TINY.get(name, 1e-30)] = 0
    worst = apart.argmax()
    assert apart.max() <= 1, f"{name}({x.view(-1)[worst]}) is {found.view(-1)[worst]}, not {truth.view(-1)[worst]}"
    assert apart.count_nonzero() <= x.numel() // 1000, f"{apart.count_nonzero()} of {x.numel()} are rounded another way"
