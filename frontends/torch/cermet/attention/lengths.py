"""Attentions whose mask is a band, of rows or of segments, become calls of `cermet_v1::attend_lengths`."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import torch
import torch.fx as fx

from ..graph.decision import Declined
from ..graph.edit import erase_unused
from ..graph.layouts import written
from ..graph.nodes import example
from ..ops.attending import ATTEND, ATTEND_DROPPING, ATTEND_SINKING, FULL, KINDS, TOLD
from .calls import WRITTEN_OUT, Change, arguments, consequences
from .kernels import Form, kernel_of
from .meanings import Meaning, Proof
from .readings import Kind

NO_ENDS = (None, None, None)
Ends = tuple[fx.Node, fx.Node, fx.Node]  # what a call is given: the ends of its queries, of its keys, and what is told


@dataclasses.dataclass(frozen=True)
class Attending(Change):
    """A call over segments. Its `arguments` are those of the op but for the ends, which `apply` gets."""

    dtype: torch.dtype = torch.float32  # to which autocast casts what it is given
    result: torch.Tensor | None = None

    def apply(self, calls: Sequence[Ends] = ()) -> None:
        graph, name = self.node.graph, "val" if "val" in self.node.meta else "example_value"
        weights = [self.node.args[0]] if self.node.meta.pop(WRITTEN_OUT, None) else []
        query, key, value, *rest = self.arguments.values()
        with graph.inserting_before(self.node):
            operands = [self._cast(operand, name) for operand in (query, key, value)]
        self.node.op, self.node.target = "call_function", (target := _target(self.arguments))
        self.node.args = (*operands, *(calls[0] if calls else NO_ENDS), *rest)
        self.node.kwargs = {}
        erase_unused(self.module, weights)
        for node, fake in self.values.items():
            node.meta[name] = fake
        for others in calls[1:]:  # of the queries that attend to all
            with graph.inserting_after(self.node):
                other = graph.call_function(target, (*operands, *others, FULL.left, FULL.right, *rest[2:]))
            with graph.inserting_after(other):
                both = graph.call_function(operator.add, (self.node, other))
            self.node.replace_all_uses_with(both, delete_user_cb=lambda user: user is not both)
            other.meta, both.meta = {**self.node.meta, name: self.result}, {**self.node.meta, name: self.result}

    def _cast(self, operand: fx.Node, name: str) -> fx.Node:
        old = example(operand)
        if old.dtype == self.dtype:
            return operand
        cast = self.node.graph.call_method("to", (operand, self.dtype))
        with old.fake_mode, torch.set_grad_enabled(old.requires_grad):
            cast.meta = {**operand.meta, name: old.to(self.dtype)}
        return cast


def attending(module: fx.GraphModule, node: fx.Node, proof: Proof, before: dict[fx.Node, torch.Tensor]) -> Attending:
    """The call that an attention becomes whose mask has such a meaning. Raises Declined where there is no kernel for
    it, or other calls break. `before`: the new values of changes that will be made, too."""
    given = arguments(node)
    dropout_p = given.get("dropout_p") or 0.0
    if not isinstance(dropout_p, float) or not 0.0 <= dropout_p < 1.0:
        raise Declined("attention drops a part of its weights that is not known")
    operands = {name: given[name] for name in ("query", "key", "value")}
    query, key, value = (example(operand) for operand in operands.values())
    old = example(node)
    if any(tensor.dim() != 4 for tensor in (query, key, value)):
        raise Declined("attention of another rank than batch, heads, places and width")
    heads, shared = query.shape[1], key.shape[1]
    sizes = (heads, shared, value.shape[1], query.shape[3], value.shape[3])
    if not all(isinstance(size, int) for size in sizes) or shared != value.shape[1] or heads % shared:
        raise Declined("attention of heads that are not known, or not shared alike")
    if any(written(query.shape[dimension]) != written(key.shape[dimension]) for dimension in (0, 2)):
        raise Declined("there are other keys than queries")
    if written(query.shape[0]) == "0" or written(query.shape[2]) == "0":
        raise Declined("there are no queries")
    one_sided = proof.meaning is Meaning.PADDING
    bands, widths = {proof.band, FULL} if one_sided else {proof.band}, (query.shape[3], value.shape[3])
    bands = set(KINDS) if proof.band == TOLD else bands
    kernels = {
        kernel_of(Form(old.device, old.dtype, heads // shared, *widths, band, one_sided, drops=dropout_p > 0.0))
        for band in bands
    }
    if len(kernels) > 1:
        raise Declined("no one kernel takes all of its segments")
    scale = given.get("scale")
    rest = {"left": proof.band.left, "right": proof.band.right, "scale": scale, "kernel": kernels.pop()}
    rest |= {"dropout_p": dropout_p} if dropout_p else {}
    rest |= {"sinks": given["sinks"]} if "sinks" in given else {}
    result = _traced(old, [query, key, value], rest)
    values = consequences(module, node, result, before)
    return Attending(module, node, {**operands, **rest}, values, old.dtype, result)


def _target(given: dict[str, Any]) -> torch._ops.OpOverload:
    return ATTEND_SINKING if "sinks" in given else ATTEND_DROPPING if "dropout_p" in given else ATTEND


def _traced(old: torch.Tensor, operands: list[torch.Tensor], rest: dict[str, Any]) -> torch.Tensor:
    mode = getattr(old, "fake_mode", None)
    if mode is None:
        raise Declined("the graph was traced without fake tensors")
    try:
        with mode, torch.set_grad_enabled(old.requires_grad), torch.autocast(old.device.type, enabled=False):
            given = fx.node.map_arg(tuple(rest.values()), example)
            return _target(rest)(*(each.to(old.dtype) for each in operands), *NO_ENDS, *given)
    except Exception as error:
        raise Declined(f"attention cannot be traced over segments: {error}") from error


# --- What a graph is given -------------------------------------------------------------------------------------------


def add_inputs(module: fx.GraphModule, attention: fx.Node, kind: Kind) -> list[Ends]:
    """Inputs of a graph behind its others, for each call of an attention."""
    fake, many = example(attention), kind.most
    places = [node for node in module.graph.nodes if node.op == "placeholder"]
    found: list[fx.Node] = []
    names = ("ends_q", "ends_k", "told") if kind.segments.one_sided else ("ends", "told")
    for name in names * kind.segments.calls:
        with module.graph.inserting_after((places + found)[-1]):
            node = module.graph.placeholder(f"{name}_{len(places) + len(found)}")
        node._dynamo_source = None  # type: ignore[attr-defined]  # AOTAutograd asks; no guard is about it
        with fake.fake_mode:
            node.meta["example_value"] = (
                torch.empty(3 if kind.segments.mask is None else 5, dtype=torch.int64)
                if name == "told"
                else torch.empty(many + 1, dtype=torch.int32, device=fake.device)
            )
        found.append(node)
    calls = [found[begin : begin + len(names)] for begin in range(0, len(found), len(names))]
    return [(call[0], call[-2], call[-1]) for call in calls]
