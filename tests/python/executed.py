"""Graph text run beside the traced program, value by value.

The text is evaluated by its definition (docs/ir.md), apart from what it calls opaque, which is taken from the program.
Every name of the text is then compared with the memory of the node it stands for, when it begins to hold and when it
ends: an alias that was not seen, or a write that was missed, shows as a number that is not the program's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
import torch.fx as fx

from cermet.graph import seeded
from cermet.ops import library
from cermet.importing.importer import Definition, Imported, import_graph
from cermet.text import ELEMENT_TYPES

_DTYPES = {element: dtype for dtype, element in ELEMENT_TYPES.items()}
_LINE = re.compile(r'^\s*(?:(%\d+)(?::\d+)? = )?cermet\.(\w+) (.*) : (.*) loc\("((?:[^"\\]|\\.)*)"\)$')
_TENSOR = re.compile(r"tensor<((?:[\d?]+x)*)(\w+)(?:, #cermet\.symbols<\[([^\]]*)\]>)?>|none")
_VALUE = re.compile(r"%\w+(?:#\d+)?")
_NUMBER = r"0x[0-9A-F]+|-?\d+\.\d+(?:e[+-]?\d+)?"


def _silu(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + torch.exp(-x))


def _gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(x, approximate="tanh")


_ELEMENTWISE: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "pow": torch.pow, "max": torch.maximum,
    "min": torch.minimum, "neg": torch.neg, "abs": torch.abs, "exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt,
    "rsqrt": lambda x: 1 / torch.sqrt(x), "tanh": torch.tanh, "erf": torch.erf, "relu": torch.relu,
    "sigmoid": lambda x: 1 / (1 + torch.exp(-x)), "softplus": lambda x: -torch.nn.functional.logsigmoid(-x), "silu": _silu, "gelu": torch.nn.functional.gelu,
    "gelu_tanh": _gelu_tanh,
}  # fmt: skip
_COMPARISONS = {name: getattr(torch, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}


class Type:
    def __init__(self, match: re.Match[str]) -> None:
        self.known = match[0] != "none"
        if self.known:
            symbols = iter(re.findall(r'"((?:[^"\\]|\\.)*)"', match[3] or ""))
            self.dims = [next(symbols) if dim == "?" else int(dim) for dim in match[1].split("x")[:-1]]
            self.dtype = _DTYPES[match[2]]


def _arithmetic(value: torch.Tensor) -> torch.Tensor:
    """f32 is computed in f64, which rounds basic operations as f32 does; bf16 and f16 in f32, as torch does."""
    if value.dtype == torch.float32:
        return value.double()
    return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value


def _number(text: str, dtype: torch.dtype) -> float:
    bits = bytearray.fromhex(text[2:])[::-1] if text.startswith("0x") else b""
    return torch.frombuffer(bits, dtype=dtype).item() if bits else float(text)


class Evaluation:
    """The values of a text, by SSA name. `opaque` gives the results of what the text does not say; `kept`, called with
    the last value of each name, may put another in its place."""

    def __init__(
        self,
        text: str,
        arguments: list[Any],
        opaque: Callable[[str, str, int], list[Any]],
        kept: Callable[[str, Any], Any] = lambda _, value: value,
    ) -> None:
        self.values: dict[str, Any] = {f"%arg{i}": value for i, value in enumerate(arguments)}
        self.named: dict[str, str] = {}  # name -> the last value that carries it
        self.sizes: dict[str, int] = {}  # symbols
        self.results: list[Any] = []
        self.operations: list[str] = []
        signature = next(line for line in text.splitlines() if "func.func" in line)
        places = re.findall(r'(%arg\d+): (.*?)(?: \{[^}]*\})? loc\("((?:[^"\\]|\\.)*)"\)', signature)
        for place, type, name in places:
            self.named[name] = place
            self._learn(_types(type)[0], self.values[place])
        lines = text.splitlines()
        last = {match[5]: index for index, line in enumerate(lines) if (match := _LINE.match(line))}
        for index, line in enumerate(lines):
            if line.startswith("    ") and " cermet." in line:
                name = self._operation(line, opaque)
                if last[name] == index and name in self.named:
                    place = self.named[name]
                    self.values[place] = kept(name, self.values[place])
            elif line.strip().startswith("return"):
                self.results = [self.values[name] for name in _VALUE.findall(line.split(" : ")[0])]

    def _learn(self, type: Type, value: Any) -> None:
        if type.known:
            for dim, size in zip(type.dims, value.shape, strict=True):
                if isinstance(dim, str):
                    assert self.sizes.setdefault(dim, int(size)) == int(size), f"{dim} has two sizes"
                else:
                    assert dim == size, f"{dim} in the text, {size} when run"

    def _operation(self, line: str, opaque: Callable[[str, str, int], list[Any]]) -> str:
        """Runs a line; returns its name."""
        match = _LINE.match(line)
        assert match, line
        place, op, rest, type_text, name = match.groups()
        self.operations.append(op)
        if op == "opaque":
            versions = re.search(r"versions = (\d+)", rest)
            types = _types(type_text.split(" -> ")[-1])
            made = opaque(name, line, int(versions[1]) if versions else 0)
            assert len(made) == len(types), f"{name} gives {len(made)} results, its text {len(types)}\n{line}"
            several = len(types) > 1
            for index, (value, type) in enumerate(zip(made, types)):
                self._learn(type, value)
                self._put(f"{place}#{index}" if several else place, f"{name}#{index}" if several else name, value)
            return name
        type = _types(type_text)[-1]
        operands = [self.values[item] for item in _VALUE.findall(rest)]
        value = self._compute(op, rest, operands, type)
        assert list(value.shape) == self._shape(type, value), f"{list(value.shape)}, expected by {line}"
        self._put(place, name, value)
        return name

    def _put(self, place: str, name: str, value: Any) -> None:
        self.values[place] = value
        self.named[name] = place

    def _shape(self, type: Type, like: torch.Tensor | None = None) -> list[int]:
        shape = []
        for index, dim in enumerate(type.dims):
            if isinstance(dim, str) and dim not in self.sizes and like is not None:
                self.sizes[dim] = like.shape[index]
            shape.append(self.sizes[dim] if isinstance(dim, str) else dim)
        return shape

    def _compute(self, op: str, rest: str, operands: list[torch.Tensor], type: Type) -> torch.Tensor:
        if op in _ELEMENTWISE:
            result = _ELEMENTWISE[op](*map(_arithmetic, operands))
            return result.to(type.dtype)
        if op == "compare":
            return _COMPARISONS[rest.split('"')[1]](*operands)
        if op == "select":
            return torch.where(*operands)
        if op == "cast":
            return operands[0] != 0 if type.dtype == torch.bool else operands[0].to(type.dtype)
        if op == "constant":
            number = _number(re.match(_NUMBER, rest)[0], type.dtype)
            return torch.full(self._shape(type), number, dtype=torch.float64).to(type.dtype)
        if op == "iota":
            dim, shape = int(rest.split()[0]), self._shape(type)
            indices = torch.arange(shape[dim]).view([-1 if i == dim else 1 for i in range(len(shape))])
            return indices.expand(shape).to(type.dtype)
        if op == "random":
            return seeded.numbers(operands[0].reshape(()), self._shape(type))
        if op == "matmul":
            rhs = operands[1].double().t() if "transpose_rhs" in rest else operands[1].double()
            return (operands[0].double() @ rhs).to(type.dtype)
        if op == "gather":
            return operands[0][operands[1].long()]
        if op == "pick":
            here = (operands[1] >= 0) & (operands[1] < operands[0].shape[-1])
            chosen = torch.where(here, operands[1], 0).long()
            return torch.where(here, operands[0].gather(-1, chosen), torch.nan).to(type.dtype)
        if op == "concat":
            return torch.cat(operands, int(re.search(r"dim = (\d+)", rest)[1]))
        if op == "cumsum":
            wide = operands[0].double() if type.dtype.is_floating_point else operands[0]
            turned = wide.flip(-1) if "{reverse}" in rest else wide
            sums = turned.cumsum(-1, dtype=wide.dtype)
            return (sums.flip(-1) if "{reverse}" in rest else sums).to(type.dtype)
        if op.startswith("reduce_") or op == "sum_rows":
            return _reduced(op, operands[0]).to(type.dtype)
        return self._moved(op, rest, operands[0], type)

    def _moved(self, op: str, rest: str, operand: torch.Tensor, type: Type) -> torch.Tensor:
        if op == "reshape":
            known = [self.sizes.get(dim, -1) if isinstance(dim, str) else dim for dim in type.dims]
            return operand.reshape(known)
        if op == "broadcast":
            return operand.expand(self._shape(type))
        places = [int(item) for item in re.findall(r"\[([\d, ]*)\]", rest)[0].split(", ")]
        if op == "transpose":
            return operand.permute(places)
        assert op == "slice", op
        sizes = [self.sizes.get(dim, -1) if isinstance(dim, str) else dim for dim in type.dims]
        for dim, (start, size) in enumerate(zip(places, sizes)):
            operand = operand.narrow(dim, start, size)
        return operand


def _reduced(op: str, operand: torch.Tensor) -> torch.Tensor:
    wide = operand.double()
    if op == "sum_rows":
        return wide.reshape(-1, wide.shape[-1]).sum(0)
    return {"reduce_sum": torch.sum, "reduce_max": torch.amax, "reduce_min": torch.amin}[op](wide, -1, keepdim=True)


def _types(text: str) -> list[Type]:
    return [Type(match) for match in _TENSOR.finditer(text)]


# --- The program beside it -------------------------------------------------------------------------------------------


class _Recorder(fx.Interpreter):
    """Runs a graph and keeps, after each node, a copy of what every earlier node's memory holds."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.after: dict[fx.Node, dict[fx.Node, Any]] = {}

    def run_node(self, node: fx.Node) -> Any:
        value = super().run_node(node)
        env = {**self.env, node: value}
        self.after[node] = {other: _copied(item) for other, item in env.items()}
        return value


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return [_copied(item) for item in value] if isinstance(value, (tuple, list)) else value


def _tensors(value: Any) -> list[Any]:
    return [item for item in (value if isinstance(value, (tuple, list)) else [value]) if isinstance(item, torch.Tensor)]


class Executed:
    """A graph imported, and both it and its text run on these inputs. Raises AssertionError unless every name of the
    text holds what its node's memory holds, for as long as it does.

    Each value is compared when the text makes it and goes on as the program has it, so that differences of rounding do
    not add up."""

    def __init__(self, module: fx.GraphModule, inputs: list[Any], exact: bool = True) -> None:
        self.module = module
        self.exact = exact
        self.imported: Imported = import_graph(module)
        library.context().match(self.imported.text)  # raises where the text does not parse or verify
        self.nodes = list(module.graph.nodes)
        self.by_name = {node.name: node for node in self.nodes}
        self.order = {node: index for index, node in enumerate(self.nodes)}
        recorder = _Recorder(module)
        arguments = [_copied(value) for value in inputs if isinstance(value, torch.Tensor)]
        with torch.no_grad():
            recorder.run(*inputs)
        self.after = recorder.after
        self.evaluation = Evaluation(self.imported.text, arguments, self._opaque, self._kept)
        self._check()

    def _begin(self, definition: Definition) -> fx.Node:
        """After this node a name holds."""
        return max(definition.since or definition.node, definition.node, key=self.order.__getitem__)

    def _opaque(self, name: str, line: str, versions: int) -> list[Any]:
        node = self.by_name[name]
        own = _tensors(self.after[node][node])
        several = versions + len(own) > 1
        made = []
        for index in range(versions):
            definition = self.imported.definitions.get(f"{name}#{index}" if several else name)
            if definition is None:  # of an element that nobody reads again
                made.append(_zeros(_types(line.rsplit(" -> ", 1)[1])[index]))
            else:
                made.append(self.after[self._begin(definition)][definition.node])
        return made + own

    def _kept(self, name: str, value: Any) -> Any:
        definition = self.imported.definitions.get(name)
        if definition is None or definition.version:
            return value
        begin = self._begin(definition)
        theirs = self.after[begin][definition.node]
        self._same(value, theirs, f"{name} after {begin.name}", self._scale(definition.node))
        return theirs

    def _scale(self, node: fx.Node) -> float:
        """The largest number that a node reads or gives, for the error of a sum."""
        values = [value for item in (node, *node.all_input_nodes) for value in _tensors(self.after[node].get(item))]
        finite = [value[value.isfinite()].abs() for value in values if value.dtype.is_floating_point]
        return max((value.max().item() for value in finite if value.numel()), default=0.0)

    def _check(self) -> None:
        for name, definition in self.imported.definitions.items():
            value = self.evaluation.values[self.evaluation.named[name]]
            begin = self._begin(definition)
            end = self.nodes[-1] if definition.until is None else self.nodes[self.order[definition.until] - 1]
            for moment in {begin, max(begin, end, key=self.order.__getitem__)}:
                theirs = self.after[moment][definition.node]
                self._same(value, theirs, f"{name} after {moment.name}", self._scale(definition.node))
        output = self.nodes[-1]
        expected = [tensor for value in _flat(self.after[output], output.args) for tensor in _tensors(value)]
        for index, (mine, theirs) in enumerate(zip(self.evaluation.results, expected, strict=True)):
            self._same(mine, theirs, f"result {index}", 0.0)

    def _same(self, mine: torch.Tensor, theirs: torch.Tensor, what: str, scale: float) -> None:
        if not same(mine, theirs, self.exact, scale):
            text = f"{self.imported.text}\n{self.module.graph}"
            raise AssertionError(f"{what}:\n{mine}\nexpected\n{theirs}\n{text}")


def _flat(env: dict[fx.Node, Any], argument: Any) -> list[Any]:
    if isinstance(argument, fx.Node):
        return [env[argument]]
    return [item for part in argument for item in _flat(env, part)] if isinstance(argument, (tuple, list)) else []


def _zeros(type: Type) -> torch.Tensor:
    return torch.zeros([1 if isinstance(dim, str) else dim for dim in type.dims], dtype=type.dtype)


def same(mine: torch.Tensor, theirs: torch.Tensor, exact: bool, scale: float) -> bool:
    """Equal, or, unless `exact`, as near as sums in another order and functions good to the last place are. `scale` is
    what the error of a sum is measured by."""
    if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
        return False
    if exact or not theirs.dtype.is_floating_point:
        return torch.equal(mine, theirs) or torch.equal(mine.nan_to_num(7.5), theirs.nan_to_num(7.5))
    wide_mine, wide_theirs = mine.double(), theirs.double()
    if not torch.equal(wide_mine.isfinite(), wide_theirs.isfinite()):
        return False
    # bf16 and f16: computed in f32, so a value near a tie may round the other way.
    relative = {torch.float32: 2e-6, torch.float64: 1e-12}.get(theirs.dtype, 1.01 * torch.finfo(theirs.dtype).eps)
    absolute = scale * min(relative, 2e-6)
    difference = (wide_mine - wide_theirs).nan_to_num(0, 0, 0).abs()
    return bool((difference <= relative * wide_theirs.nan_to_num(0, 0, 0).abs() + absolute + 2.0**-140).all())


def executed(module: fx.GraphModule, inputs: list[Any], exact: bool = True) -> Executed:
    """Runs a graph beside its text and compares."""
    return Executed(module, inputs, exact)
