"""The loss of a linear head in pieces of rows: one piece of logits at a time, and the numbers of the whole."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import cermet
import graphs
from cermet import inspection, options, pipeline
from cermet.errors import Error
from cermet.loss import chunks, derivation
from cermet.ops import regions
from cermet.record import Settings
from heads import HIDDEN, VOCABULARY, close, dead, inputs, loss_of, returned
from tiny_models import tiny, words
from truth import MEDIAN_SEEDS, Float64, assert_as_good_as_eager, relative

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])


def rows_of(rows: int, dtype=torch.float32, columns: int = VOCABULARY) -> int:
    """The budget of so many rows of logits."""
    return rows * columns * torch.empty((), dtype=dtype).element_size()


def compiled(function, budget: int, remainder: str = "aot", **others):
    return graphs.compiled(function, remainder, logits_bytes=budget, **others)


def launched(function, *arguments, budget: int = rows_of(1)) -> list[tuple[str, int]]:
    """Its heads with the rows of a piece."""
    module = graphs.trace(function, *arguments)
    pipeline.run(module, Settings(options=options.parse(None, {"logits_bytes": budget})))
    found = [node for node in module.graph.nodes if "cermet_v1" in str(node.target)]
    return [(str(node.target).split(".")[1], node.args[-1] if "linear" in str(node.target) else 0) for node in found]


# What a loss may be made of; all of them have a gradient in the forward pass.


def flat(hidden, weight, labels):
    return loss_of(F.linear(hidden.view(-1, HIDDEN), weight), labels)


def capped(hidden, weight, labels):
    return loss_of(torch.tanh(F.linear(hidden, weight) / 2.0) * 2.0, labels)


def scaled(hidden, weight, labels):
    return loss_of(F.linear(hidden, weight) * 0.5, labels)


def smoothed(hidden, weight, labels):
    logits = F.linear(hidden, weight).view(-1, VOCABULARY).float()
    return F.cross_entropy(logits, labels, label_smoothing=0.1)


def summed(hidden, weight, labels):
    """As Trainer counts over several batches."""
    logits = F.linear(hidden, weight).view(-1, VOCABULARY).float()
    return F.cross_entropy(logits, labels, reduction="sum") / (labels != -100).sum()


def z_loss(hidden, weight, labels):
    logits = F.linear(hidden, weight).view(-1, VOCABULARY).float()
    return F.cross_entropy(logits, labels) + 1e-2 * torch.logsumexp(logits, -1).square().mean()


def two_losses(hidden, weight, labels):
    logits = F.linear(hidden, weight).view(-1, VOCABULARY)
    return loss_of(logits, labels) + 0.5 * loss_of(logits, labels.flip(0))


LOSSES = (dead, flat, capped, scaled, smoothed, summed, z_loss, two_losses)


# --- Which heads come in pieces --------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", LOSSES)
def test_every_kind_of_loss_comes_in_pieces(function):
    (head,) = launched(function, *inputs(rows=200))
    assert head[0].startswith("linear_head") and head[1] == 1


def test_the_whole_within_the_budget():
    assert launched(dead, *inputs(rows=200), budget=rows_of(200)) == [("linear_head_1", 0)]
    assert launched(dead, *inputs(rows=200), budget=rows_of(199)) == [("linear_head_1", 199)]


def test_the_whole_where_the_sum_of_the_weights_gradient_takes_more():
    """Twelve rows of logits beside a gradient of 32 numbers for each of their columns."""
    hidden, weight, labels = inputs()
    assert launched(dead, hidden, weight, labels) == [("linear_head_1", 0)]
    assert launched(dead, hidden, weight.detach(), labels) == [("linear_head_1", 1)]
    assert launched(dead, hidden.detach(), weight, labels) == [("linear_head_1", 0)]


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
    assert launched(a_logarithm, *inputs(rows=200)) == [("head_2", 0)]


def test_logits_that_somebody_has_exist():
    assert all(rows == 0 for _, rows in launched(returned, *inputs(rows=200)))


@pytest.mark.parametrize("frozen", [False, True])
def test_what_is_kept_is_told(frozen):
    hidden, weight, labels = inputs(rows=200)
    weight.requires_grad_(not frozen)
    told = inspection.explained(
        graphs.trace(dead, hidden, weight, labels), options.parse(None, {"logits_bytes": 1, "remainder": "aot"})
    )
    (place,) = told.places
    assert place.saved_bytes == 4 * (hidden.numel() + (0 if frozen else weight.numel()))
    assert len(place.backward) == 1 and len(place.forward) > 3


@pytest.mark.parametrize("value", [0, -1, 1.5, "512MB", True, None])
def test_a_budget_is_a_number_of_bytes(value):
    with pytest.raises(Error, match="option logits_bytes is .*, expected a whole number of bytes, at least 1"):
        options.parse(None, {"logits_bytes": value})


# --- Numbers ---------------------------------------------------------------------------------------------------------


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
    monkeypatch.setattr(chunks, "_PADDED", {"cpu"} if aligned else {})
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
    (head,) = launched(function, *arguments)
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

    assert launched(loss_alone)[-1] == ("linear_head_1", 1)
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
        results = []
        for run in (call, over_two):
            loss = run(hidden, weight, labels)
            results.append([loss.detach(), *torch.autograd.grad(loss, (hidden, weight))])
        close(*results)
        assert seen in (None, cermet.counters()["kernels_compiled"])
        seen = cermet.counters()["kernels_compiled"]
    assert cermet.counters()["graphs"] == graphs_before + 1


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
    loss, *gradients = chunks.rows_op(1)(hidden, weight, labels, symbolic_key(), 0, 7, True, True)
    eager = over_two(hidden, weight, labels)
    expected = [eager, *torch.autograd.grad(eager, (hidden, weight))]
    for mine, theirs in zip((loss, *gradients), expected):
        torch.testing.assert_close(mine, theirs, rtol=2e-6, atol=2e-6)


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
        assert launched(function, hidden, weight, labels, budget=1) == [("linear_head_1", 1)]
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
            arguments = (hidden, weight, labels, region.key, 0, 9, of_hidden, of_weight)
            torch.library.opcheck(chunks.rows_op(1), arguments)


# --- Memory ----------------------------------------------------------------------------------------------------------


def allocations(run) -> list[int]:
    """Bytes that the allocator gave, by torch's profiler."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    events = [event for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    return [event.nbytes() for event in events if event.nbytes() > 0]


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
        gradient = chunks._WeightGradient(weight, 640, pieces=2)
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
    chunks._round_in_place(wide, narrow)
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
    call = compiled(dead, rows_of(9, torch.bfloat16))
    for mode in ("default", "error"):
        torch.cuda.set_sync_debug_mode(mode)
        try:
            call(hidden, weight, labels).backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.gpu
@GPU
def test_a_recorded_step_gives_the_numbers_of_one_that_is_not():
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
