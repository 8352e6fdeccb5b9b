"""Losses that are computed behind numbers of rows, as trainers of preferences and policies do: their logits come in
pieces, in the forward and again in the backward."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

import graphs
from adapters import OPERANDS, assert_good, close_to_eager, errors_of, given, leaves_of
from cermet import inspection, options
from cermet.loss import chunks, cotangents, values, widths
from cermet.loss import kept as kept_rows
from cermet.loss.lazy import Logits
from heads import HIDDEN, VOCABULARY, inputs
from pieces import DTYPES, allocations, compiled, heads_of, rows_of
from truth import EVERY_SEED, assert_none_is_far_from_eager, relative

ROWS = 200
NAMES = ("hidden", "weight")


def batch(dtype=torch.float32, device="cpu", seed=0, rows=ROWS):
    """Two sequences, the label of each word, and what each word counts: nothing in the first half of a sequence."""
    torch.manual_seed(seed)
    hidden, weight, labels = inputs(dtype, device, rows=rows)
    shown = torch.rand(2, rows // 2, device=device) * (torch.arange(rows // 2, device=device) >= rows // 4)
    return hidden, weight, labels.clamp(min=0).view(2, -1), shown


def scores(logits, labels):
    """log p(label), [2, words]; as selective_log_softmax computes it of float32."""
    logits = logits.float()
    return torch.gather(logits, -1, labels[..., None]).squeeze(-1) - torch.logsumexp(logits, -1)


def preference(hidden, weight, labels, shown):
    """DPO (Rafailov et al., 2023) without a reference: one sequence is to be more likely than the other."""
    each = (scores(F.linear(hidden, weight), labels) * shown).sum(-1)
    return -F.logsigmoid(0.1 * (each[0] - each[1]))


def softmaxed(hidden, weight, labels, shown):
    logits = F.linear(hidden, weight).float()
    each = (logits.log_softmax(-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1) * shown).sum(-1)
    return F.softplus(0.1 * (each[1] - each[0]))


def of_losses(hidden, weight, labels, shown):
    losses = F.cross_entropy(F.linear(hidden, weight).flatten(0, 1).float(), labels.flatten(), reduction="none")
    each = (losses.view(labels.shape) * shown).sum(-1) / shown.sum(-1)
    return -F.logsigmoid(each[1] - each[0])


def weighted_by_itself(hidden, weight, labels, shown):
    """What a row counts follows from all rows."""
    each = scores(F.linear(hidden, weight), labels)
    return -(each * torch.softmax(each.detach() * shown, -1)).sum()


def with_z_loss(hidden, weight, labels, shown):
    logits = F.linear(hidden, weight).flatten(0, 1).float()
    each = F.cross_entropy(logits, labels.flatten(), reduction="none") + 1e-2 * torch.logsumexp(logits, -1).square()
    return (each * each.detach().softmax(0)).sum()


def uncertain(hidden, weight, labels, shown):
    """The entropy of each row."""
    chances = F.linear(hidden, weight).float().log_softmax(-1)
    each = -(chances.exp() * chances).sum(-1)
    return (each * shown).sum(-1).log().sum()


def of_logits_alone(hidden, weight, labels, shown):
    """Its region reads nothing else."""
    chances = F.linear(hidden, weight).float().log_softmax(-1)
    return (chances.exp() * chances).sum(-1).flatten().square().log().sum()


VALUES = (preference, softmaxed, of_losses, weighted_by_itself, with_z_loss, uncertain, of_logits_alone)


def summed(hidden, weight, labels, shown):
    each = F.linear(hidden, weight).float().log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)
    return -(each * shown).sum() / shown.sum()


def summed_otherwise(hidden, weight, labels, shown):
    """By the difference of a score and a logarithm of a sum."""
    return -(scores(F.linear(hidden, weight), labels) * shown).sum() / shown.sum()


def clipped(hidden, weight, labels, shown):
    """GRPO (Shao et al., 2024): a function of each row and what is known before."""
    each = F.linear(hidden, weight).float().log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1)
    ratio = torch.exp(each - shown + 4)
    return -(torch.min(ratio * 0.3, ratio.clamp(0.8, 1.2) * 0.3) * (shown > 0)).mean()


def in_pieces(function, arguments, budget: int, remainder: str = "aot", **others):
    """It compiled, which was seen to have values in pieces."""
    (head,) = [head for head in heads_of(function, *arguments, budget=budget) if head[0].startswith("linear_")]
    assert head[0].startswith("linear_values_") and head[1] > 0
    return compiled(function, budget, remainder, **others)


# --- Which come in pieces --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", VALUES)
def test_numbers_of_rows_come_in_pieces(function):
    for budget in (rows_of(1), rows_of(9)):
        in_pieces(function, batch(), budget)


@pytest.mark.parametrize("function", [summed, summed_otherwise, clipped])
def test_what_needs_no_other_row_is_a_loss_in_pieces(function):
    """So its logits are made once."""
    arguments = batch()
    ((name, rows),) = heads_of(function, *arguments)
    assert name.startswith("linear_head") and rows == 1
    results = []
    for run in (compiled(function, rows_of(9)), function):
        loss = run(*arguments)
        results.append([loss.detach(), *torch.autograd.grad(loss, arguments[:2])])
    close_to_eager(*results)


def test_logits_that_fit_are_made_once():
    assert not any("values" in name for name, _ in heads_of(preference, *batch(), budget=rows_of(ROWS)))


def test_nothing_is_made_twice_where_memory_is_of_no_worth():
    for memory in ("fast", "auto"):
        chosen = options.parse(None, {"logits_bytes": 1, "memory": memory})
        decided = graphs.decided(graphs.trace(preference, *batch()), options=chosen)
        assert any(region.head and region.head.of_values for region in decided.regions) == (memory == "auto")


def read_elsewhere(hidden, weight, labels, shown):
    logits = F.linear(hidden, weight)
    each = (scores(logits, labels) * shown).sum(-1)
    return -F.logsigmoid(each[0] - each[1]) + logits.sort(-1).values[..., 0].mean()


def of_all_columns(hidden, weight, labels, shown):
    chances = F.linear(hidden, weight).float().softmax(-1)
    return (chances * torch.linspace(0, 1, VOCABULARY, device=hidden.device)).cumsum(-1).square().mean()


def of_earlier_rows(hidden, weight, labels, shown):
    """Of each row and those before it."""
    return scores(F.linear(hidden, weight), labels).cumsum(-1).square().mean().log()


@pytest.mark.parametrize("function", [read_elsewhere, of_all_columns, of_earlier_rows])
def test_other_functions_of_logits_give_what_eager_gives(function):
    arguments = batch()
    results = []
    for run in (compiled(function, rows_of(9)), function):
        loss = run(*arguments)
        results.append([loss.detach(), *torch.autograd.grad(loss, leaves_of(arguments))])
    close_to_eager(*results)


# --- Numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", VALUES)
@DTYPES
def test_errors_by_the_rule_for_numbers(function, dtype, device):
    call = in_pieces(function, batch(dtype, device), rows_of(72, dtype))
    names = (*NAMES, "shown")

    def make(seed):
        hidden, weight, labels, shown = batch(dtype, device, seed)
        return hidden, weight, shown, labels

    def moved(run):
        return lambda hidden, weight, shown, labels: run(hidden, weight, labels, shown)

    # A factor of every gradient follows from the difference, too.
    assert_good(*errors_of(moved(call), moved(function), make, names), dtype, cancelling=("loss", *names))


@pytest.mark.parametrize("rows", [1, 7, 150])
@pytest.mark.parametrize("remainder", ["eager", "aot", "inductor"])
@pytest.mark.parametrize("wanted", [("hidden", "weight"), ("hidden",), ("weight",)], ids="-".join)
def test_remainders_and_frozen_operands(wanted, remainder, rows, device):
    def make(seed):
        hidden, weight, labels, shown = batch(torch.bfloat16, device, seed)
        return hidden, weight, shown, labels

    def moved(run):
        return lambda hidden, weight, shown, labels: run(hidden, weight, labels, shown)

    call = compiled(preference, rows_of(rows, torch.bfloat16), remainder)
    errors = errors_of(moved(call), moved(preference), make, (*NAMES, "shown"), wanted, EVERY_SEED)
    assert_none_is_far_from_eager(*errors, torch.bfloat16)


@pytest.mark.parametrize("columns", [33, 1001])
@pytest.mark.parametrize("aligned", [False, True])
@DTYPES
def test_vocabularies_of_any_width(dtype, columns, aligned, monkeypatch):
    monkeypatch.setattr(widths, "_PADDED", {"cpu"} if aligned else {})
    hidden, _, labels, shown = batch(dtype)
    weight = (torch.randn(columns, HIDDEN) * HIDDEN**-0.5).to(dtype).requires_grad_()
    arguments = hidden, weight, labels.clamp(max=columns - 1), shown
    results = []
    for run in (in_pieces(preference, arguments, rows_of(9, dtype, columns)), preference):
        loss = run(*arguments)
        results.append([loss.detach(), *torch.autograd.grad(loss, (hidden, weight))])
    close_to_eager(*results, 1e-5 if dtype == torch.float32 else 2e-2)


def adapted(hidden, weight, bias, down, up, labels):
    logits = F.linear(hidden, weight, bias)
    low = F.linear(hidden.to(down.dtype), down)
    logits = (logits + F.linear(low, up) * 1.7).to(logits.dtype)
    each = scores(logits, labels.clamp(min=0).view(1, -1))[0].view(2, -1).mean(-1)
    return F.softplus(each[1] - each[0])


@pytest.mark.parametrize("kind", ["f32", "bf16", "bf16 with an adapter in f32"])
def test_a_biased_head_with_an_adapter(kind):
    dtype = torch.float32 if kind == "f32" else torch.bfloat16
    call = in_pieces(adapted, given(kind), rows_of(72, dtype))
    assert_good(*errors_of(call, adapted, lambda seed: given(kind, seed=seed), OPERANDS), dtype)


def every_row(hidden, weight, labels, shown):
    return scores(F.linear(hidden, weight), labels)


def test_rows_without_a_cotangent_are_not_multiplied_again(monkeypatch):
    monkeypatch.setattr(kept_rows, "_watches", {})
    seen = []
    method = chunks.Run._gradient

    def counted(self, part, rows, *others):
        seen.append(len(rows))
        return method(self, part, rows, *others)

    monkeypatch.setattr(chunks.Run, "_gradient", counted)
    arguments = batch()
    results = []
    for run in (in_pieces(every_row, arguments, rows_of(9)), every_row):
        each = run(*arguments)
        results.append([each.detach(), *torch.autograd.grad(each, arguments[:2], arguments[3])])
    close_to_eager(*results)
    assert sum(seen) == int((arguments[3] != 0).sum()) < ROWS


@pytest.mark.parametrize("remainder", ["eager", "aot"])
def test_saved_tensors_are_only_read(remainder):
    arguments = batch()
    results = []
    for run in (in_pieces(every_row, arguments, rows_of(9), remainder), every_row):
        each = run(*arguments)
        grads = [
            torch.autograd.grad(each, arguments[:2], cotangent, retain_graph=True)
            for cotangent in (arguments[3], -arguments[3].exp(), torch.ones(()).expand(each.shape), arguments[3])
        ]
        assert all(torch.equal(a, b) for a, b in zip(grads[0], grads[-1]))
        results.append([gradient for pair in grads for gradient in pair])
    close_to_eager(*results)


@pytest.mark.parametrize("remainder", ["eager", "aot"])
def test_double_backward_is_refused_by_name(remainder):
    arguments = batch()
    loss = compiled(preference, rows_of(9), remainder)(*arguments)
    with pytest.raises(RuntimeError, match="double backward"):
        (grad,) = torch.autograd.grad(loss, arguments[0], create_graph=True)
        grad.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])
def test_a_reference_has_no_gradient(dtype):
    """Whose logits are made once, whatever memory is worth."""
    arguments = [each.detach() for each in batch(dtype)]
    call = in_pieces(every_row, arguments, rows_of(9, dtype), memory="fast")
    with torch.no_grad():
        close_to_eager([call(*arguments)], [every_row(*arguments)])
        assert max(allocations(lambda: call(*arguments))) <= rows_of(ROWS, dtype) // 5


def test_lengths_that_vary_share_kernels():
    given = {"strict": True, "logits_bytes": rows_of(9)}
    call = torch.compile(preference, backend="cermet", fullgraph=True, options=given)
    weight = batch()[1]
    for length in (100, 70, 31, 12):
        hidden = torch.randn(2, length, HIDDEN, requires_grad=True)
        labels, shown = torch.randint(VOCABULARY, (2, length)), torch.rand(2, length)
        results = []
        for run in (call, preference):
            loss = run(hidden, weight, labels, shown)
            results.append([loss.detach(), *torch.autograd.grad(loss, (hidden, weight))])
        close_to_eager(*results)


# --- Memory ----------------------------------------------------------------------------------------------------------


@DTYPES
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("remainder", ["aot", "eager"])
@pytest.mark.parametrize("function", [preference, of_losses])
def test_no_tensor_of_all_logits_ever_exists(function, remainder, frozen, dtype):
    arguments = batch(dtype, rows=4000)
    arguments[1].requires_grad_(not frozen)
    call = in_pieces(function, arguments, rows_of(100, dtype), remainder)

    def step(run):
        return lambda: torch.autograd.grad(run(*arguments), leaves_of(arguments))

    step(call)()
    logits = rows_of(4000, dtype)
    assert max(allocations(step(function))) >= logits
    assert max(allocations(step(call))) <= arguments[0].numel() * arguments[0].element_size() < logits


def test_what_is_kept_and_taken_is_told():
    hidden, weight, labels, shown = arguments = batch()
    told = inspection.explained(
        graphs.trace(preference, *arguments), arguments, options.parse(None, {"logits_bytes": 1, "remainder": "aot"})
    )
    (place,) = [place for place in told.places if place.pattern != "cluster" or len(told.places) == 1]
    assert place.saved_bytes == 4 * hidden.numel() and place.backward
    rows = hidden.detach()[0].bfloat16(), weight.detach().bfloat16()
    taken = values.taken("cermet_v1.linear_row_values_2_0", *rows, None, labels, shown, 0, 0, 9)
    assert taken == 9 * VOCABULARY * 2


def test_opcheck_of_the_op():
    module = graphs.trace(preference, *batch())
    (region,) = graphs.decided(module, options=options.parse(None, {"logits_bytes": 1})).regions
    hidden, weight, *_ = batch()
    given = [node.meta["example_value"] for node in region.operands]
    del given[region.head.position]
    given = [torch.ones(value.shape, dtype=value.dtype) for value in given]
    arguments = (hidden.detach(), weight.detach(), None, *given, region.key, region.head.position, 9)
    torch.library.opcheck(values.linear_op(len(given), 0), arguments)
    torch.library.opcheck(values.op(len(given), 0), (hidden, weight, *arguments[2:]))


def test_what_is_no_function_of_rows():
    """A norm of each row of logits has all columns."""
    module = graphs.trace(graphs.rms_norm, torch.randn(4, 32), torch.randn(32))
    (region,) = graphs.decided(module).regions
    assert cotangents.values(region.key, 0) is None


# --- Logits that are returned ----------------------------------------------------------------------------------------


def returned(hidden, weight, labels, shown):
    logits = F.linear(hidden * 1.5, weight)
    each = (scores(logits, labels) * shown).sum(-1)
    return -F.logsigmoid(0.1 * (each[0] - each[1])), logits


@pytest.mark.parametrize("use", ["loss", "logits", "both"])
def test_lazy_logits(use):
    arguments = batch()
    results = []
    for run in (compiled(returned, rows_of(9)), returned):
        loss, logits = run(*arguments)
        if run is not returned:
            assert type(logits) is Logits and not logits._value.known
        total = (loss * 3.0 if use != "logits" else 0.0) + (logits.square().mean() if use != "loss" else 0.0)
        results.append([loss.detach(), *torch.autograd.grad(total, arguments[:2])])
        if run is not returned:
            assert logits._value.known == (use != "loss")
        results[-1].append(logits.detach() * 1.0)
    close_to_eager(*results)


class Residual(torch.nn.Module):
    """Layers of which each reads what a linear one gives twice."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(layers))
        for layer in self.layers:
            torch.nn.init.orthogonal_(layer.weight)  # so that no error grows
        self.weight = torch.nn.Parameter(torch.rand(8))

    def forward(self, x):
        for layer in self.layers:
            given = layer(x)
            x = given + graphs.rms_norm(given, self.weight)
        return x


@torch.no_grad()
def test_what_reads_a_linear_layer_may_be_many_layers():
    """All that is behind it reads what none of them can do without."""
    model, x = Residual(40), torch.randn(4, 8)
    call = torch.compile(model, backend="cermet", fullgraph=True, options={"strict": True})
    true = copy.deepcopy(model).double()(x.double())
    assert relative(call(x), true) <= 2 * relative(model(x), true) + 1e-6
