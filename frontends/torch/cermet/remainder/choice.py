"""Who runs what Cermet leaves of a graph: AOTAutograd with direct calls, Inductor, or eager autograd.

`auto` takes direct calls: behind autograd, what moves memory becomes kernels of Cermet's (clusters.py), and the rest is
kernels of others. Inductor gets a graph with a body that only a compiler makes a kernel of, and who asks for it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx as fx

from ..counting import count
from ..errors import Error
from ..ops.build import build
from ..options import Options
from ..targets import devices
from .content import Remainder

if TYPE_CHECKING:
    from .direct import Told


@dataclasses.dataclass(frozen=True)
class Choice:
    remainder: str  # "aot", "inductor" or "eager"
    reason: str

    def __str__(self) -> str:
        return f"{self.remainder}: {self.reason}"


def choose(options: Options, remainder: Remainder) -> Choice:
    """Who runs a rewritten graph. `remainder`: what is left in it for a fuser."""
    if options.remainder != "auto":
        return Choice(options.remainder, "as asked")
    if options.for_inductor_alone:
        return Choice("inductor", f"{options.for_inductor_alone[0]} is an option of Inductor's")
    if remainder.bodies:
        return Choice("inductor", f"only a compiler makes a kernel of {', '.join(remainder.bodies)}")
    if remainder.unknown:
        return Choice("aot", "Cermet failed, and left the graph as it was")
    largest = ", ".join(f"{item.times} {item.op}" for item in remainder.parts[:3])
    which = f" ({largest})" if largest else ""
    return Choice("aot", f"{100 * remainder.share:.1f} % of the graph's bytes are moved outside of named patterns{which}")


def run(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    remainder: str,
    options: Options,
    told: Told | None = None,
) -> tuple[Callable[..., Any], list[str]]:
    """The callable that runs a rewritten graph, and what else there is to say of it: that Inductor failed and direct
    calls run it, why torch's caches do not keep it. `told` hears of the graphs of direct calls (direct.py). Raises what
    Inductor did where strict or where both fail."""
    if remainder != "aot" and not isinstance(options.memory, str):
        raise Error(
            f"option memory is {options.memory / 1e9:.3f} GB, but the remainder is {remainder!r}, which plans no memory; "
            "expected 'aot', or one of 'fast', 'auto', 'least'"
        )
    if remainder == "eager" or remainder == "inductor" and devices.captured():  # whose part no pack has
        return module.forward, []
    before, notes = _bypasses(), []
    if remainder == "inductor":
        from . import fallback

        compiled, failure = fallback.compile(module, example_inputs, options, _keyed)
        notes += [f"Inductor failed ({failure}), so direct calls run it"] if failure else []
    else:
        from . import direct

        heard: list[str] = []

        def hear(kind: str, *graph: Any) -> None:
            heard.append(kind)
            told(kind, *graph)

        with _keyed(remainder, options):
            compiled = direct.compile(module, example_inputs, options, hear if told is not None else None)
        if told is not None and not heard:
            notes.append("what runs behind autograd came from torch's cache, and is not told")
    if options.cuda_graphs:
        from .capture import keep_gradients

        compiled = keep_gradients(compiled, example_inputs)
    if _bypasses() != before:
        count("cache_bypasses")
        notes.append(f"not cached by torch: {_obstacle(module)}")
    return compiled, notes


@contextlib.contextmanager
def _keyed(remainder: str, options: Options) -> Iterator[None]:
    """Makes this build of Cermet part of the key of every graph that torch's caches keep: another one may save other
    values for the backward of the same region."""
    config = torch.compiler.config
    recorded = " recorded" if options.cuda_graphs else ""
    with config.patch(cache_key_tag=f"{config.cache_key_tag} cermet {build()} {remainder}{recorded}"):
        yield


def _bypasses() -> int:
    return torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_bypass"]


def _obstacle(module: fx.GraphModule) -> str:
    """What AOTAutogradCache has against a graph, as far as it says so itself."""
    from torch._functorch._aot_autograd.autograd_cache import check_cacheable

    try:
        check_cacheable(module)
    except Exception as error:
        return " ".join(str(error).split())
    return "torch bypassed AOTAutogradCache (TORCH_LOGS=+torch._functorch says why)"


