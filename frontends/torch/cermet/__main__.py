"""`python -m cermet`."""

from __future__ import annotations

import sys

from .capturing import command

if __name__ == "__main__":
    sys.exit(command.main(sys.argv[1:]))
