"""What this processor does with products of half types. One that multiplies bf16 takes no memory beside a product's
result. One that does not takes an f32 copy of it, which tests that count what is allocated see, or computes each number
by itself, a hundred times as long as in f32."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import pytest
import torch
from torch import library
from torch.profiler import ProfilerActivity, profile

_PRODUCTS = [getattr(torch.ops.aten, name) for name in ("mm", "addmm", "bmm", "baddbmm")]
_LARGE = 1 << 23  # multiplications
_hastened = True  # where there is reason to


def needed() -> None:
    """Skips a test whose counts are of products that take no memory beside their results, which stay slow in it."""
    global _hastened
    _hastened = False
    if _take_copies():
        pytest.skip("ATen's products of bf16 take f32 copies of their results on this processor")


@functools.cache
def _take_copies() -> bool:
    left, right = torch.ones(64, 128).bfloat16(), torch.ones(128, 256).bfloat16()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        result = left @ right
    taken = [event.nbytes() for event in seen.profiler.kineto_results.events() if event.name() == "[memory]"]
    return max(taken, default=0) > result.nbytes + 64


def hasten() -> None:
    """From now on this process computes large products of half types that have no instructions in f32, rounded once."""
    global _hastened
    _hastened = True
    _registered()


@functools.cache
def _registered() -> library.Library:
    """What holds the kernels in the places of ATen's."""
    names = {torch.bfloat16: "_is_mkldnn_bf16_supported", torch.float16: "_is_mkldnn_fp16_supported"}
    slow = {dtype for dtype, name in names.items() if not getattr(torch.ops.mkldnn, name)()}
    held = library.Library("aten", "IMPL")
    if not slow or not hasattr(library, "get_kernel"):
        return held
    with warnings.catch_warnings():  # that there were kernels
        warnings.simplefilter("ignore")
        for call in (getattr(packet, overload) for packet in _PRODUCTS for overload in ("default", "out")):
            held.impl(call, _widened(call, slow), "CPU", with_keyset=True)
    return held


def _widened(call: Any, slow: set[torch.dtype]) -> Any:
    kernel, wide = library.get_kernel(call, "CPU"), call.overloadpacket.default

    def run(keys: Any, *operands: torch.Tensor, **keywords: Any) -> torch.Tensor:
        *_, left, right = operands
        if not _hastened or left.dtype not in slow or left.numel() * right.shape[-1] < _LARGE:
            return kernel.call_boxed(keys, *operands, **keywords)
        out = keywords.pop("out", None)
        result = wide(*(each.float() for each in operands), **keywords).to(left.dtype)
        return result if out is None else out.copy_(result)

    return run
