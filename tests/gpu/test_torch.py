"""The torch backend on the GPU: transformers' own classes in small sizes, forward and backward, beside eager."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

transformers = pytest.importorskip("transformers")
cermet = pytest.importorskip("cermet")

LAYERS = 2
NORMS = ("rms_norm", "add_rms_norm", "qk_norm", "qk_norm_rope")
FAMILIES = {"Llama": 2 * LAYERS + 1, "Mistral": 2 * LAYERS + 1, "Qwen2": 2 * LAYERS + 1, "Qwen3": 4 * LAYERS + 1}


def tiny(family: str, dtype: torch.dtype = torch.bfloat16, **changes):
    settings = dict(vocab_size=512, hidden_size=256, intermediate_size=704, num_hidden_layers=LAYERS,
                    num_attention_heads=8, num_key_value_heads=4, head_dim=32, max_position_embeddings=256,
                    use_cache=False, bos_token_id=0, eos_token_id=0, pad_token_id=None) | changes
    config = getattr(transformers, f"{family}Config")(**settings)
    torch.manual_seed(0)
    return getattr(transformers, f"{family}ForCausalLM")(config).to("cuda", dtype)


def words(rows: int = 4, length: int = 96) -> torch.Tensor:
    return torch.randint(512, (rows, length), device="cuda")


def compiled(model, **options):
    torch._dynamo.reset()
    return torch.compile(model, backend="cermet", options={"strict": True, **options})


def gradients(model, call, text):
    model.zero_grad(set_to_none=True)
    loss = call(input_ids=text, labels=text).loss
    loss.backward()
    return loss.item(), {name: p.grad.detach().clone() for name, p in model.named_parameters()}


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    return ((a.double() - b.double()).norm() / b.double().norm()).item()


def close(ours: dict, truth: dict) -> None:
    for name, value in truth.items():
        assert relative(ours[name], value) <= 1e-4, f"{name}: {relative(ours[name], value):.2e}"


@pytest.mark.parametrize("remainder", ("auto", "aot", "inductor"))
def test_recorded_steps_are_those_of_eager(remainder):
    from torch._dynamo.utils import counters

    model = tiny("Llama", torch.float32)
    call = compiled(model, remainder=remainder, mode="reduce-overhead")
    counters.clear()
    for step in range(5):
        torch.manual_seed(step)
        text = words()
        launches = cermet.counters()["launches"]
        torch.compiler.cudagraph_mark_step_begin()
        loss, grads = gradients(model, call, text)
        assert step < 3 or cermet.counters()["launches"] == launches, "a graph is not recorded"
        eager_loss, eager_grads = gradients(model, model, text)
        assert abs(loss - eager_loss) <= 1e-5 * abs(eager_loss), step
        close(grads, eager_grads)
    assert counters["inductor"]["cudagraph_skips"] == 0, dict(counters["inductor"])


@pytest.mark.parametrize("set_to_none", (True, False))
@pytest.mark.parametrize("pieces", (1, 2))
@pytest.mark.parametrize("remainder", ("aot", "inductor"))
def test_recorded_gradients_accumulate(remainder, pieces, set_to_none):
    """Over three steps, twice; with two graphs, what the second one gave must outlive the first one's next forward."""
    model = tiny("Llama", torch.float32)
    options = {"strict": True, "remainder": remainder, "mode": "reduce-overhead"}
    torch._dynamo.reset()
    if pieces == 1:
        model.compile(backend="cermet", options=options)
    else:
        for layer in model.model.layers:
            layer.compile(backend="cermet", options=options)
    eager = tiny("Llama", torch.float32)
    eager.load_state_dict(model.state_dict())
    for again in range(2):
        totals = []
        for each in (model, eager):
            each.zero_grad(set_to_none=set_to_none)
            torch.manual_seed(again)
            for _ in range(3):
                text = words()
                each(input_ids=text, labels=text).loss.backward()
            totals.append({name: p.grad.clone() for name, p in each.named_parameters()})
        close(*totals)


def test_a_recorded_graph_is_retained_and_its_logits_are_differentiable():
    model = tiny("Llama", torch.float32)
    call = compiled(model, remainder="aot", mode="reduce-overhead")
    for step in range(4):
        torch.manual_seed(step)
        text = words()
        totals = []
        for run in (call, model):
            model.zero_grad(set_to_none=True)
            out = run(input_ids=text, labels=text)
            (out.loss + out.logits.square().mean()).backward(retain_graph=True)
            out.loss.backward()
            totals.append({name: p.grad.clone() for name, p in model.named_parameters()})
        close(*totals)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=("f32", "bf16"))
@pytest.mark.parametrize("remainder", ("aot", "inductor"))
def test_trains_as_eager_does(family, dtype, remainder):
    if remainder == "inductor" and (family, dtype) != ("Llama", torch.bfloat16):
        pytest.skip("one model through Inductor is enough: it compiles for seconds")
    model, text = tiny(family, dtype), words()
    counts = cermet.explain(model, input_ids=text, labels=text).counts
    assert sum(counts.get(name, 0) for name in NORMS) == FAMILIES[family], dict(counts)
    assert counts.get("glu", 0) == LAYERS, dict(counts)

    loss, grads = gradients(model, model, text)
    before = cermet.counters()["launches"]
    our_loss, our_grads = gradients(model, compiled(model, remainder=remainder), text)
    assert cermet.counters()["launches"] > before, "nothing of ours ran"
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    assert abs(our_loss - loss) <= tolerance * abs(loss)
    for name, grad in our_grads.items():
        assert relative(grad, grads[name]) <= 2.5 * tolerance, f"{name}: {relative(grad, grads[name]):.2e}"


def test_new_lengths_do_not_compile_kernels():
    model = tiny("Llama")
    call = compiled(model, remainder="aot")
    gradients(model, call, words(4, 96))  # sizes are numbers ...
    gradients(model, call, words(3, 72))  # ... and from the second on symbols: what stands around a loss differs
    compiled_once = cermet.counters()["kernels_compiled"]
    for shape in ((4, 64), (2, 33), (5, 200)):
        gradients(model, call, words(*shape))
    assert cermet.counters()["kernels_compiled"] == compiled_once


def test_backward_is_bit_identical_from_run_to_run():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    model, text = tiny("Llama"), words()
    call = compiled(model, remainder="aot")
    with sdpa_kernel(SDPBackend.MATH):  # other attention backwards may add in any order
        _, first = gradients(model, call, text)
        names = [name for name in first if "norm" in name]
        assert names
        for _ in range(20):
            _, again = gradients(model, call, text)
            assert all(torch.equal(first[name], again[name]) for name in names)


def test_a_side_stream_and_poisoned_memory():
    """torch fills what it allocates with NaN under deterministic algorithms: an element we leave unwritten shows."""
    model, text = tiny("Llama"), words()
    loss, grads = gradients(model, model, text)
    call = compiled(model, remainder="aot")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        with torch.cuda.stream(stream):
            our_loss, our_grads = gradients(model, call, text)
    finally:
        torch.use_deterministic_algorithms(False)
    stream.synchronize()
    assert abs(our_loss - loss) < 2e-2 * abs(loss)
    assert all(relative(our_grads[name], grads[name]) < 5e-2 for name in grads)


def test_inference_can_be_captured_in_a_cuda_graph():
    model, text = tiny("Llama").eval(), words(1, 64)
    call = compiled(model, remainder="aot")
    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                call(input_ids=text)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = call(input_ids=text).logits
        text.copy_(words(1, 64))
        graph.replay()
        truth = model(input_ids=text).logits
    assert relative(captured, truth) < 3e-2


def test_gradient_checkpointing():
    model, text = tiny("Llama"), words()
    loss, grads = gradients(model, model, text)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    our_loss, our_grads = gradients(model, compiled(model, remainder="aot"), text)
    assert abs(our_loss - loss) < 2e-2 * abs(loss)
    assert all(relative(our_grads[name], grads[name]) < 5e-2 for name in grads)


def test_double_backward_is_refused_by_name():
    x = torch.randn(8, 256, device="cuda", requires_grad=True)
    weight = torch.ones(256, device="cuda", requires_grad=True)

    def norm(x, weight):
        return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    call = torch.compile(norm, backend="cermet", options={"strict": True, "remainder": "eager"})
    with pytest.raises(RuntimeError, match="(?i)double backward|twice"):
        (grad,) = torch.autograd.grad(call(x, weight).sum(), x, create_graph=True)
        grad.sum().backward()


def test_a_training_loop_moves_the_loss_as_eager_does():
    text = words(8, 64)
    curves = []
    for use in ("eager", "cermet"):
        model = tiny("Llama", torch.float32)
        call = model if use == "eager" else compiled(model, remainder="aot")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        losses = []
        for _ in range(10):
            loss = call(input_ids=text, labels=text).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
        curves.append(losses)
    assert curves[1][-1] < curves[1][0] - 0.5
    assert max(abs(a - b) for a, b in zip(*curves)) < 1e-3


WARM = """
import contextlib, json, sys
sys.path.insert(0, sys.argv[1])
import torch, cermet, test_torch
model, text = test_torch.tiny("Llama"), test_torch.words()
before = open("/proc/self/maps").read()
with cermet.record(sys.argv[2]) if len(sys.argv) > 2 else contextlib.nullcontext():
    test_torch.gradients(model, test_torch.compiled(model, remainder="aot"), text)
after = open("/proc/self/maps").read()
opened = [name for name in ("libcermet_compiler", "libnvrtc") if name in after and name not in before]
print("ANSWER" + json.dumps({"counters": dict(cermet.counters()), "opened": opened}))
"""


def process(*arguments: str, **variables: str) -> dict:
    ran = subprocess.run([sys.executable, "-c", WARM, str(Path(__file__).parent), *arguments], capture_output=True,
                         text=True, env=os.environ | variables)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.split("ANSWER")[1])


def test_a_pack_trains_where_nothing_may_be_compiled(tmp_path):
    pack = str(tmp_path / "model.cpack")
    cold = process(pack, CERMET_CACHE_DIR=str(tmp_path / "cache"), TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "cold"))
    packed = process(CERMET_PACKS=pack, CERMET_CACHE="only", CERMET_CACHE_DIR="", CERMET_COMPILER_LIBRARY="/nowhere.so",
                     TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "packed"))
    counters = packed["counters"]
    assert cold["counters"]["kernels_compiled"] > 0
    assert counters["kernels_from_packs"] > 0 and counters["launches"] == cold["counters"]["launches"] > 0
    assert counters["cache_misses"] == counters["fallbacks"] == 0, counters
    assert packed["opened"] == [], f"it opened {packed['opened']}"


def test_a_second_process_compiles_nothing(tmp_path):
    cold, warm = (process(CERMET_CACHE_DIR=str(tmp_path)) for _ in range(2))
    assert cold["counters"]["kernels_compiled"] > 0 and "libcermet_compiler" in cold["opened"]
    assert warm["counters"]["kernels_compiled"] == 0 and warm["counters"]["plans_compiled"] == 0
    assert warm["counters"]["kernels_from_directory"] > 0
    assert warm["opened"] == [], f"a warm process opened {warm['opened']}"


def with_labels(x: torch.Tensor, y: torch.Tensor, reduction: str = "mean", **options) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(x.float(), y, reduction=reduction, **options)


@pytest.mark.parametrize("columns", (512, 32000, 128256))
@pytest.mark.parametrize("smoothing", (0.0, 0.1))
@pytest.mark.parametrize("reduction", ("mean", "sum", "none"))
def test_a_label_that_is_no_class_is_no_plausible_loss(columns, smoothing, reduction):
    rows, wrong, ignored = 64, (3, 17, 40, 41), (5, 9)
    x = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    labels = torch.randint(columns, (rows,), device="cuda")
    labels[list(ignored)] = -100
    call = compiled(lambda x, y: with_labels(x, y, reduction, label_smoothing=smoothing))

    def run(y):
        loss = call(x, y)
        return loss.detach(), torch.autograd.grad(loss, x, torch.ones_like(loss))[0]

    good, gradient = run(labels)
    truth = with_labels(x.detach().double(), labels, reduction, label_smoothing=smoothing)
    torch.testing.assert_close(good.double(), truth.double(), rtol=2e-3, atol=2e-3)
    assert gradient.isfinite().all() and (gradient[list(ignored)] == 0).all()
    for row, label in zip(wrong, (columns + 5, -1, 10**6, 2**40)):
        labels[row] = label
    loss, poisoned = run(labels)
    rows_wrong = torch.zeros(rows, dtype=torch.bool, device="cuda")
    rows_wrong[list(wrong)] = True
    assert torch.equal(poisoned.isnan(), rows_wrong[:, None].expand_as(poisoned))
    if reduction == "none":
        assert torch.equal(loss.isnan(), rows_wrong)
        assert torch.equal(loss[~rows_wrong], good[~rows_wrong])
    else:
        assert loss.isnan()


@pytest.mark.parametrize("remainder", ("aot", "inductor"))
@pytest.mark.parametrize("wrong", (517, -1, 10**6, 2**40))
def test_a_wrong_label_in_a_batch_makes_the_loss_and_the_heads_gradient_nan(remainder, wrong):
    model, text = tiny("Llama"), words()
    call = compiled(model, remainder=remainder)
    assert call(input_ids=text, labels=text).loss.isfinite()
    labels = text.clone()
    labels[1, 3] = wrong
    loss = call(input_ids=text, labels=labels).loss
    loss.backward()
    assert loss.isnan()
    assert model.lm_head.weight.grad.isnan().all()
    model.zero_grad(set_to_none=True)
    call(input_ids=text, labels=text).loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_a_check_names_the_row_of_a_wrong_label(monkeypatch):
    monkeypatch.setenv("CERMET_CHECK", "1")
    x, labels = torch.randn(16, 512, device="cuda", requires_grad=True), torch.randint(512, (16,), device="cuda")
    call = compiled(with_labels)
    assert call(x, labels).isfinite()
    labels[7] = 2**40
    with pytest.raises(IndexError, match=rf"Target {2**40} is out of bounds: .*, row 7; expected 0 to 511"):
        call(x, labels)
    torch.cuda.synchronize()
    assert torch.ones(1, device="cuda").item() == 1
