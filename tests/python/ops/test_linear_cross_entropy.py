"""A loss without logits through the C interface: loss and gradients against torch in float64, in pieces of every size."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from cermet.errors import Error
from linear_losses import IN_F32, IN_TYPE, Case, Loss, poisoned, product_of
from truth import relative

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
PLAIN = Case(101, 48, F32)
CASES = {
    "plain": PLAIN,
    "bias": dataclasses.replace(PLAIN, bias=F32),
    "bf16": Case(200, 64, BF16),
    "bf16, everything": Case(333, 40, BF16, BF16, torch.int32, ("b", "s"), "sum", 7, 0.1, 5.0, 1e-3),
    "f16": Case(77, 24, F16, F16, ignore_index=0, softcap=3.0),
    "smoothed": Case(64, 32, F32, label_smoothing=0.2, z_loss=1e-2),
    "two columns": Case(2, 8, F32, ignore_index=-1),
}


def run(case: Case, inputs, gradients: bytes, budget: int = 0, product=None, device: str = "cpu"):
    """Loss and gradients."""
    loss = Loss(case.text(), gradients, budget, product, device)
    outputs = [poisoned(inputs[2].shape if case.reduction == "none" else (), F32, device)]
    for value, kind in zip(inputs, gradients):
        if kind:
            outputs.append(poisoned(value.shape, F32 if kind == IN_F32 else value.dtype, device))
    loss.launch([*inputs, *outputs])
    return outputs


def in_torch(case: Case, inputs, gradients: bytes, dtype: torch.dtype | None = None):
    leaves = [
        value.detach().to(dtype or value.dtype).requires_grad_() if value.is_floating_point() else value for value in inputs
    ]
    loss = dataclasses.replace(case, dtype=dtype or case.dtype).in_torch(*leaves)
    wanted = [leaf for leaf, kind in zip(leaves, gradients) if kind]
    return [loss.detach(), *(torch.autograd.grad(loss, wanted) if wanted else [])]


def rows_of(case: Case, rows: int) -> int:
    """A budget for so many rows of logits."""
    return rows * (-(-case.columns * case.dtype.itemsize // 16) * 16)


def every(case: Case, kind: int = IN_TYPE) -> bytes:
    return bytes([kind, kind, 0] + [kind] * (case.bias is not None))


@pytest.mark.parametrize("rows", [1, 7, 300, 0], ids=lambda rows: f"pieces of {rows}" if rows else "default")
@pytest.mark.parametrize("brought", [True, False], ids=["own product", "plain product"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_loss_and_gradients(case, brought, rows, device):
    if not brought and device == "cuda":
        pytest.skip("there is a plain product on the CPU alone")
    inputs = case.inputs([35] if len(case.rows) == 1 else [5, 7], device)
    calls: list[tuple] = []
    ours = run(case, inputs, every(case), rows_of(case, rows), product_of(device, calls) if brought else None, device)
    truth = in_torch(case, inputs, every(case), torch.float64)
    eager = in_torch(case, inputs, every(case))
    for name, value, exact, other in zip(("loss", "hidden", "weight", "bias"), ours, truth, eager):
        bound = 2 * relative(other, exact) + 2 * torch.finfo(value.dtype).eps
        assert value.dtype == other.dtype and relative(value, exact) <= bound, (name, relative(value, exact), bound)
    if brought:
        pieces = [size for operation, size, *_ in calls if size[2] == case.columns and size[1] == case.width]
        assert sum(size[0] for size in pieces) == 35
        assert all(size[0] <= (rows or 35) for size in pieces) or len(pieces) == 1
        assert all(promised for *_, promised in calls)


@pytest.mark.parametrize("dtype", [F32, BF16, F16])
def test_a_weights_gradient_is_summed_in_f32(dtype, device):
    """In pieces of one row, where sums in the weight's type would lose most of it."""
    case = Case(40, 16, dtype, dtype, reduction="sum")
    inputs = case.inputs([600], device)
    calls: list[tuple] = []
    gradients = bytes([0, IN_TYPE, 0, IN_TYPE])
    ours = run(case, inputs, gradients, rows_of(case, 3), product_of(device, calls), device)
    truth = in_torch(case, inputs, gradients, torch.float64)
    eager = in_torch(case, inputs, gradients)
    references = [eager]
    if dtype == F32:  # whose own product sums nothing in pieces: what 200 sums in f32 lose
        hidden, weight, labels, bias = inputs
        pieces = ([hidden[i : i + 3], weight, labels[i : i + 3], bias] for i in range(0, 600, 3))
        references.append(list(map(sum, zip(*(in_torch(case, piece, gradients) for piece in pieces)))))
    for value, exact, *others in list(zip(ours, truth, *references))[1:]:
        bound = 1.05 * max(relative(other, exact) for other in others) + torch.finfo(F32).eps
        assert relative(value, exact) <= bound
    sums = [dtypes[2] for operation, size, dtypes, _ in calls if size[0] == case.columns]
    assert set(sums) == {"float32"} and len(sums) == 200


def test_a_gradient_in_f32_needs_no_sum_of_its_own():
    case = Case(4096, 64, BF16)
    inputs = case.inputs([300])
    sizes = [
        Loss(case.text(), bytes([0, kind, 0]), rows_of(case, 128)).workspace_size(inputs) for kind in (IN_TYPE, IN_F32)
    ]
    assert sizes[0] >= sizes[1] + 4 * 4096 * 64
    assert sizes[1] < rows_of(case, 128) + 2**14
    _, wide = run(case, inputs, bytes([0, IN_F32, 0]), rows_of(case, 128))
    assert wide.dtype == F32 and relative(wide, in_torch(case, inputs, bytes([0, 1, 0]), torch.float64)[1]) < 4e-3


def test_rows_come_at_once_where_the_sum_would_take_more_than_it_spares():
    case = Case(64, 4096, BF16)
    calls: list[tuple] = []
    run(case, case.inputs([300]), every(case), rows_of(case, 128), product_of("cpu", calls))
    assert [size[0] for operation, size, *_ in calls if size[2] == case.columns] == [300]


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("name", ["plain", "bf16, everything", "f16"])
def test_few_rows(name, rows, device):
    case = CASES[name]
    inputs = case.inputs([rows] if len(case.rows) == 1 else [rows, 1], device)
    inputs[2].fill_(3)
    ours = run(case, inputs, every(case), product=product_of(device, []), device=device)
    truth = in_torch(case, inputs, every(case), torch.float64)
    for value, exact in zip(ours, truth):
        assert torch.allclose(value.double(), exact, rtol=3e-2, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_rows_that_are_all_ignored(reduction, device):
    case = dataclasses.replace(PLAIN, reduction=reduction, bias=F32)
    inputs = case.inputs([9], device)
    inputs[2].fill_(case.ignore_index)
    ours = run(case, inputs, every(case), rows_of(case, 2), product_of(device, []), device)
    for value, exact in zip(ours, in_torch(case, inputs, every(case), torch.float64)):
        assert torch.equal(value.double(), exact) or (value.isnan() == exact.isnan()).all()


@pytest.mark.parametrize("names", [("n",), ("b", "s")], ids=["[N]", "[B, S]"])
def test_a_loss_of_each_row(names, device):
    case = dataclasses.replace(CASES["bf16"], rows=names, reduction="none", z_loss=1e-3)
    sizes = [35] if len(names) == 1 else [5, 7]
    inputs = case.inputs(sizes, device)
    into = poisoned((*sizes, 3), F32, device)  # rows that lie apart
    loss = Loss(case.text(), None, rows_of(case, 8), product_of(device, []), device)
    loss.launch([*inputs, into[..., 1]])
    assert relative(into[..., 1], case.in_torch(*(v.double() if v.is_floating_point() else v for v in inputs))) < 4e-3
    assert into[..., ::2].isnan().all()


def test_rows_may_lie_apart(device):
    """Of hidden state, labels and gradients, and weights that are part of something wider."""
    case = dataclasses.replace(CASES["bf16"], rows=("b", "s"))
    hidden, weight, labels = case.inputs([4, 6], device)
    apart = torch.zeros(4, 6, 80, dtype=BF16, device=device)[..., :64].copy_(hidden)
    wider = torch.zeros(200, 96, dtype=BF16, device=device)[:, :64].copy_(weight)
    every_third = torch.zeros(4, 6, 3, dtype=torch.int64, device=device)[..., 1].copy_(labels)
    into = [poisoned((), F32, device), poisoned((4, 6, 72), BF16, device), poisoned((200, 65), BF16, device)]
    loss = Loss(case.text(), every(case), rows_of(case, 5), product_of(device, []), device)
    loss.launch([apart, wider, every_third, into[0], into[1][..., :64], into[2][:, 1:]])
    dense = run(case, [hidden, weight, labels], every(case), rows_of(case, 5), product_of(device, []), device)
    for value, other in zip((into[0], into[1][..., :64], into[2][:, 1:]), dense):
        assert torch.equal(value, other)
    assert into[1][..., 64:].isnan().all() and into[2][:, 0].isnan().all()


def test_the_loss_is_the_interpreters():
    """The operation decomposed, as a plan has it where all logits exist: the same kernels' sums."""
    case = CASES["smoothed"]
    inputs = case.inputs([20])
    (pieces,) = run(case, inputs, bytes(3), rows_of(case, 3))
    (whole,) = run(case, inputs, b"", 0)
    assert relative(pieces, whole.double()) < 1e-6


def test_factors_of_rows_and_of_the_loss_are_part_of_it(device):
    """What a graph computes around the operation: a loss of each row, times a number of each, summed."""
    row = dataclasses.replace(PLAIN, reduction="none")
    head, _, tail = row.text().partition("    return")
    head = head.replace("%labels: tensor", "%factor: tensor<?xf32, #cermet.symbols<[\"n\"]>>, %labels: tensor").replace(
        '-> tensor<?xf32, #cermet.symbols<["n"]>>', "-> tensor<f32>"
    )
    r, c = 'tensor<?xf32, #cermet.symbols<["n"]>>', 'tensor<?x1xf32, #cermet.symbols<["n"]>>'
    text = (
        f"{head}    %1 = cermet.mul %0, %factor : {r}\n    %2 = cermet.reshape %1 : {r} to {c}\n"
        f"    %3 = cermet.sum_rows %2 : {c} to tensor<1xf32>\n    %4 = cermet.reshape %3 : tensor<1xf32> to tensor<f32>\n"
        "    return %4 : tensor<f32>\n  }\n}\n"
    )
    hidden, weight, labels = row.inputs([30], device)
    factor = torch.rand(30, device=device)
    outputs = [poisoned((), F32, device), poisoned(hidden.shape, F32, device), poisoned(weight.shape, F32, device)]
    loss = Loss(text, bytes([1, 1, 0, 0]), rows_of(row, 7), product_of(device, []), device)
    loss.launch([hidden, weight, factor, labels, *outputs])
    leaves = [value.double().requires_grad_() for value in (hidden, weight)]
    exact = (row.in_torch(*leaves, labels) * factor).sum()
    for value, truth in zip(outputs, [exact.detach(), *torch.autograd.grad(exact, leaves)]):
        assert relative(value, truth) < 1e-6


def test_a_label_that_is_none_names_its_row():
    case = PLAIN
    inputs = case.inputs([9])
    inputs[2][:] = 4
    inputs[2][7] = 101
    with pytest.raises(Error, match="reads column 101, expected 0 to 100 .of a piece that begins at row 6"):
        run(case, inputs, every(case), rows_of(case, 3))


def refused(case: Case, message: str, gradients: bytes | None = None, **options) -> None:
    with pytest.raises(Error, match=message):
        Loss(case.text() if isinstance(case, Case) else case, gradients, **options)


def test_what_cannot_be_is_refused_by_name():
    case = CASES["bf16"]
    refused(case, "the budget is 399 bytes, expected at least 400: one row of 200 logits", b"\1\0\0", budget=399)
    refused(case, "`gradients` has 2 entries, expected 3", b"\1\0")
    refused(case, r"`gradients` has 1 for input 2 \(labels\), expected 0: it is neither hidden nor weight nor bias", b"\0\0\1")
    refused(case, r"`gradients` has 3 for input 0 \(hidden\), expected 0, 1 \(in its type\) or 2 \(in f32\)", b"\3\0\0")
    refused(
        dataclasses.replace(case, reduction="none"), r"@loss returns \[n\], expected one number where a gradient", b"\1\0\0"
    )
    refused(dataclasses.replace(case, columns=1), "cermet.pick is an operation that kernels do not compute here")
    refused(dataclasses.replace(case, dtype=torch.float64), "hidden has element type f64, expected one that kernels compute")
    refused(case.text().replace("?x64xbf16, #cermet.symbols<[\"n\"]>", "1x64xbf16").replace("?xi64, #cermet.symbols<[\"n\"]>", "1xi64"), "its rows cannot come in pieces")
    text = PLAIN.text()
    refused(text.replace("%labels {", "%labels {").replace("cermet.linear_cross_entropy %hidden, %weight", "cermet.linear_cross_entropy %hidden, %other").replace("    %0", "    %other = cermet.neg %weight : tensor<101x48xf32>\n    %0"), "weight is computed in the graph, expected one of its inputs")
    refused('module attributes {cermet.version = 1 : i64} {\n  func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {\n    return %x : tensor<4xf32>\n  }\n}\n', "@f has 0 cermet.linear_cross_entropy, expected one")


def test_tensors_that_do_not_fit_are_refused_by_name():
    case = CASES["bf16"]
    hidden, weight, labels = case.inputs([9])
    loss = Loss(case.text(), every(case))
    outputs = [poisoned((), F32), poisoned(hidden.shape, BF16), poisoned(weight.shape, BF16)]

    def refuse(message: str, *tensors: torch.Tensor) -> None:
        with pytest.raises(Error, match=message):
            loss.launch(tensors)
        assert all(output.isnan().all() for output in outputs)

    refuse("5 tensors given, expected 6 .3 inputs, then 3 outputs and gradients", hidden, weight, labels, *outputs[:2])
    refuse(r"input 'weight' .tensor 1. has dtype f32, expected bf16", hidden, weight.float(), labels, *outputs)
    refuse(r"output 'gradient of hidden' .tensor 4. has size 8 in dimension 0, expected 9", hidden, weight, labels, outputs[0], outputs[1][:8], outputs[2])
    refuse(r"input 'labels' .tensor 2. has size 8 in dimension 0, expected 9 .n of 'hidden'", hidden, weight, labels[:8], *outputs)
    refuse("'hidden' .tensor 0. has rows that overlap or do not all lie at one distance", hidden[:1].expand(9, 64), weight, labels, *outputs)
    refuse("'weight' .tensor 1. has stride 2 in its last dimension, expected 1", hidden, weight.repeat(1, 2)[:, ::2], labels, *outputs)
    many = Case(200, 64, BF16, rows=("a", "b"))
    loss = Loss(many.text(), every(many))
    hidden, _, labels = many.inputs([3, 3])
    outputs[1] = poisoned(hidden.shape, BF16)
    refuse("'hidden' .tensor 0. has rows that overlap", torch.zeros(3, 4, 64, dtype=BF16)[:, :3], weight, labels, *outputs)


def test_a_product_that_fails_ends_the_launch():
    from linear_losses import Product

    case = PLAIN
    loss = Loss(case.text(), every(case), 0, Product(lambda *_: 5))
    inputs = case.inputs([4])
    with pytest.raises(Error, match="loss: the callback of the product matmul failed"):
        loss.launch([*inputs, poisoned((), F32), *(poisoned(value.shape, F32) for value in inputs[:2])])
