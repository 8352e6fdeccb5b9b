"""The loss of a linear head in pieces of rows: which heads come so, what autograd sees, and that one piece of logits is
all that exists."""

from __future__ import annotations

import pytest
import torch

import graphs
from cermet import inspection, options
from cermet.errors import Error
from cermet.loss import accumulation, chunks, derivation, kept
from cermet.ops import regions
from heads import VOCABULARY, close, contrasted, dead, inputs, returned
from pieces import DTYPES, LOSSES, allocations, compiled, heads_of, rows_of


# --- Which heads come in pieces --------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", LOSSES)
def test_every_kind_of_loss_comes_in_pieces(function):
    (head,) = heads_of(function, *inputs(rows=200))
    assert head[0].startswith("linear_head") and head[1] == 1


def test_the_whole_where_labels_count_rows():
    """A piece does not know which rows it has."""
    assert heads_of(contrasted, *inputs(rows=90)) == [("linear_head_0", 0)]


def test_the_whole_within_the_budget():
    assert heads_of(dead, *inputs(rows=200), budget=rows_of(200)) == [("linear_head_1", 0)]
    assert heads_of(dead, *inputs(rows=200), budget=rows_of(199)) == [("linear_head_1", 199)]


def test_the_whole_where_the_sum_of_the_weights_gradient_takes_more():
    """Twelve rows of logits beside a gradient of 32 numbers for each of their columns."""
    hidden, weight, labels = inputs()
    assert heads_of(dead, hidden, weight, labels) == [("linear_head_1", 0)]
    assert heads_of(dead, hidden, weight.detach(), labels) == [("linear_head_1", 1)]
    assert heads_of(dead, hidden.detach(), weight, labels) == [("linear_head_1", 0)]


def test_sizes_of_a_large_model():
    """Llama-3-8B's head: logits of 2.1 GB, a sum of as many; half of the rows take less as a whole."""
    weight = torch.empty(128256, 4096, dtype=torch.bfloat16, device="meta")
    sizes = {
        rows: chunks.chunk_rows(weight.new_empty(rows, 4096), weight, options.LOGITS_BYTES, True, True)
        for rows in (1024, 4096, 8192, 32768)
    }
    assert sizes == {1024: 0, 4096: 0, 8192: 2048, 32768: 2048}
    frozen = chunks.chunk_rows(weight.new_empty(4096, 4096), weight, options.LOGITS_BYTES, True, False)
    assert frozen == 2048


def a_logarithm(hidden, weight, labels):
    return dead(hidden, weight, labels).log()


def test_a_gradient_that_needs_all_rows_is_made_of_the_whole():
    """d log(mean) = d mean / mean: no row's gradient is known before every row's loss."""
    assert heads_of(a_logarithm, *inputs(rows=200)) == [("head_2", 0)]


def test_logits_that_somebody_has_exist():
    assert all(rows == 0 for _, rows in heads_of(returned, *inputs(rows=200)))


@pytest.mark.parametrize("frozen", [False, True])
def test_what_is_kept_is_told(frozen):
    hidden, weight, labels = inputs(rows=200)
    weight.requires_grad_(not frozen)
    given = (hidden, weight, labels)
    told = inspection.explained(
        graphs.trace(dead, *given), given, options.parse(None, {"logits_bytes": 1, "remainder": "aot"})
    )
    (place,) = told.places
    assert place.saved_bytes == 4 * (hidden.numel() + (0 if frozen else weight.numel()))
    assert len(place.backward) == 1 and len(place.forward) > 3


@pytest.mark.parametrize("value", [0, -1, 1.5, "512MB", True, None])
def test_a_budget_is_a_number_of_bytes(value):
    with pytest.raises(Error, match="option logits_bytes is .*, expected a whole number of bytes, at least 1"):
        options.parse(None, {"logits_bytes": value})


# --- Autograd --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("remainder", ["eager", "aot"])
def test_saved_tensors_are_only_read(remainder):
    hidden, weight, labels = inputs(rows=200)
    results = []
    for run in (compiled(dead, rows_of(9), remainder), dead):
        loss = run(hidden, weight, labels)
        first = torch.autograd.grad(loss, (hidden, weight), torch.tensor(2.0), retain_graph=True)
        second = torch.autograd.grad(loss, (hidden, weight), torch.tensor(-0.3), retain_graph=True)
        third = torch.autograd.grad(loss, (hidden, weight), torch.tensor(2.0))
        assert all(torch.equal(a, b) for a, b in zip(first, third))
        results.append([*first, *second])
    close(*results)


@pytest.mark.parametrize("remainder", ["eager", "aot"])
def test_double_backward_is_refused_by_name(remainder):
    hidden, weight, labels = inputs(rows=200)
    loss = compiled(dead, 1, remainder)(hidden, weight, labels)
    with pytest.raises(RuntimeError, match="double backward"):
        (grad,) = torch.autograd.grad(loss, hidden, create_graph=True)
        grad.sum().backward()


def without_gradients(hidden, weight, labels):
    with torch.no_grad():
        return dead(hidden, weight, labels)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=["f32", "bf16", "f16"])
@pytest.mark.parametrize("remainder", ["eager", "aot", "inductor"])
def test_evaluation_makes_no_gradient(remainder, dtype):
    hidden, weight, labels = [value.detach() for value in inputs(dtype, rows=200)]
    for function in (dead, without_gradients):
        assert heads_of(function, hidden, weight, labels, budget=1) == [("linear_head_1", 1)]
    call = compiled(dead, rows_of(9, dtype), remainder)
    with torch.no_grad():
        close([call(hidden, weight, labels).float()], [dead(hidden, weight, labels).float()], torch.bfloat16)
        assert max(allocations(lambda: call(hidden, weight, labels))) <= rows_of(200, dtype) // 5


def test_a_class_that_does_not_exist_is_named():
    hidden, weight, labels = inputs(rows=200)
    labels[150] = VOCABULARY + 3
    with pytest.raises(IndexError, match=f"Target {VOCABULARY + 3} is out of bounds"):
        compiled(dead, rows_of(9))(hidden, weight, labels)


def test_opcheck_of_the_op():
    hidden, weight, labels = [value.detach() for value in inputs(rows=200)]
    module = graphs.trace(dead, *inputs(rows=200))
    (region,) = graphs.decided(module).regions
    for of_hidden in (False, True):
        for of_weight in (False, True):
            for bias in (None, weight.new_ones(VOCABULARY)):
                wanted = (of_hidden, of_weight, bias is not None and of_weight)
                torch.library.opcheck(chunks.rows_op(1), (hidden, weight, bias, labels, region.key, 0, 9, *wanted))


# --- Memory ----------------------------------------------------------------------------------------------------------


@DTYPES
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("remainder", ["aot", "eager"])
def test_no_tensor_of_all_logits_ever_exists(remainder, frozen, dtype):
    hidden, weight, labels = inputs(dtype, rows=4000)
    weight.requires_grad_(not frozen)
    leaves = (hidden,) if frozen else (hidden, weight)
    call = compiled(dead, rows_of(100, dtype), remainder)

    def step(run):
        return lambda: torch.autograd.grad(run(hidden, weight, labels), leaves)

    step(call)()
    logits = rows_of(4000, dtype)
    assert max(allocations(step(dead))) >= logits
    # The hidden state's gradient is a third of the logits; a piece in f32 is less.
    assert max(allocations(step(call))) <= hidden.numel() * hidden.element_size() < logits
    assert rows_of(100) < hidden.numel() * hidden.element_size()


def test_a_frozen_weight_has_no_gradient_anywhere():
    hidden, weight, labels = inputs(rows=8)
    hidden, labels = hidden.detach()[:, :4].requires_grad_(), labels[:8]
    weight.requires_grad_(False)
    call = compiled(dead, rows_of(2))
    call(hidden, weight, labels).backward()
    assert max(allocations(lambda: call(hidden, weight, labels).backward())) < weight.numel() * 4


def test_the_sum_in_f32_takes_four_bytes_a_weight():
    """Half of it in the gradient's own memory, the other half beside it."""
    rows, columns = torch.randn(5, 64).bfloat16(), torch.randn(5, 640).bfloat16()
    weight = torch.empty(640, 64, dtype=torch.bfloat16)

    def summed():
        gradient = accumulation.WeightGradient(weight, 640, pieces=2)
        gradient.add(columns, rows), gradient.add(columns, rows)
        return gradient.result()

    summed()
    large = [size for size in allocations(summed) if size >= weight.numel()]
    assert sorted(large) == [weight.numel() * 2] * 2
    exact = 2 * columns.float().t() @ rows.float()
    assert torch.equal(summed(), exact.bfloat16())


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 1000])
def test_rounding_in_place(size):
    memory = torch.empty(2 * size, dtype=torch.bfloat16)
    wide, narrow = memory.view(torch.float32) if size else torch.empty(0), memory[:size]
    wide.copy_(torch.randn(size))
    expected = wide.bfloat16()
    accumulation.round_in_place(wide, narrow)
    assert torch.equal(narrow, expected)


# --- On a GPU ---------------------------------------------------------------------------------------------------------

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device that this torch can use")


@pytest.mark.gpu
@GPU
@pytest.mark.parametrize("remainder", ["aot", "inductor"])
@pytest.mark.parametrize("columns", [32000, 50257])
def test_a_step_holds_a_piece_and_the_sum(columns, remainder):
    """Beside both gradients: what was saved, for the backward to scale."""
    rows, hidden = 8192, 256
    state = torch.randn(rows, hidden, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(columns, hidden, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    labels = torch.randint(columns, (rows,), device="cuda")
    piece = 512 * columns * 2
    call = compiled(dead, piece, remainder)
    for _ in range(2):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        torch.autograd.grad(call(state, weight, labels), (state, weight))
        torch.cuda.synchronize()
    held = torch.cuda.max_memory_allocated() - before
    expected = piece + 4 * weight.numel() + 2 * state.numel() + (2 * weight.numel() if columns % 8 else 0)
    assert held <= 1.1 * expected < rows * columns * 2 / 4, f"{held / expected:.2f} x what is expected"


@pytest.mark.gpu
@GPU
def test_a_step_waits_for_nothing():
    hidden, weight, labels = inputs(torch.bfloat16, "cuda", rows=200)
    labels = labels.clamp(min=0)  # where many are ignored, the host waits for their number
    call = compiled(dead, rows_of(9, torch.bfloat16))
    for mode in ("default", "error"):
        torch.cuda.set_sync_debug_mode(mode)
        try:
            call(hidden, weight, labels).backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@GPU
def test_a_recorded_step_gives_the_numbers_of_one_that_is_not(monkeypatch):
    monkeypatch.setattr(kept, "_watches", {})
    hidden, weight, labels = inputs(torch.bfloat16, "cuda", rows=200)
    call = compiled(dead, rows_of(9, torch.bfloat16), mode="reduce-overhead")
    expected = [value.clone() for value in torch.autograd.grad(dead(hidden, weight, labels), (hidden, weight))]
    for _ in range(4):
        found = [value.clone() for value in torch.autograd.grad(call(hidden, weight, labels), (hidden, weight))]
        close(found, expected, torch.bfloat16)


# --- What libcermet makes of it --------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", LOSSES)
def test_a_piece_is_one_kernel_that_writes_over_the_logits(function):
    module = graphs.trace(function, *inputs(rows=200))
    (region,) = [found for found in graphs.decided(module).regions if found.pattern == "cross_entropy"]
    position = region.wanted.index(True)
    rows = derivation.derive(region.key, position).gradient.rows
    plan = regions.plan(rows.key, "host:x86-64-v3")
    assert [step["kind"] for step in plan["steps"]] == ["kernel"]
    assert derivation.in_place(rows.key, rows.inputs.index(("input", position)), torch.device("cpu"))
    assert not any(200 in value["dims"] for value in plan["values"])
