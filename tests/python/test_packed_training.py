"""transformers' Trainer with its collator for packed batches and TRL's packing, through both ways in: every batch of
other documents runs over their lengths, and losses are those of the mask."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

import cermet
import truth
from reference_kernel import reference  # noqa: F401
from test_trainer import (  # noqa: F401
    arguments, disabled, supervised, through_enable, through_model_compile, train,
)  # fmt: skip
from tiny_models import LAYERS, tiny, words

pytest.importorskip("accelerate", reason="accelerate, which Trainer needs, is not installed")
BATCHES, DOCUMENTS = 6, 3


def documents() -> list[dict[str, Any]]:
    numbers = random.Random(0)
    lengths = [numbers.randint(2, 14) for _ in range(BATCHES * DOCUMENTS)]
    return [{"input_ids": words(1, length, seed=seed)[0].tolist()} for seed, length in enumerate(lengths)]


def flattened(model: torch.nn.Module, folder: Path, **more: Any) -> Any:
    from transformers import DataCollatorWithFlattening, Trainer, TrainingArguments

    given = {"max_steps": BATCHES, "per_device_train_batch_size": DOCUMENTS, "learning_rate": 0.05} | more
    collate = DataCollatorWithFlattening(return_tensors="pt")
    given = TrainingArguments(**arguments(folder, **given))
    return Trainer(model=model, args=given, train_dataset=documents(), data_collator=collate)


def packed(model: torch.nn.Module, folder: Path, **more: Any) -> Any:
    given = {"max_steps": BATCHES, "per_device_train_batch_size": 1, "learning_rate": 0.05} | more
    return supervised(model, folder, documents(), packing=True, max_length=24, **given)


@pytest.mark.parametrize("way", [through_enable, through_model_compile], ids=lambda function: function.__name__)
@pytest.mark.parametrize("make", [flattened, packed], ids=lambda function: function.__name__)
def test_packed_batches_run_over_their_documents(make, way, tmp_path, reference):  # noqa: F811
    def model() -> torch.nn.Module:
        return tiny("Llama", attn_implementation="sdpa").train()

    eager = train(make, model(), tmp_path)
    with truth.Float64():
        true = train(make, truth.double(model()), tmp_path)
    before = cermet.counters()
    ours = way(make, model(), tmp_path)
    found = {name: value - before[name] for name, value in cermet.counters().items()}
    assert found["calls_segmented"] == BATCHES and not found["calls_padded"] and not found["fallbacks"], found
    assert found["document_masks"] in (LAYERS, 2 * LAYERS), found  # of the first length, and of any
    mine, theirs = (max(abs(a - b) / b for a, b in zip(losses, true)) for losses in (ours, eager))
    assert mine <= 2 * theirs + truth.spacing(torch.float32), f"losses err by {mine}, eager's by {theirs}"
