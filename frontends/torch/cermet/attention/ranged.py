"""Attentions to ranges of keys become calls of `cermet_v1::attend_ranges`."""

from __future__ import annotations

import dataclasses

import torch
import torch.fx as fx

from ..graph.decision import Declined
from ..graph.layouts import written
from ..graph.nodes import example
from ..ops.ranges import ATTEND_RANGES
from .calls import Change, arguments, consequences
from .kernels import Form, kernel_of
from .meanings import Proof
from .ranges import Ranges, Writer, check

_MOST_PLACES = 1 << 31  # of keys, in 32 bits

Known = dict[tuple[Ranges, int, fx.Graph], tuple[fx.Node | None, fx.Node | None]]  # bounds that a graph has already


@dataclasses.dataclass(frozen=True)
class Ranging(Change):
    """A call over ranges of keys. Its `arguments` are those of the op but for the bounds, which `apply` makes once for
    all calls."""

    ranges: Ranges

    def apply(self, known: Known | None = None) -> None:
        known = {} if known is None else known
        query, key, value, scale, kernel = self.arguments.values()
        queries = example(query).shape[2]
        place = self.ranges, queries, self.node.graph
        if place not in known:
            known[place] = Writer(self.node, queries).first_and_last(self.ranges)
        self.node.target = ATTEND_RANGES
        self.node.args, self.node.kwargs = (query, key, value, *known[place], scale, kernel), {}
        for node, fake in self.values.items():
            node.meta["val" if "val" in node.meta else "example_value"] = fake


def ranging(module: fx.GraphModule, node: fx.Node, proof: Proof, before: dict[fx.Node, torch.Tensor]) -> Ranging:
    """The call that an attention becomes whose mask is one of ranges. Raises Declined where there is no kernel for it,
    or other calls break. `before`: the new values of changes that will be made, too."""
    given = arguments(node)
    operands = {name: given[name] for name in ("query", "key", "value")}
    query, key, value = (example(operand) for operand in operands.values())
    old = example(node)
    if given.get("dropout_p") or old.requires_grad:
        raise Declined("attention to a part of a buffer of keys has no gradient and drops nothing")
    if any(tensor.dim() != 4 or tensor.dtype != old.dtype for tensor in (query, key, value)):
        raise Declined("attention of another rank than batch, heads, places and width, or of several types")
    rows, shared, keys, width = key.shape
    sizes = (rows, shared, keys, query.shape[1], width, value.shape[3])
    if not all(isinstance(size, int) and size for size in sizes) or query.shape[1] % shared:
        raise Declined("attention of sizes that are not known, or of heads that are not shared alike")
    if list(value.shape[:3]) != [rows, shared, keys] or written(query.shape[0]) != written(rows):
        raise Declined("attention of other values than keys")
    if not key.is_contiguous() or not value.is_contiguous():
        raise Declined("keys or values of a head do not lie behind one another")
    if rows * shared * keys >= _MOST_PLACES:
        raise Declined(f"there are {rows * shared * keys} keys, expected less than {_MOST_PLACES}")
    check(proof.ranges, node.graph, rows, old.device)
    form = Form(old.device, old.dtype, query.shape[1] // shared, width, value.shape[3], ranged=True)
    rest = {"scale": given.get("scale"), "kernel": kernel_of(form)}
    with old.fake_mode, torch.autocast(old.device.type, enabled=False):
        bound = torch.empty(1, 1, dtype=torch.int64, device=old.device)
        result = ATTEND_RANGES(query, key, value, bound, bound, *rest.values())
    values = consequences(module, node, result, before)
    return Ranging(module, node, {**operands, **rest}, values, proof.ranges)
