"""`cermet COMMAND` and `python -m cermet COMMAND`: `capture`, which needs torch, and those of the tool in the wheel."""

from __future__ import annotations

import os
import pathlib
import sys

_TOOL = pathlib.Path(__file__).with_name("cermet")


def main() -> int:
    """The exit status; the tool takes this process's place."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["capture"]:
        from .capturing import command

        return command.main(arguments)
    if not os.access(_TOOL, os.X_OK):
        print(f"cermet: {_TOOL} is not there, which an installed wheel has; `capture` needs none", file=sys.stderr)
        return 2
    if not arguments or arguments[0] in ("-h", "--help"):
        print("capture (python): a pack from a model, without a GPU; cermet capture --help\n", flush=True)
    os.execv(_TOOL, ["cermet", *arguments])


if __name__ == "__main__":
    sys.exit(main())
