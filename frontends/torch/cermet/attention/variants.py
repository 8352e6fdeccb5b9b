"""A graph's masks, and the variant of a graph whose masks are causal or full where no input is padded.

Each call is looked at: at its inputs, outside of the compiled graph, so that nothing inside waits for the device. A
variant is compiled when a call needs it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import sympy
import torch
import torch.fx as fx
from torch._dynamo.convert_frame import compile_lock
from torch._dynamo.exc import RestartAnalysis
from torch._dynamo.utils import preserve_rng_state
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensor

from ..counting import count
from ..graph.decision import NearMiss
from ..graph.edit import copy_of
from ..graph.nodes import example
from . import masks

_log = logging.getLogger("cermet")


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
    """What `make` makes of a graph, when it is first asked for, in the state of torch's tracing that there is now.

    What is made while Dynamo compiles may ask anything of symbolic sizes: that becomes a guard. What is made in a call
    comes too late for that, so what it asked is asked of each call's sizes.
    """

    def __init__(
        self, module: fx.GraphModule, inputs: Sequence[Any], make: Callable[[], Callable[..., Any] | None]
    ) -> None:
        self._make: Callable[[], Callable[..., Any] | None] | None = make
        self._module: fx.GraphModule | None = module
        self._state: _State | None = _State(inputs)
        self._made: Callable[..., Any] | None = None
        self._sizes = _symbols(module)
        self._asked: list[Any] = []
        self._holds: dict[tuple[int, ...], bool] = {}
        self.plain: Callable[..., Any] | None = None  # the graph as it is, where what was made in a call does not do

    def now(self) -> Callable[..., Any] | None:
        """Makes it while Dynamo compiles."""
        self._made = self._make()
        self._make = self._module = self._state = None
        return self._made

    def of(self, arguments: Sequence[Any]) -> Callable[..., Any] | None:
        """What runs these inputs, or None where there is none for them."""
        if self._make is not None:
            with compile_lock:
                if self._make is not None:
                    self._make_in_a_call()
        return self._made if not self._asked or self._fit(arguments) else None

    def _make_in_a_call(self) -> None:
        guards, plain = self._state.guards(), copy_of(self._module) if self._sizes else None
        known = len(guards)
        try:
            with _compiling(), self._state.again(), preserve_rng_state():
                made = self._make()
        except RestartAnalysis:  # Dynamo would trace again in another way, and is not here
            made = None
        asked = [guard.expr for guard in guards[known:]] if plain is not None else []
        if asked:
            _log.info("a variant that was made in a call asks of sizes: %s", ", ".join(map(str, asked)))
        if plain is not None and (asked or made is None):
            self._asked, self.plain = asked, plain.forward
        self._made = made
        self._make = self._module = self._state = None

    def _fit(self, arguments: Sequence[Any]) -> bool:
        sizes = tuple(arguments[place] for place in self._sizes)
        if sizes not in self._holds:
            values = dict(zip(self._sizes.values(), map(sympy.Integer, sizes)))
            self._holds[sizes] = all(asked.xreplace(values) == sympy.true for asked in self._asked)
        return self._holds[sizes]


class _State:
    """What torch knows of a graph's inputs while it compiles that: from 2.12 on it forgets which sizes are symbolic."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        self._context = TracingContext.try_get()
        known = self._context.tensor_to_context if self._context is not None else {}
        tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        self._known = [(tensor, known[tensor]) for tensor in tensors if tensor in known]

    def guards(self) -> list[Any]:
        """What was asked of symbolic sizes so far."""
        fake_mode = self._context.fake_mode if self._context is not None else None
        return fake_mode.shape_env.guards if fake_mode is not None and fake_mode.shape_env is not None else []

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        with tracing(self._context):
            for tensor, sizes in self._known:
                self._context.tensor_to_context[tensor] = sizes
            try:
                yield
            finally:
                for tensor, _ in self._known:
                    self._context.tensor_to_context.pop(tensor, None)


def _symbols(module: fx.GraphModule) -> dict[int, sympy.Symbol]:
    """The symbols that are a graph's inputs, by their places; Dynamo hands in each symbol of its tensors' sizes."""
    inputs = enumerate(node for node in module.graph.nodes if node.op == "placeholder")
    sizes = ((place, example(node)) for place, node in inputs)
    return {
        place: size.node.expr
        for place, size in sizes
        if isinstance(size, torch.SymInt) and isinstance(size.node.expr, sympy.Symbol)
    }


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
        ones = _all_ones([arguments[place] for place in places])
        if ones and (faster := unpadded.of(arguments)) is not None:
            count("calls_unpadded")
            return faster(*arguments)
        count("calls_padded")
        return (padded.of(arguments) or padded.plain)(*arguments)

    return run


def _all_ones(tensors: Sequence[torch.Tensor]) -> bool:
    if any(tensor.is_cuda for tensor in tensors) and torch.cuda.is_current_stream_capturing():
        return False
    return all(bool((tensor == 1).all()) for tensor in tensors)
