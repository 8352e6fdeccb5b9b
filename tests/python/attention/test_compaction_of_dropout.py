"""Batches with padding whose layers drop elements: the numbers are those of a graph of all places with the masks that
the shown ones drew."""

from __future__ import annotations

import cermet
import pytest
import torch
import torch.nn.functional as F
import transformers
from torch.utils.checkpoint import checkpoint

import tiny_models
import truth
from attending import Counted
from cermet.graph import seeded
from reference_kernel import kept, reference  # noqa: F401
from test_compaction import LENGTH, RIGHT, Small, compiled, same, shown, taken, trained

DROPPED = 0.5
PIECES = [(3, 9), (0, 12), (11, 12)]
pytestmark = pytest.mark.usefixtures("reference")


def encoder(attention: float = 0.0, hidden: float = DROPPED) -> torch.nn.Module:
    config = transformers.BertConfig(
        vocab_size=tiny_models.VOCABULARY, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=96, hidden_dropout_prob=hidden, attention_probs_dropout_prob=attention,
        attn_implementation="sdpa",
    )  # fmt: skip
    model = transformers.AutoModelForMaskedLM.from_config(config)
    tiny_models.redraw(model, 0)
    return model.train()


@pytest.fixture
def told(monkeypatch):
    """Gives eager's dropouts their masks, one after the other: each of the shown places alone."""

    def tell(mask, draw):
        def forward(self, x):
            scale = torch.ones_like(x)
            scale[mask.bool()] = draw((1, int(mask.sum()), x.shape[-1]), x.dtype)[0]
            return x * scale

        monkeypatch.setattr(torch.nn.Dropout, "forward", forward)

    return tell


def of_torch(shape, dtype):
    return F.dropout(torch.ones(shape, dtype=dtype), DROPPED)


def test_the_masks_are_those_that_the_shown_places_draw(told):
    model, counted = encoder().double(), Counted()
    text, mask, call = tiny_models.words(3, LENGTH), shown(PIECES), compiled(model)
    states = []
    for step in range(2):
        torch.manual_seed(step)
        states.append(trained(call, model, text, mask)[0])
    told(mask, of_torch)
    for step, ours in enumerate(states):
        torch.manual_seed(step)
        same(ours, trained(model, model, text, mask)[0])
    assert states[0]["loss"] != states[1]["loss"]
    assert counted()["calls_compact"] == 2, counted()


def test_regions_have_masks_of_their_own(told):
    model, counted, before = encoder(), Counted(), cermet.counters()["dropouts"]
    text, mask, call = tiny_models.words(3, LENGTH), shown(PIECES), compiled(model)
    torch.manual_seed(1)
    ours = trained(call, model, text, mask)[0]
    dropouts = cermet.counters()["dropouts"] - before
    assert counted()["calls_compact"] == 1 and dropouts == 4, counted()  # the words' is torch's

    torch.manual_seed(1)
    seeds = iter(torch.randint(seeded.SEEDS, (dropouts,)))
    words = [of_torch((1, int(mask.sum()), 64), torch.float32).double()]

    def draw(shape, dtype):
        return words.pop() if words else seeded.dropout(torch.ones(shape, dtype=dtype), DROPPED, next(seeds))

    told(mask, draw)
    same(ours, trained(model.double(), model, text, mask)[0])


class Adapted(torch.nn.Module):
    """What low-rank adapters do: what drops stands in front of a product alone."""

    def __init__(self, checkpointed: bool) -> None:
        super().__init__()
        self.wide, self.low, self.high = (torch.nn.Linear(*sizes) for sizes in ((16, 16), (16, 4), (4, 16)))
        self.dropout, self.checkpointed = torch.nn.Dropout(DROPPED), checkpointed

    def adapted(self, x):
        return self.wide(x) + self.high(self.low(self.dropout(x)))

    def forward(self, x):
        return checkpoint(self.adapted, x, use_reentrant=False) if self.checkpointed else self.adapted(x)


@pytest.mark.parametrize("checkpointed", [False, True])
def test_what_drops_in_front_of_a_product_alone(told, checkpointed):
    mask, counted = shown(RIGHT), Counted()
    model = Small(before=Adapted(checkpointed), after=Adapted(checkpointed)).double()
    text = torch.randint(64, (3, LENGTH))
    results = []
    for run in (compiled(model), model):
        model.zero_grad()
        torch.manual_seed(2)
        loss = run(text, mask, text.where(mask.bool(), -100))
        loss.backward()
        results.append({"loss": loss.detach(), **{name: each.grad.clone() for name, each in model.named_parameters()}})
        told(mask, of_torch)
    same(*results)
    assert counted()["calls_compact"] == 1, counted()


def test_logits_that_are_looked_at_are_of_a_draw_of_their_own():
    """Of a call; behind it calls keep their padding, and loss and logits are of one draw."""
    model, counted = encoder().double(), Counted()
    text, mask, call = tiny_models.words(3, LENGTH), shown(PIECES), compiled(model)
    labels = text.where(mask.bool(), -100)
    first, second = (call(input_ids=text, attention_mask=mask, labels=labels) for _ in range(2))
    assert counted()["calls_compact"] == 2, counted()
    assert first.logits.isfinite().all() and not torch.equal(first.logits, second.logits)
    (gradient,) = torch.autograd.grad(first.logits.square().sum(), [model.cls.predictions.transform.dense.weight])
    assert gradient.isfinite().all() and gradient.norm() > 0

    third = call(input_ids=text, attention_mask=mask, labels=labels)
    assert counted()["calls_segmented"] == 1, counted()
    loss = F.cross_entropy(third.logits.flatten(0, 1), labels.flatten())
    assert truth.relative(third.loss.detach(), loss.detach()) < 2e-5


@pytest.mark.parametrize(
    "call",
    [
        lambda x: F.dropout(x, DROPPED, inplace=True),
        lambda x: F.dropout(x, 1.0) + x,
        lambda x: F.alpha_dropout(x, DROPPED, True),
        lambda x: torch.rrelu(x, 0.1, 0.2, True),
        lambda x: x + 0 * F.dropout(torch.ones(3, 1, 1, dtype=x.dtype), DROPPED),
    ],
)
def test_other_random_numbers_keep_padding(call):
    with torch.random.fork_rng():
        model, mask = Small(call).double(), shown(RIGHT)
        text, counted = torch.randint(64, (3, LENGTH)), Counted()
        compiled(model)(text, mask, text.where(mask.bool(), -100)).backward()
    assert "calls_compact" not in counted(), counted()


def test_what_drops_nothing_draws_nothing():
    assert taken(Small(lambda x: F.dropout(x, 0.0)), shown(RIGHT)) == {"calls_compact": 1}


def test_attention_drops_for_what_is_shown(monkeypatch):
    model, counted = encoder(DROPPED, hidden=0.0).double(), Counted()
    text, mask = tiny_models.words(3, LENGTH), shown(PIECES)
    torch.manual_seed(2)
    ours = trained(compiled(model), model, text, mask)[0]
    tokens = int(mask.sum())

    def attend(query, key, value, attn_mask=None, dropout_p=0.0, **_):
        drawn = kept(torch.randint(1 << 62, (2,)), query.shape[1], tokens, tokens, dropout_p)
        factors, begin = torch.ones(*query.shape[:3], LENGTH, dtype=torch.float64), 0
        for row, places in enumerate(map(torch.nonzero, mask)):
            end = begin + len(places)
            factors[row][:, places, places.T] = drawn[:, begin:end, begin:end]
            begin = end
        scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
        return (torch.softmax(scores.masked_fill(~mask[:, None, None].bool(), float("-inf")), -1) * factors) @ value

    monkeypatch.setattr(F, "scaled_dot_product_attention", attend)
    torch.manual_seed(2)
    same(ours, trained(model, model, text, mask)[0])
    assert counted()["calls_compact"] == 1 and counted()["padding_masks"] == 2, counted()
