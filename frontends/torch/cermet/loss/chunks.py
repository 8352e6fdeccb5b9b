"""The loss of a linear head in pieces of rows, with its gradients: never more than one piece of logits exists.

For each piece: its logits, their loss and their gradient in the logits' memory (one kernel, which reads them once), and
from that the gradient of these rows of the hidden state and what they add to the weight's. What is saved for the
backward are the two gradients for a cotangent of 1, and not that of the logits.

The weight's gradient is summed in f32 inside of the products and rounded once, as a product over all rows would round
it (accumulation.py). Logits may be a sum of products, each with gradients of its own (terms.py).

Rows that give nothing (an ignored label, a factor of zero) are left out of the products where they are many (kept.py).

- `cermet_v1::linear_rows_{n}(Tensor hidden, Tensor weight, Tensor? bias, Tensor a0, ..., int key, int position,
  int chunk, bool of_hidden, bool of_weight, bool of_bias)`: the loss of region `key`, whose operand `position` would be
  the logits, and the gradients that are asked for, else empty tensors; in pieces of at most `chunk` rows, however many
  rows there are.
- `cermet_v1::linear_rows_{n}_{k}(..., Tensor? bias, Tensor h0, Tensor w0, ..., Tensor a0, ..., float f0, ..., int key,
  int position, int chunk, bool of_hidden, bool of_weight, bool of_bias, bool of_h0, bool of_w0, ...)`: the same of
  logits with `k` terms more.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from ..errors import Error
from ..graph.traffic import hint, judged, longest
from ..ops import regions
from ..ops.regions import NAMESPACE
from ..targets import devices
from . import kept as kept_rows
from . import widths
from .accumulation import WeightGradient, inner_rows
from .derivation import MAX_INPUTS, MAX_OUTPUTS, Part, Parts, derive
from .terms import MOST_TERMS, Piece, Term, signature, taken_by_term

_TILE = 128  # rows that a product takes at once: pieces are whole numbers of them

# --- Whether, and how large ------------------------------------------------------------------------------------------


def chunk_rows(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    budget: int,
    of_hidden: bool,
    of_weight: bool,
    others: Sequence[torch.Tensor] = (),
) -> int:
    """The rows of a piece, whose logits are of `budget` bytes at most; 0 where the whole takes no more memory, for
    as many rows as there may be (graph/traffic.py). `others`: weights of terms that have gradients.

    The whole holds the logits' gradient until the backward has made the weight's of it; pieces hold one of them beside
    the sum in f32, and then the weight's gradient twice, since the backward scales it."""
    rows = math.prod(judged(size, longest) for size in hidden.shape[:-1])
    bytes_of_row = int(weight.shape[0]) * weight.element_size()
    chunk = max(1, budget // bytes_of_row)
    if chunk > 2 * _TILE:
        chunk -= chunk % _TILE
    if rows <= chunk:
        return 0
    weights = [*([weight] if of_weight else []), *others]
    if not (of_hidden or weights):
        return chunk
    sums = sum(4 * each.numel() for each in weights)
    gradient = sum(each.numel() * each.element_size() for each in weights)
    pieces = max(chunk * bytes_of_row + sums, 2 * gradient)
    return chunk if pieces < rows * bytes_of_row + gradient else 0


def pieces_of(rows: int, chunk: int) -> list[slice]:
    """Of nearly equal size."""
    if rows == 0:
        return []
    size = -(-rows // -(-rows // chunk))
    if chunk > _TILE:
        size = min(chunk, -(-size // _TILE) * _TILE)
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def call_of(name: str, *arguments: Any) -> Call:
    """The arguments of the `linear_rows` of that name."""
    return Call.of(int(re.search(r"linear_rows_\d+_?(\d*)", name)[1] or 0), arguments)


def taken_by(call: Call) -> int:
    """The bytes that it takes while it runs, beside its results."""
    rows, columns = math.prod(map(hint, call.hidden.shape[:-1])), int(call.weight.shape[0])
    pieces = pieces_of(rows, call.chunk)
    size = call.weight.element_size()
    most = max((piece.stop - piece.start for piece in pieces), default=0)
    held = most * columns * size
    if call.bias is not None:
        held += columns * (int(call.weight.shape[1]) * size + widths.BYTES)
    held += sum(taken_by_term(columns, most, call.hidden.dtype, *product) for product in call.products)
    weights = [call.weight, *(weight for _, weight in call.products)]
    for weight, of_weight in zip(weights, [call.wanted[1], *call.wanted[4::2]]):
        if of_weight and len(pieces) > 1 and weight.dtype != torch.float32:
            held += 4 * (columns - inner_rows(columns)) * int(weight.shape[1])
    return held


# --- The ops ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Call:
    """The arguments of a `linear_rows`."""

    hidden: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None
    products: list[tuple[torch.Tensor, torch.Tensor]]  # of each term the hidden state and the weight
    operands: list[torch.Tensor]  # of the region, but for the logits
    factors: list[float]  # of the terms
    key: int
    position: int
    chunk: int
    wanted: list[bool]  # of hidden, weight, bias, and each term's hidden state and weight

    @staticmethod
    def of(terms: int, arguments: Sequence[Any]) -> Call:
        hidden, weight, bias, *rest = arguments
        others, rest = rest[: 2 * terms], rest[2 * terms :]
        *rest, key, position, chunk = rest[: -3 - 2 * terms]
        operands, factors = rest[: len(rest) - terms], rest[len(rest) - terms :]
        products = list(zip(others[::2], others[1::2]))
        wanted = list(arguments[-3 - 2 * terms :])
        return Call(hidden, weight, bias, products, operands, factors, key, position, chunk, wanted)


def _run(terms: int, *arguments: Any) -> tuple[torch.Tensor, ...]:
    call = Call.of(terms, arguments)
    with torch.no_grad(), torch.autocast(call.hidden.device.type, enabled=False):
        return Run(call).run(*call.wanted)


class Run:
    """One call."""

    def __init__(self, call: Call) -> None:
        self.hidden, self.key, self.position, self.chunk = call.hidden, call.key, call.position, call.chunk
        self.rows = self.hidden.reshape(-1, self.hidden.shape[-1])
        self.columns = call.weight.shape[0]
        self.weight = widths.aligned(call.weight)
        self.bias = call.bias
        self.product = self.weight if self.bias is None else widths.widened(self.weight, self.bias)  # makes the logits
        self.terms = [
            Term(*product, factor, self.hidden.dtype) for product, factor in zip(call.products, call.factors)
        ]
        self.operands: list[torch.Tensor | None] = list(call.operands)
        self.operands.insert(self.position, None)

    def run(self, *wanted: bool) -> tuple[torch.Tensor, ...]:
        """The loss, and the gradients."""
        parts = parts_of(self.key, self.position, any(wanted))
        early, numbers, gradients = self.walked(parts, *wanted)
        (loss,) = self.launched(parts.after, early, numbers)
        return loss, *gradients

    def walked(
        self, parts: Parts, of_hidden: bool, of_weight: bool, of_bias: bool, *of_terms: bool
    ) -> tuple[Sequence[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
        """What is known before any row, all rows' numbers, and the gradients."""
        differentiated = of_hidden or of_weight or of_bias or any(of_terms)
        early = self.launched(parts.before, [], [])
        pieces, all_rows = self._pieces(parts, early)
        made = self.rows.new_empty if all_rows else self.rows.new_zeros
        ports = regions.signature(parts.rows.key, self.hidden.device).outputs
        ports = ports[:-1] if differentiated else ports
        numbers = [made((len(self.rows), *port.dims[1:]), dtype=port.dtype) for port in ports]
        to_hidden = made(self.rows.shape) if of_hidden else None
        to_weight = WeightGradient(self.weight, self.columns, len(pieces)) if of_weight else None
        # Whose sum over pieces has more digits than one over all rows would need.
        wide = torch.float64 if self.rows.dtype == torch.float32 else torch.float32
        to_bias = self.rows.new_zeros(self.columns, dtype=wide) if of_bias else None
        for term, *wanted in zip(self.terms, of_terms[::2], of_terms[1::2]):
            term.start(*wanted, len(pieces), all_rows)
        for piece in pieces:
            rows = self.rows[piece]
            inputs = self._inputs(parts.rows, early, piece)
            if not differentiated:
                values = self._loss(parts.rows, rows, piece, inputs)
            else:
                *values, gradient = self._gradient(parts.rows, rows, piece, inputs)
            for into, value in zip(numbers, values):
                into[piece] = value
            if to_hidden is not None and isinstance(piece, slice):
                torch.mm(gradient, self.weight, out=to_hidden[piece])
            elif to_hidden is not None:
                to_hidden.index_copy_(0, piece, torch.mm(gradient, self.weight))
            if to_weight is not None:
                to_weight.add(gradient, rows)
            if to_bias is not None:
                to_bias += gradient[:, : self.columns].sum(0, dtype=wide)
            for term in self.terms if differentiated else ():
                term.differentiate(gradient[:, : self.columns], piece)
            gradient = None  # before the next piece's logits are made
        gradients = [
            self.rows.new_empty(0) if to_hidden is None else to_hidden.view(self.hidden.shape),
            self.rows.new_empty(0) if to_weight is None else to_weight.result(),
            self.rows.new_empty(0) if to_bias is None else to_bias.to(self.bias.dtype),
            *(gradient for term in self.terms for gradient in term.gradients()),
        ]
        return early, numbers, gradients

    def launched(
        self, part: Part | None, early: Sequence[torch.Tensor], numbers: Sequence[torch.Tensor]
    ) -> Sequence[torch.Tensor]:
        return [] if part is None else regions.launch(part.key, self.inputs_of(part, early, numbers))

    def inputs_of(
        self, part: Part, early: Sequence[torch.Tensor], numbers: Sequence[torch.Tensor]
    ) -> list[torch.Tensor]:
        """Of a part that runs once."""
        sources = {"input": self.operands, "before": early, "rows": numbers}
        sizes = self.sizes()
        ports = regions.signature(part.key, self.hidden.device).inputs
        return [
            sources[origin][index].reshape([sizes.get(dim, dim) for dim in port.dims])
            for (origin, index), port in zip(part.inputs, ports)
        ]

    def sizes(self) -> dict[str, int]:
        """What the region's symbols are, as far as its operands are there."""
        sizes: dict[str, int] = {}
        for index, port in enumerate(regions.signature(self.key, self.hidden.device).inputs):
            if index == self.position:
                whole = [*self.hidden.shape[:-1], self.columns]
                shape = whole if len(whole) == len(port.dims) else [len(self.rows), self.columns]
            elif self.operands[index] is None:
                continue
            else:
                shape = self.operands[index].shape
            sizes.update((dim, size) for dim, size in zip(port.dims, shape) if isinstance(dim, str))
        return sizes

    def _inputs(self, part: Part, early: Sequence[torch.Tensor], piece: Piece) -> list[torch.Tensor]:
        """The inputs of `rows` but for the logits: of what has rows, the piece."""
        sources = {"input": self.operands, "before": early}
        inputs = []
        for (origin, index), port in zip(part.inputs, regions.signature(part.key, self.hidden.device).inputs):
            value = sources[origin][index]
            if value is None:
                continue
            has_rows = bool(port.dims) and isinstance(port.dims[0], str)
            inputs.append(value.reshape(len(self.rows), *port.dims[1:])[piece] if has_rows else value)
        return inputs

    def _gradient(self, part: Part, rows: torch.Tensor, piece: Piece, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Numbers of each row, and the logits' gradient, as wide as the weight has rows."""
        place = part.inputs.index(("input", self.position))
        if self.terms:
            op, made = logits_op, (self._logits(rows, piece),)
        else:
            op, made = launch_op, (self._going_on(rows), self.product)
        *values, gradient = op(len(inputs), part.outputs)(*made, *inputs, part.key, place)
        width = len(self.weight)
        return [*values, gradient if width == self.columns else gradient.as_strided((len(rows), width), (width, 1))]

    def _loss(
        self, part: Part, rows: torch.Tensor, piece: Piece, inputs: list[torch.Tensor]
    ) -> Sequence[torch.Tensor]:
        logits = self._logits(rows, piece)[:, : self.columns]
        inputs.insert(part.inputs.index(("input", self.position)), logits)
        return regions.launch(part.key, inputs)

    def _going_on(self, rows: torch.Tensor) -> torch.Tensor:
        return rows if self.bias is None else widths.going_on(rows)

    def _logits(self, rows: torch.Tensor, piece: Piece) -> torch.Tensor:
        """As wide as the weight has rows."""
        logits = F.linear(self._going_on(rows), self.product)
        for term in self.terms:
            term.add_to(logits[:, : self.columns], piece)
        return logits

    def _pieces(self, parts: Parts, early: Sequence[torch.Tensor]) -> tuple[list[Piece], bool]:
        """The rows of each piece, and whether they are all: where many rows give nothing, the numbers of the others."""
        count = len(self.rows)
        if parts.kept is not None and count and not devices.recorded(self.rows.device):
            inputs = self._inputs(parts.kept, early, slice(None))
            places = kept_rows.places(self.key, inputs, lambda: regions.launch(parts.kept.key, inputs)[0].view(-1))
            if places is not None:
                return [places[piece] for piece in pieces_of(len(places), self.chunk)], False
        return pieces_of(count, self.chunk), True


def _fake(terms: int, *arguments: Any) -> tuple[torch.Tensor, ...]:
    call = Call.of(terms, arguments)
    of = [call.hidden, call.weight, call.bias, *itertools.chain(*call.products)]
    gradients = [
        (call.weight if value is None else value).new_empty(value.shape if want else [0])
        for value, want in zip(of, call.wanted)
    ]
    return fake_result(call), *gradients


def fake_result(call: Call) -> torch.Tensor:
    """What the region would give."""
    hidden, weight = call.hidden, call.weight
    check(call.key, hidden, weight)
    rank = len(regions.signature(call.key, hidden.device).inputs[call.position].dims)
    lead = hidden.shape[:-1] if rank == hidden.dim() else [math.prod(hidden.shape[:-1])]
    operands = list(call.operands)
    operands.insert(call.position, hidden.new_empty([*lead, weight.shape[0]]))
    return regions.fake_launch(*operands, call.key)


def check(key: int, hidden: torch.Tensor, weight: torch.Tensor) -> None:
    """Raises cermet.Error where no product is possible."""
    if hidden.shape[-1] != weight.shape[-1] or hidden.dtype != weight.dtype:
        raise Error(
            f"{regions.signature(key).name}: hidden is {hidden.dtype} of {tuple(hidden.shape)}, the weight "
            f"{weight.dtype} of {tuple(weight.shape)}, expected one dtype and the same last size"
        )


def parts_of(key: int, position: int, with_gradient: bool) -> Parts:
    derived = derive(key, position)
    parts = derived.gradient if with_gradient else derived.loss
    if parts is None:
        raise Error(f"{regions.signature(key).name}: its rows need one another, expected a loss that comes in pieces")
    return parts


def _fake_launch(*arguments: Any) -> Any:
    hidden, weight, *operands, key, position = arguments
    check(key, hidden, weight)
    operands.insert(position, hidden.new_empty([*hidden.shape[:-1], weight.shape[0]]))
    return regions.fake_launch(*operands, key)


def _rows_name(inputs: int, terms: int) -> str:
    return f"linear_rows_{inputs}_{terms}" if terms else f"linear_rows_{inputs}"


def _define() -> torch.library.Library:
    ops = torch.library.Library(NAMESPACE, "FRAGMENT")
    tags = (torch.Tag.pt2_compliant_tag,)
    for inputs in range(MAX_INPUTS + 1):
        tensors = ", ".join(["Tensor hidden", "Tensor weight", *(f"Tensor a{i}" for i in range(inputs))])
        for outputs in range(2, MAX_OUTPUTS + 1):
            name = f"linear_launch_{inputs}_{outputs}"
            ops.define(f"{name}({tensors}, int key, int position) -> {regions.schema_of(outputs)}", tags=tags)
            ops.impl(name, _fake_launch, "Meta")
            over = tensors.replace("Tensor hidden, Tensor weight", "Tensor(a!) logits")
            results = ", ".join(["Tensor"] * (outputs - 1))
            name = f"logits_launch_{inputs}_{outputs}"
            ops.define(f"{name}({over}, int key, int position) -> ({results}, Tensor(a!))", tags=tags)
        for terms in range(MOST_TERMS + 1):
            name = _rows_name(inputs, terms)
            others, factors = signature(terms)
            given = tensors.replace("Tensor weight", f"Tensor weight, Tensor? bias{others}")
            wanted = "".join(f", bool of_h{i}, bool of_w{i}" for i in range(terms))
            rest = f"{factors}, int key, int position, int chunk, bool of_hidden, bool of_weight, bool of_bias{wanted}"
            ops.define(f"{name}({given}{rest}) -> {regions.schema_of(4 + 2 * terms)}", tags=tags)
            ops.impl(name, functools.partial(_fake, terms), "Meta")
            for device in ("CPU", "CUDA"):
                ops.impl(name, functools.partial(_run, terms), device)
    return ops


_library = _define()


@functools.cache
def launch_op(inputs: int, outputs: int) -> torch._ops.OpOverload:
    """`linear_launch` of an arity. Raises cermet.Error where there is none."""
    return _op(f"linear_launch_{inputs}_{outputs}", inputs, outputs)


@functools.cache
def logits_op(inputs: int, outputs: int) -> torch._ops.OpOverload:
    """`logits_launch` of an arity. Raises cermet.Error where there is none."""
    return _op(f"logits_launch_{inputs}_{outputs}", inputs, outputs)


@functools.cache
def rows_op(inputs: int, terms: int = 0) -> torch._ops.OpOverload:
    """`linear_rows` for `inputs` operands and so many terms. Raises cermet.Error where there is none."""
    return _op(_rows_name(inputs, terms), inputs, MAX_OUTPUTS)


def _op(name: str, inputs: int, outputs: int) -> torch._ops.OpOverload:
    if not (0 <= inputs <= MAX_INPUTS and 2 <= outputs <= MAX_OUTPUTS):
        raise Error(
            f"a loss of {inputs} operands and {outputs} results, expected at most {MAX_INPUTS} and {MAX_OUTPUTS}"
        )
    return getattr(getattr(torch.ops, NAMESPACE), name).default
