"""What a program logs once for all, which ends no graph.

Dynamo traces no method of a logger: a warning in a model's forward ends a graph there, and begins the frames around it
anew. A method that keeps what it returned (`functools.lru_cache`, as transformers' `warning_once`) does nothing when it
is given the same again, so it may as well be called while the program is traced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from torch._dynamo.variables import ConstantVariable, misc

from .patching import replace

_LOGGER, _CALLED = "LoggingLoggerVariable", "call_method"  # of Dynamo, 2.10 to 2.15


def said_while_traced() -> None:
    """From now on, whoever compiles what is traced."""
    replace(getattr(misc, _LOGGER, None), _CALLED, _saying)


def _saying(theirs: Callable[..., Any]) -> Callable[..., Any]:
    def call_method(self: Any, tx: Any, name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if _said(self.value, name, args, kwargs):
            return ConstantVariable.create(None)
        return theirs(self, tx, name, args, kwargs)

    return call_method


def _said(logger: logging.Logger, name: str, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Whether the method was called, and will do nothing when it is called so again."""
    method = getattr(logger, name, None)
    if not hasattr(getattr(method, "__func__", None), "cache_info"):
        return False
    constants = [*args, *kwargs.values()]
    if not all(each.is_python_constant() for each in constants):
        return False
    try:
        said = method(
            *(each.as_python_constant() for each in args),
            **{key: each.as_python_constant() for key, each in kwargs.items()},
        )
    except Exception:  # it is raised again where the program calls it
        return False
    return said is None
