"""Numbers of a loss whose logits are a sum of linear layers and come in pieces, and of its gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from adapters import (
    OPERANDS,
    ROWS,
    KINDS,
    adapted,
    close_to_eager,
    dtype_of,
    errors_of,
    given,
    in_pieces,
    in_place,
    leaves_of,
    linear_heads,
    of_several,
    several,
)
from cermet.loss import widths
from heads import close, loss_of
from pieces import DTYPES, allocations, compiled, rows_of
from truth import EVERY_SEED, MEDIAN_SEEDS, assert_as_good_as_eager, assert_none_is_far_from_eager


# Pieces of so many rows that a product of one is no other kernel than that of all.
@pytest.mark.parametrize("remainder", ["eager", "aot", "inductor"])
@pytest.mark.parametrize("with_bias", [True, False], ids=["bias", "none"])
@pytest.mark.parametrize("kind", KINDS)
def test_errors_by_the_rule_for_numbers(kind, with_bias, remainder, device):
    call = in_pieces(adapted, given(kind, device, with_bias=with_bias), rows_of(72, dtype_of(kind)), remainder)
    errors = errors_of(call, adapted, lambda seed: given(kind, device, seed, with_bias=with_bias), OPERANDS)
    assert_as_good_as_eager(*errors, dtype_of(kind))


@pytest.mark.parametrize("wanted", [("down", "up"), ("up",), ("hidden", "down", "up"), ("weight", "down"), ("hidden",)])
@pytest.mark.parametrize("kind", KINDS)
def test_frozen_operands(kind, wanted):
    call = in_pieces(adapted, given(kind), rows_of(72, dtype_of(kind)))
    errors = errors_of(call, adapted, lambda seed: given(kind, seed=seed), OPERANDS, wanted)
    assert_as_good_as_eager(*errors, dtype_of(kind))


@pytest.mark.parametrize("rows", [1, 7, 72], ids=lambda rows: f"{rows} rows")
@DTYPES
@pytest.mark.parametrize("function", [several, in_place])
def test_several_terms_in_pieces_of_any_size(function, dtype, rows, device):
    def make(seed):
        torch.manual_seed(seed)
        *operands, labels = of_several(dtype, device)
        return *(operands if function is several else [*operands[:3], None, operands[4]]), labels

    seeds = MEDIAN_SEEDS if rows == 72 else EVERY_SEED  # of one row a product is another kernel than that of all
    names = ("hidden", "weight", "one", "two", "three")
    call = in_pieces(function, make(0), rows_of(rows, dtype))
    errors = errors_of(call, function, make, names, seeds=seeds)
    (assert_as_good_as_eager if rows == 72 else assert_none_is_far_from_eager)(*errors, dtype)


@pytest.mark.parametrize("columns", [33, 1001])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_vocabularies_of_any_width(kind, columns, aligned, monkeypatch):
    """`aligned`: as on a GPU, whose products want whole pieces of sixteen bytes."""
    monkeypatch.setattr(widths, "_PADDED", {"cpu"} if aligned else {})
    budget = rows_of(72, dtype_of(kind), columns)
    call = in_pieces(adapted, given(kind, columns=columns, with_bias=False), budget)
    errors = errors_of(call, adapted, lambda seed: given(kind, seed=seed, columns=columns, with_bias=False), OPERANDS)
    assert_as_good_as_eager(*errors, dtype_of(kind))


@pytest.mark.parametrize("ignored", [0.5, 1.0], ids=["half", "all"])
@pytest.mark.parametrize("kind", KINDS)
def test_ignored_rows(kind, ignored):
    """Half of them are in no piece; where all are, both are NaN."""
    *operands, labels = given(kind)
    labels[: int(ignored * ROWS)] = -100
    results = []
    for run in (in_pieces(adapted, (*operands, labels), rows_of(9, dtype_of(kind))), adapted):
        loss = run(*operands, labels)
        results.append([loss.detach(), *torch.autograd.grad(loss, leaves_of(operands))])
    if ignored < 1:
        close(*results, torch.bfloat16)
    else:
        assert all(torch.equal(mine.isnan(), theirs.isnan()) for mine, theirs in zip(*results))


def test_one_row():
    """In pieces where the budget is less than a row and no weight of the head has a gradient."""
    hidden, weight, _, down, up, labels = given(rows=2)
    arguments = hidden, weight.detach(), None, down, up.detach(), labels
    call = in_pieces(adapted, arguments, 1)
    for rows in (2, 1):
        some = hidden[:, :rows].detach().requires_grad_(), *arguments[1:-1], labels[:rows]
        results = []
        for run in (call, adapted):
            loss = run(*some)
            results.append([loss.detach(), *torch.autograd.grad(loss, leaves_of(some))])
        close_to_eager(*results)


def with_dropout(hidden, *others):
    weight, bias, down, up, labels = others
    logits = F.linear(hidden, weight, bias)
    logits = logits + F.linear(F.linear(F.dropout(hidden, 0.5, training=True), down), up) * 1.7
    return loss_of(logits, labels)


@pytest.mark.parametrize("remainder", ["eager", "aot"])
def test_dropout_before_an_adapter(remainder):
    """The mask that the forward drew is that of the gradient: the gradient of the adapter's first half is what a small
    step along it says."""
    arguments = given(with_bias=False)
    call, down = in_pieces(with_dropout, arguments, rows_of(9), remainder), arguments[3]
    losses = []
    direction = torch.randn_like(down)
    for step in (0.0, 1e-2, -1e-2):
        torch.manual_seed(7)
        moved = [*arguments[:3], (down.detach() + step * direction).requires_grad_(), *arguments[4:]]
        losses.append(call(*moved))
        if not step:
            (gradient,) = torch.autograd.grad(losses[0], moved[3])
    slope = (losses[1] - losses[2]).item() / 2e-2
    assert abs(slope - (gradient * direction).sum().item()) < 2e-2 * abs(slope) + 1e-3
    torch.manual_seed(7)
    assert call(*arguments).item() == losses[0].item() != adapted(*arguments).item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])
def test_evaluation(dtype):
    arguments = [each.detach() if isinstance(each, torch.Tensor) else each for each in of_several(dtype)]
    assert linear_heads(several, *arguments) == [("linear_head_1_3", 1)]
    call = compiled(several, rows_of(9, dtype))
    with torch.no_grad():
        close([call(*arguments).float()], [several(*arguments).float()], torch.bfloat16)
        assert max(allocations(lambda: call(*arguments))) <= rows_of(ROWS, dtype) // 5
