"""The loss of a linear head in pieces of rows, with its gradients: never more than one piece of logits exists.

For each piece: its logits, their loss and their gradient in the logits' memory (one kernel, which reads them once), and
from that the gradient of these rows of the hidden state and what they add to the weight's. What is saved for the
backward are the two gradients for a cotangent of 1, and not that of the logits.

The weight's gradient is summed in f32 inside of the products and rounded once, as a product over all rows would round
it. Half of that sum lies in the memory of the gradient itself, the other half is given back at the end: so it costs
four bytes a weight, and never six.

Rows that give nothing (an ignored label, a factor of zero) are left out of the products where they are many (kept.py).

- `cermet_v1::linear_rows_{n}(Tensor hidden, Tensor weight, Tensor? bias, Tensor a0, ..., int key, int position,
  int chunk, bool of_hidden, bool of_weight, bool of_bias)`: the loss of region `key`, whose operand `position` would be the logits, and the
  gradients that are asked for, else empty tensors; in pieces of at most `chunk` rows, however many rows there are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from ..errors import Error
from ..graph.traffic import hint, judged, longest
from ..ops import regions
from ..ops.regions import NAMESPACE
from . import kept as kept_rows
from .derivation import MAX_INPUTS, MAX_OUTPUTS, Part, Parts, derive

_TILE = 128  # rows that a product takes at once: pieces are whole numbers of them
_BYTES = 16  # what a GPU's products take at once of a row (remainder/aten/alignment.py)
_PADDED = {"cuda"}
_COPIED = 16  # one in so many numbers is rounded through a copy (_round_in_place)

# --- Whether, and how large ------------------------------------------------------------------------------------------


def chunk_rows(hidden: torch.Tensor, weight: torch.Tensor, budget: int, of_hidden: bool, of_weight: bool) -> int:
    """The rows of a piece, whose logits are of `budget` bytes at most; 0 where the whole takes no more memory, for
    as many rows as there may be (graph/traffic.py).

    The whole holds the logits' gradient until the backward has made the weight's of it; pieces hold one of them beside
    the sum in f32, and then the weight's gradient twice, since the backward scales it."""
    rows = math.prod(judged(size, longest) for size in hidden.shape[:-1])
    bytes_of_row = int(weight.shape[0]) * weight.element_size()
    chunk = max(1, budget // bytes_of_row)
    if chunk > 2 * _TILE:
        chunk -= chunk % _TILE
    if rows <= chunk:
        return 0
    if not (of_hidden or of_weight):
        return chunk
    sums = 4 * weight.numel() if of_weight else 0
    gradient = weight.numel() * weight.element_size() if of_weight else 0
    pieces = max(chunk * bytes_of_row + sums, 2 * gradient)
    return chunk if pieces < rows * bytes_of_row + gradient else 0


def with_bias(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """What gives logits with a bias by a product without one: the bias is a column of the weight, for a hidden state
    that goes on with ones, and is added in f32. As many columns as keep rows aligned."""
    return (hidden, weight) if bias is None else (_going_on(hidden), _widened(weight, bias))


def _going_on(hidden: torch.Tensor) -> torch.Tensor:
    return F.pad(hidden, (0, _BYTES // hidden.element_size()), value=1.0)


def _widened(weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    bias = F.pad(bias[:, None], (0, _BYTES // weight.element_size() - 1, 0, len(weight) - len(bias)))
    return torch.cat([weight, bias], 1)


def _pieces(rows: int, chunk: int) -> list[slice]:
    """Of nearly equal size."""
    if rows == 0:
        return []
    size = -(-rows // -(-rows // chunk))
    if chunk > _TILE:
        size = min(chunk, -(-size // _TILE) * _TILE)
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]


def taken(hidden: torch.Tensor, weight: torch.Tensor, *others: Any) -> int:
    """The bytes that `linear_rows` of these arguments takes while it runs, beside its results."""
    bias, *_, chunk, _, of_weight, _ = others
    rows, columns = math.prod(map(hint, hidden.shape[:-1])), int(weight.shape[0])
    pieces = _pieces(rows, chunk)
    logits = max((piece.stop - piece.start for piece in pieces), default=0) * columns * weight.element_size()
    summed = of_weight and len(pieces) > 1 and weight.dtype != torch.float32
    product = columns * (int(weight.shape[1]) * weight.element_size() + _BYTES) if bias is not None else 0
    return logits + product + (4 * (columns - _inner_rows(columns)) * int(weight.shape[1]) if summed else 0)


def _inner_rows(rows: int) -> int:
    """Of a weight's sum in f32: those that lie in the memory of the rounded gradient."""
    return rows // 2 - rows // 2 % (_BYTES // 2)


# --- The ops ---------------------------------------------------------------------------------------------------------


def _run(*arguments: Any) -> tuple[torch.Tensor, ...]:
    hidden, weight, bias, *operands, key, position, chunk, of_hidden, of_weight, of_bias = arguments
    with torch.no_grad(), torch.autocast(hidden.device.type, enabled=False):
        return _Run(hidden, weight, bias, operands, key, position, chunk).run(of_hidden, of_weight, of_bias)


class _Run:
    """One call."""

    def __init__(
        self,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        operands: list[Any],
        key: int,
        position: int,
        chunk: int,
    ) -> None:
        self.hidden, self.key, self.position, self.chunk = hidden, key, position, chunk
        self.rows = hidden.reshape(-1, hidden.shape[-1])
        self.columns = weight.shape[0]
        self.weight = _aligned(weight)
        self.bias = bias
        self.product = self.weight if bias is None else _widened(self.weight, bias)  # makes the logits
        self.operands: list[torch.Tensor | None] = [*operands[:position], None, *operands[position:]]

    def run(self, of_hidden: bool, of_weight: bool, of_bias: bool) -> tuple[torch.Tensor, ...]:
        differentiated = of_hidden or of_weight or of_bias
        parts = _parts(self.key, self.position, differentiated)
        early = self._launched(parts.before, [], [])
        pieces, all_rows = self._pieces(parts, early)
        made = self.rows.new_empty if all_rows else self.rows.new_zeros
        ports = regions.signature(parts.rows.key, self.hidden.device).outputs
        ports = ports[:-1] if differentiated else ports
        numbers = [made((len(self.rows), *port.dims[1:]), dtype=port.dtype) for port in ports]
        to_hidden = made(self.rows.shape) if of_hidden else None
        to_weight = _WeightGradient(self.weight, self.columns, len(pieces)) if of_weight else None
        # Whose sum over pieces has more digits than one over all rows would need.
        wide = torch.float64 if self.rows.dtype == torch.float32 else torch.float32
        to_bias = self.rows.new_zeros(self.columns, dtype=wide) if of_bias else None
        for piece in pieces:
            rows = self.rows[piece]
            inputs = self._inputs(parts.rows, early, piece)
            if not differentiated:
                values = self._loss(parts.rows, rows, inputs)
            else:
                *values, gradient = self._gradient(parts.rows, rows, inputs)
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
            gradient = None  # before the next piece's logits are made
        (loss,) = self._launched(parts.after, early, numbers)
        nothing = self.rows.new_empty(0)
        return (
            loss,
            nothing if to_hidden is None else to_hidden.view(self.hidden.shape),
            self.rows.new_empty(0) if to_weight is None else to_weight.result(),
            self.rows.new_empty(0) if to_bias is None else to_bias.to(self.bias.dtype),
        )

    def _launched(
        self, part: Part | None, early: Sequence[torch.Tensor], numbers: Sequence[torch.Tensor]
    ) -> Sequence[torch.Tensor]:
        if part is None:
            return []
        sources = {"input": self.operands, "before": early, "rows": numbers}
        sizes = self._sizes()
        ports = regions.signature(part.key, self.hidden.device).inputs
        inputs = [
            sources[origin][index].reshape([sizes.get(dim, dim) for dim in port.dims])
            for (origin, index), port in zip(part.inputs, ports)
        ]
        return regions.launch(part.key, inputs)

    def _sizes(self) -> dict[str, int]:
        """What the region's symbols are."""
        sizes: dict[str, int] = {}
        for port, operand in zip(regions.signature(self.key, self.hidden.device).inputs, self.operands):
            shape = operand.shape if operand is not None else [*self.hidden.shape[:-1], self.columns]
            if len(shape) != len(port.dims):
                shape = [len(self.rows), self.columns]
            sizes.update((dim, size) for dim, size in zip(port.dims, shape) if isinstance(dim, str))
        return sizes

    def _inputs(self, part: Part, early: Sequence[torch.Tensor], piece: slice) -> list[torch.Tensor]:
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

    def _gradient(self, part: Part, rows: torch.Tensor, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Numbers of each row, and the logits' gradient, as wide as the weight has rows."""
        op = launch_op(len(inputs), part.outputs)
        rows = rows if self.bias is None else _going_on(rows)
        *values, gradient = op(rows, self.product, *inputs, part.key, part.inputs.index(("input", self.position)))
        width = len(self.weight)
        return [*values, gradient if width == self.columns else gradient.as_strided((len(rows), width), (width, 1))]

    def _loss(self, part: Part, rows: torch.Tensor, inputs: list[torch.Tensor]) -> Sequence[torch.Tensor]:
        logits = F.linear(rows if self.bias is None else _going_on(rows), self.product)
        inputs.insert(part.inputs.index(("input", self.position)), logits[:, : self.columns])
        return regions.launch(part.key, inputs)

    def _pieces(self, parts: Parts, early: Sequence[torch.Tensor]) -> tuple[list[slice] | list[torch.Tensor], bool]:
        """The rows of each piece, and whether they are all: where many rows give nothing, the numbers of the others."""
        count = len(self.rows)
        if parts.kept is not None and count and not (self.rows.is_cuda and torch.cuda.is_current_stream_capturing()):
            (kept,) = regions.launch(parts.kept.key, self._inputs(parts.kept, early, slice(None)))
            places = kept_rows.places(self.key, kept.view(-1))
            if places is not None:
                return [places[piece] for piece in _pieces(len(places), self.chunk)], False
        return _pieces(count, self.chunk), True


def _aligned(weight: torch.Tensor) -> torch.Tensor:
    """A weight with rows of zeros behind its own, where products of its number of rows would be slow: their logits are
    zeros, and so is the gradient of those."""
    lacking = -len(weight) % (_BYTES // weight.element_size())
    slow = lacking and weight.element_size() == 2 and weight.device.type in _PADDED
    return F.pad(weight, (0, 0, 0, lacking)) if slow else weight


class _WeightGradient:
    """The sum over pieces of their gradient of the weight, rounded once."""

    def __init__(self, weight: torch.Tensor, rows: int, pieces: int) -> None:
        """`rows`: how many of the weight's count."""
        self.weight, self.rows = weight, rows
        self.first = True
        self.sums: list[torch.Tensor] = []
        self.made = None
        if pieces <= 1:  # one product rounds for itself
            return
        self.made = torch.empty(weight.shape, dtype=weight.dtype, device=weight.device)[:rows]
        if self.made.dtype == torch.float32:
            self.sums = [self.made]
            return
        # Of the sum's rows those that fit lie in the memory of the result.
        split = _inner_rows(rows)
        inner = self.made.flatten()[: 2 * split * weight.shape[1]].view(torch.float32).view(split, weight.shape[1])
        self.sums = [inner, weight.new_empty((len(weight) - split, weight.shape[1]), dtype=torch.float32)]

    def add(self, gradient: torch.Tensor, rows: torch.Tensor) -> None:
        """`gradient` [piece, rows of the weight], `rows` of the hidden state."""
        if not self.sums:
            self.made = torch.mm(gradient.t(), rows)[: self.rows]
            return
        start = 0
        for into in self.sums:
            _add_product(into, gradient[:, start : start + len(into)].t(), rows, self.first)
            start += len(into)
        self.first = False

    def result(self) -> torch.Tensor:
        if self.made is None:  # no rows
            return torch.zeros(self.weight.shape, dtype=self.weight.dtype, device=self.weight.device)[: self.rows]
        if len(self.sums) == 2:
            inner, outer = self.sums
            _round_in_place(inner.flatten(), self.made.flatten())
            self.made[len(inner) :].copy_(outer[: self.rows - len(inner)])
        self.sums = []
        return self.made


def _add_product(into: torch.Tensor, left: torch.Tensor, right: torch.Tensor, first: bool) -> None:
    """Adds a product to an f32 matrix, or with `first` overwrites it, and rounds nothing else."""
    if left.dtype == torch.float32 or left.device.type != "cuda":
        torch.addmm(into, left.float(), right.float(), beta=0 if first else 1, out=into)
    elif _adds_in_f32(left.device, left.dtype):
        torch.addmm(into, left, right, out_dtype=torch.float32, beta=0 if first else 1, out=into)
    elif first:
        torch.mm(left, right, out_dtype=torch.float32, out=into)
    else:
        into += torch.mm(left, right, out_dtype=torch.float32)


@functools.cache
def _adds_in_f32(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this torch adds a product of two narrow matrices to a wide one without a product of its own in memory."""
    narrow, wide = (torch.ones(16, 16, dtype=each, device=device) for each in (dtype, torch.float32))
    try:
        torch.addmm(wide, narrow, narrow, out_dtype=torch.float32, out=wide)
    except (RuntimeError, TypeError):
        return False
    return True


def _round_in_place(wide: torch.Tensor, narrow: torch.Tensor) -> None:
    """Rounds f32 numbers to the front of their own memory, `narrow`. What is read and what is written never overlap:
    each part goes where the one before it was read, and the first through a copy."""
    done = -(-len(wide) // _COPIED)
    narrow[:done] = wide[:done].to(narrow.dtype)
    while done < len(wide):
        until = min(2 * done, len(wide))
        narrow[done:until].copy_(wide[done:until])
        done = until


def _fake(*arguments: Any) -> tuple[torch.Tensor, ...]:
    hidden, weight, bias, *operands, key, position, _, of_hidden, of_weight, of_bias = arguments
    check(key, hidden, weight)
    what = regions.signature(key, hidden.device)
    rank = len(what.inputs[position].dims)
    lead = hidden.shape[:-1] if rank == hidden.dim() else [math.prod(hidden.shape[:-1])]
    operands.insert(position, hidden.new_empty([*lead, weight.shape[0]]))
    return (
        regions.fake_launch(*operands, key),
        hidden.new_empty(hidden.shape if of_hidden else [0]),
        weight.new_empty(weight.shape if of_weight else [0]),
        weight.new_empty(bias.shape if of_bias else [0]),
    )


def check(key: int, hidden: torch.Tensor, weight: torch.Tensor) -> None:
    """Raises cermet.Error where no product is possible."""
    if hidden.shape[-1] != weight.shape[-1] or hidden.dtype != weight.dtype:
        raise Error(
            f"{regions.signature(key).name}: hidden is {hidden.dtype} of {tuple(hidden.shape)}, the weight "
            f"{weight.dtype} of {tuple(weight.shape)}, expected one dtype and the same last size"
        )


def _parts(key: int, position: int, with_gradient: bool) -> Parts:
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


def _define() -> torch.library.Library:
    ops = torch.library.Library(NAMESPACE, "FRAGMENT")
    tags = (torch.Tag.pt2_compliant_tag,)
    for inputs in range(1, MAX_INPUTS + 1):
        tensors = ", ".join(["Tensor hidden", "Tensor weight", *(f"Tensor a{i}" for i in range(inputs))])
        for outputs in range(2, MAX_OUTPUTS + 1):
            name = f"linear_launch_{inputs}_{outputs}"
            ops.define(f"{name}({tensors}, int key, int position) -> {regions.schema_of(outputs)}", tags=tags)
            ops.impl(name, _fake_launch, "Meta")
        name = f"linear_rows_{inputs}"
        tensors = tensors.replace("Tensor weight", "Tensor weight, Tensor? bias")
        rest = "int key, int position, int chunk, bool of_hidden, bool of_weight, bool of_bias"
        ops.define(f"{name}({tensors}, {rest}) -> {regions.schema_of(4)}", tags=tags)
        ops.impl(name, _fake, "Meta")
        for device in ("CPU", "CUDA"):
            ops.impl(name, _run, device)
    return ops


_library = _define()


@functools.cache
def launch_op(inputs: int, outputs: int) -> torch._ops.OpOverload:
    """`linear_launch` of an arity. Raises cermet.Error where there is none."""
    return _op(f"linear_launch_{inputs}_{outputs}", inputs, outputs)


@functools.cache
def rows_op(inputs: int) -> torch._ops.OpOverload:
    """`linear_rows` for `inputs` operands. Raises cermet.Error where there is none."""
    return _op(f"linear_rows_{inputs}", inputs, MAX_OUTPUTS)


def _op(name: str, inputs: int, outputs: int) -> torch._ops.OpOverload:
    if not (1 <= inputs <= MAX_INPUTS and 2 <= outputs <= MAX_OUTPUTS):
        raise Error(
            f"a loss of {inputs} operands and {outputs} results, expected at most {MAX_INPUTS} and {MAX_OUTPUTS}"
        )
    return getattr(getattr(torch.ops, NAMESPACE), name).default
