"""Sizes of inputs that vary from call to call and are equal have one symbol, under a guard."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import cermet
import graphs
from cermet.graph import sizes
from cermet.graph.nodes import example
from tiny_models import LAYERS, tiny


def batch(rows: int, length: int, *dimensions: int) -> list[torch.Tensor]:
    """Words and their mask, with sizes that vary at dimensions."""
    made = [torch.randint(1, 128, (rows, length)), torch.ones(rows, length, dtype=torch.long)]
    for tensor in made:
        for dimension in dimensions:
            torch._dynamo.mark_dynamic(tensor, dimension)
    return made


def shapes(function, *args) -> list[tuple[str, ...]]:
    module = graphs.trace(function, *args)
    sizes.unify(module)
    values = [example(node) for node in module.graph.nodes if node.op == "placeholder"]
    return [tuple(map(str, value.shape)) for value in values if isinstance(value, torch.Tensor)]


def apart(words, mask):
    return words.sum() + 2 * mask.sum()


def test_sizes_that_are_equal_have_one_symbol():
    first, second = shapes(apart, *batch(3, 7, 0, 1))
    assert first == second and len(set(first)) == 2 and not any(size.isdigit() for size in first)


@pytest.mark.parametrize("other", [(3, 8), (4, 7)])
def test_sizes_of_other_shapes_stay_apart(other):
    first, second = shapes(apart, batch(3, 7, 0, 1)[0], batch(*other, 0, 1)[1])
    assert not set(first) & set(second)


def test_a_size_beside_a_number_stays_a_symbol():
    words, mask = batch(3, 7, 0)[0], torch.ones(3, 7, dtype=torch.long)
    first, second = shapes(apart, words, mask)
    assert second == ("3", "7") and not first[0].isdigit()


def test_sizes_that_differ_later_are_another_graph():
    compiled = graphs.compiled(apart)
    before = cermet.counters()["graphs"]
    for other in ((3, 7), (3, 7), (4, 7)):
        given = batch(3, 7, 0, 1)[0], batch(*other, 0, 1)[1]
        torch.testing.assert_close(compiled(*given), apart(*given))
    assert cermet.counters()["graphs"] - before == 2


def test_a_model_whose_rows_and_length_vary_has_its_loss_and_its_masks():
    model = tiny("Llama").train()
    call = torch.compile(model, backend="cermet", fullgraph=True)
    before = cermet.counters()
    for rows, length in ((2, 7), (3, 9), (5, 8)):
        words, mask = batch(rows, length, 0, 1)
        labels = words.clone()
        torch._dynamo.mark_dynamic(labels, 0), torch._dynamo.mark_dynamic(labels, 1)
        result = call(input_ids=words, attention_mask=mask, labels=labels)
        expected = F.cross_entropy(model(input_ids=words).logits[:, :-1].flatten(0, 1), words[:, 1:].flatten())
        torch.testing.assert_close(result.loss, expected)
        result.loss.backward()
    found = {name: value - before[name] for name, value in cermet.counters().items()}
    assert found["graphs"] == 1 and found["regions"] == 4 * LAYERS + 2 and found["causal_masks"] == LAYERS, found
