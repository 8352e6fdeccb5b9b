"""`requires_grad_()` of a value that a graph makes, which breaks the graph as torch has it, or has it traced twice.

Adapters on frozen weights ask it of what the first layer reads, in a hook of the table of words (`peft` and
`transformers` by `enable_input_require_grads`), so that a checkpoint which looks at its inputs differentiates at all.
Dynamo's looks at no inputs. So it is passed over where it can make no difference: where neither the value is among the
results, nor a result that would require a gradient because of the value alone, and where the program does not ask
whether it, or what follows from it, requires one, nor differentiates within the graph. Else the graph is traced again,
as torch does it: before 2.13 it breaks, and from then on where a result follows from the value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx
from torch._dynamo import config
from torch._dynamo.exc import RestartAnalysis, SkipFrame, Unsupported
from torch._dynamo.output_graph import OutputGraph
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._dynamo.variables.tensor import TensorVariable

from ..patching import replace, traces_for_us

# Of Dynamo, 2.10 to 2.15.
_ASKS, _READS, _DIFFERENTIATES = "method_requires_grad_", "method_attr_requires_grad", "method_backward"
_TRACES, _COMPILES = "run", "call_user_compiler"
_WITHIN = "trace_autograd_ops"  # a setting, from 2.13 on
_ASKED = "cermet asked gradient"  # in a node's meta
_TIMES = "cermet_asked"  # on what Dynamo makes of one graph
_BREAKS = "cermet_breaks"  # on what Dynamo knows of a function from one trace to the next: theirs is called


def passed_over_while_traced() -> None:
    """From now on, in what Cermet compiles."""
    replace(TensorVariable, _ASKS, _passing)
    replace(TensorVariable, _READS, _reading)
    replace(TensorVariable, _DIFFERENTIATES, _differentiating)
    replace(InstructionTranslator, _TRACES, _tracing)
    replace(OutputGraph, _COMPILES, _looking)


def times_asked(output: OutputGraph) -> int:
    """How often it was passed over in a graph that is being traced."""
    return int(vars(output).get(_TIMES, 0))


def _passing(theirs: Callable[..., Any]) -> Callable[..., Any]:
    def method_requires_grad_(self: Any, tx: Any, requires_grad: Any = True) -> Any:
        asks = requires_grad is True or requires_grad.as_python_constant() is True
        is_made = self.source is None and tx.output.current_tracer is tx.output.root_tracer
        node = self.as_proxy().node
        if not (asks and is_made and _lacks_a_gradient(node) and traces_for_us(tx)) or _breaks(tx):
            return theirs(self, tx, requires_grad)
        node.meta[_ASKED] = True
        vars(tx.output)[_TIMES] = times_asked(tx.output) + 1
        return self

    return method_requires_grad_


def _reading(theirs: Callable[..., Any]) -> Callable[..., Any]:
    def method_attr_requires_grad(self: Any, tx: Any) -> Any:
        asked, behind = _asked(tx.output.root_tracer.graph)
        node = self.as_proxy().node
        within = node.graph is not tx.output.root_tracer.graph  # of a body, which may have been given any of them
        if asked and (within or node in behind) and _lacks_a_gradient(node):
            _trace_again(tx)
        return theirs(self, tx)

    return method_attr_requires_grad


def _differentiating(theirs: Callable[..., Any]) -> Callable[..., Any]:
    def method_backward(self: Any, tx: Any, *given: Any, **named: Any) -> Any:
        if times_asked(tx.output) and _is_within_graphs():
            _trace_again(tx)
        return theirs(self, tx, *given, **named)

    return method_backward


def _tracing(theirs: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any) -> Any:
        try:
            return theirs(self)
        except (RestartAnalysis, SkipFrame):
            raise
        except Exception as error:  # a hook of the value, or its gradient within the graph, has failed without it
            may_be_ours = _is_within_graphs() or not isinstance(error, Unsupported)
            if may_be_ours and times_asked(self.output) and not _breaks(self):
                _trace_again(self)
            raise

    return run


def _looking(theirs: Callable[..., Any]) -> Callable[..., Any]:
    def call_user_compiler(self: Any, module: fx.GraphModule, *arguments: Any) -> Any:
        asked, behind = _asked(module.graph)
        results = behind.intersection(module.graph.output_node().all_input_nodes)
        if not asked.isdisjoint(results) or torch.is_grad_enabled() and any(map(_lacks_a_gradient, results)):
            _trace_again(self.root_tx)
        for node in asked:
            del node.meta[_ASKED]
        vars(self)[_TIMES] = 0  # what fails from here on fails for other reasons
        return theirs(self, module, *arguments)

    return call_user_compiler


def _asked(graph: fx.Graph) -> tuple[set[fx.Node], set[fx.Node]]:
    """The values, and these with all that follows from them."""
    asked = {node for node in graph.nodes if _ASKED in node.meta}
    behind = set(asked)
    for node in graph.nodes if asked else ():
        if not behind.isdisjoint(node.all_input_nodes):
            behind.add(node)
    return asked, behind


def _is_within_graphs() -> bool:
    """Whether Dynamo traces what differentiates. Else it ends the graph, whose results are looked at."""
    return bool(getattr(config, _WITHIN, False))


def _breaks(translator: Any) -> bool:
    return hasattr(translator.speculation_log, _BREAKS)


def _trace_again(translator: Any) -> None:
    setattr(translator.speculation_log, _BREAKS, True)
    raise RestartAnalysis(restart_reason="that a value of the graph shall require a gradient makes a difference")


def _lacks_a_gradient(node: fx.Node) -> bool:
    value = node.meta.get("example_value")
    return isinstance(value, torch.Tensor) and value.is_floating_point() and not value.requires_grad
