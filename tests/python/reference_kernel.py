"""A kernel for attention over segments that any device has: each segment by itself, by products and a softmax. Tests
put it among those that are tried, so that what graphs become of masks is there on a CPU."""

from __future__ import annotations

import pytest
import torch

from cermet.attention import kernels
from cermet.ops import attending
from cermet.ops.attending import Band, Kernel, Segments

NAME = "reference"


def _scores(query, key, band: Band, scale: float):
    """Of one segment, `[heads, places, width]`, and which of them count."""
    scores = query @ key.transpose(-1, -2) * scale
    allowed = kernels.mask_of([(query.shape[1], key.shape[1])], band, max(query.shape[1], key.shape[1]))
    allowed = allowed[: query.shape[1], : key.shape[1]].to(query.device)
    return scores.masked_fill(~allowed, float("-inf")), allowed


def _repeated(query, *shared):
    return [each.repeat_interleave(query.shape[0] // each.shape[0], 0) for each in shared]


def _segment(query, key, value, band: Band, scale: float, kept):
    key, value = _repeated(query, key, value)
    scores, allowed = _scores(query, key, band, scale)
    weights = torch.softmax(scores, -1)
    return (weights.masked_fill(~allowed, 0.0).nan_to_num() * kept) @ value


def _segment_backward(gradient, query, key, value, result, sums, band: Band, scale: float):
    """As kernels do it: by the weights that the sums say, and by what the result was."""
    groups = key.shape[0]
    key, value = _repeated(query, key, value)
    scores, _ = _scores(query, key, band, scale)
    weights = torch.exp(scores.to(sums.dtype) - sums[..., None]).nan_to_num().to(query.dtype)
    products = (gradient * result).sum(-1, keepdim=True)
    to_scores = weights * (gradient @ value.transpose(-1, -2) - products) * scale
    shared = (to_scores.transpose(-1, -2) @ query, weights.transpose(-1, -2) @ gradient)
    return to_scores @ key, *(each.unflatten(0, (groups, -1)).sum(1) for each in shared)


def _pieces(segments: Segments):
    for q, k in zip(segments.ends_q.tolist(), segments.ends_k.tolist()):
        yield q, k


def kept(random, heads: int, queries: int, keys: int, dropout_p: float):
    """What each weight of all queries and keys is multiplied by."""
    numbers = torch.Generator().manual_seed(int(random[0]))
    return (torch.rand(heads, queries, keys, generator=numbers) >= dropout_p).double() / (1 - dropout_p)


def _whole(query, key, value, segments: Segments, band: Band, scale: float, random, dropout_p: float):
    ends = list(_pieces(segments))
    assert len(ends) == segments.count + 1 and ends[-1] == (query.shape[0], key.shape[0]), (segments, query.shape)
    factors = kept(random, query.shape[1], query.shape[0], key.shape[0], dropout_p).to(query.dtype)
    parts = []
    for (q, k), (next_q, next_k) in zip(ends, ends[1:]):
        assert 0 <= next_q - q <= segments.longest_q and 0 <= next_k - k <= segments.longest_k, segments
        each = (query[q:next_q], key[k:next_k], value[k:next_k])
        operands = (part.transpose(0, 1) for part in each)
        parts.append(_segment(*operands, band, scale, factors[:, q:next_q, k:next_k]).transpose(0, 1))
    return torch.cat(parts, 0)


def _wide(dtype):
    """What a kernel adds in."""
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


def _forward(query, key, value, segments, band, scale, dropout_p):
    dtype = query.dtype
    query, key, value = (each.to(_wide(dtype)) for each in (query, key, value))
    kind = torch.float64 if query.dtype == torch.float64 else torch.float32
    random = torch.randint(1 << 62, (2,)) if dropout_p else torch.zeros(2, dtype=torch.int64)
    result = _whole(query, key, value, segments, band, scale, random, dropout_p)
    sums = query.new_zeros(query.shape[1], query.shape[0], dtype=kind)
    ends = list(_pieces(segments))
    for (q, k), (next_q, next_k) in zip(ends, ends[1:]):
        queries, keys = query[q:next_q].transpose(0, 1), key[k:next_k].transpose(0, 1)
        scores, _ = _scores(queries, *_repeated(queries, keys), band, scale)
        sums[:, q:next_q] = torch.logsumexp(scores.to(kind), -1)
    return result.to(dtype), sums, random.to(torch.uint64)


def _backward(gradient, query, key, value, result, sums, random, segments, band, scale, dropout_p):
    dtype = query.dtype
    gradient, query, key, value, result = (each.to(_wide(dtype)) for each in (gradient, query, key, value, result))
    if not dropout_p:
        found = [torch.zeros_like(each) for each in (query, key, value)]
        ends = list(_pieces(segments))
        for (q, k), (next_q, next_k) in zip(ends, ends[1:]):
            rows, columns = slice(q, next_q), slice(k, next_k)
            given = gradient[rows], query[rows], key[columns], value[columns], result[rows]
            operands = [each.transpose(0, 1) for each in given]
            made = _segment_backward(*operands, sums[:, rows], band, scale)
            for whole, places, each in zip(found, (rows, columns, columns), made):
                whole[places] = each.transpose(0, 1)
        return tuple(each.to(dtype) for each in found)
    operands = [each.detach().requires_grad_() for each in (query, key, value)]
    with torch.enable_grad():
        again = _whole(*operands, segments, band, scale, random, dropout_p)
    return tuple(each.to(dtype) for each in torch.autograd.grad(again, operands, gradient))


def _ranged(query, key, value, ends, starts, used, longest, scale):
    assert ends.tolist() == list(range(len(query) + 1)) and len(starts) == len(used) + 1 == len(ends)
    assert int(used.max()) <= longest
    parts = []
    for segment, start, count in zip(query, starts.tolist(), used.tolist()):
        assert 0 <= start and start + count <= len(key), (start, count)
        places = slice(start, start + count)
        weights = torch.softmax(segment @ key[places].T * scale, -1)
        parts.append(weights @ value[places])
    return torch.stack(parts)


def _added(query, key, value, ends, starts, used, added, longest, scale):
    assert ends.tolist() == list(range(len(query) + 1)) and len(starts) == len(used) + 1 == len(ends) == len(added) + 1
    assert int(used.max()) <= longest <= added.shape[1] and added.stride(0) % 8 == 0
    parts = []
    for segment, start, count, each in zip(query, starts.tolist(), used.tolist(), added):
        assert 0 <= start and start + count <= len(key), (start, count)
        places = slice(start, start + count)
        weights = torch.softmax(segment @ key[places].T * scale + each[:count], -1)
        parts.append(weights @ value[places] if count else segment.new_full((len(segment), value.shape[1]), torch.nan))
    return torch.stack(parts)


KERNEL = Kernel(_forward, _backward, ("cpu", "cuda"), _ranged, _added)


@pytest.fixture
def reference(monkeypatch):
    """The kernel is among those that are tried."""
    monkeypatch.setitem(attending.KERNELS, NAME, KERNEL)
    kernels._probed.cache_clear()
    yield
    kernels._probed.cache_clear()
