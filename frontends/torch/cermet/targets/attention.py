"""`scaled_dot_product_attention` as torch has it on a GPU that is not here.

torch chooses a kernel by what the device and the kernel can (ATen's cuda/sdp_utils.cpp) and calls it with operands that
it takes (attention.cpp). Without a device it would choose none, so both are done here by the same rules: the first of
the target's kernels that is switched on and takes the call, else products and a softmax.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

from .target import Target

_aten = torch.ops.aten
_HALVES = (torch.float16, torch.bfloat16)
_SERVER = ((9, 0), (10, 0))  # where cuDNN's heads may be wider
_NARROW = ((8, 6), (8, 9), (12, 0))  # whose shared memory is too little for some gradients


@dataclasses.dataclass(frozen=True)
class _Call:
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    dropout: float
    causal: bool
    scale: float | None
    grouped: bool  # keys and values may have fewer heads
    target: Target

    @property
    def widths(self) -> tuple[int, int]:
        return self.query.shape[-1], self.value.shape[-1]

    @property
    def differentiated(self) -> bool:
        operands = self.query, self.key, self.value
        return torch.is_grad_enabled() and any(operand.requires_grad for operand in operands)

    @property
    def square(self) -> bool:
        return not self.causal or bool(self.query.shape[-2] == self.key.shape[-2])

    def fused(self, groups: bool) -> bool:
        """What every kernel asks; `groups`: whether it takes fewer heads of keys than of queries."""
        operands = self.query, self.key, self.value
        if any(operand.dim() != 4 or operand.stride(-1) != 1 for operand in operands):
            return False
        if self.mask is not None and self.mask.stride(-1) != 1:
            return False
        if self.query.shape[-1] != self.key.shape[-1]:
            return False
        if any(operand.shape[0] != self.query.shape[0] for operand in operands):
            return False
        heads = [operand.shape[1] for operand in operands]
        if heads[1] == heads[2] == heads[0]:
            return True
        return groups and self.grouped and heads[1] == heads[2] and heads[0] % heads[1] == 0


# --- What each kernel takes ------------------------------------------------------------------------------------------


def _cudnn_takes(call: _Call) -> bool:
    widest = 256 if call.target.capability in _SERVER else 128
    if call.query.dtype not in _HALVES or any(width > widest or width % 8 for width in call.widths):
        return False
    if call.mask is not None and call.mask.requires_grad and torch.is_grad_enabled():  # it has no gradient of one
        return False
    return call.fused(groups=True) and call.square and bool(call.key.shape[-2] != 1)


def _flash_takes(call: _Call) -> bool:
    width, value_width = call.widths
    if call.mask is not None or call.query.dtype not in _HALVES or width != value_width or width > 256:
        return False
    too_wide = 192 < width <= 224 or width > 224 and call.dropout > 0
    if call.target.capability in _NARROW and call.differentiated and too_wide:
        return False
    return call.fused(groups=True) and call.square


def _efficient_takes(call: _Call) -> bool:
    if call.query.dtype not in (*_HALVES, torch.float32):
        return False
    alignment = 16 // call.query.dtype.itemsize
    return all(width % alignment == 0 for width in call.widths) and call.fused(groups=False)


def segments_obstacle(target: Target, dtype: torch.dtype, width: int, ranged: bool, drops: bool) -> str:
    """Why flash attention over segments, or to `ranged` keys, is none for heads of a width on a target; "" where it is
    one. `drops`: some of the weights."""
    if target.capability is None:
        return "it runs on cuda"
    if dtype not in _HALVES:
        return f"it takes {' and '.join(str(each).removeprefix('torch.') for each in _HALVES)}"
    if ranged and (width > 256 or width % 8):
        return f"it takes no keys of a width of {width} where they lie"
    too_wide = 192 < width <= 224 or width > 224 and drops
    if width > 256 or not ranged and target.capability in _NARROW and too_wide:
        return f"it has no gradient for heads of {width} on {target.name}"
    return ""


# --- How each is called ----------------------------------------------------------------------------------------------


def _cudnn(call: _Call) -> torch.Tensor:
    return _aten._scaled_dot_product_cudnn_attention(
        call.query, call.key, call.value, _added(call), call.differentiated, call.dropout, call.causal, False,
        scale=call.scale,
    )[0]  # fmt: skip


def _flash(call: _Call) -> torch.Tensor:
    width = call.query.shape[-1]
    lacking = -width % 8
    operands = [F.pad(each, (0, lacking)) if lacking else each for each in (call.query, call.key, call.value)]
    scale = width**-0.5 if call.scale is None else call.scale
    result = _aten._scaled_dot_product_flash_attention(*operands, call.dropout, call.causal, False, scale=scale)[0]
    return result[..., :width] if lacking else result


def _efficient(call: _Call) -> torch.Tensor:
    mask = _added(call)
    if mask is not None:
        if any(stride % 8 for stride in mask.stride()[:-1]):
            columns = mask.shape[-1]
            mask = F.pad(mask, (0, 8 - columns % 8))[..., :columns]
        mask = mask.expand(*call.query.shape[:-1], call.key.shape[-2])
    return _aten._scaled_dot_product_efficient_attention(
        call.query, call.key, call.value, mask, call.differentiated, call.dropout, call.causal, scale=call.scale
    )[0]


def _math(call: _Call) -> torch.Tensor:
    return _aten._scaled_dot_product_attention_math(
        call.query, call.key, call.value, _added(call), call.dropout, call.causal, None, scale=call.scale,
        enable_gqa=call.grouped,
    )[0]  # fmt: skip


def _added(call: _Call) -> torch.Tensor | None:
    """The mask as what is added to the scores."""
    if call.mask is None or call.mask.dtype != torch.bool:
        return call.mask
    hidden = torch.scalar_tensor(float("-inf"), dtype=call.query.dtype, device=call.query.device)
    return torch.where(call.mask, 0.0, hidden)


_KERNELS: dict[str, tuple[Callable[[], bool], Callable[[_Call], bool], Callable[[_Call], torch.Tensor]]] = {
    "cudnn": (torch.backends.cuda.cudnn_sdp_enabled, _cudnn_takes, _cudnn),
    "flash": (torch.backends.cuda.flash_sdp_enabled, _flash_takes, _flash),
    "efficient": (torch.backends.cuda.mem_efficient_sdp_enabled, _efficient_takes, _efficient),
    "math": (torch.backends.cuda.math_sdp_enabled, lambda call: True, _math),
}


@contextlib.contextmanager
def taking(target: Target) -> Iterator[None]:
    """Attention on fake CUDA tensors is the target's meanwhile."""

    def attention(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
    ) -> torch.Tensor:  # fmt: skip
        call = _Call(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, target)
        for name in target.attention:
            enabled, takes, run = _KERNELS[name]
            if enabled() and takes(call):
                return run(call)
        return _math(call)

    library = torch.library.Library("aten", "IMPL")
    try:
        for key in ("AutogradCUDA", "CUDA"):  # the second under inference_mode
            library.impl("scaled_dot_product_attention", attention, key, allow_override=True)
        yield
    finally:
        library._destroy()
