"""Attention over segments of flattened sequences as torch ops: `cermet_v1::attend_lengths`, which a graph calls in the
place of scaled_dot_product_attention, and the two that it is made of; each once more for attention that drops some of
its weights (`.._dropout`), which draws numbers. `cermet_v1::attend_lengths_sinks` is made of the first ones: each head
has one more score in every row, `sinks` [heads], to which no value belongs.

The rows of a batch lie behind one another, `T = batch * length` places. Segment `i` is the queries from `ends_q[i]` to
before `ends_q[i + 1]`, which attend to the keys from `ends_k[i]` to before `ends_k[i + 1]`: to all of them, or to a
band around the diagonal that ends at the segment's last query and key. Either may be none: such queries get zeros. How
many segments there are (none: zeros everywhere) and how long the longest is stands in `told`, on the CPU, since that is
what a launch depends on: the tensors keep their sizes, whatever the segments are. A band may stand there, too.

Who computes it is a Kernel, by its name in KERNELS. The outer op exists only as a composition of the inner ones, so
AOTAutograd traces through it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from ..errors import Error
from .regions import NAMESPACE

_FORM = "Tensor ends_q, Tensor ends_k, Tensor? told, int left, int right, float scale, str kernel"
_DROPPED = ", float dropout_p"

# A score plus less than this is below every other score of a row by more than any exponential can tell, unless scores
# are so large themselves that they overflow. The least number of float16 is none.
NEVER = -1e30


@dataclasses.dataclass(frozen=True)
class Band:
    """The keys that a query attends to: from `left` before its place to `right` behind it; -1 is without an end."""

    left: int = -1
    right: int = -1

    def __str__(self) -> str:
        return "" if self == FULL else "causal" if self == CAUSAL else f"a band of {self.left} and {self.right}"


CAUSAL, FULL = Band(-1, 0), Band()
TOLD = Band(-2, -2)  # the numbers stand in `told` behind the others
KINDS = CAUSAL, FULL, Band(5, 0), Band(3, 4)  # one of each, of what may be told


def _band(left: int, right: int, told: torch.Tensor | None) -> Band:
    band = Band(left, right)
    return Band(*told[3:].tolist()) if band == TOLD and told is not None else band


@dataclasses.dataclass(frozen=True)
class Segments:
    """One call's: the ends, how many there are, and the most queries and keys of one."""

    ends_q: torch.Tensor  # int32, `count + 1` of them
    ends_k: torch.Tensor
    count: int
    longest_q: int
    longest_k: int

    @classmethod
    def of(cls, ends_q: torch.Tensor, ends_k: torch.Tensor, told: torch.Tensor | None, length: int) -> Segments:
        """Without `told` every end counts, and none is longer than a row."""
        count, longest_q, longest_k = (ends_q.shape[0] - 1, length, length) if told is None else told[:3].tolist()
        return cls(ends_q[: count + 1], ends_k[: count + 1], count, longest_q, longest_k)


@dataclasses.dataclass(frozen=True)
class Kernel:
    """Who computes attention over segments, on tensors of `[T, heads, width]`.

    `forward(query, key, value, segments, band, scale, dropout_p)` gives the result, the logarithms of its sums,
    `[heads, T]`, and two uint64 that say what it dropped, which it draws of the device's generator (nobody reads them
    where it drops nothing); `backward(gradient, query, key, value, result, sums, random, segments, band, scale,
    dropout_p)` the three gradients, of the weights that `sums` say (a row's may have more in it than its keys, such as a
    sink) and of `result`, what these gave. Both may raise what torch raises of a form that they do not take.
    """

    forward: Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
    backward: Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
    devices: tuple[str, ...]  # types
    ranged: Callable[..., torch.Tensor] | None = None  # what these two take is said in ranges.py
    added: Callable[..., torch.Tensor] | None = None


# --- Torch's flash attention -----------------------------------------------------------------------------------------

_WIDTHS = 8  # flash attention's widths are multiples of it


def _widened(*tensors: torch.Tensor) -> list[torch.Tensor]:
    missing = -tensors[0].shape[-1] % _WIDTHS
    return [F.pad(tensor, (0, missing)) for tensor in tensors] if missing else list(tensors)


def _flash_form(segments: Segments, band: Band, dropout_p: float) -> tuple[tuple[Any, ...], dict[str, Any]]:
    places = (segments.ends_q, segments.ends_k, segments.longest_q, segments.longest_k, dropout_p, band == CAUSAL)
    return places, {"window_size_left": band.left, "window_size_right": band.right}


def _flash(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    segments: Segments,
    band: Band,
    scale: float,
    dropout_p: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    places, named = _flash_form(segments, band, dropout_p)
    operands = _widened(query, key, value)
    found = torch.ops.aten._flash_attention_forward(*operands, *places, False, scale=scale, **named)
    return found[0][..., : value.shape[-1]], found[1], found[2]


def _flash_backward(
    gradient: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    result: torch.Tensor,
    sums: torch.Tensor,
    random: torch.Tensor,
    segments: Segments,
    band: Band,
    scale: float,
    dropout_p: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    places, named = _flash_form(segments, band, dropout_p)
    gradient, *operands = _widened(gradient, query, key, value, result)
    unused = query.new_empty(0)
    found = torch.ops.aten._flash_attention_backward(
        gradient, *operands, sums, *places, random, unused, scale=scale, **named
    )
    return tuple(each[..., : query.shape[-1]] for each in found)  # type: ignore[return-value]


def _flash_ranged(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    ends: torch.Tensor,
    starts: torch.Tensor,
    used: torch.Tensor,
    longest: int,
    scale: float,
) -> torch.Tensor:
    """Each query's keys begin where `cum_seq_k` says and are `seqused_k` many. With one query to a sequence and heads
    that share their keys, flash attention has several blocks go through a sequence's keys, so one head is two."""
    heads = query.shape[1]
    operands = query.expand(-1, max(heads, 2), -1), key[:, None], value[:, None]
    return torch.ops.aten._flash_attention_forward(
        *operands, ends, starts, 1, longest, 0.0, False, False, scale=scale, seqused_k=used
    )[0][:, :heads]


def _efficient_added(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    ends: torch.Tensor,
    starts: torch.Tensor,
    used: torch.Tensor,
    added: torch.Tensor,
    longest: int,
    scale: float,
) -> torch.Tensor:
    """Memory-efficient attention, since flash attention adds nothing to scores. For what is added it asks the sizes of
    a batch of one and takes a sequence's rows to lie as far apart as the batch's stride says."""
    segments, heads, _ = query.shape
    keys, values = (each[None, :, None].expand(1, -1, heads, -1) for each in (key, value))
    rows = added.as_strided((1, heads, segments, key.shape[0]), (added.stride(0), 0, 0, 1))
    return torch.ops.aten._efficient_attention_forward(
        query[None], keys, values, rows, ends, starts, 1, longest, 0.0, 0, False, scale=scale, seqlen_k=used
    )[0][0]


KERNELS: dict[str, Kernel] = {
    "flash": Kernel(_flash, _flash_backward, ("cuda",), _flash_ranged, _efficient_added)
}


# --- Inner ops -------------------------------------------------------------------------------------------------------


def kernel_called(name: str) -> Kernel:
    if name not in KERNELS:
        raise Error(
            f"no kernel for attention over segments is called {name}, expected one of {', '.join(KERNELS)}: the graph "
            "that uses it was compiled by another version of cermet; clear torch's compile caches"
        )
    return KERNELS[name]


def _flat(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """`[batch, length, heads, width]` with the rows behind one another."""
    return [tensor.reshape(-1, *tensor.shape[2:]) for tensor in tensors]


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    ends_q: torch.Tensor, ends_k: torch.Tensor, told: torch.Tensor | None,
    left: int, right: int, scale: float, kernel: str,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    return _attention_dropout(query, key, value, ends_q, ends_k, told, left, right, scale, kernel, 0.0)[:2]


def _attention_dropout(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    ends_q: torch.Tensor, ends_k: torch.Tensor, told: torch.Tensor | None,
    left: int, right: int, scale: float, kernel: str, dropout_p: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    segments = Segments.of(ends_q, ends_k, told, query.shape[1])
    if not segments.count:
        return tuple(each.zero_() for each in _fake_dropout(query, key, value))  # type: ignore[return-value]
    forward, operands = kernel_called(kernel).forward, _flat(query, key, value)
    result, sums, random = forward(*operands, segments, _band(left, right, told), scale, dropout_p)
    return result.reshape(query.shape).contiguous(), sums, random


def _attention_backward(
    gradient: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    result: torch.Tensor, sums: torch.Tensor,
    ends_q: torch.Tensor, ends_k: torch.Tensor, told: torch.Tensor | None,
    left: int, right: int, scale: float, kernel: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    random = torch.zeros(2, dtype=torch.uint64, device=query.device)  # nothing is dropped
    form = ends_q, ends_k, told, left, right, scale, kernel, 0.0
    return _attention_dropout_backward(gradient, query, key, value, result, sums, random, *form)


def _attention_dropout_backward(
    gradient: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    result: torch.Tensor, sums: torch.Tensor, random: torch.Tensor,
    ends_q: torch.Tensor, ends_k: torch.Tensor, told: torch.Tensor | None,
    left: int, right: int, scale: float, kernel: str, dropout_p: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    segments = Segments.of(ends_q, ends_k, told, query.shape[1])
    if not segments.count:
        return tuple(each.zero_() for each in _fake_backward(gradient, query, key, value))  # type: ignore[return-value]
    gradient, *operands = _flat(gradient, query, key, value, result)
    form = sums, random, segments, _band(left, right, told), scale, dropout_p
    found = kernel_called(kernel).backward(gradient, *operands, *form)
    return tuple(  # type: ignore[return-value]
        each.reshape(of.shape).contiguous() for each, of in zip(found, (query, key, value))
    )


def _fake(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    batch, length, heads, _ = query.shape
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    return query.new_empty(query.shape), query.new_empty((heads, batch * length), dtype=wide)


def _fake_dropout(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return *_fake(query, key, value), torch.empty(2, dtype=torch.uint64, device=query.device)


def _fake_backward(
    gradient: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return tuple(of.new_empty(of.shape) for of in (query, key, value))  # type: ignore[return-value]


# --- The outer op ----------------------------------------------------------------------------------------------------


class _Attend(torch.autograd.Function):
    """`form`: the ends, what is told, and what follows, with a probability behind it where weights are dropped."""

    @staticmethod
    def forward(ctx: Any, name: str, query: Any, key: Any, value: Any, *form: Any) -> torch.Tensor:
        found = _inner(name)(query, key, value, *form)
        ctx.save_for_backward(query, key, value, *found, *form[:3])
        ctx.name, ctx.form = name, form[3:]
        return found[0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        given, backward = (gradient, *ctx.saved_tensors, *ctx.form), f"{ctx.name}_backward"
        tensors = [item for item in given if isinstance(item, torch.Tensor)]
        recorded = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        found = _Recorded.apply(_inner(backward), *given) if recorded else _inner(backward)(*given)
        return None, *found, *(None,) * (len(ctx.form) + 3)


class _Recorded(torch.autograd.Function):
    """A backward that is recorded (`create_graph=True`): its values are right and its own gradient is refused."""

    @staticmethod
    def forward(ctx: Any, backward: Callable[..., Any], *given: Any) -> Any:
        return backward(*given)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        raise Error(
            f"{NAMESPACE}::attend_lengths: double backward is not supported; use torch.compile's backend "
            '"eager" where a gradient of a gradient is needed'
        )


class _AttendSinks(torch.autograd.Function):
    """A row with a sink is the one without, times the share of its sum in both. Its gradients are those of a row of
    such weights: kernels make the weights again from the logarithm of a row's sum, here of both."""

    @staticmethod
    def forward(ctx: Any, query: Any, key: Any, value: Any, sinks: Any, *form: Any) -> torch.Tensor:
        result, sums = _inner("attention_lengths")(query, key, value, *form)
        both = torch.logaddexp(sums, sinks.to(sums.dtype)[:, None])
        result = (result * _by_rows(torch.exp(sums - both), query)).to(result.dtype)
        ctx.save_for_backward(query, key, value, sinks, result, both, *form[:3])
        ctx.form = form[3:]
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        given = gradient, *ctx.saved_tensors, *ctx.form
        tensors = [item for item in given if isinstance(item, torch.Tensor)]
        recorded = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
        found = _Recorded.apply(_sinks_backward, *given) if recorded else _sinks_backward(*given)
        return *found, *(None,) * (len(ctx.form) + 3)


def _sinks_backward(
    gradient: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, sinks: torch.Tensor,
    result: torch.Tensor, both: torch.Tensor, *form: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    found = _inner("attention_lengths_backward")(gradient, query, key, value, result, both, *form)
    weights = _by_rows(torch.exp(sinks.to(both.dtype)[:, None] - both), query)
    products = (gradient.to(both.dtype) * result).sum(-1, keepdim=True)
    return *found, -(weights * products).sum((0, 1, 3)).to(sinks.dtype)


def _by_rows(sums: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """`[heads, batch * length]` as `[batch, length, heads, 1]`."""
    batch, length, heads, _ = query.shape
    return sums.view(heads, batch, length).permute(1, 2, 0)[..., None]


def _attend_sinks(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    ends_q: torch.Tensor | None, ends_k: torch.Tensor | None, told: torch.Tensor | None,
    left: int, right: int, scale: float | None, kernel: str, sinks: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    operands, form = _given(query, key, value, ends_q, ends_k, told, left, right, scale, kernel)
    return _AttendSinks.apply(*operands, sinks, *form).transpose(1, 2)


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    ends_q: torch.Tensor | None, ends_k: torch.Tensor | None, told: torch.Tensor | None,
    left: int, right: int, scale: float | None, kernel: str, *dropped: float,
) -> torch.Tensor:  # fmt: skip
    operands, form = _given(query, key, value, ends_q, ends_k, told, left, right, scale, kernel)
    name = f"attention_lengths{'_dropout' if dropped else ''}"
    return _Attend.apply(name, *operands, *form, *dropped).transpose(1, 2)


def _given(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    ends_q: torch.Tensor | None, ends_k: torch.Tensor | None, told: torch.Tensor | None,
    left: int, right: int, scale: float | None, kernel: str,
) -> tuple[list[torch.Tensor], tuple[Any, ...]]:  # fmt: skip
    """Operands and form of the inner ops. Without ends each row is a segment."""
    if ends_q is None:
        batch, _, length, _ = query.shape
        ends_q = ends_k = torch.arange(batch + 1, dtype=torch.int32, device=query.device) * length
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    operands = [tensor.transpose(1, 2) for tensor in (query, key, value)]
    return operands, (ends_q, ends_k, told, left, right, scale, kernel)


def _define() -> torch.library.Library:
    ops = torch.library.Library(NAMESPACE, "FRAGMENT")
    operands, optional = "Tensor query, Tensor key, Tensor value", _FORM.replace("Tensor ends", "Tensor? ends")
    optional = optional.replace("float scale", "float? scale")
    compliant, draws = torch.Tag.pt2_compliant_tag, torch.Tag.nondeterministic_seeded
    ops.define(f"attend_lengths_sinks({operands}, {optional}, Tensor sinks) -> Tensor", tags=(compliant,))
    ops.impl("attend_lengths_sinks", _attend_sinks, "CompositeImplicitAutograd")
    saved = "Tensor gradient, {}, Tensor result, Tensor sums"
    for suffix, more, tags, random in (("", "", (), ""), ("_dropout", _DROPPED, (draws,), ", Tensor")):
        tags, inner = (compliant, *tags), f"attention_lengths{suffix}"
        ops.define(f"attend_lengths{suffix}({operands}, {optional}{more}) -> Tensor", tags=tags)
        ops.define(f"{inner}({operands}, {_FORM}{more}) -> (Tensor, Tensor{random})", tags=tags)
        given = saved.format(operands) + f"{random} random" * bool(random)
        ops.define(f"{inner}_backward({given}, {_FORM}{more}) -> (Tensor, Tensor, Tensor)", tags=(compliant,))
        ops.impl(f"attend_lengths{suffix}", _attend, "CompositeImplicitAutograd")
    implementations = {
        "attention_lengths": (_attention, _fake),
        "attention_lengths_backward": (_attention_backward, _fake_backward),
        "attention_lengths_dropout": (_attention_dropout, _fake_dropout),
        "attention_lengths_dropout_backward": (_attention_dropout_backward, _fake_backward),
    }
    for name, (run, fake) in implementations.items():
        for key in ("CPU", "CUDA"):
            ops.impl(name, run, key)
        # Not for "Meta", whose operands must be of one device: the host is told of segments on a GPU.
        torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=ops)
    return ops


_library = _define()


@functools.cache
def _inner(name: str) -> torch._ops.OpOverload:
    return getattr(getattr(torch.ops, NAMESPACE), name).default


ATTEND, ATTEND_DROPPING = _inner("attend_lengths"), _inner("attend_lengths_dropout")
ATTEND_SINKING = _inner("attend_lengths_sinks")
