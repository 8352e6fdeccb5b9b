"""The plan that `cermet.explain` tells: it is what autograd keeps, for whom, and what the backward makes again."""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from tiny_models import VOCABULARY, tiny, words

import cermet
from cermet.options import KEEPING
from cermet.rematerialization import plan as plans

LAYERS = 2


def llama() -> torch.nn.Module:
    return tiny("Llama", hidden_size=256, intermediate_size=768, num_hidden_layers=LAYERS).train()


def bert() -> torch.nn.Module:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=256, intermediate_size=512, num_hidden_layers=1, num_attention_heads=4
    )
    return transformers.BertForMaskedLM(config).train()


MODELS = {"Llama": llama, "BERT": bert}


def inputs(model: torch.nn.Module, symbolic: bool = False) -> dict[str, torch.Tensor]:
    text = words(2, 64)
    if symbolic:
        torch._dynamo.mark_dynamic(text, 1)
    return {"input_ids": text, "labels": text}


def explained(model: torch.nn.Module, memory: str = "auto", symbolic: bool = False) -> plans.Plan:
    (found,) = cermet.explain(model, options={"memory": memory}, **inputs(model, symbolic)).plans
    return found


@functools.cache
def told(family: str = "Llama", memory: str = "auto", symbolic: bool = False) -> plans.Plan:
    """Asked once: nothing changes a plan."""
    return explained(MODELS[family](), memory, symbolic)


def compiled(node: Any) -> Iterator[Any]:
    """The compiled functions that a loss came from."""
    pending, seen = [node], set()
    while pending:
        each = pending.pop()
        if each is None or each in seen:
            continue
        seen.add(each)
        if each.name() == "CompiledFunctionBackward":
            yield each
        pending += [behind for behind, _ in each.next_functions]


def kept_by_autograd(model: torch.nn.Module, memory: str, symbolic: bool) -> int:
    """Bytes that the autograd functions of a compiled model keep, of what nobody else holds."""
    torch._dynamo.reset()
    call = torch.compile(model, backend="cermet", options={"remainder": "aot", "strict": True, "memory": memory})
    given = inputs(model, symbolic)
    others = {each.untyped_storage().data_ptr() for each in (*model.parameters(), *model.buffers(), *given.values())}
    with torch._functorch.config.patch(enable_autograd_cache=False):
        loss = call(**given).loss
    storages = [each.untyped_storage() for node in compiled(loss.grad_fn) for each in node.saved_tensors]
    kept = {storage.data_ptr(): storage.nbytes() for storage in storages if storage.data_ptr() not in others}
    loss.backward()
    return sum(kept.values())


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("memory", KEEPING)
@pytest.mark.parametrize("family", MODELS)
def test_what_is_told_is_what_autograd_keeps(family, memory, symbolic):
    assert told(family, memory, symbolic).saved_bytes == kept_by_autograd(MODELS[family](), memory, symbolic)


def by_layers(rows: tuple) -> dict[Any, int]:
    return dict(collections.Counter(rows))


def test_each_value_has_readers_and_a_reason_and_equal_layers_are_one_row():
    plan = told()
    assert all(saved.readers and saved.why for saved in plan.saved)
    gates = [saved for saved, times in by_layers(plan.saved).items() if times == 2 * LAYERS]
    (gate,) = [saved for saved in gates if saved.value == "f32[128, 768]"]  # and up
    assert gate.made_by.name == "aten.mm" and gate.made_by.source.endswith("* self.up_proj(x))")
    assert gate.bytes == 128 * 768 * 4 and "a product" in gate.why
    assert gate.again >= (128 * 256 + 256 * 768 + 128 * 768) * 4 and gate.microseconds == gate.again / 4e6
    assert [reader.source for reader in gate.readers] == [gate.made_by.source]


def test_what_is_made_again_is_not_kept():
    for memory in KEEPING:
        plan = told(memory=memory)
        assert not {each.at for each in plan.again} & {each.at for each in plan.saved}, memory


def test_a_gated_units_product_is_a_further_store():
    """Of the kernel of its gradient, whose bytes are all that it adds."""
    again = by_layers(told().again)
    ((product, times),) = [item for item in again.items() if item[0].made_by.name == "glu_forward"]
    assert times == LAYERS and product.where == plans.STORE and product.kernel.name != "glu_forward"
    assert product.spared == product.moved == 128 * 768 * 4
    assert not [each for each in told(memory="fast").again if each.made_by.name == "glu_forward"]


def test_rows_of_a_large_table_are_read_again():
    """Which costs what is read of the table, however large that is."""
    model = tiny("Llama", hidden_size=256, intermediate_size=768, num_hidden_layers=1, vocab_size=16384).train()
    plan = explained(model)
    (rows,) = [each for each in plan.again if each.made_by.name == "aten.embedding"]
    assert rows.values == ("f32[2, 64, 256]",) and rows.spared == 128 * 256 * 4
    assert not [saved for saved in plan.saved if saved.made_by.name == "aten.embedding"]


def test_less_is_kept_and_more_is_made_again_the_dearer_memory_is():
    found = {memory: told(memory=memory) for memory in KEEPING}
    fast, auto, least = (found[memory] for memory in ("fast", "auto", "least"))
    assert fast.saved_bytes > auto.saved_bytes > least.saved_bytes
    assert fast.microseconds <= auto.microseconds < least.microseconds
    assert (fast.price, auto.price, least.price) == tuple(KEEPING[memory].price for memory in KEEPING)
    assert all("torch's partitioner" in saved.why or saved.again is None for saved in fast.saved)
    assert {plan.memory for plan in found.values()} == set(KEEPING)


@pytest.mark.parametrize("memory", KEEPING)
def test_the_peak_is_the_one_that_is_planned(memory):
    model = llama()
    planned = cermet.memory(model, options={"memory": memory}, **inputs(model)).planned
    assert explained(model, memory).peak == planned


def test_a_size_is_held_or_refused_by_name():
    model, text = llama(), words(4, 256)

    def held(memory: str | int) -> plans.Plan:
        (plan,) = cermet.explain(model, options={"memory": memory}, input_ids=text, labels=text).plans
        return plan

    peaks = {memory: held(memory).peak for memory in ("auto", "least")}
    plan = held(peaks["least"])
    assert plan.peak <= peaks["least"] < peaks["auto"] and plan.memory == f"{peaks['least']:,} bytes"
    with pytest.raises(cermet.Error, match="option memory is .*expected at least"):
        held(peaks["least"] // 2)
    with pytest.raises(cermet.Error, match="option memory is 'some'"):
        explained(model, "some")


def test_inference_keeps_nothing():
    model = llama().eval()
    with torch.no_grad():
        assert cermet.explain(model, **inputs(model)).plans == []


def test_a_checkpoint_asks():
    weight = torch.randn(64, 64, requires_grad=True)

    def layer(x):
        return torch.sin(torch.cos(x @ weight) @ weight)

    def function(x):
        return torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum()

    (plan,) = cermet.explain(function, torch.randn(32, 64), options={"memory": "fast"}).plans
    products = [again for again in plan.again if again.made_by.name == "aten.mm"]
    assert len(products) == 2 and all(again.asked and again.where == plans.OWN for again in products)
    assert not plan.saved


def test_a_checkpoint_that_draws_numbers_keeps_what_they_follow_from():
    weight = torch.randn(64, 64, requires_grad=True)

    def layer(x):
        return torch.sin(torch.rand_like(x) * (x @ weight))

    def function(x):
        return torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum()

    (plan,) = cermet.explain(function, torch.randn(32, 64)).plans
    (drawn,) = [again for again in plan.again if again.made_by.name == "aten.rand_like"]
    assert drawn.asked and drawn.moved is None and drawn.where == plans.OWN
    (state,) = plan.saved
    assert state.bytes == torch.get_rng_state().nbytes and state.again is None
    assert "torch.utils.checkpoint" in state.why and state.readers


def test_what_draws_numbers_says_so():
    def function(x, weight):
        return (torch.rand_like(x) * (x @ weight)).sum()

    (plan,) = cermet.explain(function, torch.randn(8, 8), torch.randn(8, 8, requires_grad=True)).plans
    assert [(saved.again, saved.why) for saved in plan.saved] == [(None, "it draws numbers")]


def test_what_the_backend_compiles_is_told_too(monkeypatch, capsys):
    model = llama()
    expected = explained(model, "least")
    monkeypatch.setenv("CERMET_EXPLAIN", "1")
    call = torch.compile(model, backend="cermet", options={"strict": True, "memory": "least"})
    with torch._functorch.config.patch(enable_autograd_cache=False):
        call(**inputs(model))
    said = " ".join(capsys.readouterr().err.split())
    assert f"memory 'least': {expected.saved_bytes:,} bytes of {len(expected.saved)} values" in said
    assert f"{expected.spared_bytes:,} bytes are made again in {expected.microseconds:,.1f} microseconds" in said


@pytest.mark.parametrize("where", ["noting.of", "liveness.crossing"])
def test_a_plan_that_fails_fails_no_compile(monkeypatch, caplog, where):
    from cermet import rematerialization

    def fails(*_: object) -> None:
        raise ZeroDivisionError("broken on purpose")

    module, _, name = where.partition(".")
    monkeypatch.setattr(getattr(rematerialization, module), name, fails)
    monkeypatch.setenv("CERMET_EXPLAIN", "1")
    model = llama()
    call = torch.compile(model, backend="cermet", options={"strict": True})
    with torch._functorch.config.patch(enable_autograd_cache=False):
        call(**inputs(model)).loss.backward()
    assert "a graph is not explained: ZeroDivisionError: broken on purpose" in caplog.text


def test_the_page_tells_it():
    model = llama()
    found = cermet.explain(model, **inputs(model))
    (plan,), page = found.plans, found.html()
    for title, rows in (("saved-0", plan.saved), ("again-0", plan.again)):
        _, _, section = page.partition(f'id="{title}"')
        assert section.partition("</section>")[0].count("<tr><td>") == len(by_layers(rows)) > 0
    assert f"{plan.saved_bytes:,} bytes of {len(plan.saved)} values" in page and "a product" in page


def test_the_text_tells_it():
    model = llama()
    found = cermet.explain(model, options={"memory": "least"}, **inputs(model))
    (plan,), (_, title, text) = found.plans, str(found).partition("saved for the backward, memory 'least': ")
    assert title and f"{plan.saved_bytes:,} bytes of {len(plan.saved)} values" in text
    assert f"{plan.peak:,} bytes" in " ".join(text.split())
    assert "kept: " in text and "made again" in text and "a further store of cluster" in text
    assert all(len(line) <= 120 for line in text.splitlines()), text
