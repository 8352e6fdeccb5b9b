"""What becomes of a failure of Cermet's own while a graph is changed: raised, or logged, counted and reported."""

from __future__ import annotations

import logging
from collections.abc import Callable

from .counting import count
from .errors import Error

_log = logging.getLogger("cermet")
_warned = False

Failing = Callable[[Exception, str], None]  # the error, and what it is over: "a graph" or "a match"


def failing(strict: bool) -> Failing:
    """What a compile does about a failure. One of CERMET_CACHE=only is raised in any case: who sets it would rather
    know than run something else."""
    return _raise if strict else _fall_back


def _raise(error: Exception, what: str) -> None:
    raise error


def _fall_back(error: Exception, what: str) -> None:
    global _warned
    if isinstance(error, Error) and error.status == "NOT_STORED":
        raise error
    count("fallbacks")
    level = logging.DEBUG if _warned else logging.WARNING
    _log.log(
        level,
        "%s is left as it was because Cermet failed: %s: %s (further failures are counted in "
        'cermet.counters()["fallbacks"]; options={"strict": True} raises them)',
        what,
        type(error).__name__,
        error,
        exc_info=_log.isEnabledFor(logging.DEBUG),
    )
    _warned = True
