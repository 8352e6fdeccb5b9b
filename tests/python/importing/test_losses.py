"""Cross-entropy at every spelling becomes the same operations, and they are torch's numbers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from executed import Evaluation, executed
from graphs import traced
from cermet.importing.importer import import_graph

N, V = 7, 11


def logits_and_labels(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.randint(0, V, (N,))
    labels[2] = labels[5] = -100
    return (torch.randn(N, V) * 3).to(dtype), labels


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("ignored", [-100, 3])
def test_cross_entropy(reduction, smoothing, ignored):
    def loss(x, labels):
        return F.cross_entropy(x, labels, ignore_index=ignored, reduction=reduction, label_smoothing=smoothing)

    x, labels = logits_and_labels()
    if ignored != -100:
        labels = labels.clamp(0)
    run = executed(*traced(loss, x, labels), exact=False)
    assert "opaque" not in run.evaluation.operations, run.imported.text


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_loss_in_bf16_rounds_its_log_softmax_and_its_end(reduction):
    """The CPU's own log_softmax rounds its logarithm too; a GPU's does not, and neither do we."""
    x, labels = logits_and_labels(torch.bfloat16)
    run = _evaluated(lambda x, labels: F.cross_entropy(x, labels, reduction=reduction), x, labels)
    rounded = F.log_softmax(x.float(), -1).bfloat16().float()
    assert torch.equal(run.results[0], F.nll_loss(rounded, labels, reduction=reduction).bfloat16())


def _evaluated(function: Any, *args: torch.Tensor) -> Evaluation:
    module, given = traced(function, *args)
    imported = import_graph(module)
    assert "opaque" not in imported.text, imported.refusals
    return Evaluation(imported.text, given, lambda *_: [])


def test_every_spelling_is_one_text():
    def spelled(function, aten):
        imported = import_graph(traced(function, *logits_and_labels(), aten=aten)[0])
        lines = [line.split(" loc(")[0].strip() for line in imported.text.splitlines() if line.startswith("    ") and " cermet." in line]
        assert "opaque" not in imported.text, f"{imported.refusals}\n{imported.text}"
        return lines

    spellings = [
        lambda x, labels: F.cross_entropy(x, labels),
        lambda x, labels: F.nll_loss(F.log_softmax(x, dim=-1), labels),
        lambda x, labels: torch.nn.CrossEntropyLoss()(x, labels),
        lambda x, labels: F.nll_loss(torch.log_softmax(x, 1), labels, ignore_index=-100),
    ]
    texts = [spelled(function, aten) for function, aten in itertools.product(spellings, (False, True))]
    operations = [[line.split("cermet.")[1].split(" ")[0] for line in text] for text in texts]
    assert all(text == operations[0] for text in operations), operations
    assert operations[0][:6] == ["reduce_max", "broadcast", "sub", "exp", "reduce_sum", "log"]


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x, y: F.cross_entropy(x, y, weight=torch.ones(V)), "argument weight"),
        (lambda x, y: F.cross_entropy(x, x.softmax(-1), label_smoothing=0.1), "smoothed probabilities"),
        (lambda x, y: F.cross_entropy(x[0], y[0]), "logits of tensor<11xf32>, expected [N, V]"),
        (lambda x, y: F.cross_entropy(x.T[None], y.clamp(0, 6)[None, :]), "logits of"),
        (lambda x, y: F.nll_loss(x[..., None], y[:, None].clamp(0)), "expected [N, V] and [N]"),
    ],
)
def test_other_losses_are_left_alone(function, reason):
    x, labels = logits_and_labels()
    run = executed(*traced(function, x, labels.clamp(0)), exact=False)
    assert any(reason in text for text in run.imported.refusals.values()), run.imported.refusals


def test_a_whole_causal_loss():
    """As transformers writes it: upcast, labels shifted by padding, a sum over a count."""

    def loss(logits, labels, count):
        logits = logits.float()
        labels = F.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
        logits = logits.view(-1, V)
        return F.cross_entropy(logits, labels.view(-1).to(logits.device), ignore_index=-100, reduction="sum") / count

    args = torch.randn(2, 5, V).bfloat16(), torch.randint(0, V, (2, 5)), torch.tensor(8)
    run = executed(*traced(loss, *args), exact=False)
    assert "opaque" not in run.evaluation.operations, run.imported.text


def test_a_loss_over_symbolic_rows():
    run = executed(*traced(lambda x, y: F.cross_entropy(x, y), *logits_and_labels(), dynamic=True), exact=False)
    assert "opaque" not in run.evaluation.operations, run.imported.text


# Each element alone: against targets in [0, 1], of which some are 0 and 1.
OF_ELEMENTS = {
    "l1": lambda x, y, **given: F.l1_loss(x, y, **given),
    "smooth_l1": lambda x, y, **given: F.smooth_l1_loss(x, y, **given),
    "smooth_l1, bent early": lambda x, y, **given: F.smooth_l1_loss(x, y, beta=0.3, **given),
    "smooth_l1, not bent": lambda x, y, **given: F.smooth_l1_loss(x, y, beta=0.0, **given),
    "huber": lambda x, y, **given: F.huber_loss(x, y, delta=1.7, **given),
    "binary": lambda x, y, **given: F.binary_cross_entropy_with_logits(x, y, **given),
    "binary, weighted": lambda x, y, **given: F.binary_cross_entropy_with_logits(
        x, y, weight=y + 1, pos_weight=y[0] * 3, **given
    ),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", OF_ELEMENTS)
def test_losses_of_elements(name, reduction, dtype):
    if name == "huber" and dtype == torch.bfloat16:
        pytest.skip("torch rounds at each step of this one, and we once")
    x, y = torch.randn(N, V) * 3, torch.rand(N, V)
    y[0], y[1] = 0, 1
    function = lambda x, y: OF_ELEMENTS[name](x, y, reduction=reduction)
    for aten in (False, True):
        run = executed(*traced(function, x.to(dtype), y.to(dtype), aten=aten), exact=False)
        assert "opaque" not in run.evaluation.operations, f"{run.imported.refusals}\n{run.imported.text}"


def test_a_weighted_huber_loss_is_left_alone():
    run = executed(*traced(lambda x, y: F.huber_loss(x, y, weight=y), torch.randn(N, V), torch.rand(N, V)), exact=False)
    assert "argument weight" in run.imported.refusals.values()
