"""Calls of scaled_dot_product_attention in an FX graph: their arguments, the kernel that torch takes for them, and
replacing one by an equal call with other arguments.

Another kernel may give its result in another memory order. What the graph computes from the result is traced again as
far as that reaches; where it cannot follow (a view of that order, the graph's output) the call is left alone.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx as fx
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from ..graph import fakes
from ..graph.decision import Declined
from ..graph.effects import WRITE, effect_of
from ..graph.layouts import written
from ..graph.nodes import example

_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
_TARGETS = (F.scaled_dot_product_attention, torch.ops.aten.scaled_dot_product_attention.default)
_KERNEL = re.compile(r"_scaled_dot_product_(?!.*math)\w*attention\w*")


# What an attention that is written out is made of.
PRODUCTS = {torch.matmul, operator.matmul, "matmul", "__matmul__"}
TURNS = {torch.transpose, "transpose", "swapaxes"}

WRITTEN_OUT = "cermet_attention"  # of a product that ends an attention: what that would be called with


def arguments(attention: fx.Node) -> dict[str, Any]:
    """What an attention is called with, by name, or would be, if it is written out."""
    return attention.meta.get(WRITTEN_OUT) or {**dict(zip(_NAMES, attention.args)), **attention.kwargs}


def is_attention(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target in _TARGETS


def attentions(module: fx.GraphModule) -> Iterator[fx.Node]:
    return filter(is_attention, module.graph.nodes)


@dataclasses.dataclass(frozen=True)
class Change:
    """Other arguments for one attention, and the fake values of what then has other strides."""

    module: fx.GraphModule
    node: fx.Node
    arguments: dict[str, Any]
    values: dict[fx.Node, torch.Tensor]

    def apply(self) -> None:
        """Replaces the call; the module is to be recompiled."""
        given = dict(self.arguments)
        self.node.args = tuple(given.pop(name) for name in ("query", "key", "value"))
        self.node.kwargs = given
        for node, value in self.values.items():
            node.meta["val" if "val" in node.meta else "example_value"] = value


class _Kernels(TorchDispatchMode):
    """Notes which of attention's kernels run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _KERNEL.search(str(function)):
            self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def traced(node: fx.Node, given: dict[str, Any]) -> tuple[torch.Tensor, str | None]:
    """The fake result of an attention with these arguments, and its kernel (None: products and a softmax).

    Raises Declined where that cannot be traced.
    """
    try:
        return _traced(node, given)
    except Declined:
        raise
    except Exception as error:
        raise Declined(f"attention cannot be traced with other arguments: {error}") from error


def _traced(node: fx.Node, given: dict[str, Any]) -> tuple[torch.Tensor, str | None]:
    old = example(node)
    mode = getattr(old, "fake_mode", None)
    if mode is None:
        raise Declined("the graph was traced without fake tensors")
    values = dict(fx.node.map_arg(given, example))
    with fakes.calling(mode), torch.set_grad_enabled(old.requires_grad), torch.autocast(old.device.type, enabled=False):
        for name in ("query", "key", "value"):  # as autocast casts them
            values[name] = values[name].to(old.dtype)
        with _Kernels() as kernels:
            value = F.scaled_dot_product_attention(**values)
    return value, kernels.names[0] if kernels.names else None


def changed(
    module: fx.GraphModule,
    node: fx.Node,
    before: dict[fx.Node, torch.Tensor],
    must_have_kernel: bool,
    **changes: Any,
) -> Change:
    """A node's call with some arguments changed. Raises Declined where it would lose its kernel or other calls break.

    `before`: the new values of changes that will be made, too. `must_have_kernel`: it has to have one in any case.
    """
    given = arguments(node)
    new = {**given, **changes}
    value, kernel = traced(node, new)
    if kernel is None and (must_have_kernel or traced(node, given)[1] is not None):
        raise Declined("attention has no kernel for it")
    return Change(module, node, new, consequences(module, node, value, before))


def consequences(
    module: fx.GraphModule, node: fx.Node, value: torch.Tensor, before: dict[fx.Node, torch.Tensor]
) -> dict[fx.Node, torch.Tensor]:
    """The new values of a node, which becomes `value`, and of what depends on its strides. `before`: new values of
    others. Raises Declined where that cannot be followed."""
    found: dict[fx.Node, torch.Tensor] = {}
    if not _differs(node, value):
        return found
    found[node] = value
    nodes = list(module.graph.nodes)
    for user in nodes[nodes.index(node) + 1 :]:
        if not any(item in found for item in user.all_input_nodes):
            continue
        if user.op not in ("call_function", "call_method") or effect_of(user, module).kind == WRITE:
            raise Declined(f"{user.name} sees other strides")
        again = _again(user, {**before, **found})
        if _differs(user, again):
            found[user] = again
    return found


def _again(node: fx.Node, values: dict[fx.Node, torch.Tensor]) -> torch.Tensor:
    old = example(node)
    if not isinstance(old, torch.Tensor):
        raise Declined(f"{node.name} sees other strides")
    try:
        return fakes.result(node, values, autocast=True)
    except Exception as error:
        raise Declined(f"{node.name} fails with other strides: {error}") from error


def _differs(node: fx.Node, value: torch.Tensor) -> bool:
    """Whether a value has other strides than tracing found. Raises Declined where it differs in more."""
    old = example(node)
    if not isinstance(value, torch.Tensor) or value.dtype != old.dtype or value.requires_grad != old.requires_grad:
        raise Declined(f"{node.name} would be another tensor")
    if [written(size) for size in old.shape] != [written(size) for size in value.shape]:
        raise Declined(f"{node.name} would have the shape {list(value.shape)}")
    return any(
        written(mine) != written(theirs)
        for size, mine, theirs in zip(old.shape, old.stride(), value.stride())
        if written(size) != "1"
    )
