"""Graph texts taken apart: the parts compute what the whole does."""

from __future__ import annotations

import pytest
import torch

import graphs
from cermet import Error, pipeline
from cermet.ops import regions
from cermet.ops.slices import Function, decided, in_groups, is_by_rows, turned


def forward_of_a_sum_and_its_norm() -> int:
    """The key of the forward that a residual's sum and its norm are in training."""
    x, residual, weight = torch.randn(6, 32), torch.randn(6, 32), torch.randn(32)

    def call(x, residual, weight):
        total = x + residual
        return total, graphs.rms_norm(total, weight)

    module = graphs.trace(call, *(value.requires_grad_() for value in (x, residual, weight)))
    (region,) = pipeline.run(module).regions
    return regions.gradient(region.key, (True, True, True), (None, None, None)).forward


def test_parts_compute_what_the_whole_does():
    key = forward_of_a_sum_and_its_norm()
    function = Function.read(regions.text(key))
    names = [name for name, _ in function.arguments]
    given = {name: torch.randn(32) if name == "%weight" else torch.randn(6, 32) for name in names}
    whole = regions.launch(key, list(given.values()))
    results = dict(zip((name for name, _ in function.results), whole))
    total = next(name for name, value in results.items() if torch.equal(value, sum(list(given.values())[:2])))
    others = [name for name in results if name != total]
    assert function.needed(others, [total])[1] == {"%weight"}
    first, read = function.part("terms", [total])
    (sum_,) = regions.launch(regions.register(first), [given[names[place]] for place in read])
    second, read = function.part("norm", others, [total])
    rest = regions.launch(regions.register(second), [*(given[names[place]] for place in read), sum_])
    assert torch.equal(sum_, results[total])
    for name, value in zip(others, rest, strict=True):
        assert torch.equal(value, results[name])


def masked(columns: int = 8) -> str:
    """Of a truth, a row and its weight: the weighted row, or zero."""
    rows = '#cermet.symbols<["r0"]>>'
    one, row = f"tensor<?x1x{{}}, {rows}", f"tensor<?x{columns}x{{}}, {rows}"
    truth, truths, weight, x = one.format("i1"), row.format("i1"), one.format("f32"), row.format("f32")
    return "\n".join([
        "module attributes {cermet.version = 1 : i64} {",
        f"  func.func @f(%m: {truth}, %x: {x}, %w: {weight}) -> {x} {{",
        f"    %0 = cermet.constant 0.000000e+00 : {x}",
        f"    %1 = cermet.broadcast %m : {truth} to {truths}",
        f"    %2 = cermet.select %1, %0, %x : {truths}, {x}",
        f"    %3 = cermet.broadcast %w : {weight} to {x}",
        f"    %4 = cermet.mul %2, %3 : {x}",
        f"    return %4 : {x}",
        "  }",
        "}",
    ]) + "\n"  # fmt: skip


def test_what_is_made_by_rows_is_so_in_groups():
    text = masked()
    assert is_by_rows(text)
    mask, x, weight = torch.rand(6, 3, 1) < 0.5, torch.randn(6, 3, 8), torch.randn(6, 3, 1)
    (found,) = regions.launch(regions.register(in_groups(text, [3])), [mask, x, weight])
    assert torch.equal(found, torch.where(mask, 0.0, x) * weight)


@pytest.mark.parametrize("change", [
    lambda text: text.replace("cermet.mul %2, %3", "cermet.cumsum %3"),
    lambda text: text.replace('symbols<["r0"]>', 'symbols<["r0", "r1"]>').replace("<?x", "<?x?x"),
    lambda text: text.replace('"r0"', '"r1"', 1),
    lambda text: text.replace("<?x", "<1x?x"),
    lambda text: text.replace("cermet.mul %2, %3 :", "cermet.sum_rows %2 : tensor<8xf32> to"),
    lambda text: text.replace("%w: ", "%w: tensor<?x1xf32> {cermet.strides = array<i64: 1, 7>}, %v: "),
    lambda text: text.replace("?x", "6x").replace(', #cermet.symbols<["r0"]>', ""),
    lambda text: "",
])  # fmt: skip
def test_what_is_not_made_by_rows(change):
    assert change(masked()) != masked() and not is_by_rows(change(masked()))


@pytest.mark.parametrize("truth", [False, True])
def test_truths_that_are_the_same_everywhere_are_no_arguments(truth):
    text, places = decided(masked(), {0: truth})
    assert places == [1, 2]
    x, weight = torch.randn(6, 8), torch.randn(6, 1)
    (found,) = regions.launch(regions.register(text), [[None, x, weight][place] for place in places])
    assert torch.equal(found, torch.where(torch.tensor(truth), 0.0, x) * weight)


def planes() -> str:
    """Of images [r0, r1, r2, 5]: a product with a number for each of its planes, and a row's."""
    image, plane = ('tensor<?x?x?x5xf32, #cermet.symbols<["r0", "r1", "r2"]>>', 'tensor<?x?xf32, #cermet.symbols<["r0", "r1"]>>')
    places = 'tensor<?x?x1x1xf32, #cermet.symbols<["r0", "r1"]>>'
    return "\n".join([
        "module attributes {cermet.version = 1 : i64} {",
        f"  func.func @f(%x: {image} loc(\"x\"), %s: {plane}, %n: tensor<f32>) -> ({image}, {plane}) {{",
        f"    %0 = cermet.reshape %s : {plane} to {places}",
        f"    %1 = cermet.broadcast %0 : {places} to {image}",
        f"    %2 = cermet.broadcast %n : tensor<f32> to {image}",
        f"    %3 = cermet.mul %x, %1 : {image}",
        f"    %4 = cermet.add %3, %2 : {image} loc(\"sum\")",
        f"    %5 = cermet.exp %s : {plane}",
        f"    return %4, %5 : {image}, {plane}",
        "  }",
        "}",
    ]) + "\n"  # fmt: skip


def test_what_is_made_of_planes_is_made_of_rows():
    x, scale, number = torch.randn(2, 3, 4, 5), torch.randn(2, 3), torch.randn(())
    rows = x.permute(0, 2, 3, 1).contiguous()
    text = turned(planes(), [0, 2, 3, 1], 3)
    assert "tensor<?x?x5x3xf32" in text and "tensor<?x1x1x3xf32" in text and "tensor<?x3xf32" in text
    found, other = regions.launch(regions.register(text), [rows, scale, number])
    torch.testing.assert_close(found.permute(0, 3, 1, 2), x * scale[:, :, None, None] + number, rtol=0, atol=0)
    torch.testing.assert_close(other, scale.exp())


@pytest.mark.parametrize("change", [
    lambda text: text.replace("cermet.exp %s", "cermet.cumsum %s"),
    lambda text: text.replace("%2 = cermet.broadcast %n : tensor<f32>", "%2 = cermet.broadcast %n : tensor<5xf32>"),
    lambda text: text.replace('%5 = cermet.exp %s : tensor<?x?xf32, #cermet.symbols<["r0", "r1"]>>',
                              '%5 = cermet.reduce_sum %x : tensor<?x?x?x5xf32, #cermet.symbols<["r0", "r1", "r2"]>> to '
                              'tensor<?x?x?x1xf32, #cermet.symbols<["r0", "r1", "r2"]>>'),
    lambda text: text.replace("tensor<?x?x1x1xf32", "tensor<1x?x?x1xf32"),
    lambda text: text.replace("%n: tensor<f32>", "%n: tensor<f32> {cermet.strides = array<i64>}"),
])  # fmt: skip
def test_what_is_made_of_whole_planes_is_not_turned(change):
    assert change(planes()) != planes()
    with pytest.raises(Error):
        turned(change(planes()), [0, 2, 3, 1], 3)


@pytest.mark.parametrize("text", ["", "module {}", "module {\n  func.func @f() {\n    return\n  }\n}\n"])
def test_what_is_no_function_is_refused(text):
    with pytest.raises(Error, match="expected a graph text of one function"):
        Function.read(text)
