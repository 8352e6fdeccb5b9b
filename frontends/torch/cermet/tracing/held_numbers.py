"""Numbers that modules and globals hold, constants of a graph until one changes, as torch has it for whole numbers.

`torch.compile(dynamic=True)` makes a symbol of every float that a program reads: a norm's epsilon, attention's scale,
`math.pi`. Where a call takes it as a number, and a region's text does, torch learns so at the end of AOTAutograd's
trace, drops all that it has and begins anew with the number as a constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._dynamo import config
from torch._dynamo.variables.builder import VariableBuilder
from torch._guards import GuardSource

from ..patching import replace, traces_for_us

_WRAPS = "wrap_symfloat"  # of Dynamo, 2.10 to 2.15


def constant_while_traced() -> None:
    """From now on, in what Cermet compiles. One that changes is a symbol of the next graph, as without `dynamic`."""
    replace(VariableBuilder, _WRAPS, _wrapping)


def _wrapping(theirs: Callable[..., Any]) -> Callable[..., Any]:
    def wrap_symfloat(self: Any, value: float) -> Any:
        if not (_held(self.source) and traces_for_us(self.tx)):
            return theirs(self, value)
        with config.patch(assume_static_by_default=True):
            return theirs(self, value)

    return wrap_symfloat


def _held(source: Any) -> bool:
    where = source.guard_source
    where = where() if callable(where) else where  # a method in older versions
    return where is GuardSource.GLOBAL or where.is_unspecialized_nn_module()
