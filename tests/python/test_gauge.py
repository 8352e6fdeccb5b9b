"""`cermet.memory`: what is planned is what a step takes, nothing runs, and the largest batch fits."""

from __future__ import annotations

import collections

import pytest
import torch
import torch.fx as fx
import torch.nn as nn
import torch.nn.functional as F

import cermet
import plain_products
from cermet.rematerialization import liveness
from tiny_models import tiny, words

SIZES = {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 3}


def wide(family: str, dtype=torch.float32, **changes):
    return tiny(family, dtype=dtype, **(SIZES | changes)).train()


@pytest.mark.parametrize("memory", ["fast", "auto", "least"])
@pytest.mark.parametrize("family", ["Llama", "Qwen3", "Phi3", "Gemma2"])
def test_what_is_planned_is_what_a_step_takes(family, memory):
    """Within 3 %, of an allocator's own count."""
    text = words(4, 256)
    found = cermet.memory(wide(family), input_ids=text, labels=text, measure=True, options={"memory": memory})
    assert found.planned == pytest.approx(found.measured, rel=0.03)
    assert found.planned == sum(held.bytes for held in found.peak.held)


def test_with_logits_in_pieces():
    plain_products.needed()
    text = words(4, 256)
    options = {"logits_bytes": 2**15}
    model = wide("Llama", torch.bfloat16, num_hidden_layers=1, vocab_size=4096)
    found = cermet.memory(model, input_ids=text, labels=text, measure=True, options=options)
    assert found.planned == pytest.approx(found.measured, rel=0.03)


def test_layers_that_are_computed_again():
    text = words(4, 256)
    model = wide("Llama")
    model.gradient_checkpointing_enable()
    model.enable_input_require_grads()
    found = cermet.memory(model, input_ids=text, labels=text, measure=True)
    assert found.planned == pytest.approx(found.measured, rel=0.03)


def test_a_generator_is_nothing_that_was_saved():
    """A forward that saves its weight, and a backward that is given it, a cotangent and, as on a GPU for each part that
    is computed again, a generator."""
    forward, backward = fx.Graph(), fx.Graph()
    weight = forward.placeholder("primals_1")
    loss = forward.call_function(torch.neg, (weight,))
    forward.output((loss, weight))
    given, *others = [backward.placeholder(name) for name in ("primals_1", "tangents_1", "bwd_rng_state_0")]
    backward.output((backward.call_function(torch.mul, (given, others[0])),))
    for node, value in ((weight, torch.ones(8)), (loss, torch.ones(8)), (given, torch.ones(8))):
        node.meta["val"] = value
    assert liveness.crossing(forward, backward) == ([loss], [(weight, given)])


class Broken(nn.Module):
    """Of two graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ModuleList(nn.Linear(256, 256) for _ in range(4))
        self.second = nn.ModuleList(nn.Linear(256, 256) for _ in range(4))

    def forward(self, x):
        for layer in self.first:
            x = F.gelu(layer(x))
        torch._dynamo.graph_break()
        for layer in self.second:
            x = F.gelu(layer(x))
        return x.sum()


def test_of_several_graphs():
    found = cermet.memory(Broken(), torch.randn(1024, 256), measure=True)
    assert found.planned == pytest.approx(found.measured, rel=0.03)


def test_without_a_gradient():
    model, text = wide("Llama").eval(), words(4, 256)
    with torch.no_grad():
        found = cermet.memory(model, input_ids=text, measure=True)
    assert found.planned == pytest.approx(found.measured, rel=0.03) and found.peak.of("saved") == 0


def test_its_parts_are_told():
    model, text = wide("Llama"), words(4, 256)
    found = cermet.memory(model, input_ids=text, labels=text)
    weights = sum(each.numel() * each.element_size() for each in model.parameters())
    assert found.peak.of("weight") == pytest.approx(weights, rel=0.01)
    assert found.peak.of("saved") > 0 and found.measured is None and found.largest_batch is None
    written = str(found)
    for part in ("weights", "gradients", "saved for the backward", "modeling_llama.py", "at the most, while"):
        assert part in written


def test_weights_that_no_graph_reads_are_there_all_the_same():
    class Looked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.head = nn.Embedding(4096, 64), nn.Linear(64, 64, bias=False)

        @torch._dynamo.disable
        def look(self, text):
            return self.words(text)

        def forward(self, text):
            return self.head(self.look(text)).sum()

    model = Looked()
    found = cermet.memory(model, words(4, 64))
    assert found.peak.of("weight") == sum(each.numel() * each.element_size() for each in model.parameters())


def test_nothing_runs_and_nothing_is_left(monkeypatch):
    model, text = wide("Llama", num_hidden_layers=1), words(2, 64)
    seen = []
    model.register_forward_hook(lambda *_: seen.append(torch.is_tensor(next(model.parameters()))))
    monkeypatch.setattr(torch.Tensor, "backward", lambda *_: pytest.fail("a backward ran"))
    before = torch.get_rng_state()
    cermet.memory(model, input_ids=text, labels=text)
    assert all(each.grad is None for each in model.parameters()) and torch.equal(before, torch.get_rng_state())


def test_more_than_there_is_memory_for():
    """A batch whose numbers no machine holds is planned all the same."""
    text = words(1, 256).expand(10**6, 256)
    found = cermet.memory(wide("Llama", num_hidden_layers=1), input_ids=text, labels=text)
    assert found.planned > 10**12


@pytest.mark.parametrize("inputs", ["cpu", "meta"])
def test_a_model_on_meta_is_planned_where_it_would_run(inputs, monkeypatch):
    """As it is with memory, tied weights once; its other tensors say where."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model, text = wide("Llama", num_hidden_layers=1, tie_word_embeddings=True), words(4, 128)
    expected = cermet.memory(model, input_ids=text, labels=text).peak
    model, text = model.to("meta"), text.to(inputs)
    model.tie_weights()
    found = cermet.memory(model, input_ids=text, labels=text, room="100 MB")
    assert (found.peak.bytes, found.peak.call) == (expected.bytes, expected.call) and found.largest_batch > 4
    assert collections.Counter(found.peak.held) == collections.Counter(expected.held)
    assert {each.device.type for each in model.parameters()} == {"meta"}
    with pytest.raises(cermet.Error, match="measure is given, but .*on meta"):
        cermet.memory(model, input_ids=text, labels=text, measure=True)


def test_the_largest_batch_fits_and_one_more_does_not():
    model, text = wide("Llama", num_hidden_layers=1), words(4, 128)
    found = cermet.memory(model, input_ids=text, labels=text, room="100 MB")
    for size, fits in ((found.largest_batch, True), (found.largest_batch + 1, False)):
        more = words(1, 128).expand(size, 128)
        assert (cermet.memory(model, input_ids=more, labels=more).planned <= 100e6) == fits
    assert f"hold a batch of {found.largest_batch}; planned was 4" in str(found)
    assert cermet.memory(model, input_ids=text, labels=text, room=1000).largest_batch == 0


def test_what_cannot_be_planned_is_an_error():
    model, text = wide("Llama", num_hidden_layers=1), words(2, 64)
    with pytest.raises(cermet.Error, match="expected a name"):
        cermet.memory(model, input_ids=text, options={"memory": "1GB"})
    with pytest.raises(cermet.Error, match="room: 'much' is no size"):
        cermet.memory(model, input_ids=text, room="much")
    with pytest.raises(cermet.Error, match="inductor.*expected a graph that direct calls run"):
        cermet.memory(model, input_ids=text, options={"remainder": "inductor"})


# --- A size as an option ---------------------------------------------------------------------------------------------


def stepped(model, text, memory):
    torch._dynamo.reset()
    call = torch.compile(model, backend="cermet", fullgraph=True, options={"strict": True, "memory": memory})
    loss = call(input_ids=text, labels=text).loss
    return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]


def test_a_size_is_held_or_refused_by_name():
    model, text = wide("Llama"), words(4, 256)
    most, least = (
        cermet.memory(model, input_ids=text, labels=text, options={"memory": memory}).planned
        for memory in ("auto", "least")
    )
    assert least < 0.8 * most
    wanted = stepped(model, text, "auto")
    for size in (most, (most + least) // 2, least, f"{least / 1e6 + 0.001:.3f} MB"):
        for _ in range(2):  # the second time from torch's cache
            for ours, true in zip(stepped(model, text, size), wanted):
                torch.testing.assert_close(ours, true, rtol=1e-4, atol=1e-5)
    with pytest.raises(Exception, match=rf"expected at least {least / 1e9:.3f} GB.*cermet.memory"):
        stepped(model, text, least - 1)


@pytest.mark.parametrize("given", ["much", "12 XB", 0, -1, True, 1.5, None])
def test_what_is_no_size_is_an_error(given):
    from cermet import options

    with pytest.raises(cermet.Error, match="option memory is .*expected one of 'fast', 'auto', 'least' or a size"):
        options.parse(None, {"memory": given})


def test_sizes_are_bytes():
    from cermet import options

    for written, size in (("12GB", 12 * 10**9), ("1.5 GiB", 3 * 2**29), ("800 mb", 8 * 10**8), (7, 7), ("7", 7)):
        assert options.parse(None, {"memory": written}).memory == size


def test_inductor_plans_no_memory():
    model, text = wide("Llama", num_hidden_layers=1), words(2, 64)
    call = torch.compile(model, backend="cermet", options={"remainder": "inductor", "memory": "1GB"})
    with pytest.raises(Exception, match="'inductor', which plans no memory"):
        call(input_ids=text, labels=text)
