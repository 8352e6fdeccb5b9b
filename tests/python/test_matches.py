"""What is found in transformers' own models: counts, with nothing matched by name and no graph break."""

from __future__ import annotations

import pytest
import torch

import cermet
import graphs
from cermet import backend, library
from cermet.importer import import_graph
from tiny_models import LAYERS, NORMS, tiny, words

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def norms(counts: dict[str, int]) -> int:
    return counts["rms_norm"] + counts["add_rms_norm"]


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", NORMS)
def test_counts(family, dtype, training):
    model = tiny(family, DTYPES[dtype]).train(training)
    text = words()
    with torch.set_grad_enabled(training):
        found = cermet.explain(model, input_ids=text, labels=text if training else None)
    assert (norms(found.counts), found.counts["glu"]) == (NORMS[family], LAYERS), str(found)
    assert found.graph_breaks == [] and found.graphs == 1
    assert found.near_misses == []
    # The first norm of the model stands alone, and so do query's and key's in Qwen3.
    alone = 1 + (2 * LAYERS if family == "Qwen3" else 0)
    assert found.counts["rms_norm"] == alone, str(found)


def test_counts_with_a_padding_mask_and_without_labels():
    model, text = tiny("Llama"), words()
    mask = torch.ones_like(text)
    mask[0, :4] = 0
    found = cermet.explain(model, input_ids=text, attention_mask=mask)
    assert (norms(found.counts), found.counts["glu"]) == (NORMS["Llama"], LAYERS)


def test_dynamic_shapes_match_too_and_give_the_same_texts():
    """The region's rows are symbols: a static and a dynamic trace share kernels."""
    model, text = tiny("Llama"), words()

    def regions_of(dynamic):
        module = graphs.trace(lambda t: model(input_ids=t).logits, text, dynamic=dynamic)
        answer = library.context().match(import_graph(module).text)
        return sorted(region["text"] for region in answer["regions"])

    static = regions_of(False)
    assert static == regions_of(True) and len(static) == NORMS["Llama"] + LAYERS


def test_the_same_norm_of_two_layers_is_one_region_text():
    model, text = tiny("Llama"), words()
    module = graphs.trace(lambda t: model(input_ids=t).logits, text)
    texts = [region["text"] for region in library.context().match(import_graph(module).text)["regions"]]
    assert len(texts) == 7 and len(set(texts)) <= 4, set(texts)  # norm, add+norm (its sum read again or not), GLU


def test_checkpointed_layers_are_searched_in_their_bodies():
    model, text = tiny("Llama").train(), words()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    found = cermet.explain(model, input_ids=text, labels=text)
    assert (norms(found.counts), found.counts["glu"]) == (NORMS["Llama"], LAYERS), str(found)


def test_autocast_models_match():
    model, text = tiny("Llama"), words()
    with torch.autocast("cpu", torch.bfloat16):
        found = cermet.explain(model, input_ids=text, labels=text)
    assert (norms(found.counts), found.counts["glu"]) == (NORMS["Llama"], LAYERS), str(found)


def test_rewritten_nodes_carry_what_tracing_leaves_and_where_they_came_from():
    module = graphs.trace(
        lambda x, w: graphs.rms_norm(x, w) * 2.0, torch.randn(4, 8), torch.randn(8, requires_grad=True)
    )
    (region,) = backend.rewrite(module, strict=True)
    (node,) = [node for node in module.graph.nodes if "cermet_v1" in str(node.target)]
    value = node.meta["example_value"]
    assert value.shape == (4, 8) and value.requires_grad
    assert "stack_trace" in node.meta and "graphs.py" in region.source
    assert {node.op for node in module.graph.nodes} == {"placeholder", "call_function", "output"}
    assert len(module.graph.nodes) == 5  # two inputs, the region, the product, the output


def test_explain_prints_a_table_with_source_lines():
    model, text = tiny("Llama"), words()
    shown = str(cermet.explain(model, input_ids=text))
    assert "1 graph, 0 graph breaks: 1 rms_norm, 4 add_rms_norm, 2 glu" in shown
    assert "modeling_llama.py:" in shown and "f32[2, 16, 64]" in shown
    # 2x16x64 f32 in and out, and a weight of 64: each byte once
    assert f"{(2 * 2 * 16 * 64 + 64) * 4:,}" in shown


def test_explain_leaves_the_model_alone_and_counts_breaks():
    def function(x, weight):
        y = graphs.rms_norm(x, weight)
        torch._dynamo.graph_break()
        return graphs.glu(y, x)

    x, weight = torch.randn(4, 8), torch.randn(8)
    found = cermet.explain(function, x, weight)
    assert found.graphs == 2 and len(found.graph_breaks) == 1
    assert found.counts == {"rms_norm": 1, "add_rms_norm": 0, "glu": 1}

    model, text = tiny("Llama"), words()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    cermet.explain(model, input_ids=text)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
