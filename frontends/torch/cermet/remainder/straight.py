"""An ATen graph as a straight-line Python function: what `remainder="aot"` runs.

One line calls one operation, a chain of views too (views.py); operations and constants are globals of the function,
which costs no attribute look-up; a value is deleted behind the last line that reads it. The function takes its
arguments in a list and empties it, so that saved activations go as soon as the backward has read them. A launch that
writes over an argument (places.py) asks whether that is the graph's alone.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextvars import ContextVar
from typing import Any

import torch
import torch.fx as fx
from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache
from torch._inductor.output_code import OutputCode

from ..graph.memory import is_view
from ..graph.nodes import example
from ..loss import kept
from ..loss.chunks import Call
from ..ops import regions
from ..rematerialization.places import Otherwise
from . import foresight, pickling, views
from .capture import Capture
from .orders import unsure
from .ownership import alone

_heard: ContextVar[list[StraightLine] | None] = ContextVar("cermet_straight_lines", default=None)
_VIEWS = (torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default)
_LITERALS = (bool, int, str, type(None), type(Ellipsis))


class StraightLine(OutputCode):
    """A compiled graph that AOTAutogradCache keeps: its source and the operations and constants that it names."""

    def __init__(
        self,
        graph: fx.GraphModule,
        capture: Capture | None = None,
        refuses_grad: bool = False,
        otherwise: Mapping[fx.Node, Otherwise] | None = None,
        returned: int = 0,
    ) -> None:
        """`refuses_grad`: a call in grad mode raises. `otherwise`: launches that write over arguments, if they may.
        `returned`: how many results, the first, somebody may write."""
        super().__init__()
        self._boxed_call = True  # of the instance: what torch wraps around it copies that
        self.source, self._constants = _write(graph, otherwise or {}, returned)
        self._capture = capture  # under CUDA graphs
        self._refuses_grad = refuses_grad
        self._regions = regions.kept(_launched(graph, otherwise or {}))
        self.otherwise: Callable[[], StraightLine | None] | None = None  # what runs in its place, where it cannot run
        self.peak = 0  # bytes that are held at the most while it and its forward run, where that was asked for
        self._pickled: bytes | None = None
        self._run: Callable[[list[Any]], Any] | None = self._load()

    def __call__(self, inputs: Sequence[Any]) -> Any:
        """The graph's outputs; `inputs` is a list, which is empty afterwards."""
        return self._run(inputs)

    def _load(self) -> Callable[[list[Any]], Any]:
        run = _function(self.source, self._constants)
        if self._capture is not None:
            tensors = [value for value in self._constants.values() if isinstance(value, torch.Tensor)]
            run = self._capture.wrap(run, tensors)
        return _without_grad(run) if self._refuses_grad else run

    def settle(self) -> None:
        """Becomes what runs in its place, if that is needed. Before it runs, and before it is kept."""
        otherwise, self.otherwise = self.otherwise, None
        if otherwise is not None and (other := otherwise()) is not None:
            self.become(other)

    def become(self, other: StraightLine) -> None:
        """Runs what another does; what stands for it where it cannot run stays the same."""
        otherwise = self.otherwise
        vars(self).update(vars(other))
        self.otherwise = otherwise

    def prepare_for_serialization(self) -> None:
        """Raises BypassAOTAutogradCache where a constant cannot be kept."""
        try:
            self.settle()
            self._pickled = pickling.dumps(self._constants)
        except Exception as error:
            raise BypassAOTAutogradCache(f"a constant of the graph cannot be kept: {error}") from error
        self._constants, self._run = {}, None

    def post_compile(self, example_inputs: Sequence[Any], constants: Any, graph_kwargs: Any) -> None:
        """Makes what a cache kept callable again."""
        if (heard := _heard.get()) is not None:
            heard.append(self)
        if self._run is None:
            for text, orders, places in self._regions:
                regions.register(text, orders, places)
            self._constants = pickling.loads(self._pickled)
            self._run = self._load()

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """Nothing here is Triton's."""


@contextlib.contextmanager
def hearing() -> Iterator[list[StraightLine]]:
    """Those that a cache gives meanwhile."""
    heard: list[StraightLine] = []
    token = _heard.set(heard)
    try:
        yield heard
    finally:
        _heard.reset(token)


def _function(source: str, constants: dict[str, Any]) -> Callable[[list[Any]], Any]:
    names = dict(constants)
    for name in names:
        if name.startswith("f"):  # called: without the Python that torch has around the dispatcher's function
            names[name] = getattr(names[name], "_op", names[name])
    exec(compile(source, "<cermet aot>", "exec"), names)
    return names["run"]


def _without_grad(run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    def checked(arguments: list[Any]) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "double backward is not supported in a compiled graph; call it outside of torch.compile, or backward "
                "without create_graph"
            )
        return run(arguments)

    return checked


# --- Writing ---------------------------------------------------------------------------------------------------------


def _write(
    module: fx.GraphModule, otherwise: Mapping[fx.Node, Otherwise], returned: int
) -> tuple[str, dict[str, Any]]:
    """The source of `run(arguments)`, and its globals."""
    nodes, heads = foresight.asked(module)
    strange, seen = unsure(nodes), views.of(module, nodes)
    reads = _reads(nodes, seen, {each for calls in heads.values() for call in calls for each in call.operands})
    last = {source: node for node in nodes for source in reads.get(node, ())}
    roots = {seen[node].root for node in reads if node in seen}
    names: dict[fx.Node, str] = {}
    constants = _Constants(names)
    inputs = [node for node in nodes if node.op == "placeholder"]
    for index, node in enumerate(inputs):
        names[node] = f"a{index}"
    lines = ["def run(arguments):"]
    for each in dict.fromkeys(each for launch in otherwise.values() for each in launch.inputs):
        asked = f"{constants.name(alone, 'f')}(arguments, {inputs.index(each)})"
        lines.append(f"    {_free(names[each])} = {asked}")
    if inputs:
        lines += [f"    {''.join(names[node] + ', ' for node in inputs)}= arguments", "    arguments.clear()"]
    lines += [_asks(call, constants) for node in inputs for call in heads.get(node, ())]
    dead = [names[node] for node in inputs if node not in last]
    if dead:
        lines.append(f"    del {', '.join(dead)}")
    lines += [_laid(node, constants) for node in inputs if node in roots]
    for index, node in enumerate(nodes):
        if node.op == "placeholder" or node not in reads:
            continue
        if node.op == "output":
            lines += [f"    {names[each]} = {names[each]}.detach()" for each in _seen(node, returned)]
            lines.append(f"    return {constants.written(node.args[0])}")
            continue
        if node.op == "get_attr":
            names[node] = constants.name(_attribute(module, str(node.target)))
            continue
        names[node] = f"v{index}"
        if node in seen:
            called = _view(seen[node], constants)
        else:
            called = _call(node, constants, otherwise.get(node), strange)
        lines.append(f"    {names[node] + ' = ' if node in last else ''}{called}")
        if node in roots:
            lines.append(_laid(node, constants))
        lines += [_asks(call, constants) for call in heads.get(node, ())]
        done = [source for source in reads[node] if last[source] is node and source.op != "get_attr"]
        if done:
            lines.append(f"    del {', '.join(names[source] for source in done)}")
    return "\n".join(lines) + "\n", constants.values


def _seen(output: fx.Node, returned: int) -> list[fx.Node]:
    """The returned results that are views and may have gradients, each once. Autograd lets nobody write a view that a
    function returns: what a program returned as one it has of AOTAutograd, which makes it of its base; the others are
    views by chance."""
    results = output.args[0][:returned] if returned else ()
    nodes = dict.fromkeys(each for each in results if isinstance(each, fx.Node) and each.op == "call_function")
    return [node for node in nodes if is_view(node) and example(node).is_floating_point()]


def _reads(
    nodes: Sequence[fx.Node], seen: Mapping[fx.Node, views.View], asked: Set[fx.Node]
) -> dict[fx.Node, list[fx.Node]]:
    """What is called, and what each call reads: a view its root. Views that nothing reads are not called."""
    reads: dict[fx.Node, list[fx.Node]] = {}
    read = set(asked)
    for node in reversed(nodes):
        if node not in read and (node in seen or views.only_looks(node)):
            continue
        reads[node] = [seen[node].root] if node in seen else node.all_input_nodes
        read.update(reads[node])
    return reads


def _view(view: views.View, constants: _Constants) -> str:
    arguments = [view.root, view.sizes, view.strides, *([view.offset] if view.offset else [])]
    return f"{constants.name(views.viewed, 'f')}({', '.join(map(constants.written, arguments))})"


def _laid(root: fx.Node, constants: _Constants) -> str:
    """The line that lays a value as its views expect, if it is not."""
    name, strides = constants.written(root), constants.written(example(root).stride())
    return f"    if {name}.stride() != {strides}: {name} = {constants.name(views.laid, 'f')}({name}, {strides})"


def _launched(module: fx.GraphModule, otherwise: Mapping[fx.Node, Otherwise]) -> dict[int, None]:
    """The keys of all that a graph may launch; another process has to be told of them."""
    keys = [regions.launched(node) for node in module.graph.nodes]
    return dict.fromkeys(key for key in (*keys, *(each.key for each in otherwise.values())) if key is not None)


def _asks(call: Call, constants: _Constants) -> str:
    """The line that asks which rows a head will multiply."""
    given = constants.written([*call.operands])
    return f"    {constants.name(kept.foresee, 'f')}({given}, {call.key}, {call.position}, {any(call.wanted)})"


def _free(name: str) -> str:
    """The variable that says whether an argument is nobody else's."""
    return f"free_{name}"


def _call(node: fx.Node, constants: _Constants, otherwise: Otherwise | None, strange: Set[fx.Node]) -> str:
    """`strange`: values of which a view may need a copy."""
    if node.op == "call_function" and node.target is operator.getitem and isinstance(node.args[1], int):
        return f"{constants.written(node.args[0])}[{node.args[1]}]"
    arguments = [constants.written(argument) for argument in node.args]
    if otherwise is not None:
        condition = " and ".join(_free(constants.written(each)) for each in otherwise.inputs)
        arguments[-1] += f" if {condition} else {otherwise.key}"
    arguments += [f"{name}={constants.written(value)}" for name, value in node.kwargs.items()]
    if node.op == "call_method":
        return f"{arguments[0]}.{node.target}({', '.join(arguments[1:])})"
    target = node.target if node.op == "call_function" else _attribute(node.graph.owning_module, str(node.target))
    if target in _VIEWS and node.args[0] in strange:
        target = torch.ops.aten.reshape.default
    return f"{constants.name(target, 'f')}({', '.join(arguments)})"


def _attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


class _Constants:
    """What a function's text names instead of writing it."""

    def __init__(self, names: dict[fx.Node, str]) -> None:
        self.values: dict[str, Any] = {}
        self._names = names
        self._known: dict[tuple[str, int], str] = {}
        self._texts: dict[str, str] = {}

    def name(self, value: Any, kind: str = "c") -> str:
        """The global that is `value`; of kind "f" where it is called."""
        if (kind, id(value)) not in self._known:
            self._known[kind, id(value)] = f"{kind}{len(self.values)}"
            self.values[self._known[kind, id(value)]] = value
        return self._known[kind, id(value)]

    def written(self, value: Any) -> str:
        """An argument as Python text."""
        if isinstance(value, fx.Node):
            return self._names[value]
        if type(value) in _LITERALS:
            return repr(value)
        if isinstance(value, (list, tuple)) and not _has_node(value):
            return self._shared(value)
        if isinstance(value, list):
            return f"[{', '.join(map(self.written, value))}]"
        if isinstance(value, tuple):
            return f"({''.join(self.written(item) + ', ' for item in value)})"
        if isinstance(value, dict):
            items = (f"{self.written(key)}: {self.written(item)}" for key, item in value.items())
            return f"{{{', '.join(items)}}}"
        if isinstance(value, slice):
            return f"slice({', '.join(map(self.written, (value.start, value.stop, value.step)))})"
        return self.name(value)

    def _shared(self, value: Any) -> str:
        """A list or tuple of constants, equal ones once."""
        text = f"{type(value).__name__}{value!r}"
        if text not in self._texts:
            self._texts[text] = self.name(list(value) if isinstance(value, list) else tuple(value))
        return self._texts[text]


def _has_node(value: Any) -> bool:
    found: list[fx.Node] = []
    fx.map_arg(value, found.append)
    return bool(found)
