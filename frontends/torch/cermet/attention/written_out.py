"""Attention that a program writes out, as products and a softmax, becomes attention's kernels, with a sink or without.

    scores = query @ key.transpose(-1, -2) * scale + mask
    result = softmax(scores) @ value

A sink is one more score of each row, a number that a head learns, to which no value belongs: it takes a share of the
softmax. Where l is the logarithm of a row's sum of exponentials, which kernels give beside the result, the row with a
sink s is the one without, times exp(l) / (exp(l) + exp(s)).

Written out, scores of a half type are rounded at each step and stored; in a kernel they are neither. Products in f32 of
such queries and keys are more exact than a kernel's, and stay, as does what drops weights. With sinks, so does what has
a mask of which nothing is proved: the kernels that add a mask do not give those sums.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx as fx
import torch.nn.functional as F

from ..graph import nodes
from ..graph.decision import Declined
from ..graph.edit import erase_unused, is_pure, rewriting
from ..graph.effects import WRITE, effect_of
from ..graph.layouts import written
from ..graph.nodes import example
from .calls import PRODUCTS, TURNS, WRITTEN_OUT, changed

_SOFTMAXES = {F.softmax, torch.softmax, "softmax"}
_SUMS, _DIFFERENCES = {operator.add, operator.iadd, torch.add, "add"}, {operator.sub, torch.sub, "sub"}
_MULTIPLICATIONS, _DIVISIONS = {operator.mul, torch.mul, "mul"}, {operator.truediv, torch.div, "div"}
_JOINS, _MAXIMA = {torch.cat, torch.concat}, {torch.max, "max"}
_VIEWS = {"view", "reshape", "expand", "unsqueeze", torch.reshape, torch.unsqueeze}
_DTYPES = {torch.bfloat16, torch.float16}


@dataclasses.dataclass(frozen=True)
class _Attention:
    """What is written out, by the product that gives the result."""

    module: fx.GraphModule
    product: fx.Node
    query: fx.Node
    key: fx.Node
    value: fx.Node
    mask: fx.Node
    scale: float
    sinks: fx.Node | None  # [heads]

    @property
    def given(self) -> dict[str, Any]:
        """What attention would be called with."""
        operands = {"query": self.query, "key": self.key, "value": self.value}
        return {**operands, "attn_mask": self.mask, "scale": self.scale}


def apply(module: fx.GraphModule) -> int:
    """Calls attention where a graph at the Dynamo level, or a body of it, writes it out without sinks, and notes what
    those with sinks would be called with, which masks.py asks about; in place. Returns how many are called.

    On an exception the graph and its bodies are as they were.
    """
    modules, times = list(nodes.modules(module)), 0
    found = [each for part in modules for node in part.graph.nodes if (each := _found(part, node)) is not None]
    if not found:
        return 0
    values: dict[fx.Node, torch.Tensor] = {}
    with rewriting(modules):
        for each in found:
            if each.sinks is not None:
                each.product.meta[WRITTEN_OUT] = each.given | {"sinks": each.sinks}
            else:
                times += _call(each, values)
    return times


def with_sinks(module: fx.GraphModule) -> list[fx.Node]:
    """The products that end an attention with sinks."""
    return [node for node in module.graph.nodes if WRITTEN_OUT in node.meta]


def _call(found: _Attention, values: dict[fx.Node, torch.Tensor]) -> bool:
    """Whether an attention is a call then: where there is a kernel for it."""
    node = found.product
    before, weights = (node.op, node.target, node.args, node.kwargs), node.args[0]
    node.op, node.target, node.args, node.kwargs = "call_function", F.scaled_dot_product_attention, (), found.given
    try:
        change = changed(found.module, node, values, True)
    except (Declined, AttributeError, IndexError):
        node.op, node.target, node.args, node.kwargs = before
        return False
    change.apply()
    values.update(change.values)
    if not weights.users and is_pure(weights, found.module):
        erase_unused(found.module, [weights])
    return True


# --- What is written out ---------------------------------------------------------------------------------------------


def _found(module: fx.GraphModule, node: fx.Node) -> _Attention | None:
    node.meta.pop(WRITTEN_OUT, None)  # of the graph that this is a copy of
    if not _is(node, PRODUCTS) or len(node.args) != 2 or node.kwargs:
        return None
    try:
        return _read(module, node)
    except (Declined, AttributeError, IndexError, TypeError, KeyError, ValueError):  # a call of another form
        return None


def _read(module: fx.GraphModule, product: fx.Node) -> _Attention:
    """Raises Declined, or what comes of a call of another form, where it is no attention."""
    weights, value = product.args
    dtype = example(product).dtype
    _expect(dtype in _DTYPES and example(value).dim() == 4 and getattr(example(product), "fake_mode", None) is not None)
    weights = _uncast(_inner(weights, product))
    if _is(weights, {F.dropout, torch.dropout}):
        given = dict(zip(("input", "p", "training"), weights.args)) | weights.kwargs
        _expect(given.get("p", 0.5) == 0.0 or given.get("training", True) is False)
        weights = _uncast(_inner(given["input"], weights))
    sinks, all_weights = None, weights
    if _is(weights, {operator.getitem}):
        _expect(weights.args[1] == (Ellipsis, slice(None, -1, None)))
        all_weights = _inner(weights.args[0], weights)
    _expect(_is(all_weights, _SOFTMAXES))
    given = dict(zip(("input", "dim", "dtype"), all_weights.args)) | all_weights.kwargs
    _expect(given.get("dim") in (-1, 3) and given.get("dtype") in (None, dtype, torch.float32))
    scores = _inner(given["input"], all_weights)
    if all_weights is not weights:
        scores, sinks = _without_sink(scores)
    added = scores
    scores, mask = _terms(added)
    scale, scores = _scaled(scores)
    _expect(_is(scores, PRODUCTS) and not scores.kwargs)
    _expect(not _writes(module, scores, product, added))
    query, turned = scores.args
    _expect(_is(turned, TURNS) and {dim % 4 for dim in turned.args[1:]} == {2, 3})
    key = turned.args[0]
    _expect(all(example(each).dtype == dtype and example(each).dim() == 4 for each in (query, key, value, scores)))
    of_heads = [[*map(written, example(each).shape[:2])] for each in (query, key, value)]
    _expect(of_heads[0] == of_heads[1] == of_heads[2])
    return _Attention(module, product, query, key, value, mask, scale, sinks)


def _writes(module: fx.GraphModule, first: fx.Node, last: fx.Node, added: fx.Node) -> bool:
    """Whether anything writes between two calls, but for the sum with the mask, which may be in place: what the first
    reads is read by the last then."""
    between = itertools.takewhile(lambda node: node is not last, _behind(first))
    return any(node is not added and effect_of(node, module).kind == WRITE for node in between)


def _behind(node: fx.Node) -> Iterator[fx.Node]:
    while node.next.op != "root":
        node = node.next
        yield node


def _without_sink(scores: fx.Node) -> tuple[fx.Node, fx.Node]:
    """The scores of keys, and the sinks of heads, where they were joined, and the largest taken from all."""
    if _is(scores, _DIFFERENCES):
        joined, largest = scores.args
        source = largest.args[0]
        _expect(_is(largest, {operator.getitem, getattr}) and largest.args[1] in (0, "values"))
        _expect(_is(source, _MAXIMA) and source.args[0] is joined and set(joined.users) <= {scores, source})
        given = dict(zip(("input", "dim", "keepdim"), source.args)) | source.kwargs
        _expect(given.get("dim") in (-1, 3) and given.get("keepdim") is True and set(source.users) == {largest})
        _expect(set(largest.users) == {scores})
        scores = joined
    given = dict(zip(("tensors", "dim"), scores.args)) | scores.kwargs
    _expect(_is(scores, _JOINS) and given.get("dim") in (-1, 3) and len(given["tensors"]) == 2)
    keys, sink = given["tensors"]
    _expect(set(keys.users) == {scores})
    heads = example(keys).shape[1]
    while example(sink).dim() != 1:
        _expect(_is(sink, _VIEWS) and _is_of_heads(example(sink), heads))
        sink = sink.args[0]
    _expect(example(sink).shape[0] == heads)
    return keys, sink


def _is_of_heads(value: torch.Tensor, heads: Any) -> bool:
    """Whether it is [.., heads, .., 1], one number for each head."""
    own = [size for size, stride in zip(value.shape, value.stride()) if stride != 0 and written(size) != "1"]
    at = value.dim() - 3
    return own == [heads] * (written(heads) != "1") and at >= 0 and value.shape[at] == heads and value.shape[-1] == 1


def _terms(scores: fx.Node) -> tuple[fx.Node, fx.Node]:
    """The scores and the mask that is added to them."""
    _expect(_is(scores, _SUMS) and len(scores.args) == 2 and not scores.kwargs)
    for first, second in (scores.args, scores.args[::-1]):
        if _is(first, PRODUCTS | _MULTIPLICATIONS | _DIVISIONS) and not example(second).requires_grad:
            _expect(example(scores).dtype == example(first).dtype)
            return _inner(first, scores), second
    raise Declined("nothing is added to its scores")


def _scaled(scores: fx.Node) -> tuple[float, fx.Node]:
    for targets, factor in ((_MULTIPLICATIONS, float), (_DIVISIONS, lambda number: 1 / number)):
        if _is(scores, targets):
            inner, number = scores.args
            _expect(isinstance(number, (int, float)) and number != 0)
            return factor(number), _inner(inner, scores)
    return 1.0, scores


def _uncast(value: fx.Node) -> fx.Node:
    """What casts are of."""
    while _is(value, {"to", "type", "type_as"}):
        value = _inner(value.args[0], value)
    return value


def _inner(value: fx.Node, reader: fx.Node) -> fx.Node:
    """A value that nothing else reads."""
    _expect(set(value.users) == {reader})
    return value


def _is(node: Any, targets: set[Any]) -> bool:
    return isinstance(node, fx.Node) and node.op in ("call_function", "call_method") and node.target in targets


def _expect(holds: bool) -> None:
    if not holds:
        raise Declined("it is no attention")
