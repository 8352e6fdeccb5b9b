"""What an FX node does besides computing its value: which operands it writes, and whether it must keep its place.

Dynamo's graph is not functional: `add_`, `operator.iadd`, `setitem`, `out=` and in-place flags write memory that other
values see. Where nothing certain is known (a Python function outside torch, a higher-order operator whose body
writes), every tensor operand counts as written: an importer may then match less, never wrongly.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import re
from collections.abc import Callable, Hashable
from typing import Any

import torch
import torch.fx as fx

from . import seeded
from .nodes import attribute, target_name, tensor_nodes

PURE, EFFECTFUL, WRITE = "pure", "effectful", "write"

_INPLACE = "iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift".split()
_INPLACE_OPERATORS = {getattr(operator, name) for name in _INPLACE}
_INPLACE_METHODS = {f"__{name}__" for name in _INPLACE} | {"__setitem__", "__delitem__"}
_RANDOM = re.compile(r"rand|dropout|bernoulli|multinomial|normal(?!iz)|poisson|exponential|rrelu|gumbel|uniform|seed")
_BARRIER = re.compile(
    r"set_grad|autocast|inference_mode|_log_api|all_reduce|all_gather|reduce_scatter|all_to_all|broadcast_coalesced"
    r"|wait_tensor|_functional_collectives|c10d|stream|event|print|record_function|profiler|_assert|sync"
    # Where torch.func's transforms begin and end, and what they set between.
    r"|_nesting$|_dual_level$|set_fwd_grad|saved_tensors_hooks|requires_grad_allowed|set_tensor_requires_grad"
)
# Functions that write an operand that neither a schema nor a trailing underscore tells: argument name, and the
# condition under which they do.
_WRITTEN_ARGUMENTS: dict[str, tuple[tuple[str, ...], Callable[[dict[str, Any]], bool]]] = {
    "batch_norm": (("running_mean", "running_var"), lambda a: bool(a.get("training"))),
    "instance_norm": (("running_mean", "running_var"), lambda a: bool(a.get("use_input_stats", True))),
    "embedding": (("weight",), lambda a: a.get("max_norm") is not None),
    "embedding_bag": (("weight",), lambda a: a.get("max_norm") is not None),
}
_SDPA = "scaled_dot_product_attention"
_ATTENTION = ("query", "key", "value", "attn_mask", "dropout_p")  # a builtin's first arguments
_TORCH_MODULES = ("torch", "_operator", "operator", "math", "builtins", "_VariableFunctions")


@dataclasses.dataclass(frozen=True)
class Effect:
    kind: str  # PURE, EFFECTFUL or WRITE
    written: tuple[fx.Node, ...] = ()
    returned: fx.Node | None = None  # an operand that comes back as it is, where tracing shows another tensor


def transform_edge(node: fx.Node) -> bool | None:
    """Whether a transform of torch.func (one level of it) begins with a node (True) or ends with it (False)."""
    name = target_name(node) if node.op == "call_function" else ""
    if name.endswith(("_increment_nesting", "_enter_dual_level")):
        return True
    return False if name.endswith(("_decrement_nesting", "_exit_dual_level")) else None


def draws(node: fx.Node) -> bool:
    """Whether a call is one of those that draw random numbers, unless it is pure as it is called."""
    return _RANDOM.search(target_name(node)) is not None


def _flattened(arguments: Any) -> tuple[fx.Node, ...]:
    return tuple(dict.fromkeys(tensor_nodes(arguments)))


def _schema_writes(schema: torch._C.FunctionSchema, node: fx.Node) -> tuple[fx.Node, ...]:
    written: list[fx.Node] = []
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        if not argument.kwarg_only and position < len(node.args):
            written += tensor_nodes(node.args[position])
        written += tensor_nodes(node.kwargs.get(argument.name))
    return tuple(dict.fromkeys(written))


def _may_write(schema: torch._C.FunctionSchema, node: fx.Node) -> bool:
    """Whether a call by this schema would write; an overload for `out=` is not meant where there is none."""
    return any(
        argument.alias_info is not None
        and argument.alias_info.is_write
        and (not argument.kwarg_only or argument.name in node.kwargs)
        for argument in schema.arguments
    )


@functools.lru_cache(maxsize=1024)
def _signature(target: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(target)
    except (TypeError, ValueError):
        return None


def _signature_of(node: fx.Node) -> inspect.Signature | None:
    return (_signature if isinstance(node.target, Hashable) else _signature.__wrapped__)(node.target)


def _bound(node: fx.Node) -> dict[str, Any] | None:
    """Arguments by name, defaults included; None for a builtin, which has no signature to ask."""
    signature = _signature_of(node)
    if signature is None:
        return None
    try:
        bound = signature.bind(*node.args, **node.kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    return dict(bound.arguments)


def _body_writes(module: fx.GraphModule, depth: int = 0) -> bool:
    if depth > 8:
        return True
    return any(effect_of(node, module, depth + 1).kind == WRITE for node in module.graph.nodes)


def _higher_order(node: fx.Node, owner: Any, depth: int) -> Effect:
    bodies = []
    for argument in tensor_nodes((node.args, node.kwargs)):
        if argument.op == "get_attr":
            body = attribute(owner, argument.target)
            if isinstance(body, fx.GraphModule):
                bodies.append(body)
    if bodies and not any(_body_writes(body, depth) for body in bodies):
        return Effect(EFFECTFUL)
    return Effect(WRITE, _flattened((node.args, node.kwargs)))


def _method_effect(name: str, node: fx.Node) -> Effect:
    in_place = name.endswith("_") and not name.endswith("__")
    if in_place or name in _INPLACE_METHODS:
        if name == "requires_grad_":
            return Effect(EFFECTFUL)
        return Effect(WRITE, _flattened(node.args[:1]))
    return Effect(EFFECTFUL if _keeps_its_place(name) else PURE)


@functools.lru_cache(maxsize=4096)
def _writes(target: torch._ops.OpOverload) -> bool:
    return any(argument.alias_info is not None and argument.alias_info.is_write for argument in target._schema.arguments)


@functools.lru_cache(maxsize=4096)
def _is_effectful(target: torch._ops.OpOverload) -> bool:
    return torch.Tag.nondeterministic_seeded in target.tags or _BARRIER.search(str(target)) is not None


@functools.lru_cache(maxsize=4096)
def _keeps_its_place(name: str) -> bool:
    return _RANDOM.search(name) is not None or _BARRIER.search(name) is not None


def effect_of(node: fx.Node, owner: Any, depth: int = 0) -> Effect:
    """The effect of `node` in a graph that `owner` (a GraphModule) holds."""
    if node.op in ("placeholder", "get_attr", "output"):
        return Effect(PURE)
    if "out" in node.kwargs and node.kwargs["out"] is not None:
        return Effect(WRITE, _flattened(node.kwargs["out"]))
    if node.op == "call_method":
        return _method_effect(str(node.target), node)
    if node.op != "call_function":  # a module that Dynamo did not inline may do anything
        return Effect(WRITE, _flattened((node.args, node.kwargs)))
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        written = _schema_writes(target._schema, node) if _writes(target) else ()
        if written:
            return Effect(WRITE, written)
        return Effect(EFFECTFUL if _is_effectful(target) else PURE)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return _higher_order(node, owner, depth)
    if target is operator.setitem or target is operator.delitem or target in _INPLACE_OPERATORS:
        return Effect(WRITE, _flattened(node.args[:1]))
    return _function_effect(node)


def _drops_nothing(node: fx.Node, arguments: dict[str, Any] | None) -> bool:
    """Whether a dropout, whose operands are (input, p, training) under whatever names, gives its input back."""
    values = list((arguments or {"input": None, **dict(zip(("p", "training"), node.args[1:])), **node.kwargs}).values())
    first = node.args[0] if node.args else None
    return isinstance(first, fx.Node) and len(values) >= 3 and (values[2] is False or values[1] == 0)


def _depends_on_arguments(name: str, node: fx.Node) -> bool:
    """Whether a function's effect does; to bind them takes longer than all else here."""
    if name in _WRITTEN_ARGUMENTS or name == _SDPA or "dropout" in name:
        return True
    signature = _signature_of(node)
    return signature is not None and "inplace" in signature.parameters


@functools.lru_cache(maxsize=1024)
def _schemas(packet: torch._ops.OpOverloadPacket, overloads: tuple[str, ...]) -> list[torch._C.FunctionSchema]:
    return [getattr(packet, overload)._schema for overload in overloads]


def _function_effect(node: fx.Node) -> Effect:
    target = node.target
    if target in (seeded.dropout, seeded.seed):  # a seed has its number: another call gives another
        return Effect(PURE)
    name = getattr(target, "__name__", "") or ""
    module = getattr(target, "__module__", None) or ""
    if isinstance(target, torch._ops.OpOverloadPacket):
        if any(_may_write(schema, node) for schema in _schemas(target, tuple(target.overloads()))):
            return Effect(WRITE, _flattened((node.args, node.kwargs)))
    elif module and module.split(".")[0] not in _TORCH_MODULES:
        return Effect(WRITE, _flattened((node.args, node.kwargs)))
    operators = module in ("_operator", "operator")  # `operator.and_` is no write
    if name.endswith("_") and not name.endswith("__") and name != "requires_grad_" and not operators:
        return Effect(WRITE, _flattened(node.args[:1]))
    arguments = _bound(node) if _depends_on_arguments(name, node) else None
    if (arguments or node.kwargs).get("inplace"):
        return Effect(WRITE, _flattened(node.args[:1] or node.kwargs.get("input")))
    if name in _WRITTEN_ARGUMENTS:
        names, condition = _WRITTEN_ARGUMENTS[name]
        if arguments is None:  # a builtin orders its arguments as it likes: any but the input may be written
            return Effect(WRITE, _flattened((node.args[1:], node.kwargs)))
        if condition(arguments):
            return Effect(WRITE, _flattened([arguments.get(argument) for argument in names]))
    if "dropout" in name and _drops_nothing(node, arguments):
        return Effect(PURE, returned=node.args[0])
    probability = (arguments or {**dict(zip(_ATTENTION, node.args)), **node.kwargs}).get("dropout_p", 0.0)
    if name == _SDPA and probability != 0:
        return Effect(EFFECTFUL)
    return Effect(EFFECTFUL if _keeps_its_place(f"{module}.{name}") else PURE)
