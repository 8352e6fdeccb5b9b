"""Calls of our launches in the code that Inductor generates, without what Python does around an op there.

`torch.ops.cermet_v1.launch_2_1.default(...)` looks up five names and goes through a method in Python to reach the op's
entry in C++: a quarter of what a call costs. Generated code can name the entry once. It is the same entry, so the
dispatcher, its modes and profilers see the call as before. Where torch has no such entry, or generates code in another
way than what is expected here, calls stay as they are. (Direct calls name entries by themselves: straight.py.)
"""

from __future__ import annotations

import functools
import itertools
import logging
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..loss import chunks, values
from ..ops import regions
from ..ops.regions import NAMESPACE

_log = logging.getLogger("cermet")
_ENTRY = "_op"  # of an OpOverload: what its __call__ calls


@functools.cache
def lower_in_inductor() -> None:
    """Makes the code that Inductor generates from now on call the entries of our ops, without asserting the sizes and
    strides of their results: the C++ makes them from the description that the fake tensors have theirs from."""
    try:
        _register()
    except Exception as error:
        _log.info("Inductor calls our ops as it calls any other: %s: %s", type(error).__name__, error)


def _launches() -> list[torch._ops.OpOverload]:
    """The ops that launch and that stand in graphs, of all arities."""
    inputs, outputs = range(1, regions.MAX_INPUTS + 1), range(1, regions.MAX_OUTPUTS + 1)
    ops = [regions.launch_op(*arity) for arity in itertools.product(inputs, outputs)]
    inputs = range(chunks.MAX_INPUTS + 1)
    rows = itertools.starmap(chunks.rows_op, itertools.product(inputs, range(chunks.MOST_TERMS + 1)))
    numbers = itertools.starmap(values.linear_op, itertools.product(inputs[:-1], range(chunks.MOST_TERMS + 1)))
    return [*ops, *(chunks.launch_op(count, 2) for count in inputs), *rows, *numbers]


def _register() -> None:
    from torch._inductor import ir, lowering
    from torch._inductor.virtualized import V
    from torch._library.utils import get_layout_constraint_tag

    class Launch(ir.FallbackKernel):
        def codegen(self, wrapper: Any) -> None:
            if not V.graph.cpp_wrapper and not getattr(V.graph, "fx_wrapper", False):
                self.python_kernel_name = _imported(wrapper, self.op_overload)
            super().codegen(wrapper)

        def codegen_size_asserts(self, wrapper: Any) -> None:
            """Since torch 2.14 a call of one result is that result."""

        codegen_alignment_asserts = codegen_size_asserts

    def lower(op: torch._ops.OpOverload, *arguments: Any) -> Any:
        made = Launch.create(op, *arguments)
        for output in made if isinstance(made, (tuple, list)) else [made]:
            output.skip_size_stride_alignment_checks = True
        return pytree.tree_map(ir.TensorBox.create, made)

    for op in _launches():
        # What Inductor does by itself when it meets an op that it does not know; then another handler.
        constraint = lowering.tag_to_layout_constraint(get_layout_constraint_tag(op, with_default=True))
        lowering.make_fallback(op, layout_constraint=constraint, warn=False)
        handler = functools.update_wrapper(functools.partial(lower, op), lowering.lowerings[op])
        lowering.register_lowering(op, type_promotion_kind=None)(handler)


def _imported(wrapper: Any, op: torch._ops.OpOverload) -> str:
    """The name that an op's entry gets at the head of Inductor's generated module."""
    while getattr(wrapper, "parent_wrapper", None) is not None:
        wrapper = wrapper.parent_wrapper
    name = f"_{NAMESPACE}_{op.overloadpacket.__name__}"
    wrapper.add_import_once(f"{name} = torch.ops.{op}.{_ENTRY}")
    return name
