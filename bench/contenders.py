"""The ways to run a model that benchmarks compare: Cermet, eager, Inductor and Liger, over one set of weights."""
from __future__ import annotations

import copy
import importlib
from typing import Callable

import torch
import transformers


class Contender:
    """One way to run the model. `call(**batch)` returns transformers' output; names it needs in the family's module are
    in place only while it runs (Liger replaces functions of the module, which the others must not see)."""

    def __init__(self, name: str, model: torch.nn.Module, call: Callable, module_names: dict | None = None):
        self.name, self.model, self.call, self.module_names = name, model, call, module_names or {}
        self.module, self.optimizer = module_of(model), None
        self.first_step_s = self.loss = self.peak_gb = None
        self.first_step_parts: dict[str, float] = {}  # seconds
        self.rounds_ms: list[float] = []
        # A row each: seconds and loss of a first step in a process that finds the caches, or a pack alone.
        self.warm: list[dict] = []
        self.packed: list[dict] = []
        self.gpu_ms: dict[str, float] = {}

    def step(self, batch) -> torch.Tensor:
        before = {name: getattr(self.module, name) for name in self.module_names}
        for name, value in self.module_names.items():
            setattr(self.module, name, value)
        try:
            self.model.zero_grad(set_to_none=True)
            loss = self.call(**batch).loss
            loss.backward()
            if self.optimizer is not None:
                self.optimizer.step()
            return loss.detach()
        finally:
            for name, value in before.items():
                setattr(self.module, name, value)


def base_of(model: torch.nn.Module) -> torch.nn.Module:
    """transformers' model where peft has wrapped it, else the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def module_of(model: torch.nn.Module):
    return importlib.import_module(type(base_of(model)).__module__)


def twin_of(model: torch.nn.Module) -> torch.nn.Module:
    """A second model over the same parameters and buffers."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared)


def make_eager(model):
    return Contender("eager", model, model)


def make_flash(model):
    """transformers' own variable lengths: its flash_attention_2, which documents are told by positions."""
    if not transformers.utils.is_flash_attn_2_available():
        return None
    twin = twin_of(model)
    twin.set_attn_implementation("flash_attention_2")
    return Contender("flash", twin, twin)


def make_inductor(name: str, **settings):
    def make(model):
        return Contender(name, model, torch.compile(model, **settings))

    return make


def make_unmasked(model):
    twin = twin_of(model)
    masks = [name for name in vars(module_of(model)) if name.startswith("create_") and name.endswith("causal_mask")]
    return Contender("inductor, no mask", twin, torch.compile(twin), {name: lambda *_, **__: None for name in masks})


def make_cermet(remainder: str, dynamic: bool | None = None, **others):
    def make(model):
        options = {"remainder": remainder, "strict": True} | others
        name = ", ".join(["cermet", remainder, *(f"{key} {value}" for key, value in others.items()),
                          *(["dynamic"] if dynamic else [])])
        return Contender(name, model, torch.compile(model, backend="cermet", dynamic=dynamic, options=options))

    return make


def make_marked(model):
    """Cermet, told that lengths vary before the first call (docs/ways-in.md)."""
    contender = make_cermet("aot")(model)
    contender.name, compiled = "cermet, aot, marked", contender.call

    def call(**batch):
        for tensor in batch.values():
            torch._dynamo.mark_dynamic(tensor, 1)
        return compiled(**batch)

    contender.call = call
    return contender


def make_liger(compiled: bool):
    def make(model):
        try:
            from liger_kernel import transformers as liger
        except ImportError:
            return None
        module = module_of(model)
        family = module.__name__.split(".")[-2]  # transformers.models.FAMILY.modeling_FAMILY
        before = dict(vars(module))
        twin = twin_of(model)
        getattr(liger, f"apply_liger_kernel_to_{family}")(model=base_of(twin))
        patched = {name: value for name, value in vars(module).items() if before.get(name) is not value}
        for name in patched:
            setattr(module, name, before[name])
        call = torch.compile(twin) if compiled else twin
        return Contender("liger, compiled" if compiled else "liger", twin, call, patched)

    return make


# key -> what makes the contender of a model; None where it is not installed
CONTENDERS = {"eager": make_eager, "flash": make_flash,
              # What torch does for any backend: traced, differentiated, cut in two, and run as it is.
              "traced": make_inductor("traced", backend="aot_eager"),
              "inductor": make_inductor("inductor"), "inductor-unmasked": make_unmasked,
              "inductor-dynamic": make_inductor("inductor, dynamic", dynamic=True),
              "cermet-aot": make_cermet("aot"), "cermet-inductor": make_cermet("inductor"),
              "cermet-auto": make_cermet("auto"), "cermet-fast": make_cermet("aot", memory="fast"),
              "cermet-least": make_cermet("aot", memory="least"), "cermet-marked": make_marked,
              "cermet-dynamic": make_cermet("aot", dynamic=True),
              "liger": make_liger(False), "liger-compiled": make_liger(True)}
