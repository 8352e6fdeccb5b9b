"""Logits that are a sum of products: `hidden @ weight.T + bias`, the base, and further terms `factor * (hidden @
weight.T)`, such as a low-rank adapter of the head adds (Hu et al., LoRA, 2021).

A term is added to logits that are there, in their memory: by the product itself, or where its operands are f32 and the
logits are not, some rows of the product at a time, since a GPU's product rounds what it adds to sixteen bits first. Of
such operands the gradients' products take two numbers each, which together hold sixteen of their digits: no logits in
f32 exist but those rows, and none of their gradient.

- `cermet_v1::linear_sum_{k}(Tensor hidden, Tensor weight, Tensor? bias, Tensor h0, Tensor w0, ..., float f0, ...)`: the
  sum with `k` terms, as the operations do it of which it was made (sums.py).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from ..errors import Error
from ..ops.regions import NAMESPACE
from .accumulation import WeightGradient, add_product, product

MOST_TERMS = 3  # of a sum, beside its base
Piece = slice | torch.Tensor  # of rows: a range or their numbers
_NARROW = (torch.bfloat16,)  # logits whose terms may be f32
_WIDE = 2**26  # bytes of such a term's product at once


def is_term(logits: torch.dtype, hidden: torch.dtype, weight: torch.dtype) -> bool:
    """Whether a term of these types, whose product is of the hidden state's, is added to such logits. Autocast rounds a
    weight that is wider than the hidden state."""
    if hidden != logits and not (logits in _NARROW and hidden == torch.float32):
        return False
    return weight == hidden or (weight == torch.float32 and hidden in _NARROW)


def taken_by_term(columns: int, rows: int, dtype: torch.dtype, hidden: torch.Tensor, weight: torch.Tensor) -> int:
    """Bytes that a term takes while it is added to so many rows of logits, and its gradient made."""
    if hidden.dtype == dtype:
        return 0
    return 2 * columns * int(weight.shape[1]) * dtype.itemsize + min(4 * columns * rows, max(_WIDE, 4 * columns))


class Term:
    """A term of all rows, and its gradients, piece by piece."""

    def __init__(self, hidden: torch.Tensor, weight: torch.Tensor, factor: float, logits: torch.dtype) -> None:
        """`weight` [columns of the logits, ...], may be wider than `hidden`, which is then what counts."""
        self.hidden, self.weight, self.factor = hidden, weight, factor
        self.rows = hidden.reshape(-1, hidden.shape[-1])
        self.dtype = logits
        self._wide = weight.to(hidden.dtype)
        self._weights = _apart(self._wide, logits)
        self._to_hidden: torch.Tensor | None = None
        self._to_weight: WeightGradient | None = None

    def add_to(self, logits: torch.Tensor, piece: Piece) -> None:
        """Adds the rows `piece` of the term to their logits."""
        rows = self.rows[piece]
        if rows.dtype == self.dtype:
            torch.addmm(logits, rows, self._wide.t(), alpha=self.factor, out=logits)
            return
        step = max(1, _WIDE // (4 * len(self._wide)))
        for into, some in zip(logits.split(step), rows.split(step)):
            torch.add(into, torch.mm(some, self._wide.t()), alpha=self.factor, out=into)

    def start(self, of_hidden: bool, of_weight: bool, pieces: int, every_row: bool) -> None:
        """Before `differentiate`: what is wanted, in how many pieces, and whether these are all rows."""
        if of_hidden:
            self._to_hidden = (self.rows.new_empty if every_row else self.rows.new_zeros)(self.rows.shape)
        if of_weight:
            products = pieces * len(self._weights)
            self._to_weight = WeightGradient(self.weight, len(self.weight), products, self.factor)

    def differentiate(self, gradient: torch.Tensor, piece: Piece) -> None:
        """Takes in the gradient of a piece's logits."""
        if self._to_hidden is not None and isinstance(piece, slice):
            self._into_hidden(gradient, self._to_hidden[piece])
        elif self._to_hidden is not None:
            rows = self.rows.new_empty(len(piece), self.rows.shape[1])
            self._to_hidden.index_copy_(0, piece, self._into_hidden(gradient, rows))
        if self._to_weight is not None:
            for part in _apart(self.rows[piece], self.dtype):
                self._to_weight.add(gradient, part)

    def _into_hidden(self, gradient: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
        if len(self._weights) == 1:
            return product(gradient, self._weights[0], self.factor, into)
        for index, weight in enumerate(self._weights):
            add_product(into, gradient, weight, index == 0, self.factor)
        return into

    def gradients(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Of hidden and weight; empty where one is not wanted."""
        return (
            self.rows.new_empty(0) if self._to_hidden is None else self._to_hidden.view(self.hidden.shape),
            self.weight.new_empty(0) if self._to_weight is None else self._to_weight.result(),
        )


def _apart(value: torch.Tensor, dtype: torch.dtype) -> list[torch.Tensor]:
    """Numbers of `dtype` whose sum a value is, but for digits that no result in `dtype` shows."""
    if value.dtype == dtype:
        return [value]
    high = value.to(dtype)
    return [high, (value - high).to(dtype)]


def linear(factors: Sequence[float], hidden: torch.Tensor, weight: torch.Tensor, *others: Any) -> torch.Tensor:
    """The logits; `others`: the bias or None, and a hidden state and a weight for each factor."""
    bias, *others = others
    logits = F.linear(hidden, weight, bias)
    rows = logits.view(-1, logits.shape[-1])
    for factor, *operands in zip(factors, others[::2], others[1::2]):
        Term(*operands, factor, logits.dtype).add_to(rows, slice(None))
    return logits


def gradients(
    factors: Sequence[float], cotangent: torch.Tensor, wanted: Sequence[bool], *others: torch.Tensor
) -> Iterator[torch.Tensor | None]:
    """Of the terms' hidden states and weights, `others`, where they are wanted, by differentiable operations."""
    flags = zip(wanted[::2], wanted[1::2])
    for factor, hidden, weight, (of_hidden, of_weight) in zip(factors, others[::2], others[1::2], flags):
        given = cotangent.to(hidden.dtype) * factor
        yield torch.matmul(given, weight.to(hidden.dtype)) if of_hidden else None
        rows = given.reshape(-1, given.shape[-1])
        yield torch.mm(rows.t(), hidden.reshape(-1, hidden.shape[-1])).to(weight.dtype) if of_weight else None


# --- The op ----------------------------------------------------------------------------------------------------------


def _linear_sum(terms: int, hidden: torch.Tensor, weight: torch.Tensor, bias: Any, *others: Any) -> torch.Tensor:
    made = base = F.linear(hidden, weight, bias)
    for index in range(terms):
        made = made + F.linear(*others[2 * index : 2 * index + 2]) * others[2 * terms + index]
    return made.to(base.dtype)


def signature(terms: int) -> tuple[str, str]:
    """How a schema names the tensors of so many terms, and their factors."""
    tensors = "".join(f", Tensor h{i}, Tensor w{i}" for i in range(terms))
    return tensors, "".join(f", float f{i}" for i in range(terms))


def _define() -> torch.library.Library:
    ops = torch.library.Library(NAMESPACE, "FRAGMENT")
    for terms in range(1, MOST_TERMS + 1):
        tensors, factors = signature(terms)
        schema = f"linear_sum_{terms}(Tensor hidden, Tensor weight, Tensor? bias{tensors}{factors}) -> Tensor"
        ops.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        ops.impl(f"linear_sum_{terms}", functools.partial(_linear_sum, terms), "CompositeImplicitAutograd")
    return ops


_library = _define()


@functools.cache
def op(terms: int) -> torch._ops.OpOverload:
    """`linear_sum` of so many terms. Raises cermet.Error where there is none."""
    if not 1 <= terms <= MOST_TERMS:
        raise Error(f"logits of {terms} terms beside a linear layer's, expected 1 to {MOST_TERMS}")
    return getattr(getattr(torch.ops, NAMESPACE), f"linear_sum_{terms}").default
