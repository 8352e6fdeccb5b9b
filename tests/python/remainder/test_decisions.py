"""Comparisons that are decided by what numbers can be: what hides elements by them is left out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from test_clusters_behind_autograd import called, launches
from test_gathers import assert_steps_are_as_good_as_eagers, count, scattered, traced
from torch.fx.experimental.proxy_tensor import make_fx

import cermet
from cermet.graph.numbers import bounds
from cermet.remainder.aten.decisions import decide
from cermet.remainder.aten.gathers import choose

ROWS, EXPERTS = 12, 5

# Of scores [ROWS, EXPERTS] and any numbers [ROWS]; the bounds of each, for a number of rows that is known.
NUMBERS: dict[str, tuple[Callable[..., torch.Tensor], tuple[int | None, int | None]]] = {
    "largest": (lambda scores, any: scores.topk(2)[1], (0, EXPERTS - 1)),
    "largest of rows": (lambda scores, any: scores.topk(2, 0)[1], (0, ROWS - 1)),
    "the largest one": (lambda scores, any: scores.argmax(-1), (0, EXPERTS - 1)),
    "the largest one of all": (lambda scores, any: scores.argmax(), (0, ROWS * EXPERTS - 1)),
    "order": (lambda scores, any: torch.sort(scores, stable=True, dim=0)[1], (0, ROWS - 1)),
    "order of columns": (lambda scores, any: scores.argsort(-1).t(), (0, EXPERTS - 1)),
    "sorted": (lambda scores, any: torch.sort(scores.topk(2)[1].reshape(-1))[0], (0, EXPERTS - 1)),
    "inverse": (lambda scores, any: scattered(torch.sort(any)[1]), (0, ROWS - 1)),
    "quotient": (lambda scores, any: torch.sort(any)[1] // 4, (0, (ROWS - 1) // 4)),
    "chosen": (lambda scores, any: scores.argmax(-1)[any % 3], (0, EXPERTS - 1)),
    "gathered": (lambda scores, any: scores.argsort(-1).gather(1, scores.topk(2)[1]), (0, EXPERTS - 1)),
    "expanded": (lambda scores, any: scores.argmax(-1)[:, None].expand(-1, 3)[2:, 1], (0, EXPERTS - 1)),
    "of 32 bits": (lambda scores, any: scores.argmax(-1).int(), (0, EXPERTS - 1)),
    "clamped": (lambda scores, any: any.clamp(-2, 7), (-2, 7)),
    "clamped above": (lambda scores, any: any.clamp(max=7), (None, 7)),
    "clamped twice": (lambda scores, any: scores.argmax(-1).clamp(min=2).clamp(max=3), (2, 3)),
    "clamped between what cannot be": (lambda scores, any: scores.argmax(-1).clamp(3, 1), (1, 1)),
    "counted": (lambda scores, any: torch.arange(3, 9), (3, 8)),
    "counted in steps": (lambda scores, any: torch.arange(0, 9, 3), (None, None)),
    "any": (lambda scores, any: any, (None, None)),
    "any, divided": (lambda scores, any: any // 4, (None, None)),
    "any of 32 bits": (lambda scores, any: any.clamp(min=0).int(), (None, None)),
    "a sum": (lambda scores, any: scores.argmax(-1) + 1, (None, None)),
    "floats": (lambda scores, any: scores.topk(2)[0], (None, None)),
}


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(ROWS, EXPERTS), torch.randint(-50, 50, (ROWS,))


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("name", NUMBERS)
def test_bounds_hold(name, mode):
    function, expected = NUMBERS[name]
    given = inputs()
    module = make_fx(function, tracing_mode=mode)(*given)
    found = bounds(module.graph.output_node().args[0])
    # A symbol may leave an end unknown, and never makes it another one.
    assert found == expected or mode == "symbolic" and all(end in (None, known) for end, known in zip(found, expected))
    for _ in range(20):
        values = function(*inputs())
        assert found[0] is None or found[0] <= values.min()
        assert found[1] is None or values.max() <= found[1]


# Of numbers of experts [ROWS], any numbers, a mask and rows [ROWS, 6]; whether that does nothing.
READERS: dict[str, tuple[Callable[..., torch.Tensor], bool]] = {
    "not below all": (lambda e, any, m, x: x.masked_fill((e >= EXPERTS)[:, None], 0.0), True),
    "above all": (lambda e, any, m, x: x.masked_fill((e > EXPERTS - 1).unsqueeze(-1), 0.0), True),
    "negative": (lambda e, any, m, x: x.masked_fill((e < 0)[:, None].expand(-1, 6), 0.0), True),
    "at most -1": (lambda e, any, m, x: x.masked_fill((e <= -1)[:, None], x[0, 0] * 0), True),
    "chosen": (lambda e, any, m, x: torch.where((e < EXPERTS)[:, None], x, x * 2), True),
    "not chosen": (lambda e, any, m, x: torch.where(~(e >= 0)[:, None], x * 2, x), True),
    "clamped": (lambda e, any, m, x: e.clamp(max=EXPERTS - 1), True),
    "clamped twice": (lambda e, any, m, x: any.clamp(0, 9).clamp(-1, 9), False),  # the first does something
    "of rows before": (lambda e, any, m, x: x[:1].masked_fill((e < 0)[:, None], 0.0), False),  # makes ROWS of one
    "of another type": (lambda e, any, m, x: torch.where((e >= 0)[:, None], x.half(), x), False),
    "the last": (lambda e, any, m, x: x.masked_fill((e >= EXPERTS - 1)[:, None], 0.0), False),
    "the first": (lambda e, any, m, x: x.masked_fill((e <= 0)[:, None], 0.0), False),
    "none of them": (lambda e, any, m, x: x.masked_fill((any >= EXPERTS)[:, None], 0.0), False),
    "a mask": (lambda e, any, m, x: x.masked_fill(m[:, None], 0.0), False),
    "clamped below the last": (lambda e, any, m, x: e.clamp(max=EXPERTS - 2), False),
    "clamped between floats": (lambda e, any, m, x: e.clamp(max=float(EXPERTS)), False),
}


@pytest.mark.parametrize("name", READERS)
def test_what_comparisons_decide_is_left_out(name):
    reader, does_nothing = READERS[name]

    def function(scores: torch.Tensor, any: torch.Tensor, mask: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return reader(scores.argmax(-1), any, mask, x)

    given = (*inputs(), torch.rand(ROWS) < 0.5, torch.randn(ROWS, 6))
    module = traced(function, *given)
    selecting = ("masked_fill.Scalar", "masked_fill.Tensor", "where.self", "clamp.default")
    before = sum(count(module, each) for each in selecting)
    times = decide(module.graph)
    module.graph.lint()
    module.recompile()
    left = sum(count(module, each) for each in selecting)
    assert times == before - left == (before if does_nothing else times) and (left == 0) == does_nothing, module.code
    result = module(*given)
    assert torch.equal(result, function(*given))
    assert all(result.data_ptr() != each.data_ptr() for each in given), "memory of its own, as before"


def test_a_backward_knows_the_bounds_of_what_it_is_given():
    module = traced(lambda scores: scores.argmax(-1), torch.randn(ROWS, EXPERTS))
    choose(module.graph)
    kept = module.graph.output_node().args[0]
    graph = torch.fx.Graph()
    given = graph.placeholder("given")
    given.meta = dict(kept.meta)
    assert bounds(given) == (0, EXPERTS - 1)


class Mixture(torch.nn.Module):
    """Tokens sorted by expert, and back; those of experts that are not here are hidden, before and behind products."""

    def __init__(self, here: int) -> None:
        super().__init__()
        self.here = here
        self.route = torch.nn.Linear(256, 8, bias=False)
        self.up = torch.nn.Linear(256, 256, bias=False)
        self.down = torch.nn.Linear(256, 256, bias=False)

    def forward(self, tokens: torch.Tensor, _: None) -> torch.Tensor:
        weights, experts = self.route(tokens).topk(2, -1)
        numbers, order = torch.sort(experts.reshape(-1))
        elsewhere = (numbers >= self.here).unsqueeze(-1)
        numbers.clamp_(max=self.here - 1)
        rows = tokens[order // 2]
        rows.masked_fill_(elsewhere, 0.0)
        rows = torch.nn.functional.silu(self.up(rows).masked_fill(elsewhere, 0.0))
        rows = self.down(rows).masked_fill(elsewhere, 0.0) * weights.reshape(-1)[order][:, None]
        return rows[scattered(order)].view(tokens.shape[0], 2, -1).sum(1)


@pytest.mark.parametrize("here", [8, 5], ids=["all here", "some elsewhere"])
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_a_mixture_hides_no_token_of_its_own_experts(dtype, dynamic, here, ran):
    """And is as many kernels where it hides some: the weighted sum, of which a region is a part, is one."""
    torch.manual_seed(0)
    model = Mixture(here).to(dtype)
    call = torch.compile(model, backend="cermet", dynamic=dynamic, options={"remainder": "aot", "strict": True})
    assert_steps_are_as_good_as_eagers(call, model, dtype, lambda: (torch.randn(64, 256).to(dtype), None))
    hiding = {"aten.masked_fill.Scalar", "aten.masked_fill_.Scalar", "aten.where.self", "aten.clone.default"}
    for graph in ran if here == 8 else ():
        assert not called(graph) & (hiding | {"aten.ge.Scalar"}), graph
    for graph in ran:
        assert not called(graph) & {"aten.sum.dim_IntList", "aten.mul.Tensor"}, graph
    assert launches(ran[0]) == (2 if here == 8 else 3), "the last, the weighted sum, is one"


def test_what_a_launch_of_chosen_rows_stands_for_is_told():
    found = cermet.explain(Mixture(5), torch.randn(64, 256), None, options={"remainder": "aot"})
    (forward,) = [run for run in found.runs if run.kind == "forward"]
    (told,) = [launch.sources for launch in forward.launches if any(".sum(1)" in line for line in launch.sources)]
    for part in ("self.down(rows).masked_fill(elsewhere, 0.0) * weights", "rows[scattered(order)]"):
        assert any(part in line for line in told), told
