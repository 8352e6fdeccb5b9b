"""What `cermet.explain` tells of the graphs behind autograd is what the backend runs, without running it."""

from __future__ import annotations

import collections
import dataclasses

import pytest
import torch
import torch.nn.functional as F
import transformers

import cermet
import graphs
from cermet.remainder import direct
from cermet.report import runs
from tiny_models import MODES, VOCABULARY, Call, tiny, words

COLUMNS = 64
VIEWS = {  # and what makes nothing
    f"aten.{name}" for name in "view _unsafe_view t transpose permute expand unsqueeze squeeze slice select split "
    "split_with_sizes alias detach unbind sym_size empty empty_like new_empty as_strided".split()
}


def bert() -> Call:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=COLUMNS, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4
    )
    text = words()
    return Call(transformers.BertForMaskedLM(config).train(), {"input_ids": text, "labels": text})


def translation() -> Call:
    config = transformers.T5Config(
        vocab_size=VOCABULARY, d_model=COLUMNS, d_kv=16, d_ff=96, num_layers=2, num_heads=4, use_cache=False,
        decoder_start_token_id=0,
    )  # fmt: skip
    model = transformers.T5ForConditionalGeneration(config).train()
    return Call(model, {"input_ids": words(), "labels": words(length=8)})


def whole(call: Call) -> Call:
    """With a mask that hides nothing, for which a graph has a variant."""
    call.arguments["attention_mask"] = torch.ones_like(call.arguments["input_ids"])
    return call


CALLS = {
    **{f"Llama, {mode}": lambda mode=mode: MODES[mode].call("Llama") for mode in MODES},
    **{family: lambda family=family: MODES["bf16"].call(family) for family in ("Gemma2", "Qwen3", "Qwen2Moe")},
    "BERT with dropout": bert,
    "T5 with dropout": translation,
    "Llama, a mask that hides nothing": lambda: whole(MODES["bf16"].call("Llama")),
    "BERT, a mask that hides nothing": lambda: whole(bert()),
}


def launched(function) -> tuple[int, object]:
    before = cermet.counters()["launches"]
    result = function()
    return cermet.counters()["launches"] - before, result


def others(graph: torch.fx.Graph) -> collections.Counter[str]:
    """Calls of ATen by name."""
    called: collections.Counter[str] = collections.Counter()
    for node in graph.nodes:
        wrapped = [item for item in (node.target, *node.args) if isinstance(item, torch._ops.OpOverload)]
        if node.op == "call_function" and wrapped:
            called[str(wrapped[0].overloadpacket)] += 1
            called["aten.mm"] += "linear_launch" in str(node.target)
    return called


@pytest.mark.parametrize("name", CALLS)
def test_what_is_told_is_what_runs(name, monkeypatch):
    call = CALLS[name]()
    with call.context:
        found = cermet.explain(call.model, **call.arguments)
    ran = {}

    class Kept(direct.StraightLine):
        def __init__(self, graph, *arguments, **keywords) -> None:
            made.append(graph.graph)
            super().__init__(graph, *arguments, **keywords)

    made: list[torch.fx.Graph] = []
    monkeypatch.setattr(direct, "StraightLine", Kept)
    compiled = torch.compile(call.model, backend="cermet", options={"strict": True})
    with call.context, torch._functorch.config.patch(enable_autograd_cache=False):
        forward, output = launched(lambda: compiled(**call.arguments))
        if output.logits.requires_grad or output.loss is not None and output.loss.requires_grad:
            result = output.logits.sum() if output.loss is None else output.loss
            ran["forward"], (ran["backward"], _) = forward, launched(result.backward)
        else:
            ran["inference"] = forward
    assert found.launches == ran and sum(ran.values()) > 0
    called = sum((others(graph) for graph in made), collections.Counter())
    told: collections.Counter[str] = collections.Counter()
    for each in (call for run in found.runs for call in run.calls):
        told[each.op] += each.times
    assert told == collections.Counter({op: called[op] for op in told})
    assert {op for op in called - told if "aten." in op} <= VIEWS, "calls that move memory"


def test_nothing_is_made_ready_and_nothing_runs():
    call = CALLS["Llama, bf16"]()
    unchanged = ("clusters", "launches", "kernels_compiled", "kernels_loaded", "regions", "graphs", "fallbacks")
    before = cermet.counters()
    found = cermet.explain(call.model, **call.arguments)
    after = cermet.counters()
    assert [run.kind for run in found.runs] == ["forward", "backward"]
    assert {name: after[name] - before[name] for name in unchanged if name in after} == dict.fromkeys(
        [name for name in unchanged if name in after], 0
    )


# --- What is told ----------------------------------------------------------------------------------------------------


def layer(x, other, weight, bias):
    total = x + other
    normed = F.layer_norm(total, (COLUMNS,), weight, bias)
    return F.gelu(normed) * total


def operands(rows: int = 32, grad: bool = True) -> list[torch.Tensor]:
    shapes = (rows, COLUMNS), (rows, COLUMNS), (COLUMNS,), (COLUMNS,)
    return [torch.randn(shape, requires_grad=grad) for shape in shapes]


def lines_of(launch: runs.Launch) -> list[str]:
    return [source.split(": ", 1)[1] for source in launch.sources]


LINES = [
    "total = x + other",
    "normed = F.layer_norm(total, (COLUMNS,), weight, bias)",
    "return F.gelu(normed) * total",
]


def test_a_launch_has_its_lines_and_its_bytes_forward_and_backward():
    tile, column, row = 32 * COLUMNS * 4, COLUMNS * 4, 32 * 4
    forward, backward = cermet.explain(layer, *operands()).runs
    (launch,), (back,) = forward.launches, backward.launches
    assert lines_of(launch) == LINES and lines_of(back) == LINES
    assert forward.calls == () and backward.calls == ()
    saved = [result for result in launch.results if result.endswith("[32, 1]")]
    more = launch.results.count("f32[32, 64]") - 1  # tiles that are saved
    assert launch.bytes_moved == (3 + more) * tile + 2 * column + len(saved) * row


def test_a_graph_without_gradient_is_inference():
    (run,) = cermet.explain(layer, *operands(grad=False)).runs
    assert run.kind == "inference" and len(run.launches) == 1
    with torch.no_grad():
        (run,) = cermet.explain(layer, *operands()).runs
    assert run.kind == "inference"


def test_graphs_behind_a_break_are_told_as_one():
    def broken(*arguments):
        x = layer(*arguments)
        torch._dynamo.graph_break()
        return layer(x, *arguments[1:])

    found = cermet.explain(broken, *operands())
    assert found.graphs == 2 and found.launches == {"forward": 2, "backward": 2}
    ((launch, times),) = found.runs[0].rows
    assert times == 2 and lines_of(launch) == LINES


def test_calls_of_others_are_told_in_bytes_products_and_attention_apart():
    def function(words, table, weight, cache, place):
        x = F.embedding(words, table)
        y = F.scaled_dot_product_attention(*3 * [(x @ weight)[None, None]])
        cache.index_copy_(0, place, y[0, 0, :1])
        return y.sort(-1)[0]

    given = [torch.arange(8), torch.randn(1000, 32), torch.randn(32, 32), torch.zeros(512, 32), torch.tensor([3])]
    (run,) = cermet.explain(function, *given).runs
    calls = {call.op: call for call in run.calls}
    tile = 8 * 32 * 4
    assert calls["aten.embedding"] == runs.Call("aten.embedding", runs.MEMORY, 1, 8 * 8 + 2 * tile)
    assert calls["aten.mm"] == runs.Call("aten.mm", runs.PRODUCT, 1, 2 * tile + 32 * 32 * 4)
    assert calls["aten.index_copy_"].bytes_moved == 8 + 2 * 32 * 4
    assert calls["aten.sort"].bytes_moved == 2 * tile + 8 * 32 * 8
    (attention,) = run.calls_of(runs.ATTENTION)
    assert attention.times == 1 and attention.bytes_moved == 2 * tile + 8 * 4  # queries, keys and values are one tensor
    assert not {"aten.view", "aten.unsqueeze", "aten.slice"} & calls.keys()


def test_times_are_measured_where_asked(device):
    model, x = torch.nn.Linear(COLUMNS, COLUMNS, device=device), torch.randn(32, COLUMNS, device=device)

    def function(x, measure=None):  # a name that is taken is the model's by place
        return layer(model(x), x, model.bias, model.bias)

    assert all(launch.microseconds is None for run in cermet.explain(function, x).runs for launch in run.launches)
    found = cermet.explain(function, x, measure=True)
    for run in found.runs:
        assert run.launches and all(launch.microseconds > 0 for launch in run.launches)
        assert all(call.microseconds > 0 for call in run.calls) and run.calls_of(runs.PRODUCT)
    assert "microseconds" in str(found) and " us)" in str(found) and "Microseconds" in found.html()


# --- The table, the page and CERMET_EXPLAIN --------------------------------------------------------------------------


def test_the_table_and_the_page_show_each_kind():
    found = cermet.explain(layer, *operands())
    for shown in (str(found), found.html()):
        assert "the forward graph runs" in shown and "the backward graph runs" in shown
        assert shown.count("total = x + other") >= 2
    assert max(map(len, str(found).splitlines())) <= 120
    evil = "<img src=x onerror=alert(1)>"
    launch = dataclasses.replace(found.runs[0].launches[0], sources=(evil,), operands=(evil,), kernels=(evil,))
    found.runs = [runs.Run("forward", (launch,), (runs.Call(evil, runs.MEMORY, 1, 4),))]
    assert "<img" not in found.html() and found.html().count("&lt;img") >= 4


def test_each_graph_that_is_compiled_is_told_but_for_those_that_torch_kept(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("CERMET_EXPLAIN", "1")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    shown = []
    for _ in range(2):
        torch._dynamo.reset()
        graphs.compiled(layer, "aot")(*operands())
        shown.append(capsys.readouterr().err)
    assert "the forward graph runs 1 launch " in shown[0] and "the backward graph runs 1 launch " in shown[0]
    assert "runs 1 launch " not in shown[1]
    assert "what runs behind autograd came from torch's cache, and is not told" in " ".join(shown[1].split())
