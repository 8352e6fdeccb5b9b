"""A call of a module, as far as its trace depends on what the caller has."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._dynamo.variables.base import ValueMutationNew
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.dicts import ConstDictVariable
from torch._dynamo.variables.lazy import LazyVariableTracker
from torch._dynamo.variables.lists import ListVariable, SizeVariable, TupleVariable
from torch._dynamo.variables.tensor import TensorVariable
from torch._guards import Source

from ..graph.memory import memories
from .asked_gradients import times_asked
from .guards import form
from .sources import without_kind
from .writes import reads_of, written

VALUE = "example_value"  # in a node's meta


class Unlike(Exception):
    """What is there is not what was traced, or what could be."""


@dataclasses.dataclass
class Call:
    tx: Any
    module: torch.nn.Module
    source: Source
    named: Source  # as Dynamo names it to who reads the graph
    given: list[Any]  # all that is not a tensor, and what kind of tensors
    tensors: list[Any]
    held: list[tuple[Any, list[Any]]]  # new lists and dicts that it is given, and what is in each
    state: list[Any]

    @staticmethod
    def of(variable: Any, tx: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        """Raises Unlike where it is given what the program made and could write to, but for lists and dicts."""
        given: list[Any] = [(len(args), *kwargs)]
        tensors: list[Any] = []
        held: list[tuple[Any, list[Any]]] = []
        for value in (*args, *kwargs.values()):
            _take(value, given, tensors, held)
        nodes = list(map(node_of, tensors))
        given.append([nodes.index(node) for node in nodes])  # which are one
        lie = [memories(node.meta[VALUE]) for node in nodes]
        given.append([lie.index(each) for each in lie])  # which lie in one memory
        lists = [id(each) for each, _ in held]
        given.append([lists.index(each) for each in lists])  # which of them are one
        source, named = without_kind(variable.source), variable.get_nn_module_stack_source()
        return Call(tx, variable.value, source, named, given, tensors, held, state(tx))

    def was_read_only(self, result: Any) -> bool:
        """Whether what it is given holds what it held, and is no part of the result."""
        given = [each for each, _ in self.held]
        return all(_are_ones(_inside(each), inside) for each, inside in self.held) and not any(
            each is one for each in _lists(result) for one in given
        )

    @property
    def nodes(self) -> list[fx.Node]:
        return list(map(node_of, self.tensors))

    @property
    def values(self) -> list[torch.Tensor]:
        return [node.meta[VALUE] for node in self.nodes]

    def forms(self) -> list[Any]:
        return list(map(form, self.values))


def node_of(tensor: TensorVariable) -> fx.Node:
    return tensor.as_proxy().node


def _take(value: Any, given: list[Any], tensors: list[Any], held: list[tuple[Any, list[Any]]]) -> None:
    if isinstance(value, LazyVariableTracker) and not value.is_realized():  # nobody has looked at it yet
        given.append(value.original_source())
        return
    value = value.realize()
    if type(value) is TensorVariable and isinstance(tensor := node_of(value).meta.get(VALUE), torch.Tensor):
        given.append((value.class_type, form(tensor)))
        tensors.append(value)
    elif isinstance(value, ConstantVariable):  # of the same source: it may be guarded when it is used
        given.append((type(value.value), repr(value.value), value.source))
    elif type(value) in (TupleVariable, SizeVariable):
        given.append((type(value), len(value.items)))
        for each in value.items:
            _take(each, given, tensors, held)
    elif type(value) in (ListVariable, ConstDictVariable) and _is_new(value):
        inside = _inside(value)
        given.append((type(value), len(inside)))
        held.append((value, inside))
        for each in inside:
            _take(each, given, tensors, held)
    elif value.source is not None:  # who wrote into it since is asked elsewhere
        given.append(value.source)
    else:
        raise Unlike


def _inside(value: Any) -> list[Any]:
    """Of a list or a dict, whose keys are told as its values are."""
    if type(value) is ListVariable:
        return list(value.items)
    return [*(getattr(key, "vt", key) for key in value.items), *value.items.values()]


def _are_ones(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(some) == len(others) and all(one is other for one, other in zip(some, others))


def _lists(result: Any) -> Iterator[Any]:
    result = result.realize()
    if type(result) in (TupleVariable, ListVariable):
        yield result
        for each in result.items:
            yield from _lists(each)


def tensors_in(result: Any) -> Iterator[Any]:
    """Raises Unlike where a result is of other things than tensors, constants and tuples and new lists of them."""
    result = result.realize()
    if type(result) is TensorVariable:
        yield result
    elif type(result) is TupleVariable or type(result) is ListVariable and _is_new(result):
        for each in result.items:
            yield from tensors_in(each)
    elif not isinstance(result, ConstantVariable):
        raise Unlike


def with_tensors(result: Any, tensor: Callable[[fx.Node], Any]) -> Any:
    """A result that has other tensors."""
    result = result.realize()
    if type(result) is TensorVariable:
        return tensor(node_of(result))
    if type(result) is TupleVariable:
        return TupleVariable([with_tensors(each, tensor) for each in result.items])
    if type(result) is ListVariable:
        return ListVariable([with_tensors(each, tensor) for each in result.items], mutation_type=ValueMutationNew())
    return result


def _is_new(value: Any) -> bool:
    return isinstance(value.mutation_type, ValueMutationNew)


def state(tx: Any) -> list[Any]:
    """What a trace has beside values: two are equal if a module traced there becomes the same. Raises Unknown."""
    output = tx.output
    functions = tx.symbolic_torch_function_state
    return [
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype(),
        [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")],
        torch.is_autocast_cache_enabled(), torch.are_deterministic_algorithms_enabled(),
        torch._C._len_torch_function_stack(), len(functions.mode_stack),
        functions.torch_function_subclass_enabled, functions.torch_function_mode_enabled,
        torch.fx.traceback.current_meta.get("custom"),
        times_asked(output), written(output.side_effects),
    ]  # fmt: skip


def marks(tx: Any) -> list[int]:
    """What grows where a module does more than add calls to a graph."""
    output = tx.output
    effects = output.side_effects
    return [
        len(output.random_calls), output.shape_env.unbacked_symint_counter,
        len(effects.tensor_hooks), len(effects.save_for_backward), reads_of(effects),
    ]  # fmt: skip
