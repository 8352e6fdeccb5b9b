"""An FX graph as graph text. Import is total: what no table knows becomes `cermet.opaque`, and nothing raises.

The text is a value graph, a Dynamo graph is not. A node that writes memory becomes an opaque `write` that returns new
versions of its target and of every live value on the same storage; later readers use those. Each name in the text
maps to a `Definition`: the FX node, and between which writes that node's memory holds the named value.

Accepted are graphs at the Dynamo level (`meta["example_value"]`) and after AOTAutograd (`meta["val"]`).
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .. import native
from ..graph.effects import PURE, WRITE, effect_of, transform_edge
from ..graph.memory import HIDDEN, memories
from ..graph.nodes import after_autograd, attribute, example, target_name, tensor_nodes
from ..graph.traffic import judged
from ..text import ELEMENT_TYPES, Builder, Dim, TensorType, Value
from .translations.call import Call, Refused
from .translations.operators import spelling, translation, translation_of_several

_UNKNOWN = TensorType((), None)
_MAX_RANK, _MAX_ELEMENTS = native.limit("rank"), native.limit("dimension")


@dataclasses.dataclass(frozen=True)
class Definition:
    """Where a named value lives: in `node`'s tensor, from after `since` until `until` writes it (None: to the end)."""

    node: fx.Node
    version: int = 0
    since: fx.Node | None = None  # None: from the node itself on
    until: fx.Node | None = None


@dataclasses.dataclass
class Imported:
    """The text of a graph, what its names mean, and the state in which each node runs."""

    text: str
    definitions: dict[str, Definition]
    states: dict[fx.Node, tuple[Any, ...]]  # (grad mode, open contexts); equal for nodes that may be fused
    refusals: dict[str, str]  # node name -> why a known call stayed opaque
    computing: frozenset[str]  # names of nodes that compute for each element, or reduce

    def contexts(self, node: fx.Node) -> tuple[fx.Node, ...]:
        """What is open where a node runs: autocast, inference mode, transforms of torch.func."""
        return self.states[node][1:]


def dimension(size: Any) -> Dim:
    if isinstance(size, int):
        return size
    text = str(size.node.expr)
    return int(text) if text.isdigit() else text  # what tracing has found to be a number since


def tensor_type(value: Any) -> TensorType | None:
    """The type of a traced value; None where it is no tensor, `none` where the dialect has no type for it (subclasses,
    sparse tensors, other dtypes, no elements, more than 8 dimensions). A complex number is a pair of real ones, if that
    is what memory has (a conjugate's is another)."""
    if not isinstance(value, torch.Tensor):
        return None
    paired = value.is_complex() and value.layout == torch.strided and not value.is_conj()
    element = ELEMENT_TYPES.get(value.dtype.to_real() if paired else value.dtype)
    if element is None or value.layout != torch.strided or is_traceable_wrapper_subclass(value):
        return _UNKNOWN
    dims = (*(dimension(size) for size in value.shape), *((2,) if paired else ()))
    numbers = [dim for dim in dims if isinstance(dim, int)]
    if 0 in numbers or len(dims) > _MAX_RANK or math.prod(numbers) > _MAX_ELEMENTS:
        return _UNKNOWN
    return TensorType(dims, element)


def strides_if_not_contiguous(value: torch.Tensor) -> list[int] | None:
    """A traced argument's strides (-1 where they are no numbers) unless they are those of a dense row-major tensor."""
    expected: Any = 1
    contiguous = True
    for size, stride in zip(reversed(value.shape), reversed(value.stride())):
        contiguous = contiguous and (dimension(size) == 1 or dimension(stride) == dimension(expected))
        expected = expected * size
    if contiguous:
        return None
    return [stride if isinstance(stride, int) else -1 for stride in value.stride()]


def _is_dense(value: torch.Tensor, type: TensorType) -> bool:
    """Whether a call's result is one that kernels may view in other shapes."""
    return type.is_float and len(type.dims) > 1 and strides_if_not_contiguous(value) is None


class _Importer:
    def __init__(
        self, module: fx.GraphModule, body_of: Callable[[fx.Node], str], ends: Callable[[fx.Node], bool]
    ) -> None:
        self.module = module
        self.body_of = body_of
        self.ends = ends
        self.judged = after_autograd(module.graph)  # by bytes, at the sizes at hand
        self.builder = Builder("graph", differentiable=not self.judged)
        self.values: dict[fx.Node, Value] = {}
        self.several: dict[fx.Node, list[tuple[Value, str] | None]] = {}  # nodes that return a tuple or list
        self.memory: dict[fx.Node, frozenset[Any]] = {}
        self.returned: dict[fx.Node, fx.Node | None] = {}  # node -> the operand that it gives back
        self.merged: dict[Any, frozenset[Any]] = {}  # memory of what such a node gave -> that of its operand
        self.products: set[fx.Node] = set()  # complex values that the text computes
        self.pairs: dict[fx.Node, fx.Node] = {}  # other complex values -> a view of them as real ones
        self.current: dict[fx.Node, str] = {}  # node -> name of its newest version
        self.definitions: dict[str, Definition] = {}
        self.states: dict[fx.Node, tuple[Any, ...]] = {}
        self.refusals: dict[str, str] = {}
        self.order = {node: index for index, node in enumerate(module.graph.nodes)}
        self.last_use = {node: max((self.order[user] for user in node.users), default=-1) for node in self.order}
        for node in self.order:
            if spelling(node) == "view_as_real" and node.all_input_nodes:  # read for what it is a view of
                self.last_use[node] = max(self.last_use[node], self.last_use[node.all_input_nodes[0]])
        self.grad_mode: Any = torch.is_grad_enabled()
        self.contexts: list[Any] = []

    def run(self) -> Imported:
        for node in self.module.graph.nodes:
            self._track_state(node)
            self.states[node] = (self.grad_mode, *self.contexts)
            if node.op == "output":
                for operand in tensor_nodes(node.args):
                    for value in self._operands(operand):
                        self.builder.result(value)
            elif node.op == "placeholder":
                self._argument(node)
            else:
                self._operation(node)
        return Imported(
            self.builder.text(), self.definitions, self.states, self.refusals, self.builder.computing()
        )

    def _track_state(self, node: fx.Node) -> None:
        name = target_name(node) if node.op == "call_function" else ""
        if name.endswith("_set_grad_enabled"):
            self.grad_mode = node.args[0] if node.args else None
        elif name.endswith("_enter_autocast") or name.endswith("_enter_inference_mode"):
            self.contexts.append(node)
        elif name.endswith("_exit_autocast") or name.endswith("_exit_inference_mode"):
            self.contexts = [context for context in self.contexts if context not in node.args]
        elif (begins := transform_edge(node)) is not None:
            opened = [context for context in self.contexts if transform_edge(context)][-1:]
            self.contexts = [context for context in self.contexts if begins or context not in opened]
            self.contexts += [node] if begins else []

    def _define(self, node: fx.Node, value: Value, tensor: Any = None, name: str = "") -> None:
        """`value`, which the text calls `name`, is what `node` computes."""
        name = name or node.name
        self.values[node] = value
        tensor = example(node) if tensor is None else tensor
        if self.judged and isinstance(tensor, torch.Tensor):
            sizes = {dimension(size): judged(size) for size in tensor.shape}
            self.builder.sizes |= {symbol: size for symbol, size in sizes.items() if isinstance(symbol, str) and size}
        same = self.returned.get(node)
        if same in self.memory:
            self.merged |= dict.fromkeys(memories(tensor) - {HIDDEN}, self.memory[same])
        self.memory[node] = self._memory(tensor)
        self.current[node] = name
        self.definitions[name] = Definition(node)

    def _argument(self, node: fx.Node) -> None:
        value = example(node)
        type = tensor_type(value)
        if type is None:
            return
        known = type.element is not None and not value.is_complex()
        strides = strides_if_not_contiguous(value) if known else None
        self._define(node, self.builder.argument(type, node.name, strides))

    def _operands(self, node: fx.Node) -> list[Value]:
        if node in self.values:
            return [self.values[node]]
        return [item[0] for item in self.several.get(node, []) if item is not None]

    def _value(self, node: fx.Node) -> Value:
        if node not in self.values:
            raise Refused("an operand that is not a tensor")
        return self.values[self.pairs.get(node, node)]

    def _operation(self, node: fx.Node) -> None:
        if node.op == "get_attr":
            return self._attribute(node)
        effect = effect_of(node, self.module)
        self.returned[node] = effect.returned
        if effect.kind == WRITE and self._written(effect.written):
            return self._write(node, effect.written)
        if effect.kind == PURE and (self._element_of_several(node) or self._translated(node)):
            return
        self._opaque(node, "pure" if effect.kind == PURE else "effectful")

    def _attribute(self, node: fx.Node) -> None:
        tensor = example(node)
        if tensor is None:
            tensor = attribute(self.module, node.target)
        type = tensor_type(tensor)
        if type is not None:
            self._define(node, self.builder.opaque(f"get_attr {node.target}", [], [type], node.name)[0], tensor)

    def _translated(self, node: fx.Node) -> bool:
        result = example(node)
        if self._viewed(node) is not None:
            return False
        if isinstance(result, (tuple, list)):
            return self._attempt(node, lambda: self._translate_several(node, result))
        type = tensor_type(result)
        if type is None or type.element is None or translation(node) is None:
            return False
        return self._attempt(node, lambda: self._translate_one(node, type))

    def _attempt(self, node: fx.Node, translate: Callable[[], bool]) -> bool:
        """What `translate` says, or False without a trace in the text where it refuses or fails."""
        mark = self.builder.mark()
        try:
            return translate()
        except Refused as reason:
            self.refusals[node.name] = str(reason)
        except Exception as error:  # an argument of a form that no table foresaw
            self.refusals[node.name] = f"{type(error).__name__}: {error}"
        self.builder.rollback(mark)
        return False

    def _translate_one(self, node: fx.Node, type: TensorType) -> bool:
        translate = translation(node)
        assert translate is not None
        value = translate(Call(self.builder, node, self._value, type))
        if value.type != type:
            raise Refused(f"a translation of {value.type}, the call gives {type}")
        self._define(node, value)
        if example(node).is_complex():
            self.products.add(node)
        elif self.ends(node):
            self._end(node)
        return True

    def _end(self, node: fx.Node) -> None:
        """Who reads the value reads what is in memory."""
        name, type = f"{node.name}#made", self.values[node].type
        dense = [0] if _is_dense(example(node), type) else []
        self.values[node] = self.builder.opaque("made", [self.values[node]], [type], name, dense=dense)[0]
        self.definitions[name] = Definition(node, 1)

    def _viewed(self, node: fx.Node) -> fx.Node | None:
        """The complex value from elsewhere that a call gives as pairs of real numbers: memory that a kernel can read."""
        source = node.all_input_nodes[0] if spelling(node) == "view_as_real" and node.all_input_nodes else None
        return source if source in self.values and source not in self.products else None

    def _translate_several(self, node: fx.Node, result: tuple[Any, ...] | list[Any]) -> bool:
        """The results of a call that gives several, if the text has words for all that is read."""
        translate = translation_of_several(node)
        if translate is None:
            return False
        types = [tensor_type(item) for item in result]
        readers: list[list[fx.Node]] = [[] for _ in types]
        for user in node.users:
            readers[self._read_element(user, node, len(types))].append(user)
        # A result that one getitem reads is named after it, else `node#i`: either way by one name in the text.
        names = [users[0].name if len(users) == 1 else f"{node.name}#{i}" for i, users in enumerate(readers)]
        call = Call(self.builder, node, self._value, None, types)

        def named(index: int) -> None:
            call.name = names[index]

        values = translate(call, named)
        for value, type, users in zip(values, types, readers, strict=True):
            if value is None and users or value is not None and value.type != type:
                raise Refused(f"a translation of {'nothing' if value is None else value.type}, the call gives {type}")
        self.several[node] = [None if value is None else (value, name) for value, name in zip(values, names)]
        return True

    def _read_element(self, user: fx.Node, node: fx.Node, count: int) -> int:
        """Which result of `node` a getitem reads. Raises Refused for any other use."""
        getitem = user.target in (operator.getitem, "__getitem__") and user.args[:1] == (node,) and len(user.args) == 2
        index = user.args[1] if getitem else None
        if not isinstance(index, int) or not -count <= index < count:
            raise Refused(f"{user.name} reads the whole of several results")
        return index % count

    def _element_of_several(self, node: fx.Node) -> bool:
        """`getitem` on a node that returned a tuple or list: the same value under a name of its own."""
        if len(node.args) != 2 or not isinstance(node.args[0], fx.Node) or node.args[0] not in self.several:
            return False
        index, several = node.args[1], self.several[node.args[0]]
        if not isinstance(index, int) or not -len(several) <= index < len(several) or several[index] is None:
            return False
        value, name = several[index]
        known = self.definitions.get(name)
        self._define(node, value, name=name)
        if known is not None:  # another reader of the same element came first
            self.definitions[name] = known
        return True

    def _is_value(self, node: fx.Node) -> bool:
        return node in self.values or node in self.several

    def _inputs(self, node: fx.Node) -> list[Value]:
        return [value for operand in tensor_nodes((node.args, node.kwargs)) for value in self._operands(operand)]

    def _opaque(
        self, node: fx.Node, effect: str, operands: list[Value] | None = None, versions: int = 0
    ) -> list[tuple[Value, str]]:
        """The node as an opaque operation; returns its new versions, each with its name in the text (of several results
        the i-th is `node#i`)."""
        operands = self._inputs(node) if operands is None else operands
        result = example(node)
        several = isinstance(result, (tuple, list))
        own = [tensor_type(item) for item in (result if several else [result])]
        types = [operand.type for operand in operands[:versions]] + [type for type in own if type is not None]
        given = [item for item, type in zip(result if several else [result], own) if type is not None]
        pairs = enumerate(zip(given, types[versions:]), versions) if not self.builder.differentiable else ()
        dense = [index for index, (item, type) in pairs if _is_dense(item, type)]
        body = self.body_of(node) if effect == "pure" else ""
        target = describe(node, self._is_value)
        values = self.builder.opaque(target, operands, types, node.name, effect, versions, body, dense)
        names = [node.name] if len(types) == 1 else [f"{node.name}#{i}" for i in range(len(types))]
        named = list(zip(values, names))
        rest = iter(named[versions:])
        if several:
            self.several[node] = [next(rest) if type is not None else None for type in own]
        elif own[0] is not None:
            value, name = next(rest)
            self._define(node, value, name=name)
            if (source := self._viewed(node)) is not None:
                self.pairs[source] = node
        return named[:versions]

    def _written(self, nodes: tuple[fx.Node, ...]) -> list[fx.Node]:
        return [node for node in nodes if self._is_value(node)]

    def _write(self, node: fx.Node, written: tuple[fx.Node, ...]) -> None:
        """New versions for what is written and for every live value that shares its storage, elements of a tuple or
        list that are yet to be read among them."""
        targets = [target for target in written if target in self.values]
        memory = frozenset().union(*(self.memory[target] for target in targets))
        for pack in written:  # a list of tensors, as `torch._foreach_add_` takes
            memory |= self._memory(example(pack)) if pack in self.several else frozenset()
        position = self.order[node]
        aliases = [other for other in self.values if other not in targets and self.memory[other] & memory]
        versioned = list(dict.fromkeys(targets)) + [other for other in aliases if self.last_use[other] > position]
        elements = [
            (pack, index)
            for pack, several in self.several.items()
            for index, element in enumerate(several)
            if element and self.last_use[pack] > position and self._memory(example(pack)[index]) & memory
        ]
        for other in aliases:
            self._ends(other, node)
        operands = [self.values[target] for target in versioned]
        operands += [element[0] for pack, index in elements if (element := self.several[pack][index])]
        rest = [value for value in self._inputs(node) if value not in operands]
        if not operands:
            self._opaque(node, "effectful")
            return
        versions = self._opaque(node, "write", operands + rest, len(operands))
        for target, (value, name) in zip(versioned, versions):
            old = self._ends(target, node)
            self.values[target] = value
            self.definitions[name] = Definition(target, old.version + 1, since=node)
            self.current[target] = name
        for (pack, index), version in zip(elements, versions[len(versioned) :]):
            self.several[pack][index] = version

    def _memory(self, tensor: Any) -> frozenset[Any]:
        """What has something in common for values that share memory."""
        return frozenset().union(*(self.merged.get(part, {part}) for part in memories(tensor)))

    def _ends(self, target: fx.Node, write: fx.Node) -> Definition:
        """The newest version of `target` holds until `write`."""
        old = self.definitions[self.current[target]]
        if old.until is None:
            self.definitions[self.current[target]] = dataclasses.replace(old, until=write)
        return old


def describe(node: fx.Node, is_value: Callable[[fx.Node], bool]) -> str:
    """An opaque operation's target: the call and every argument that is no value of the text (a value is `%`), so that
    two operations of equal target and operands compute the same, and a near miss can be explained."""
    name = target_name(node).removeprefix("aten.")
    if name.startswith(("torch.", "operator.")):
        name = name.rpartition(".")[2]

    def text(argument: Any) -> str:
        if isinstance(argument, fx.Node):
            return "%" if is_value(argument) else argument.name
        if isinstance(argument, (tuple, list)):
            return f"[{', '.join(map(text, argument))}]"
        if isinstance(argument, slice):
            parts = (argument.start, argument.stop, argument.step)
            return ":".join("" if part is None else text(part) for part in parts)
        return repr(argument)

    arguments = [*map(text, node.args), *(f"{key}={text(value)}" for key, value in node.kwargs.items())]
    return f"{name}({', '.join(arguments)})"


def import_graph(
    module: fx.GraphModule,
    body_of: Callable[[fx.Node], str] = lambda node: "",
    ends: Callable[[fx.Node], bool] = lambda node: False,
) -> Imported:
    """The text of `module`'s graph (bodies of higher-order operators are graphs of their own).

    `body_of`: the graph text of what a call computes that no table knows, or "". `ends`: whether a value is made where
    it stands, and read of memory.
    """
    return _Importer(module, body_of, ends).run()
