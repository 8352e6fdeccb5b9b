"""A graph's masks, and the variants of a graph whose masks have a meaning where its inputs are such: where no input is
padded, and where tensors of integers number segments (readings.py).

Each call is looked at: at its inputs, outside of the compiled graph, so that nothing inside waits for the device. A
variant is compiled when a call needs it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Protocol

import sympy
import torch
import torch.fx as fx
from torch._dynamo.convert_frame import compile_lock
from torch._dynamo.exc import RestartAnalysis
from torch._dynamo.utils import preserve_rng_state
from torch._guards import TracingContext, tracing
from torch._subclasses import FakeTensor

from ..counting import count
from ..graph import nodes
from ..graph.decision import Declined, NearMiss
from ..graph.edit import copy_of
from ..graph.snapshots import ModuleSnapshot
from ..graph.nodes import example
from ..targets import devices
from . import masks, shown
from .proof.functions import Functions
from .readings import Kind, Reading
from .remembering import Remembered
from .shown import Shown

_log = logging.getLogger("cermet")


class Condition(Protocol):
    """What a call's inputs must be for a variant."""

    def __call__(self, arguments: Sequence[Any]) -> list[Any] | None:
        """What the variant is given behind these inputs; None where they are not so. May wait for the device."""


@dataclasses.dataclass(frozen=True)
class Ones:
    """That the inputs at `places` are one everywhere."""

    places: tuple[int, ...]
    remembered: Remembered = dataclasses.field(default_factory=Remembered, compare=False, repr=False)

    def __call__(self, arguments: Sequence[Any]) -> list[torch.Tensor] | None:
        given = [arguments[place] for place in self.places]
        if any(isinstance(tensor, FakeTensor) for tensor in given):
            return None
        if any(devices.recorded(tensor.device) for tensor in given):
            return None
        ones = self.remembered.ask(given, lambda: all(bool((tensor == 1).all()) for tensor in given))
        return [] if ones else None


@dataclasses.dataclass(frozen=True)
class Variant:
    """A graph of its own that runs in another's place where that one's inputs are such."""

    module: fx.GraphModule
    condition: Condition
    calls: str  # the counter of its calls


def unpadded(module: fx.GraphModule, given: Collection[fx.Node]) -> Variant:
    """The variant for `given` inputs of a graph that has not been changed yet."""
    inputs = [node for node in module.graph.nodes if node.op == "placeholder"]
    places = tuple(index for index, node in enumerate(inputs) if node in given)
    return Variant(copy_of(module), Ones(places), "calls_unpadded")


def segmented(module: fx.GraphModule, kinds: Sequence[Kind]) -> Variant:
    """The variant for segments in a graph that has not been changed yet. Raises Declined where nobody could tell it."""
    modules = list(nodes.modules(module))
    reading = Reading(module, kinds, Functions(modules, masks.outer_values(modules)))
    return Variant(copy_of(module), reading, "calls_segmented")


def compact(module: fx.GraphModule, found: masks.Found) -> Variant:
    """The variant for shown places alone (compaction.py) in a graph that has not been changed yet. Raises Declined
    where there can be none."""
    if len(found.kinds) != 1 or found.kinds[0].segments.shown is None:
        raise Declined("masks are of other segments than one padding")
    modules = list(nodes.modules(module))
    kind = found.compact().kinds[0]
    functions = Functions(modules, masks.outer_values(modules))
    condition = Shown(module, kind, functions, shown.targets(module, kind))
    variant = Variant(copy_of(module), condition, "calls_compact")
    shown.name_size(variant.module, kind)
    return variant


def without(found: masks.Found, ruled_out: Callable[[masks.Mask], bool], reason: str) -> masks.Found:
    """What was found, for a graph that can have no variant for some masks."""
    kept = [mask for mask in found.masks if not ruled_out(mask)]
    left = {mask.attention for mask in kept}
    declined = {
        mask.attention: NearMiss(mask.meaning.value, mask.attention.name, f"{mask.meaning}{mask.where()}, {reason}")
        for mask in reversed(found.masks)
        if mask.attention not in left
    }
    return masks.Found(kept, [*found.near_misses, *reversed(declined.values())])


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
        self._sizes = symbols(module)
        self._own = shown.own_size(module)
        self._asked: list[Any] = []
        self._holds: dict[tuple[int, ...], bool] = {}
        self.plain: Callable[..., Any] | None = None  # the graph as it is, where what was made in a call does not do

    @property
    def none(self) -> bool:
        """Whether nothing could be made."""
        return self._make is None and self._made is None

    def now(self) -> Callable[..., Any] | None:
        """Makes it while Dynamo compiles."""
        self._made = self._make()
        if self._own is not None:
            self._ask(self._state.withdrawn(self._own))
        self._make = self._module = self._state = None
        return self._made

    def of(self, arguments: Sequence[Any], more: Sequence[Any] = ()) -> Callable[..., Any] | None:
        """What runs these inputs, and what the variant is given behind them, or None where there is none for them."""
        if self._make is not None:
            with compile_lock:
                if self._make is not None:
                    self._make_in_a_call()
        return self._made if not self._asked or self._fit(arguments, more) else None

    def _make_in_a_call(self) -> None:
        guards, plain = self._state.guards(), ModuleSnapshot(self._module) if self._sizes else None
        known = len(guards)
        try:
            with _compiling(), self._state.again(), preserve_rng_state():
                made = self._make()
        except RestartAnalysis:  # Dynamo would trace again in another way, and is not here
            made = None
        asked = [guard.expr for guard in guards[known:]]
        if plain is not None and (asked or made is None):
            self.plain = plain.module().forward
        self._ask(asked)
        self._made = made
        self._make = self._module = self._state = None

    def _ask(self, asked: Sequence[Any]) -> None:
        """Asks of each call what no guard of Dynamo's does."""
        if asked:
            _log.info("a variant asks of sizes in each call: %s", ", ".join(map(str, asked)))
            self._asked = list(asked)

    def _fit(self, arguments: Sequence[Any], more: Sequence[Any]) -> bool:
        own = [each for each in more if isinstance(each, int)]
        sizes = (*(arguments[place] for place in self._sizes), *own)
        if sizes not in self._holds:
            names = (*self._sizes.values(), *([self._own] if own else []))
            values = dict(zip(names, map(sympy.Integer, sizes), strict=True))
            self._holds[sizes] = all(asked.xreplace(values) == sympy.true for asked in self._asked)
        return self._holds[sizes]


class _State:
    """What torch knows of a graph's inputs while it compiles that: from 2.12 on it forgets which sizes are symbolic."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        self._context = TracingContext.try_get()
        known = self._context.tensor_to_context if self._context is not None else {}
        tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
        self._known = [(tensor, known[tensor]) for tensor in tensors if tensor in known]

    def withdrawn(self, own: sympy.Symbol) -> list[Any]:
        """What was asked of a size that Dynamo knows nothing of: no guards any more."""
        guards = self.guards()
        asked = [guard for guard in guards if own in guard.expr.free_symbols]
        guards[:] = [guard for guard in guards if guard not in asked]
        return [guard.expr for guard in asked]

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


def symbols(module: fx.GraphModule) -> dict[int, sympy.Symbol]:
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


def choosing(padded: Later, others: Sequence[tuple[Variant, Later]]) -> Callable[..., Any]:
    """Runs the first variant that there is for a call's inputs, else `padded`, which is right for every input.

    Each question may be a wait, so what was told last, that there is padding or that there is none, is asked for first.
    While a CUDA stream is being captured nothing can be asked of the device, and that is `padded`, too.
    """
    without = [each for each in others if isinstance(each[0].condition, Ones)]
    read = [each for each in others if each not in without]
    for variant, _ in read:
        variant.condition.padded_alone = bool(without)  # type: ignore[attr-defined]
    orders = [*without, *read], [*read, *without]
    order = orders[0]

    def run(*arguments: Any) -> Any:
        nonlocal order
        for variant, later in order:
            if later.none:
                continue
            more = variant.condition(arguments)
            if more is not None and (faster := later.of(arguments, more)) is not None:
                order = orders[not isinstance(variant.condition, Ones)]
                count(variant.calls)
                return faster(*arguments, *more)
        count("calls_padded")
        return (padded.of(arguments) or padded.plain)(*arguments)

    return run
