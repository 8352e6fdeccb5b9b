"""`cermet.enable()`: Cermet behind `backend="inductor"`, where the list of backends is closed (Trainer, Accelerate).

What `torch.compile` calls for that name is handed to `backend="cermet"` instead (_doors), as a whole: the choice of who
runs the rest, edges of returned logits, variants for padding. It is the class's method that is replaced, since Dynamo
calls it when it has traced: objects that were made before are reached, and nobody else who compiles by Inductor is
(AOTInductor, `torch._inductor.compile`, regions within a graph of others').

Where the program asks something of Inductor itself (_for_inductor), the graph stays Inductor's, and Cermet is a pass on
it before autograd. A pass has no place outside of the compiled graph, so logits that a graph returns beside its loss
keep the gradient that AOTAutograd gives them, and the loss is a plain region (logits.py, Returned.DECLINED). And from
torch 2.12 on Inductor would rather look into its caches before the pass; a graph found there would hold regions that
this process does not know (regions.py), so the pass has no uuid and asks to run first. Then the rewritten graph is the
key, with the build of Cermet that it carries, since another one may save other values for a backward; and the caches
hit as they do for `backend="cermet"`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Any

import torch
import torch._inductor.config as inductor_config
import torch._inductor.debug as inductor_debug
import torch.fx as fx
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.virtualized import V

from . import backend, environment, locks, options, pipeline
from .errors import Error
from .loss.logits import Returned
from .ops.build import build
from .patching import traces_for_us_too
from .records import Masks, Settings
from .remainder import inductor_calls
from .report import output

SLOT = "pre_grad_custom_pass"
TIMING = "pre_grad_pass_timing"  # torch >= 2.12; before, the pass always came first
ROOT = "_pre_grad_graph_id"  # the id of the graph that is compiled; Inductor calls its pass on bodies, too
WRAPPER = "_TorchCompileInductorWrapper"  # what torch.compile(backend="inductor") makes; Dynamo calls it with a graph
GRAPHS = "triton.cudagraphs"
# Where code of the program's own sees what Inductor compiles.
OTHER_SLOTS = (
    "joint_custom_pre_pass",
    "joint_custom_post_pass",
    "post_grad_custom_pre_pass",
    "post_grad_custom_post_pass",
    "_pre_fusion_custom_pass",
    "_post_fusion_custom_pass",
    "custom_partitioner_fn",
)

_lock = locks.lock()
_installed: ContextVar[Pass | None] = ContextVar("cermet_pass", default=None)


class Pass(CustomGraphPass):
    """What was in Inductor's slot before, then Cermet."""

    def __init__(self, before: Any) -> None:
        self.before = before  # None, a pass, or a list or tuple of them
        self.timing = getattr(inductor_config, TIMING, None)
        self.active = True

    def __call__(self, graph: fx.Graph) -> None:
        for other in _listed(self.before):
            other(graph)
        if self.active and id(graph) == getattr(inductor_debug, ROOT):
            _rewrite(graph.owning_module)

    def uuid(self) -> None:
        return None

    def __getstate__(self) -> dict[str, Any]:
        """torch 2.10 and 2.11 pickle the slot into their caches' key: Cermet's build, and what is called before it."""
        return {"build": build(), "before": self.before}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["before"])


def _listed(slot: Any) -> tuple[Any, ...]:
    if slot is None:
        return ()
    return tuple(slot) if isinstance(slot, (list, tuple)) else (slot,)


def _rewrite(module: fx.GraphModule) -> None:
    if _for_other_processes() or pipeline.compiled(module):  # what the backend made is done
        return
    where, given = environment.report(), options.parse(None, {"remainder": "inductor"})
    settings = Settings.of(
        given, returned=Returned.DECLINED, masks=Masks.ALONE, describe=output.describe if where else None
    )
    record = pipeline.run(module, settings)
    pipeline.tally(record)
    inductor_calls.lower_in_inductor()
    if record.regions:
        module.cermet_build = build()  # torch's caches hash a graph module's attributes
    if where:
        output.report(record.explanation(), where)


def _for_other_processes() -> bool:
    """Whether what is compiled now will run where no regions are: AOTInductor's, and what Dynamo keeps with its guards."""
    kept = getattr(torch._functorch.config, "force_autograd_cache", False)
    return bool(V.aot_compilation or kept or getattr(torch._dynamo.config, "caching_precompile", False))


# --- Handing graphs over ---------------------------------------------------------------------------------------------


def _alone() -> bool:
    """Whether Cermet is enabled here, and the only pass before autograd."""
    slot = getattr(inductor_config, SLOT)
    return isinstance(slot, Pass) and slot.active and slot.before is None


def _for_inductor(module: Any, inputs: Sequence[Any], config: dict[str, Any]) -> bool:
    """Whether a graph stays Inductor's. `config`: what the mode and the options of `torch.compile` are to it."""
    if not _alone() or any(getattr(inductor_config, slot, None) for slot in OTHER_SLOTS):
        return True
    if _asks_inductor(config) or "cudagraph_annotation" in getattr(module, "meta", ()):
        return True
    # Lists are the inputs of compiled autograd's graphs.
    plain = isinstance(module, fx.GraphModule) and not any(isinstance(each, (list, tuple, dict)) for each in inputs)
    return not plain or _for_other_processes()


def _asks_inductor(config: dict[str, Any]) -> bool:
    return any(name != GRAPHS for name in config)


def _is_handed_over(compiler: Any) -> bool:
    """Whether Cermet gets what is traced for a backend, unless the graph keeps it from that."""
    return type(compiler) is getattr(torch, WRAPPER) and _alone() and not _asks_inductor(compiler.config)


def _call(inductor: Callable[..., Any]) -> Callable[..., Any]:
    """What Dynamo calls with a graph. `inductor`: what it called before."""

    @functools.wraps(inductor)
    def call(self: Any, module: Any, inputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        patched = any(value is not None for value in (*args, *kwargs.values()))
        # A subclass makes something else, as AOTInductor's does.
        if patched or type(self) is not getattr(torch, WRAPPER) or _for_inductor(module, inputs, self.config):
            return inductor(self, module, inputs, *args, **kwargs)
        given = {GRAPHS: True} if inductor_config.triton.cudagraphs else {}
        return backend.compile(module, inputs, options=given | self.config)

    return call


def _get_compiler_config(inductor: Callable[..., Any]) -> Callable[..., Any]:
    """Inductor's configuration for what was compiled, for which torch would import Inductor whole."""

    @functools.wraps(inductor)
    def get_compiler_config(self: Any) -> Any:
        if not _alone():
            return inductor(self)
        with inductor_config.patch(self.config):
            return inductor_config.get_config_copy()

    return get_compiler_config


@functools.cache
def _open_doors() -> None:
    """Puts these in their places, where they stay: what they do is asked at each call, since threads differ."""
    wrapper = getattr(torch, WRAPPER)
    wrapper.__call__ = _call(wrapper.__call__)
    wrapper.get_compiler_config = _get_compiler_config(wrapper.get_compiler_config)
    traces_for_us_too(_is_handed_over)


# --- Switching it on and off -----------------------------------------------------------------------------------------


class Enabled:
    """What `enable` returns: as a context manager, it undoes on leaving what that call did."""

    def __init__(self, changed: bool) -> None:
        self._changed = changed

    def __enter__(self) -> Enabled:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._changed:
            disable()


def enable() -> Enabled:
    """Compiles by `backend="cermet"` what `torch.compile(backend="inductor")` gets from now on; a second call does nothing.

    What was compiled before stays as it is: call this first, or `torch._dynamo.reset()` after it. Where the program has
    options or passes for Inductor, that compiles, and Cermet rewrites the graph before; a pass that is in
    `torch._inductor.config.pre_grad_custom_pass` is called first. From torch 2.12 on that configuration is the thread's
    own, and so is this: call it in the thread that compiles. `with cermet.enable(): ...` ends with `disable()`; a model
    that is compiled in it must also have been called in it, since compiling waits for a call.

    Raises:
        cermet.Error: Inductor's configuration runs no such pass, or this torch has none as expected.
    """
    _check()
    with _lock:
        slot = getattr(inductor_config, SLOT)
        if any(isinstance(item, Pass) and item.active for item in _listed(slot)):
            return Enabled(False)
        buried = _installed.get()
        if buried is not None:  # another library's pass took the slot; it may call ours or not
            buried.active = False
        _open_doors()
        made = Pass(slot)
        setattr(inductor_config, SLOT, made)
        if made.timing is not None:
            setattr(inductor_config, TIMING, "early")
        _installed.set(made)
    return Enabled(True)


def disable() -> None:
    """Undoes `enable`; without one it does nothing. A pass that was there before is there again, and one that another
    library put around Cermet's stays. What is compiled already keeps its fused kernels."""
    with _lock:
        slot = getattr(inductor_config, SLOT)
        ours = [item for item in _listed(slot) if isinstance(item, Pass)]
        if isinstance(slot, Pass):
            setattr(inductor_config, SLOT, slot.before)
        elif ours:
            setattr(inductor_config, SLOT, type(slot)(item for item in slot if item not in ours))
        buried = _installed.get()
        if buried is not None and buried not in ours and buried.active:
            ours.append(buried)
        for item in ours:
            item.active = False
            if item.timing is not None and getattr(inductor_config, TIMING) == "early":
                setattr(inductor_config, TIMING, item.timing)
        _installed.set(None)


def _check() -> None:
    release = torch.__version__
    homes = {SLOT: inductor_config, ROOT: inductor_debug, WRAPPER: torch}
    if missing := [f"{home.__name__}.{name}" for name, home in homes.items() if not hasattr(home, name)]:
        raise Error(
            f"cermet.enable(): torch {release} has no {missing[0]}, expected it, as torch 2.10 to 2.15 have it; use "
            'torch.compile(model, backend="cermet")'
        )
    if not getattr(inductor_config, "use_pre_grad_passes", True):
        raise Error(
            "cermet.enable(): torch._inductor.config.use_pre_grad_passes is False, expected True: Inductor would "
            'not call Cermet; set it, or use torch.compile(model, backend="cermet")'
        )
