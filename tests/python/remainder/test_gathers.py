"""Rows that a permutation chooses: their gradients are rows chosen by its inverse, in kernels with what is beside."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.fx as fx
from test_clusters_behind_autograd import called, launches
from torch.fx.experimental.proxy_tensor import make_fx
from truth import EVERY_SEED, Float64, assert_none_is_far_from_eager, double, relative

import cermet
from cermet.graph.numbers import is_permutation, known_inverse, never_negative
from cermet.remainder.aten.gathers import choose

ROWS, TIMES, COLUMNS = 12, 4, 6


def traced(function: Callable[..., torch.Tensor], *inputs: torch.Tensor, mode: str = "fake") -> fx.GraphModule:
    return make_fx(function, tracing_mode=mode)(*inputs)


def count(module: fx.GraphModule, name: str) -> int:
    return sum(str(node.target) == f"aten.{name}" for node in module.graph.nodes)


def by(order: torch.Tensor) -> torch.Tensor:
    return torch.sort(order)[1]


def scattered(permutation: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(permutation).index_put((permutation,), torch.arange(permutation.shape[0]))


def add_at(numbers: torch.Tensor, values: torch.Tensor, rows: int) -> torch.Tensor:
    return values.new_zeros((rows, *values.shape[1:])).index_put((numbers,), values, accumulate=True)


def repeated(tensor: torch.Tensor) -> torch.Tensor:
    """TIMES as many rows, by what is known of a symbolic number of them too."""
    return torch.cat([tensor + i for i in range(TIMES)])


# A function of an order of rows and of the rows, and of how many the rows are of; how many sums into zeros stay.
GRADIENTS = {
    "a permutation": (lambda order, x, n: add_at(by(order), x, n * TIMES), 0),
    "its inverse, scattered": (lambda order, x, n: add_at(scattered(by(order)), x, n * TIMES), 0),
    "its inverse, sorted": (lambda order, x, n: add_at(by(by(order)), x, n * TIMES), 0),
    "its quotient": (lambda order, x, n: add_at(by(order) // TIMES, x, n), 0),
    "its quotient, of single numbers": (lambda order, x, n: add_at(by(order) // TIMES, x.sum(1), n), 0),
    "added": (lambda order, x, n: x.new_zeros(n, x.shape[1]).index_add(0, by(order) // TIMES, x), 0),
    "more rows than there are numbers": (lambda order, x, n: add_at(by(order) // TIMES, x, n + 1), 1),
    "a quotient that leaves a rest": (lambda order, x, n: add_at(by(order) // 5, x, n), 1),
    "other numbers": (lambda order, x, n: add_at(order, x, n * TIMES), 1),
    "values that were sorted": (lambda order, x, n: add_at(torch.sort(order)[0], x, n * TIMES), 1),
}


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("name", GRADIENTS)
def test_sums_into_zeros_become_choices(name, mode):
    gradient, left = GRADIENTS[name]

    def function(order: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return gradient(repeated(order), repeated(x), order.shape[0])

    inputs = torch.randint(ROWS, (ROWS,)), torch.randn(ROWS, COLUMNS)
    module = traced(function, *inputs, mode=mode)
    before = str(module.graph)
    assert (choose(module.graph) > 0) == (left == 0), before
    module.graph.lint()
    module.recompile()
    accumulating = [n for n in module.graph.nodes if str(n.target) == "aten.index_put.default" and len(n.args) == 4]
    assert len(accumulating) + count(module, "index_add.default") == left, module.code
    torch.testing.assert_close(module(*inputs), function(*inputs), rtol=1e-6, atol=1e-6)


# A function of an order, of rows and a weight each, and of a number of rows that these are of; how many choices there
# are then.
CHOICES = {
    "a product in groups": (lambda o, x, w, n: (x * w[:, None])[by(o)].view(n, TIMES, x.shape[1]).sum(1), 2),
    "a product of what was chosen": (
        lambda o, x, w, n: (x * w[p := by(o)].unsqueeze(-1))[scattered(p)].view(n, TIMES, x.shape[1]).sum(1),
        1,
    ),
    "there and back": (lambda o, x, w, n: torch.sin(x[p := by(o)])[scattered(p)], 0),
    "rows repeated": (lambda o, x, w, n: x[:n, None].expand(n, TIMES, COLUMNS).reshape(n * TIMES, COLUMNS)[by(o)], 1),
    "a product that is read elsewhere": (lambda o, x, w, n: (y := x * w[:, None])[by(o)] + y, 1),
    "numbers that may repeat": (lambda o, x, w, n: (x * w[:, None])[o], 1),
}


@pytest.mark.parametrize("mode", ["fake", "symbolic"])
@pytest.mark.parametrize("name", CHOICES)
def test_what_is_chosen_is_computed_behind_the_choice(name, mode):
    chosen, choices = CHOICES[name]

    def function(order: torch.Tensor, x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return chosen(repeated(order), repeated(x), repeated(weights), order.shape[0])

    inputs = torch.randint(ROWS, (ROWS,)), torch.randn(ROWS, COLUMNS), torch.randn(ROWS)
    module = traced(function, *inputs, mode=mode)
    choose(module.graph)
    module.graph.lint()
    module.recompile()
    assert count(module, "index.Tensor") == choices, module.code
    torch.testing.assert_close(module(*inputs), function(*inputs), rtol=1e-6, atol=1e-6)


def test_what_is_back_where_it_was_is_a_copy():
    def function(order: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return x[p := by(order)][scattered(p)]

    order, x = torch.randint(ROWS, (ROWS,)), torch.randn(ROWS, COLUMNS)
    module = traced(function, order, x)
    assert choose(module.graph) == 1
    module.recompile()
    back = module(order, x)
    assert torch.equal(back, x) and back.data_ptr() != x.data_ptr()


def test_what_numbers_rows_is_known():
    def function(order: torch.Tensor, scores: torch.Tensor) -> tuple[torch.Tensor, ...]:
        p = by(order)
        return p, scattered(p), p // 3, torch.topk(scores, 2)[1].view(-1), order, p - 1, torch.sort(order)[0]

    module = traced(function, torch.randint(8, (24,)), torch.randn(24, 5))
    p, inverse, *rest = module.graph.output_node().args[0]
    quotient, top, order, less, ordered = rest
    assert [is_permutation(node) for node in (p, inverse, *rest)] == [True, True] + [False] * 5
    assert known_inverse(p) is inverse and known_inverse(inverse) is p
    assert [never_negative(node) for node in (p, inverse, quotient, top)] == [True] * 4
    assert [never_negative(node) for node in (order, less, ordered)] == [False] * 3


class Mixture(torch.nn.Module):
    """Tokens sorted by expert, as a grouped product wants them, and back; the experts are one product."""

    def __init__(self, chosen: int) -> None:
        super().__init__()
        self.chosen = chosen
        self.route = torch.nn.Linear(256, 8, bias=False)
        self.up = torch.nn.Linear(256, 256, bias=False)

    def forward(self, hidden: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
        tokens = hidden.shape[0]
        weights = self.route(hidden).gather(1, experts).reshape(-1)
        order = torch.sort(experts.reshape(-1))[1]
        rows = hidden[order // self.chosen]
        out = self.up(rows) * weights[order][:, None]
        return out[scattered(order)].view(tokens, self.chosen, -1).sum(1) + hidden


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("chosen", [2, 8])
def test_a_mixture_of_experts_moves_its_rows_in_kernels(chosen, dtype, dynamic, ran):
    model = Mixture(chosen).to(dtype)
    call = torch.compile(model, backend="cermet", dynamic=dynamic, options={"remainder": "aot", "strict": True})

    def draw() -> tuple[torch.Tensor, torch.Tensor]:
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
        return torch.randn(64, 256).to(dtype), torch.rand(64, 8).topk(chosen, -1)[1]

    assert_steps_are_as_good_as_eagers(call, model, dtype, draw)
    assert len(ran) == 2, "one forward, one backward, for all seeds"
    forward, backward = map(called, ran)
    left = {"aten.mul.Tensor", "aten.add.Tensor", "aten.sum.dim_IntList", "aten._to_copy.default", "aten.clone.default"}
    assert not forward & left, forward
    assert not backward & (left | {"aten.index_put.default", "aten.expand.default"}), backward
    assert [launches(graph) for graph in ran] == [1, 2]


def assert_steps_are_as_good_as_eagers(call, model: torch.nn.Module, dtype: torch.dtype, draw) -> None:
    """Of a compiled model, by the rule for numbers; `draw` makes what a step is given."""
    ours, theirs = {}, {}
    for seed in range(EVERY_SEED):
        torch.manual_seed(seed)
        x, experts = draw()
        wide = double(model)
        with Float64():
            truth = step(wide, wide, x.double(), experts)
        for errors, function in ((ours, call), (theirs, model)):
            for name, value in step(function, model, x, experts).items():
                errors.setdefault(name, []).append(relative(value, truth[name]))
    assert_none_is_far_from_eager(ours, theirs, dtype)


def step(function: Callable[..., torch.Tensor], model: torch.nn.Module, x: torch.Tensor, experts: torch.Tensor):
    model.zero_grad()
    x = x.detach().clone().requires_grad_()
    y = function(x, experts)
    y.backward(torch.cos(y.detach() * 3))
    return {"y": y.detach(), "x": x.grad} | {name: p.grad.clone() for name, p in model.named_parameters()}


# What is done with rows behind a region of theirs, whose result is `y`, by a permutation; whether a kernel of
# ours reads them where they lie.
BEHIND: dict[str, tuple[Callable[..., torch.Tensor], bool]] = {
    "chosen": (lambda y, p: torch.sin(y[p]), True),
    "chosen in groups and summed": (lambda y, p: y[p].view(-1, TIMES, y.shape[1]).sum(1), True),
    "read as they are too": (lambda y, p: torch.sin(y[p]) + y, False),
}


@pytest.mark.parametrize("name", BEHIND)
def test_rows_of_a_region_are_chosen_before_its_launch(name, ran):
    """Of a column operand there are none to choose. What others read is launched once, and chosen behind that."""
    behind, is_one = BEHIND[name]

    def function(x, hidden, weight, columns, order):
        return behind(x.masked_fill(hidden, 0.0) * weight + columns, by(order))

    call = torch.compile(function, backend="cermet", dynamic=False, options={"remainder": "aot", "strict": True})
    before = cermet.counters()["regions"]
    for rows in (256, 64):
        x, columns = torch.randn(rows, 512, requires_grad=True), torch.randn(512, requires_grad=True)
        hidden, weight = torch.rand(rows, 1) < 0.3, torch.randn(rows, 1, requires_grad=True)
        given = x, hidden, weight, columns, torch.randperm(rows)
        (ours, theirs), wanted = (each(*given) for each in (call, function)), (x, weight, columns)
        cotangent = torch.randn_like(theirs)
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
        for mine, true in zip(*(torch.autograd.grad(each, wanted, cotangent) for each in (ours, theirs)), strict=True):
            torch.testing.assert_close(mine, true, rtol=1e-4, atol=1e-4)
    assert cermet.counters()["regions"] > before, "a region before autograd"
    left = [n for n in ran[0].nodes if str(n.target) == "aten.index.Tensor" and n.meta["val"].shape[-1] == 512]
    assert launches(ran[0]) == 1 and (left == []) == is_one, ran[0]


def test_rows_that_may_count_from_the_end_stay_atens(ran):
    def function(x: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        return torch.sin(x[numbers]) * 2 + 1

    x, numbers, before = torch.randn(64, 512), torch.tensor([-1, 3, -64, 0] * 8), cermet.counters()["fallbacks"]
    call = torch.compile(function, backend="cermet", options={"remainder": "aot", "strict": True})
    torch.testing.assert_close(call(x, numbers), function(x, numbers), rtol=1e-5, atol=1e-5)
    assert "aten.index.Tensor" in called(ran[0]) and cermet.counters()["fallbacks"] == before
