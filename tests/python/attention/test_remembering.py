"""What the device was asked about a mask is asked once for all layers that are given it, and again of another."""

from __future__ import annotations

import gc

import pytest
import torch
from cermet.attention import remembering
from cermet.attention.remembering import Remembered


@pytest.fixture(autouse=True)
def everywhere(monkeypatch):
    monkeypatch.setattr(remembering, "_DEVICES", frozenset({"cpu", "cuda"}))


def answers(asked: Remembered, *calls) -> list[int]:
    """How often the question was put, behind each of the calls."""
    times, found = [0], []

    def question() -> int:
        times[0] += 1
        return times[0]

    for given in calls:
        assert asked.ask(given() if callable(given) else given, question) is not None
        found.append(times[0])
    return found


def test_the_same_inputs_are_asked_about_once():
    mask = torch.ones(2, 3)
    assert answers(Remembered(), [mask, 3], [mask, 3], [mask, 4], [mask, 4], [mask, 3]) == [1, 1, 2, 2, 3]


def test_a_tensor_that_was_written_or_is_another_is_asked_about_again():
    mask = torch.ones(2, 3)

    def written():
        mask[0, 0] = 0
        return [mask]

    assert answers(Remembered(), [mask], [mask], written, [mask], [mask.clone()], [mask]) == [1, 1, 2, 2, 3, 4]


def test_another_tensor_in_the_place_of_one_that_is_gone_is_asked_about():
    asked = Remembered()
    for time in range(1, 20):  # objects take each other's places, and their numbers
        assert answers(asked, [torch.ones(2)]) == [1], time
        gc.collect()


def test_nothing_is_remembered_of_what_counts_no_writes():
    with torch.inference_mode():
        mask = torch.ones(2)
    assert answers(Remembered(), [mask], [mask]) == [1, 2]


def test_nothing_is_remembered_where_a_question_raises():
    asked, mask = Remembered(), torch.ones(2)
    with pytest.raises(ValueError, match="nobody knows"):
        asked.ask([mask], lambda: (_ for _ in ()).throw(ValueError("nobody knows")))
    assert answers(asked, [mask], [mask]) == [1, 1]


def test_on_the_cpu_others_write(monkeypatch):
    monkeypatch.setattr(remembering, "_DEVICES", frozenset({"cuda"}))
    mask = torch.ones(2)
    assert answers(Remembered(), [mask], [mask]) == [1, 2]
