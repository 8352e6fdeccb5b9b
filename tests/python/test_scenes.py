"""What users do, in tiny sizes: loss and every gradient against float64, how often our kernels are launched, which
calls that move memory are ATen's, and that Inductor gets nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._inductor.compile_fx
import torch.nn.functional as F
import transformers

import cermet
import truth
from cermet.graph import seeded
from cermet.report.runs import MEMORY
from tiny_models import LAYERS, VOCABULARY, redraw, tiny, words

HIDDEN, RANK = 64, 4
TOKENS, SMALL = 1 << 14, 1 << 18  # words of many rows, bytes
Batch = dict[str, torch.Tensor]
SIZES = dict(hidden_size=HIDDEN, intermediate_size=96, num_hidden_layers=LAYERS, num_attention_heads=4)


class Adapted(torch.nn.Module):
    """A frozen product with one of a low rank beside it."""

    def __init__(self, product: torch.nn.Linear) -> None:
        super().__init__()
        self.product = product.requires_grad_(False)
        self.down = torch.nn.Linear(product.in_features, RANK, bias=False)
        self.up = torch.nn.Linear(RANK, product.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.product(x) + self.up(self.down(x)) * 0.5


def vit() -> torch.nn.Module:
    config = transformers.ViTConfig(**SIZES, image_size=16, patch_size=4, num_labels=3)
    return transformers.ViTForImageClassification(config)


def bert() -> torch.nn.Module:
    """Its attention, too, is of plain operations, whose dropout is one of them."""
    config = transformers.BertConfig(**SIZES, vocab_size=VOCABULARY, max_position_embeddings=32)
    config._attn_implementation = "eager"
    return transformers.BertForMaskedLM(config)


def gpt2() -> torch.nn.Module:
    config = transformers.GPT2Config(
        n_embd=HIDDEN, n_layer=LAYERS, n_head=4, vocab_size=VOCABULARY, n_positions=32, use_cache=False,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def experts() -> torch.nn.Module:
    return tiny("Qwen3Moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)


def adapted() -> torch.nn.Module:
    model = tiny("Qwen2").requires_grad_(False)
    for part in list(model.modules()):
        for name, child in list(part.named_children()):
            if isinstance(child, torch.nn.Linear) and child is not model.lm_head:
                setattr(part, name, Adapted(child))
    return model


def pictures(seed: int) -> Batch:
    random = torch.Generator().manual_seed(seed)
    return {"pixel_values": torch.randn(2, 3, 16, 16, generator=random), "labels": torch.tensor([seed % 3, 2])}


def masked(seed: int) -> Batch:
    text = words(seed=seed)
    hidden = torch.rand(text.shape, generator=torch.Generator().manual_seed(seed)) < 0.7
    return {"input_ids": text, "attention_mask": torch.ones_like(text), "labels": text.masked_fill(hidden, -100)}


def text(seed: int) -> Batch:
    return {"input_ids": words(seed=seed), "labels": words(seed=seed)}


def many(batch: Batch) -> Batch:
    """As many rows as make a call of one tensor move a megabyte and more."""
    rows = TOKENS // (batch["input_ids"].numel() if "input_ids" in batch else 2 * 17)
    return {name: value.repeat(rows, *(1,) * (value.dim() - 1)) for name, value in batch.items()}


@dataclasses.dataclass(frozen=True)
class Scene:
    """`launches` of a step with many rows, and the calls of ATen's that it is `left` with: those that move memory and
    are no product and no attention, but for what moves less than SMALL."""

    model: Callable[[], torch.nn.Module]
    batch: Callable[[int], Batch]
    launches: dict[str, int]
    left: dict[str, dict[str, int]]
    dropouts: int = 0  # in regions, of the program's
    torchs: tuple[int, ...] = ()  # other dropouts, by their places
    types: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16)


# Of all: labels moved by one, tables' gradients and copies into another order of memory (heads, a convolution's rows)
# are ATen's; so is the GELU of the error function, which ATen is faster at where nothing else is computed with it. A head's
# bias is joined with its weight by copies, one of the hidden state's size among them.
SCENES = {
    # The last residual's sum is kept in place of its terms, and its norm made again for the head.
    "ViT": Scene(
        vit,
        pictures,
        {"forward": 8, "backward": 17},
        {"forward": {"cat": 2}, "backward": {"select_backward": 1}},
    ),
    # Its mask is made of places once for all rows, in the forward and in the backward; the dropout of the embeddings
    # stands behind what reads tables. A residual's gradient is added behind a norm that is made again.
    "BERT, masked words, dropout": Scene(
        bert,
        masked,
        {"forward": 11, "backward": 24},
        {
            "forward": {"clone": 8, "native_dropout": 1, "constant_pad_nd": 2, "where": 1, "bitwise_and": 2},
            "backward": {"clone": 8, "add": 2, "where": 1, "bitwise_and": 1, "embedding_dense_backward": 3},
        },
        3 * LAYERS,
        (0,),
    ),
    # A gradient of packed queries, keys and values is joined by the kernel that sums its rows.
    "GPT-2": Scene(
        gpt2,
        text,
        {"forward": 8, "backward": 10},
        {"forward": {"constant_pad_nd": 1}, "backward": {"embedding_dense_backward": 2}},
    ),
    # Words go to their experts by sorted places, among which a search finds where each expert's end; back, and in
    # gradients, the order's inverse chooses them. Of equal products of few operations, which take too long together,
    # none is made again.
    "Qwen3-MoE": Scene(
        experts,
        text,
        {"forward": 14, "backward": 19},
        {
            "forward": {
                "index": 4, "index_put_": 2, "sort": 2, "topk": 2, "_to_copy": 6, "floor_divide": 2,
                "constant_pad_nd": 1, "arange": 3, "searchsorted": 2,
            },  # fmt: skip
            "backward": {
                "scatter_": 2, "index": 2, "new_zeros": 2, "_to_copy": 2, "embedding_dense_backward": 1,
            },  # fmt: skip
        },
        types=(torch.float32,),
    ),
    # A gate and what it gates are kept in place of what they are made of, and their product is made again.
    "LoRA": Scene(
        adapted,
        text,
        {"forward": 16, "backward": 17},
        {"forward": {"constant_pad_nd": 1}, "backward": {}},
    ),
}


@pytest.fixture(autouse=True)
def without_inductor(monkeypatch):
    def compile_fx(*_: Any, **__: Any) -> None:
        raise AssertionError("a graph went to Inductor")

    monkeypatch.setattr(torch._inductor.compile_fx, "compile_fx", compile_fx)


def in_type(batch: Batch, dtype: torch.dtype) -> Batch:
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in batch.items()}


def left_of(found: cermet.Explanation) -> dict[str, dict[str, int]]:
    return {run.kind: {call.op[5:]: call.times for call in run.calls_of(MEMORY) if call.bytes_moved >= SMALL}
            for run in found.runs}  # fmt: skip


def step(model: torch.nn.Module, call: Callable[..., Any], batch: Batch) -> dict[str, torch.Tensor]:
    model.zero_grad(set_to_none=True)
    loss = call(**batch).loss
    loss.backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.requires_grad}
    return {"loss": loss.detach()} | {name: value for name, value in found.items() if value is not None}


class Masks:
    """Makes torch's dropouts those of a compiled graph that runs with the same state of the generator: in the order of
    the program, those in regions with a seed each of one draw (docs/design.md)."""

    def __init__(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        self._scene = scene
        self._place, self._seeds = 0, iter(())
        if scene.dropouts:
            monkeypatch.setattr(F, "dropout", self._dropout)

    def draw(self, seed: int) -> None:
        assert next(self._seeds, None) is None, "fewer dropouts ran than the graph has"
        torch.manual_seed(seed)
        self._place = 0
        if self._scene.dropouts:
            self._seeds = iter(torch.randint(seeded.SEEDS, (self._scene.dropouts,)).unbind())

    def _dropout(self, x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
        self._place += 1
        if self._place - 1 in self._scene.torchs:
            return torch.native_dropout(x, p, training)[0]
        return seeded.dropout(x, p, next(self._seeds))


@pytest.mark.parametrize("name", SCENES)
def test_what_is_launched_and_what_is_left_to_aten(name):
    scene = SCENES[name]
    torch.manual_seed(0)
    model = scene.model().to(torch.bfloat16).train()
    found = cermet.explain(model, **many(in_type(scene.batch(0), torch.bfloat16)))
    assert found.graph_breaks == [] and found.graphs == 1 and found.remainders[0].startswith("aot: ")
    assert (found.launches, left_of(found)) == (scene.launches, scene.left), str(found)


CASES = [(name, dtype) for name, scene in SCENES.items() for dtype in scene.types]


class Steps:
    """Steps of a scene, compiled, by eager and in float64, on data and weights of a seed each."""

    def __init__(self, scene: Scene, dtype: torch.dtype) -> None:
        torch.manual_seed(0)
        self.scene, self.dtype = scene, dtype
        self.model = scene.model().to(dtype).train()
        self.call = torch.compile(self.model, backend="cermet", fullgraph=True, options={"strict": True})
        self.ours: dict[int, dict[str, torch.Tensor]] = {}

    def batch(self, seed: int) -> Batch:
        redraw(self.model, seed)
        torch.manual_seed(seed)
        return in_type(self.scene.batch(seed), self.dtype)

    def run(self, seeds: range) -> None:
        for seed in seeds:
            batch = self.batch(seed)
            self.ours[seed] = {key: value.clone() for key, value in step(self.model, self.call, batch).items()}

    def errors(self, masks: Masks) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
        """Of what ran and of eager, by tensor."""
        errors: tuple[dict[str, list[float]], ...] = {}, {}
        for seed, ours in self.ours.items():
            batch = self.batch(seed)
            masks.draw(seed)
            eager = step(self.model, self.model, batch)
            wide = truth.double(self.model)
            wide.config._experts_implementation = "eager"  # no product of groups is there in float64
            masks.draw(seed)
            with truth.Float64():
                true = step(wide, wide, batch)
            assert ours.keys() == eager.keys() == true.keys()
            for into, values in zip(errors, (ours, eager)):
                for key, value in values.items():
                    into.setdefault(key, []).append(truth.relative(value, true[key]))
        return errors


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=lambda value: str(value).removeprefix("torch."))
def test_a_step_is_as_near_to_float64_as_eager(name, dtype, monkeypatch):
    scene = SCENES[name]
    steps = Steps(scene, dtype)
    launches = cermet.explain(steps.model, **steps.batch(0)).launches
    before = cermet.counters()
    steps.run(range(truth.EVERY_SEED))
    after = cermet.counters()
    made = {name: after[name] - before[name] for name in ("launches", "dropouts", "fallbacks", "late_gradients")}
    expected = {"launches": truth.EVERY_SEED * sum(launches.values()), "dropouts": scene.dropouts}
    assert made == expected | {"fallbacks": 0, "late_gradients": 0}
    with monkeypatch.context() as patch:
        errors = steps.errors(Masks(scene, patch))
    far = truth.far_from_eager(*errors, dtype)
    if far:  # which may be luck: a loss, or a gradient that is nothing but rounding
        steps.run(range(truth.EVERY_SEED, truth.MEDIAN_SEEDS))
        errors = steps.errors(Masks(scene, monkeypatch))
        truth.assert_far_no_more_often_than_eager(*({key: one[key] for key in far} for one in errors), dtype)


# --- Lengths and single tokens ---------------------------------------------------------------------------------------


def test_lengths_share_two_graphs_and_each_is_as_near_to_float64_as_eager():
    """With the mask that tokenizers give, of ones."""
    model = tiny("Llama").train()
    call = torch.compile(model, backend="cermet", options={"strict": True})
    before, launches = cermet.counters(), set()
    for seed, length in enumerate((16, 12, 24, 9, 31)):
        redraw(model, seed)
        given = words(length=length, seed=seed)
        batch = {"input_ids": given, "attention_mask": torch.ones_like(given), "labels": given}
        since = cermet.counters()["launches"]
        ours = {key: value.clone() for key, value in step(model, call, batch).items()}
        launches.add(cermet.counters()["launches"] - since)
        eager, wide = step(model, model, batch), truth.double(model)
        with truth.Float64():
            true = step(wide, wide, batch)
        errors = [{key: [truth.relative(value, true[key])] for key, value in one.items()} for one in (ours, eager)]
        truth.assert_none_is_far_from_eager(*errors, torch.float32)
    after = cermet.counters()
    assert after["graphs"] - before["graphs"] == 2 and after["fallbacks"] == before["fallbacks"]
    assert len(launches) <= 2, f"launches of a step, of each graph the same: {launches}"


@torch.no_grad()
def test_tokens_one_by_one_are_as_near_to_float64_as_eager_and_no_cache_is_copied():
    filled, more, room = 6, 5, 32
    model, text = tiny("Llama").eval(), words(rows=3, length=filled + more)
    wide = truth.double(model)
    with truth.Float64():
        true = wide(input_ids=text).logits

    def token(call, cache, place):
        return call(input_ids=text[:, place : place + 1], past_key_values=cache, use_cache=True).logits[:, -1]

    def begun():
        cache = transformers.StaticCache(config=model.config, max_cache_len=room)
        model(input_ids=text[:, :filled], past_key_values=cache, use_cache=True)
        return cache

    found = cermet.explain(model, input_ids=text[:, :1], past_key_values=begun(), use_cache=True)
    (run,) = found.runs
    calls = {call.op: call for call in run.calls_of(MEMORY)}
    keys = 3 * 2 * room * 16 * 4  # bytes of one layer's
    assert calls["aten.index_copy_"].times == 2 * LAYERS
    wholes = [call for call in calls.values() if call.bytes_moved >= call.times * keys]
    assert wholes == [], "each a copy of a cache"
    call = torch.compile(model, backend="cermet", fullgraph=True, options={"strict": True})
    ours, theirs = begun(), begun()
    for place in range(filled, filled + more):
        before = cermet.counters()["launches"]
        results = [token(call, ours, place), None]
        assert cermet.counters()["launches"] - before == found.launches["inference"] > 0
        results[1] = token(model, theirs, place)
        errors = [{"logits": [truth.relative(result, true[:, place])]} for result in results]
        truth.assert_none_is_far_from_eager(*errors, torch.float32)
