"""Every named region on the GPU through cermet_launch: numbers against float64, odd sizes, strides, misaligned bases,
outputs that must be written whole and nowhere else, determinism, streams, capture."""
from __future__ import annotations

import concurrent.futures
import functools
import math

import pytest
import torch

import regions
from core import STATUS_CAPTURING, Failure, Program, Tensor

COLUMNS = (1, 3, 127, 128, 4095, 4096, 5120, 8191)
ROWS = (0, 1, 7, 1000)
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
CASES = [(pattern, dtype, columns) for pattern in regions.PATTERNS for dtype in DTYPES for columns in COLUMNS]
GUARD = 64  # elements around every output that must stay as they were


class Region:
    """Forward and backward programs of one region."""

    def __init__(self, core, pattern: str, dtype: str, columns: int, rows: int = 1):
        self.pattern, self.dtype, self.columns = pattern, dtype, columns
        text = regions.text(pattern, dtype, columns, rows)
        count = regions.TILES[pattern] + regions.HAS_WEIGHT[pattern]
        self.gradient = core.differentiate(text, [True] * count)
        self.forward = core.program(self.gradient["forward"])
        self.backward = core.program(self.gradient["backward"])
        self.inference = core.program(text)


@pytest.fixture(scope="session")
def region(core):
    return functools.cache(functools.partial(Region, core))


def describe(tensor: torch.Tensor) -> Tensor:
    names = {value: key for key, value in DTYPES.items()}
    return Tensor(tensor.data_ptr(), tensor.shape, tensor.stride(), names[tensor.dtype])


def run(program: Program, inputs: list[torch.Tensor], offset: int = 0) -> list[torch.Tensor]:
    """Launches on the current stream. Outputs begin `offset` elements after an aligned address, are poisoned before and
    checked after: no element left unwritten, no guard element touched."""
    outputs, guards = [], []
    for sizes, dtype in program.output_shapes([tensor.shape for tensor in inputs]):
        count = math.prod(sizes)
        buffer = torch.full((count + 2 * GUARD + offset,), float("nan"), dtype=DTYPES[dtype], device="cuda")
        outputs.append(buffer[GUARD + offset:GUARD + offset + count].view(sizes))
        guards += [buffer[:GUARD + offset], buffer[GUARD + offset + count:]]
    described = [describe(tensor) for tensor in inputs]
    size = program.workspace_size(described)
    workspace = torch.full((size + 256,), 0xFF, dtype=torch.uint8, device="cuda")  # NaN as f32
    program.launch(torch.cuda.current_stream().cuda_stream, described + [describe(o) for o in outputs],
                   -(-workspace.data_ptr() // 256) * 256, size)
    torch.cuda.current_stream().synchronize()
    for index, output in enumerate(outputs):
        left = int(output.isnan().sum())
        assert left == 0, f"output {index}: {left} of {output.numel()} elements unwritten or NaN"
    assert all(guard.isnan().all() for guard in guards), "an element outside an output was written"
    return outputs


def run_both(region: Region, inputs, cotangents, offset: int = 0):
    """(outputs, gradients in the inputs' order) through the forward and backward programs."""
    results = run(region.forward, inputs, offset)
    count = region.gradient["outputs"]
    sources = {"input": inputs, "output": results[:count], "saved": results[count:], "cotangent": cotangents}
    operands = [sources[use["from"]][use["index"]] for use in region.gradient["backward_inputs"]]
    answers = run(region.backward, operands, offset)
    gradients = {index: answer for inputs, answer in zip(region.gradient["backward_outputs"], answers) for index in inputs}
    return results[:count], [gradients[index] for index in range(len(inputs))]


def draw(pattern: str, dtype: str, shape, make=None):
    """Fresh inputs and cotangents; `make` lays out each tile."""
    make = make or (lambda values: values)
    values = lambda *size: torch.randn(*size, device="cuda").to(DTYPES[dtype])
    inputs = [make(values(*shape)) for _ in range(regions.TILES[pattern])]
    if regions.HAS_WEIGHT[pattern]:
        inputs.append(make(values(shape[-1])))
    return inputs, [make(values(*shape)) for _ in range(2 if pattern == "add_rms_norm" else 1)]


def gradients_of(function, pattern, inputs, cotangents):
    leaves = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    outputs = function(pattern, *leaves)
    answers = torch.autograd.grad(outputs, leaves, [c.to(o.dtype) for c, o in zip(cotangents, outputs)])
    return [o.detach() for o in outputs], answers


def error(value: torch.Tensor, truth: torch.Tensor, floor: float = 0.0) -> float:
    """Relative L2 distance; `floor` is the least that it is relative to."""
    norm = max(truth.norm().item(), floor)
    return (value.double() - truth).norm().item() / norm if norm else value.double().norm().item()


def natural_scale(pattern: str, inputs, cotangents) -> float:
    """The size of the terms of an input's gradient. A norm over one column is +-weight whatever its input, so that
    gradient is a difference of equal terms, and only its distance relative to them means something."""
    if pattern == "glu" or inputs[0].shape[-1] > 1:
        return 0.0
    total = sum(tensor.double() for tensor in inputs[:-1]).abs().clamp_min(regions.EPS**0.5)
    return (cotangents[0].double() * inputs[-1].double() / total).norm().item()


def compare(pattern, dtype, inputs, cotangents, outputs, gradients) -> None:
    """No tensor is further from float64 than twice eager's own distance and one unit in the last place (four where a
    tensor is so small that eager may be right by luck)."""
    true_outputs, true_gradients = gradients_of(regions.exact, pattern, inputs, cotangents)
    eager_outputs, eager_gradients = gradients_of(regions.eager, pattern, inputs, cotangents)
    scale = natural_scale(pattern, inputs, cotangents)
    names = [f"output {i}" for i in range(len(outputs))] + [f"gradient {i}" for i in range(len(gradients))]
    for name, ours, theirs, truth in zip(names, [*outputs, *gradients], [*eager_outputs, *eager_gradients],
                                         [*true_outputs, *true_gradients]):
        assert ours.shape == truth.shape, f"{name}: shape {tuple(ours.shape)}, expected {tuple(truth.shape)}"
        floor = scale if name.startswith("gradient") else 0.0
        units = 1 if truth.numel() >= 1000 else 4
        limit = 2 * error(theirs, truth, floor) + units * torch.finfo(DTYPES[dtype]).eps
        found = error(ours, truth, floor)
        assert found <= limit, f"{name}: relative error {found:.3e}, limit {limit:.3e}"


@pytest.mark.parametrize("pattern,dtype,columns", CASES)
def test_matches_float64(region, pattern, dtype, columns):
    for rows in ROWS:
        inputs, cotangents = draw(pattern, dtype, (rows, columns))
        outputs, gradients = run_both(region(pattern, dtype, columns), inputs, cotangents)
        if rows:
            compare(pattern, dtype, inputs, cotangents, outputs, gradients)
        else:
            assert all(int(gradient.count_nonzero()) == 0 for gradient in gradients), "no rows: gradients must be 0"


@pytest.mark.parametrize("pattern,dtype,columns", CASES)
def test_inference_equals_training_forward(region, pattern, dtype, columns):
    inputs, _ = draw(pattern, dtype, (7, columns))
    alone = run(region(pattern, dtype, columns).inference, inputs)
    training = run(region(pattern, dtype, columns).forward, inputs)
    for a, b in zip(alone, training):
        assert torch.equal(a, b)


def strided(padding: int, offset: int):
    """Lays a tensor out with `padding` elements after each row and the base `offset` elements off alignment."""
    def make(values: torch.Tensor) -> torch.Tensor:
        if values.dim() == 1:
            return torch.cat([values.new_zeros(offset), values])[offset:]
        width = values.shape[-1] + padding
        buffer = torch.full((values.shape[0] * width + offset,), float("nan"), dtype=values.dtype, device="cuda")
        view = buffer[offset:].view(values.shape[0], width)[:, :values.shape[-1]]
        view.copy_(values)
        return view
    return make


@pytest.mark.parametrize("pattern", regions.PATTERNS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", (127, 128, 4096))
@pytest.mark.parametrize("padding,offset", ((8, 0), (3, 0), (0, 1), (5, 1)), ids=("aligned", "odd", "base", "both"))
def test_strided_and_misaligned(region, pattern, dtype, columns, padding, offset):
    inputs, cotangents = draw(pattern, dtype, (33, columns), strided(padding, offset))
    outputs, gradients = run_both(region(pattern, dtype, columns), inputs, cotangents, offset)
    compare(pattern, dtype, inputs, cotangents, outputs, gradients)


@pytest.mark.parametrize("pattern", ("rms_norm", "glu"))
def test_row_dimensions_that_do_not_collapse(core, pattern):
    """Queries: [batch, heads, tokens, dim] seen through a transpose."""
    made = Region(core, pattern, "bf16", 128, rows=3)
    transposed = lambda v: v if v.dim() == 1 else v.transpose(1, 2).contiguous().transpose(1, 2)
    inputs, cotangents = draw(pattern, "bf16", (2, 8, 50, 128), transposed)
    outputs, gradients = run_both(made, inputs, cotangents)
    compare(pattern, "bf16", inputs, cotangents, outputs, gradients)


def test_expanded_cotangent(region):
    """Eager's backward hands out tensors with stride 0."""
    inputs, _ = draw("rms_norm", "bf16", (100, 4096))
    row = torch.randn(1, 4096, device="cuda").to(torch.bfloat16)
    outputs, gradients = run_both(region("rms_norm", "bf16", 4096), inputs, [row.expand(100, 4096)])
    compare("rms_norm", "bf16", inputs, [row.expand(100, 4096)], outputs, gradients)


@pytest.mark.parametrize("pattern", regions.PATTERNS)
@pytest.mark.parametrize("columns", (4096, 5120))
def test_a_hundred_runs_are_bit_identical(region, pattern, columns):
    inputs, cotangents = draw(pattern, "bf16", (1000, columns))
    first = [t for part in run_both(region(pattern, "bf16", columns), inputs, cotangents) for t in part]
    for _ in range(99):
        again = [t for part in run_both(region(pattern, "bf16", columns), inputs, cotangents) for t in part]
        assert all(torch.equal(a, b) for a, b in zip(first, again))


def test_streams_do_not_disturb_each_other(region):
    program = region("add_rms_norm", "bf16", 4096)
    jobs = []
    for _ in range(8):
        inputs, cotangents = draw("add_rms_norm", "bf16", (1000, 4096))
        jobs.append((torch.cuda.Stream(), inputs, cotangents))
    torch.cuda.synchronize()

    def work(job):
        stream, inputs, cotangents = job
        with torch.cuda.stream(stream):
            return [run_both(program, inputs, cotangents) for _ in range(5)][-1]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(work, jobs))
    for (_, inputs, cotangents), (outputs, gradients) in zip(jobs, answers):
        compare("add_rms_norm", "bf16", inputs, cotangents, outputs, gradients)


def test_a_prepared_program_can_be_captured(region):
    program = region("rms_norm", "bf16", 4096).forward
    (x, weight), _ = draw("rms_norm", "bf16", (64, 4096))
    outputs = [torch.empty(sizes, dtype=DTYPES[dtype], device="cuda")
               for sizes, dtype in program.output_shapes([x.shape, weight.shape])]
    tensors = [describe(t) for t in (x, weight, *outputs)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        program.launch(torch.cuda.current_stream().cuda_stream, tensors)
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        for output in outputs:
            output.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        assert error(outputs[0], regions.exact("rms_norm", x, weight)[0]) < 1e-2


def test_loading_never_invalidates_a_capture(core):
    """It is refused by name where the driver can tell of the capture, and else harms nothing."""
    graph = torch.cuda.CUDAGraph()
    x = torch.zeros(1, device="cuda")
    with torch.cuda.graph(graph):
        x.add_(1)
        try:
            core.program(regions.text("glu", "f16", 640))
        except Failure as failure:
            assert failure.status == STATUS_CAPTURING
        x.add_(1)
    graph.replay()
    torch.cuda.synchronize()
    assert x.item() == 2


def test_wrong_arguments_are_errors_that_say_so(region):
    program = region("rms_norm", "bf16", 4096).inference
    (x, weight), _ = draw("rms_norm", "bf16", (4, 4096))
    y = torch.empty_like(x)
    stream = torch.cuda.current_stream().cuda_stream
    for tensors, words in (
            ((x, weight[:4095], y), "4095"),
            ((x.float(), weight, y), "f32"),
            ((x[:, :128], weight, y), "128"),
            ((x, weight), "3"),
            ((x.t(), weight, y), "4096")):
        with pytest.raises(Failure, match=words):
            program.launch(stream, [describe(t) for t in tensors])
    off = torch.empty(4 * 4096 * 2 + 2, dtype=torch.uint8, device="cuda")
    odd = describe(x)._replace(address=off.data_ptr() + 1)
    with pytest.raises(Failure, match="align"):
        program.launch(stream, [odd, describe(weight), describe(y)])


def test_launch_on_a_thread_without_a_context(region):
    program = region("rms_norm", "bf16", 4096).inference
    (x, weight), _ = draw("rms_norm", "bf16", (16, 4096))
    y = torch.full_like(x, float("nan"))
    torch.cuda.synchronize()
    tensors = [describe(t) for t in (x, weight, y)]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(program.launch, 0, tensors).result()
    torch.cuda.synchronize()
    assert error(y, regions.exact("rms_norm", x, weight)[0]) < 1e-2


def check_rows(pattern, inputs, cotangents, outputs, gradients, rows) -> None:
    """Some rows against float64; a weight's gradient is left out."""
    def take(tensor):
        return tensor if tensor.dim() == 1 else tensor[rows]
    chosen, weights = [take(t) for t in inputs], regions.HAS_WEIGHT[pattern]
    compare(pattern, "bf16", chosen, [take(c) for c in cotangents], [take(o) for o in outputs],
            [take(g) for g in gradients[:-1]] if weights else [take(g) for g in gradients])


@pytest.mark.parametrize("pattern", regions.PATTERNS)
@pytest.mark.parametrize("columns", (127, 128))
def test_a_million_rows(room, region, pattern, columns):
    rows = 1 << 20
    inputs, cotangents = draw(pattern, "bf16", (rows, columns))
    outputs, gradients = run_both(region(pattern, "bf16", columns), inputs, cotangents)
    compare(pattern, "bf16", inputs, cotangents, outputs, gradients)


@pytest.mark.parametrize("pattern", ("rms_norm", "glu"))
def test_more_than_two_to_the_31_elements(all_room, region, pattern):
    rows, columns = (1 << 31) // 4096 + 3, 4096
    inputs, cotangents = draw(pattern, "bf16", (rows, columns))
    outputs, gradients = run_both(region(pattern, "bf16", columns), inputs, cotangents)
    last = torch.tensor([0, 1, rows // 2, rows - 4, rows - 3, rows - 2, rows - 1], device="cuda")
    check_rows(pattern, inputs, cotangents, outputs, gradients, last)
