"""Sums of products become accumulation inside the matmul.

Layers that share an input (queries, keys and values; gate and up) give it a gradient each: `dQ Wq + dK Wk + dV Wv`.
Added after the products, every sum reads two tensors and writes one; a matmul that adds to what its result's memory
holds reads one and makes none. It rounds as often at most: cuBLAS gives the same bits as the sum, oneDNN adds before it
rounds. A product that is added to another's result is added where that lies.

What all layers of a decoder read of an encoder gets a gradient of two products a layer, and often another one first: of
many, that one is added last, so that the products need memory for one.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx as fx

from ...graph.effects import effect_of
from ...graph.layouts import written

_aten = torch.ops.aten
_RESHAPES = {_aten.view.default, _aten._unsafe_view.default}
_PRODUCT, _SUM, _SUM_APART = _aten.mm.default, _aten.addmm_.default, _aten.addmm.default
_MANY = 4  # products of a sum that another value begins: of fewer, whoever reads the sum reads them as well


def accumulate(graph: fx.Graph) -> int:
    """Makes `add(mm(a, b), mm(c, d))` and `addmm(mm(a, b), c, d)`, reshapes in between included, `addmm_(mm(a, b), c,
    d)`; returns how often. A product that anything else reads stays. The graph writes memory then: it is for running as
    it is."""
    times = 0
    _begin_with_products(graph)
    for node in list(graph.nodes):
        if node.target is _SUM_APART and not node.kwargs and (held := _product(node.args[0])) is not None:
            _write_into(graph, node, held)
            times += 1
            continue
        if node.target is not _aten.add.Tensor or node.kwargs or len(node.args) != 2:
            continue
        terms = [_product(argument) for argument in node.args]
        if None in terms or terms[0] is terms[1] or len({_form(term) for term in terms}) != 1:
            continue
        if _form(node.args[0])[1:] != _form(node.args[1])[1:] or _form(node)[0] != _form(terms[0])[0]:
            continue
        held, added = sorted(terms, key=lambda term: term.target is _PRODUCT)  # a sum holds, and another is added
        if added.target is not _PRODUCT:
            continue
        if held.target is _PRODUCT and added < held:
            held, added = added, held
        _replace(graph, node, held, added)
        times += 1
    return times


def _begin_with_products(graph: fx.Graph) -> None:
    """Makes `((x + p) + q) + ...` of many products `((p + q) + ...) + x`, where nothing is written meanwhile."""
    begun: dict[fx.Node, tuple[Any, list[fx.Node]]] = {}  # sum -> what it begins with, and sums that add a product
    for node in graph.find_nodes(op="call_function", target=_aten.add.Tensor):
        if node.kwargs or len(node.args) != 2:
            continue
        products = [_product(argument) is not None for argument in node.args]
        if sum(products) != 1:
            continue
        other, product = node.args if products[1] else reversed(node.args)
        if not isinstance(other, fx.Node) or not _form(other) == _form(product) == _form(node):
            continue
        first, before = begun.pop(other, (other, [])) if len(other.users) == 1 else (other, [])
        begun[node] = first, [*before, node]
    if not any(len(sums) >= _MANY for _, sums in begun.values()):
        return
    order = {node: index for index, node in enumerate(graph.nodes)}
    writes = [order[node] for node in order if effect_of(node, graph.owning_module).written]
    for total, (first, sums) in begun.items():
        # What is read later must be what it was.
        if len(sums) >= _MANY and not any(order[sums[0]] < place < order[total] for place in writes):
            _begin_with_second(graph, total, first, sums)


def _begin_with_second(graph: fx.Graph, total: fx.Node, first: fx.Node, sums: list[fx.Node]) -> None:
    begin, *rest = sums
    (product,) = [argument for argument in begin.args if argument is not first]
    begin.replace_all_uses_with(product)
    graph.erase_node(begin)
    with graph.inserting_after(total):
        whole = graph.call_function(_aten.add.Tensor, (total, first))
    whole.meta = dict(total.meta)
    total.replace_all_uses_with(whole, delete_user_cb=lambda user: user is not whole)


def _write_into(graph: fx.Graph, node: fx.Node, held: fx.Node) -> None:
    with graph.inserting_before(node):
        total = graph.call_function(_SUM, (held, *node.args[1:]))
    total.meta = dict(node.meta)
    node.replace_all_uses_with(total)
    chain = node.args[0]
    graph.erase_node(node)
    while chain is not held:
        chain, dead = chain.args[0], chain
        graph.erase_node(dead)


def _replace(graph: fx.Graph, node: fx.Node, held: fx.Node, added: fx.Node) -> None:
    with graph.inserting_after(max(held, added)):
        total = graph.call_function(_SUM, (held, *added.args))
    total.meta = dict(held.meta)
    result = total
    chains = [argument for argument in node.args if isinstance(argument, fx.Node)]
    if chains[0].target in _RESHAPES:
        with graph.inserting_before(node):
            result = graph.call_function(_aten.view.default, (total, chains[0].args[1]))
        result.meta = dict(node.meta)
    node.replace_all_uses_with(result)
    graph.erase_node(node)
    for dead in chains:
        while dead is not held:
            source = None if dead is added else dead.args[0]
            graph.erase_node(dead)
            dead = held if source is None else source


def _product(node: Any) -> fx.Node | None:
    """The product, or the sum of some, or of one and a bias, that a value is a reshape of, if nothing else reads
    either."""
    while isinstance(node, fx.Node) and len(node.users) == 1:
        if node.target in (_PRODUCT, _SUM) or node.target is _SUM_APART and _is_bias(node.args[0]):
            return node
        if node.target not in _RESHAPES:
            return None
        node = node.args[0]
    return None


def _is_bias(node: fx.Node) -> bool:
    return node.meta["val"].dim() == 1


def _form(node: fx.Node) -> tuple[Any, ...]:
    value = node.meta["val"]
    return value.dtype, value.device, *map(written, value.shape)
