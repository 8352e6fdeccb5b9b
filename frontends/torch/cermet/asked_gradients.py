"""`requires_grad_()` of a value that a graph makes, which breaks the graph as torch has it.

Adapters on frozen weights ask it of what the first layer reads, in a hook of the table of words (`peft` and
`transformers` by `enable_input_require_grads`), so that a checkpoint which looks at its inputs differentiates at all.
Dynamo's looks at no inputs. So it is passed over where it can make no difference to whoever calls the graph: where
neither the value is among the results, nor a result that would require a gradient because of the value alone. Else the
graph is traced again, and breaks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx
from torch._dynamo.exc import RestartAnalysis, Unsupported
from torch._dynamo.output_graph import OutputGraph
from torch._dynamo.variables.tensor import TensorVariable

from .patching import replace, traces_for_us

_ASKS, _COMPILES = "method_requires_grad_", "call_user_compiler"  # of Dynamo, 2.10 to 2.13
_ASKED = "cermet asked gradient"  # in a node's meta
_BREAKS = "cermet_breaks"  # on what Dynamo knows of a function from one trace of it to the next


def passed_over_while_traced() -> None:
    """From now on, in what Cermet compiles, where torch would break the graph."""
    replace(TensorVariable, _ASKS, _passing)
    replace(OutputGraph, _COMPILES, _looking)


def _passing(theirs: Callable[..., Any]) -> Callable[..., Any]:
    def method_requires_grad_(self: Any, tx: Any, requires_grad: Any = True) -> Any:
        try:
            return theirs(self, tx, requires_grad)
        except Unsupported:
            asks = requires_grad is True or requires_grad.as_python_constant() is True
            is_made = self.source is None and tx.output.current_tracer is tx.output.root_tracer
            if not (asks and is_made and traces_for_us(tx)) or hasattr(tx.speculation_log, _BREAKS):
                raise
            self.as_proxy().node.meta[_ASKED] = True
            return self

    return method_requires_grad_


def _looking(theirs: Callable[..., Any]) -> Callable[..., Any]:
    def call_user_compiler(self: Any, module: fx.GraphModule, *arguments: Any) -> Any:
        if _makes_a_difference(module.graph):
            setattr(self.root_tx.speculation_log, _BREAKS, True)
            raise RestartAnalysis(restart_reason="a result requires a gradient because a value of the graph shall")
        return theirs(self, module, *arguments)

    return call_user_compiler


def _makes_a_difference(graph: fx.Graph) -> bool:
    asked = {node for node in graph.nodes if node.meta.pop(_ASKED, False)}
    behind = set(asked)
    for node in graph.nodes if asked else ():
        if not behind.isdisjoint(node.all_input_nodes):
            behind.add(node)
    results = behind.intersection(graph.output_node().all_input_nodes)
    return not asked.isdisjoint(results) or torch.is_grad_enabled() and any(map(_lacks_a_gradient, results))


def _lacks_a_gradient(node: fx.Node) -> bool:
    value = node.meta.get("example_value")
    return isinstance(value, torch.Tensor) and value.is_floating_point() and not value.requires_grad
