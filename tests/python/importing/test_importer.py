"""The importer: rounding made explicit, versions and aliases, and that nothing is merged that differs."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import graphs
from cermet.importing.translations import operators
from cermet.ops import library
from cermet.importing.importer import describe, import_graph
from cermet.text import ELEMENT_TYPES, TensorType, number, quote


def text_of(function, *args, dynamic=None) -> str:
    return import_graph(graphs.trace(function, *args, dynamic=dynamic)).text


def verified(text: str) -> str:
    library.context().match(text)  # raises where the text does not parse or verify
    return text


def test_a_norm_becomes_small_operations_with_its_rounding_points():
    text = verified(text_of(graphs.rms_norm, torch.randn(2, 3, 8).bfloat16(), torch.randn(8).bfloat16()))
    for line in (
        "cermet.cast %arg0 : tensor<2x3x8xbf16> to tensor<2x3x8xf32>",
        "cermet.reduce_sum",
        "cermet.constant 8.0 : tensor<2x3x1xf32>",
        "cermet.constant 1.0e-06 : tensor<2x3x1xf32>",
        "cermet.rsqrt",
        ": tensor<2x3x8xf32> to tensor<2x3x8xbf16>",
        "cermet.broadcast %arg1 : tensor<8xbf16> to tensor<2x3x8xbf16>",
    ):
        assert line in text, f"{line!r} is not in\n{text}"
    assert "opaque" not in text


@pytest.mark.parametrize(
    "spelling",
    [
        lambda x: x.pow(2).mean(-1, keepdim=True),
        lambda x: torch.mean(torch.pow(x, 2), dim=-1, keepdim=True),
        lambda x: (x**2).mean(dim=[2], keepdim=True),
        lambda x: torch.square(x).mean((-1,), True),
        lambda x: (x * x).sum(-1, keepdim=True) / 8,
    ],
)
def test_spellings_of_a_mean_of_squares_are_one_text(spelling):
    text = verified(text_of(spelling, torch.randn(2, 3, 8)))
    assert text.count("cermet.mul %arg0, %arg0") == 1
    assert text.count("cermet.reduce_sum") == 1 and text.count("cermet.div") == 1
    assert "cermet.constant 8.0" in text and "opaque" not in text


def test_aten_spellings_import_as_torch_spellings_do():
    from torch.fx.experimental.proxy_tensor import make_fx

    def function(x, weight):
        return graphs.rms_norm(x, weight) * torch.sigmoid(x)

    x, weight = torch.randn(2, 3, 8).bfloat16(), torch.randn(8).bfloat16()
    high = text_of(function, x, weight)
    low = import_graph(make_fx(function, tracing_mode="fake")(x, weight)).text
    names = lambda text: [line.split(" = ")[1].split(" ")[0] for line in text.splitlines() if " = cermet." in line]
    assert names(verified(low)) == names(verified(high))


def test_one_column_of_each_row_is_picked():
    x, columns = torch.randn(2, 3, 8), torch.randint(8, (2, 3, 1))
    scores = lambda x, columns, dim=-1: x.log_softmax(-1).gather(dim, columns)
    for call in (
        scores,
        lambda x, columns: torch.gather(torch.log_softmax(x, -1), 2, index=columns),
        lambda x, columns: (x.gather(-1, columns), x.logsumexp(-1)),
        lambda x, columns: (x - x.logsumexp(-1, keepdim=True)).gather(-1, columns),
    ):
        assert "cermet.pick" in verified(text_of(call, x, columns))
    for other in (torch.randint(8, (2, 3, 2)), torch.randint(8, (2, 2, 1))):
        assert "cermet.pick" not in verified(text_of(scores, x, other))
    assert "cermet.pick" not in verified(text_of(lambda x, i: scores(x, i, 1), x, torch.randint(3, (2, 1, 8))))
    assert "cermet.pick" not in verified(text_of(lambda x, columns: x.exp().gather(-1, columns), x, columns))


def test_mixed_types_are_cast_before_the_operation():
    text = verified(text_of(lambda x, w: x * w, torch.randn(2, 8).bfloat16(), torch.randn(8)))
    assert "cermet.cast %arg0 : tensor<2x8xbf16> to tensor<2x8xf32>" in text
    assert "cermet.broadcast %arg1 : tensor<8xf32> to tensor<2x8xf32>" in text


def test_a_number_keeps_the_precision_that_torch_computes_in():
    """bf16 tensor times 0.1: torch multiplies by the float32 0.1 and rounds once; a bf16 constant would round twice."""
    x = torch.randn(4, 64).bfloat16()
    text = verified(text_of(lambda x: x * 0.1, x))
    assert "cermet.constant 0.1 : tensor<4x64xf32>" in text
    assert torch.equal(x * 0.1, (x.float() * torch.tensor(0.1)).bfloat16())
    assert "tensor<4x64xf32>" not in text_of(lambda x: x * 0.5, x)  # 0.5 is a bf16 number


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x[None].mean(1, keepdim=True), "a reduction over [1]"),
        (lambda x: torch.add(x, x, alpha=0.3), "alpha"),
        (lambda x: torch.div(x, 2.0, rounding_mode="floor"), "argument rounding_mode"),
        (lambda x: x[:, torch.tensor([0, 2])], "an index that selects"),
        (lambda x: x[x > 0].sum(), "an index that selects"),
        (lambda x: x[:, ::3], "a step of 3 over 4"),
        (lambda x: F.linear(x, x, x[:, 0]), "a bias"),
        (lambda x: x.softmax(0), "dimension 0 of rank 2, expected the last"),
        (lambda x: x.max(-1), "a translation of nothing, the call gives tensor<4xi64>"),
        (lambda x: F.pad(x, (1, 1), mode="reflect"), "padding with other than a constant"),
        (lambda x: x.view(torch.int32), "a view as another dtype"),
        (lambda x: (x > 0).sum(-1), "a sum of tensor<4xi64>"),
        (lambda x: torch.where(x > 0, x, 1 << 60), "the integer 1152921504606846976, expected at most 2^53"),
        (lambda x: torch.arange(0, 1, 0.25) * x, "a range from 0.0 by 0.25"),
        (lambda x: x.long() // 2, None),
        (lambda x: F.softshrink(x), None),
        (lambda x: torch.addcmul(x, x, x), None),
        (lambda x: F.scaled_dot_product_attention(x, x, x), None),
        (lambda x: F.dropout(x, 0.5, True), None),
    ],
)
def test_what_has_no_exact_translation_stays_opaque_and_says_why(function, reason):
    imported = import_graph(graphs.trace(function, torch.randn(4, 4)))
    assert "cermet.opaque" in verified(imported.text)
    assert reason in imported.refusals.values() or reason is None, imported.refusals


def test_detach_is_not_an_identity():
    """Its value is, its gradient is not."""
    assert 'cermet.opaque "detach(%)"' in verified(text_of(lambda x: x.detach() * x, torch.randn(2, 4)))


def test_symbols_name_dimensions():
    text = verified(text_of(lambda x: x.float() * 2.0, torch.randn(3, 5, 8).bfloat16(), dynamic=True))
    first = next(line for line in text.splitlines() if "func.func" in line)
    assert "#cermet.symbols<[" in first and "tensor<?x" in first


def test_strides_are_given_where_a_tensor_is_not_dense():
    text = verified(text_of(lambda x, y: x + y, torch.randn(8, 4).t(), torch.randn(4, 8)))
    assert text.count("cermet.strides") == 1
    assert "cermet.strides = array<i64: 1, 4>" in text


def test_slices_of_one_value_are_told_apart():
    """Also where they are opaque: no words for them, or none for their size."""
    text = verified(text_of(lambda x: torch.cat([x[::3, :2], x[::3, 2:]]), torch.randn(4, 4)))
    targets = [line.split('"')[1] for line in text.splitlines() if "cermet.opaque" in line and "getitem" in line]
    assert len(targets) == 2 and len(set(targets)) == 2


def test_rows_of_an_embedding_whose_gradient_leaves_some_out_are_no_gather():
    table, ids = torch.nn.Parameter(torch.randn(9, 4)), torch.tensor([1, 0, 3])
    function = lambda table, ids: F.embedding(ids, table, padding_idx=0)
    assert "cermet.opaque" in verified(text_of(function, table, ids))
    assert "cermet.gather" in verified(text_of(function, table.detach(), ids))
    assert "cermet.gather" in verified(text_of(lambda table, ids: F.embedding(ids, table), table, ids))


def test_a_symbolic_dimension_is_sliced_where_no_gradient_is_lost():
    def function(x, labels):
        return x[:, :, 1:] + x[:, 1:, 1:].sum(), labels[..., 1:], labels[:, 0]

    x = torch.randn(3, 5, 8)
    torch._dynamo.mark_static(x, 2)
    imported = import_graph(graphs.trace(function, x, torch.ones(3, 5).long(), dynamic=True))
    text = verified(imported.text)
    assert imported.refusals == {"getitem_1": "a slice of a symbolic dimension"}
    assert "cermet.slice %arg0 [0, 0, 1]" in text and "cermet.slice %arg1 [0, 1]" in text


# --- Writes ----------------------------------------------------------------------------------------------------------


def writes(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if 'effect = "write"' in line]


def test_a_write_gives_later_readers_a_new_version():
    def function(x, y):
        h = x * 2.0
        h.add_(y)
        return h * 3.0

    imported = import_graph(graphs.trace(function, *torch.randn(2, 4, 4)))
    (line,) = writes(verified(imported.text))
    assert "versions = 1" in line
    written = line.split(":2 = ")[0]
    last = [text for text in imported.text.splitlines() if "cermet.mul" in text][-1]
    assert f"cermet.mul {written}#0" in last, imported.text
    by_version = {(name, item.version) for name, item in imported.definitions.items() if item.version}
    assert by_version == {("add_#0", 1)}
    old, new = imported.definitions["h"], imported.definitions["add_#0"]
    assert old.until is new.since and new.node is old.node


def test_a_write_through_a_view_changes_every_live_alias():
    def function(x):
        h = x * 2.0
        v = h.view(-1)
        dead = h.view(2, 8)
        out = dead.sum()
        v.add_(1.0)
        return h.float() + v.view(4, 4), out

    imported = import_graph(graphs.trace(function, torch.randn(4, 4)))
    (line,) = writes(verified(imported.text))
    assert "versions = 2" in line  # v and h; `dead` has no reader left
    names = {item.node.name for item in imported.definitions.values() if item.version == 1}
    assert names == {"h", "v"}
    assert imported.definitions["dead"].until is not None  # nothing may read it after the write either


@pytest.mark.parametrize(
    "write",
    [
        lambda h, y: h.mul_(y),
        lambda h, y: h.__setitem__((slice(None), 0), y[:, 0]),
        lambda h, y: torch.add(h, y, out=h),
        lambda h, y: F.relu(h, inplace=True),
        lambda h, y: torch.relu_(h),
        lambda h, y: h.copy_(y),
        lambda h, y: h.zero_(),
        lambda h, y: torch._foreach_add_([h, y], 1.0),
        lambda h, y: F.batch_norm(y, h[0], h[1], training=True),
        lambda h, y: torch.ops.aten.mul_(h, y),
        lambda h, y: h.t().masked_fill_(y > 0, 0.0),
    ],
)
def test_every_way_to_write_is_seen(write):
    def function(x, y):
        h = x * 2.0
        write(h, y)
        return h * 3.0

    imported = import_graph(graphs.trace(function, torch.randn(4, 4), torch.randn(4, 4)))
    assert writes(verified(imported.text)), imported.text
    last = [line for line in imported.text.splitlines() if "cermet.mul" in line][-1]
    first = next(line for line in imported.text.splitlines() if "cermet.mul" in line)
    assert first.split(" = ")[0].strip() + "," not in last, f"the last product reads the old version\n{imported.text}"


def test_in_place_operators_are_writes():
    def function(x, y):
        h = x * 2.0
        h += y
        return h * 3.0

    assert writes(verified(text_of(function, torch.randn(4, 4), torch.randn(4, 4))))


def test_random_numbers_keep_their_place():
    text = verified(text_of(lambda x: F.dropout(x, 0.5, True) + F.dropout(x, 0.5, True), torch.randn(4, 4)))
    lines = [line for line in text.splitlines() if "dropout" in line]
    assert len(lines) == 2 and all('effect = "effectful"' in line for line in lines)


def test_logical_and_is_no_write():
    text = text_of(lambda x: (x > 0) & (x < 1), torch.randn(4, 4))
    assert not writes(verified(text))


# --- Text ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("element", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("value", [1e-6, 1.0, -2.5e300, 5e-324, 0.1, float("inf"), float("-inf"), float("nan"), -0.0])
def test_numbers_are_read_back_exactly(value, element):
    tensor, literal = f"tensor<2x4x{element}>", number(value, element)
    verified(f"""module attributes {{cermet.version = 1 : i64}} {{
  func.func @graph(%x: {tensor}) -> {tensor} {{
    %c = cermet.constant {literal} : {tensor}
    %y = cermet.add %x, %c : {tensor}
    return %y : {tensor}
  }}
}}""")
    if literal.startswith("0x"):
        dtype = next(dtype for dtype, name in ELEMENT_TYPES.items() if name == element)
        bits = torch.frombuffer(bytearray.fromhex(literal[2:])[::-1], dtype=dtype)
        assert torch.equal(bits, torch.tensor([value], dtype=dtype)) or (bits.isnan().item() and value != value)
    else:
        assert float(literal) == value


def test_names_survive_any_bytes():
    assert quote('a"b\\c\nd\u00e9') == '"a\\22b\\5Cc\\0Ad\\C3\\A9"'


def test_an_unknown_dtype_has_no_tensor_type():
    assert str(TensorType((2, 3), None)) == "none"
    verified(text_of(lambda x: x.real + 1.0, torch.randn(3, 4, dtype=torch.complex64)))


def test_every_translation_is_reachable_from_a_spelling():
    tables = (operators._METHODS, operators._FUNCTIONS, operators._ATEN, operators._OURS)
    used = {name for table in tables for name in table.values()}
    of_complex = {"view_as_complex", "view_as_real"}  # translated for what complex numbers they are views of
    assert used - of_complex == set(operators.TRANSLATIONS)
    several = (operators._SEVERAL_EVERYWHERE, operators._SEVERAL_FUNCTIONS, operators._SEVERAL_ATEN)
    assert {name for table in several for name in table.values()} == set(operators.SEVERAL)


def test_every_function_of_the_table_is_one():
    for target in (*operators._FUNCTIONS, *operators._SEVERAL_FUNCTIONS):
        assert callable(target), target
    for name in (*operators._ATEN, *operators._SEVERAL_ATEN):
        known = hasattr(torch.ops.aten, name) or name in operators._EVERYWHERE or name in operators._SEVERAL_EVERYWHERE
        assert known, f"aten.{name}"


def test_opaque_targets_hold_what_is_no_operand():
    graph = graphs.trace(lambda x: torch.roll(x, 2, dims=-1), torch.randn(4, 4))
    node = next(node for node in graph.graph.nodes if node.op == "call_function")
    assert describe(node, lambda _: True) == "roll(%, 2, dims=-1)"
