"""Regions of graph text as torch ops, named by content.

A region is a graph text; its key is a hash of that text, equal in every process, so a graph that torch's own caches
kept still means the same. Two families of ops, one pair for each arity:

- `cermet_v1::region_{n}_{m}(Tensor a0, ..., int key)`: what the rewriter puts into a graph. Differentiable; it exists
  only as a composition of inner ops, so AOTAutograd traces through it and nothing of it is left at run time.
- `cermet_v1::launch_{n}_{m}(Tensor a0, ..., int key)`: one launch of the executable of `key` (C++,
  frontends/torch/ops). Not differentiable.

The gradient of a region is derived by libcermet from its text: a backward computes in f32 and rounds once for each
result.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import threading
from collections.abc import Sequence
from typing import Any

import torch

from . import library
from .counting import count
from .errors import Error
from .text import dtype_from_name

NAMESPACE = "cermet_v1"
MAX_INPUTS, MAX_OUTPUTS = 10, 6


@dataclasses.dataclass(frozen=True)
class Port:
    """An input or output of a region; a dimension is a number or a symbol's name."""

    name: str
    dtype: torch.dtype
    dims: tuple[int | str, ...]


@dataclasses.dataclass(frozen=True)
class Signature:
    name: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


@dataclasses.dataclass(frozen=True)
class Gradient:
    """docs/plan-format.md, "a gradient", with both texts registered."""

    forward: int  # keys
    backward: int
    outputs: int
    saved: int
    backward_inputs: tuple[tuple[str, int], ...]
    backward_outputs: tuple[tuple[int, ...], ...]


class _Registry:
    """Texts by key, and what was derived from them. A key's text never changes, so nothing is ever dropped."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.texts: dict[int, str] = {}
        self.plans: dict[tuple[int, str], tuple[ctypes.c_void_p, dict[str, Any]]] = {}
        self.signatures: dict[int, Signature] = {}
        self.gradients: dict[tuple[int, tuple[bool, ...]], Gradient] = {}
        self.executables: dict[tuple[int, int], ctypes.c_void_p] = {}

    def text(self, key: int) -> str:
        with self.lock:
            if key not in self.texts:
                raise Error(
                    f"no region with key {key} is registered in this process: the graph that uses it was compiled by "
                    "another version of cermet or outside of its backend; clear torch's compile caches"
                )
            return self.texts[key]


_registry = _Registry()


def register(text: str) -> int:
    """Makes a graph text callable; returns its key. Registering a text again costs one hash."""
    key = library.text_key(text)
    with _registry.lock:
        known = _registry.texts.setdefault(key, text)
    if known != text:
        raise Error(f"two graph texts share the key {key}; please report both:\n{known}\n{text}")
    return key


def target_of(device: torch.device) -> str:
    """The compile target of a torch device. Raises cermet.Error for a kind of device without one."""
    if device.type == "cpu":
        return "host"
    if device.type == "cuda":
        return cuda_target(*torch.cuda.get_device_capability(device))
    raise Error(f"device {device} is not supported, expected cpu or cuda")


def cuda_target(major: int, minor: int) -> str:
    """The newest target whose code runs on a GPU of this compute capability: the same major, at most its minor."""
    known = [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)]
    fitting = [capability for capability in known if capability[0] == major and capability[1] <= minor]
    if not fitting:
        raise Error(f"compute capability {major}.{minor} is not supported, expected 8.x, 9.0, 10.x or 12.x")
    return "sm_{}{}".format(*fitting[-1])


def _device_index(device: torch.device) -> int:
    """-1 for the CPU, else the CUDA ordinal (frontends/torch/ops/Executables.h)."""
    if device.type == "cpu":
        return -1
    return torch.cuda.current_device() if device.index is None else device.index


def _plan(key: int, target: str) -> tuple[ctypes.c_void_p, dict[str, Any]]:
    with _registry.lock:
        found = _registry.plans.get((key, target))
    if found is None:
        found = library.context().compile(_registry.text(key), target)
        with _registry.lock:
            found = _registry.plans.setdefault((key, target), found)
    return found


def _some_plan(key: int, device: torch.device) -> dict[str, Any]:
    """The plan for a device, or for whatever this machine has: signatures are the same for every target."""
    with _registry.lock:
        for (known, _), plan in _registry.plans.items():
            if known == key:
                return plan[1]
    return _plan(key, target_of(device) if device.type in ("cpu", "cuda") else "auto")[1]


def signature(key: int, device: torch.device = torch.device("cpu")) -> Signature:
    """What a region takes and returns; a plan for `device` is made if there is none yet."""
    with _registry.lock:
        if key in _registry.signatures:
            return _registry.signatures[key]
    plan = _some_plan(key, device)
    ports: dict[str, list[Port]] = {"input": [], "output": []}
    for value in plan["values"]:
        if value["kind"] in ports:
            ports[value["kind"]].append(Port(value["name"], dtype_from_name(value["dtype"]), tuple(value["dims"])))
    made = Signature(plan["name"], tuple(ports["input"]), tuple(ports["output"]))
    with _registry.lock:
        return _registry.signatures.setdefault(key, made)


def _not_lowered(plan: dict[str, Any]) -> str:
    for step in plan["steps"]:
        if step["kind"] != "kernel":
            return f"{step['op']} of these shapes has no kernel"
    return ""


def not_lowered(key: int, device: torch.device) -> str:
    """What keeps a region from being kernels alone, or ""."""
    return _not_lowered(_some_plan(key, device))


def prepare(key: int, device: torch.device) -> None:
    """Compiles what is missing, loads it and makes it what `key` runs on `device`. Raises cermet.Error."""
    index = _device_index(device)
    with _registry.lock:
        if (key, index) in _registry.executables:
            return
    plan, json = _plan(key, target_of(device))
    missing = _not_lowered(json)
    if missing:
        raise Error(f"{json['name']}: {missing}")
    executable = library.context().prepare(plan, max(index, 0))
    status = _ops().cermet_torch_publish(key, index, json["name"].encode(), executable, plan)
    if status != 0:
        raise Error(f"{json['name']}: an output has a dimension that no input has")
    with _registry.lock:
        _registry.executables[(key, index)] = executable


def gradient(key: int, wanted: tuple[bool, ...]) -> Gradient:
    """The derived gradient of a region for the inputs that `wanted` marks."""
    with _registry.lock:
        if (key, wanted) in _registry.gradients:
            return _registry.gradients[key, wanted]
    answer = library.context().differentiate(_registry.text(key), wanted)
    made = Gradient(
        register(answer["forward"]),
        register(answer["backward"]),
        answer["outputs"],
        answer["saved"],
        tuple((item["from"], item["index"]) for item in answer["backward_inputs"]),
        tuple(tuple(inputs) for inputs in answer["backward_outputs"]),
    )
    with _registry.lock:
        return _registry.gradients.setdefault((key, wanted), made)


def has_gradient(key: int, wanted: tuple[bool, ...]) -> bool:
    with _registry.lock:
        return (key, wanted) in _registry.gradients


# --- Inner ops -------------------------------------------------------------------------------------------------------


def launch(key: int, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Runs a region; no gradient."""
    outputs = len(signature(key, tensors[0].device).outputs)
    result = _launches[len(tensors), outputs](*tensors, key)
    return result if isinstance(result, tuple) else (result,)


def _fake_launch(*arguments: Any) -> Any:
    """Shapes, dtypes and (dense) strides of a launch, without running it."""
    *tensors, key = arguments
    what = signature(key, tensors[0].device)
    if len(tensors) != len(what.inputs):
        raise Error(f"{what.name}: called with {len(tensors)} tensors, expected {len(what.inputs)}")
    sizes: dict[str, Any] = {}
    for tensor, port in zip(tensors, what.inputs):
        if tensor.dtype != port.dtype:
            raise Error(f"{what.name}: {port.name} has dtype {tensor.dtype}, expected {port.dtype}")
        if tensor.dim() != len(port.dims):
            raise Error(f"{what.name}: {port.name} has {tensor.dim()} dimensions, expected {len(port.dims)}")
        for axis, (size, dim) in enumerate(zip(tensor.shape, port.dims)):
            if isinstance(dim, str):
                sizes.setdefault(dim, size)
            elif isinstance(size, int) and size != dim:
                raise Error(f"{what.name}: {port.name} has size {size} in dimension {axis}, expected {dim}")
    made = [
        tensors[0].new_empty([sizes[dim] if isinstance(dim, str) else dim for dim in port.dims], dtype=port.dtype)
        for port in what.outputs
    ]
    return made[0] if len(made) == 1 else tuple(made)


# --- Outer ops -------------------------------------------------------------------------------------------------------


class _Region(torch.autograd.Function):
    """A region with its derived gradient."""

    @staticmethod
    def forward(ctx: Any, key: int, wanted: tuple[bool, ...], *tensors: torch.Tensor) -> Any:
        derived = gradient(key, wanted)
        values = launch(derived.forward, tensors)
        outputs, saved = values[: derived.outputs], values[derived.outputs :]
        sources = {"input": tensors, "output": outputs, "saved": saved}
        kept = [sources[origin][index] for origin, index in derived.backward_inputs if origin in sources]
        ctx.save_for_backward(*kept)
        ctx.derived, ctx.wanted = derived, wanted
        ctx.cotangent_like = [(output.shape, output.dtype, output.device) for output in outputs]
        ctx.set_materialize_grads(False)
        return outputs[0] if len(outputs) == 1 else outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        derived, kept = ctx.derived, iter(ctx.saved_tensors)
        arguments = []
        for origin, index in derived.backward_inputs:
            if origin != "cotangent":
                arguments.append(next(kept))
                continue
            cotangent = cotangents[index]
            if cotangent is None:
                shape, dtype, device = ctx.cotangent_like[index]
                cotangent = torch.zeros(shape, dtype=dtype, device=device)
            arguments.append(cotangent)
        if torch.is_grad_enabled() and any(argument.requires_grad for argument in arguments):
            results = _RegionBackward.apply(derived.backward, *arguments)
            results = results if isinstance(results, tuple) else (results,)
        else:
            results = launch(derived.backward, arguments)
        gradients: list[torch.Tensor | None] = [None] * len(ctx.wanted)
        for inputs, result in zip(derived.backward_outputs, results):
            for index in inputs:
                gradients[index] = result
        return None, None, *gradients


class _RegionBackward(torch.autograd.Function):
    """A backward that is being recorded (`create_graph=True`): its values are right, its own gradient is refused."""

    @staticmethod
    def forward(ctx: Any, key: int, *tensors: torch.Tensor) -> Any:
        ctx.key = key
        values = launch(key, tensors)
        return values[0] if len(values) == 1 else values

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        name = signature(ctx.key).name
        raise Error(f"{NAMESPACE}::launch of {name}: double backward is not supported; use torch.compile's backend "
                    '"eager" where a gradient of a gradient is needed')


def _region(*arguments: Any) -> Any:
    *tensors, key = arguments
    wanted = tuple(tensor.requires_grad for tensor in tensors)
    if torch.is_grad_enabled() and any(wanted):
        if not has_gradient(key, wanted):
            count("late_gradients")
        return _Region.apply(key, wanted, *tensors)
    values = launch(key, tensors)
    return values[0] if len(values) == 1 else values


# --- Definition ------------------------------------------------------------------------------------------------------


@functools.cache
def _ops() -> ctypes.CDLL:
    """The op library, loaded; its kernels belong to the inner ops."""
    library.libcermet()  # first: the op library needs it and finds it by name once it is there
    path = str(library.library_path("libcermet_torch.so"))
    try:
        torch.ops.load_library(path)
        ops = ctypes.CDLL(path)
    except OSError as error:
        raise Error(f"{path} does not load into torch {torch.__version__}, expected 2.10 or later: {error}") from error
    ops.cermet_torch_publish.restype = ctypes.c_int
    ops.cermet_torch_publish.argtypes = [
        ctypes.c_int64,
        ctypes.c_int32,
        ctypes.c_char_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    ops.cermet_torch_set_prepare.restype = None
    ops.cermet_torch_set_prepare.argtypes = [_PREPARE]
    ops.cermet_torch_set_prepare(_prepare_callback)
    return ops


_PREPARE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_int32, ctypes.c_void_p, ctypes.c_size_t)


@_PREPARE
def _prepare_callback(key: int, device: int, error: int, error_size: int) -> int:
    """A launch on a device that nothing was prepared for (a replica on another GPU): prepare now."""
    try:
        prepare(key, torch.device("cpu") if device < 0 else torch.device("cuda", device))
        return 0
    except Exception as failure:  # crosses C: it becomes the launch's error
        message = str(failure).encode()[: error_size - 1] + b"\0"
        ctypes.memmove(error, message, len(message))
        return 1


def _define() -> tuple[torch.library.Library, dict[tuple[int, int], Any], dict[tuple[int, int], Any]]:
    ops = torch.library.Library(NAMESPACE, "FRAGMENT")
    tags = (torch.Tag.pt2_compliant_tag,)
    launches, outers = {}, {}
    for inputs in range(1, MAX_INPUTS + 1):
        arguments = ", ".join(f"Tensor a{i}" for i in range(inputs))
        for outputs in range(1, MAX_OUTPUTS + 1):
            results = "Tensor" if outputs == 1 else f"({', '.join(['Tensor'] * outputs)})"
            for kind, into in (("launch", launches), ("region", outers)):
                name = f"{kind}_{inputs}_{outputs}"
                ops.define(f"{name}({arguments}, int key) -> {results}", tags=tags)
                into[inputs, outputs] = name
            ops.impl(outers[inputs, outputs], _region, "CompositeImplicitAutograd")
            torch.library.register_fake(f"{NAMESPACE}::{launches[inputs, outputs]}", _fake_launch, lib=ops)
    namespace = getattr(torch.ops, NAMESPACE)
    return (
        ops,
        {arity: getattr(namespace, name).default for arity, name in launches.items()},
        {arity: getattr(namespace, name).default for arity, name in outers.items()},
    )


_library, _launches, _regions = _define()
_ops()


def region_op(inputs: int, outputs: int) -> torch._ops.OpOverload:
    """The differentiable op of an arity. Raises cermet.Error where there is none."""
    if (inputs, outputs) not in _regions:
        raise Error(
            f"a region of {inputs} inputs and {outputs} outputs, expected at most {MAX_INPUTS} and {MAX_OUTPUTS}"
        )
    return _regions[inputs, outputs]
