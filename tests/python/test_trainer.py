"""transformers' Trainer and TRL's SFTTrainer on a tiny Llama, two steps or 40 lengths, through both ways in."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import cermet
import truth
from steps import Errors
from tiny_models import LAYERS, tiny, words

STEPS, ROWS = 2, 2
LAYERS_REGIONS = 4 * LAYERS + 1  # two norms, a rotation and a GLU a layer, the last norm

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("accelerate") is None, reason="accelerate, which Trainer needs, is not installed"
)


@pytest.fixture(autouse=True)
def disabled(monkeypatch):
    """Trainer tells Accelerate what to compile by environment variables, which would outlive a test."""
    for name in ("ACCELERATE_DYNAMO_BACKEND", "ACCELERATE_DYNAMO_MODE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    yield
    cermet.disable()


def rows() -> list[dict[str, Any]]:
    """STEPS batches of ROWS rows, none of them padded."""
    return [{"input_ids": row, "labels": row} for seed in range(STEPS) for row in words(ROWS, seed=seed).tolist()]


def arguments(folder: Path, **more: Any) -> dict[str, Any]:
    return dict(
        output_dir=str(folder), max_steps=STEPS, per_device_train_batch_size=ROWS, optim="sgd", learning_rate=0.5,
        lr_scheduler_type="constant", report_to="none", save_strategy="no", logging_strategy="no", use_cpu=True,
        disable_tqdm=True, dataloader_pin_memory=False, seed=0,
    ) | more  # fmt: skip


def plain(model: torch.nn.Module, folder: Path, **more: Any) -> Any:
    from transformers import Trainer, TrainingArguments

    collate = lambda items: {name: torch.tensor([item[name] for item in items]) for name in items[0]}
    given = TrainingArguments(**arguments(folder, **more))
    return Trainer(model=model, args=given, train_dataset=rows(), data_collator=collate)


def supervised(
    model: torch.nn.Module, folder: Path, data: list[dict[str, Any]] | None = None, **more: Any
) -> Any:
    pytest.importorskip("trl", reason="TRL is not installed")
    import datasets
    import tokenizers
    import transformers
    from trl import SFTConfig, SFTTrainer

    vocabulary = {f"w{number}": number for number in range(128)}
    words_only = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="w0"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words_only, pad_token="w0", eos_token="w1")
    given = SFTConfig(**arguments(folder, bf16=False, gradient_checkpointing=False, **more))
    data = datasets.Dataset.from_list(rows() if data is None else data)
    return SFTTrainer(model=model, args=given, train_dataset=data, processing_class=tokenizer)


LENGTHS = [17 + 37 * step % 40 for step in range(40)]


def of_every_length(model: torch.nn.Module, folder: Path, padding: bool = False, **more: Any) -> Any:
    """With the default collator; masks are a tokenizer's, and every third batch has padding where that is asked for."""
    from transformers import Trainer, TrainingArguments

    class InOrder(Trainer):
        def _get_train_sampler(self, *_: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    items = []
    for step, length in enumerate(LENGTHS):
        text = torch.randint(1, 128, (ROWS, length), generator=torch.Generator().manual_seed(step))
        mask = torch.ones_like(text)
        mask[0, : 3 if padding and step % 3 == 1 else 0] = 0
        items += [dict(zip(("input_ids", "labels", "attention_mask"), row)) for row in zip(text, text, mask)]
    more = {"max_steps": len(LENGTHS), "learning_rate": 0.01} | more
    return InOrder(model=model, args=TrainingArguments(**arguments(folder, **more)), train_dataset=items)


def train(make: Callable[..., Any], model: torch.nn.Module, folder: Path, **more: Any) -> list[float]:
    """The loss of every step."""
    trainer = make(model, folder, **more)
    losses, training_step = [], trainer.training_step

    def recorded(*args: Any, **kwargs: Any) -> torch.Tensor:
        loss = training_step(*args, **kwargs)
        losses.append(loss.double().item())
        return loss

    trainer.training_step = recorded
    trainer.train()
    assert len(losses) == trainer.args.max_steps
    return losses


def through_enable(make: Callable[..., Any], model: torch.nn.Module, folder: Path) -> list[float]:
    cermet.enable()
    return train(make, model, folder, torch_compile=True, torch_compile_backend="inductor")


def through_enable_in_bf16(make: Callable[..., Any], model: torch.nn.Module, folder: Path) -> list[float]:
    cermet.enable()
    return train(make, model, folder, torch_compile=True, torch_compile_backend="inductor", bf16=True)


def through_compile(make: Callable[..., Any], model: torch.nn.Module, folder: Path) -> list[float]:
    # Trainer reads the columns that a model takes off its forward, which here says (*args, **kwargs).
    return train(make, torch.compile(model, backend="cermet"), folder, remove_unused_columns=False)


def through_model_compile(make: Callable[..., Any], model: torch.nn.Module, folder: Path) -> list[float]:
    model.compile(backend="cermet")
    return train(make, model, folder)


WAYS = [
    (plain, through_enable),
    (plain, through_enable_in_bf16),
    (plain, through_compile),
    (plain, through_model_compile),
    # SFTTrainer puts a forward of its own on the model that it is given, beside what torch.compile(model) returned.
    (supervised, through_enable),
    (supervised, through_model_compile),
]


@pytest.mark.parametrize("make, way", WAYS, ids=lambda function: function.__name__)
def test_two_steps(make, way, tmp_path):
    # SFTTrainer makes the loss, not the model, in a compiled function of its own.
    expected, beside = (LAYERS_REGIONS + 1, 0) if make is plain else (LAYERS_REGIONS, 1)
    bf16 = {"bf16": True} if way is through_enable_in_bf16 else {}
    eager = train(make, tiny("Llama").train(), tmp_path, **bf16)
    with truth.Float64():
        true = train(make, truth.double(tiny("Llama").train()), tmp_path)
    before = cermet.counters()
    ours = way(make, tiny("Llama").train(), tmp_path)
    after = cermet.counters()
    found = {name: after[name] - before[name] for name in after}
    # TRL's collator passes a padding mask: two variants of the graph, each made when a call takes it.
    variants = max(1, sum(found[name] > 0 for name in ("calls_unpadded", "calls_padded")))
    assert found["regions"] == variants * expected + beside and found["fallbacks"] == 0, found
    assert found["launches"] >= STEPS * 2 * expected, found
    for step, (mine, theirs, exact) in enumerate(zip(ours, eager, true)):
        limit = 2 * abs(theirs - exact) / exact + truth.spacing(torch.float32)
        error = abs(mine - exact) / exact
        assert error <= limit, f"step {step}: loss {mine}, eager's {theirs}, exact {exact}"
    assert abs(true[1] - true[0]) > 1e-3, f"the second step learnt nothing: {true}"


@pytest.mark.parametrize("padding", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("way", [through_enable, through_model_compile], ids=lambda function: function.__name__)
def test_lengths_share_two_graphs(way, padding, tmp_path):
    make = functools.partial(of_every_length, padding=padding)
    eager = train(make, tiny("Llama").train(), tmp_path)
    with truth.Float64():
        true = train(make, truth.double(tiny("Llama").train()), tmp_path)
    before, traced = cermet.counters(), torch._dynamo.utils.counters["stats"]["unique_graphs"]
    ours = way(make, tiny("Llama").train(), tmp_path)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] - traced == 2
    found = {name: value - before[name] for name, value in cermet.counters().items()}
    assert found["graphs"] == 2 + padding, "a variant that no call needed"
    assert found["calls_padded"] == (13 if padding else 0) and found["calls_unpadded"] + found["calls_padded"] == 40
    assert found["fallbacks"] == 0 and found["launches"] >= 40 * 2 * LAYERS_REGIONS, found
    mine, theirs = (max(abs(a - b) / b for a, b in zip(losses, true)) for losses in (ours, eager))
    assert mine <= 2 * theirs + truth.spacing(torch.float32), f"losses err by {mine}, eager's by {theirs}"


def test_an_accelerate_loop_accumulates():
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(True)  # one process has one, which Trainer has made without accumulation
    GradientState._reset_state()
    batches = [words(ROWS, seed=seed) for seed in range(4)]
    wide = truth.double(tiny("Llama").train())
    results = []
    cermet.enable()
    before = cermet.counters()["launches"]
    for backend in ("inductor", "no"):
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, dynamo_backend=backend)
        model = tiny("Llama").train()
        run, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.0))
        steps = []
        for text in batches:
            with accelerator.accumulate(run):
                loss = run(input_ids=text, labels=text).loss
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    steps.append({name: value.grad.clone() for name, value in model.named_parameters()})
                optimizer.step()
                optimizer.zero_grad()
        results.append(steps)
        assert len(steps) == 2
    assert cermet.counters()["launches"] >= before + 2 * len(batches) * (LAYERS_REGIONS + 1)
    with truth.Float64():
        exact = []
        for first in (0, 2):
            wide.zero_grad(set_to_none=True)
            for text in batches[first : first + 2]:
                (wide(input_ids=text, labels=text).loss / 2).backward()
            exact.append({name: value.grad.clone() for name, value in wide.named_parameters()})
    errors = Errors()
    for ours, eager, true in zip(*results, exact):
        errors.add(ours, eager, true)
    errors.check(torch.float32)
