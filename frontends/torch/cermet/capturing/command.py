"""`python -m cermet capture`: the command, its arguments and what it prints."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import torch

from ..errors import Error
from ..targets.target import Target
from . import models, shapes
from .capture import STEPS, Wanted, capture

_EPILOG = """
example:
  python -m cermet capture my_script:make_model --shapes input_ids=2x1..4096 --target sm_90,sm_100 -o model.cpack
  CERMET_PACKS=model.cpack CERMET_CACHE=only python train.py
"""


def main(arguments: Sequence[str]) -> int:
    """The exit status."""
    parser = _parser()
    given = parser.parse_args(arguments)
    line = _Line()
    try:
        recorded = capture(models.maker(given.model), _wanted(given), given.output, line.show)
    except Error as error:
        line.clear()
        print(f"cermet: {error}", file=sys.stderr)
        return 1
    line.clear()
    print(f"{given.output}: {recorded.entries} entries, {recorded.bytes} bytes, sha256 {recorded.digest}")
    if recorded.fallbacks:
        said = f"{recorded.fallbacks} graphs or matches were left as they were because of a failure of Cermet's"
        print(f"{said}, as they will be there; CERMET_STRICT=1 raises it", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m cermet",
        description="Makes packs, on any machine, for machines that shall compile nothing.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    command = commands.add_parser(
        "capture",
        help="everything that a process will ask for, from a model without numbers",
        description="Traces a model on fake tensors of the targets' devices and writes what a process with such a "
        "device will ask of Cermet as a pack. No GPU is needed.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("model", metavar="MODULE:FUNCTION", help="makes the model; also FILE.py:FUNCTION")
    command.add_argument(
        "--shapes",
        action="append",
        required=True,
        metavar="NAME=SHAPE,...|FILE",
        help="the inputs of a call: input_ids=2x512, or 2x1..4096 for a size that varies (torch._dynamo.mark_dynamic), "
        ":DTYPE behind a shape where it is no usual one, labels=input_ids for the same tensor; repeat it for each kind "
        "of call, or name a FILE.json or FILE.toml whose list `calls` has them all",
    )
    command.add_argument(
        "--target", action="append", required=True, metavar="TARGET,...", help="sm_80 ... sm_120, host"
    )
    command.add_argument("-o", "--output", required=True, metavar="PACK", help="the file, in place of what is there")
    command.add_argument(
        "--for", dest="steps", default=",".join(STEPS), metavar="STEP,...",
        help="some of train,evaluate,infer; all but infer with labels",
    )  # fmt: skip
    command.add_argument("--autocast", metavar="DTYPE", help="calls are made within torch.autocast of this type")
    command.add_argument("--options", default="{}", metavar="JSON", help="of torch.compile(..., options=...)")
    command.add_argument(
        "--attention", default="", metavar="KERNEL,...",
        help="the kernels that torch takes on the GPU, the first first, where they are not its usual ones",
    )  # fmt: skip
    return parser


def _wanted(given: argparse.Namespace) -> Wanted:
    steps = _listed(given.steps)
    for step in steps:
        if step not in STEPS:
            raise Error(f"--for is {given.steps!r}, expected some of {','.join(STEPS)}")
    attention = _listed(given.attention)
    names = list(dict.fromkeys(name for each in given.target for name in _listed(each)))
    if not names or not steps:
        raise Error(f"{'--target' if not names else '--for'} names nothing, expected one or more with commas between")
    return Wanted(
        [call for each in given.shapes for call in shapes.kinds(each)],
        [Target.of(name, attention) for name in names],
        steps,
        _dtype(given.autocast),
        _options(given.options),
    )


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _dtype(name: str | None) -> torch.dtype | None:
    dtype = getattr(torch, name, None) if name is not None else None
    if name is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise Error(f"--autocast is {name!r}, expected bfloat16 or float16")
    return dtype


def _options(text: str) -> dict[str, Any]:
    try:
        options = json.loads(text)
    except ValueError as error:
        raise Error(f"--options is {text!r}, which is no JSON: {error}") from None
    if not isinstance(options, dict):
        raise Error(f'--options is {text!r}, expected an object like {{"memory": "least"}}')
    return options


class _Line:
    """What is traced, on stderr where that is a terminal."""

    def __init__(self) -> None:
        self._shown = sys.stderr is not None and sys.stderr.isatty()

    def show(self, what: str, done: int, all: int) -> None:
        if self._shown:
            sys.stderr.write(f"\r\x1b[Kcermet: {done} of {all} traced; {what}")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
