"""What a program logs once ends no graph, and is logged once."""

from __future__ import annotations

import functools
import logging

import pytest
import torch
from torch._dynamo.utils import counters

import cermet
from cermet import messages


class Teller(logging.Logger):
    """`once` as transformers' loggers have it."""

    @functools.lru_cache(None)
    def once(self, *said, **how):
        self.warning(*said, **how)

    @functools.lru_cache(None)
    def refuse(self, said):
        raise LookupError(said)

    @functools.lru_cache(None)
    def count(self, said):
        self.warning(said)
        return len(said)


@pytest.fixture
def teller():
    made = Teller("teller")
    made.heard = []
    made.addFilter(lambda record: made.heard.append(record.getMessage()))
    return made


def compiled(f):
    counters.clear()
    return torch.compile(f, backend="cermet")


def graphs() -> int:
    return counters["stats"]["unique_graphs"]


def test_it_is_said_while_the_program_is_traced_and_ends_no_graph(teller):
    def f(x):
        for _ in range(2):
            teller.once("given %s", x.shape[0], stacklevel=2)
            x = x.exp()
        return x.sin()

    x, run = torch.randn(3), compiled(f)
    for _ in range(2):
        torch.testing.assert_close(run(x), x.exp().exp().sin())
    assert graphs() == 1 and teller.heard == ["given 3"], (graphs(), teller.heard)


def test_what_was_said_before_is_not_said_again(teller):
    teller.once("known")
    compiled(lambda x: (teller.once("known"), x.exp())[1])(torch.randn(3))
    assert graphs() == 1 and teller.heard == ["known"]


def test_what_is_said_at_each_call_still_ends_a_graph(teller):
    run = compiled(lambda x: (x := x.exp(), teller.warning("again"), x.sin())[2])
    for _ in range(3):
        run(torch.randn(3))
    assert graphs() == 2 and teller.heard == ["again"] * 3


def test_of_a_tensor_it_is_said_when_it_is_known(teller):
    x = torch.tensor([2.0])
    compiled(lambda x: (x := x * 2, teller.once("%s", x), x.sin())[2])(x)
    assert graphs() == 2 and teller.heard == ["tensor([4.])"]


def test_one_that_raises_does_so_where_it_is_called(teller):
    def f(x):
        try:
            teller.refuse("no")
        except LookupError as error:
            return x + len(error.args)
        return x

    assert compiled(f)(torch.zeros(1)).item() == 1


def test_one_that_returns_something_is_called_by_the_program(teller):
    assert compiled(lambda x: x + teller.count("four"))(torch.zeros(1)).item() == 4
    assert teller.heard == ["four"]


def test_again_changes_nothing(teller):
    messages.said_while_traced()  # no other test may have run here
    before = messages.misc.LoggingLoggerVariable.call_method
    messages.said_while_traced()
    assert messages.misc.LoggingLoggerVariable.call_method is before


def test_explaining_a_model_says_it_and_breaks_nothing(teller):
    def f(x):
        teller.once("explained")
        return x.exp()

    assert "1 graph, 0 graph breaks" in str(cermet.explain(f, torch.randn(3)))
    assert teller.heard == ["explained"]
