"""Dropout in regions: one mask, forward and backward, that a seed decides and nobody stores."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import cermet
import forked
from cermet.graph import seeded

COLUMNS = 64
REMAINDERS = ("aot", "inductor", "eager")


def residual(x, other, weight, bias, p=0.1):
    """What stands behind each product of an encoder. The dropout itself is seen where `other` is 0."""
    summed = F.dropout(x, p, True) + other
    return F.layer_norm(summed, (COLUMNS,), weight, bias), summed


def compiled(function, remainder="aot", **options):
    return torch.compile(function, backend="cermet", fullgraph=True, options={"remainder": remainder}, **options)


def given(dtype=torch.float32, device="cpu", rows=(4, 32), zero=True):
    """Operands of `residual`; nothing of x is 0."""
    x = torch.randn(*rows, COLUMNS, device=device)
    x = (torch.where(x.abs() < 0.1, 0.5, x)).to(dtype)
    other = torch.zeros_like(x) if zero else torch.randn_like(x)
    vectors = [torch.randn(COLUMNS, device=device).to(dtype) for _ in range(2)]
    return [tensor.requires_grad_() for tensor in (x, other, *vectors)]


def counted(function):
    before = cermet.counters()
    result = function()
    after = cermet.counters()
    return result, {name: after[name] - before[name] for name in after}


@pytest.mark.parametrize("remainder", REMAINDERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_backward_has_the_forwards_mask(remainder, dtype, device):
    inputs = given(dtype, device)
    call = compiled(residual, remainder)
    (normed, summed), counts = counted(lambda: call(*inputs))
    gradient, _ = torch.autograd.grad((summed,), (inputs[0], inputs[1]), torch.ones_like(summed), retain_graph=True)
    assert counts["dropouts"] == counts["regions"] == 1
    assert torch.equal(gradient != 0, summed != 0)
    scale = torch.tensor(1 / 0.9, dtype=dtype)
    assert torch.equal(gradient, torch.where(summed != 0, scale, torch.zeros_like(scale)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_numbers_are_those_of_float64_with_that_mask(dtype, device):
    inputs = given(dtype, device)
    normed, summed = compiled(residual)(*inputs)
    cotangents = torch.randn_like(normed), torch.randn_like(summed)
    ours = torch.autograd.grad((normed, summed), inputs, cotangents)
    wide = [tensor.detach().double().requires_grad_() for tensor in inputs]
    dropped = wide[0] * ((summed != 0).double() / 0.9) + wide[1]
    results = F.layer_norm(dropped, (COLUMNS,), *wide[2:]), dropped
    truths = torch.autograd.grad(results, wide, [cotangent.double() for cotangent in cotangents])
    unit = torch.finfo(dtype).eps
    for mine, truth in zip((normed, summed, *ours), (*results, *truths), strict=True):
        error = (mine.double() - truth).norm() / truth.norm()
        assert error <= 2 * unit, f"relative error {error:.2e}, expected at most {2 * unit:.2e}"


def test_no_mask_is_saved():
    inputs, saved = given(), []
    call = compiled(residual)
    call(*inputs)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda tensor: tensor):
        call(*inputs)
    assert saved and all(tensor.dtype != torch.bool for tensor in saved)
    wholes = {tensor.data_ptr() for tensor in saved if tensor.shape == inputs[0].shape}
    assert len(wholes) <= 1, f"{len(wholes)} tensors of x's size are saved, expected the norm's input alone"


def test_a_dropout_alone_is_a_region():
    x = given()[0]
    call = compiled(lambda x: F.dropout(x @ x.mT, 0.3, True) @ x)
    _, counts = counted(lambda: call(x).sum().backward())
    assert counts["dropouts"] == counts["regions"] == 1


@pytest.mark.parametrize("remainder", REMAINDERS)
def test_what_no_region_took_is_torchs(remainder):
    x = torch.randn(64, 64, dtype=torch.float64, requires_grad=True)
    result, counts = counted(lambda: compiled(lambda x: F.dropout(x, 0.25, True) + 0, remainder)(x))
    assert counts["dropouts"] == 0
    assert 0.6 < (result != 0).double().mean() < 0.9


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.func.vmap(lambda t: F.dropout(2 * t, 0.5, True) + 1, randomness="different")(x),
        lambda x: torch.func.grad(lambda t: (F.dropout(2 * t, 0.5, True) + 1).sum())(x) + 1,
        lambda x: F.dropout(2 * x, 0.5, True, True) + 1,
        lambda x: torch.cond(x.sum() > 0, *2 * [lambda t: F.dropout(2 * t, 0.5, True) + 1], (x,)),
    ],
    ids=["vmap", "grad", "in place", "a branch"],
)
def test_what_stays_torchs(function):
    result, counts = counted(lambda: compiled(function)(torch.ones(64, 256)))
    assert counts["dropouts"] == counts["fallbacks"] == 0
    assert 0.4 < (result != 1).float().mean() < 0.6


@pytest.mark.parametrize("remainder", ["aot", "inductor"])
def test_a_region_that_is_traced_once_draws_at_each_call(remainder):
    layer = torch.compiler.nested_compile_region(lambda *inputs: residual(*inputs)[1])
    inputs = given()
    first, second = compiled(lambda *inputs: (layer(*inputs), layer(*inputs)), remainder)(*inputs)
    assert not torch.equal(first != 0, second != 0)
    (gradient,) = torch.autograd.grad((first.sum(),), inputs[:1])
    assert torch.equal(gradient != 0, first != 0)


def test_through_enable():
    inputs = given()
    cermet.enable()
    try:
        call = torch.compile(residual, backend="inductor", fullgraph=True)
        (_, summed), counts = counted(lambda: call(*inputs))
    finally:
        cermet.disable()
    (gradient,) = torch.autograd.grad((summed.sum(),), inputs[:1])
    assert counts["dropouts"] == 1 and torch.equal(gradient != 0, summed != 0)


def test_rows_in_another_order_of_memory():
    x = torch.randn(64, 32, COLUMNS).transpose(0, 1).requires_grad_()
    result, counts = counted(lambda: compiled(lambda x: F.dropout(x * 1.5, 0.5, True) * 2)(x))
    (gradient,) = torch.autograd.grad(result.sum(), x)
    assert counts["dropouts"] == 1 and torch.equal(gradient != 0, result != 0)


def test_evaluation_drops_nothing():
    layer = torch.nn.Sequential(torch.nn.Linear(COLUMNS, COLUMNS), torch.nn.Dropout(0.5)).eval()
    x = given()[0]
    result, counts = counted(lambda: compiled(layer)(x))
    assert counts["dropouts"] == 0
    torch.testing.assert_close(result, layer(x))


# --- Masks -----------------------------------------------------------------------------------------------------------


def kept(seed: int, p: float, rows: int = 2048, columns: int = 512) -> torch.Tensor:
    """Of each element what it is beyond its expectation, in standard deviations."""
    mask = seeded.numbers(torch.tensor(seed), (rows, columns)) >= seeded.threshold(p)
    return (mask.double() - (1 - p)) / math.sqrt(p * (1 - p))


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9])
def test_masks_look_random(p):
    """Five standard deviations, of the mean, of every row's and column's, and of what any shift has in common."""
    mask = kept(20261123, p)
    rows, columns = mask.shape
    assert abs(mask.mean()) * math.sqrt(mask.numel()) < 5
    for size, means in ((columns, mask.mean(1)), (rows, mask.mean(0))):
        spread = (means.square().mean() * size).item()  # 1, give or take sqrt(2 / how many)
        assert abs(spread - 1) < 5 * math.sqrt(2 / means.numel()), f"variance of the means {spread:.3f}, expected 1"
    common = torch.fft.irfft2(torch.fft.rfft2(mask).abs().square(), s=mask.shape) / math.sqrt(mask.numel())
    common[0, 0] = 0
    # The largest of so many: sqrt(2 log n) of a normal distribution.
    bound = 1 + math.sqrt(2 * math.log(mask.numel()))
    assert common.abs().max() < bound, f"{common.abs().max():.2f} standard deviations, expected below {bound:.2f}"


@pytest.mark.parametrize("other", [2, 3, 1 << 20, (1 << 53) - 1])
def test_masks_of_different_seeds_have_nothing_in_common(other):
    common = torch.fft.irfft2(
        torch.fft.rfft2(kept(1, 0.1)) * torch.fft.rfft2(kept(other, 0.1)).conj(), s=(2048, 512)
    ) / math.sqrt(2048 * 512)
    bound = 1 + math.sqrt(2 * math.log(common.numel()))
    assert common.abs().max() < bound, f"{common.abs().max():.2f} standard deviations, expected below {bound:.2f}"


@pytest.mark.parametrize("p", [0.1, 0.9])
@pytest.mark.parametrize("shape", [(96, 5, 24), (64, 3, 4, 7), (4096,), (64, 1, 130), (130, 64, 1)], ids=str)
def test_kernels_have_the_numbers_of_the_reference(shape, p, device):
    """Of every size and order of rows, columns that are vectors and that are none."""
    x = torch.randn(shape, device=device)
    torch.manual_seed(3)
    result, counts = counted(lambda: compiled(lambda x: F.dropout(x, p, True) * 0.5)(x))
    torch.manual_seed(3)
    seed = torch.randint(seeded.SEEDS, (1,), device=device)[0]
    assert counts["dropouts"] == 1
    assert torch.equal(result, seeded.dropout(x, p, seed) * 0.5)


def masks(call, *inputs, times=2) -> list[torch.Tensor]:
    return [call(*inputs)[1] != 0 for _ in range(times)]


@pytest.mark.parametrize("remainder", REMAINDERS)
def test_a_seed_gives_the_same_run(remainder):
    inputs, call = given(), compiled(residual, remainder)
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append(masks(call, *inputs))
    first, again, other = runs
    assert all(map(torch.equal, first, again))
    assert not torch.equal(first[0], first[1]) and not torch.equal(first[0], other[0])


def test_the_generators_state_moves():
    inputs, call = given(), compiled(residual)
    call(*inputs)
    before = torch.get_rng_state()
    call(*inputs)
    assert not torch.equal(before, torch.get_rng_state())


def test_dropouts_of_a_graph_differ():
    def twice(x, other, weight, bias):
        return residual(x, other, weight, bias)[1], residual(x, other, weight, bias)[1]

    (first, second), counts = counted(lambda: compiled(twice)(*given()))
    assert counts["dropouts"] == 2
    assert not torch.equal(first != 0, second != 0)


def test_sizes_that_vary_are_one_graph():
    call = torch.compile(residual, backend="cermet", fullgraph=True, options={"remainder": "aot"})
    _, counts = counted(lambda: [masks(call, *given(rows=(4, length))) for length in (32, 40, 48, 56)])
    assert counts["graphs"] == 2 and counts["dropouts"] == 2
    inputs = given(rows=(4, 72))
    summed = call(*inputs)[1]
    (gradient,) = torch.autograd.grad((summed.sum(),), inputs[:1])
    assert torch.equal(gradient != 0, summed != 0)


@pytest.mark.parametrize("remainder", REMAINDERS)
def test_a_checkpoint_computes_with_the_same_mask_again(remainder):
    def body(x, other, weight, bias):
        return residual(x.sin(), other, weight, bias)

    inputs = given(zero=False)
    calls = [compiled(lambda *t: checkpoint(body, *t, use_reentrant=False), remainder), compiled(body, remainder)]
    results = []
    for call in calls:
        torch.manual_seed(5)
        outputs, counts = counted(lambda: call(*inputs))
        assert counts["dropouts"] == 1
        loss = sum((output * torch.linspace(0, 1, output.numel()).view_as(output)).sum() for output in outputs)
        results.append([*outputs, *torch.autograd.grad(loss, inputs)])
    for checkpointed, plain in zip(*results, strict=True):
        torch.testing.assert_close(checkpointed, plain, rtol=1e-5, atol=1e-5)


def test_two_processes_of_one_seed_have_the_same_numbers(tmp_path):
    """The second finds all that the first compiled."""
    code = (
        f"import sys; sys.path[:0] = [{str(Path(__file__).resolve().parent)!r}]\n"
        "import torch, cermet\nfrom test_dropout import compiled, given, residual\n"
        "torch.manual_seed(7)\ninputs = given(zero=False)\nresults = compiled(residual)(*inputs)\n"
        "sum(result.square().sum() for result in results).backward()\n"
        "counts = cermet.counters()\n"
        "print('ANSWER', counts['kernels_compiled'], counts['plans_compiled'], counts['cache_bypasses'])\n"
        "print([tensor.double().sum().item() for tensor in (*results, *(each.grad for each in inputs))])\n"
    )
    environment = os.environ | {"CERMET_CACHE_DIR": str(tmp_path / "c"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "i")}
    told = []
    for _ in range(2):
        ran = forked.run("-c", code, env=environment)
        assert ran.returncode == 0, ran.stderr[-3000:]
        told.append(ran.stdout.split("ANSWER")[1].split("\n")[:2])
    assert told[0][1] == told[1][1]
    assert told[0][0].split()[0] == "2" and told[1][0].split() == ["0", "0", "0"]


def encoder(**changes):
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=96, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, **changes
    )
    return transformers.BertForMaskedLM(config).train(), torch.randint(96, (2, 32))


@pytest.mark.parametrize("checkpointed", [False, True])
def test_an_encoder_trains(checkpointed):
    """Both residuals of each layer drop in their norm's region."""
    model, words = encoder()
    if checkpointed:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    call = torch.compile(model, backend="cermet", options={"remainder": "aot"})
    optimizer, losses = torch.optim.AdamW(model.parameters(), 1e-3), []
    before = cermet.counters()["dropouts"]
    for _ in range(25):
        loss = call(input_ids=words, labels=words).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert cermet.counters()["dropouts"] - before == 4
    assert losses[-1] < 0.75 * losses[0], losses


def test_gradients_are_those_of_the_loss():
    """Of a layer with dropouts, along a random direction: of one seed, the loss is a function."""
    model, words = encoder(attention_probs_dropout_prob=0.0)
    call = torch.compile(model, backend="cermet", options={"remainder": "aot"})

    def loss():
        torch.manual_seed(11)
        return call(input_ids=words, labels=words).loss

    loss().backward()
    parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
    direction = [parameter.grad / parameter.grad.norm() for parameter in parameters]
    expected = sum((parameter.grad * step).sum() for parameter, step in zip(parameters, direction)).item()
    with torch.no_grad():
        found = []
        for sign in (1, -1):
            for parameter, step in zip(parameters, direction):
                parameter += sign * 1e-2 * step
            found.append(loss().double().item())
            for parameter, step in zip(parameters, direction):
                parameter -= sign * 1e-2 * step
    slope = (found[0] - found[1]) / 2e-2
    assert abs(slope - expected) < 0.02 * abs(expected), (slope, expected)


# --- On a GPU --------------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device that this torch can use")
@pytest.mark.parametrize("remainder", ["aot", "inductor"])
def test_each_replay_of_a_recorded_graph_has_a_mask_of_its_own(remainder):
    inputs, seen = given(torch.bfloat16, "cuda", rows=(8, 512)), []
    options = {"remainder": remainder, "mode": "reduce-overhead"}
    call = torch.compile(residual, backend="cermet", fullgraph=True, options=options)
    for _ in range(6):
        torch.compiler.cudagraph_mark_step_begin()
        summed = call(*inputs)[1]
        (gradient,) = torch.autograd.grad((summed,), inputs[:1], torch.ones_like(summed))
        seen.append((summed != 0).clone())
        assert torch.equal(gradient != 0, seen[-1])
        assert 0.89 < seen[-1].float().mean() < 0.91
    assert not any(torch.equal(first, second) for first, second in zip(seen, seen[1:]))
