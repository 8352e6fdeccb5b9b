"""CUDA graphs for `remainder="aot"`: torch's own trees of recorded graphs, as Inductor's mode "reduce-overhead" has.

Forward, backward and inference are recorded. What a forward saved stands where its graph wrote it, which a backward's
recording relies on; so nothing outside may keep a tensor alive that dies with a backward (edges.py detaches what a
graph returned). A graph that cannot be recorded (another device in it, an input that it writes, an op that may not be
captured) runs as it is, and torch's log says why. So does the backward of such a forward.

Under Inductor and here, gradients that a recorded backward hands to `.grad` lie in memory that the next step writes;
torch refuses to add to them there. `keep_gradients` makes them the parameters' own where they outlive their step.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._dynamo.backends.cudagraphs import find_input_mutations, get_device_node_mapping
from torch._inductor.cudagraph_utils import (
    check_multiple_devices_or_any_cpu_nodes,
    get_placeholder_info,
    log_cudagraph_skip_and_bump_counter,
)
from torch._inductor.utils import count_tangents, get_first_incompatible_cudagraph_node

FORWARD, BACKWARD, INFERENCE = "forward", "backward", "inference"


@dataclasses.dataclass(frozen=True)
class Capture:
    """How one compiled graph is recorded; what a cache can keep."""

    kind: str
    device: int
    recorded: bool = True  # False: a backward that runs as it is behind a recorded forward
    static: tuple[int, ...] = ()  # inputs whose addresses stay: parameters, and what the forward saved
    integers: tuple[int, ...] = ()  # inputs that are numbers: a graph is recorded for each
    inputs: int = 0
    outputs: int = 0
    placeholders: tuple[Any, ...] = ()
    mutated: tuple[int, ...] = ()

    def wrap(self, run: Callable[[list[Any]], Any], constants: Sequence[torch.Tensor]) -> Callable[[list[Any]], Any]:
        """`run` (of a list of inputs, which it empties), recorded when it is called."""
        from torch._inductor import cudagraph_trees

        if not self.recorded:

            def told(arguments: list[Any]) -> Any:  # the tree must know that a backward runs
                manager = cudagraph_trees.get_manager(self.device, create_if_none_exists=False)
                if manager is not None:
                    manager.set_to_running_backward()
                return run(arguments)

            return told
        return cudagraph_trees.cudagraphify_impl(
            run,
            [0 if place in self.integers else None for place in range(self.inputs)],
            self.static,
            device_index=self.device,
            is_backward=self.kind == BACKWARD,
            is_inference=self.kind == INFERENCE,
            stack_traces=[None] * self.outputs,
            constants=tuple(constants),
            placeholders=self.placeholders,
            mutated_input_idxs=self.mutated,
        )


class Captures:
    """The captures of one graph's forward and backward, which belong together."""

    def __init__(self) -> None:
        self._forward: Capture | None = None

    def of(self, graph: fx.GraphModule, kind: str) -> Capture | None:
        """How a graph of AOTAutograd's is recorded, or None where it runs as it is."""
        if kind == BACKWARD and self._forward is None:
            return None
        static = tuple(range(count_tangents(graph))) if kind == BACKWARD else _fixed()
        mutated = find_input_mutations(graph.graph)
        if reason := _obstacle(graph, mutated - set(static)):
            log_cudagraph_skip_and_bump_counter(f"skipping cudagraphs due to {reason}")
            return Capture(kind, self._forward.device, recorded=False) if kind == BACKWARD else None
        inputs = [node for node in graph.graph.nodes if node.op == "placeholder"]
        numbers = [place for place, node in enumerate(inputs) if isinstance(node.meta["val"], (int, torch.SymInt))]
        capture = Capture(
            kind,
            _device(graph),
            static=static,
            integers=tuple(numbers),
            inputs=len(inputs),
            outputs=len(graph.graph.output_node().args[0]),
            placeholders=tuple(get_placeholder_info(graph.graph)),
            mutated=tuple(sorted(mutated)),
        )
        if kind == FORWARD:
            self._forward = capture
        return capture


def _fixed() -> tuple[int, ...]:
    """The inputs of a forward that are parameters."""
    context = torch._guards.TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    return tuple(metadata.static_input_indices) if metadata is not None else ()


def _obstacle(graph: fx.GraphModule, written: set[int]) -> str:
    if written:
        return f"{len(written)} inputs that are written"
    if reason := check_multiple_devices_or_any_cpu_nodes(get_device_node_mapping(graph)):
        return reason
    node = get_first_incompatible_cudagraph_node(graph)
    return f"the operation {node.target}" if node is not None else ""


def _device(graph: fx.GraphModule) -> int:
    (device,) = get_device_node_mapping(graph)
    return device.index


# --- Gradients that outlive their step -------------------------------------------------------------------------------

# What recorded graphs may have given a gradient: every leaf that a compiled forward had, by id.
_leaves: dict[int, weakref.ref[torch.Tensor]] = {}


def keep_gradients(run: Callable[..., Any], example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """`run`, which copies gradients out of recorded memory where it begins a step that would write there: gradients
    accumulate over steps, and `zero_grad(set_to_none=False)` works. Where they are None by then, this is a look at each."""
    tensors = [(place, each) for place, each in enumerate(example_inputs) if isinstance(each, torch.Tensor)]
    places = [place for place, each in tensors if each.requires_grad and each.is_leaf and each.is_cuda]
    if not places:
        return run

    def keeping(*arguments: Any) -> Any:
        for place in places:
            leaf = arguments[place]
            known = _leaves.get(id(leaf))
            if known is None or known() is not leaf:
                _leaves[id(leaf)] = weakref.ref(leaf)
        _keep(arguments[places[0]].device.index)
        return run(*arguments)

    return keeping


def _keep(device: int) -> None:
    from torch._inductor import cudagraph_trees

    manager = cudagraph_trees.get_manager(device, create_if_none_exists=False)
    if manager is None or manager.current_node is None or not manager.can_start_new_generation():
        return
    held = []
    for number, reference in list(_leaves.items()):
        leaf = reference()
        if leaf is None:
            del _leaves[number]
        elif leaf.grad is not None:
            held.append(leaf)
    if not held:
        return
    recorded = {storage.data_ptr() for storage in manager.current_node.path_live_weakrefs()}
    for leaf in held:
        grad = leaf.grad
        plain = type(grad) is torch.Tensor and grad.layout is torch.strided
        if not plain or grad.untyped_storage().data_ptr() in recorded:
            leaf.grad = grad.detach().clone()
