"""What torch promotes operands to, asked of torch once for each pair of kinds and each default dtype: graphs ask
it for every operation."""

from __future__ import annotations

import functools
from typing import Any

import torch

from ...text import Value
from .call import DTYPES

Operand = Value | float
_Kind = tuple[str, bool] | type  # a tensor's dtype and whether it has a rank, or a number's type


def common_dtype(arguments: list[Any], operands: list[Operand]) -> torch.dtype:
    """What torch promotes one or two operands to: numbers and tensors of rank 0 count less than other tensors."""
    kinds = list(map(_kind, arguments, operands))
    return _promoted(torch.get_default_dtype(), kinds[0], kinds[-1])


def _kind(argument: Any, operand: Operand) -> _Kind:
    if isinstance(operand, Value):
        return str(operand.type.element), bool(operand.type.dims)
    return type(argument) if isinstance(argument, (bool, int)) else float


@functools.cache
def _promoted(default: torch.dtype, first: _Kind, last: _Kind) -> torch.dtype:
    return torch.result_type(_sample(first), _sample(last))


def _sample(kind: _Kind) -> Any:
    return kind() if isinstance(kind, type) else torch.empty([1] if kind[1] else [], dtype=DTYPES[kind[0]])
