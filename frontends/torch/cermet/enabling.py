"""`cermet.enable()`: Cermet inside `backend="inductor"`, where the list of backends is closed (Trainer, Accelerate).

Inductor calls one custom pass on Dynamo's graph before autograd, and ours rewrites what `backend="cermet"` would. Two
things differ. A pass has no place outside of the compiled graph, so logits that a graph returns beside its loss keep
the gradient that AOTAutograd gives them, and the loss is a plain region (logits.py, Returned.DECLINED). And from torch
2.12 on Inductor would rather look into its caches before the pass; a graph found there would hold regions that this
process does not know (regions.py), so the pass has no uuid and asks to run first. Then the rewritten graph is the key,
with the build of Cermet that it carries, since another one may save other values for a backward; and the caches hit as
they do for `backend="cermet"`.
"""

from __future__ import annotations

from contextvars import ContextVar
from types import TracebackType
from typing import Any

import torch
import torch._inductor.config as inductor_config
import torch._inductor.debug as inductor_debug
import torch.fx as fx
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.virtualized import V

from . import environment, locks, options, pipeline
from .errors import Error
from .loss.logits import Returned
from .ops.build import build
from .record import Masks, Settings
from .remainder import inductor_calls
from .report import output

SLOT = "pre_grad_custom_pass"
TIMING = "pre_grad_pass_timing"  # torch >= 2.12; before, the pass always came first
ROOT = "_pre_grad_graph_id"  # the id of the graph that is compiled; Inductor calls its pass on bodies, too

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
    # What AOTInductor makes runs in processes that have no regions; what the backend made is done.
    if V.aot_compilation or pipeline.compiled(module):
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
    """Rewrites every graph that `torch.compile(backend="inductor")` compiles from now on; a second call does nothing.

    What was compiled before stays as it is: call this first, or `torch._dynamo.reset()` after it. A pass that is in
    `torch._inductor.config.pre_grad_custom_pass` is called before Cermet's. From torch 2.12 on that configuration is
    the thread's own, and so is this: call it in the thread that compiles. `with cermet.enable(): ...` ends with
    `disable()`; a model that is compiled in it must also have been called in it, since compiling waits for a call.

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
    if not hasattr(inductor_config, SLOT) or not hasattr(inductor_debug, ROOT):
        raise Error(
            f"cermet.enable(): torch {release} has no torch._inductor.config.{SLOT} or no "
            f"torch._inductor.debug.{ROOT}, expected both, as torch 2.10 to 2.13 have; use "
            'torch.compile(model, backend="cermet")'
        )
    if not getattr(inductor_config, "use_pre_grad_passes", True):
        raise Error(
            "cermet.enable(): torch._inductor.config.use_pre_grad_passes is False, expected True: Inductor would "
            'not call Cermet; set it, or use torch.compile(model, backend="cermet")'
        )
