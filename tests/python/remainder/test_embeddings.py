"""Gradients of embeddings are sums of rows, which a kernel writes once and together with what is added to them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from test_clusters_behind_autograd import called, launches
from torch.fx.experimental.proxy_tensor import make_fx
from truth import EVERY_SEED, Float64, assert_none_is_far_from_eager, double, relative

from cermet.ops import bags
from cermet.remainder import embeddings

ROWS, COLUMNS, TOKENS = 14000, 40, 3500
_backward = torch.ops.aten.embedding_dense_backward


def tokens_of(kind: str, dtype: torch.dtype = torch.int64, count: int = TOKENS) -> torch.Tensor:
    tokens = torch.randint(ROWS, (count,), dtype=dtype)
    if kind == "half padding":
        tokens[count // 2 :] = 7
    if kind == "one":
        tokens[:] = ROWS - 1
    return tokens


def sums(module: torch.fx.GraphModule) -> int:
    """Gradients that are sums, each of rows and of parts of them."""
    found = sum(node.target is bags.OP for node in module.graph.nodes)
    assert found % 2 == 0
    return found // 2


@pytest.mark.parametrize("padding", [-1, 7])
@pytest.mark.parametrize("kind", ["random", "half padding", "one"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("numbers", [torch.int64, torch.int32])
def test_what_stands_for_a_gradient_is_the_sum(numbers, dtype, kind, padding, device):
    def gradient(cotangent, tokens):
        return _backward(cotangent, tokens, ROWS, padding, False)

    tokens = tokens_of(kind, numbers).view(7, -1).to(device)
    cotangent = torch.randn(*tokens.shape, COLUMNS, device=device).to(dtype)
    module = make_fx(gradient, tracing_mode="fake")(cotangent, tokens)
    assert embeddings.add_rows(module.graph) == sums(module) == 1
    (order,) = [node for node in module.graph.nodes if node.target is torch.ops.aten.sort.stable]
    assert order.args[0].meta["val"].dtype == torch.int16  # which holds ROWS
    module.graph.lint()
    module.recompile()
    wide, most = (gradient(values, tokens) for values in (cotangent.double(), cotangent.double().abs()))
    error = (module(cotangent, tokens).double() - wide).abs()
    bound = torch.finfo(dtype).eps * wide.abs() + torch.finfo(torch.float32).eps * TOKENS * most  # of a sum in f32
    assert bool((error <= bound).all()), (error - bound).max()


def gradient_of(rows=ROWS, columns=COLUMNS, tokens=TOKENS, dtype=torch.float32, scales=False):
    def gradient(cotangent, tokens):
        return _backward(cotangent, tokens, rows, -1, scales)

    given = torch.randn(tokens, columns, dtype=dtype), torch.randint(rows, (tokens,))
    return make_fx(gradient, tracing_mode="fake")(*given)


@pytest.mark.parametrize(
    "given",
    [{"tokens": 3072}, {"rows": 100}, {"dtype": torch.float64}, {"scales": True}],
    ids=["few tokens", "a small gradient", "f64", "scaled"],
)
def test_what_is_no_such_sum_stays(given):
    module = gradient_of(**given)
    assert embeddings.add_rows(module.graph) == sums(module) == 0


def choice_of(rows=16, columns=COLUMNS, tokens=TOKENS, dtype=torch.float32, zeros=True, given=None):
    """The gradient of chosen rows, of numbers that a tensor has or of ones that are given."""

    def gradient(cotangent, tokens):
        like = cotangent.new_zeros if zeros else cotangent.new_ones
        return torch.ops.aten.index_put(like((rows, columns)), [tokens], cotangent, True)

    given = torch.randint(-rows, rows, (tokens,)) if given is None else given
    arguments = torch.randn(*given.shape, columns, device=given.device).to(dtype), given
    return make_fx(gradient, tracing_mode="fake")(*arguments), gradient, arguments


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("index", [torch.int64, torch.int32])
@pytest.mark.parametrize("shape", [(TOKENS,), (7, TOKENS // 7)])
def test_rows_that_are_chosen_often_are_added_as_sums(shape, index, dtype, device):
    """Numbers below 0 count from the end."""
    given = torch.randint(-16, 16, shape, dtype=index).to(device)
    given[0] = -16
    module, gradient, (cotangent, tokens) = choice_of(dtype=dtype, given=given)
    assert embeddings.add_rows(module.graph) == sums(module) == 1
    module.recompile()
    wide, most = (gradient(values, tokens) for values in (cotangent.double(), cotangent.double().abs()))
    error = (module(cotangent, tokens).double() - wide).abs()
    bound = torch.finfo(dtype).eps * wide.abs() + torch.finfo(torch.float32).eps * TOKENS * most
    assert bool((error <= bound).all()), (error - bound).max()


@pytest.mark.parametrize("rows", [16, ROWS], ids=["chosen", "embedded"])
def test_columns_that_lie_behind_one_another_are_copied_first(rows):
    """As a bias lies whose heads come first; and so does ATen."""

    def gradient(cotangent, tokens):
        if rows == ROWS:
            return _backward(cotangent.t(), tokens, rows, -1, False)
        return torch.ops.aten.index_put(cotangent.new_zeros((rows, COLUMNS)), [tokens], cotangent.t(), True)

    cotangent, tokens = torch.randn(COLUMNS, TOKENS), torch.randint(rows, (TOKENS,))
    module = make_fx(gradient, tracing_mode="fake")(cotangent, tokens)
    assert embeddings.add_rows(module.graph) == sums(module) == 1
    module.recompile()
    wide = gradient(cotangent.double(), tokens)
    torch.testing.assert_close(module(cotangent, tokens).double(), wide, rtol=1e-5, atol=1e-4)


def test_what_is_chosen_by_the_same_numbers_is_ordered_once():
    def gradients(first, second, tokens):
        def added(rows):
            return torch.ops.aten.index_put(rows.new_zeros(16, rows.shape[1]), [tokens], rows, True)

        return added(first), added(second)

    given = torch.randn(TOKENS, COLUMNS), torch.randn(TOKENS, 24), torch.randint(16, (TOKENS,))
    module = make_fx(gradients, tracing_mode="fake")(*given)
    assert embeddings.add_rows(module.graph) == sums(module) == 2
    assert sum(node.target is torch.ops.aten.sort.stable for node in module.graph.nodes) == 1


@pytest.mark.parametrize(
    "given",
    [{"tokens": 3072}, {"rows": 200}, {"dtype": torch.float64}, {"columns": 4}, {"zeros": False}],
    ids=["few tokens", "chosen rarely", "f64", "few columns", "added to others"],
)
def test_what_is_no_such_choice_stays(given):
    module, *_ = choice_of(**given)
    assert embeddings.add_rows(module.graph) == sums(module) == 0


def test_one_row_for_all_numbers_stays():
    def gradient(row, tokens):
        return torch.ops.aten.index_put(row.new_zeros(16, COLUMNS), [tokens], row, True)

    module = make_fx(gradient, tracing_mode="fake")(torch.randn(1, COLUMNS), torch.randint(16, (TOKENS,)))
    assert embeddings.add_rows(module.graph) == 0


def test_a_compiled_choice_is_such_a_sum(ran):
    def call(table, index):
        return torch.sin(table[index]).sum()

    table, index = torch.randn(16, COLUMNS, requires_grad=True), torch.randint(-16, 16, (TOKENS,))
    compiled = torch.compile(call, backend="cermet", options={"remainder": "aot", "strict": True})
    mine, theirs = (torch.autograd.grad(each(table, index), table)[0] for each in (compiled, call))
    torch.testing.assert_close(mine, theirs)
    assert not any("index_put" in name for name in called(ran[-1])) and "aten.sort.stable" in called(ran[-1])


def test_what_a_program_adds_by_index_stays():
    """ATen refuses an index that no row has, which a forward's may be."""
    module, *_ = choice_of()
    assert embeddings.add_rows(module.graph, is_backward=False) == sums(module) == 0


class Tied(torch.nn.Module):
    """A head that is the embedding, or one of its own."""

    def __init__(self, dtype: torch.dtype, tied: bool, padding: int | None) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(ROWS, COLUMNS, padding_idx=padding, dtype=dtype)
        self.head = self.table.weight if tied else torch.nn.Parameter(torch.randn(ROWS, COLUMNS, dtype=dtype))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.table(tokens))
        return (F.linear(hidden[:, :3], self.head).float() ** 2).mean()


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("padding", [None, 7])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_a_kernel_writes_the_gradient_and_what_is_added_to_it(dtype, tied, padding, dynamic, device, ran):
    model = Tied(dtype, tied, padding).to(device)
    call = torch.compile(model, backend="cermet", dynamic=dynamic, options={"remainder": "aot", "strict": True})
    ours, eager = {}, {}
    for seed in range(EVERY_SEED):
        torch.manual_seed(seed)
        tokens = tokens_of("half padding").view(7, -1).to(device)
        with Float64():
            truth = step(double(model), tokens)
        for errors, result in ((ours, call_step(call, model, tokens)), (eager, step(model, tokens))):
            for name, value in truth.items():
                errors.setdefault(name, []).append(relative(result[name], value))
    assert_none_is_far_from_eager(ours, eager, dtype)
    backward = ran[-1]
    assert "aten.embedding_dense_backward.default" not in called(backward)
    added = [node for node in backward.nodes if str(node.target) == "aten.add.Tensor"]
    assert not any(node.meta["val"].is_floating_point() for node in added)
    assert sum(node.target is bags.OP for node in backward.nodes) <= 1  # the parts' sums are few bytes
    assert launches(backward) >= 1


def step(model: torch.nn.Module, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    return call_step(model, model, tokens)


def call_step(call, model: torch.nn.Module, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    loss = call(tokens)
    loss.backward()
    return {"loss": loss.detach()} | {name: p.grad.clone() for name, p in model.named_parameters()}
