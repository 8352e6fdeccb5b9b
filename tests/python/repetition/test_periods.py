"""Where a graph repeats itself, and what the whole of a shortened one is."""

from __future__ import annotations

import pytest
import torch
import torch.fx as fx
from torch.fx.experimental.proxy_tensor import make_fx

from cermet.repetition import periods
from cermet.repetition.lanes import HEAD, TAIL, Irregular, Ports, Rung, Seeds
from cermet.repetition.lengthening import Lengthening
from cermet.repetition.shortening import shorten

SHORT = HEAD + TAIL
MORE = 4
SIZE = 3


def traced(function, count):
    """Of a tensor and as many weights."""
    return make_fx(function, tracing_mode="fake")(torch.ones(SIZE), *(torch.ones(SIZE) for _ in range(count)))


def first(module):
    """The longest repetition, where any input follows any other."""
    calls = periods.Calls(periods.calls(module.graph))
    return next(calls.find(lambda: lambda one, other: one.op == other.op == "placeholder"), None)


def layers(x, *weights):
    x = x.exp()
    for weight in weights:
        x = (x * weight).sin() + x
    return (x.cos(),)


def test_windows_are_found_between_what_is_none():
    period = first(traced(layers, 7))
    assert (period.start, period.length, period.count) == (1, 3, 7)


def test_two_kinds_in_turns_are_one_window():
    def turns(x, *weights):
        for place, weight in enumerate(weights):
            x = (x * weight).sin() if place % 2 else (x + weight).cos()
        return (x,)

    period = first(traced(turns, 12))
    assert (period.length, period.count) == (4, 5)  # the first one reads an input


def test_long_windows_are_tried_beside_many_short_ones():
    """Calls of one kind, but for one in each of five windows, behind many that are more often as far apart."""
    kinds = [kind for far in range(2, 2 * periods._TRIED) for _ in range(10) for kind in (far, *[0] * (far - 1))]
    long = 4 * periods._TRIED * 3
    assert long in periods._lengths([*kinds, *[-1, *[0] * (long - 1)] * 5])


def test_a_number_tells_windows_apart():
    def scaled(x, *weights):
        for place, weight in enumerate(weights):
            x = (x * weight) * place
        return (x,)

    assert first(traced(scaled, 6)) is None


def test_what_is_left_is_searched_too():
    def two(x, *weights):
        x = layers(x, *weights[:8])[0]
        for weight in weights[8:]:
            x = (x - weight).tan().abs()
        return (x,)

    calls = periods.Calls(periods.calls(traced(two, 14).graph))
    found = list(calls.find(lambda: lambda one, other: one.op == other.op))
    assert [(each.length, each.count) for each in found[:2]] == [(3, 8), (3, 6)]


def ports(count=SHORT):
    """A tensor, and a lane of which the shortened graph has the first and the last ones."""
    short = [None] + [Rung(0, place) for place in range(count)]
    whole = [(0, None)]
    for place in range(count + MORE):
        like = place if place < HEAD else max(HEAD - 1, place - MORE)
        whole.append((1 + like, Rung(0, place)))
    return Ports(tuple(short), tuple(whole))


def lengthened(function, count=SHORT):
    module = traced(function, count)
    results = len(module.graph.output_node().args[0])
    alone = Ports((None,) * results, tuple((place, None) for place in range(results)))
    found = Lengthening(module.graph, ports(count), Seeds(0, {}, {}), MORE).whole(alone)
    found.graph.lint()
    return fx.GraphModule(module, found.graph)


def test_the_whole_reads_all_inputs_in_turn():
    weights = [torch.rand(SIZE) for _ in range(SHORT + MORE)]
    x = torch.rand(SIZE)
    torch.testing.assert_close(lengthened(layers)(x, *weights), layers(x, *weights), rtol=0, atol=0)


def test_windows_in_the_other_order():
    def backward(x, *weights):
        return layers(x, *reversed(weights))

    weights = [torch.rand(SIZE) for _ in range(SHORT + MORE)]
    x = torch.rand(SIZE)
    torch.testing.assert_close(lengthened(backward)(x, *weights), backward(x, *weights), rtol=0, atol=0)


def test_a_value_that_all_windows_read_is_theirs():
    def shared(x, *weights):
        first = x.exp()
        for weight in weights:
            x = (x * weight).sin() + first
        return (x,)

    weights = [torch.rand(SIZE) for _ in range(SHORT + MORE)]
    x = torch.rand(SIZE)
    torch.testing.assert_close(lengthened(shared)(x, *weights), shared(x, *weights), rtol=0, atol=0)


def first_window(x, *weights):
    """All windows read a value of the first."""
    kept = None
    for weight in weights:
        y = (x * weight).sin()
        kept = y if kept is None else kept
        x = y + kept
    return (x,)


def first_weight(x, *weights):
    """All windows read the first one's weight."""
    for weight in weights:
        x = (x * weight).sin() + weights[0]
    return (x,)


def all_weights(x, *weights):
    """Something before the windows reads all that they do."""
    x = x + torch.stack(weights).sum(0)
    return layers(x, *weights)


def one_result(x, *weights):
    """The first window gives a result, and no other does."""
    results = []
    for weight in weights:
        x = (x * weight).sin() + x
        results.append(x)
    return x, results[0]


def swapped(x, *weights):
    """As `layers`, but for two in the middle."""
    weights = list(weights)
    weights[HEAD + 1], weights[HEAD + 2] = weights[HEAD + 2], weights[HEAD + 1]
    return layers(x, *weights)


def test_other_orders_of_weights_have_other_keys():
    """What is left of two graphs is the same, and what is left out is not."""
    (one,), (other,) = (shorten(traced(function, SHORT + MORE)) for function in (layers, swapped))
    assert one.more == other.more > 0 and one.module.code == other.module.code
    assert one.digest != other.digest


def states(x, *weights):
    """What all windows give is returned."""
    given = []
    for weight in weights:
        x = (x * weight).sin() + x
        given.append(x)
    return given


def swapped_states(x, *weights):
    given = states(x, *weights)
    given[HEAD + 1], given[HEAD + 2] = given[HEAD + 2], given[HEAD + 1]
    return given


def test_other_orders_of_results_have_other_keys():
    (one,), (other,) = (shorten(traced(function, SHORT + MORE)) for function in (states, swapped_states))
    assert one.more == other.more > 0
    assert one.digest != other.digest


@pytest.mark.parametrize("function", [first_window, first_weight, all_weights])
def test_what_is_read_out_of_turn_is_refused(function):
    with pytest.raises(Irregular, match="windows? reads? "):
        lengthened(function)


def test_a_result_of_an_early_window_is_that_window_s():
    weights = [torch.rand(SIZE) for _ in range(SHORT + MORE)]
    x = torch.rand(SIZE)
    torch.testing.assert_close(lengthened(one_result)(x, *weights), one_result(x, *weights), rtol=0, atol=0)


def test_other_inputs_than_expected_are_refused():
    module = traced(layers, SHORT)
    with pytest.raises(Irregular, match="expected"):
        Lengthening(module.graph, ports(SHORT + 1), Seeds(0, {}, {}), MORE)
