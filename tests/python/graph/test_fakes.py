"""Fake tensors that are made without their mode are those that it would make."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from cermet.graph import fakes
from cermet.graph.layouts import written
from cermet.graph.memory import memories

aten = torch.ops.aten


def fake(symbolic: bool):
    """A tensor of 3 x 5 x 8 whose first sizes may be symbols."""
    mode = FakeTensorMode(shape_env=ShapeEnv())
    kinds = [DimDynamic.DYNAMIC if symbolic else DimDynamic.STATIC] * 2 + [DimDynamic.STATIC]
    real = torch.empty(3, 5, 8, dtype=torch.bfloat16)
    return mode.from_tensor(real, symbolic_context=StatelessSymbolicContext(kinds))


def look(value):
    sizes = [[*map(written, each)] for each in (value.shape, value.stride(), (value.storage_offset(),))]
    return sizes, value.dtype, value.device, value.requires_grad, type(value), value.fake_mode


@pytest.mark.parametrize("symbolic", [False, True])
def test_a_view_is_the_one_of_its_mode(symbolic):
    value = fake(symbolic)
    rows = value.shape[0] * value.shape[1]
    made = fakes.view(value, [rows, 8], [8, 1])
    with value.fake_mode:
        expected = aten.view.default(value, [rows, 8])
        turned = aten.t.default(expected)
    assert look(made) == look(expected) and memories(made) == memories(value)
    assert look(fakes.view(made, made.shape[::-1], made.stride()[::-1])) == look(turned)
    assert not value.fake_mode.shape_env.guards


def test_a_view_begins_where_its_tensor_does():
    value = fake(False)
    with value.fake_mode:
        part = value[1:]
    assert fakes.view(part, [10, 8], [8, 1]).storage_offset() == 40


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("wanted", [False, True])
def test_a_tensor_like_another_has_its_form_and_its_own_memory(symbolic, wanted):
    value = fake(symbolic)
    with value.fake_mode:
        value = value.transpose(0, 1).requires_grad_(wanted)
    made, other = fakes.like(value), fakes.like(value)
    assert look(made) == look(value)
    assert len(memories([made, other, value])) == 3
    assert not value.fake_mode.shape_env.guards
