"""The ops themselves: inner launches, outer regions, their fakes and gradients, strides, and what they refuse."""

from __future__ import annotations

import io

import pytest
import torch

import cermet
import graphs
from cermet.loss import chunks
from cermet.ops import library, regions
from cermet.targets import devices
from cermet.importing.importer import import_graph


def region_key(function, *args) -> int:
    """The key of the one region in a function."""
    (region,) = library.context().match(import_graph(graphs.trace(function, *args)).text)["regions"]
    return regions.register(region["text"])


@pytest.fixture
def norm_key() -> int:
    return region_key(graphs.rms_norm, torch.randn(4, 32), torch.randn(32))


@pytest.fixture
def glu_key() -> int:
    return region_key(graphs.glu, torch.randn(4, 32), torch.randn(4, 32))


def close(ours, eager, rtol=2e-6, atol=2e-6):
    torch.testing.assert_close(ours, eager, rtol=rtol, atol=atol)


LAYOUTS = {
    "dense": lambda: torch.randn(6, 5, 32),
    "rows apart": lambda: torch.randn(6, 5, 64)[..., :32],
    "rows transposed": lambda: torch.randn(5, 6, 32).transpose(0, 1),
    "rows expanded": lambda: torch.randn(1, 5, 32).expand(6, 5, 32),
    "every row the same": lambda: torch.randn(32).expand(6, 5, 32),
    "columns strided": lambda: torch.randn(6, 32, 5).transpose(1, 2),
    "columns expanded": lambda: torch.randn(6, 5, 1).expand(6, 5, 32),
    "offset by one": lambda: torch.randn(6 * 5 * 32 + 1)[1:].view(6, 5, 32),
    "no rows": lambda: torch.randn(0, 5, 32),
    "one row": lambda: torch.randn(1, 1, 32),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_of_any_layout(layout, norm_key, glu_key, device):
    x, weight = LAYOUTS[layout]().to(device), torch.randn(32, device=device)
    x = x if layout != "every row the same" else x[0, 0].expand(6, 5, 32)
    norm3 = region_key(graphs.rms_norm, torch.randn(2, 4, 32), torch.randn(32))
    (ours,) = regions.launch(norm3, [x, weight])
    close(ours, graphs.rms_norm(x, weight))
    assert ours.is_contiguous()
    glu3 = region_key(graphs.glu, torch.randn(2, 4, 32), torch.randn(2, 4, 32))
    up = LAYOUTS[layout]().to(device)
    close(regions.launch(glu3, [x, up])[0], graphs.glu(x, up))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_of_any_layout(layout, device):
    key = region_key(graphs.rms_norm, torch.randn(2, 4, 32), torch.randn(32))
    x, weight = LAYOUTS[layout]().to(device), torch.randn(32, device=device)
    x, weight = x.detach().requires_grad_(), weight.requires_grad_()
    cotangent = LAYOUTS[layout]().to(device)
    grads = []
    for call in (lambda: regions.region_op(2, 1)(x, weight, key), lambda: graphs.rms_norm(x, weight)):
        grads.append(torch.autograd.grad(call(), (x, weight), cotangent))
    close(*grads, rtol=2e-5, atol=2e-5)


def test_opcheck_of_inner_and_outer_ops(norm_key, glu_key):
    x, weight = torch.randn(4, 32), torch.randn(32)
    torch.library.opcheck(regions.launch_op(2, 1), (x, weight, norm_key))
    torch.library.opcheck(regions.launch_op(2, 1), (x, x + 1, glu_key))
    torch.library.opcheck(regions.launch_op(2, 1), (torch.randn(4, 64)[:, :32], weight, norm_key))
    torch.library.opcheck(regions.launch_op(2, 1), (torch.randn(0, 32), weight, norm_key))
    x.requires_grad_(), weight.requires_grad_()
    torch.library.opcheck(regions.region_op(2, 1), (x, weight, norm_key))
    derived = regions.gradient(norm_key, (True, True))
    forward = regions.signature(derived.forward)
    values = regions.launch(derived.forward, [x.detach(), weight.detach()])
    torch.library.opcheck(regions.launch_op(2, len(forward.outputs)), (x.detach(), weight.detach(), derived.forward))
    sources = {"input": [x.detach(), weight.detach()], "output": values[:1], "saved": values[1:]}
    sources["cotangent"] = [torch.randn(1, 32).expand(4, 32)]
    arguments = [sources[origin][index] for origin, index in derived.backward_inputs]
    outputs = len(regions.signature(derived.backward).outputs)
    torch.library.opcheck(regions.launch_op(len(arguments), outputs), (*arguments, derived.backward))


@pytest.mark.parametrize("layout", ["rows apart", "rows transposed", "every row the same", "no rows", "one row"])
def test_opcheck_of_layouts(layout):
    """Fakes, autograd and dynamic shapes; a gradient's strides follow its input's."""
    key = region_key(graphs.glu, torch.randn(2, 4, 32), torch.randn(2, 4, 32))
    gate, up = LAYOUTS[layout](), LAYOUTS[layout]()
    if layout == "every row the same":
        gate, up = gate.clone().expand(6, 5, 32), up
    torch.library.opcheck(regions.launch_op(2, 1), (gate, up, key))
    torch.library.opcheck(regions.region_op(2, 1), (gate.detach().requires_grad_(), up.detach().requires_grad_(), key))


def test_opcheck_of_several_results():
    def function(x, residual, weight):
        total = x + residual
        return graphs.rms_norm(total, weight), total

    args = torch.randn(4, 32), torch.randn(4, 32), torch.randn(32)
    key = region_key(function, *args)
    torch.library.opcheck(regions.launch_op(3, 2), (*args, key))
    torch.library.opcheck(regions.region_op(3, 2), (*[value.requires_grad_() for value in args], key))


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_product_is_launched_with_as_any_input(position, device):
    """linear_launch: x + 2 y + 3 z and itself times x, with a product of tensors as one of the three."""
    from cermet.text import Builder, TensorType

    builder, rows = Builder("sums"), TensorType(("r0", 8), "f32")
    x, y, z = (builder.argument(rows, name) for name in "xyz")
    triple = builder.binary("mul", z, builder.constant(3.0, rows, "three"), "triple")
    total = builder.binary("add", x, builder.binary("add", y, y, "double"), "sum")
    total = builder.binary("add", total, triple, "sum")
    builder.result(total)
    builder.result(builder.binary("mul", total, x, "product"))
    key = regions.register(builder.text())
    hidden, weight = torch.randn(5, 4, device=device), torch.randn(8, 4, device=device)
    others = [torch.randn(5, 8, device=device) for _ in range(2)]
    arguments = (hidden, weight, *others, key, position)
    ours = chunks.launch_op(2, 2)(*arguments)
    x, y, z = [*others[:position], torch.nn.functional.linear(hidden, weight), *others[position:]]
    for mine, eager in zip(ours, (x + 2 * y + 3 * z, (x + 2 * y + 3 * z) * x)):
        close(mine, eager, 1e-5, 1e-5)
    torch.library.opcheck(chunks.launch_op(2, 2), arguments)


def test_the_largest_arities_exist():
    """Fifteen sums of sixteen tensors, eight of them returned."""

    def text(inputs: int, outputs: int) -> str:
        from cermet.text import Builder, TensorType

        builder = Builder("sums")
        total, *rest = [builder.argument(TensorType(("r0", 8), "f32"), f"x{index}") for index in range(inputs)]
        sums = []
        for value in rest:
            total = builder.binary("add", total, value, "sum")
            sums.append(total)
        for value in sums[-outputs:]:
            builder.result(value)
        return builder.text()

    tensors = [torch.randn(3, 8) for _ in range(regions.MAX_INPUTS)]
    key = regions.register(text(regions.MAX_INPUTS, regions.MAX_OUTPUTS))
    sums = torch.stack(tensors).cumsum(0)[-regions.MAX_OUTPUTS :]
    for ours, eager in zip(regions.launch(key, tensors), sums):
        close(ours, eager)


@pytest.mark.parametrize("wanted", [(True, False), (False, True), (True, True)])
def test_only_wanted_gradients_are_computed(wanted, norm_key):
    derived = regions.gradient(norm_key, wanted)
    assert derived.backward_outputs == tuple((index,) for index, want in enumerate(wanted) if want)
    x = torch.randn(4, 32, requires_grad=wanted[0])
    weight = torch.randn(32, requires_grad=wanted[1])
    regions.region_op(2, 1)(x, weight, norm_key).sum().backward()
    assert (x.grad is not None, weight.grad is not None) == wanted


def test_a_cotangent_that_nobody_has_is_zero_where_it_is_needed():
    """add_rms_norm returns the norm and the sum; each alone may be differentiated."""

    def function(x, residual, weight):
        total = x + residual
        return graphs.rms_norm(total, weight), total * 2.0

    x, residual, weight = torch.randn(4, 32), torch.randn(4, 32), torch.randn(32)
    key = region_key(function, x, residual, weight)
    inputs = [x.requires_grad_(), residual.requires_grad_(), weight.requires_grad_()]
    for output in (0, 1):
        ours = regions.region_op(3, 2)(*inputs, key)[output]
        eager = (graphs.rms_norm(x + residual, weight), x + residual)[output]
        cotangent = torch.randn(4, 32)
        got = torch.autograd.grad(ours, inputs, cotangent, allow_unused=True)
        expected = torch.autograd.grad(eager, inputs, cotangent, allow_unused=True)
        for mine, theirs in zip(got, expected):
            close(torch.zeros(32) if mine is None else mine, torch.zeros(32) if theirs is None else theirs, 2e-5, 2e-5)


def test_numerical_gradient(norm_key):
    """Independent of any derivation: central differences of the float32 kernel itself."""
    x, weight = torch.randn(2, 32), torch.randn(32)
    x.requires_grad_(), weight.requires_grad_()
    direction = [torch.randn_like(x), torch.randn_like(weight)]
    cotangent = torch.randn(2, 32)
    op = regions.region_op(2, 1)
    grads = torch.autograd.grad(op(x, weight, norm_key), (x, weight), cotangent)
    step = 1e-2
    ends = []
    for signed in (step, -step):
        with torch.no_grad():
            y = op(x + signed * direction[0], weight + signed * direction[1], norm_key)
        ends.append((y.double() * cotangent).sum())
    slope = ((ends[0] - ends[1]) / (2 * step)).item()
    dot = sum((grad * along).sum().item() for grad, along in zip(grads, direction))
    assert abs(slope - dot) <= 2e-3 * max(1.0, abs(dot)), f"slope {slope}, gradient along it {dot}"


@pytest.mark.parametrize("transposed", [False, True])
def test_gradcheck(transposed):
    """The kernels compute in float32, so differences are taken over 1e-2 and agree to 2e-2 of values around 1."""

    def function(x, residual, weight):
        total = x + residual
        return graphs.rms_norm(total, weight), total

    key = region_key(function, torch.randn(2, 3, 8), torch.randn(2, 3, 8), torch.randn(8))
    x, residual = torch.randn(2, 2, 3, 8)
    x = (torch.randn(3, 2, 8).transpose(0, 1) if transposed else x).detach().requires_grad_()
    weight = torch.randn(8, requires_grad=True)
    op = regions.region_op(3, 2)
    call = lambda *inputs: op(*inputs, key)
    torch.autograd.gradcheck(call, (x, residual.requires_grad_(), weight), eps=1e-2, atol=2e-2, rtol=2e-2)


def test_a_zero_dimensional_cotangent_stays_on_the_device():
    """A loss's gradient reads its cotangent in the kernel: no value on the host, no pass before it."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Calls(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    def loss_of(logits, labels):
        return torch.nn.functional.cross_entropy(logits, labels)

    logits, labels = torch.randn(12, 96, requires_grad=True), torch.randint(96, (12,))
    key = region_key(loss_of, logits, labels)
    loss, eager = regions.region_op(2, 1)(logits, labels, key), loss_of(logits, labels)
    seen: list[str] = []
    cotangent = torch.tensor(0.3)
    with Calls():
        (ours,) = torch.autograd.grad(loss, logits, cotangent)
    (launch,) = [name for name in seen if "detach" not in name and "view" not in name]
    assert launch.startswith("cermet_v1.launch_")
    close(ours, torch.autograd.grad(eager, logits, cotangent)[0])


def test_gradients_accumulate_over_steps(norm_key):
    x, weight = torch.randn(3, 4, 32), torch.randn(32)
    grads = []
    for call in (lambda *inputs: regions.region_op(2, 1)(*inputs, norm_key), graphs.rms_norm):
        leaf = weight.clone().requires_grad_()
        for step in x:
            call(step, leaf).square().sum().backward()
        grads.append(leaf.grad)
    close(*grads, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("strict", [True, False])
def test_a_model_that_calls_our_ops_is_exported(strict, norm_key):
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(32))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.cermet_v1.region_2_1(x * 2.0, self.weight, norm_key)

    model, rows = Model(), torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(model, (torch.randn(4, 32),), strict=strict, dynamic_shapes={"x": {0: rows}})
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    x = torch.randn(7, 32)
    for exported in (program, program.run_decompositions(), torch.export.load(file)):
        torch.testing.assert_close(exported.module()(x), model(x), rtol=0, atol=0)
    targets = [str(node.target) for node in program.run_decompositions().graph.nodes]
    assert "cermet_v1.launch_2_1.default" in targets and "cermet_v1.region_2_1.default" not in targets


def test_double_backward_is_refused_by_name(norm_key):
    x, weight = torch.randn(4, 32, requires_grad=True), torch.randn(32, requires_grad=True)
    y = regions.region_op(2, 1)(x, weight, norm_key)
    (grad,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    close(grad, torch.autograd.grad(graphs.rms_norm(x, weight).sum(), x)[0], 2e-5, 2e-5)
    with pytest.raises(RuntimeError, match="rms_norm.*_backward: double backward is not supported"):
        grad.sum().backward()


def test_double_backward_through_the_backend(norm_key):
    x, weight = torch.randn(4, 32, requires_grad=True), torch.randn(32, requires_grad=True)
    (grad,) = torch.autograd.grad(graphs.compiled(graphs.rms_norm)(x, weight).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward is not supported"):
        grad.sum().backward()


def test_a_second_backward_of_a_retained_graph(norm_key):
    x, weight = torch.randn(4, 32, requires_grad=True), torch.randn(32, requires_grad=True)
    y = regions.region_op(2, 1)(x, weight, norm_key).sum()
    first = torch.autograd.grad(y, (x, weight), retain_graph=True)
    assert all(torch.equal(a, b) for a, b in zip(first, torch.autograd.grad(y, (x, weight))))


def test_backward_on_another_thread(norm_key):
    import threading

    x, weight = torch.randn(64, 32, requires_grad=True), torch.randn(32, requires_grad=True)
    y = regions.region_op(2, 1)(x, weight, norm_key).sum()
    thread = threading.Thread(target=y.backward)
    thread.start(), thread.join()
    close(x.grad, torch.autograd.grad(graphs.rms_norm(x, weight).sum(), x)[0], 2e-5, 2e-5)


def test_inference_mode_and_no_grad(norm_key):
    x, weight = torch.randn(4, 32, requires_grad=True), torch.randn(32)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            y = regions.region_op(2, 1)(x, weight, norm_key)
        assert not y.requires_grad
        close(y, graphs.rms_norm(x, weight).detach())


# --- Refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda x, w: (x.bfloat16(), w), "x has dtype bf16, expected f32"),
        (lambda x, w: (x.to(torch.complex64), w), "x has dtype torch dtype 9, expected f32"),
        (lambda x, w: (x.to(torch.float8_e4m3fn), w), "x has dtype f8e4m3, expected f32"),
        (lambda x, w: (x.to(torch.float8_e5m2), w), "x has dtype f8e5m2, expected f32"),
        (lambda x, w: (x.bool(), w), "x has dtype i1, expected f32"),
        (lambda x, w: (x[0], w), "x has 1 dimensions, expected 2"),
        (lambda x, w: (x[:, :16], w), "32"),
        (lambda x, w: (x, w[:31]), "32"),
    ],
)
def test_launch_refuses_what_the_graph_is_not(arguments, message, norm_key):
    x, weight = torch.randn(4, 32), torch.randn(32)
    regions.prepare(norm_key, torch.device("cpu"))
    with pytest.raises(RuntimeError, match=message):
        regions.launch_op(2, 1)(*arguments(x, weight), norm_key)


@pytest.mark.parametrize(
    ("element", "dtype"), [("f8E4M3FN", torch.float8_e4m3fn), ("f8E5M2", torch.float8_e5m2)], ids=["e4m3", "e5m2"]
)
def test_a_region_reads_and_writes_floats_of_eight_bits(element, dtype):
    rows = '#cermet.symbols<["r0"]>'
    narrow, wide = f"tensor<?x32x{element}, {rows}>", f"tensor<?x32xf32, {rows}>"
    key = regions.register(f"""module attributes {{cermet.version = 1 : i64}} {{
  func.func @twice(%x: {narrow}) -> ({wide}, {narrow}) {{
    %0 = cermet.cast %x : {narrow} to {wide}
    %1 = cermet.add %0, %0 : {wide}
    %2 = cermet.cast %1 : {wide} to {narrow}
    return %1, %2 : {wide}, {narrow}
  }}
}}
""")
    x = torch.randn(4, 32).to(dtype)
    ours, narrowed = regions.launch(key, [x])
    assert torch.equal(ours, x.float() * 2)
    assert narrowed.dtype == dtype and torch.equal(narrowed.float(), (x.float() * 2).to(dtype).float())
    expected = element.lower().removesuffix("fn")
    with pytest.raises(RuntimeError, match=f"x has dtype f32, expected {expected}"):
        regions.launch_op(1, 2)(x.float(), key)


def test_launch_refuses_a_wrong_arity_and_an_unknown_key(norm_key):
    x = torch.randn(4, 32)
    with pytest.raises(RuntimeError, match="called with 1 inputs for 1 outputs, expected 2 for 1"):
        regions.launch_op(1, 1)(x, norm_key)
    with pytest.raises(RuntimeError, match="no region with key 12345"):
        regions.launch_op(1, 1)(x, 12345)
    with pytest.raises(cermet.Error, match="at most 16 and 8"):
        regions.region_op(17, 1)


def test_fakes_refuse_what_launches_refuse(norm_key):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        with pytest.raises(RuntimeError, match="x has dtype torch.bfloat16, expected torch.float32"):
            regions.launch_op(2, 1)(torch.empty(4, 32, dtype=torch.bfloat16), torch.empty(32), norm_key)
        with pytest.raises(RuntimeError, match="x has size 31 in dimension 1, expected 32"):
            regions.launch_op(2, 1)(torch.empty(4, 31), torch.empty(32), norm_key)


@pytest.mark.parametrize(
    ("capability", "target"),
    [((8, 0), 80), ((8, 7), 86), ((8, 9), 89), ((9, 0), 90), ((10, 0), 100), ((10, 3), 100), ((12, 1), 120)],
)
def test_targets_of_compute_capabilities(capability, target):
    assert devices.cuda_target(*capability) == f"sm_{target}"


def test_unsupported_devices_are_named():
    with pytest.raises(cermet.Error, match="compute capability 7.5 is not supported"):
        devices.cuda_target(7, 5)
    with pytest.raises(cermet.Error, match="device meta is not supported"):
        devices.target_of(torch.device("meta"))
