"""Numbers of a loss whose logits come in pieces, and of its gradients: those of the whole."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import cermet
import graphs
from cermet.loss import chunks, widths
from heads import HIDDEN, VOCABULARY, close, dead, inputs
from pieces import DTYPES, LOSSES, capped, compiled, heads_of, rows_of, summed
from tiny_models import tiny, words
from truth import MEDIAN_SEEDS, Float64, assert_as_good_as_eager, relative


@DTYPES
@pytest.mark.parametrize("rows", [1, 7, 32, 300], ids=lambda rows: f"{rows} rows")
@pytest.mark.parametrize("function", LOSSES)
def test_loss_and_gradients(function, rows, dtype, device):
    hidden, weight, labels = inputs(dtype, device, rows=200)
    ours = compiled(function, rows_of(rows, dtype))
    results = []
    for run in (ours, function):
        loss = run(hidden, weight, labels)
        results.append([loss.detach(), *torch.autograd.grad(loss, (hidden, weight))])
    close(*results, dtype)


@pytest.mark.parametrize("remainder", ["eager", "aot", "inductor"])
@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True)], ids=["both", "hidden", "weight"])
def test_remainders_and_frozen_operands(wanted, remainder, device):
    hidden, weight, labels = inputs(torch.bfloat16, device, rows=200)
    hidden.requires_grad_(wanted[0]), weight.requires_grad_(wanted[1])
    leaves = [leaf for leaf, want in zip((hidden, weight), wanted) if want]
    ours = compiled(dead, rows_of(32, torch.bfloat16), remainder)
    results = []
    for run in (ours, dead):
        loss = run(hidden, weight, labels)
        results.append([loss.detach(), *torch.autograd.grad(0.25 * loss, leaves)])
    close(*results, torch.bfloat16)


@pytest.mark.parametrize("cotangent", [1.0, 0.25])
@DTYPES
@pytest.mark.parametrize("rows", [1, 9])
def test_errors_by_the_rule_for_numbers(rows, dtype, cotangent):
    call = compiled(capped, rows_of(rows, dtype))
    errors: dict[str, dict[str, list[float]]] = {"ours": {}, "eager": {}}
    for seed in range(MEDIAN_SEEDS):
        torch.manual_seed(seed)
        hidden, weight, labels = inputs(dtype, rows=64)
        with Float64():
            wide = [value.detach().double().requires_grad_() for value in (hidden, weight)]
            exact = capped(*wide, labels)
            truth = [exact.detach(), *torch.autograd.grad(cotangent * exact, wide)]
        for name, run in (("ours", call), ("eager", capped)):
            loss = run(hidden, weight, labels)
            values = [loss.detach(), *torch.autograd.grad(cotangent * loss, (hidden, weight))]
            for tensor, value, true in zip(("loss", "hidden", "weight"), values, truth):
                errors[name].setdefault(tensor, []).append(relative(value, true))
    assert_as_good_as_eager(errors["ours"], errors["eager"], dtype)


def test_the_sum_over_pieces_is_rounded_once():
    """A thousand pieces: summed in bf16 the error would be ten times eager's."""
    hidden, weight, labels = inputs(torch.bfloat16, rows=1000)
    call = compiled(dead, 1)
    with Float64():
        wide = [value.detach().double().requires_grad_() for value in (hidden, weight)]
        (truth,) = torch.autograd.grad(dead(*wide, labels), wide[1])
    errors = [relative(torch.autograd.grad(run(hidden, weight, labels), weight)[0], truth) for run in (call, dead)]
    assert errors[0] <= 1.05 * errors[1], errors


@pytest.mark.parametrize("columns", [33, 96, 1001])
@pytest.mark.parametrize("aligned", [False, True])
@DTYPES
def test_vocabularies_of_any_width(dtype, columns, aligned, monkeypatch):
    """`aligned`: as on a GPU, whose products want whole pieces of sixteen bytes."""
    monkeypatch.setattr(widths, "_PADDED", {"cpu"} if aligned else {})
    hidden = torch.randn(200, HIDDEN).to(dtype).requires_grad_()
    weight = (torch.randn(columns, HIDDEN) * HIDDEN**-0.5).to(dtype).requires_grad_()
    labels = torch.randint(columns, (200,))
    results = []
    for run in (compiled(dead, rows_of(9, dtype, columns)), dead):
        loss = run(hidden, weight, labels)
        gradients = torch.autograd.grad(loss, (hidden, weight))
        assert [gradient.is_contiguous() for gradient in gradients] == [True, True]
        results.append([loss.detach(), *gradients])
    close(*results, dtype)


def tied(words, weight, labels):
    return dead(torch.tanh(F.embedding(words, weight)), weight, labels)


def counted(hidden, weight, labels, items):
    """`items`: what Trainer counts over the batches of a step."""
    logits = F.linear(hidden, weight).view(-1, VOCABULARY).float()
    return F.cross_entropy(logits, labels, reduction="sum") / items


def same_gradients(function, *arguments):
    leaves = [value for value in arguments if value.requires_grad]
    (head,) = heads_of(function, *arguments)
    assert head[0].startswith("linear_head") and head[1] == 1
    results = []
    for run in (compiled(function, rows_of(9)), function):
        loss = run(*arguments)
        results.append([loss.detach(), *torch.autograd.grad(loss, leaves)])
    close(*results)


def test_tied_weights():
    hidden, weight, labels = inputs(rows=200)
    same_gradients(tied, torch.randint(VOCABULARY, (200,)), weight, labels)


def test_a_number_of_items_that_the_caller_counted():
    same_gradients(counted, *inputs(rows=200), torch.tensor(731))


@pytest.mark.parametrize("family", ["Llama", "Gemma2"])
def test_a_model_of_which_the_loss_alone_is_used(family):
    model, text = tiny(family), words(4, 32)
    parameters = list(model.parameters())

    def loss_alone():
        return model(input_ids=text, labels=text).loss

    assert heads_of(loss_alone)[-1] == ("linear_head_1", 1)
    results = []
    for run in (compiled(loss_alone, 1), loss_alone):
        loss = run()
        results.append([loss.detach(), *torch.autograd.grad(loss, parameters)])
    for mine, theirs in zip(*results):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-6)


def test_all_labels_ignored():
    hidden, weight, labels = inputs(rows=200)
    labels[:] = -100
    for function in (dead, summed):
        ours, eager = (run(hidden, weight, labels) for run in (compiled(function, 1), function))
        assert ours.isnan() and eager.isnan()
        for mine, theirs in zip(*(torch.autograd.grad(loss, (hidden, weight)) for loss in (ours, eager))):
            assert torch.equal(mine.isnan(), theirs.isnan())


def loss_and_gradients(function, hidden, weight, labels):
    loss = function(hidden, weight, labels)
    return [loss.detach(), *torch.autograd.grad(loss, (hidden, weight))]


def over_two(hidden, weight, labels):
    return F.cross_entropy(F.linear(hidden, weight).float(), labels, reduction="sum") / 2


@pytest.mark.parametrize("remainder", ["eager", "aot"])
def test_row_counts_that_vary_share_kernels(remainder):
    """The number of pieces is that of the rows at hand."""
    call = compiled(over_two, rows_of(7), remainder)
    weight = inputs()[1]
    seen = None
    graphs_before = cermet.counters()["graphs"]
    for rows in (200, 61, 8, 7, 2, 400):
        hidden, labels = torch.randn(rows, HIDDEN, requires_grad=True), torch.randint(VOCABULARY, (rows,))
        torch._dynamo.mark_dynamic(hidden, 0), torch._dynamo.mark_dynamic(labels, 0)
        close(*(loss_and_gradients(run, hidden, weight, labels) for run in (call, over_two)))
        assert seen in (None, cermet.counters()["kernels_compiled"])
        seen = cermet.counters()["kernels_compiled"]
    assert cermet.counters()["graphs"] == graphs_before + 1


def of_a_batch(hidden, weight, labels):
    return F.cross_entropy(F.linear(hidden, weight).float().view(-1, VOCABULARY), labels.view(-1))


@pytest.mark.parametrize("batch", [1, 2])
def test_lengths_of_a_batch_that_vary(batch):
    """Of one sequence, too, of which the rows are the length itself."""
    call, weight = compiled(of_a_batch, rows_of(7)), inputs()[1]
    for length in (20, 61, 8):
        hidden, labels = torch.randn(batch, length, HIDDEN, requires_grad=True), torch.randint(VOCABULARY, (batch, length))
        torch._dynamo.mark_dynamic(hidden, 1), torch._dynamo.mark_dynamic(labels, 1)
        close(*(loss_and_gradients(run, hidden, weight, labels) for run in (call, of_a_batch)))


def symbolic_key() -> int:
    """`over_two` of any number of rows as a region."""
    hidden, labels = torch.randn(200, HIDDEN, requires_grad=True), torch.randint(VOCABULARY, (200,))
    torch._dynamo.mark_dynamic(hidden, 0), torch._dynamo.mark_dynamic(labels, 0)
    (region,) = graphs.decided(graphs.trace(over_two, hidden, inputs()[1], labels)).regions
    return region.key


@pytest.mark.parametrize("rows", [0, 1])
def test_no_row_and_one(rows):
    hidden, weight = torch.randn(rows, HIDDEN, requires_grad=True), inputs()[1]
    labels = torch.randint(VOCABULARY, (rows,))
    loss, *gradients, _ = chunks.rows_op(1)(hidden, weight, None, labels, symbolic_key(), 0, 7, True, True, False)
    eager = over_two(hidden, weight, labels)
    expected = [eager, *torch.autograd.grad(eager, (hidden, weight))]
    for mine, theirs in zip((loss, *gradients), expected):
        torch.testing.assert_close(mine, theirs, rtol=2e-6, atol=2e-6)
