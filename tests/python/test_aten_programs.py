"""Random ATen programs through both stages are as good as eager against float64; more of them on request."""

from __future__ import annotations

import os

import pytest
import torch

import aten_programs
import cermet

BLOCK = 6
PROGRAMS, FIRST = int(os.environ.get("ATEN_PROGRAMS", "60")), int(os.environ.get("ATEN_PROGRAMS_FROM", "0"))
SIZES = {"x": 1, "y": 1, "ids": 1, "mask": 1, "order": 0, "cache": 1}  # where an argument has the rows


def compiled_for(program):
    """What compiles a program's function; more than one number of rows is a symbol from the first call on."""

    def compiled(function):
        call = torch.compile(function, backend="cermet", fullgraph=True, options={"strict": True})

        def run(**given):
            for name, dim in SIZES.items():
                if len(program.rows) > 1:
                    torch._dynamo.maybe_mark_dynamic(given[name], dim)
            return call(**given)

        return run

    return compiled


def failure(program) -> str:
    return aten_programs.failure(program, compiled_for(program))


@pytest.mark.parametrize("first", range(FIRST, FIRST + PROGRAMS, BLOCK))
def test_programs_are_as_good_as_eager(first):
    before, ran = cermet.counters(), 0
    for seed in range(first, min(first + BLOCK, FIRST + PROGRAMS)):
        program = aten_programs.drawn(seed)
        if not aten_programs.means_something(program):
            continue
        ran += 1
        wrong = failure(program)
        if wrong:
            least = aten_programs.shrunk(program, lambda candidate: bool(failure(candidate)))
            raise AssertionError(f"seed {seed}: {wrong[:2000]}\nshrunk: {failure(least)[:1000]}\n{least}")
    after = cermet.counters()
    assert ran and after["launches"] > before["launches"] and after["fallbacks"] == before["fallbacks"]


def test_a_wrong_compiler_is_found_and_its_program_shrunk():
    """The control: a compiler that takes one function for another."""

    def wrong(function):
        def run(**given):
            before, torch.tanh = torch.tanh, torch.sin
            try:
                return function(**given)
            finally:
                torch.tanh = before

        return run

    seed = next(seed for seed in range(1000) if "torch.tanh" in aten_programs.drawn(seed).code()
                and aten_programs.means_something(aten_programs.drawn(seed))
                and aten_programs.failure(aten_programs.drawn(seed), wrong))  # fmt: skip
    fails = lambda program: bool(aten_programs.failure(program, wrong))
    least = aten_programs.shrunk(aten_programs.drawn(seed), fails)
    assert [step.kind.code for step in least.steps if "tanh" in step.kind.code] and len(least.steps) <= 2, str(least)
    assert "def program(" in str(least) and f"seed {seed}" in str(least)
