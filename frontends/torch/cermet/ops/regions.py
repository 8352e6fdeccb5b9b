"""Regions of graph text as torch ops, named by content.

A region is a graph text, the memory orders of its results and the operands in whose memory they lie, if any; its key is
a hash of all that, equal in every process, so a graph that torch's own caches kept still means the same. Three families
of ops, one of each for each arity:

- `cermet_v1::region_{n}_{m}(Tensor a0, ..., int key)`: what replacement.py puts into a graph. Differentiable; it exists
  only as a composition of inner ops, so AOTAutograd traces through it and nothing of it is left at run time.
- `cermet_v1::launch_{n}_{m}(Tensor a0, ..., int key)`: one launch of the executable of `key` (C++,
  frontends/torch/ops). Not differentiable.
- `cermet_v1::launch_over_{n}_{m}(Tensor(a!) a0, ..., int key)`: the same, of a key that says which results take operands'
  memory. For graphs that run as they are.

The gradient of a region is derived by libcermet from its text: a backward computes in f32 and rounds once for each
result.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
import torch.fx as fx

from .. import native
from ..counting import count
from ..errors import Error
from ..graph import layouts
from ..graph.layouts import Order
from ..targets import devices
from ..targets.devices import device_index, target_of
from . import library, op_library
from .registry import Places, Registry
from .signatures import Gradient, Signature
from .slices import Function

NAMESPACE = "cermet_v1"
MAX_INPUTS, MAX_OUTPUTS = native.limit("region_inputs"), native.limit("region_outputs")
_UNSIZED = "{}: an output has a dimension that no input has"
_registry = Registry()


def forget() -> None:
    """Drops what is known of texts, so that all is asked for again, as for another target."""
    with _registry.lock:
        for known in (_registry.plans, _registry.signatures, _registry.gradients):
            known.clear()


def launched(node: fx.Node) -> int | None:
    """The key of what a call launches. None of any other call: a head, too, is a product beside its launch."""
    return node.args[-1] if str(node.target).startswith(f"{NAMESPACE}.launch_") else None


def text(key: int) -> str:
    """A registered region's graph text. Raises cermet.Error where the key is unknown."""
    return _registry.text(key)


def register(text: str, orders: Sequence[Order] = (), places: Places = ()) -> int:
    """Makes a graph text callable; returns its key. Registering it again costs one hash.

    `orders` are the memory orders of its results (layouts.py); without any all are row-major. With `places` a launch
    writes those operands, as the plan lets it (docs/plan-format.md, "Outputs"): for who knows that nobody reads them.
    """
    ordered = tuple(orders) if any(order is not None for order in orders) else ()
    taken = [f"\nplace {output}:{place}" for output, place in enumerate(places) if place is not None]
    places = tuple(places) if taken else ()
    whole = text + layouts.suffix(ordered) + "".join(taken)
    key = library.text_key(whole)
    with _registry.lock:
        known = _registry.texts.setdefault(key, text)
        if ordered:
            _registry.orders.setdefault(key, ordered)
        if places:
            _registry.places.setdefault(key, places)
        same = known == text and _registry.orders.get(key, ()) == ordered and _registry.places.get(key, ()) == places
    if not same:
        raise Error(f"two graph texts share the key {key}; please report both:\n{known}\n{whole}")
    return key


def placed(key: int, places: Places) -> int:
    """The key of the same launch with results in the place of operands."""
    return register(_registry.text(key), _registry.orders.get(key, ()), places)


def kept(keys: Iterable[int]) -> list[tuple[str, tuple[Order, ...], Places]]:
    """What `register` takes, in a form that a cache can keep."""
    return [(_registry.text(key), _registry.orders.get(key, ()), _registry.places.get(key, ())) for key in keys]


def may_take(key: int, device: torch.device) -> list[list[int]]:
    """For each result of a launch the operands whose memory it may take, by the one kernel that it is; none where it is
    several."""
    made = plan(key, target_of(device))
    if len(made["steps"]) != 1:
        return [[] for _ in signature(key, device).outputs]
    return [value.get("in_place", []) for value in made["values"] if value["kind"] == "output"]


def _some_plan(key: int, device: torch.device) -> dict[str, Any]:
    """The plan for a device, or for whatever this machine has: signatures are the same for every target."""
    text = _registry.text(key)
    with _registry.lock:
        for (known, _), plan in _registry.plans.items():
            if known is text:
                return plan[1]
    return _registry.plan(key, target_of(device) if device.type in ("cpu", "cuda") else "auto")[1]


def signature(key: int, device: torch.device = torch.device("cpu")) -> Signature:
    """What a region takes and returns; a plan for `device` is made if there is none yet."""
    with _registry.lock:
        if key in _registry.signatures:
            return _registry.signatures[key]
    made = Signature.of(_some_plan(key, device))
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


def _kernels(key: int, target: str) -> tuple[ctypes.c_void_p, dict[str, Any]]:
    """The plan of a region that is kernels alone. Raises cermet.Error."""
    plan, json = _registry.plan(key, target)
    if missing := _not_lowered(json):
        raise Error(f"{json['name']}: {missing}")
    return plan, json


def plan(key: int, target: str) -> dict[str, Any]:
    """The plan of a region for a target (docs/plan-format.md, "a plan"); no kernel is compiled."""
    return _registry.plan(key, target)[1]


def prepare(key: int, device: torch.device) -> None:
    """Compiles what is missing, loads it and makes it what `key` runs on `device`; for a target that is captured it is
    compiled only. Raises cermet.Error."""
    if devices.captured():
        return _store(key, device)
    index = device_index(device)
    text = _registry.text(key)
    with _registry.lock:
        if (key, index) in _registry.executables:
            return
        executable = _registry.loaded.get((text, index))
    plan, json = _kernels(key, target_of(device))
    if executable is None:
        executable = library.context().prepare(plan, max(index, 0))
    orders = _registry.orders_of(key, len(signature(key).outputs))
    places = _registry.places.get(key, ())
    strided = layouts.strided(json)
    if not op_library.publish(key, index, json["name"], executable, plan, orders, places, strided):
        raise Error(_UNSIZED.format(json["name"]))
    with _registry.lock:
        _registry.loaded[text, index] = executable
        _registry.executables[key, index] = executable


def _store(key: int, device: torch.device) -> None:
    target = target_of(device)
    plan, json = _kernels(key, target)
    what = signature(key)
    known = {dim for port in what.inputs for dim in port.dims}
    if any(isinstance(dim, str) and dim not in known for port in what.outputs for dim in port.dims):
        raise Error(_UNSIZED.format(json["name"]))
    library.context().compile_kernels(plan)
    with _registry.lock:
        _registry.stored.add((key, target))


def prepared(key: int, device: torch.device) -> bool:
    with _registry.lock:
        if devices.captured():
            return (key, target_of(device)) in _registry.stored
        return (key, device_index(device)) in _registry.executables


def gradient(
    key: int, wanted: tuple[bool, ...], like: Sequence[Order] = (), device: torch.device = torch.device("cpu")
) -> Gradient:
    """The derived gradient of a region for the inputs that `wanted` marks. `like` are the orders of its inputs, which
    their gradients then have too, as far as the kernels for `device` write them; without any these are row-major."""
    like = tuple(like) if any(like) else ()
    with _registry.lock:
        if (key, wanted, like) in _registry.gradients:
            return _registry.gradients[key, wanted, like]
    answer = library.context().differentiate(_registry.text(key), wanted)
    orders = _registry.orders_of(key, answer["outputs"]) + (None,) * answer["saved"]
    of = [tuple(inputs) for inputs in answer["backward_outputs"]]
    made = Gradient(
        register(answer["forward"], orders),
        _register_written(answer["backward"], [like[inputs[0]] if like else None for inputs in of], device),
        answer["outputs"],
        answer["saved"],
        tuple((item["from"], item["index"]) for item in answer["backward_inputs"]),
        tuple(of),
    )
    with _registry.lock:
        return _registry.gradients.setdefault((key, wanted, like), made)


def _register_written(text: str, orders: Sequence[Order], device: torch.device) -> int:
    """Registers a text with those of the orders that its kernels can write."""
    if not any(orders):
        return register(text)
    fitting = layouts.writable(_some_plan(register(text), device), orders)
    return register(text, [order if fits else None for order, fits in zip(orders, fitting)])


def unwritable(key: int, device: torch.device) -> int | None:
    """The first output that the kernels of `key` cannot write in its order, or None."""
    plan = _some_plan(key, device)
    orders = _registry.orders_of(key, sum(value["kind"] == "output" for value in plan["values"]))
    fitting = layouts.writable(plan, orders)
    return None if all(fitting) else fitting.index(False)


def has_gradient(key: int, wanted: tuple[bool, ...], like: Sequence[Order] = ()) -> bool:
    with _registry.lock:
        return (key, wanted, tuple(like) if any(like) else ()) in _registry.gradients


# --- Inner ops -------------------------------------------------------------------------------------------------------


def launch(key: int, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Runs a region; no gradient."""
    outputs = len(signature(key, tensors[0].device).outputs)
    op = launch_over_op if key in _registry.places else launch_op
    result = op(len(tensors), outputs)(*tensors, key)
    return result if isinstance(result, tuple) else (result,)


def fake_launch(*arguments: Any) -> Any:
    """Shapes, dtypes and strides of a launch, without running it."""
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
    made = []
    for port, order in zip(what.outputs, _registry.orders_of(key, len(what.outputs))):
        shape = [sizes[dim] if isinstance(dim, str) else dim for dim in port.dims]
        strides = layouts.strides(shape, order)
        made.append(torch.empty_strided(shape, strides, dtype=port.dtype, device=tensors[0].device))
    return made[0] if len(made) == 1 else tuple(made)


# --- Outer ops -------------------------------------------------------------------------------------------------------


class _Region(torch.autograd.Function):
    """A region with its derived gradient."""

    @staticmethod
    def forward(
        ctx: Any, key: int, wanted: tuple[bool, ...], like: tuple[Order, ...], *tensors: torch.Tensor
    ) -> Any:
        derived = gradient(key, wanted, like, tensors[0].device)
        values = launch(derived.forward, tensors)
        outputs = values[: derived.outputs]
        ctx.save_for_backward(*derived.kept(tensors, values))
        ctx.derived, ctx.wanted = derived, wanted
        ctx.cotangent_like = [(output.shape, output.dtype, output.device) for output in outputs]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(outputs[index] for index in derived.constant()))
        return outputs[0] if len(outputs) == 1 else outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        derived = ctx.derived

        def cotangent(index: int) -> torch.Tensor:
            if cotangents[index] is not None:
                return cotangents[index]
            shape, dtype, device = ctx.cotangent_like[index]
            return torch.zeros(shape, dtype=dtype, device=device)

        arguments = derived.arguments(ctx.saved_tensors, cotangent)
        results = backward(derived.backward, lambda *tensors: launch(derived.backward, tensors), *arguments)
        there = tuple(each is not None for each in cotangents)
        if not all(there):
            gone = _unreached(derived.backward, derived.backward_inputs, there)
            results = [None if place in gone else result for place, result in enumerate(results)]
        return None, None, None, *derived.of_inputs(results, len(ctx.wanted))


@functools.cache
def _unreached(key: int, inputs: tuple[tuple[str, int], ...], there: tuple[bool, ...]) -> frozenset[int]:
    """The gradients, by their numbers, that follow from no cotangent that is there of those that the backward `key`
    takes: autograd has none of them, and no zeros."""
    try:
        function = Function.read(_registry.text(key))
    except Error:
        return frozenset()  # of an operation with several results
    asked = zip(function.arguments, inputs, strict=True)
    given = {name for (name, _), (origin, index) in asked if origin == "cotangent" and there[index]}
    results = enumerate(function.results)
    return frozenset(place for place, (name, _) in results if given.isdisjoint(function.needed([name])[1]))


def backward(key: int, run: Callable[..., tuple[Any, ...]], *arguments: Any) -> tuple[Any, ...]:
    """`run(*arguments)`, the backward of the region `key`. Where it is being recorded (`create_graph=True`) its values
    are right and its own gradient is refused."""
    if torch.is_grad_enabled() and any(isinstance(item, torch.Tensor) and item.requires_grad for item in arguments):
        return _Recorded.apply(key, run, *arguments)
    return run(*arguments)


class _Recorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, key: int, run: Callable[..., tuple[Any, ...]], *arguments: Any) -> tuple[Any, ...]:
        ctx.key = key
        return run(*arguments)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        raise Error(
            f"{NAMESPACE}::launch of {signature(ctx.key).name}: double backward is not supported; use torch.compile's "
            'backend "eager" where a gradient of a gradient is needed'
        )


def input_orders(tensors: Sequence[torch.Tensor], wanted: Sequence[bool]) -> tuple[Order, ...]:
    """The orders of the inputs whose gradients are wanted, for `gradient`."""
    return tuple(layouts.order_like(tensor) if want else None for tensor, want in zip(tensors, wanted))


def _region(*arguments: Any) -> Any:
    *tensors, key = arguments
    wanted = tuple(tensor.requires_grad for tensor in tensors)
    if torch.is_grad_enabled() and any(wanted):
        like = input_orders(tensors, wanted)
        if not has_gradient(key, wanted, like):
            count("late_gradients")
        return _Region.apply(key, wanted, like, *tensors)
    values = launch(key, tensors)
    return values[0] if len(values) == 1 else values


# --- Definition ------------------------------------------------------------------------------------------------------


def schema_of(outputs: int) -> str:
    """What an op of so many tensors returns."""
    return "Tensor" if outputs == 1 else f"({', '.join(['Tensor'] * outputs)})"


def _define() -> torch.library.Library:
    ops = torch.library.Library(NAMESPACE, "FRAGMENT")
    tags = (torch.Tag.pt2_compliant_tag,)
    for inputs in range(1, MAX_INPUTS + 1):
        arguments = ", ".join(f"Tensor a{i}" for i in range(inputs))
        for outputs in range(1, MAX_OUTPUTS + 1):
            results = schema_of(outputs)
            for kind in ("launch", "region"):
                ops.define(f"{kind}_{inputs}_{outputs}({arguments}, int key) -> {results}", tags=tags)
            ops.impl(f"region_{inputs}_{outputs}", _region, "CompositeImplicitAutograd")
            over, written = arguments.replace("Tensor", "Tensor(a!)"), results.replace("Tensor", "Tensor(a!)")
            ops.define(f"launch_over_{inputs}_{outputs}({over}, int key) -> {written}", tags=tags)
            # What fake tensors use too; `register_fake` for each arity would double the time to import this.
            ops.impl(f"launch_{inputs}_{outputs}", fake_launch, "Meta")
    return ops


_library = _define()
op_library.load(lambda key, index: prepare(key, torch.device("cpu") if index < 0 else torch.device("cuda", index)))


@functools.cache
def launch_op(inputs: int, outputs: int) -> torch._ops.OpOverload:
    """The inner op of an arity. Raises cermet.Error where there is none."""
    return _op("launch", inputs, outputs)


@functools.cache
def launch_over_op(inputs: int, outputs: int) -> torch._ops.OpOverload:
    """The inner op of an arity for keys of `placed`. Raises cermet.Error where there is none."""
    return _op("launch_over", inputs, outputs)


@functools.cache
def region_op(inputs: int, outputs: int) -> torch._ops.OpOverload:
    """The differentiable op of an arity. Raises cermet.Error where there is none."""
    return _op("region", inputs, outputs)


def _op(kind: str, inputs: int, outputs: int) -> torch._ops.OpOverload:
    if not (1 <= inputs <= MAX_INPUTS and 1 <= outputs <= MAX_OUTPUTS):
        raise Error(f"a region of {inputs} inputs and {outputs} outputs, expected at most {MAX_INPUTS} and {MAX_OUTPUTS}")
    return getattr(getattr(torch.ops, NAMESPACE), f"{kind}_{inputs}_{outputs}").default
