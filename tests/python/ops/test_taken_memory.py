"""Launches whose results take operands' memory: whatever the plan allows gives the same bits, and where an operand lies
in another way nothing is written."""

from __future__ import annotations

import itertools

import pytest
import torch

import graphs
from cermet.ops import regions
from test_ops import region_key

T, ROW = 'tensor<?x{0}xf32, #cermet.symbols<["r0"]>>', 'tensor<?x1xf32, #cermet.symbols<["r0"]>>'


def staged(columns: int) -> int:
    """Of two results the first is known before the row was summed, which the second needs."""
    t = T.format(columns)
    return regions.register(f"""module attributes {{cermet.version = 1 : i64}} {{
  func.func @staged(%x: {t}, %y: {t}) -> ({t}, {t}) {{
    %n = cermet.neg %y : {t}
    %s = cermet.reduce_sum %x : {t} to {ROW}
    %b = cermet.broadcast %s : {ROW} to {t}
    %z = cermet.sub %x, %b : {t}
    %w = cermet.mul %z, %y : {t}
    return %n, %w : {t}, {t}
  }}
}}""")


def halves(columns: int) -> int:
    """One tensor of what is made of its halves, as a packed gated unit's gradient is."""
    t, half = T.format(2 * columns), T.format(columns)
    return regions.register(f"""module attributes {{cermet.version = 1 : i64}} {{
  func.func @halves(%x: {t}) -> ({t}) {{
    %a = cermet.slice %x [0, 0] : {t} to {half}
    %b = cermet.slice %x [0, {columns}] : {t} to {half}
    %m = cermet.mul %a, %b : {half}
    %n = cermet.silu %a : {half}
    %y = cermet.concat %m, %n {{dim = 1 : i64}} : {half}, {half} to {t}
    return %y : {t}
  }}
}}""")


def backward(function, *like) -> int:
    """The gradient of a region for all its operands."""
    return regions.gradient(region_key(function, *like), (True,) * len(like)).backward


def glu(columns: int) -> int:
    return backward(graphs.glu, torch.randn(4, columns), torch.randn(4, columns))


def norm(columns: int) -> int:
    return backward(graphs.rms_norm, torch.randn(4, columns), torch.randn(columns))


def inputs_of(key, rows, device):
    sizes = [[rows if isinstance(dim, str) else dim for dim in port.dims] for port in regions.signature(key).inputs]
    return [torch.randn(size, device=device) for size in sizes]


def choices(allowed):
    """Every way to give results operands' memory, each operand once."""
    for taken in itertools.product(*([None, *places] for places in allowed)):
        used = [place for place in taken if place is not None]
        if used and len(set(used)) == len(used):
            yield taken


CASES = [(make, columns) for make in (staged, glu, norm) for columns in (32, 33, 1000, 20000)]


@pytest.mark.parametrize(("make", "columns"), [*CASES, (halves, 8192), (halves, 16384)])
def test_all_that_a_plan_allows_gives_the_same_bits(make, columns, device):
    key = make(columns)
    found = list(choices(regions.may_take(key, torch.device(device))))
    assert found
    for rows in (1, 37):
        given = inputs_of(key, rows, device)
        expected = [value.clone() for value in regions.launch(key, given)]
        for taken in found:
            operands = [value.clone() for value in given]
            results = regions.launch(regions.placed(key, taken), operands)
            for result, value, place in zip(results, expected, taken):
                assert torch.equal(result, value), (taken, rows)
                if place is not None:
                    assert result.data_ptr() == operands[place].data_ptr() and result is not operands[place]
            for place, (operand, before) in enumerate(zip(operands, given)):
                assert place in taken or torch.equal(operand, before)


def test_what_is_picked_of_a_row_is_read_before_it_is_written(device):
    """Or its memory is not taken."""
    t = T.format(300)
    key = regions.register(f"""module attributes {{cermet.version = 1 : i64}} {{
  func.func @picked(%x: {t}, %i: {ROW.replace("f32", "i64")}) -> ({t}) {{
    %p = cermet.pick %x, %i : {t}, {ROW.replace("f32", "i64")} to {ROW}
    %b = cermet.broadcast %p : {ROW} to {t}
    %y = cermet.sub %x, %b : {t}
    return %y : {t}
  }}
}}""")
    assert regions.may_take(key, torch.device(device)) == [[]]


@pytest.mark.parametrize("lies", [lambda x: x.t().contiguous().t(), lambda x: torch.cat([x, x], 1)[:, : x.shape[1]]])
def test_an_operand_that_lies_in_another_way_is_not_written(lies, device):
    key = glu(32)
    taken = next(choices(regions.may_take(key, torch.device(device))))
    operands = [lies(value) for value in inputs_of(key, 6, device)]
    before = [value.clone() for value in operands]
    results = regions.launch(regions.placed(key, taken), operands)
    assert all(map(torch.equal, operands, before))
    assert all(map(torch.equal, results, regions.launch(key, before)))


def test_the_key_says_what_is_taken():
    key = glu(32)
    taken = next(choices(regions.may_take(key, torch.device("cpu"))))
    other = regions.placed(key, taken)
    assert other != key and other == regions.placed(key, taken)
    assert regions.kept([other]) == [(regions.text(key), (), taken)]
    assert regions.register(*regions.kept([other])[0]) == other
    assert regions.placed(key, (None,) * len(taken)) == key
