"""`cermet.explain` and CERMET_EXPLAIN: what is counted, the table, and the page in headless Chromium."""

from __future__ import annotations

import dataclasses
import logging
import random
import re

import numpy
import pytest
import torch

import browser
import cermet
import graphs
from cermet.ops import library
from cermet.remainder import content
from cermet import environment
from cermet.graph.decision import NearMiss
from cermet.rematerialization.plan import Again, Call, Plan, Saved
from tiny_models import LAYERS, tiny, words

COUNTED = [
    "rms_norm", "add_rms_norm", "qk_norm", "rope", "qk_norm_rope", "glu", "cross_entropy", "causal_mask", "full_mask",
    "window_mask", "document_mask", "padding_mask", "length_mask", "cluster",
]  # fmt: skip


def two_kinds(x, weight, gate):
    y = graphs.rms_norm(x, weight)
    return graphs.glu(gate, y), graphs.rms_norm(gate, weight)


def arguments(rows: int = 4, columns: int = 32, grad: bool = False) -> list[torch.Tensor]:
    return [torch.randn(shape, requires_grad=grad) for shape in ((rows, columns), (columns,), (rows, columns))]


@pytest.fixture(scope="module")
def llama():
    model, text = tiny("Llama"), words()
    return cermet.explain(model, input_ids=text, labels=text)


def test_every_name_is_counted_in_one_order():
    assert list(cermet.explain(two_kinds, *arguments()).counts) == COUNTED
    assert cermet.explain(torch.sin, torch.ones(3)).counts == dict.fromkeys(COUNTED, 0)


def test_sites_that_the_matcher_counts_come_before_the_pattern():
    found = cermet.explain(two_kinds, *arguments())
    assert found.counts["rms_norm"] == 2 and found.counts["glu"] == 1
    place = dataclasses.replace(found.places[0], counts=(("qk_norm_rope", 2), ("rope", 1), ("new", 3)))
    found.places = [place]
    assert [(name, times) for name, times in found.counts.items() if times] == [
        ("rope", 1), ("qk_norm_rope", 2), ("new", 3),
    ]  # fmt: skip


def test_bytes_before_and_after_are_those_of_the_operations():
    """x*x, mean, +eps, rsqrt, x*r, w*y: what each reads and writes; a cast to the type that is there is free."""
    rows, columns = 4, 32
    x, weight, _ = arguments(rows, columns)
    (place,) = cermet.explain(graphs.rms_norm, x, weight).places
    tile, row, column = rows * columns * 4, rows * 4, columns * 4
    each = [2 * tile, tile + row, 2 * row, 2 * row, tile + row + tile, column + tile + tile]
    assert place.bytes_before == sum(each)
    assert place.bytes_after == 2 * tile + column and place.saved_bytes == 0
    assert place.operands == ("f32[4, 32]", "f32[32]") and place.results == ("f32[4, 32]",)
    assert place.forward == ("rms_norm",) and place.backward == ()


def test_what_is_saved_for_the_backward_counts():
    x, weight, _ = arguments(grad=True)
    (place,) = cermet.explain(graphs.rms_norm, x, weight).places
    assert place.saved_bytes == 4 * 4  # one f32 a row
    assert place.bytes_after == 2 * 4 * 32 * 4 + 32 * 4 + place.saved_bytes
    assert place.forward and place.backward


def test_symbolic_sizes_are_named_and_count_as_traced():
    x, weight, gate = arguments(1024)  # enough that the same regions gain
    torch._dynamo.mark_dynamic(x, 0)
    torch._dynamo.mark_dynamic(gate, 0)
    still, moving = cermet.explain(two_kinds, *arguments(1024)), cermet.explain(two_kinds, x, weight, gate)
    assert [place.bytes_before for place in still.places] == [place.bytes_before for place in moving.places]
    assert re.fullmatch(r"f32\[s\d+, 32\]", moving.places[0].operands[0])


def test_foreign_kernels_are_listed_by_name():
    @torch.library.custom_op("elsewhere::double", mutates_args=())
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    double.register_fake(torch.empty_like)

    class Halve(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x / 2

        @staticmethod
        def backward(ctx, grad):
            return grad / 2

    found = cermet.explain(lambda x: Halve.apply(double(double(x))), torch.randn(4, requires_grad=True))
    assert found.foreign == {"elsewhere::double": 2, "autograd_function_apply": 1}
    assert "elsewhere::double (x2)" in str(found)
    assert found.runs == [], "there is no gradient of `double`: autograd cannot trace this"
    assert "Trying to backward through elsewhere.double" in " ".join(str(found).split())


def test_a_triton_kernel_is_listed_by_its_function(monkeypatch):
    from torch._higher_order_ops import triton_kernel_wrap as wrap

    def swizzle():
        pass

    class Wrapper:
        fn = swizzle

    index = wrap.kernel_side_table.add_kernel(Wrapper)
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(wrap.triton_kernel_wrapper_mutation, kwargs={"kernel_idx": index, "kwargs": {"x": x}})
    graph.output(x)
    assert content.foreign(torch.fx.GraphModule({}, graph)) == {"triton kernel swizzle": 1}


def test_a_text_that_is_no_specification_has_no_source():
    with pytest.raises(cermet.Error):
        library.context().kernel_source("nonsense")


def test_what_is_left_is_counted_by_operation():
    def function(x, weight, gate):
        return graphs.rms_norm(x, weight).sin().view(-1, 8) @ torch.ones(8, 8), gate.exp() * 2, gate.sigmoid()

    left = {item.op: (item.times, item.bytes_moved) for item in cermet.explain(function, *arguments()).left}
    moved = 2 * 4 * 32 * 4
    assert left["exp"] == (1, moved) and left["sigmoid"] == (1, moved)
    assert not {"view", "matmul", "pow", "rsqrt", "mean"} & left.keys()


def test_near_misses_and_breaks_have_their_reason_and_place():
    def function(x, weight):
        y = graphs.rms_norm(x, weight)
        torch._dynamo.graph_break()
        wide = x.to(torch.float32)
        return y, wide * torch.rsqrt(wide.pow(2).mean(0, keepdim=True) + 1e-6) * weight

    found = cermet.explain(function, *arguments()[:2])
    assert found.graphs == 2 and len(found.graph_breaks) == 1
    shown = str(found)
    assert "2 graphs, 1 graph break: 1 rms_norm" in shown
    assert "Call to `torch._dynamo.graph_break()`: User-inserted graph break" in shown
    (miss,) = found.near_misses
    assert miss.pattern == "rms_norm" and "dimension" in miss.condition and "test_explain.py:" in miss.source
    assert miss.condition in re.sub(r"\s+", " ", shown)


def test_the_table_is_aligned_and_narrow(llama):
    lines = str(llama).splitlines()
    assert lines[0].startswith("1 graph, 0 graph breaks: ") and f"{LAYERS} glu" in lines[0]
    (head,) = [line for line in lines if line.startswith("pattern ")]
    rows = [line for line in lines if re.match(r"(add_)?rms_norm |glu ", line)]
    ends = [head.index(name) + len(name) for name in ("sites", "kernels", "bytes before", "bytes after", "saved")]
    for row in rows:
        for end in ends:
            assert row[end - 1] != " " and row[end : end + 1] in ("", " "), row
    assert len(rows) == len({row.split()[0] for row in rows}) >= 3  # equal places are one row
    assert max(map(len, lines)) <= 120
    assert any("modeling_llama.py:" in line for line in lines) and any("f32[2, 16, 64]" in line for line in lines)


def test_the_model_is_left_alone():
    model, text = tiny("Llama"), words()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    cermet.explain(model, input_ids=text)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


# --- Beside what is compiled -----------------------------------------------------------------------------------------


class Blocks(torch.nn.Module):
    """Two blocks; with `broken`, a graph break in each."""

    def __init__(self, broken: bool = False) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(broken) for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Block(torch.nn.Module):
    def __init__(self, broken: bool) -> None:
        super().__init__()
        self.weight, self.broken = torch.nn.Parameter(torch.ones(32)), broken

    def forward(self, x):
        y = graphs.rms_norm(x, self.weight)
        if self.broken:
            torch._dynamo.graph_break()
        return graphs.rms_norm(y.sin(), self.weight)


COMPILED = {"backend": "cermet", "options": {"remainder": "eager", "strict": True}}


def in_place(model):
    model.compile(**COMPILED)
    return model


def wrapped(model):
    return torch.compile(model, **COMPILED)


def by_blocks(model):
    for block in model.blocks:
        block.compile(**COMPILED)
    return model


def replaced_blocks(model):
    model.blocks = torch.nn.ModuleList(torch.compile(block, **COMPILED) for block in model.blocks)
    return model


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("compiled", [in_place, by_blocks, replaced_blocks, wrapped])
def test_a_compiled_model_is_explained_and_stays_compiled(compiled, broken):
    x = torch.randn(4, 32)
    plain = cermet.explain(Blocks(broken), x)
    assert plain.counts["rms_norm"] >= 3 and bool(plain.graph_breaks) == broken
    model = compiled(Blocks(broken))
    for called in (False, True):
        if called:
            model(x)
        state = {name: dict(part.__dict__) for name, part in model.named_modules()}
        before = cermet.counters()["graphs"]
        found = cermet.explain(model, x)
        assert (found.counts, found.graphs) == (plain.counts, plain.graphs)
        assert {name: dict(part.__dict__) for name, part in model.named_modules()} == state
        if called:
            model(x)
            assert cermet.counters()["graphs"] == before, "what was compiled is compiled again"


def test_a_compiled_function_is_explained():
    call = torch.compile(two_kinds, **COMPILED)
    call(*arguments())
    assert cermet.explain(call, *arguments()).counts["rms_norm"] == 2


def test_others_stay_compiled_and_sizes_are_not_remembered():
    other, call = Blocks(broken=True), torch.compile(two_kinds, **COMPILED)
    other.compile(**COMPILED)
    other(torch.randn(4, 32)), call(*arguments(4))
    before, frames = cermet.counters()["graphs"], len(torch._dynamo.convert_frame.input_codes.seen)
    for rows in range(2, 14):  # more often than Dynamo compiles one frame
        (place, *_) = cermet.explain(two_kinds, *arguments(rows)).places
        assert place.operands[0] == f"f32[{rows}, 32]"
        assert cermet.explain(Blocks(broken=True), torch.randn(rows, 32)).counts["rms_norm"] >= 3
    assert len(torch._dynamo.convert_frame.input_codes.seen) == frames
    other(torch.randn(4, 32)), call(*arguments(4))
    assert cermet.counters()["graphs"] == before
    fresh = torch.compile(graphs.glu, **COMPILED)
    cermet.explain(graphs.glu, *torch.randn(2, 8, 32))
    for rows, compiled in ((4, 1), (6, 2), (7, 2)):  # numbers first, then a symbol
        fresh(*torch.randn(2, rows, 32))
        assert cermet.counters()["graphs"] == before + compiled


def test_the_random_generators_are_left_alone():
    def function(x, weight):
        drawn = random.random() + numpy.random.rand()
        return torch.nn.functional.dropout(graphs.rms_norm(x, weight), 0.5, True) * drawn

    def drawn():
        return random.random(), numpy.random.rand(), torch.rand(3).tolist()

    def seed():
        random.seed(1), numpy.random.seed(1), torch.manual_seed(1)

    seed()
    expected = drawn()
    seed()
    cermet.explain(function, *arguments()[:2])
    torch.manual_seed(1)  # what drew the arguments
    state = torch.get_rng_state()
    cermet.explain(function, torch.ones(4, 32), torch.ones(32))
    assert torch.equal(torch.get_rng_state(), state) and drawn() == expected


def test_a_model_that_fails_is_left_as_it_was():
    model, before = in_place(Blocks()), len(torch._dynamo.convert_frame.input_codes.seen)
    state = {name: dict(part.__dict__) for name, part in model.named_modules()}
    with pytest.raises(Exception):
        cermet.explain(model, torch.randn(4, 31))
    assert {name: dict(part.__dict__) for name, part in model.named_modules()} == state
    assert len(torch._dynamo.convert_frame.input_codes.seen) == before


# --- CERMET_EXPLAIN --------------------------------------------------------------------------------------------------


def test_the_table_goes_to_stderr_once_for_each_graph(monkeypatch, capsys):
    monkeypatch.setenv("CERMET_EXPLAIN", "1")
    call = graphs.compiled(two_kinds)
    for _ in range(2):
        call(*arguments())
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("cermet: 1 graph, ") == 1
    assert "2 rms_norm, 1 glu" in shown.err


def test_pages_are_numbered(monkeypatch, tmp_path):
    monkeypatch.setenv("CERMET_EXPLAIN", str(tmp_path / "found.html"))
    graphs.compiled(two_kinds)(*arguments())
    graphs.compiled(graphs.glu)(*arguments()[::2])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["found-2.html", "found.html"]
    assert "rms_norm" in (tmp_path / "found.html").read_text()
    assert "rms_norm" not in (tmp_path / "found-2.html").read_text().split("<script>")[0].split("<main>")[1]


def test_a_page_that_cannot_be_written_is_a_warning(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("CERMET_EXPLAIN", str(tmp_path / "nowhere" / "found.html"))
    inputs = arguments()
    torch.testing.assert_close(graphs.compiled(two_kinds)(*inputs), two_kinds(*inputs))
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [text for text in warned if "CERMET_EXPLAIN: " in text and "nowhere" in text], warned


def test_explaining_fixes_no_symbolic_size(monkeypatch, capsys):
    def compiled() -> int:
        torch._dynamo.reset()
        before = cermet.counters()["graphs"]
        call = torch.compile(two_kinds, backend="cermet", options={"remainder": "aot", "strict": True})
        for rows in (4, 5, 7, 9):
            call(*arguments(rows))
        return cermet.counters()["graphs"] - before

    plain = compiled()
    monkeypatch.setenv("CERMET_EXPLAIN", "1")
    assert compiled() == plain == 2  # once as numbers, once as symbols
    assert capsys.readouterr().err.count("cermet: 1 graph, ") == 2


def test_the_variable_is_checked(monkeypatch):
    monkeypatch.setenv("CERMET_EXPLAIN", "yes")
    with pytest.raises(cermet.Error, match="CERMET_EXPLAIN is 'yes', expected 0, 1 or a path that ends in .html"):
        environment.report()


# --- The page --------------------------------------------------------------------------------------------------------

needs_chromium = pytest.mark.skipif(browser.CHROMIUM is None, reason="no chromium: apt-get install chromium")


def test_everything_from_outside_is_escaped():
    found = cermet.explain(two_kinds, *arguments())
    evil = "<img src=x onerror=alert(1)>\"'&"
    found.places = [dataclasses.replace(place, source=evil, operands=(evil,)) for place in found.places]
    found.graph_breaks, found.failures, found.remainders = [evil], [evil], [evil]
    found.foreign[evil] = 1
    found.near_misses = [NearMiss(evil, evil, evil, evil)]
    call = Call(evil, f"{evil}:1: {evil}")
    saved, again = Saved(call, evil, 1, (call,), 1, evil, evil), Again(call, (evil,), 1, 1, True, evil, call, evil)
    found.plans = [Plan(evil, 0.5, (saved,), (again,), 1, 1)]
    page = found.html()
    assert "<img" not in page and page.count("&lt;img") >= 18


@needs_chromium
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_renders_without_a_request(llama, tmp_path, dark):
    path = tmp_path / "page.html"
    llama.save(path)
    with browser.Page(path, dark) as page:
        assert page.requests == [path.as_uri()] and page.problems == []
        assert page.run("document.querySelectorAll('.tiles li').length") == 7
        assert page.run("document.querySelectorAll('#places > tbody').length") == len(llama.rows)
        shown = page.run("document.querySelector('#places').innerText")
        assert "modeling_llama.py" in shown and "add_rms_norm" in shown
        red = page.run("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")
        assert (int(red) < 60) == dark


@needs_chromium
def test_the_page_sorts_by_a_column(llama, tmp_path):
    path = tmp_path / "page.html"
    llama.save(path)
    before = [place.bytes_before for place, _ in llama.rows]
    names = [place.pattern for place, _ in llama.rows]

    def click(page, head):
        heads = "[...document.querySelectorAll('#places > thead button')]"
        page.run(f"{heads}.find(button => button.textContent === '{head}').click()")
        keys = page.run("[...document.querySelectorAll('tr.place')].map(r => [...r.cells].map(c => c.dataset.key))")
        sorts = page.run("[...document.querySelectorAll('#places > thead th')].map(h => h.getAttribute('aria-sort'))")
        return keys, [order for order in sorts if order != "none"]

    with browser.Page(path) as page:
        for order in (True, False):
            keys, sorts = click(page, "Bytes before")
            assert [int(row[3]) for row in keys] == sorted(before, reverse=order)
            assert sorts == ["descending" if order else "ascending"]
        keys, sorts = click(page, "Pattern")
        assert [row[0] for row in keys] == sorted(names) and sorts == ["ascending"]
        # a row and what it opens to stay together
        assert page.run(
            "[...document.querySelectorAll('#places > tbody')].every(b => "
            "b.querySelector('button.open').getAttribute('aria-controls') === b.rows[1].id)"
        )


@needs_chromium
def test_a_row_opens_to_its_text_its_cuda_and_its_bytes(llama, tmp_path):
    path = tmp_path / "page.html"
    llama.save(path)
    place, _ = llama.rows[0]
    with browser.Page(path) as page:
        detail = "document.querySelector('#places tr.detail')"
        assert page.run(f"{detail}.offsetHeight") == 0
        page.run("document.querySelector('#places button.open').click()")
        assert page.run("document.querySelector('#places button.open').getAttribute('aria-expanded')") == "true"
        shown = page.run(f"{detail}.innerText")
        for text in ("func.func @", "cermet.reduce_sum", "struct Program", "KERNEL(", f"{place.bytes_before:,}"):
            assert text in shown, shown[:2000]
        assert f"{place.bytes_after:,}" in shown and f"{place.saved_bytes:,}" in shown
        widths = page.run(f"[...{detail}.querySelectorAll('.bytes .bar i')].map(bar => bar.offsetWidth)")
        assert widths[0] > widths[1] > 0
        page.run("document.querySelector('#places button.open').click()")
        assert page.run(f"{detail}.offsetHeight") == 0 and page.problems == []
