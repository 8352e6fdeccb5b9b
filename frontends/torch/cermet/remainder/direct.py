"""`remainder="aot"`: AOTAutograd with a partitioner of our own; both graphs run as they are, ATen and our ops called
directly (straight.py).

The compilers are serializable, so that AOTAutogradCache keeps what they make, bundled in its entry; and the backward is
compiled with the forward, so that nothing is left to do in the first backward.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import SerializableAOTDispatchCompiler
from torch._inductor.output_code import OutputCode

from .. import environment
from ..counting import count as count_done
from ..errors import Error
from ..failures import Failing, failing
from ..fusing.replacement import Replaced
from ..options import KEEPING, Keeping, Options
from ..rematerialization import halves, liveness, noting, ordering, pieces, places, twice
from ..rematerialization.partition import Partition
from ..rematerialization.plan import Plan
from ..repetition.lanes import Irregular
from ..repetition.repeated import Repeated
from ..repetition.shortening import Shortened, shorten
from . import batch_norms, clusters, economy, embeddings, group_norms, joined_sums, joins, linears, pads, pickling
from . import rolls, tiles, turned_copies, wide_linears
from .aten import concatenation, long_windows, rows
from .aten.accumulation import accumulate
from .aten.alignment import align
from .aten.constants import hold
from .aten.decisions import decide
from .aten.gathers import choose
from .aten.inlining import inline
from .aten.laying import lay
from .aten.merging import merge
from .aten.mutation import count, reuse, write
from .aten.padding import absorb, settle
from .aten.products import part
from .aten.simplification import drop_copies, simplify
from .aten.sorts import narrow, search
from .aten.turning import turn
from .aten.wide_copies import widen
from .capture import BACKWARD, FORWARD, INFERENCE, Captures
from .straight import StraightLine, hearing

# Where nothing that a backward has been given requires grad, these call it in grad mode under create_graph, and what it
# gives is silently connected with nothing. Later ones refuse a double backward by themselves.
LOSES_GRAD = torch.__version__ < (2, 13)
_log = logging.getLogger("cermet")
_REPEATING = "layers that repeat"
Told = Callable[[str, fx.GraphModule, Replaced, Callable[[], Plan] | None], None]


def compile(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    options: Options,
    told: Told | None = None,
    failed: Failing | None = None,
    launched: bool = True,
) -> Callable[..., Any]:
    """The callable of a graph at the Dynamo level.

    `told` hears of each graph behind autograd as it will run: its kind, itself, what was put into it, and of a backward
    what makes the plan of what is kept for it; not of those that torch's cache has. `failed`: what becomes of a failure
    of ours, else what the options say. Without `launched` the callable is for nobody: no kernel is made ready, and
    torch's cache is left alone.

    Raises:
        cermet.Error: more memory is needed than the options allow.
    """
    failed = failed or failing(options.strict)
    least = 0
    # What is told, checked, recorded or bounded is the whole graph.
    looked_at = told is not None or not launched or environment.check()
    whole = looked_at or options.cuda_graphs or not isinstance(options.memory, str)
    short = None if whole else _shortened(module, failed)
    compile_as = _compile if short is None else functools.partial(_compile_as_repeated, short)
    for keeping in options.keepings:
        heard: list[tuple[Any, ...]] = []
        arguments = (lambda *graph: heard.append(graph), failed, launched)
        try:
            run, peak = compile_as(module, example_inputs, options, keeping, *arguments)
        except clusters.Lost:
            heard.clear()
            run, peak = _compile(module, example_inputs, options, KEEPING["fast"], *arguments, as_traced=True)
        if isinstance(options.memory, str) or peak <= options.memory:
            for graph in heard if told is not None else ():
                told(*graph)
            return run
        least = min(least or peak, peak)
    raise Error(
        f"option memory is {options.memory / 1e9:.3f} GB, expected at least {least / 1e9:.3f} GB: what the forward and "
        "the backward of this graph hold at their most, its parameters, gradients and inputs included, where as little "
        "as possible is kept between them; cermet.memory(model, **batch) says of what"
    )


def _shortened(module: fx.GraphModule, failed: Failing) -> tuple[Shortened, ...] | None:
    try:
        return shorten(module)
    except Irregular as reason:
        _log.info("each layer is compiled by itself: %s", reason)
    except Exception as error:
        failed(error, _REPEATING)
    return None


def _compile_as_repeated(
    short: tuple[Shortened, ...], module: fx.GraphModule, *arguments: Any
) -> tuple[Callable[..., Any], int]:
    """As _compile, which takes what follows `short`, of a few of the layers that are as their neighbours."""
    key: list[tuple[str, list[str]]] = []
    try:
        with economy.keyed_once(key):
            made = _compile(module, *arguments, shortened=short)
        more = sum(each.more for each in short)
        _log.info("%d windows of the graph are compiled as their neighbours", more)
        count_done("repeated_layers", more)
        return made
    except Irregular as reason:
        _log.info("each layer is compiled by itself: %s", reason)
    with economy.keyed_once(key):
        return _compile(module, *arguments)


def _compile(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    options: Options,
    keeping: Keeping,
    told: Told,
    failed: Failing,
    launched: bool,
    as_traced: bool = False,
    shortened: tuple[Shortened, ...] | None = None,
) -> tuple[Callable[..., Any], int]:
    """The callable, and where the options bound it, the most bytes that are held while it runs. Raises clusters.Lost
    where a kernel cannot be made that nothing else stands for, which none is of a graph `as_traced`, and Irregular
    where what became of a shortened graph does not say what would of the whole one."""
    repeated = Repeated(shortened) if shortened is not None else None
    captures = Captures() if options.cuda_graphs else None
    price = None if environment.check() else keeping.price  # what is checked is launched whole
    partition = Partition(price, keeping.products, failed)
    made: list[StraightLine] = []
    bounded = not isinstance(options.memory, str)
    forward: list[fx.GraphModule] = []
    promised: list[int] = []  # how many results of a forward are its caller's
    again: list[Callable[[], StraightLine]] = []  # what makes the forward's as it is then
    launches: set[int] = set()  # what stands for calls of ATen's

    def spelled(module: fx.GraphModule) -> None:
        linears.spell(module)
        inline(module)
        tried("turned matrices", lambda: turn(module.graph))
        plain = as_traced or environment.check()
        if not plain:
            tried("constants", lambda: hold(module))
        launches.update(wide_linears.spell(module, in_parts=not plain))
        if plain:
            return
        tried("sums beside products", lambda: part(module.graph))
        tried("group norms", lambda: launches.update(group_norms.spell(module)))
        tried("long windows", lambda: long_windows.spell(module.graph))

    def tried(what: str, *changes: Callable[[], object]) -> None:
        """Changes of a graph that may end halfway: what they had written by then stands for what was there."""
        try:
            for change in changes:
                change()
        except Exception as error:
            failed(error, what)

    def chosen(graph: fx.Graph) -> None:
        made = None if as_traced or environment.check() else launches
        tried("rows that are chosen", lambda: decide(graph, made), lambda: choose(graph, made))

    def laid(graph: fx.Graph, promised: int | None = None) -> None:
        """The first results, or all, are a caller's."""
        if not (as_traced or environment.check()):
            tried("turned values", lambda: lay(graph, graph.output_node().args[0][:promised]))
            tried("images", lambda: absorb(graph), lambda: rows.lay(graph, launches))
            tried("batch norms", lambda: launches.update(batch_norms.spell(graph)))

    def cut(joint: fx.GraphModule, *arguments: Any, **keywords: Any) -> tuple[fx.GraphModule, fx.GraphModule]:
        """The joint graph says of a backward's numbers where they are from."""
        short = repeated is not None and repeated.has(joint)
        if short:
            put_back(lambda: repeated.take(joint, keywords["num_fwd_outputs"]))
        spelled(joint)
        tiles.add_up(joint.graph)
        chosen(joint.graph)
        promised[:] = [keywords["num_fwd_outputs"]]  # of regions that a program marks before, of the graph last
        laid(joint.graph, promised[0])
        drop_copies(joint.graph)
        merge(joint)
        both = partition(joint, *arguments, **keywords)
        return put_back(lambda: repeated.cut(*both)) if short else both

    def put_back(change: Callable[[], Any]) -> Any:
        try:
            return change()
        except Irregular:
            raise
        except Exception as error:
            failed(error, _REPEATING)
            raise Irregular("Cermet failed") from error

    def free(kind: str) -> bool:
        """Whether what a graph is given may be written. What a recorded backward is given stands where the forward's
        replay writes it."""
        return kind == BACKWARD and captures is None

    def placed(kind: str, graph: fx.GraphModule) -> dict[fx.Node, places.Otherwise]:
        try:
            return places.place(graph.graph, given=free(kind))
        except Exception as error:
            failed(error, "results in the place of operands")
            return {}

    def planned(backward: fx.GraphModule, replaced: Replaced) -> Callable[[], Plan]:
        put = list(zip(replaced.regions, replaced.calls))
        return functools.partial(noting.of, partition.noted, options.memory, forward[0], backward, put)

    def line(kind: str, graph: fx.GraphModule, place: bool = False) -> Callable[[], StraightLine]:
        """Writes a graph as it is when that is called; where its results lie is settled here."""
        # Asked first: a launch over operands says of all of them that it may write them.
        capture = captures.of(graph, kind) if captures is not None else None
        otherwise = placed(kind, graph) if place else {}
        returned = {FORWARD: promised, INFERENCE: [len(graph.graph.output_node().args[0])]}.get(kind, [])
        refuses = kind == BACKWARD and LOSES_GRAD

        def written() -> StraightLine:
            if repeated is None:
                return StraightLine(graph, capture, refuses, otherwise, sum(returned))
            module, launches = put_back(lambda: repeated.whole(kind, graph, otherwise))
            return StraightLine(module, capture, refuses, launches, sum(returned))

        return written

    def whole(backward: fx.GraphModule) -> None:
        if pieces.join(forward[0], backward, keeping.price):
            made[0].become(again[0]())

    def compiler(kind: str) -> SerializableAOTDispatchCompiler:
        def straight(graph: fx.GraphModule, _: Sequence[Any]) -> OutputCode:
            if repeated is not None:
                graph = put_back(lambda: repeated.shortened(kind, graph, kind != INFERENCE))
            if kind == FORWARD:
                _keep_saved()
                forward.append(graph)
            if kind == INFERENCE:
                spelled(graph)
                chosen(graph.graph)
                laid(graph.graph)
                drop_copies(graph.graph)
                merge(graph)
            simplify(graph.graph)
            settle(graph.graph)
            if not environment.check():
                tried("gradients of embeddings", lambda: embeddings.add_rows(graph.graph, kind == BACKWARD))
                tried("sorts", lambda: narrow(graph.graph), lambda: search(graph.graph))
            concatenation.join(graph.graph)
            concatenation.turn(graph.graph)
            if not (as_traced or environment.check()):
                tried("joins", lambda: launches.update(joins.spell(graph.graph)))
                tried("joins with their sums", lambda: launches.update(joined_sums.spell(graph.graph)))
                tried("rolls", lambda: launches.update(rolls.spell(graph.graph)))
                tried("pads", lambda: launches.update(pads.spell(graph.graph)))
                tried("turned copies", lambda: launches.update(turned_copies.spell(graph.graph)))
            write(graph.graph)
            count(graph.graph)
            accumulate(graph.graph)
            align(graph.graph)
            fused = clusters.fuse(graph, failed, launched, partition.keys | launches)
            reuse(graph.graph)
            ordering.order(graph)
            if kind == BACKWARD and price is not None:
                held = ordering.given(graph.graph)
                tried("values that are made twice", lambda: twice.make_twice(graph, held))
            if price is not None:
                tried("launches that are halved", lambda: halves.halve(graph, free(kind)))
            widen(graph.graph)
            written = line(kind, graph, place=True)
            made.append(written())
            if repeated is not None:
                fused.times = repeated.times[kind]
            if kind == FORWARD:
                again.append(written)
            elif again and captures is None and not (bounded or options.logits_bounded):
                tried("logits as one piece", lambda: whole(graph))
            if bounded:
                made[-1].peak = liveness.step(*(forward if kind == BACKWARD else ()), graph).peak.bytes
            told(kind, graph, fused.replaced, planned(graph, fused.replaced) if kind == BACKWARD else None)

            @functools.cache  # asked for what runs, and for the copy that is kept
            def otherwise() -> StraightLine | None:
                plain = fused.taken_back()
                if plain is not None:
                    widen(plain.graph)
                return line(kind, plain)() if plain is not None else None

            made[-1].otherwise = otherwise if launched else None
            return made[-1]

        return SerializableAOTDispatchCompiler(OutputCode, straight)

    backend = aot_autograd(
        fw_compiler=compiler(FORWARD),
        bw_compiler=compiler(BACKWARD),
        inference_compiler=compiler(INFERENCE),
        partition_fn=cut,
        keep_inference_input_mutations=True,
    )
    settings = {
        "bundled_autograd_cache": True,
        "autograd_cache_allow_custom_autograd_functions": True,  # their bodies are part of the key
        "cse": False,  # merge() does
        "force_non_lazy_backward_lowering": True,
        "donated_buffer": False,
    } | ({} if launched else {"enable_autograd_cache": False})
    with (
        torch._functorch.config.patch(settings),
        economy.spared(),
        pickling.outside_of_modes(),
        _keyed(keeping, bounded, options, shortened),
    ):
        traced = module if shortened is None else shortened[-1].module
        with linears.joined(traced), hearing() as cached:
            run = backend(traced, list(example_inputs))
    partition.noted = None  # what is kept of these compilers needs no graph
    forward.clear()
    for each in made:
        each.settle()
    if repeated is not None:
        repeated.forget()
    return run, max((each.peak for each in (*made, *cached)), default=0)


def _keyed(
    keeping: Keeping, bounded: bool, options: Options, shortened: tuple[Shortened, ...] | None
) -> contextlib.AbstractContextManager[None]:
    """Makes what is kept, whether its peak is known, who bounds logits, and of which graph a shortened one is a part
    of the key of AOTAutogradCache."""
    config, bounds = torch.compiler.config, (" bounded" * bounded, " logits bounded" * options.logits_bounded)
    layers = "".join(f" {each.digest}" for each in shortened or ())
    return config.patch(cache_key_tag=f"{config.cache_key_tag} {keeping}{''.join(bounds)}{layers}")


def _keep_saved() -> None:
    """Says that no backward writes what the forward saved, so that another one may follow. (That nothing was donated is
    an empty list; what the configuration leaves, None, is refused like a list of some.)"""
    context = torch._guards.TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        context.fw_metadata.bw_donated_idxs = []
