"""The environment variables that the frontend heeds (docs/environment.md), each when it is asked for; what libcermet reads
too, it reads. What cannot be understood raises cermet.Error."""

from __future__ import annotations

import logging
import os

from . import native
from .errors import Error

_LEVELS = {"off": logging.CRITICAL + 1, "warn": logging.WARNING, "info": logging.INFO}


def strict() -> bool:
    """CERMET_STRICT: whether a failure of Cermet's raises."""
    value = os.environ.get("CERMET_STRICT", "0")
    if value not in ("0", "1"):
        raise Error(f"CERMET_STRICT is {value!r}, expected 0 or 1")
    return value == "1"


def check() -> bool:
    """CERMET_CHECK: whether kernels are compared with what they replace."""
    return native.settings()["CERMET_CHECK"]


def compile_threads() -> int:
    """CERMET_COMPILE_THREADS: how many kernels are compiled at once."""
    return native.settings()["CERMET_COMPILE_THREADS"]


def report() -> str:
    """CERMET_EXPLAIN: where each graph is explained; "" for nowhere, "-" for stderr, or the first page's path."""
    value = os.environ.get("CERMET_EXPLAIN", "0")
    if value in ("0", "1"):
        return "-" if value == "1" else ""
    if not value.endswith(".html"):
        raise Error(f"CERMET_EXPLAIN is {value!r}, expected 0, 1 or a path that ends in .html")
    return value


def log() -> None:
    """CERMET_LOG, whose messages of libcermet's it names too: sets what the logger "cermet" tells, on stderr where the
    program has no handler of its own; without the variable it is the program's own."""
    if "CERMET_LOG" not in os.environ:
        return
    logger = logging.getLogger("cermet")
    logger.setLevel(_LEVELS[native.settings()["CERMET_LOG"]])
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("cermet: %(message)s"))
        logger.addHandler(handler)


def nvrtc() -> str:
    """CERMET_NVRTC: the library to load, or "" where it is to be found."""
    return native.settings()["CERMET_NVRTC"]
