"""The loss of a linear head as one op: the gradient of the logits is made in the forward pass, by the loss's kernel.

`loss = region(logits, ...)` with `logits = hidden @ weight.T`. The forward keeps d loss / d logits for a cotangent of
1; the backward is two products of it, scaled by the cotangent where tensors are of the hidden state's size: no pass over
memory of the logits' size, no value on the host, and what was saved is only read. (For f16, and for logits that no
plain linear makes, the region's own gradient is right: regions.py.)

In bf16 a cotangent of 1 or another power of two rounds where eager rounds. Any other rounds once more, after the
gradient of the logits rather than before it: 1.3 x eager's error.

- `cermet_v1::head_{n}(Tensor hidden, Tensor weight, Tensor a0, ..., int key, int position)`: operand `position` of the
  region are the logits; their gradient goes to hidden and weight.
- `cermet_v1::linear_head_{n}(...)`: the logits are not among the operands but made by the op. Nobody else has them, so
  the gradient takes their memory.
- `cermet_v1::linear_launch_{n}(...)`: what `linear_head` becomes, a product and a launch (C++, frontends/torch/ops).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from .. import locks, native
from ..errors import Error
from ..ops import library, regions, targets
from ..ops.regions import NAMESPACE
from ..text import ELEMENT_TYPES, Builder, TensorType

MAX_INPUTS = native.limit("loss_inputs")  # of the region

_lock = locks.lock()
_forwards: dict[tuple[int, int], int | None] = {}


def forward_key(key: int, position: int) -> int | None:
    """The region that returns a loss and its gradient for input `position` and a cotangent of 1; None where the
    compiler has none."""
    with _lock:
        if (key, position) in _forwards:
            return _forwards[key, position]
    text = _marked(regions.text(key))
    wanted = tuple(index == position for index in range(len(regions.signature(key).inputs)))
    answer = library.context().differentiate(text, wanted)
    single = answer.get("unit") and (answer["outputs"], answer["saved"]) == (1, 1)
    with _lock:
        return _forwards.setdefault((key, position), regions.register(answer["forward"]) if single else None)


def _marked(text: str) -> str:
    """A graph text whose function asks for its gradient in the forward pass."""
    name = "cermet.gradient_in_forward"
    if name in text:
        return text
    marked, times = re.subn(
        r"^(\s*func\.func [^\n]*?)( attributes \{([^\n]*)\})? \{$",
        lambda found: f"{found[1]} attributes {{{', '.join(filter(None, [name, found[3]]))}}} {{",
        text,
        count=1,
        flags=re.MULTILINE,
    )
    if times != 1:
        raise Error(f"a region's text has no function whose signature is one line:\n{text}")
    return marked


def in_place(key: int, position: int, device: torch.device) -> bool:
    """Whether a region's last output may take the memory of input `position` (docs/plan-format.md, "Outputs")."""
    values = regions.plan(key, targets.target_of(device))["values"]
    return position in [value for value in values if value["kind"] == "output"][-1].get("in_place", ())


def scale_key(dtype: torch.dtype, columns: int, scale: torch.dtype) -> int:
    """The region that multiplies [rows, columns] by a 0-d tensor in f32 and rounds once."""
    return regions.register(_scale_text(ELEMENT_TYPES[dtype], columns, ELEMENT_TYPES[scale]))


@functools.cache
def _scale_text(element: str, columns: int, scale: str) -> str:
    builder = Builder("scale")
    rows = TensorType(("r0", columns), element)
    wide = rows.with_element("f32")
    x, factor = builder.argument(rows, "x"), builder.argument(TensorType((), scale), "scale")
    if element != "f32":
        x = builder.convert("cast", x, wide, "x")
    if scale != "f32":
        factor = builder.convert("cast", factor, TensorType((), "f32"), "scale")
    product = builder.binary("mul", x, builder.convert("broadcast", factor, wide, "scale"), "product")
    builder.result(product if element == "f32" else builder.convert("cast", product, rows, "rounded"))
    return builder.text()


# --- The ops ---------------------------------------------------------------------------------------------------------


def _gradients(
    gradient: torch.Tensor,
    hidden: torch.Tensor | None,
    weight: torch.Tensor | None,
    shape: Sequence[Any],
    cotangent: torch.Tensor,
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Of hidden (of size `shape`) where there is the weight, and of the weight where there is hidden."""
    rows = gradient.reshape(-1, gradient.shape[-1])
    key = scale_key(gradient.dtype, int(shape[-1]), cotangent.dtype)
    of_hidden = of_weight = None
    if weight is not None:
        of_hidden = regions.launch(key, [torch.mm(rows, weight), cotangent])[0].view(shape)
    if hidden is not None:
        (scaled,) = regions.launch(key, [hidden.reshape(-1, shape[-1]), cotangent])
        of_weight = torch.mm(rows.t(), scaled)
    return of_hidden, of_weight


class _Head(torch.autograd.Function):
    """A head with its gradient; `made`: the logits are not among the operands."""

    @staticmethod
    def forward(
        ctx: Any,
        key: int,
        forward: int,
        position: int,
        made: bool,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        *operands: torch.Tensor,
    ) -> torch.Tensor:
        if made:
            op = launch_op(len(operands))
            loss, gradient = op(_rows(key, position, hidden), weight, *operands, forward, position)
        else:
            loss, gradient = regions.launch(forward, operands)
        needed = ctx.needs_input_grad[4:6]
        ctx.save_for_backward(gradient, hidden if needed[1] else None, weight if needed[0] else None)
        ctx.key, ctx.shape, ctx.rest = key, hidden.shape, len(operands)
        return loss

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> Any:
        gradient, hidden, weight = ctx.saved_tensors
        gradients = regions.backward(ctx.key, _gradients, gradient, hidden, weight, ctx.shape, cotangent)
        return None, None, None, None, *gradients, *[None] * ctx.rest


def _rows(key: int, position: int, hidden: torch.Tensor) -> torch.Tensor:
    """`hidden` with the leading dimensions that the region's logits have: its own, or all in one."""
    rank = len(regions.signature(key, hidden.device).inputs[position].dims)
    return hidden if rank == hidden.dim() else hidden.reshape(-1, hidden.shape[-1])


def _head(made: bool, *arguments: Any) -> torch.Tensor:
    hidden, weight, *operands, key, position = arguments
    forward = forward_key(key, position)
    if forward is None:
        raise Error(f"{regions.signature(key).name}: there is no gradient of a forward pass for input {position}")
    if torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad):
        return _Head.apply(key, forward, position, made, hidden, weight, *operands)
    if made:
        operands.insert(position, F.linear(_rows(key, position, hidden), weight))
    return regions.launch(key, operands)[0]


def _fake_linear_launch(*arguments: Any) -> Any:
    hidden, weight, *operands, key, position = arguments
    if hidden.shape[-1] != weight.shape[-1] or hidden.dtype != weight.dtype:
        raise Error(
            f"{regions.signature(key).name}: hidden is {hidden.dtype} of {tuple(hidden.shape)}, the weight "
            f"{weight.dtype} of {tuple(weight.shape)}, expected one dtype and the same last size"
        )
    operands.insert(position, hidden.new_empty([*hidden.shape[:-1], weight.shape[0]]))
    return regions.fake_launch(*operands, key)


def _define() -> torch.library.Library:
    ops = torch.library.Library(NAMESPACE, "FRAGMENT")
    tags = (torch.Tag.pt2_compliant_tag,)
    for inputs in range(1, MAX_INPUTS + 1):
        arguments = ", ".join(["Tensor hidden", "Tensor weight", *(f"Tensor a{i}" for i in range(inputs))])
        for name, made in (("head", False), ("linear_head", True)):
            ops.define(f"{name}_{inputs}({arguments}, int key, int position) -> Tensor", tags=tags)
            ops.impl(f"{name}_{inputs}", functools.partial(_head, made), "CompositeImplicitAutograd")
        ops.define(f"linear_launch_{inputs}({arguments}, int key, int position) -> (Tensor, Tensor)", tags=tags)
        ops.impl(f"linear_launch_{inputs}", _fake_linear_launch, "Meta")
    return ops


_library = _define()


def op(made: bool, inputs: int) -> torch._ops.OpOverload:
    """The outer op for `inputs` operands. Raises cermet.Error where there is none."""
    return _op("linear_head" if made else "head", inputs)


def launch_op(inputs: int) -> torch._ops.OpOverload:
    """The inner op for `inputs` operands. Raises cermet.Error where there is none."""
    return _op("linear_launch", inputs)


@functools.cache
def _op(name: str, inputs: int) -> torch._ops.OpOverload:
    if not 1 <= inputs <= MAX_INPUTS:
        raise Error(f"a loss of {inputs} operands, expected at most {MAX_INPUTS}")
    return getattr(getattr(torch.ops, NAMESPACE), f"{name}_{inputs}").default
