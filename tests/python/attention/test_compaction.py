"""Batches with padding run a graph of what is shown alone: the same loss and gradients as with it, and logits at every
place for who looks."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
import transformers

import tiny_models
import truth
from attending import Counted
from cermet.attention import compaction, variants
from cermet.errors import Error
from reference_kernel import reference  # noqa: F401

LENGTH, VOCABULARY, WIDTH = 12, 64, 16
RIGHT = [(0, 9), (0, 12), (0, 1)]
LEFT = [(3, 12), (0, 12), (11, 12)]
pytestmark = pytest.mark.usefixtures("reference")


def shown(pieces, length=LENGTH) -> torch.Tensor:
    places = torch.arange(length)
    return torch.stack([(places >= first) & (places < behind) for first, behind in pieces]).long()


def compiled(module, **options):
    return torch.compile(module, backend="cermet", options={"strict": True, "remainder": "aot", **options})


def trained(run, model, text, mask, labels=None):
    """Loss and every gradient."""
    model.zero_grad()
    labels = text.where(mask.bool(), -100) if labels is None else labels
    found = run(input_ids=text, attention_mask=mask, labels=labels)
    found.loss.backward()
    grads = {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}
    return {"loss": found.loss.detach(), **grads}, found.logits


def same(ours, true, limit=2e-5):
    assert ours.keys() == true.keys()
    for name, value in true.items():  # a key's bias has no gradient but rounding
        assert value.norm() < 1e-9 or truth.relative(ours[name], value) < limit, name


def decoder(family="Llama", **changes):
    return tiny_models.tiny(family, torch.float64, attn_implementation="sdpa", **changes)


def encoder(family="Bert", **changes):
    config = getattr(transformers, f"{family}Config")(
        vocab_size=128, hidden_size=64, num_attention_heads=4, intermediate_size=96, attention_probs_dropout_prob=0.0,
        hidden_dropout_prob=0.0, attn_implementation="sdpa", **{"num_hidden_layers": 2, **changes},
    )  # fmt: skip
    model = transformers.AutoModelForMaskedLM.from_config(config)
    tiny_models.redraw(model, 0)
    return model.double()


# --- Models ----------------------------------------------------------------------------------------------------------

_EXPERTS = ("Mixtral", "Qwen2Moe")
DECODERS = [name for name, family in tiny_models.FAMILIES.items() if family.sdpa and name not in _EXPERTS]
ENCODERS = ["Bert", "Roberta", "Electra", "Albert"]


@pytest.mark.parametrize("family", [*DECODERS, *ENCODERS])
def test_loss_and_gradients_are_as_with_padding(family):
    layers = 2 if family in ("Llama", "Bert") else 1  # a second is like the first
    model = (encoder if family in ENCODERS else decoder)(family, num_hidden_layers=layers)
    text, mask, counted = tiny_models.words(3, LENGTH), shown(RIGHT), Counted()
    ours, true = (trained(run, model, text, mask)[0] for run in (compiled(model), model))
    same(ours, true)
    assert counted()["calls_compact"] == 1 and "calls_segmented" not in counted(), counted()


@pytest.mark.parametrize("family", ["Llama", "Cohere", "Phi3"])
def test_checkpointed_layers(family):
    model = decoder(family).train()
    text, mask, counted = tiny_models.words(3, LENGTH), shown(RIGHT), Counted()
    true = trained(model, model, text, mask)[0]
    model.gradient_checkpointing_enable()
    call = compiled(model)
    for _ in range(2):
        same(trained(call, model, text, mask)[0], true)
    assert counted()["calls_compact"] == 2, counted()


@pytest.mark.parametrize("masked", [RIGHT, LEFT, [(3, 9), (1, 12), (5, 6)]], ids=["right", "left", "both"])
def test_an_encoders_padding_may_be_anywhere(masked):
    model, counted = encoder(), Counted()
    mask = shown(masked)
    mask[1, 4:6] = 0  # in two pieces
    ours, true = (trained(run, model, tiny_models.words(3, LENGTH), mask)[0] for run in (compiled(model), model))
    same(ours, true)
    assert counted()["calls_compact"] == 1, counted()


def test_a_row_of_padding_alone():
    model, counted = decoder(), Counted()
    mask = shown([(0, 9), (0, 12), (0, 12)])
    text = tiny_models.words(3, LENGTH)
    call = compiled(model)
    same(trained(call, model, text, mask)[0], trained(model, model, text, mask)[0])
    with_none = torch.cat([mask, torch.zeros_like(mask[:1])]), torch.cat([text, text[:1]])
    found = trained(call, model, with_none[1], with_none[0])[0]
    same(found, trained(call, model, text, mask)[0])
    assert counted()["calls_compact"] == 3, counted()


# --- Calls -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dynamic", [None, True])
def test_one_graph_for_every_number_of_tokens(dynamic):
    model, counted = decoder(), Counted()
    call = torch.compile(model, backend="cermet", options={"strict": True, "remainder": "aot"}, dynamic=dynamic)
    lengths = (12, 9, 15) if dynamic else (12, 12, 12)
    for seed, length in enumerate(lengths):
        text = tiny_models.words(3, length, seed=seed)
        for kept in ((3, 1, length), (length - 1, 2, length - 3), (0, 0, 2), (1, 0, 0)):
            mask = shown([(0, one) for one in kept], length)
            if sum(kept) > 1:
                same(trained(call, model, text, mask)[0], trained(model, model, text, mask)[0])
            else:  # no label is left, and the loss is no number
                trained(call, model, text, mask)
    calls = counted()
    assert (calls["calls_compact"], calls["calls_padded"]) == (9, 3), calls  # a symbol is no size below two


def test_without_padding_another_graph_runs():
    model, counted = decoder(), Counted()
    call, text = compiled(model), tiny_models.words(3, LENGTH)
    for mask in (shown(RIGHT), shown([(0, LENGTH)] * 3), shown(RIGHT)):
        same(trained(call, model, text, mask)[0], trained(model, model, text, mask)[0])
    assert {name: times for name, times in counted().items() if name.startswith("calls_")} == {
        "calls_compact": 2, "calls_unpadded": 1,
    }  # fmt: skip


def test_labels_of_what_is_hidden_keep_it():
    """As under padding on the left, where what is hidden predicts the first word."""
    model, counted = decoder(), Counted()
    call, text = compiled(model), tiny_models.words(3, LENGTH)
    for mask, labels in ((shown(RIGHT), text), (shown(LEFT), None), (shown(RIGHT), None)):
        same(trained(call, model, text, mask, labels)[0], trained(model, model, text, mask, labels)[0])
    assert counted()["calls_segmented"] == 2 and counted()["calls_compact"] == 1, counted()


def test_under_autocast():
    model, counted = tiny_models.tiny("Llama", attn_implementation="sdpa"), Counted()
    call, text, mask = compiled(model), tiny_models.words(3, LENGTH), shown(RIGHT)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours, true = (trained(run, model, text, mask)[0] for run in (call, model))
    same(ours, true, 5e-2)
    assert counted()["calls_compact"] == 1, counted()


@pytest.mark.parametrize("remainder", ["inductor", "eager"])
def test_other_remainders(remainder):
    model, counted = decoder(), Counted()
    call, text, mask = compiled(model, remainder=remainder), tiny_models.words(3, LENGTH), shown(RIGHT)
    same(trained(call, model, text, mask)[0], trained(model, model, text, mask)[0])
    expected = "calls_segmented" if remainder == "eager" else "calls_compact"  # logits are never lazy there
    assert counted()[expected] == 1, counted()


# --- Logits ----------------------------------------------------------------------------------------------------------


def test_logits_are_those_of_every_place():
    model, counted = decoder(), Counted()
    call, text, mask = compiled(model), tiny_models.words(3, LENGTH), shown(RIGHT)
    for calls in ("calls_compact", "calls_segmented"):  # who looks once will look again
        ours, true = (trained(run, model, text, mask)[1] for run in (call, model))
        assert ours.shape == true.shape and ours.dtype == true.dtype and ours.requires_grad
        assert truth.relative(ours.detach(), true.detach()) < 2e-5
        assert counted()[calls] == 1, counted()


def test_logits_that_a_compiled_function_is_given():
    """They are made while that is compiled, under torch's lock."""
    model = decoder()
    text, mask = tiny_models.words(3, LENGTH), shown(RIGHT)
    ours, true = (trained(run, model, text, mask)[1] for run in (compiled(model), model))
    total = torch.compile(lambda logits: logits.detach().square().sum(), backend="aot_eager")
    assert truth.relative(total(ours), true.detach().square().sum()) < 2e-5


def test_logits_have_gradients():
    model = decoder()
    text, mask = tiny_models.words(3, LENGTH), shown(RIGHT)
    weight = torch.randn(3, LENGTH, tiny_models.VOCABULARY, dtype=torch.float64)
    results = []
    for run in (compiled(model), model):
        model.zero_grad()
        found = run(input_ids=text, attention_mask=mask, labels=text.where(mask.bool(), -100))
        (found.loss + (found.logits * weight).sum()).backward()
        results.append({name: each.grad.clone() for name, each in model.named_parameters()})
    same(*results)


def test_logits_of_weights_that_were_written_are_refused():
    model = decoder()
    text, mask = tiny_models.words(3, LENGTH), shown(RIGHT)
    _, logits = trained(compiled(model), model, text, mask)
    with torch.no_grad():
        next(model.parameters()).add_(1.0)
    with pytest.raises(Error, match='has been written since the forward pass.*"keep"'):
        logits.sum()


def test_kept_logits_keep_padding():
    model, counted = decoder(), Counted()
    text, mask = tiny_models.words(3, LENGTH), shown(RIGHT)
    ours, true = (trained(run, model, text, mask) for run in (compiled(model, logits="keep"), model))
    same(ours[0], true[0])
    assert truth.relative(ours[1].detach(), true[1].detach()) < 2e-5
    assert counted()["calls_segmented"] == 1, counted()


# --- What declines ---------------------------------------------------------------------------------------------------


class Small(torch.nn.Module):
    """One attention between what a test adds."""

    def __init__(self, before=None, after=None, more=None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.products = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY)
        self.before, self.after, self.more = before, after, more
        self.loss = F.cross_entropy

    def forward(self, input_ids, attention_mask, labels):
        hidden = self.words(input_ids)
        if self.before is not None:
            hidden = self.before(hidden)
        rows, length = input_ids.shape
        query, key, value = self.products(hidden).view(rows, length, 3, 2, WIDTH // 2).permute(2, 0, 3, 1, 4)
        mask = attention_mask[:, None, None, :].bool().expand(rows, 1, length, length)
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        hidden = hidden + attended.transpose(1, 2).reshape(rows, length, WIDTH)
        if self.after is not None:
            hidden = self.after(hidden)
        loss = self.loss(self.head(hidden).view(-1, VOCABULARY), labels.view(-1))
        return loss if self.more is None else (loss, self.more(hidden))


def taken(model, mask, batch=3, length=LENGTH) -> dict[str, int]:
    """Which graphs run, whose loss and gradients are right."""
    model = model.double()
    text, counted = torch.randint(VOCABULARY, (batch, length)), Counted()
    labels = text.where(mask.bool(), -100)
    results = []
    for run in (compiled(model), model):
        model.zero_grad()
        loss = run(text, mask, labels)
        loss = loss[0] if isinstance(loss, tuple) else loss
        loss.backward()
        results.append({"loss": loss.detach(), **{name: each.grad.clone() for name, each in model.named_parameters()}})
    same(*results)
    return {name: times for name, times in counted().items() if name.startswith("calls_")}


COMPACT, SEGMENTED = {"calls_compact": 1}, {"calls_segmented": 1}


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x,
        lambda x: torch.tanh(x) * 2 + x.sigmoid(),
        lambda x: F.layer_norm(x, (WIDTH,)),
        lambda x: torch.softmax(x, -1) + F.normalize(x, dim=-1) - x.mean(-1, keepdim=True),
        lambda x: torch.cat([x[..., WIDTH // 2 :], x[..., : WIDTH // 2].neg()], -1),
        lambda x: torch.stack([x[..., ::2], x[..., 1::2]], 2).flatten(2),
        lambda x: sum(x.chunk(2, -1)).repeat_interleave(2, -1),
        lambda x: x.view(-1, WIDTH).relu().view(x.shape),
        lambda x: x.unflatten(-1, (4, -1)).amax(-1, keepdim=True).expand(-1, -1, -1, 4).flatten(-2),
        lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
        lambda x: x * torch.linspace(0, 1, LENGTH, dtype=x.dtype)[None, :, None],
        lambda x: x.where(x > 0, x.exp() - 1),
        lambda x: F.dropout(x, 0.5, False),
    ],
)
def test_calls_that_treat_places_alike(call):
    assert taken(Small(call, call), shown(RIGHT)) == COMPACT


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x + x.mean(1, keepdim=True),
        lambda x: x + x.mean(0),
        lambda x: x + x.flip(1),
        lambda x: x + x.roll(1, 1),
        lambda x: x.cumsum(1),
        lambda x: torch.softmax(x, 1),
        lambda x: x + x[:, :1],
        lambda x: x[:, :-1].repeat(1, 2, 1)[:, :LENGTH],
        lambda x: F.layer_norm(x, x.shape[1:]),
        lambda x: x + (x @ x.transpose(1, 2)) @ x,
        lambda x: x.reshape(x.shape[0], -1, 2 * WIDTH).tanh().reshape(x.shape),
        lambda x: F.conv1d(x.transpose(1, 2), torch.ones(WIDTH, 1, 3, dtype=x.dtype), padding=1, groups=WIDTH).mT,
        lambda x: x.sort(1).values,
        lambda x: torch.cat(x.split([5, 7], 1)[::-1], 1),
        lambda x: x + torch.mean(input=x, dim=-1, keepdim=True),
        lambda x: torch.cat([x[:, :1], x[:, 1:]], 1),
        lambda x: x * torch.arange(3, dtype=x.dtype)[:, None, None],
        lambda x: x.clone().mul_(2),
        lambda x: x + 0 * torch.rand(x.shape[:2], dtype=x.dtype)[..., None],
        lambda x: x.max() + x,
        lambda x: x / x.norm(),
    ],
)
def test_calls_that_do_not_keep_padding(call):
    assert taken(Small(call), shown([(0, 9), (0, 12), (0, 3)])) == SEGMENTED


def test_places_as_many_as_columns_are_told_apart():
    keeping = taken(Small(lambda x: torch.softmax(x, -1)), shown([(0, WIDTH - 1)] * 3, WIDTH), length=WIDTH)
    mixing = taken(Small(lambda x: torch.softmax(x.mT, -1).mT), shown([(0, WIDTH - 1)] * 3, WIDTH), length=WIDTH)
    assert (keeping, mixing) == (COMPACT, SEGMENTED)


def test_one_row():
    assert taken(Small(torch.tanh), shown([(2, 9)]), batch=1) == COMPACT


@pytest.mark.parametrize("more", [lambda x: x, lambda x: x.sum(1), lambda x: x.mean()])
def test_other_results_of_places_keep_padding(more):
    assert taken(Small(more=more), shown([(0, 9), (0, 12), (0, 3)])) == SEGMENTED


def test_a_loss_of_each_place_keeps_padding():
    model = Small()
    model.loss = lambda *given: F.cross_entropy(*given, reduction="none").square().mean()
    assert taken(model, shown([(0, 9), (0, 12), (0, 3)])) == SEGMENTED


@pytest.mark.parametrize(
    "loss",
    [
        lambda *given: F.cross_entropy(*given, reduction="sum"),
        lambda *given: F.cross_entropy(*given, label_smoothing=0.1) * 3,
        lambda *given: F.cross_entropy(*given, weight=torch.linspace(0.5, 2, VOCABULARY, dtype=given[0].dtype)),
        lambda *given: F.cross_entropy(*given) + F.cross_entropy(given[0] * 2, given[1]),
    ],
)
def test_losses_that_ignore(loss):
    model = Small()
    model.loss = loss
    assert taken(model, shown(RIGHT)) == COMPACT


def checkpointed(function):
    return lambda x: torch.utils.checkpoint.checkpoint(function, x, use_reentrant=False)


@pytest.mark.parametrize(
    "call",
    [
        checkpointed(lambda x: torch.tanh(x) * torch.linspace(0, 1, LENGTH, dtype=x.dtype)[None, :, None]),
        lambda x: torch.cat(checkpointed(lambda x: (x[..., ::2].exp(), x.view(-1, WIDTH).sin().view(x.shape)))(x), -1)[
            ..., WIDTH // 2 :
        ],
    ],
)
def test_bodies_that_treat_places_alike(call):
    assert taken(Small(call), shown(RIGHT)) == COMPACT


@pytest.mark.parametrize(
    "call",
    [
        checkpointed(lambda x: x.cumsum(1)),
        checkpointed(checkpointed(torch.tanh)),
        lambda x: checkpointed(lambda x: (x, x.new_ones(3)))(x)[0],
    ],
)
def test_bodies_that_keep_padding(call):
    assert taken(Small(call), shown([(0, 9), (0, 12), (0, 3)])) == SEGMENTED


def test_a_loss_in_a_body_keeps_padding():
    model = Small()
    model.loss = lambda *given: torch.utils.checkpoint.checkpoint(F.cross_entropy, *given, use_reentrant=False)
    assert taken(model, shown([(0, 9), (0, 12), (0, 3)])) == SEGMENTED


def test_what_declined_is_not_asked_again(monkeypatch):
    asked = []
    call = variants.Shown.__call__
    monkeypatch.setattr(variants.Shown, "__call__", lambda *given: asked.append(1) or call(*given))
    model, mask = Small(lambda x: x.cumsum(1)).double(), shown(RIGHT)
    text, run = torch.randint(VOCABULARY, (3, LENGTH)), compiled(model)
    for _ in range(3):
        run(text, mask, text.where(mask.bool(), -100))
    assert len(asked) == 1


def test_a_failure_leaves_the_graph_as_it_was(monkeypatch):
    """One of ours, in the middle of the rewrite."""

    def fails(self, output, recalls):
        raise ZeroDivisionError

    monkeypatch.setattr(compaction._Outermost, "_return", fails)
    model, mask, counted = Small().double(), shown(RIGHT), Counted()
    text = torch.randint(VOCABULARY, (3, LENGTH))
    run = compiled(model, strict=False)
    labels = text.where(mask.bool(), -100)
    torch.testing.assert_close(run(text, mask, labels), model(text, mask, labels))
    assert counted()["calls_segmented"] == 1 and counted()["fallbacks"] == 1, counted()
