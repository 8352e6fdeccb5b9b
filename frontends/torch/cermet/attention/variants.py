"""A graph's masks, and the variant of a graph whose masks are causal or full where no input is padded.

Each call is looked at: at its inputs, outside of the compiled graph, so that nothing inside waits for the device. A
variant is compiled when a call needs it.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._dynamo.convert_frame import compile_lock
from torch._dynamo.utils import preserve_rng_state
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensor

from ..counting import count
from ..graph.decision import NearMiss
from ..graph.edit import copy_of
from . import masks


@dataclasses.dataclass(frozen=True)
class Variant:
    """A graph of its own that runs in another's place where that one's inputs at `places` are one everywhere."""

    module: fx.GraphModule
    places: tuple[int, ...]

    def fits(self, inputs: Sequence[Any]) -> bool:
        """Whether these inputs of the graph are known, and are one everywhere at `places`."""
        given = [inputs[place] for place in self.places]
        return not any(isinstance(tensor, FakeTensor) for tensor in given) and _all_ones(given)


def of(module: fx.GraphModule, given: Collection[fx.Node]) -> Variant:
    """The variant for `given` inputs of a graph that has not been changed yet."""
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    return Variant(copy_of(module), tuple(index for index, node in enumerate(inputs) if node in given))


def alone(found: masks.Found) -> masks.Found:
    """What was found, for a graph that can have no variant."""
    always = [mask for mask in found.masks if not mask.given]
    kept = [
        NearMiss(
            mask.meaning.value, mask.attention.name, f"{mask.meaning}{mask.where()}, for which a pass has no second graph"
        )
        for mask in found.masks
        if mask.given
    ]
    return masks.Found(always, [*found.near_misses, *kept])


class Later:
    """What `make` makes, when it is first asked for, in the state of torch's tracing that there is now."""

    def __init__(self, make: Callable[[], Callable[..., Any] | None]) -> None:
        self._make: Callable[[], Callable[..., Any] | None] | None = make
        self._made: Callable[..., Any] | None = None
        self._context = TracingContext.try_get()

    def __call__(self) -> Callable[..., Any] | None:
        if self._make is None:
            return self._made
        with compile_lock, _compiling(), tracing(self._context), preserve_rng_state():
            if self._make is not None:
                self._made = self._make()
                self._make = self._context = None
        return self._made


@contextlib.contextmanager
def _compiling() -> Iterator[None]:
    """Says what Dynamo says while it compiles: else another thread's call of a compiled function raises meanwhile."""
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


def choosing(padded: Later, unpadded: Later, places: Sequence[int]) -> Callable[..., Any]:
    """Runs `unpadded`, if there is one, where the inputs at these places are one everywhere, else `padded`.

    While a CUDA stream is being captured nothing can be asked of the device: `padded`, which is right for every input.
    """

    def run(*arguments: Any) -> Any:
        if _all_ones([arguments[place] for place in places]) and (faster := unpadded()) is not None:
            count("calls_unpadded")
            return faster(*arguments)
        count("calls_padded")
        return padded()(*arguments)

    return run


def _all_ones(tensors: Sequence[torch.Tensor]) -> bool:
    if any(tensor.is_cuda for tensor in tensors) and torch.cuda.is_current_stream_capturing():
        return False
    return all(bool((tensor == 1).all()) for tensor in tensors)
