"""Random joint graphs under each choice of what a forward keeps: the numbers are those of keeping all that torch keeps,
to the bit where nothing is rounded anew. More of them on request."""

from __future__ import annotations

import os

import pytest
import torch

import aten_programs
import cermet

BLOCK = 4
GRAPHS = int(os.environ.get("JOINT_GRAPHS", "24"))
UNITS = 64  # of the type's rounding, where a kernel of another form sums in another order


def numbers(program, memory: str) -> dict[str, torch.Tensor]:
    torch._dynamo.reset()
    options = {"strict": True, "remainder": "aot", "memory": memory}
    call = torch.compile(program.function(), backend="cermet", fullgraph=True, options=options)
    return aten_programs.results(program, call, program.data(program.rows[0]))


@pytest.mark.parametrize("first", range(0, GRAPHS, BLOCK))
def test_what_is_kept_decides_no_numbers(first):
    before, equal = cermet.counters(), []
    for seed in range(first, min(first + BLOCK, GRAPHS)):
        program = aten_programs.drawn(seed)
        if not (program.gradient and aten_programs.means_something(program)):
            continue
        kept = numbers(program, "fast")
        for memory in ("auto", "least"):
            found = numbers(program, memory)
            assert found.keys() == kept.keys(), f"seed {seed}\n{program}"
            for name, value in kept.items():
                equal.append(torch.equal(found[name], value))
                limit = UNITS * torch.finfo(value.dtype).eps * max(value.abs().max().item() if value.numel() else 0, 1)
                said = f"seed {seed}, {memory}, {name}\n{program}"
                torch.testing.assert_close(
                    found[name], value, rtol=0, atol=limit, equal_nan=True, msg=lambda text: f"{text}\n{said}"
                )
    assert sum(equal) >= 0.5 * len(equal), f"{sum(equal)} of {len(equal)} are equal to the bit"
    assert cermet.counters()["fallbacks"] == before["fallbacks"]
