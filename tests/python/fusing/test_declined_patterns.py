"""What every pattern must leave alone: an inner value that is returned, read, written or reached through a view,
autocast inside of it, a wrong axis, a tensor subclass."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import cermet
import graphs
from declining import declined


@dataclasses.dataclass(frozen=True)
class Halves:
    """A pattern's operations up to an inner value, and those after it, of the same arguments."""

    first: Callable[..., torch.Tensor]
    second: Callable[..., torch.Tensor]
    arguments: Callable[[], list[torch.Tensor]]


def _rotated(x, cos, sin):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), -1)


PATTERNS = {
    "rms_norm": Halves(
        lambda x, weight: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
        lambda normal, x, weight: weight * normal,
        lambda: [torch.randn(4, 6, 32), torch.randn(32)],
    ),
    "rope": Halves(
        _rotated,
        lambda rotated, x, cos, sin: x * cos + rotated * sin,
        lambda: [torch.randn(2, 4, 6, 16), *torch.randn(2, 2, 1, 6, 16).unbind()],
    ),
    "glu": Halves(
        lambda gate, up: F.silu(gate),
        lambda activated, gate, up: activated * up,
        lambda: list(torch.randn(2, 2, 4, 32).unbind()),
    ),
    "cross_entropy": Halves(
        lambda logits, labels: F.log_softmax(logits, -1),
        lambda logarithms, logits, labels: F.nll_loss(logarithms, labels),
        lambda: [torch.randn(12, 32), torch.randint(32, (12,))],
    ),
}


def _returned(pattern, *args):
    inner = pattern.first(*args)
    return pattern.second(inner, *args), inner


def _second_user(pattern, *args):
    inner = pattern.first(*args)
    return pattern.second(inner, *args), inner.cumsum(-1)


def _written(pattern, *args):
    inner = pattern.first(*args)
    inner.mul_(2.0)
    return pattern.second(inner, *args)


def _viewed_and_added_to(pattern, *args):
    inner = pattern.first(*args)
    inner.view(-1).add_(1.0)
    return pattern.second(inner, *args)


def _autocast_inside(pattern, *args):
    inner = pattern.first(*args)
    with torch.autocast("cpu", torch.bfloat16):
        return pattern.second(inner, *args)


def _as_it_is(pattern, *args):
    return pattern.second(pattern.first(*args), *args)


@pytest.mark.parametrize("name", PATTERNS)
def test_the_pattern_itself_is_matched(name):
    """The control of the tests below."""
    pattern = PATTERNS[name]
    found = cermet.explain(functools.partial(_as_it_is, pattern), *pattern.arguments())
    assert (found.counts[name], found.near_misses) == (1, []), str(found)


STATE = "crosses a change of grad mode or autocast"
SHAPED = "of the logits' shape, is read outside"
# What the near miss says; None where nothing that is left has a core: what is written is no rotation, no logarithm.
CONDITIONS = {
    ("rms_norm", _returned): "is returned by the function",
    ("rms_norm", _second_user): "has another user: cumsum",
    ("rms_norm", _written): "not multiplied by a weight",
    ("rms_norm", _viewed_and_added_to): "expected its last dimension kept",
    ("rms_norm", _autocast_inside): STATE,
    ("rope", _returned): "is read elsewhere",
    ("rope", _second_user): "is read elsewhere",
    ("rope", _written): None,
    ("rope", _viewed_and_added_to): None,
    ("rope", _autocast_inside): STATE,
    ("glu", _returned): "is returned by the function",
    ("glu", _second_user): "has another user: cumsum",
    ("glu", _written): "is written in place by `mul_`",
    ("glu", _viewed_and_added_to): "is written in place by `add_`",
    ("glu", _autocast_inside): STATE,
    ("cross_entropy", _returned): SHAPED,
    ("cross_entropy", _second_user): SHAPED,
    ("cross_entropy", _written): None,
    ("cross_entropy", _viewed_and_added_to): None,
    ("cross_entropy", _autocast_inside): STATE,
}


@pytest.mark.parametrize(("name", "change"), CONDITIONS, ids=lambda value: getattr(value, "__name__", value))
def test_a_changed_pattern_is_declined(name, change):
    pattern = PATTERNS[name]
    function = functools.partial(change, pattern)
    declined(function, *pattern.arguments(), pattern=name, condition=CONDITIONS[name, change])


def _turned_along_rows(x, cos, sin):
    half = x.shape[-2] // 2
    return x * cos + torch.cat((-x[..., half:, :], x[..., :half, :]), -2) * sin


def _over_rows(logits, labels):
    return F.nll_loss(F.log_softmax(logits, 0), labels)


@pytest.mark.parametrize(("name", "function"), [("rope", _turned_along_rows), ("cross_entropy", _over_rows)])
def test_a_wrong_axis(name, function):
    declined(function, *PATTERNS[name].arguments(), pattern=name, condition=None)


@pytest.mark.parametrize("name", PATTERNS)
def test_a_tensor_subclass_as_any_argument(name):
    from torch.testing._internal.two_tensor import TwoTensor

    function = functools.partial(_as_it_is, PATTERNS[name])
    arguments = PATTERNS[name].arguments()
    eager = function(*arguments)
    for place in range(len(arguments)):
        wrapped = [
            TwoTensor(value.clone(), value.clone()) if index == place else value
            for index, value in enumerate(arguments)
        ]
        decision = graphs.decided(graphs.trace(function, *wrapped))
        assert decision.regions == []
        torch._dynamo.reset()
        ours = graphs.compiled(function)(*wrapped)
        for part in (ours.a, ours.b):
            torch.testing.assert_close(part, eager, rtol=0, atol=0)


def test_a_label_that_a_call_picks_and_drops_the_dimension_of():
    def function(x, labels):
        return torch.nn.functional.cross_entropy(x, labels[:, -1])

    declined(
        function, torch.randn(6, 32), torch.randint(32, (6, 5)), pattern="cross_entropy", condition="has 1 dimensions"
    )
