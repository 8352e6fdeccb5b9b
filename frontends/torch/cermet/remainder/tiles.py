"""Rows of a checkpointed layer in tiles, so that the widest of its values are there for some rows at a time.

A backward makes a checkpointed layer's values again, and while it is at the layer's widest part (between the two
products of a gated network: the gate, what it gates, their product and its gradient) most is held. What is computed row
by row between narrow values is the same for some rows as for all. So such a part of a graph becomes several, each of a
tile of the rows: what it reads is split, what it gives is joined.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx as fx

from ..graph import fakes, traffic
from ..graph.decision import Declined
from ..graph.edit import erase_unused, rewriting
from ..graph.effects import PURE, effect_of
from ..graph.layouts import written
from ..graph.nodes import example, examples
from ..importing.translations.elementwise import POINTWISE
from ..importing.translations.operators import spelling
from ..loss.accumulation import adds_in_f32
from ..ops.stand_ins import SUMMED
from ..ops.wide_linears import ADD_WIDE_LINEAR, WIDE_LINEAR
from ..rematerialization.waiting import ADDED_UP
from .wide_products import WIDE_RESULTS

_aten, _linear = torch.ops.aten, torch._C._nn.linear

_MOST = 4  # tiles: each is traced by itself
_ROWS = 2048  # of a tile, at least: products of fewer are slower than one of all
_WIDE = 2  # times the columns of a layer's result, at least
_THIN = 0.25  # of them, at most, that are computed with what is wide where nothing else reads them
_WORTH = 0.01  # of the bytes that the graph is given, at least, that are not held with tiles
_ELEMENTWISE = {*POINTWISE, "cast", "identity"}
_NARROW = {torch.bfloat16, torch.float16}
_VIEWS = {_aten.t.default, _aten.view.default, _aten._unsafe_view.default, _aten.transpose.int}
_SPLITS = {_aten.split.Tensor, _aten.split_with_sizes.default}
_PIECES = (torch.chunk, torch.split, torch.functional.split, "chunk", "split")


# --- Before autograd -------------------------------------------------------------------------------------------------


def tile(bodies: Sequence[fx.GraphModule], given: int) -> int:
    """Of bodies under a checkpoint, in place, in the order in which they run, where what runs them is given so many
    bytes. Returns how many parts of them are in tiles now."""
    times = gone = 0  # gone: what is held less in a body's backward than in the last one's
    for body in reversed(bodies):
        result = _result(body)
        if result is None:
            continue
        parts = [part for part in _parts(body, result) if part.spared > max(_WORTH * given, gone)]
        if parts and _write_all(body, parts):
            times += len(parts)
        weights = (each for each in map(example, body.graph.find_nodes(op="placeholder")) if _is_trained(each))
        gone += _bytes(result) - sum(map(_bytes, weights))
    return times


def _result(body: fx.GraphModule) -> torch.Tensor | None:
    """What a layer gives to the next: rows of a known number of columns."""
    output = body.graph.output_node().args[0]
    first = output[0] if isinstance(output, (tuple, list)) else output
    value = example(first) if isinstance(first, fx.Node) else None
    has_rows = isinstance(value, torch.Tensor) and value.dim() > 1
    return value if has_rows and isinstance(value.shape[-1], int) else None


def _is_trained(value: Any) -> bool:
    return isinstance(value, torch.nn.Parameter) and value.requires_grad


def _write_all(body: fx.GraphModule, parts: Sequence[_Part]) -> bool:
    try:
        with rewriting([body]):
            for part in parts:
                part.write(body)
    except Declined:
        return False
    return True


class _Part:
    """Calls that compute row by row: what is wide, and what is computed of it alone or for it alone; in order."""

    def __init__(self, calls: dict[fx.Node, list[fx.Node]], front: Sequence[Any], narrow: int) -> None:
        self._calls = calls  # and which operands of each have its rows
        self._dimension = next((place for place, size in enumerate(front) if written(size) != "1"), 0)
        self._size = front[self._dimension]
        size = max(traffic.judged(self._size), 1)
        most = max(min(_MOST, math.prod(map(traffic.judged, front)) // _ROWS, size), 1)
        rows = -(-size // most)
        self._tiles = most if isinstance(self._size, torch.SymInt) else -(-size // rows)
        held = _held(node for node in calls if _columns(node) >= _WIDE * narrow)
        self.spared = held - held * rows // size - _summed(calls)  # bytes, in a backward

    def write(self, module: fx.GraphModule) -> None:
        graph = module.graph
        read = [each for operands in self._calls.values() for each in operands if each not in self._calls]
        given = [node for node in self._calls if not self._calls.keys() >= node.users.keys()]
        joined: dict[fx.Node, list[fx.Node]] = {node: [] for node in given}
        *_, last = self._calls
        with graph.inserting_before(last.next):
            sizes = self._sizes(graph, read[0])
            splits = {each: self._split(graph, each, sizes) for each in dict.fromkeys(read)}
            for index in range(self._tiles):
                made = {each: splits[each][index] for each in splits}
                for node in self._calls:
                    made[node] = graph.node_copy(node, lambda each: made.get(each, each))
                    made[node].meta["example_value"] = _value(made[node], node)
                for node in given:
                    joined[node].append(made[node])
            for node, pieces in joined.items():
                whole = graph.call_function(torch.cat, (pieces, self._dimension))
                whole.meta = {**node.meta, "example_value": fakes.like(example(node))}
                node.replace_all_uses_with(whole, lambda user: user not in self._calls and user is not whole)
        erase_unused(module, list(reversed(self._calls)))

    def _sizes(self, graph: fx.Graph, node: fx.Node) -> list[tuple[Any, Any]]:
        """How many rows each tile has, as an argument and as a size. The last has the rest: fewer than others, but of a
        symbol, which is not rounded up, so that a short one has none that is empty."""
        others = self._tiles - 1
        if not isinstance(self._size, torch.SymInt):
            rows = -(-self._size // self._tiles)
            return [(each, each) for each in [rows] * others + [self._size - others * rows]]

        def call(size: torch.SymInt, target: Any, *operands: Any) -> fx.Node:
            made = graph.call_function(target, operands)
            made.meta = {**node.meta, "example_value": size}
            return made

        size, rows = self._size, self._size // self._tiles
        of_all = call(size, _aten.sym_size.int, node, self._dimension)
        of_one = call(rows, operator.floordiv, of_all, self._tiles)
        of_others = call(others * rows, operator.mul, of_one, others)
        rest = size - others * rows
        return [(of_one, rows)] * others + [(call(rest, operator.sub, of_all, of_others), rest)]

    def _split(self, graph: fx.Graph, node: fx.Node, sizes: Sequence[tuple[Any, Any]]) -> list[fx.Node]:
        value = example(node)
        split = graph.call_function(torch.split, (node, [argument for argument, _ in sizes], self._dimension))
        pieces, begin = [], 0
        for _, rows in sizes:
            shape = [*value.shape]
            shape[self._dimension] = rows
            pieces.append(fakes.view(value, shape, value.stride(), begin * value.stride(self._dimension)))
            begin = begin + rows
        split.meta = {**node.meta, "example_value": tuple(pieces)}
        found = []
        for index, piece in enumerate(pieces):
            item = graph.call_function(operator.getitem, (split, index))
            item.meta = {**node.meta, "example_value": piece}
            found.append(item)
        return found


def _value(made: fx.Node, node: fx.Node) -> Any:
    """What a call makes of some rows. Raises Declined where that is not what it makes of all."""
    value = fakes.result(made, {}, autocast=True)
    for old, new in zip(examples(node), value if isinstance(value, (tuple, list)) else (value,), strict=True):
        if old.dtype != new.dtype or old.shape[-1] != new.shape[-1] or old.requires_grad != new.requires_grad:
            raise Declined(f"{node.name} would be another tensor for some rows")
    return value


# --- Which calls -----------------------------------------------------------------------------------------------------


def _parts(module: fx.GraphModule, result: torch.Tensor) -> Iterator[_Part]:
    front, narrow = result.shape[:-1], result.shape[-1]
    rows: dict[fx.Node, list[fx.Node]] = {}
    for node in module.graph.nodes:
        read = _rows_read(node, front)
        of_rows = read and all(isinstance(example(each), torch.Tensor) or each in rows for each in read)
        if of_rows and effect_of(node, module).kind == PURE:
            rows[node] = read
    wide = [node for node in rows if _columns(node) >= _WIDE * narrow]
    taken: set[fx.Node] = set()
    for first in wide:
        if first in taken:
            continue
        members = _joined(first, set(wide))
        taken |= members
        for node in rows:
            if rows[node] and members.issuperset(rows[node]):
                members.add(node)
        for node in reversed(rows):
            if node.users and members.issuperset(node.users) and _columns(node) <= _THIN * narrow:
                members.add(node)
        given = [node for node in members if not members.issuperset(node.users)]
        if any(_columns(node) >= _WIDE * narrow for node in given) or not _is_closed(module, members):
            continue
        yield _Part({node: read for node, read in rows.items() if node in members}, front, narrow)


def _joined(first: fx.Node, wide: set[fx.Node]) -> set[fx.Node]:
    """Those that read one another, with `first`."""
    found: set[fx.Node] = set()
    pending = [first]
    while pending:
        node = pending.pop()
        if node in wide and node not in found:
            found.add(node)
            pending += [*node.all_input_nodes, *node.users]
    return found


def _is_closed(module: fx.GraphModule, members: set[fx.Node]) -> bool:
    """Whether between them nothing reads what they give, and nothing stands that other calls may not pass: a write, or
    what a mode begins or ends with."""
    places = [place for place, node in enumerate(module.graph.nodes) if node in members]
    among = list(module.graph.nodes)[places[0] : places[-1] + 1]
    others = [node for node in among if node not in members]
    return all(members.isdisjoint(node.all_input_nodes) and _may_be_passed(node, module) for node in others)


def _may_be_passed(node: fx.Node, module: fx.GraphModule) -> bool:
    """Also a module's note that it was used."""
    return node.target is torch._C._log_api_usage_once or effect_of(node, module).kind == PURE


def _rows_read(node: fx.Node, front: Sequence[Any]) -> list[fx.Node] | None:
    """The operands of whose rows a call computes each its own; None where it does anything else, or has none."""
    if node.op not in ("call_function", "call_method") or not all(_has_rows(value, front) for value in examples(node)):
        return None
    if node.target is operator.getitem:
        return [node.args[0]] if isinstance(example(node.args[0]), (tuple, list)) else None
    if node.target in _PIECES:
        along = node.args[2] if len(node.args) > 2 else node.kwargs.get("dim", 0)
        one = node.all_input_nodes == [node.args[0]] and _has_rows(example(node.args[0]), front)
        return [node.args[0]] if one and along in (-1, len(front)) else None
    kind = spelling(node)
    if node.target in (WIDE_LINEAR, _linear):
        read = [node.args[0]]
    elif node.target is ADD_WIDE_LINEAR:
        read = list(node.args[:2])
    elif kind in _ELEMENTWISE:
        repeated = [each for each in node.all_input_nodes if _is_repeated(example(each), front)]
        if any(isinstance(example(each), torch.Tensor) and example(each).requires_grad for each in repeated):
            return None  # whose gradient all rows give to, and each tile would round
        read = [each for each in node.all_input_nodes if each not in repeated]
    else:
        return None
    return read if all(_has_rows(example(each), front) for each in read) else None


def _has_rows(value: Any, front: Sequence[Any]) -> bool:
    if not isinstance(value, torch.Tensor) or value.dim() != len(front) + 1 or not isinstance(value.shape[-1], int):
        return False
    return [*map(written, value.shape[:-1])] == [*map(written, front)] and not value.is_complex()


def _is_repeated(value: Any, front: Sequence[Any]) -> bool:
    """Whether each row has the same of it."""
    return not isinstance(value, torch.Tensor) or all(written(size) == "1" for size in value.shape[:-1])


def _columns(node: fx.Node) -> int:
    return max(value.shape[-1] for value in examples(node))


def _held(wide: Iterable[fx.Node]) -> int:
    """Bytes that are there at once in a backward, of all rows: what products give, and the largest of what is computed
    of it, or its gradient."""
    products, largest = 0, 0
    for node in wide:
        value = example(node)
        if node.target is _linear:
            products += _bytes(value)
        elif isinstance(value, torch.Tensor):
            largest = max(largest, _bytes(value))
    return products + largest


def _bytes(value: torch.Tensor) -> int:
    return traffic.size_of(value, traffic.judged)


def _summed(calls: Iterable[fx.Node]) -> int:
    """Bytes of the gradients that tiles add up in f32, where those of all rows are made as they are."""
    weights = (example(each) for node in calls if node.target is _linear for each in node.all_input_nodes[1:])
    return sum(4 * value.numel() for value in weights if _is_trained(value) and value.dtype in _NARROW)


# --- Behind autograd -------------------------------------------------------------------------------------------------


class _Term(NamedTuple):
    """What a tile gives to the gradient of a weight, rounded to sixteen bits: a product of two matrices, or the sum of
    one's rows."""

    node: fx.Node
    views: tuple[fx.Node, ...]  # of it, the last first
    kind: tuple[Any, ...]  # what is equal of those that may be summed before they are rounded


def add_up(graph: fx.Graph) -> int:
    """In place, in a graph of ATen's: what tiles give to the gradient of one weight is summed in f32 and rounded once,
    as what all rows give at once. Returns for how many weights."""
    sums = [node for node in graph.nodes if _is_sum(node) and not any(map(_is_sum, node.users))]
    times = 0
    for node in sums:
        groups: dict[Any, list[_Term]] = {}
        rest: list[fx.Node] = []
        for each in _terms(node):
            term = _term(each)
            groups.setdefault(term.kind, []).append(term) if term is not None else rest.append(each)
        single = (group[0] for group in groups.values() if len(group) == 1)
        alone = [term.views[0] if term.views else term.node for term in single]
        several = [group for group in groups.values() if len(group) > 1]
        if several:
            _write(node, several, [*alone, *rest])
            times += len(several)
    return times


def _is_sum(node: fx.Node) -> bool:
    return node.target is _aten.add.Tensor and not node.kwargs and all(isinstance(each, fx.Node) for each in node.args)


def _terms(node: fx.Node) -> Iterator[fx.Node]:
    for each in node.args:
        if _is_sum(each) and len(each.users) == 1 and SUMMED not in each.meta:
            yield from _terms(each)
        else:
            yield each


def _term(node: fx.Node) -> _Term | None:
    views = []
    while node.target in _VIEWS and len(node.users) == 1:
        views.append(node)
        node = node.args[0]
    if node.target not in (_aten.mm.default, _aten.sum.dim_IntList) or node.kwargs or len(node.users) != 1:
        return None
    value, of = example(node), None
    if node.target is _aten.mm.default:
        of = next(filter(None, map(_whole, node.args)), None)
    if value.dtype not in _NARROW or node.target is _aten.mm.default and of is None:
        return None
    as_they_are = tuple((each.target, str(each.args[1:])) for each in views)
    over = () if of is not None else (str(node.args[1:]),)
    return _Term(node, tuple(views), (node.target, of, over, tuple(map(str, value.shape)), as_they_are))


def _whole(node: fx.Node) -> fx.Node | None:
    """What a matrix is some rows of, as tiles read them; None of any other."""
    while node.target in _VIEWS:
        node = node.args[0]
    if node.target is operator.getitem and node.args[0].target in _SPLITS:
        return node.args[0].args[0]
    return node.args[0] if node.target is _aten.slice.Tensor else None


def _write(node: fx.Node, groups: Sequence[Sequence[_Term]], rest: Sequence[fx.Node]) -> None:
    terms = [*map(_together, groups), *rest]
    with node.graph.inserting_before(node):
        total = terms[0]
        for each in terms[1:]:
            total = _call(node, example(node), _aten.add.Tensor, total, each)
    node.replace_all_uses_with(total)
    pending = [node]
    while pending:
        dead = pending.pop()
        if not dead.users and not dead._erased and dead.op == "call_function":
            pending += dead.all_input_nodes
            dead.graph.erase_node(dead)


def _together(group: Sequence[_Term]) -> fx.Node:
    """Each is added where it was made, so that nothing of its tile is held for another."""
    (first, views, _), *others = sorted(group)
    with first.graph.inserting_before(first):
        total = _wide(first)
    for term in others:
        with first.graph.inserting_before(term.node):
            total = _added(total, term.node)
    with first.graph.inserting_before(others[-1].node.next):
        value = example(first)
        made = _call(first, fakes.like(value), _aten._to_copy.default, total, dtype=value.dtype)
        for view in reversed(views):
            value = fakes.view(example(made), example(view).shape, example(view).stride())
            made = _call(view, value, view.target, made, *view.args[1:])
    return made


def _wide(node: fx.Node) -> fx.Node:
    """What a term is before it is rounded."""
    if node.target is _aten.sum.dim_IntList:
        return _call(node, _in_f32(node), node.target, *node.args, dtype=torch.float32)
    if example(node).device.type in WIDE_RESULTS:
        return _call(node, _in_f32(node), _aten.mm.dtype, *node.args, torch.float32)
    operands = [_call(each, _in_f32(each), _aten._to_copy.default, each, dtype=torch.float32) for each in node.args]
    return _call(node, _in_f32(node), _aten.mm.default, *operands)


def _added(total: fx.Node, node: fx.Node) -> fx.Node:
    value = example(node)
    if node.target is _aten.mm.default and adds_in_f32(value.device, value.dtype):
        return _call(node, _in_f32(node), _aten.addmm.dtype, total, *node.args, torch.float32)
    return _call(node, _in_f32(node), _aten.add.Tensor, total, _wide(node))


def _in_f32(node: fx.Node) -> torch.Tensor:
    value = example(node)
    return fakes.fresh(value, value.shape, value.stride(), torch.float32)


def _call(like: fx.Node, value: torch.Tensor, target: Any, *arguments: Any, **keywords: Any) -> fx.Node:
    made = like.graph.call_function(target, arguments, keywords)
    made.meta = {**like.meta, "val": value, ADDED_UP: True}
    return made
