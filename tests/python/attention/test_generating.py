"""transformers' `generate` with a static cache, whose masks are made outside of what is compiled: each step attends to
the keys that are there, of a row that is padded on the left, too, the words are eager's, and no word takes a graph
more."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import transformers

import tiny_models
from attending import Counted
from cermet.ops import attending
from reference_kernel import NAME, reference  # noqa: F401

PROMPT, HIDDEN, WINDOW = 5, 2, 6  # words of a prompt; of its first row that are padding; keys of a window
LAYERS, SHARED = tiny_models.LAYERS, 2


def _of_windows_and_all(**settings):
    config = transformers.Gemma3TextConfig(
        vocab_size=tiny_models.VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=LAYERS,
        num_attention_heads=4, num_key_value_heads=SHARED, head_dim=16, sliding_window=WINDOW,
        layer_types=["sliding_attention", "full_attention"], **settings,
    )  # fmt: skip
    model = transformers.Gemma3ForCausalLM(config)
    tiny_models.redraw(model, 0)
    return model


FAMILIES = {
    "Llama": lambda **settings: tiny_models.tiny("Llama", use_cache=True, **settings),
    "Qwen3": lambda **settings: tiny_models.tiny("Qwen3", use_cache=True, **settings),
    "Mistral": lambda **settings: tiny_models.tiny("Mistral", use_cache=True, sliding_window=WINDOW, **settings),
    "Gemma3": _of_windows_and_all,
}
WINDOWED = {"Llama": 0, "Qwen3": 0, "Mistral": LAYERS, "Gemma3": 1}  # layers


def forward_compiled(model):
    """As a program says it."""
    model.forward = torch.compile(model.forward, backend="cermet", options={"strict": True})
    return {}


def by_generate(model):
    """Compiled by transformers itself, behind the prompt."""
    config = transformers.CompileConfig(backend="cermet", mode=None, options={"strict": True})
    config._compile_all_devices = True
    return {"compile_config": config}


def generated(model, rows, words, **settings):
    text = tiny_models.words(rows, PROMPT)
    shown = torch.ones_like(text)
    shown[0, :HIDDEN] = 0
    model.generation_config.eos_token_id = None
    return model.generate(
        text, attention_mask=shown, max_new_tokens=words, do_sample=False, cache_implementation="static", **settings
    )


def graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.fixture
def read(reference, monkeypatch):
    """The numbers of keys that each call of the two kernels reads, by segments."""
    kernel, seen = attending.KERNELS[NAME], {"ranged": [], "added": []}

    def noting(name):
        def run(*given):
            seen[name].append(given[5].tolist())
            return getattr(kernel, name)(*given)

        return run

    monkeypatch.setitem(attending.KERNELS, NAME, dataclasses.replace(kernel, **{name: noting(name) for name in seen}))
    return seen


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("way", [forward_compiled, by_generate], ids=lambda way: way.__name__)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_reads_the_keys_that_are_there(read, family, way, rows):
    model, words = FAMILIES[family]().eval(), 12
    eager = generated(model, rows, words)
    counted, before = Counted(), graphs()
    mine = generated(model, rows, words, **way(model))
    assert torch.equal(mine, eager)
    found, made = counted(), graphs() - before
    # Windows that fill up are another graph, in eager's own code.
    assert made == (way is forward_compiled) + 1 + (WINDOWED[family] > 0), made
    assert found["length_masks"] == LAYERS * made and "near_misses" not in found and "fallbacks" not in found, found
    assert not any(name.startswith("calls_") for name in found), found
    expected = []
    for length in range(PROMPT + 1, PROMPT + words):
        there = [length - HIDDEN * (row == 0) for row in range(rows) for _ in range(SHARED)]
        near = [min(each, WINDOW) for each in there]
        expected += [near] * WINDOWED[family] + [there] * (LAYERS - WINDOWED[family])
    assert read["ranged"][-len(expected) :] == expected
    assert not any(any(each) for each in read["added"][-len(expected) :])


@pytest.mark.parametrize("family", FAMILIES)
def test_graphs_do_not_grow_with_words(reference, family):
    made = []
    for words in (4, 24):
        torch._dynamo.reset()
        model, before = FAMILIES[family]().eval(), graphs()
        forward_compiled(model)
        generated(model, 3, words)
        made.append(graphs() - before)
    assert made[0] == made[1] == 2 + (WINDOWED[family] > 0), made


def test_caches_and_batches_of_other_sizes(reference):
    """Those are symbols from the second on, and masks are read there, too."""
    eager, model = (FAMILIES["Llama"]().eval() for _ in range(2))  # a model's caches are never shorter than its last
    asked = [(3, 6), (3, 12), (3, 19), (2, 25), (4, 30)]
    eager = [generated(eager, rows, words) for rows, words in asked]
    counted, before = Counted(), graphs()
    way = by_generate(model)
    for (rows, words), each in zip(asked, eager):
        assert torch.equal(generated(model, rows, words, **way), each)
    found, made = counted(), graphs() - before
    assert found["length_masks"] == LAYERS * made and "near_misses" not in found and made == 3, (found, made)
