"""What is found in transformers' own models: counts, with nothing matched by name and no graph break.

Every count is asserted twice: by the family's formula (tiny_models.py), and as a whole against model_counts.json. After
a change that is meant, write the table anew and read its difference:

    python tests/python/fusing/test_matches.py
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import cermet
import graphs
from cermet import inspection, pipeline
from cermet.graph.memory import memories
from cermet.ops import library, regions
from cermet.importing.importer import import_graph
from tiny_models import FAMILIES, LAYERS, MODES, NAMED, OTHERS, sites, tiny, words

TABLE = Path(__file__).with_name("model_counts.json")
CASES = [
    (family, mode)
    for family in NAMED
    for mode in MODES
    if mode != "sdpa attention" or NAMED[family].sdpa
] + [(family, "bf16") for family in OTHERS]


def explained(family: str, mode: str) -> cermet.Explanation:
    call = MODES[mode].call(family)
    with call.context:
        return cermet.explain(call.model, **call.arguments)


def written(found: cermet.Explanation) -> dict[str, int]:
    return {name: times for name, times in found.counts.items() if times}


@pytest.fixture(scope="module")
def table() -> dict[str, dict[str, dict[str, int]]]:
    return json.loads(TABLE.read_text())


@pytest.mark.parametrize(("family", "mode"), CASES)
def test_counts(family, mode, table, monkeypatch):
    monkeypatch.setattr(inspection, "_run", lambda *_: "")  # what is behind autograd counts no matches
    found = explained(family, mode)
    dynamic = mode == "dynamic"
    made = mode in ("labels", "autocast")  # without a gradient; of a weight that is cast first
    expected = FAMILIES[family].expected(loss=MODES[mode].loss, dynamic=dynamic, made=made)
    assert sites(found.counts) == expected, str(found)
    assert found.counts["causal_mask"] == LAYERS * FAMILIES[family].sdpa, str(found)  # also of what is written out
    assert found.graph_breaks == [] and found.graphs == 1
    expected = FAMILIES[family].near_miss
    if dynamic and FAMILIES[family].softcaps[0]:
        expected = "the last dimension of x is the symbol"
    unexplained = [str(miss) for miss in found.near_misses if not expected or expected not in miss.condition]
    assert unexplained == []
    assert written(found) == table[family][mode], f"{TABLE.name} has other counts: {TABLE.name}, {family}, {mode}"


def test_the_table_has_every_case_and_no_other(table):
    assert [(family, mode) for family, modes in table.items() for mode in modes] == CASES


def test_counts_grow_with_the_layers():
    for layers in (1, 3):
        model, text = tiny("Gemma2", num_hidden_layers=layers), words()
        found = cermet.explain(model, input_ids=text, labels=text)
        assert sites(found.counts) == FAMILIES["Gemma2"].expected(layers), str(found)


def test_dynamic_shapes_match_too_and_give_the_same_texts():
    """The region's rows are symbols: a static and a dynamic trace share kernels."""
    model, text = tiny("Llama"), words()

    def regions_of(dynamic):
        module = graphs.trace(lambda t: model(input_ids=t).logits, text, dynamic=dynamic)
        answer = library.context().match(import_graph(module).text)
        return sorted(region["text"] for region in answer["regions"])

    static = regions_of(False)
    assert static == regions_of(True) and len(static) == NAMED["Llama"].norms_of() + 2 * LAYERS  # ropes and GLUs


def test_the_same_norm_of_two_layers_is_one_region_text():
    model, text = tiny("Llama"), words()
    module = graphs.trace(lambda t: model(input_ids=t).logits, text)
    texts = [region["text"] for region in library.context().match(import_graph(module).text)["regions"]]
    # norm, add+norm (its sum read again or not), RoPE, GLU
    assert len(texts) == 9 and len(set(texts)) <= 5, set(texts)


@pytest.mark.parametrize("dynamic", [False, True])
def test_equal_layers_ask_once_what_a_region_gives(monkeypatch, dynamic):
    """Each has results of its own all the same: who shares memory is read from them."""
    asked, real = [], regions.region_op
    monkeypatch.setattr(regions, "region_op", lambda *sizes: asked.append(sizes) or real(*sizes))
    found = {}
    for layers in (3, 8):
        model, text = tiny("Llama", num_hidden_layers=layers), words()
        module = graphs.trace(lambda t: model(input_ids=t).logits, text, dynamic=dynamic)
        asked.clear()
        (part,) = pipeline.run(module, until="compile").parts
        decided = part.decision.regions
        values = [value for region in decided for value in region.values]
        assert len(memories(values)) == len(values)
        found[layers] = len(asked), len(decided)
    assert found[3][0] == found[8][0] <= 6 and found[3][1] < found[8][1]


def test_rewritten_nodes_carry_what_tracing_leaves_and_where_they_came_from():
    module = graphs.trace(
        lambda x, w: graphs.rms_norm(x, w) * 2.0, torch.randn(4, 8), torch.randn(8, requires_grad=True)
    )
    (region,) = pipeline.run(module).regions
    (node,) = [node for node in module.graph.nodes if "cermet_v1" in str(node.target)]
    value = node.meta["example_value"]
    assert value.shape == (4, 8) and value.requires_grad
    assert "stack_trace" in node.meta and "graphs.py" in region.source
    assert {node.op for node in module.graph.nodes} == {"placeholder", "call_function", "output"}
    assert len(module.graph.nodes) == 5  # two inputs, the region, the product, the output


def _write_table() -> None:
    counts: dict[str, dict[str, dict[str, int]]] = {}
    for family, mode in CASES:
        counts.setdefault(family, {})[mode] = written(explained(family, mode))
    lines = [
        f"  {json.dumps(family)}: {{\n"
        + ",\n".join(f"    {json.dumps(mode)}: {json.dumps(sites)}" for mode, sites in modes.items())
        + "\n  }"
        for family, modes in counts.items()
    ]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    _write_table()
