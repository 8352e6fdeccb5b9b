"""What a value of a joint graph costs: the bytes to keep it, and the bytes that a GPU moves in the time it takes to
compute it again."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from typing import Any

import torch
import torch.fx as fx
from torch.utils.flop_counter import flop_registry

from ..graph import traffic
from ..graph.memory import is_view
from ..graph.nodes import example, examples
from ..ops.regions import NAMESPACE, launched

# Operations of a product per byte: what a GPU multiplies in the time in which it moves a byte. An A100 does 312e12 a
# second and moves 2.0e12 bytes, an H200 reaches about 700e12 and 4.0e12.
OPERATIONS_PER_BYTE = 160
_FEW = 80  # of them, for each number that a product gives: an inner size of 40, which at a peak takes half as long

UNKNOWN = "what it takes is not known"

# Not pointwise by their tags, and as cheap: a kernel reads their operands once or twice.
_CHEAP = {
    "_to_copy", "clone", "cat", "stack", "constant_pad_nd", "slice_scatter", "select_scatter", "embedding", "index",
    "index_select", "gather", "_softmax", "_log_softmax", "softmax", "log_softmax", "sum", "mean", "amax", "amin",
    "var", "logsumexp", "rsqrt", "arange", "full", "zeros", "ones", "full_like", "zeros_like", "ones_like",
    "scalar_tensor", "tril", "triu", "repeat", "flip", "roll", "lift_fresh_copy", "new_zeros", "new_full", "new_ones",
    "_conj_physical", "any", "all", "argmax", "cumsum",
}  # fmt: skip


def kept(node: fx.Node) -> int:
    """Bytes to keep a tensor."""
    return traffic.size_of(example(node), traffic.judged)


def computed_again(node: fx.Node) -> int | None:
    """Bytes that are moved in the time that a call takes; None for one that must not be made twice."""
    found = computing(node)
    return found if isinstance(found, int) else None


def computing(node: fx.Node) -> int | str:
    """Bytes that are moved in the time that a call takes; of one that must not be made twice, why."""
    if node.op != "call_function":
        return 0 if node.op == "get_attr" else "an argument"
    if isinstance(example(node), torch.SymFloat):
        return 0  # no graph hands one to its backward
    if isinstance(node.target, torch._ops.OpOverload) and _waits(node):
        return "it waits for a device"
    if node.target is operator.getitem or is_view(node) or not _has_tensor(example(node)):
        return 0
    if not isinstance(node.target, torch._ops.OpOverload):
        return UNKNOWN
    if node.target.namespace == NAMESPACE:
        return traffic.moved_by(node) if launched(node) is not None else "a product and its loss"
    if node.target.namespace != "aten":
        return UNKNOWN
    if node.target._schema.is_mutable:
        return "it writes memory"
    if draws(node):
        return "it draws numbers"
    if torch.Tag.pointwise in node.target.tags or _name(node) in _CHEAP:
        return traffic.moved_by(node)
    operations = _operations(node)
    return UNKNOWN if operations is None else max(operations // OPERATIONS_PER_BYTE, traffic.moved_by(node))


def is_product(node: fx.Node) -> bool:
    """A product, a convolution, an attention, and what is unknown."""
    if node.target is operator.getitem or is_view(node) or not _has_tensor(example(node)):
        return False
    if not isinstance(node.target, torch._ops.OpOverload):
        return True
    if node.target.namespace == NAMESPACE:
        return launched(node) is None
    return node.target.namespace == "aten" and node.target._overloadpacket in flop_registry


def written(node: fx.Node) -> int:
    """Bytes of the tensors that a call gives."""
    return sum(traffic.size_of(each, traffic.judged) for each in examples(node) if isinstance(each, torch.Tensor))


def is_long_product(node: fx.Node) -> bool:
    """A product that takes longer than to write its result; one behind a bottleneck does not."""
    if not is_product(node):
        return False
    operations = _operations(node) if isinstance(node.target, torch._ops.OpOverload) else None
    value = example(node)
    if operations is None or not isinstance(value, torch.Tensor):
        return True
    return operations > _FEW * math.prod(map(traffic.judged, value.shape))


def _name(node: fx.Node) -> str:
    return node.target._schema.name.removeprefix("aten::")


def _has_tensor(value: object) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_has_tensor, value))
    return isinstance(value, torch.Tensor)


def draws(node: fx.Node) -> bool:
    """Whether an operation draws numbers; attention does where it drops."""
    if torch.Tag.nondeterministic_seeded not in node.target.tags:
        return False
    arguments = node.target._schema.arguments
    usual = {argument.name: argument.default_value for argument in arguments if argument.has_default_value()}
    given = dict(zip((argument.name for argument in arguments), node.args))
    return (usual | given | node.kwargs).get("dropout_p") != 0.0


def _waits(node: fx.Node) -> bool:
    """Whether the program waits for a device: to know a size or a number, or for a copy from another."""
    if {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(node.target.tags):
        return True
    values = [example(each) for each in (node, *node.all_input_nodes)]
    tensors = [each for each in values if isinstance(each, torch.Tensor)]
    return len({each.device for each in tensors if each.dim() > 0 or each is values[0]}) > 1 or any(
        not isinstance(size, int) and size.node.hint is None for each in tensors for size in each.shape
    )


def _operations(node: fx.Node) -> int | None:
    """Multiplications and additions of a product, a convolution or an attention; None for what torch counts none of."""
    packet = node.target._overloadpacket
    if packet not in flop_registry:
        return None
    # Not all that torch has to count operations takes the type of a product's result.
    args = tuple(_hinted(each) for each in node.args if not isinstance(each, torch.dtype))
    return _counted(packet, args, tuple((key, _hinted(each)) for key, each in node.kwargs.items()), _hinted(node))


@dataclasses.dataclass(frozen=True)
class _Shaped:
    """A tensor by what its operations are counted from."""

    sizes: tuple[int, ...]
    dtype: torch.dtype


def _hinted(value: object) -> Any:
    """What can be remembered of an argument, with sizes as they are judged."""
    if isinstance(value, fx.Node):
        value = example(value)
    if isinstance(value, torch.Tensor):
        return _Shaped(tuple(map(traffic.judged, value.shape)), value.dtype)
    if isinstance(value, (tuple, list)):
        return tuple(map(_hinted, value))
    return traffic.judged(value) if isinstance(value, torch.SymInt) else value


@functools.lru_cache(4096)
def _counted(packet: Any, args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...], out: Any) -> int | None:
    """Layers have the same products, and making tensors for torch to count them takes a tenth of a millisecond each."""
    with torch.utils._mode_utils.no_dispatch():
        args, kwargs, out = torch.utils._pytree.tree_map(_unwritten, (args, dict(kwargs), out))
    try:
        return int(flop_registry[packet](*args, **kwargs, out_val=out))
    except AssertionError:  # torch counts no attention whose heads are grouped
        return None


def _unwritten(value: Any) -> Any:
    """A tensor of no memory."""
    return torch.empty(value.sizes, dtype=value.dtype, device="meta") if isinstance(value, _Shaped) else value
