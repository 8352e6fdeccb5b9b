"""The loss of a linear head: its gradient is made in the forward pass, whoever else has the logits."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import cermet
import graphs
from cermet.loss import chunks, derivation, head
from cermet.ops import library, regions
from cermet.importing.importer import import_graph
from heads import HIDDEN, ROWS, VOCABULARY, close, contrasted, dead, inputs, loss_of, returned, targets
from truth import MEDIAN_SEEDS, Float64, assert_as_good_as_eager, relative


@pytest.fixture
def loss_key() -> int:
    """The loss of float32 logits as a region."""
    return key_of(torch.randn(ROWS, VOCABULARY, requires_grad=True), torch.arange(ROWS))


def key_of(*args) -> int:
    regions_found = library.context().match(import_graph(graphs.trace(loss_of, *args)).text)["regions"]
    (region,) = [item for item in regions_found if item["pattern"] == "cross_entropy"]
    return regions.register(region["text"])


def read(hidden, weight, labels):
    logits = F.linear(hidden, weight).view(-1, VOCABULARY)
    correct = (logits.argmax(-1) == labels).sum()
    return loss_of(logits, labels), correct


# --- Which heads there are -------------------------------------------------------------------------------------------


def test_dead_logits_are_made_by_the_op():
    assert targets(dead, *inputs()) == ["linear_head_1"]


def scaled(hidden, weight, labels):
    return loss_of(F.linear(hidden, weight) * 0.5, labels)


def capped(hidden, weight, labels):
    return loss_of(torch.tanh(F.linear(hidden, weight) / 2.0) * 2.0, labels)


def two_losses(hidden, weight, labels):
    logits = F.linear(hidden, weight).view(-1, VOCABULARY)
    return loss_of(logits, labels) + loss_of(logits, labels.flip(0))


@pytest.mark.parametrize(
    ("function", "op"),
    [(scaled, "linear_head_1"), (capped, "linear_head_1"), (two_losses, "linear_head_2"), (contrasted, "linear_head_0")],
)
def test_what_the_loss_region_absorbs_is_part_of_the_head(function, op):
    arguments = inputs()
    assert targets(function, *arguments) == [op]
    torch._dynamo.reset()
    losses = [call(*arguments) for call in (graphs.compiled(function, "aot"), function)]
    close(*[[loss.detach(), *torch.autograd.grad(loss, arguments[:2])] for loss in losses])


@pytest.mark.parametrize("function", [returned, read])
def test_logits_with_other_readers_stay(function):
    assert targets(function, *inputs()) == ["head_2"]


def no_gradient(hidden, weight, labels):
    with torch.no_grad():
        return loss_of(F.linear(hidden, weight), labels)


def another_reader_with_a_gradient(hidden, weight, labels):
    logits = F.linear(hidden, weight).view(-1, VOCABULARY)
    return loss_of(logits, labels) + logits.sort(-1).values[:, 0].mean()


def a_matmul(hidden, weight, labels):
    return loss_of(hidden @ weight.t(), labels)


def a_view_returned(hidden, weight, labels):
    logits = F.linear(hidden, weight).view(-1, VOCABULARY)
    return loss_of(logits, labels), logits


def a_computed_weight_returned(hidden, weight, labels):
    logits = F.linear(hidden, weight * 2.0)
    return loss_of(logits, labels), logits


def a_written_hidden_state(hidden, weight, labels):
    hidden = hidden * 1.0
    loss = loss_of(F.linear(hidden, weight), labels)
    with torch.no_grad():
        hidden.mul_(2.0)
    return loss


@pytest.mark.parametrize(
    "function",
    [
        no_gradient,
        another_reader_with_a_gradient,
        a_matmul,
        a_view_returned,
        a_computed_weight_returned,
        a_written_hidden_state,
    ],
)
def test_no_linear_head_where_a_head_would_be_wrong_or_slower(function):
    hidden, weight, labels = inputs()
    found = targets(function, hidden, weight, labels)
    given = function in (a_matmul, a_written_hidden_state)  # whose logits nothing else reads
    assert found and all(name.startswith("given_" if given else "region_") for name in found), found
    if function is no_gradient or function is a_written_hidden_state:
        return
    torch._dynamo.reset()
    results = []
    for call in (graphs.compiled(function, "aot"), function):
        loss = call(hidden, weight, labels)
        loss = loss[0] if isinstance(loss, tuple) else loss
        results.append((loss.detach(), *torch.autograd.grad(loss, (hidden, weight))))
    close(*results)


def test_float16_makes_its_gradient_in_the_backward_pass():
    hidden, weight, labels = inputs()
    halves = [value.detach().half().requires_grad_() for value in (hidden, weight)]
    assert targets(dead, *halves, labels) == ["region_2_1"]


def test_a_compiler_without_gradients_in_the_forward_pass(monkeypatch):
    differentiate = library.Context.differentiate

    def without(self, text, wanted):
        return {name: value for name, value in differentiate(self, text, wanted).items() if name != "unit"}

    monkeypatch.setattr(library.Context, "differentiate", without)
    monkeypatch.setattr(derivation, "_known", {})
    assert targets(dead, *inputs()) == ["region_2_1"]


# --- Numbers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("remainder", ["eager", "aot", "inductor"])
@pytest.mark.parametrize("function", [dead, returned, read], ids=["dead", "returned", "read"])
@torch._functorch.config.patch(donated_buffer=False)  # else a graph of Inductor's may not be kept
def test_loss_and_gradients(function, remainder, dtype, device):
    hidden, weight, labels = inputs(dtype, device)
    call = graphs.compiled(function, remainder)
    results = []
    for run in (call, function):
        values = run(hidden, weight, labels)
        loss, *rest = values if isinstance(values, tuple) else (values,)
        grads = torch.autograd.grad(loss * 0.25, (hidden, weight), retain_graph=True)
        results.append([loss.detach(), *[value.detach().float() for value in rest], *grads])
    close(*results, dtype)


@pytest.mark.parametrize("cotangent", [1.0, 0.25])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("function", [dead, capped, scaled, contrasted])
def test_errors_by_the_rule_for_numbers(function, dtype, cotangent):
    errors: dict[str, dict[str, list[float]]] = {"ours": {}, "eager": {}}
    call = graphs.compiled(function, "aot")
    for seed in range(MEDIAN_SEEDS):
        torch.manual_seed(seed)
        hidden, weight, labels = inputs(dtype, rows=64)
        with Float64():
            wide = [value.detach().double().requires_grad_() for value in (hidden, weight)]
            truth = torch.autograd.grad(cotangent * function(*wide, labels), wide)
        for name, run in (("ours", call), ("eager", function)):
            grads = torch.autograd.grad(cotangent * run(hidden, weight, labels), (hidden, weight))
            for tensor, grad, exact in zip(("hidden", "weight"), grads, truth):
                errors[name].setdefault(tensor, []).append(relative(grad, exact))
    assert_as_good_as_eager(errors["ours"], errors["eager"], dtype)


def test_a_cotangent_that_is_no_power_of_two_rounds_once_more():
    """Two roundings of equal size make the square root of two: in bf16, beside eager's rounded logits, less."""
    call = graphs.compiled(dead, "aot")
    ratios: dict[str, list[float]] = {"hidden": [], "weight": []}
    for seed in range(16):
        torch.manual_seed(seed)
        hidden, weight, labels = inputs(torch.bfloat16, rows=64)
        with Float64():
            wide = [value.detach().double().requires_grad_() for value in (hidden, weight)]
            truth = torch.autograd.grad(0.3 * dead(*wide, labels), wide)
        grads = [torch.autograd.grad(0.3 * run(hidden, weight, labels), (hidden, weight)) for run in (call, dead)]
        for place, name in enumerate(ratios):
            ratios[name].append(relative(grads[0][place], truth[place]) / relative(grads[1][place], truth[place]))
    for name, values in ratios.items():
        assert sum(values) / len(values) <= 2**0.5, f"{name}: {sum(values) / len(values):.3f} x eager's error"


@pytest.mark.parametrize("remainder", ["eager", "aot"])
def test_dead_logits_beside_labels_that_no_view_flattens(remainder):
    """Labels as transformers shifts them, padded and cut: rows further apart than they are long."""

    def shifted(hidden, weight, labels):
        labels = F.pad(labels, (0, 1), value=-100)[:, 1:].contiguous()
        return loss_of(F.linear(hidden, weight), labels.view(-1))

    hidden, weight, labels = inputs()
    labels = labels.view(2, -1)
    assert any(name.startswith("linear_head") for name in targets(shifted, hidden, weight, labels, remainder=remainder))
    call = graphs.compiled(shifted, remainder)
    ours, eager = call(hidden, weight, labels), shifted(hidden, weight, labels)
    close([ours], [eager])
    close(torch.autograd.grad(ours, (hidden, weight)), torch.autograd.grad(eager, (hidden, weight)))


class _Sizes(torch.utils._python_dispatch.TorchDispatchMode):
    """The calls that make or fill tensors of at least so many elements, and reads of numbers by the host."""

    def __init__(self, elements: int) -> None:
        super().__init__()
        self.elements, self.calls = elements, []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        made = [value for value in (result if isinstance(result, (tuple, list)) else [result])]
        if any(isinstance(value, torch.Tensor) and value.numel() >= self.elements for value in made):
            self.calls.append(str(function))
        if "_local_scalar_dense" in str(function):
            self.calls.append(str(function))
        return result


@pytest.mark.parametrize("function", [dead, returned, read], ids=["dead", "returned", "read"])
def test_a_backward_makes_nothing_of_the_logits_size_and_reads_no_number(function):
    hidden, weight, labels = inputs(rows=200)  # the logits are larger than the weight and the hidden state
    options = {"remainder": "aot", "strict": True, "memory": "fast"}  # so narrow a product is soon made again
    call = torch.compile(function, backend="cermet", options=options)
    for _ in range(2):
        values = call(hidden, weight, labels)
        loss = values[0] if isinstance(values, tuple) else values
        with _Sizes(200 * VOCABULARY) as seen:
            loss.backward()
    views = [name for name in seen.calls if not any(word in name for word in ("view", "reshape", "aten.t.", "detach"))]
    assert views == []


# --- Autograd --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("remainder", ["eager", "aot"])
def test_saved_tensors_are_only_read(remainder):
    """Two backwards of one graph with different cotangents."""
    hidden, weight, labels = inputs()
    results = []
    for run in (graphs.compiled(dead, remainder), dead):
        loss = run(hidden, weight, labels)
        first = torch.autograd.grad(loss, (hidden, weight), torch.tensor(2.0), retain_graph=True)
        second = torch.autograd.grad(loss, (hidden, weight), torch.tensor(-0.3), retain_graph=True)
        third = torch.autograd.grad(loss, (hidden, weight), torch.tensor(2.0))
        assert all(torch.equal(a, b) for a, b in zip(first, third))
        results.append([*first, *second])
    close(*results)


@pytest.mark.parametrize("wanted", [(True, False), (False, True)], ids=["hidden", "weight"])
def test_only_the_wanted_gradient_is_computed(wanted, loss_key):
    hidden, weight, labels = inputs()
    hidden.requires_grad_(wanted[0]), weight.requires_grad_(wanted[1])
    results = []
    arguments = (hidden, weight, None, labels, loss_key, 0, 0)
    for run in (lambda: head.op(True, 1)(*arguments), lambda: dead(hidden, weight, labels)):
        loss = run()
        leaf = hidden if wanted[0] else weight
        results.append([loss.detach(), *torch.autograd.grad(loss, leaf)])
    close(*results)
    loss = head.op(True, 1)(hidden, weight, None, labels, loss_key, 0, 0)
    assert [value is not None for value in loss.grad_fn.saved_tensors] == [True, wanted[1], wanted[0], False]


def test_without_a_wanted_gradient_none_is_made(loss_key):
    hidden, weight, labels = [value.detach() for value in inputs()]
    with _Sizes(1) as seen:
        loss = head.op(True, 1)(hidden, weight, None, labels, loss_key, 0, 0)
    assert "cermet_v1.launch_2_1.default" in seen.calls and not loss.requires_grad
    close([loss], [dead(hidden, weight, labels)])


@pytest.mark.parametrize("remainder", ["eager", "aot"])
def test_double_backward_is_refused_by_name(remainder):
    hidden, weight, labels = inputs()
    loss = graphs.compiled(dead, remainder)(hidden, weight, labels)
    if remainder == "aot":
        with pytest.raises(RuntimeError, match="double backward"):
            (grad,) = torch.autograd.grad(loss, hidden, create_graph=True)
            grad.sum().backward()
        return
    (grad,) = torch.autograd.grad(loss, hidden, create_graph=True)
    close([grad.detach()], torch.autograd.grad(dead(hidden, weight, labels), hidden))
    with pytest.raises(RuntimeError, match="cross_entropy: double backward is not supported"):
        grad.sum().backward()


def test_opcheck_of_head_ops(device, loss_key):
    hidden, weight, labels = inputs(device=device)
    logits = F.linear(hidden, weight).view(-1, VOCABULARY).detach()
    torch.library.opcheck(head.op(True, 1), (hidden, weight, None, labels, loss_key, 0, 0))
    torch.library.opcheck(head.op(False, 2), (hidden, weight, None, logits, labels, loss_key, 0))
    forward = derivation.derive(loss_key, 0).forward
    rows = hidden.detach().view(-1, HIDDEN)
    torch.library.opcheck(chunks.launch_op(1, 2), (rows, weight.detach(), labels, forward, 0))


def test_new_row_counts_compile_no_kernel():
    call = torch.compile(dead, backend="cermet", options={"remainder": "aot", "strict": True})
    seen = None
    for rows in (12, 20, 44, 96):
        hidden, weight, labels = inputs(rows=rows)
        results = [
            [loss.detach(), *torch.autograd.grad(loss, (hidden, weight))]
            for loss in (call(hidden, weight, labels), dead(hidden, weight, labels))
        ]
        close(*results)
        compiled = cermet.counters()["kernels_compiled"]
        assert seen in (None, compiled)
        seen = compiled


# --- Memory ----------------------------------------------------------------------------------------------------------


def test_the_gradient_takes_the_logits_memory():
    """The profiler's own account of the allocator: one allocation of the logits' size, not two."""
    hidden, weight, labels = [value.detach() for value in inputs(rows=4000)]
    key = derivation.derive(key_of(torch.randn(4000, VOCABULARY, requires_grad=True), labels), 0).forward
    op, rows = chunks.launch_op(1, 2), hidden.view(-1, HIDDEN)
    op(rows, weight, labels, key, 0)
    peaks = []
    for run in (
        lambda: op(rows, weight, labels, key, 0),
        lambda: regions.launch(key, [F.linear(rows, weight), labels]),
    ):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            run()
        large = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
        peaks.append(sum(event.nbytes() >= 4000 * VOCABULARY * 4 for event in large))
    assert peaks[1] == peaks[0] + 1, peaks


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device that this torch can use")
@pytest.mark.parametrize("remainder", ["aot", "inductor"])
def test_a_step_holds_one_tensor_of_the_logits_size(remainder):
    rows, columns = 4096, 32000
    hidden = torch.randn(1, rows, HIDDEN, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(columns, HIDDEN, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    labels = torch.randint(columns, (rows,), device="cuda")

    call = graphs.compiled(dead, remainder)
    for _ in range(2):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        torch.autograd.grad(call(hidden, weight, labels), (hidden, weight))
        torch.cuda.synchronize()
    held = torch.cuda.max_memory_allocated() - before
    logits = rows * columns * 2
    assert logits <= held <= 1.25 * logits, f"{held / logits:.2f} x the logits' size"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device that this torch can use")
@pytest.mark.parametrize("function", [dead, returned, read, a_matmul], ids=["dead", "returned", "read", "plain"])
def test_a_step_waits_for_nothing(function):
    hidden, weight, labels = inputs(torch.bfloat16, "cuda")
    call = graphs.compiled(function, "aot")
    for mode in ("default", "error"):
        torch.cuda.set_sync_debug_mode(mode)
        try:
            values = call(hidden, weight, labels)
            (values[0] if isinstance(values, tuple) else values).backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")
