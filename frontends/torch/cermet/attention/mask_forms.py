"""Masks and biases in the form that attention's kernels take: once for all of a batch, and in rows.

A mask that shows all, or that position alone decides, is repeated for the rows of a batch (`expand`), and what a
program computes of it is as large as the batch: the sum of a bias and a mask, the numbers that stand for its truths.
Elementwise calls give of a repeated tensor what they give of the tensor, repeated. Attention, and what else takes its
operands of any sizes that fit, is given that as it is: no memory holds it twice, and torch aligns the rows of one mask,
not of each.

A bias that a table gives for each pair of places lies as that does, its heads beside one another, and a GPU's torch has
no kernel for such a mask: it makes products in f32 and keeps all weights. A copy in rows has one.
"""

from __future__ import annotations

import operator

import torch
import torch.fx as fx

from ..graph import fakes, nodes
from ..graph.decision import Declined
from ..graph.edit import erase_unused, rewriting
from ..graph.effects import PURE, effect_of
from ..graph.layouts import written
from ..graph.nodes import example
from ..graph.traffic import judged, size_of
from ..importing.translations.elementwise import POINTWISE
from ..importing.translations.operators import spelling
from .calls import arguments, changed, consequences, is_attention, traced

_ELEMENTWISE = {*POINTWISE, "cast", "identity"}
_HALVES = (torch.bfloat16, torch.float16)
_ALL = slice(None, None, None)
_SMALLEST = 1 << 16  # bytes, below which a call more takes longer than they do


def shape(module: fx.GraphModule) -> int:
    """In place, in a graph and its bodies; returns of how many calls the results are repeated now."""
    modules = list(nodes.modules(module))
    if not any(_is_narrowed(node, part) or _is_told(node) for part in modules for node in part.graph.nodes):
        return 0
    count = 0
    try:
        with rewriting(modules):
            for part in modules:
                count += _shape(part)
    except Declined:  # what others compute cannot be followed
        return 0
    return count


def _shape(module: fx.GraphModule) -> int:
    repeated = []
    for node in list(module.graph.nodes):
        if _is_narrowed(node, module):
            repeated.append(_write(module, node))
        elif _is_told(node):
            _tell(module, node)
    for node in repeated:
        if not node._erased:
            for each, value in consequences(module, node, fakes.result(node, {}), {}).items():
                each.meta["example_value"] = value
    return len(repeated)


def _is_narrowed(node: fx.Node, module: fx.GraphModule) -> bool:
    reads = not node._erased and any(_expanded(each) for each in node.all_input_nodes)
    return reads and _is_repeated(node) and _is_taken(node, module)


def _is_repeated(node: fx.Node) -> bool:
    """Whether a call computes each element by itself, or cuts, and some several times: of what is repeated alone."""
    value = example(node)
    if not isinstance(value, torch.Tensor) or value.dim() < 3 or not (spelling(node) in _ELEMENTWISE or _is_cut(node)):
        return False
    if not getattr(value, "fake_mode", None) or size_of(value, judged) < _SMALLEST:
        return False
    return bool(_repeated(node))


def _is_cut(node: fx.Node) -> bool:
    """Whether a call is a slice of each dimension of a tensor."""
    if spelling(node) != "getitem" or not isinstance(example(node.args[0]), torch.Tensor):
        return False
    index = node.args[1]
    is_plain = isinstance(index, tuple) and all(isinstance(each, slice) for each in index)
    return is_plain and len(index) == example(node).dim()


def _repeated(node: fx.Node) -> dict[int, fx.Node]:
    """The dimensions of a call's result before its last two, counted from the last, along which each operand is
    repeated or has one element, and of each an operand that is repeated there."""
    value, found = example(node), {}
    tensors = [each for each in node.all_input_nodes if isinstance(example(each), torch.Tensor)]
    for dim in range(-value.dim(), -2):
        if written(value.shape[dim]) == "1" or _is_cut(node) and node.args[1][dim] != _ALL:
            continue
        given = [each for each in tensors if written(_size(each, dim)) != "1"]
        if given and all(dim in _expanded(each) for each in given):
            found[dim] = given[0]
    return found


def _expanded(node: fx.Node) -> list[int]:
    """The dimensions before its last two that `expand` repeats."""
    if spelling(node) != "expand":
        return []
    dims = range(-example(node).dim(), -2)
    return [dim for dim in dims if written(_size(node.args[0], dim)) == "1" != written(_size(node, dim))]


def _size(node: fx.Node, dim: int) -> int | torch.SymInt:
    shape = example(node).shape
    return shape[dim] if len(shape) >= -dim else 1


def _is_taken(node: fx.Node, module: fx.GraphModule) -> bool:
    """Whether all that read a value take a repeated one as well."""
    return effect_of(node, module).kind == PURE and all(_takes(user, node, module) for user in node.users)


def _takes(user: fx.Node, node: fx.Node, module: fx.GraphModule) -> bool:
    if is_attention(user):
        return [name for name, given in arguments(user).items() if given is node] == ["attn_mask"]
    if user.op not in ("call_function", "call_method") or effect_of(user, module).kind != PURE:
        return False
    return spelling(user) in _ELEMENTWISE or _is_cut(user) and _is_taken(user, module)


def _write(module: fx.GraphModule, node: fx.Node) -> fx.Node:
    """Of what was there before it was repeated; returns that repeated, which lies as it did until all is written."""
    graph, repeated, value = module.graph, _repeated(node), example(node)
    with graph.inserting_before(node):
        expanded = [each for each in node.all_input_nodes if not repeated.keys().isdisjoint(_expanded(each))]
        sources = {each: _once(each, [*repeated]) for each in expanded}
        made = graph.node_copy(node, lambda each: sources.get(each, each))
        made.meta = dict(node.meta)
        made.meta["example_value"] = fakes.result(made, {}, autocast=True)
        sizes = [_given(graph, repeated[dim], dim) if dim in repeated else -1 for dim in range(-value.dim(), 0)]
        whole = graph.call_method("expand", (made, *sizes))
    whole.meta = dict(node.meta)
    node.replace_all_uses_with(whole)
    erase_unused(module, [node])
    return whole


def _once(expanded: fx.Node, dims: list[int]) -> fx.Node:
    """What is repeated along these dimensions, where the graph is being written."""
    source, rank = expanded.args[0], example(expanded).dim()
    wanted = ["1" if dim in dims else written(_size(expanded, dim)) for dim in range(-rank, 0)]
    if [written(size) for size in example(source).shape] == wanted:
        return source
    index = tuple(slice(0, 1) if dim in dims and dim in _expanded(expanded) else _ALL for dim in range(-rank, 0))
    made = expanded.graph.call_function(operator.getitem, (expanded, index))
    made.meta = dict(expanded.meta)
    made.meta["example_value"] = fakes.result(made, {})
    return made


def _given(graph: fx.Graph, operand: fx.Node, dim: int) -> int | fx.Node:
    size = example(operand).shape[dim]
    if isinstance(size, int):
        return size
    made = graph.call_method("size", (operand, dim))
    made.meta["example_value"] = size
    return made


def _is_told(attention: fx.Node) -> bool:
    """Whether a call is attention with a mask that is repeated for the batch or the heads, or lies in no rows."""
    mask = arguments(attention).get("attn_mask") if is_attention(attention) else None
    if not isinstance(mask, fx.Node):
        return False
    is_large = size_of(example(mask), judged) >= _SMALLEST
    return is_large and bool(_expanded(mask)) or example(attention).dtype in _HALVES and not _lies_in_rows(mask)


def _lies_in_rows(mask: fx.Node) -> bool:
    return written(_size(mask, -1)) == "1" or written(example(mask).stride(-1)) == "1"


def _tell(module: fx.GraphModule, attention: fx.Node) -> None:
    mask = arguments(attention)["attn_mask"]
    with module.graph.inserting_before(attention):
        once = _once(mask, _expanded(mask)) if _expanded(mask) else mask
        # In f32 a kernel's sums are others than those of products, which torch takes where the mask is as it is given.
        may_change = example(attention).dtype in _HALVES or _has_kernel(attention, mask)
        copied = may_change and not _lies_in_rows(once) and not _has_kernel(attention, once)
        made = [*([_in_rows(once)] if copied else []), once]
    for form in made:
        if form is mask:
            break
        try:
            changed(module, attention, {}, form is not once, attn_mask=form).apply()
            break
        except Declined:
            continue
    erase_unused(module, [*made, mask])


def _has_kernel(attention: fx.Node, mask: fx.Node) -> bool:
    """Whether torch has a kernel for the call with that mask; where that cannot be traced, as if it had."""
    try:
        return traced(attention, {**arguments(attention), "attn_mask": mask})[1] is not None
    except Declined:
        return True


def _in_rows(mask: fx.Node) -> fx.Node:
    """A copy, where the graph is being written."""
    made = mask.graph.call_method("contiguous", (mask,))
    made.meta = dict(mask.meta)
    made.meta["example_value"] = fakes.result(made, {})
    return made
