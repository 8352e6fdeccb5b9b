"""torch.func's transforms in a compiled function: what they wrap is left alone, everything else is fused as ever."""

from __future__ import annotations

import pytest
import torch

import cermet
import graphs
import truth
from cermet.fusing import matches
from cermet.graph import memory
from declining import as_eager

ROWS, COLUMNS = 4, 32
REMAINDERS = ("eager", "aot", "inductor")
INSIDE = {  # what a near miss says of the norm that is inside
    "vmap": "is a tensor that torch.vmap batches",
    "grad": "is a tensor that torch.func differentiates",
    "jvp": "is a tensor that torch.func differentiates",
    "jacrev": "is a tensor that torch.func differentiates",
    "vmap of grad": "is a tensor that torch.func differentiates",
}


def transformed(kind: str, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Something of x's shape that a transform makes with a norm inside."""
    norm = lambda row: graphs.rms_norm(row, weight)
    total = lambda row: norm(row).square().sum()
    if kind == "vmap":
        return torch.vmap(norm)(x)
    if kind == "grad":
        return torch.func.grad(total)(x)
    if kind == "jvp":
        return torch.func.jvp(norm, (x,), (x.cos(),))[1]
    if kind == "jacrev":
        return torch.func.jacrev(lambda rows: norm(rows).sum((0, 1)))(x).sum(0)
    return torch.vmap(torch.func.grad(total))(x)


def beside(kind: str):
    """An ordinary norm after a transform, one before it, and the transform of its result."""

    def function(x, weight, other):
        before = graphs.rms_norm(x, weight)
        return graphs.rms_norm(transformed(kind, before, weight), other)

    return function


def arguments() -> list[torch.Tensor]:
    return [torch.randn(2, ROWS, COLUMNS), 1 + 0.1 * torch.randn(COLUMNS), 1 + 0.1 * torch.randn(COLUMNS)]


def gradients(function, inputs) -> list[torch.Tensor]:
    leaves = [value.detach().clone().requires_grad_() for value in inputs]
    result = function(*leaves)
    weights = torch.arange(result.numel(), dtype=result.dtype).view(result.shape).cos()
    return [result.detach(), *torch.autograd.grad((result * weights).sum(), leaves)]


def as_true(ours, function, inputs) -> None:
    """Results and gradients by the rule for numbers, against float64."""
    eager = gradients(function, inputs)
    with truth.Float64():
        true = gradients(function, [value.double() for value in inputs])
    for mine, theirs, exact in zip(gradients(ours, inputs), eager, true):
        limit = 2 * truth.relative(theirs, exact) + truth.spacing(mine.dtype)
        assert truth.relative(mine, exact) <= limit, (truth.relative(mine, exact), limit)


@pytest.mark.parametrize("kind", INSIDE)
def test_what_a_transform_wraps_declines_itself_alone(kind):
    found = cermet.explain(beside(kind), *[value.requires_grad_() for value in arguments()])
    assert found.counts["rms_norm"] == 2 and not found.failures, str(found)
    conditions = [miss.condition for miss in found.near_misses]
    assert conditions and all(INSIDE[kind] in condition for condition in conditions), conditions
    assert all("graphs.py:" in miss.source for miss in found.near_misses)


@pytest.mark.parametrize("remainder", REMAINDERS)
@pytest.mark.parametrize("kind", INSIDE)
def test_gradients_beside_a_transform(kind, remainder):
    before = cermet.counters()
    as_true(graphs.compiled(beside(kind), remainder), beside(kind), arguments())
    after = cermet.counters()
    assert after["regions"] == before["regions"] + 2 and after["fallbacks"] == before["fallbacks"]


@pytest.mark.parametrize("kind", ["vmap", "grad", "jvp"])
def test_plain_values_inside_of_a_transform_stay_there(kind):
    """A norm that nothing wraps, but that runs where autograd functions are refused."""

    def function(x, weight, other):
        table = torch.outer(other, other)
        inner = lambda row: row * graphs.rms_norm(table, weight)[0]
        if kind == "vmap":
            return torch.vmap(inner)(x)
        if kind == "grad":
            return torch.func.grad(lambda rows: inner(rows).square().sum())(x)
        return torch.func.jvp(inner, (x,), (x,))[1]

    found = cermet.explain(function, *[value.requires_grad_() for value in arguments()])
    assert found.counts["rms_norm"] == 0
    said = ("is computed inside of a transform", "is a tensor that torch.func differentiates")
    assert any(text in miss.condition for text in said for miss in found.near_misses), found.near_misses
    as_true(graphs.compiled(function, "aot"), function, arguments())


def halves(x, weight, between):
    """A norm of x; in its midst something happens."""
    wide = x.to(torch.float32)
    variance = wide.pow(2).mean(-1, keepdim=True)
    other = between(x)
    return weight * (wide * torch.rsqrt(variance + 1e-6)), other


@pytest.mark.parametrize("transform", ["vmap", "vmap of vmap"])
def test_a_write_through_a_batched_tensor_is_seen(transform):
    """What a batched tensor writes, the tensor that was batched holds."""

    def write(row):
        row.mul_(2.0)
        return row.sum()

    def function(x, weight):
        once = torch.vmap(write) if transform == "vmap" else torch.vmap(torch.vmap(write))
        written, total = x.clone(), x.sum()
        y, other = halves(written, weight, once)
        return y, other, graphs.rms_norm(written, weight), total

    x = torch.randn((ROWS, COLUMNS) if transform == "vmap" else (2, ROWS, COLUMNS))
    as_eager(function, x, torch.randn(COLUMNS), exact=False)


def test_memory_of_wrapped_tensors_is_that_of_what_they_wrap():
    seen = []

    def look(tensor):
        seen.append(memory.memories((tensor, [tensor[..., 1:]])))
        return tensor

    x = torch.randn(2, 3)
    torch.vmap(look)(x)
    torch.vmap(torch.vmap(look))(x[None])
    torch.func.grad(lambda rows: look(rows).sum())(x)
    torch.func.jvp(look, (x,), (x,))
    assert seen == [memory.memories(x)] * 4 and len(seen[0]) == 1
    assert memory.memories(x.sin()).isdisjoint(seen[0]) and not memory.memories(None)


def test_tensors_without_a_storage_may_share_it():
    sparse = [torch.eye(size).to_sparse() for size in (2, 3)]
    assert memory.shared(*sparse) and not memory.shared(sparse, torch.eye(2))


def test_a_failure_over_one_match_leaves_the_others(monkeypatch, caplog):
    check = matches._check

    def broken(imported, by_name, item, known):
        if item["pattern"] == "glu":
            raise ZeroDivisionError("broken on purpose")
        return check(imported, by_name, item, known)

    monkeypatch.setattr(matches, "_check", broken)

    def function(x, weight, gate):
        return graphs.rms_norm(x, weight), graphs.glu(gate.sin() @ x.t(), x @ x.t())

    inputs = [torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS), torch.randn(ROWS, COLUMNS)]
    found = cermet.explain(function, *inputs)
    assert found.counts["rms_norm"] == 1 and found.counts["glu"] == 0
    assert found.failures == ["ZeroDivisionError: broken on purpose"]
    (miss,) = [miss for miss in found.near_misses if miss.pattern == "glu"]
    assert miss.condition == "Cermet failed: ZeroDivisionError: broken on purpose" and "graphs.py:" in miss.source
    before = cermet.counters()
    ours = torch.compile(function, backend="cermet", options={"strict": False, "remainder": "aot"})(*inputs)
    torch.testing.assert_close(ours, function(*inputs))
    after = cermet.counters()
    assert after["regions"] == before["regions"] + 1
    assert after["fallbacks"] == before["fallbacks"] + 2, "one before autograd, one behind it"
    torch._dynamo.reset()
    with pytest.raises(Exception, match="broken on purpose"):
        graphs.compiled(function)(*inputs)
