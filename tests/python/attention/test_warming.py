"""Attentions are called once, by another thread, while the first graph that has them is compiled."""

from __future__ import annotations

import logging
import threading

import cermet
import pytest
import torch
import torch.nn.functional as F
from cermet.attention import warming
from cermet.targets import devices
from cermet.targets.target import Target

WIDTH = 8


@pytest.fixture
def called(monkeypatch):
    """What is called ahead, on a CPU too, in a process that has called nothing."""
    monkeypatch.setattr(warming, "_DEVICES", ("cpu", "cuda"))
    monkeypatch.setattr(warming, "_known", set())
    theirs, found = warming.Form.call, []

    def call(form):
        found.append(form)
        assert threading.current_thread() is not threading.main_thread()
        theirs(form)

    monkeypatch.setattr(warming.Form, "call", call)
    return found


def tensor(device, *shape, dtype=None):
    """As projections give it: heads behind positions in memory, in a type that kernels on the device take."""
    batch, heads, length, width = shape
    dtype = dtype or (torch.float32 if device == "cpu" else torch.bfloat16)
    return torch.randn(batch, length, heads, width, device=device, dtype=dtype).transpose(1, 2)


def compiled(function, **settings):
    return torch.compile(function, backend="cermet", fullgraph=True, options={"strict": True}, **settings)


def layers(query, key, value):
    result = F.scaled_dot_product_attention(query, query, query, scale=0.5)
    for number in range(3):
        result = result + F.scaled_dot_product_attention(query + number, key, value, is_causal=True, enable_gqa=True)
    return result


def test_each_form_is_called_once_with_its_gradient(device, called, caplog):
    leaves = [tensor(device, 2, heads, 5, WIDTH).requires_grad_(heads == 4) for heads in (4, 2, 2)]
    call = compiled(layers)
    with caplog.at_level(logging.INFO, logger="cermet"):
        result = call(*leaves)
    result.sum().backward()
    first, second = sorted(called, key=lambda form: len(form.settings), reverse=True)
    assert "not called ahead" not in caplog.text
    assert first.device.type == device and first.mask is None and first.differentiated
    assert [each.shape for each in first.operands] == [tuple(each.shape) for each in leaves]
    assert [each.strides for each in first.operands] == [each.stride() for each in leaves]
    assert [each.differentiated for each in first.operands] == [True, False, False]
    assert dict(first.settings) == {"is_causal": True, "enable_gqa": True} and dict(second.settings) == {"scale": 0.5}
    torch.testing.assert_close(result, layers(*leaves))
    torch._dynamo.reset()
    call(*leaves)
    assert len(called) == 2


def test_lengths_that_vary_are_called_with_the_first_one(device, called):
    compiled(layers, dynamic=True)(*(tensor(device, 2, 2, 6, WIDTH) for _ in range(3)))
    assert {form.operands[0].shape for form in called} == {(2, 2, 6, WIDTH)}
    assert not any(form.differentiated for form in called)


def test_operands_have_the_type_that_autocast_gives_them(device, called):
    operands = [tensor(device, 2, 2, 5, WIDTH, dtype=torch.float32) for _ in range(3)]
    mask = torch.ones(2, 1, 5, 5, dtype=torch.bool, device=device).tril()[:, :, :1].expand(2, 2, 5, 5)
    with torch.autocast(device, torch.bfloat16):
        compiled(F.scaled_dot_product_attention)(*operands, mask)
    (form,) = called
    assert {each.dtype for each in form.operands} == {torch.bfloat16}
    assert (form.mask.dtype, form.mask.strides) == (torch.bool, mask.stride())


def test_what_draws_is_not_called(device, called):
    operands = [tensor(device, 2, 2, 5, WIDTH) for _ in range(3)]
    compiled(lambda *given: F.scaled_dot_product_attention(*given, dropout_p=0.5))(*operands)
    assert called == []


def test_products_and_a_softmax_are_not_called(device, called, monkeypatch):
    theirs = warming.calls.traced
    monkeypatch.setattr(warming.calls, "traced", lambda node, given: (theirs(node, given)[0], None))
    compiled(layers)(*(tensor(device, 2, 2, 5, WIDTH) for _ in range(3)))
    assert called == []


def test_what_is_large_or_empty_is_not_called(device, called, monkeypatch):
    compiled(F.scaled_dot_product_attention)(*(tensor(device, 0, 2, 5, WIDTH) for _ in range(3)))
    operands = [tensor(device, 2, 2, 5, WIDTH) for _ in range(3)]
    monkeypatch.setattr(warming, "_BYTES", operands[0].nbytes - 1)
    compiled(F.scaled_dot_product_attention)(*operands)
    assert called == []


def test_a_call_that_fails_is_the_only_one_that_is_lost(device, called, caplog, monkeypatch):
    def fails(form):
        called.append(form)
        raise RuntimeError("why")

    monkeypatch.setattr(warming.Form, "call", fails)
    operands = [tensor(device, 2, 2, 5, WIDTH) for _ in range(3)]
    before = cermet.counters()["fallbacks"]
    with caplog.at_level(logging.INFO, logger="cermet"):
        result = compiled(layers)(*operands)
    torch.testing.assert_close(result, layers(*operands))
    assert len(called) == 2 and "an attention was not called ahead: why" in caplog.text
    assert cermet.counters()["fallbacks"] == before


def test_nothing_is_called_while_a_graph_is_recorded(device, called, monkeypatch):
    operands = [tensor(device, 2, 2, 5, WIDTH) for _ in range(3)]
    monkeypatch.setattr(warming.devices, "recorded", lambda device: True)
    compiled(layers)(*operands)
    assert called == []


def test_what_is_captured_calls_nothing(called):
    with devices.capturing(Target.of("sm_90")):
        compiled(layers)(*(tensor("cpu", 2, 2, 5, WIDTH) for _ in range(3)))
    assert called == []


def test_what_is_explained_calls_nothing(device, called):
    cermet.explain(layers, *(tensor(device, 2, 2, 5, WIDTH) for _ in range(3)))
    assert called == []
