"""Logits that a graph returns beside its loss: differentiable outside of the graph, where that costs nothing unused.

AOTAutograd gives every differentiable output a gradient, zeros in its full size where nobody differentiates it. So the
rewritten graph computes these logits from detached operands, or not at all (lazy.py), and returns the hidden state they
come from, too; the callable that runs the graph drops that again and attaches the linear layer's gradient as an edge of
its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from ..graph.decision import Head
from ..graph.edit import erase_unused
from ..graph.memory import memories
from ..graph.nodes import example
from . import lazy, terms
from .linears import linear_operands


@dataclasses.dataclass(frozen=True)
class Edge:
    """One linear layer's result among a graph's outputs."""

    outputs: tuple[int, ...]  # the places of the logits
    # Of hidden, weight, bias and the terms' hidden states and weights: a place among the outputs, those included that
    # were added; below zero: of an input, ~place; None: there is no bias.
    operands: tuple[int | None, ...]
    factors: tuple[float, ...]  # of the terms
    tail: Callable[[torch.Tensor], torch.Tensor] | None  # what makes the outputs of the linear layer's result
    lazy: torch.dtype | None = None  # of outputs that the graph leaves empty


class _Linear(torch.autograd.Function):
    """The gradient of `tail(linear(hidden, weight, bias) + terms)` for a result made elsewhere, which comes back.

    The product is not kept for the tail's gradient: whoever asks for that computes it again."""

    @staticmethod
    def forward(
        ctx: Any, tail: Any, factors: tuple[float, ...], logits: torch.Tensor, *operands: torch.Tensor | None
    ) -> torch.Tensor:
        ctx.save_for_backward(*operands)
        ctx.tail, ctx.factors = tail, factors
        ctx.mark_dirty(logits)  # so that it is no view of anything: its reader may write it
        return logits

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> Any:
        hidden, weight, _, *others = ctx.saved_tensors
        of_hidden = of_weight = of_bias = None
        if ctx.tail is not None:
            cotangent = _before(ctx.tail, ctx.factors, ctx.saved_tensors, cotangent)
        _, _, _, *wanted = ctx.needs_input_grad
        if wanted[0]:
            of_hidden = torch.matmul(cotangent, weight)
        if wanted[1]:
            rows = cotangent.reshape(-1, cotangent.shape[-1])
            of_weight = torch.mm(rows.t(), hidden.reshape(-1, hidden.shape[-1]))
        if wanted[2]:
            of_bias = cotangent.reshape(-1, cotangent.shape[-1]).sum(0)
        of_terms = terms.gradients(ctx.factors, cotangent, wanted[3:], *others)
        return None, None, None, of_hidden, of_weight, of_bias, *of_terms


def _before(
    tail: Any, factors: Sequence[float], operands: Sequence[torch.Tensor | None], cotangent: torch.Tensor
) -> torch.Tensor:
    """The cotangent of the linear layer's result."""
    with torch.no_grad():
        logits = terms.linear(factors, *operands)
    with torch.enable_grad():
        return torch.autograd.grad(tail(logits.requires_grad_()), logits, cotangent)[0]


def outputs(module: fx.GraphModule) -> int:
    """How many results a graph has."""
    items = next(node for node in reversed(module.graph.nodes) if node.op == "output").args[0]
    return len(items) if isinstance(items, (tuple, list)) else 1


def detach(module: fx.GraphModule, heads: Sequence[Head], current: Callable[[fx.Node], fx.Node]) -> list[Edge]:
    """Makes the graph return these heads' logits without a gradient, or nothing in their place, and what `attach` needs
    for one. `current`: what stands in the graph for a node now."""
    graph = module.graph
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    output = next(node for node in reversed(graph.nodes) if node.op == "output")
    items = list(output.args[0])
    edges = []
    unused: list[fx.Node] = []
    for head in heads:
        linear, tail = head.linear, head.tail
        operands = linear_operands(linear)
        given = linear if tail is None else current(tail.copies[-1])
        places = tuple(place for place, item in enumerate(items) if item is given)
        items += [node for node in dict.fromkeys(operands.hiddens()) if node not in inputs and node not in items]
        sources = tuple(
            None if node is None else ~inputs.index(node) if node in inputs else items.index(node)
            for node in operands.arguments()
        )
        edge = Edge(places, sources, operands.factors, tail.body if tail is not None else None)
        if head.lazy:
            edges.append(dataclasses.replace(edge, lazy=example(given).dtype))
            unused += [given, *([tail.returned] if tail is not None else [])]
            with graph.inserting_before(output):  # no None: what splits graphs (DDP's buckets) takes tensors alone
                nothing = graph.call_method("new_empty", (operands.hidden, (0,)))
            nothing.meta = {**linear.meta, "example_value": example(operands.hidden).detach().new_empty((0,))}
            for place in places:
                items[place] = nothing
            continue
        edges.append(edge)
        with graph.inserting_before(linear):
            for operand in operands.nodes():
                detached = graph.call_method("detach", (operand,))
                detached.meta = {**linear.meta, "example_value": example(operand).detach()}
                linear.replace_input_with(operand, detached)
        for node in _views(linear):
            node.meta["example_value"] = example(node).detach()
    output.args = (tuple(items),)
    left = set(graph.nodes)
    erase_unused(module, [node for node in unused if node in left])
    return edges


def _views(node: fx.Node) -> list[fx.Node]:
    """A node and what is made of its memory."""
    found, pending = [], [node]
    memory = memories(example(node))
    while pending:
        node = pending.pop()
        found.append(node)
        for user in node.users:
            value = example(user)
            if isinstance(value, torch.Tensor) and memory & memories(value) and user not in found:
                pending.append(user)
    return found


def attach(run: Callable[..., Any], edges: Sequence[Edge], count: int) -> Callable[..., Any]:
    """`run` with the edges attached to its results and the added ones dropped: `count` are left."""
    if not edges:
        return run

    def with_edges(*arguments: Any) -> Any:
        results = list(run(*arguments))
        for edge in edges:
            operands = [
                place if place is None else arguments[~place] if place < 0 else results[place]
                for place in edge.operands
            ]
            if edge.lazy is not None:
                logits = lazy.product(edge.tail, edge.factors, operands, edge.lazy)
            else:  # A recorded CUDA graph returns one tensor object again and again, which must not keep the edge.
                logits = results[edge.outputs[0]].detach()
            attached = _Linear.apply(edge.tail, edge.factors, logits, *operands)
            for place in edge.outputs:
                results[place] = attached
        return tuple(results[:count])

    return with_edges
