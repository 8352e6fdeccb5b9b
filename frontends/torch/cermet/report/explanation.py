"""What `cermet.explain` gives: findings that can be read."""

from __future__ import annotations

import os

from . import page, table
from .findings import Findings


class Explanation(Findings):
    """What was found in some graphs; `str()` is a table and `html()` a page."""

    def __str__(self) -> str:
        return table.text(self)

    def html(self) -> str:
        """One self-contained page: the table, and for each row its graph texts and CUDA C++."""
        return page.html(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes `html()` to a file. Raises OSError."""
        page = self.html()
        with open(path, "w", encoding="utf-8") as file:
            file.write(page)
