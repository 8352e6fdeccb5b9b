"""Attentions to ranges of keys become calls of `cermet_v1::attend_ranges`, and those of a few queries under a mask that
a caller hands in, of which only the device knows whether it says ranges, calls of `cermet_v1::attend_masked`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
import torch.fx as fx

from ..graph.decision import Declined
from ..graph.layouts import written
from ..graph.nodes import example
from ..ops.ranges import ATTEND_MASKED, ATTEND_RANGES
from .calls import Change, arguments, consequences
from .kernels import Form, kernel_of
from .meanings import Proof
from .ranges import FEW_QUERIES, Ranges, Writer, check

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


@dataclasses.dataclass(frozen=True)
class Masking(Change):
    """A call that reads the keys which its mask says. Its `arguments` are those of the op."""

    def apply(self) -> None:
        self.node.target, self.node.args, self.node.kwargs = ATTEND_MASKED, tuple(self.arguments.values()), {}
        for node, fake in self.values.items():
            node.meta["val" if "val" in node.meta else "example_value"] = fake


def ranging(module: fx.GraphModule, node: fx.Node, proof: Proof, before: dict[fx.Node, torch.Tensor]) -> Ranging:
    """The call that an attention becomes whose mask is one of ranges. Raises Declined where there is no kernel for it,
    or other calls break. `before`: the new values of changes that will be made, too."""
    operands, form = _of_a_buffer(node)
    check(proof.ranges, node.graph, example(operands["key"]).shape[0], form.device)
    rest = {"scale": arguments(node).get("scale"), "kernel": kernel_of(form)}
    with example(node).fake_mode, torch.autocast(form.device.type, enabled=False):
        bound = torch.empty(1, 1, dtype=torch.int64, device=form.device)
        result = ATTEND_RANGES(*map(example, operands.values()), bound, bound, *rest.values())
    values = consequences(module, node, result, before)
    return Ranging(module, node, {**operands, **rest}, values, proof.ranges)


def masking(
    module: fx.GraphModule,
    node: fx.Node,
    handed_in: Sequence[fx.Node] | None,
    before: dict[fx.Node, torch.Tensor],
) -> Masking | None:
    """The call that an attention becomes whose mask is handed in: `handed_in` are the calls from there on (blocks.py).
    None where it is not, where there are gradients, and for other than a few queries of more keys. Raises Declined as
    `ranging` does."""
    given = arguments(node)
    queries, keys = (example(given[name]).shape[-2] for name in ("query", "key"))
    few = isinstance(queries, int) and queries <= FEW_QUERIES and written(keys) not in ("0", "1", written(queries))
    if handed_in is None or not few or example(node).requires_grad or given.get("is_causal"):
        return None  # what else may be known of the mask, or why nothing, is said elsewhere
    operands, form = _of_a_buffer(node)
    mask, rows = example(given["attn_mask"]), example(given["key"]).shape[0]
    sizes = [*(1,) * (4 - mask.dim()), *mask.shape]
    fits = all(map(_is_known, sizes)) and sizes[3] != 1
    if not fits or any(size != 1 and size != whole for size, whole in zip(sizes, (rows, 1, queries, keys))):
        raise Declined(f"a mask of {', '.join(map(written, sizes))}, expected one of all heads and of each key")
    if mask.dtype not in (torch.bool, form.dtype) or mask.device != form.device:
        raise Declined(f"a mask of {mask.dtype} on {mask.device}, and the attention of {form.dtype} on {form.device}")
    rest = {"scale": given.get("scale"), "kernel": kernel_of(dataclasses.replace(form, masked=True))}
    with example(node).fake_mode, torch.autocast(form.device.type, enabled=False):
        result = ATTEND_MASKED(*map(example, operands.values()), mask, *rest.values())
    values = consequences(module, node, result, before)
    return Masking(module, node, {**operands, "mask": given["attn_mask"], **rest}, values)


def _of_a_buffer(node: fx.Node) -> tuple[dict[str, fx.Node], Form]:
    """An attention's operands, and what a kernel must take that reads a part of the keys. Raises Declined."""
    given = arguments(node)
    operands = {name: given[name] for name in ("query", "key", "value")}
    query, key, value = (example(operand) for operand in operands.values())
    old = example(node)
    if given.get("dropout_p") or old.requires_grad:
        raise Declined("attention to a part of a buffer of keys has no gradient and drops nothing")
    if any(tensor.dim() != 4 or tensor.dtype != old.dtype for tensor in (query, key, value)):
        raise Declined("attention of another rank than batch, heads, places and width, or of several types")
    if not all(_is_known(size) for tensor in (query, key, value) for size in tensor.shape):
        raise Declined("attention of sizes that data say")
    rows, shared, keys, width = key.shape
    sizes = (shared, query.shape[1], width, value.shape[3])
    if not all(isinstance(size, int) and size for size in sizes) or query.shape[1] % shared or 0 in (rows, keys):
        raise Declined("attention of sizes that are not known, or of heads that are not shared alike")
    if any(mine != theirs for mine, theirs in zip((*value.shape[:3], query.shape[0]), (*key.shape[:3], rows))):
        raise Declined("attention of other values than keys")  # of symbols, which attention asks to be equal, a guard
    if not key.is_contiguous() or not value.is_contiguous():
        raise Declined("keys or values of a head do not lie behind one another")
    if rows * shared * keys >= _MOST_PLACES:  # of symbols a guard: more keys compile again
        raise Declined(f"there are {rows * shared * keys} keys, expected less than {_MOST_PLACES}")
    return operands, Form(old.device, old.dtype, query.shape[1] // shared, width, value.shape[3], ranged=True)


def _is_known(size: int | torch.SymInt) -> bool:
    """Whether a size can be compared, as a symbol that an input has can, by a guard."""
    return isinstance(size, int) or size.node.has_hint()
