"""Random programs of what ATen has: drawn, run, compared with float64, shrunk and printed as Python.

A program is a list of steps. Each takes values of given forms and makes one of a form, so that what is drawn is always
a program: a tile is `[BATCH, rows, columns]`, and other forms are named after what they are of it. What decides
something (a mask, a number of a row) is made of integers, which are what they are in every precision. What a norm
centres has rows that differ from their mean: of others only what rounding left would be normalised.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

import truth
from aten_steps import ARGUMENTS, KINDS, WEIGHTS, Kind

BATCH, HEADS, WORDS = 2, 2, 11
NAMES = [*ARGUMENTS, "table", "weight", "order", "cache"]


@dataclasses.dataclass(frozen=True)
class Step:
    kind: Kind
    operands: tuple[str, ...]
    name: str


@dataclasses.dataclass(frozen=True)
class Program:
    """What runs: `steps`, of which the values `outputs` are returned, on data of a seed."""

    seed: int
    dtype: torch.dtype
    columns: int
    rows: tuple[int, ...]  # more than one: they are a symbol
    gradient: bool
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]

    def code(self) -> str:
        lines = [f"def program({', '.join(NAMES)}):"]
        for step in self.steps:
            *before, last = step.kind.code.format(*step.operands).split("\n")
            lines += [f"    {line}" for line in (*before, f"{step.name} = {last}")]
        return "\n".join([*lines, f"    return {', '.join(self.outputs)},"]) + "\n"

    def __str__(self) -> str:
        sizes = f"BATCH, HEADS, WORDS, columns = {BATCH}, {HEADS}, {WORDS}, {self.columns}"
        said = f"# seed {self.seed}, rows {self.rows}, {'with' if self.gradient else 'without'} gradient"
        return f"{said}\n{sizes}\ndtype = {self.dtype}\n{self.code()}"

    def function(self) -> Callable[..., tuple[torch.Tensor, ...]]:
        names = dict(torch=torch, F=F, dtype=self.dtype, columns=self.columns, BATCH=BATCH, HEADS=HEADS, WORDS=WORDS)
        exec(compile(self.code(), f"<program {self.seed}>", "exec"), names)
        return names["program"]

    def of(self, steps: Sequence[Step], outputs: Sequence[str]) -> Program:
        """Another program, without steps that it does not need. What is written in the cache is seen from outside."""
        needed, kept = set(outputs), []
        for step in reversed(steps):
            if step.name in needed or step.kind.code.startswith("cache"):
                needed |= {*step.operands, step.name}
                kept.insert(0, step)
        return dataclasses.replace(self, steps=tuple(kept), outputs=tuple(outputs))

    def data(self, rows: int, draw: int = 0) -> dict[str, torch.Tensor]:
        """Arguments by name; `draw` numbers them."""
        random = torch.Generator().manual_seed(1_000_003 * self.seed + 1009 * draw + rows)
        tile, columns = (BATCH, rows, self.columns), self.columns

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=random).to(self.dtype)

        return {
            "x": normal(*tile),
            "y": normal(*tile),
            "scale": normal(columns),
            "bias": normal(columns),
            "ids": torch.randint(WORDS, tile[:2], generator=random),
            "mask": torch.rand(tile, generator=random) < 0.3,
            "table": normal(WORDS, columns),
            "weight": normal(columns, columns) / columns**0.5,
            "order": torch.randperm(rows, generator=random),
            "cache": normal(*tile),
        }


def drawn(seed: int) -> Program:
    """The program of a seed."""
    dice = random.Random(seed)
    forms = dict(ARGUMENTS)
    steps: list[Step] = []
    weights = WEIGHTS | {dice.choice(list(WEIGHTS)): 8}  # each is mostly of one group
    for index in range(dice.randrange(4, 21)):
        name = f"v{index}"
        possible = []
        while not possible:
            group = dice.choices(list(weights), weights.values())[0]
            possible = [kind for kind in KINDS[group] if set(kind.operands) <= set(forms.values())]
        kind = dice.choice(possible)
        step = Step(kind, tuple(_chosen(dice, forms, form) for form in kind.operands), name)
        steps.append(step)
        forms[name] = kind.result
    made = [name for name in forms if name.startswith("v") and forms[name] not in "mn"][-3:] or ["x"]
    rows = tuple(dice.sample(range(4, 20), 2)) if dice.random() < 0.5 else (dice.randrange(3, 20),)
    dtype = torch.bfloat16 if dice.random() < 0.35 else torch.float32
    empty = Program(seed, dtype, dice.choice([8, 16, 24, 32, 36]), rows, dice.random() < 0.75, (), ())
    return empty.of(steps, made)


def _chosen(dice: random.Random, forms: dict[str, str], form: str) -> str:
    """A value of a form; late ones are likelier, since chains are what is fused."""
    fitting = [name for name, other in forms.items() if other == form]
    return fitting[max(dice.randrange(len(fitting)) for _ in range(3))]


# --- Running one -----------------------------------------------------------------------------------------------------


def results(
    program: Program, call: Callable[..., Any], data: dict[str, torch.Tensor], draw: int = 0
) -> dict[str, torch.Tensor]:
    """Outputs, what was written, and gradients, by name. `draw` numbers what they are gradients for."""
    given = {name: value.clone() for name, value in data.items()}
    wanted = [name for name in given if name != "cache" and given[name].is_floating_point() and program.gradient]
    for name in wanted:
        given[name].requires_grad_()
    with torch.set_grad_enabled(program.gradient):
        outputs = call(**given)
        found = {name: output.detach() for name, output in zip(program.outputs, outputs, strict=True)}
        found["cache"] = given["cache"]
        ends = [output for output in outputs if output.requires_grad]
        if ends:
            random = torch.Generator().manual_seed(draw)
            cotangents = [torch.randn(end.shape, generator=random).bfloat16().to(end.dtype) for end in ends]
            inputs = [given[name] for name in wanted]
            gradients = torch.autograd.grad(ends, inputs, cotangents, allow_unused=True)
            found |= {f"d {name}": value for name, value in zip(wanted, gradients) if value is not None}
    return {name: value for name, value in found.items() if value.is_floating_point()}


def true_results(program: Program, data: dict[str, torch.Tensor], draw: int = 0) -> dict[str, torch.Tensor]:
    wide = {name: value.double() if value.is_floating_point() else value for name, value in data.items()}
    with truth.Float64():
        return results(program, program.function(), wide, draw)


def means_something(program: Program) -> bool:
    """Whether eager runs it, and neither it nor its gradient grows beyond what a comparison says something about."""
    try:
        found = true_results(program, program.data(program.rows[0]))
        eager = results(program, program.function(), program.data(program.rows[0]))
    except RuntimeError as error:
        if "in-place" not in str(error) and "inplace" not in str(error):
            raise
        return False
    return all(value.isfinite().all() and value.abs().max() < 1e3 for value in (*found.values(), *eager.values()))


class Errors:
    """Of one way to run a program, by tensor: one for each draw."""

    def __init__(self, program: Program, calls: dict[str, Callable[..., Any]]) -> None:
        self.program, self.calls = program, calls
        self.by_call: dict[str, dict[str, list[float]]] = {who: {} for who in calls}

    def add(self, rows: int, draw: int) -> None:
        data = self.program.data(rows, draw)
        true = true_results(self.program, data, draw)
        for who, call in self.calls.items():
            found = results(self.program, call, data, draw)
            assert found.keys() == true.keys(), f"{who} gives {found.keys()}, expected {true.keys()}"
            for name, value in found.items():
                assert value.shape == true[name].shape, f"{who}: {name} is {value.shape}, expected {true[name].shape}"
                self.by_call[who].setdefault(f"{name}, {rows} rows", []).append(truth.relative(value, true[name]))


def failure(program: Program, compiled: Callable[[Callable[..., Any]], Callable[..., Any]]) -> str:
    """What is wrong with a compiled program, or ""."""
    torch._dynamo.reset()
    eager = program.function()
    calls = {"ours": compiled(program.function()), "eager": eager}
    try:
        few = Errors(program, calls)
        for rows in program.rows:
            few.add(rows, 0)
        far = truth.far_from_eager(few.by_call["ours"], few.by_call["eager"], program.dtype)
        if far:  # which may be luck
            many = Errors(program, calls)
            for draw in range(truth.MEDIAN_SEEDS):
                for rows in program.rows:
                    many.add(rows, draw)
            ours, theirs = ({name: many.by_call[who][name] for name in far} for who in ("ours", "eager"))
            truth.assert_far_no_more_often_than_eager(ours, theirs, program.dtype)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def shrunk(program: Program, fails: Callable[[Program], bool]) -> Program:
    """The least program that still fails: fewer outputs, fewer steps, one size, no gradient."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(program):
            if means_something(candidate) and fails(candidate):
                program, smaller = candidate, True
                break
    return program


def _with(names: Sequence[str], gone: str, other: str) -> tuple[str, ...]:
    return tuple(other if name == gone else name for name in names)


def _smaller(program: Program) -> list[Program]:
    several = len(program.outputs) > 1
    found = [program.of(program.steps, [output]) for output in program.outputs if several]
    within = [program.of(program.steps, [step.name]) for step in program.steps if not several]
    found += [each for each in within if len(each.steps) < len(program.steps)]
    forms = ARGUMENTS | {step.name: step.kind.result for step in program.steps}
    for index in reversed(range(len(program.steps))):
        gone = program.steps[index]
        before = [*ARGUMENTS, *(step.name for step in program.steps[:index])]
        other = next((name for name in reversed(before) if forms[name] == gone.kind.result), None)
        if other is not None:
            others = [step for step in program.steps if step is not gone]
            rest = [dataclasses.replace(step, operands=_with(step.operands, gone.name, other)) for step in others]
            found.append(program.of(rest, list(dict.fromkeys(_with(program.outputs, gone.name, other)))))
    if len(program.rows) > 1:
        found.append(dataclasses.replace(program, rows=program.rows[:1]))
    return [*found, *([dataclasses.replace(program, gradient=False)] if program.gradient else [])]
