"""Masks that a caller hands in as they are, `[batch or 1, 1, length, length]` of truths or of what is added to scores.

Nothing can be proved of such a mask, but its data can be looked at: whether it is one of documents and a band, and of
which.
Of each query that takes the first key that it attends to, the last, and how many there are, which is what the mask
says if there are as many as lie between the two; the rest is about numbers of one dimension. So a look costs three
passes over the mask.
"""

from __future__ import annotations

import torch
import torch.fx as fx

from ..graph.layouts import written
from ..graph.nodes import example
from ..ops.attending import NEVER
from .proof.functions import Functions
from .questions import Question, Unproved

_MAX_CALLS = 8  # views and casts between what is handed in and the mask
_MAX_ELEMENTS = 1 << 30  # of a mask that is looked at
_ALIKE = {"getitem", "to", "type", "bool", "contiguous", "clone", "expand", "unsqueeze", "view", "reshape", "detach"}


def handed_in(question: Question) -> fx.Node:
    """The mask, if it is an input of the outermost graph but for views and casts. Raises Unproved."""
    functions, node = question.functions, question.mask
    sizes = [written(size) for size in example(node).shape]
    matrix = [functions.size(size) for size in example(node).shape[-2:]]
    if len(sizes) not in (2, 4) or sizes[1:-2] not in ([], ["1"]) or sizes[-1] == "1":
        raise Unproved("a mask of each head's own")
    if not matrix[0] == matrix[1] == question.queries == question.keys:
        raise Unproved("a mask of other places than all queries and keys of a row")
    if path(node, functions) is None:
        raise Unproved("the mask is no input of the graph")
    return node


def path(mask: fx.Node, functions: Functions) -> list[fx.Node] | None:
    """The calls from what is handed in to a mask, both included; None where it is no input."""
    found = [mask]
    while found[-1].op != "placeholder":
        name = getattr(found[-1].target, "__name__", str(found[-1].target))
        sources = found[-1].all_input_nodes
        if name not in _ALIKE or len(sources) != 1 or len(found) > _MAX_CALLS:
            return None
        found.append(sources[0])
    known = all(isinstance(example(node), torch.Tensor) and not functions.writes(node) for node in found)
    return found if known and not any(example(node).requires_grad for node in found) else None


def read(mask: torch.Tensor, rows: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The number of each place's document, `[rows, length]`, and `[whether the mask is one of documents and a band, how
    far that reaches before a query, and behind it]`; -1 is without an end."""
    mask = mask.expand(rows, 1, length, length)[:, 0] if mask.dim() == 4 else mask.expand(rows, length, length)
    if mask.numel() > _MAX_ELEMENTS:
        return mask.new_zeros((rows, length), dtype=torch.int64), mask.new_zeros(3, dtype=torch.int64)
    holds: list[torch.Tensor] = []
    if mask.dtype != torch.bool:
        shown = mask == 0
        holds.append((shown | (mask <= NEVER)).all())
        mask = shown
    places = torch.arange(length, device=mask.device)
    bits = mask.view(torch.uint8)
    first, last, count = bits.argmax(-1), length - 1 - bits.flip(-1).argmax(-1), mask.sum(-1)
    holds += [(count > 0).all(), (last - first + 1 == count).all()]
    # A document begins where nothing behind looks before it and nothing before looks behind it.
    behind = first.flip(-1).cummin(-1).values.flip(-1) >= places
    before = torch.nn.functional.pad(last.cummax(-1).values[:, :-1], (1, 0), value=-1) < places
    number = (behind & before).cumsum(-1)
    ends = torch.searchsorted(number, number, right=True)
    begins = torch.searchsorted(number, number)
    left, right = (places - first).amax(), (last - places).amax()
    holds += [
        (first == torch.maximum(begins, places - left)).all(),
        (last == torch.minimum(ends - 1, places + right)).all(),
    ]
    whole = (ends - begins).amax() - 1
    reach = [torch.where((side >= whole) & (side > 0), -1, side) for side in (left, right)]
    return number, torch.stack([torch.stack(holds).all().long(), *reach])
