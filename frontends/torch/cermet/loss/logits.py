"""Where a loss's logits come from and who else reads them: whether a loss region becomes a head (head.py).

It does where the logits are a linear layer's, and the loss is the only one to differentiate them. Any other logits are
given, and their gradient alone is made in the forward (given.py). What is no loss but a number of each row is one too,
where its logits come in pieces (values.py). Two more readers are common. What needs no gradient (an accuracy) keeps the
layer where it is. And the graph may return the logits, as every Hugging Face model does: eager autograd makes nothing
of an output that nobody differentiates, but AOTAutograd gives it a gradient of zeros in its full size and adds it.
`Returned` says what can be done about that. What is returned may be made of the logits: tails.py.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.fx as fx
from torch.utils._python_dispatch import is_traceable_wrapper_subclass as is_traceable

from ..graph.decision import Head, Region, Tail
from ..graph.effects import PURE, effect_of
from ..graph.layouts import written
from ..graph.nodes import example, target_name, tensor_nodes
from ..importing.importer import Imported
from ..ops import regions, scaling
from . import cotangents
from .derivation import MAX_INPUTS, Derived, derive, in_place
from .linears import Linear, linear_operands


class Returned(enum.Enum):
    """What becomes of logits that the graph returns."""

    EAGER = "eager"  # autograd runs the graph as it is: they stay what they are
    EDGE = "edge"  # they return without a gradient, which edges.py attaches outside of the graph
    LAZY = "lazy"  # where the loss needs them no more, they return unmade (lazy.py), and as with EDGE elsewhere
    DECLINED = "declined"  # nobody stands outside of the graph: the loss is a plain region


# Calls whose result has the operand's elements in row-major order and, where that is checked, its last dimension.
_VIEWS = {"view", "reshape", "flatten", "unsqueeze", "squeeze", "contiguous", "aten.view.default"}
_VIEWS |= {"aten.reshape.default", "aten.unsqueeze.default", "torch.reshape", "torch.flatten", "torch.unsqueeze"}
_DTYPES = (torch.float32, torch.bfloat16)  # in which a gradient for a cotangent of 1 keeps its digits


def find(
    imported: Imported,
    region: Region,
    dying: set[fx.Node],
    returned: Returned,
    tails: Mapping[fx.Node, Tail],
    budget: int,
    again: bool,
) -> Head | None:
    """The head that a region of a cross-entropy is, or of numbers of rows, or None. `dying`: what it replaces and
    nothing else reads; `tails`: what the graph returns of linear layers' results; `budget`: bytes of logits that may
    exist at once; `again`: a backward may make them once more."""
    if len(region.results) != 1:
        return None
    is_loss = region.pattern == "cross_entropy" and region.values[0].dim() == 0
    is_values = region.values[0].dim() > 0 and (again or region.wanted is None)
    position = _position(region, MAX_INPUTS - is_values) if is_loss or is_values else None
    if position is None:
        return None
    found = _logits(imported, region, position, dying, returned, tails)
    head = None if found is None else (_loss if is_loss else _values)(region, position, found, budget)
    return head if head is not None or not is_loss else _given(region, position, dying)


def _given(region: Region, position: int, dying: set[fx.Node]) -> Head | None:
    """That of logits which nothing else reads: a second gradient would be added in the kernel that makes the first."""
    logits = example(region.operands[position])
    chain = _views(region.operands[position])
    if any(user not in chain and not _dies(user, dying) for node in chain for user in node.users):
        return None
    if region.wanted is None or logits.dtype not in _DTYPES or not isinstance(logits.shape[-1], int):
        return None
    if any(region.like) or region.operands.count(region.operands[position]) != 1:
        return None  # its gradient lies as the logits do
    derived = derive(region.key, position)
    if derived.forward is None or regions.not_lowered(derived.forward, region.device):
        return None
    scale = scaling.key_of(logits.dtype, logits.shape[-1], region.values[0].dtype)
    return Head(None, position, False, False, None, ((derived.forward,), (scale,)))


class _Logits(NamedTuple):
    """Those of a linear layer, and who reads them."""

    linear: fx.Node
    operands: Linear
    tail: Tail | None
    edge: bool  # they return without a gradient
    alone: bool  # nothing in the graph needs them but the region


def _logits(
    imported: Imported,
    region: Region,
    position: int,
    dying: set[fx.Node],
    returned: Returned,
    tails: Mapping[fx.Node, Tail],
) -> _Logits | None:
    """Where the region may take over the layer that makes its logits."""
    logits = region.operands[position]
    chain = _chain(logits)
    if chain is None or region.operands.count(logits) != 1:
        return None
    linear, operands = chain[-1], linear_operands(chain[-1])
    if not _plain(imported, region, linear, chain):
        return None
    tail = tails.get(linear)
    apart = {*chain, *(tail.copies if tail is not None else ())}
    readers = {user for node in chain for user in node.users if user not in apart and not _dies(user, dying)}
    returns = {user for user in readers if user.op == "output"}
    if any(_differentiable(example(user)) for user in readers - returns):
        return None
    if returns and (returned is Returned.DECLINED or not _returned_alone(chain, returns)):
        return None
    edge = (bool(returns) or tail is not None) and returned in (Returned.EDGE, Returned.LAZY)
    parameters = operands.parameters()
    if edge and any(node.op != "placeholder" for node in parameters):
        return None
    unmade = edge and returned is Returned.LAZY and region.wanted is not None
    unmade = unmade and not any(is_traceable(example(node)) for node in parameters)
    alone = unmade or not (readers or tail is not None)
    alone = alone and readers == returns and (example(logits).dim() == 2 or _sizes(logits) == _sizes(linear))
    return _Logits(linear, operands, tail, edge, alone)


def _loss(region: Region, position: int, found: _Logits, budget: int) -> Head | None:
    linear, operands, tail, edge, alone = found
    if region.wanted is None and not alone:
        return None
    derived = derive(region.key, position)
    chunk = _chunk(region, derived, position, operands, budget) if alone else 0
    if operands.factors and not chunk:
        return None
    if chunk and region.wanted is None:
        return Head(linear, position, True, False, None, (derived.loss.keys(), ()), chunk)
    if region.wanted is None or derived.forward is None or regions.not_lowered(derived.forward, region.device):
        return None
    scales = tuple({scaling.key_of(*each, region.values[0].dtype): None for each in operands.forms()})
    if chunk:
        kept = tuple(node for node in operands.nodes() if example(node).requires_grad)
        return Head(linear, position, True, edge, tail, (derived.gradient.keys(), scales), chunk, kept)
    made = alone and in_place(derived.forward, position, region.device)
    return Head(linear, position, made, edge, tail, ((derived.forward,), scales))


def _values(region: Region, position: int, found: _Logits, budget: int) -> Head | None:
    """That of numbers of rows, whose cotangents come with the backward (values.py)."""
    recorded = region.wanted is not None
    if not found.alone or not found.operands.chunk_rows(budget, recorded):
        return None
    made = cotangents.values(region.key, position)
    if made is None:
        return None
    chunk = _chunk(region, made.derived, position, found.operands, budget)
    keys = made.keys(recorded)
    if not chunk or any(regions.not_lowered(key, region.device) for key in (*keys[0], *keys[1])):
        return None
    kept = tuple(found.operands.hiddens()) if recorded else ()
    edge, tail = (found.edge, found.tail) if recorded else (False, None)
    return Head(found.linear, position, True, edge, tail, keys, chunk, kept, of_values=True)


def _position(region: Region, most: int = MAX_INPUTS) -> int | None:
    """Of the logits among at most so many operands: the only one that is differentiated, or without gradients the only
    one that a linear layer makes."""
    wanted = region.wanted or [_chain(operand) is not None for operand in region.operands]
    return list(wanted).index(True) if sum(wanted) == 1 and len(wanted) <= most else None


def _chunk(region: Region, derived: Derived, position: int, operands: Linear, budget: int) -> int:
    """The rows of a piece, or 0 where all logits are made at once."""
    wanted = region.wanted is not None
    chunk = operands.chunk_rows(budget, wanted)
    parts = derived.gradient if wanted else derived.loss
    if chunk == 0 or parts is None or any(regions.not_lowered(key, region.device) for key in parts.keys()):
        return 0
    at = parts.rows.inputs.index(("input", position))
    return chunk if not wanted or in_place(parts.rows.key, at, region.device) else 0


def _chain(node: fx.Node) -> list[fx.Node] | None:
    """From a loss's logits back to the linear layer that makes them, through views."""
    chain = _views(node)
    return chain if linear_operands(chain[-1]) is not None else None


def _views(node: fx.Node) -> list[fx.Node]:
    """From a loss's logits back to what makes them, through views."""
    chain = [node]
    while node.op in ("call_method", "call_function") and target_name(node) in _VIEWS:
        source = node.args[0] if node.args else None
        if not isinstance(source, fx.Node) or node.all_input_nodes[0] is not source:
            break
        if not isinstance(example(source), torch.Tensor) or _sizes(source)[-1:] != _sizes(node)[-1:]:
            break
        chain.append(source)
        node = source
    return chain


def _dies(node: fx.Node, dying: set[fx.Node]) -> bool:
    """Whether a node goes, itself or with all that reads it (a cast to the type that is already there), if anything."""
    waiting, known = [node], {node}
    while waiting:  # what reads a value may be all the layers behind it
        each = waiting.pop()
        if each in dying:
            continue
        if each.op not in ("call_function", "call_method"):
            return False
        if effect_of(each, each.graph.owning_module).kind != PURE:
            return False
        waiting += each.users.keys() - known
        known |= each.users.keys()
    return True


def _sizes(node: fx.Node) -> list[str]:
    return [written(size) for size in example(node).shape]


def _plain(imported: Imported, region: Region, linear: fx.Node, chain: list[fx.Node]) -> bool:
    """Values of one supported type on one device, never written, under the state of the region; those of further terms
    of a type that goes with it."""
    operands = linear_operands(linear)
    others = operands.others
    for node in [*chain, *operands.nodes()]:
        value = example(node)
        if not isinstance(value, torch.Tensor) or node.name not in imported.definitions:
            return False
        definition = imported.definitions[node.name]
        if definition.version != 0 or definition.until is not None or value.device != region.device:
            return False
        if node in others:
            continue
        if value.dtype != example(linear).dtype or (region.wanted is not None and value.dtype not in _DTYPES):
            return False
    weight, bias = (example(node) if node is not None else None for node in operands[1:3])
    numbers = weight.dim() == 2 and all(isinstance(size, int) for size in weight.shape)
    numbers = numbers and (bias is None or tuple(bias.shape) == tuple(weight.shape[:1]))
    return numbers and imported.states[linear] == region.state


def _differentiable(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_differentiable, value))
    return not isinstance(value, (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool, torch.Size)) and (
        not isinstance(value, torch.Tensor) or value.requires_grad
    )


def _returned_alone(chain: list[fx.Node], outputs: set[fx.Node]) -> bool:
    """Whether the graph returns the linear layer's own result, directly and no view of it."""
    views = set(chain[:-1])
    for output in outputs:
        items = output.args[0]
        if not isinstance(items, (tuple, list)) or not all(item is None or isinstance(item, fx.Node) for item in items):
            return False
        if views & set(tensor_nodes(items)):
            return False
    return True
