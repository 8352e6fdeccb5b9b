"""Which rows a head multiplies is asked before the graph's other work, where its inputs tell."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F

import graphs
from cermet.loss import kept
from cermet.remainder import foresight, straight
from tiny_models import tiny, words

BUDGET = 8192  # bytes of logits: heads come in pieces
HIDDEN, COLUMNS, ROWS = 32, 96, 200


@pytest.fixture
def written(monkeypatch):
    """The sources of the graphs that are made."""
    sources: list[str] = []
    write = straight._write

    def heard(*arguments):
        source, constants = write(*arguments)
        names = {name: str(getattr(value, "__name__", value)) for name, value in constants.items()}
        sources.append(functools.reduce(lambda text, name: text.replace(f"{name}(", f"{names[name]}("), names, source))
        return source, constants

    monkeypatch.setattr(straight, "_write", heard)
    return sources


def loss(hidden, weight, labels, change=lambda labels: labels):
    hidden = hidden.exp() @ torch.ones(HIDDEN, HIDDEN, device=hidden.device)
    logits = F.linear(hidden, weight).float()
    return F.cross_entropy(logits, change(labels), ignore_index=-100)


def inputs(part: float, device: str = "cpu"):
    labels = torch.randint(COLUMNS, (ROWS,)).masked_fill(torch.rand(ROWS) < part, -100)
    made = torch.randn(ROWS, HIDDEN), torch.randn(COLUMNS, HIDDEN)
    return *(value.to(device).requires_grad_() for value in made), labels.to(device)


def called(source: str) -> list[str]:
    return [line.split(" = ")[-1].split("(")[0].strip() for line in source.splitlines()[1:] if "(" in line]


def asked(f, sources, given) -> bool:
    """Whether a question comes before the first product."""
    graphs.compiled(f, "aot", logits_bytes=BUDGET, strict=True)(*given).backward()
    calls = called(sources[0])
    assert any(call.startswith("linear_rows") for call in calls), sources[0]
    return "foresee" in calls and calls.index("foresee") < calls.index("mm.default")


def test_labels_that_are_given_are_asked_first(written):
    assert asked(loss, written, inputs(0.5))
    assert called(written[0])[1:2] == ["foresee"], written[0]


def test_labels_that_are_moved_are_made_first(written):
    assert asked(functools.partial(loss, change=lambda labels: F.pad(labels, (0, 1), value=-100)[1:]), written, inputs(0.5))


@pytest.mark.parametrize(
    "change",
    [
        lambda labels: labels.mul_(1),
        lambda labels: labels + torch.randint_like(labels, 1),
        lambda labels: functools.reduce(lambda some, _: some.flip(0), range(2 * foresight._MOST), labels),
        lambda labels: labels + (labels.float() @ torch.zeros(ROWS, ROWS)).long(),
    ],
    ids=["written", "drawn", "much", "a product"],
)
def test_what_must_not_come_first_stays(change, written, monkeypatch):
    if change(torch.zeros(ROWS, dtype=torch.int64)).any():
        raise AssertionError("expected the labels as they were")
    monkeypatch.setattr(foresight, "_LARGEST", ROWS)
    assert not asked(functools.partial(loss, change=change), written, inputs(0.5)), written[0]


def test_an_order_has_every_node_once_and_inputs_first():
    module = graphs.trace(lambda x, labels: (x.exp() @ x, labels + 1), torch.randn(3, 3), torch.zeros(3))
    assert foresight.asked(module) == (list(module.graph.nodes), {})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device that this torch can use")
def test_a_gpu_is_not_waited_for_at_the_head(monkeypatch):
    monkeypatch.setattr(kept, "_watches", {})
    found: list[int] = []
    places = kept._Foreseen.places
    monkeypatch.setattr(kept._Foreseen, "places", lambda self: (found.append(1), places(self))[1])
    monkeypatch.setattr(kept, "_chosen", lambda rows: pytest.fail("it waits at the head"))
    run = graphs.compiled(loss, "aot", logits_bytes=BUDGET, strict=True)
    for part in (0.7, 0.3, 1.0, 0.9):
        torch.manual_seed(int(10 * part))
        given = inputs(part, "cuda")
        given[2].add_(0)  # who reads its memory by another tensor has another version
        results = []
        for call in (run, loss):
            value = call(*given)
            results.append([value.detach(), *torch.autograd.grad(value, given[:2])])
        for ours, true in zip(*results):
            torch.testing.assert_close(ours, true, equal_nan=True, rtol=1e-3, atol=1e-3)
    assert len(found) == 4


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device that this torch can use")
def test_a_loss_in_inference_mode_asks_at_the_head(monkeypatch):
    monkeypatch.setattr(kept, "_watches", {})
    run = graphs.compiled(loss, "aot", logits_bytes=BUDGET, strict=True)
    for part in (0.7, 0.3):
        given = [value.detach() for value in inputs(part, "cuda")]
        with torch.inference_mode():
            torch.testing.assert_close(run(*given), loss(*given), rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device that this torch can use")
def test_what_was_asked_of_other_labels_is_no_answer(monkeypatch):
    monkeypatch.setattr(kept, "_watches", {})
    watch = kept._watch(7, torch.device("cuda"))
    labels = torch.tensor([1, -100, 2, -100], device="cuda")
    others = labels.clone()
    watch.foresee([labels], labels != -100)
    assert watch.foreseen([others]) is None
    watch.foresee([others], others == 1)
    assert watch.foreseen([labels.view(2, 2).view(-1)]).places().tolist() == [0, 2]
    assert watch.foreseen([labels]) is None  # asked once
    assert watch.foreseen([others]).places().tolist() == [0]
    watch.foresee([labels], labels != -100)
    labels[1] = 5
    assert watch.foreseen([labels]) is None
    watch.foresee([labels], labels >= 0)
    assert watch.foreseen([labels]).places().tolist() == [0, 1, 2]


class Answered:
    """An event of a device that is never behind."""

    def record(self):
        pass

    synchronize = record


def test_an_answer_is_of_the_memory_that_it_holds(monkeypatch):
    """Of calls that fail before their heads: what has their labels' memory later is not taken for them."""
    monkeypatch.setattr(torch.cuda, "Event", Answered)
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *given, pin_memory=False, **named: empty(*given, **named))
    watch = kept._Watch()
    for number in range(3 * kept._ASKED):
        labels = torch.full((64,), number)
        watch.foresee([labels], labels < 0)
        failed = labels.data_ptr()
        del labels
    assert len(watch._foreseen) == kept._ASKED
    labels = torch.full((64,), 7)
    assert labels.data_ptr() != failed and watch.foreseen([labels]) is None
    watch.foresee([labels], torch.arange(64) % 5 == 0)
    assert watch.foreseen([labels]).places().tolist() == list(range(0, 64, 5))


def test_an_alias_that_an_operator_is_handed_has_the_answer(monkeypatch):
    """Torch makes some at an operator's first call."""
    monkeypatch.setattr(torch.cuda, "Event", Answered)
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *given, pin_memory=False, **named: empty(*given, **named))
    watch, labels = kept._Watch(), torch.arange(64)
    labels[0] = 5
    watch.foresee([labels], torch.arange(64) % 5 == 0)
    assert labels.data._version != labels._version
    assert watch.foreseen([labels.data]).places().tolist() == list(range(0, 64, 5)) and not watch._foreseen


def test_nothing_is_foreseen_of_what_nobody_counts_the_writes_of(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", Answered)
    with torch.inference_mode():
        labels = torch.arange(64)
    assert kept._Watch().foreseen([labels]) is None


def test_a_model_asks(written):
    model = tiny("Llama").train()
    text = words(seed=0).repeat(64, 1)
    run = torch.compile(model, backend="cermet", options={"logits_bytes": BUDGET, "strict": True})
    run(input_ids=text, labels=text).loss.backward()
    calls = called(written[0])
    assert "foresee" in calls and calls.index("foresee") < calls.index("mm.default"), written[0]
