"""Heads of keys and values that are repeated for attention become grouped queries (`enable_gqa=True`).

A repetition is whatever gives every group of query heads the head that it shares, however it is spelled: the repeated
tensor and the one before it are compared element by element (functions.py). It is left alone where torch would
have no kernel of its own for the grouped call, as on CUDA beside a mask or in float32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.fx as fx

from ..graph import nodes
from ..graph.decision import Declined
from ..graph.edit import erase_unused, is_pure, rewriting
from ..graph.nodes import example
from .calls import Change, arguments, attentions, changed
from .masks import outer_values
from .proof.elements import Unsupported
from .proof.functions import Functions, TooComplex
from .proof.linear import Facts, Linear

_STEPS = 8  # calls between a tensor and its repetition


def apply(module: fx.GraphModule) -> int:
    """Groups the queries of a graph's and its bodies' attentions where that is the same; returns of how many.

    On an exception the graph and its bodies are as they were.
    """
    modules = list(nodes.modules(module))
    changes = list(_changes(modules)) if any(True for part in modules for _ in attentions(part)) else []
    if not changes:
        return 0
    with rewriting(modules):
        for change in changes:
            before = arguments(change.node)
            change.apply()
            for node in dict.fromkeys((before["key"], before["value"])):
                if not node.users and is_pure(node, change.module):
                    erase_unused(change.module, [node])
    return len(changes)


def _changes(modules: Sequence[fx.GraphModule]) -> Iterator[Change]:
    functions = Functions(modules, outer_values(modules))
    values: dict[fx.Node, torch.Tensor] = {}
    for module in modules:
        for node in attentions(module):
            given = arguments(node)
            if given.get("enable_gqa", False) is not False:
                continue
            sources = [_shared(functions, given[name], example(given["query"])) for name in ("key", "value")]
            if None in sources or example(sources[0]).shape[-3] != example(sources[1]).shape[-3]:
                continue
            try:
                change = changed(module, node, values, True, key=sources[0], value=sources[1], enable_gqa=True)
            except Declined:
                continue
            values |= change.values
            yield change


def _shared(functions: Functions, repeated: fx.Node, query: torch.Tensor) -> fx.Node | None:
    """The tensor whose heads, each as often as queries share it, are this one's."""
    if not isinstance(repeated, fx.Node) or example(repeated).dim() != 4:
        return None
    node = repeated
    for _ in range(_STEPS):
        inputs = [item for item in node.all_input_nodes if isinstance(example(item), torch.Tensor)]
        if not inputs or node.op == "placeholder":
            return None
        node = inputs[0]
        try:
            if _repeats(functions, repeated, node, query):
                return node
        except (Unsupported, TooComplex):
            return None
    return None


def _repeats(functions: Functions, repeated: fx.Node, source: fx.Node, query: torch.Tensor) -> bool:
    """Whether head `g * h + r` of one is head `h` of the other, for `g` of query's heads to each."""
    if example(source).dim() != 4 or query.dim() != 4 or example(source).dtype != example(repeated).dtype:
        return False
    heads, all_heads = example(source).shape[-3], query.shape[-3]
    if not isinstance(heads, int) or not isinstance(all_heads, int) or not 0 < heads < all_heads or all_heads % heads:
        return False
    group = all_heads // heads
    shape = functions.shape(source)
    batch, _, row, column = shape
    if functions.shape(repeated) != (batch, Linear(all_heads), row, column):
        return False
    places = [functions.new(name) for name in ("batch", "head", "row", "column")]
    member = functions.new("member")
    facts = functions.inside(Facts(), (*places, member), (*shape, Linear(group)))
    inner = (places[0], places[1] * group + member, *places[2:])
    return functions.element(repeated, inner, facts) == functions.element(source, tuple(places), facts)
