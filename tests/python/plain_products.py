"""Whether this processor multiplies bf16: one that does not takes an f32 copy of a product's result, which tests that
count what is allocated see."""

from __future__ import annotations

import functools

import pytest
import torch
from torch.profiler import ProfilerActivity, profile


def needed() -> None:
    """Skips a test whose counts are of products that take no memory beside their results."""
    if _take_copies():
        pytest.skip("ATen's products of bf16 take f32 copies of their results on this processor")


@functools.cache
def _take_copies() -> bool:
    left, right = torch.ones(64, 128).bfloat16(), torch.ones(128, 256).bfloat16()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        result = left @ right
    taken = [event.nbytes() for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    return max(taken, default=0) > result.nbytes + 64
