"""The one exception that Cermet raises."""

from __future__ import annotations


class Error(RuntimeError):
    """What was given, what was expected, what to do. `status` is cermet.h's name for the kind, or ""."""

    def __init__(self, message: str, status: str = "") -> None:
        super().__init__(message)
        self.status = status
