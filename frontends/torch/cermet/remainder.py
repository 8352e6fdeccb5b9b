"""Who runs what Cermet leaves of a graph: AOTAutograd with direct calls, Inductor, or eager autograd.

`auto` chooses. Direct calls are enough where what is left is kernels of others (matmuls, attention, embeddings), views
and copies; where elementwise work and reductions are left that Inductor would fuse, it gets the graph.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib.resources
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.fx as fx

from . import library
from .leftovers import Work
from .options import Options

# Of a graph's bytes, the share that work for Inductor must move to be worth its compile time.
_SHARE = 0.05


@dataclasses.dataclass(frozen=True)
class Choice:
    remainder: str  # "aot", "inductor" or "eager"
    reason: str

    def __str__(self) -> str:
        return f"{self.remainder}: {self.reason}"


def choose(options: Options, work: Work) -> Choice:
    """Who runs a rewritten graph. `work`: what is left in it for a fuser."""
    if options.remainder != "auto":
        return Choice(options.remainder, "as asked")
    if options.for_inductor_alone:
        return Choice("inductor", f"{options.for_inductor_alone[0]} is an option of Inductor's")
    if work.unknown:
        return Choice("inductor", "Cermet failed, and left the graph as it was")
    largest = ", ".join(f"{item.times} {item.op}" for item in work.left[:3])
    percent = f"{100 * work.share:.1f} % of the graph's bytes"
    if work.share > _SHARE:
        return Choice("inductor", f"{percent} are moved by work that it can fuse ({largest})")
    return Choice("aot", f"{percent} are moved by work that a compiler could fuse" + (f" ({largest})" if largest else ""))


def run(
    module: fx.GraphModule, example_inputs: Sequence[Any], remainder: str, options: Options
) -> Callable[..., Any]:
    """The callable that runs a rewritten graph."""
    if remainder == "eager":
        return module.forward
    with _keyed():
        if remainder == "aot":
            from . import direct

            return direct.compile(module, example_inputs, options)
        from torch._inductor.compile_fx import compile_fx

        return compile_fx(module, list(example_inputs), config_patches=options.inductor)


@contextlib.contextmanager
def _keyed() -> Iterator[None]:
    """Makes this build of Cermet part of the key of every graph that torch's caches keep: another one may save other
    values for the backward of the same region."""
    config = torch.compiler.config
    with config.patch(cache_key_tag=f"{config.cache_key_tag}cermet {build()}"):
        yield


@functools.cache
def build() -> str:
    """What names this build of Cermet: the libraries' version and build id, and a hash of the Python sources."""
    sources = importlib.resources.files(__package__).iterdir()
    texts = sorted((path.name, path.read_bytes()) for path in sources if path.name.endswith(".py"))
    return f"{library.version()} {hashlib.sha256(repr(texts).encode()).hexdigest()[:16]}"
