"""The order of the work on a graph, from what Dynamo traced to what somebody else runs: PASSES, over one Record.

Every door runs them: `backend` and `enabling` to compile the graph, `inspection` on a copy that nobody runs, to say
what they would do. They differ in their Settings, and in what they do with the record.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Callable

import torch
import torch.fx as fx

from . import passes
from .attention import compaction, grouped, grouped_products, mask_forms, masks, packed, variants, warming, written_out
from .counting import count
from .fusing import gains, matches, replacement
from .graph import dropouts, nodes, sizes, traffic
from .graph.decision import Declined
from .importing import complexes, flattening, merges
from .importing.importer import import_graph
from .loss import sums, tails
from .loss.linears import linear_operands
from .loss.logits import Returned
from .ops import library, preparation
from .options import LOGITS_BYTES
from .passes import Pass
from .records import Masks, Part, Record, Settings
from .remainder import content, tiles, wide_linears
from .repetition import rates
from .targets import devices

_log = logging.getLogger("cermet")
# What was compiled, so that no pass of ours looks again. Not in `meta`: what DDPOptimizer splits shares one.
_compiled: weakref.WeakSet[fx.GraphModule] = weakref.WeakSet()

# --- What each pass calls --------------------------------------------------------------------------------------------


def _unify_sizes(record: Record) -> None:
    sizes.unify(record.module)


def _call_attentions(record: Record) -> None:
    record.written_out = written_out.apply(record.module)


def _find_masks(record: Record) -> None:
    found, options = masks.find(record.module), record.settings.options
    if record.settings.masks is Masks.ALONE:
        found = variants.without(found, lambda mask: not mask.proof.always, "for which a pass has no second graph")
    elif options is not None and options.cuda_graphs:
        reason = "of which a recorded graph cannot be told"
        found = variants.without(found, lambda mask: mask.proof.segments is not None, reason)
    record.masks = found.compact() if record.settings.masks is Masks.COMPACT else found


def _make_variants(record: Record) -> None:
    if record.settings.masks is Masks.EITHER:
        if record.masks.given:
            record.variants[Masks.GIVEN] = variants.unpadded(record.module, record.masks.given)
        if record.masks.kinds:
            try:
                record.variants[Masks.COMPACT] = variants.compact(record.module, record.masks)
            except Declined as reason:
                _log.info("padding stays in the graph: %s", reason)
            record.variants[Masks.SEGMENTS] = variants.segmented(record.module, record.masks.kinds)


def _unmask(record: Record) -> None:
    taken = [mask for mask in record.masks.masks if mask.proof.always or _its_own(record, mask)]
    record.written_out += sum("sinks" in mask.change.arguments for mask in taken)
    masks.apply(record.module, taken)


def _its_own(record: Record, mask: masks.Mask) -> bool:
    """Whether a mask goes in this graph alone, of those that a program's variants are."""
    if record.settings.masks is Masks.GIVEN:
        return bool(mask.given)
    if record.settings.masks in (Masks.SEGMENTS, Masks.COMPACT):
        return mask.proof.segments is not None
    return mask.proof.always


def _group_heads(record: Record) -> None:
    record.grouped = grouped.apply(record.module)
    record.grouped_products = grouped_products.apply(record.module)


def _compact(record: Record) -> None:
    if record.settings.masks is Masks.COMPACT:
        recalls = record.settings.returned is Returned.LAZY
        record.recalled = compaction.compact(record.module, record.masks.kinds[0], recalls)


def _shape_masks(record: Record) -> None:
    mask_forms.shape(record.module)


def _warm_up(record: Record) -> None:
    if record.settings.overlapped and devices.captured() is None:
        record.warm_up = warming.WarmUp(part.module for part in record.parts)


def _lift_rates(record: Record) -> None:
    options = record.settings.options
    if options is None or options.remainder not in ("auto", "aot") or options.cuda_graphs:
        return
    if (lifted := rates.lift(record.module)) is not None:
        module, record.rates = lifted
        record.take(module)


def _seed_dropouts(record: Record, part: Part) -> None:
    dropouts.seed(part.module)


def _keep_rows(record: Record, part: Part) -> None:
    flattening.keep_rows(part.module)


def _join_sums(record: Record, part: Part) -> None:
    part.sums = sums.join(part.module, _budget(record))


def _budget(record: Record) -> int:
    """Bytes of logits that may exist at once."""
    options = record.settings.options
    return LOGITS_BYTES if options is None else options.logits_bytes


def _separate_tails(record: Record, part: Part) -> None:
    if part.returned in (Returned.EDGE, Returned.LAZY):
        part.tails = tails.separate(part.module, linear_operands)


def _join_layers(record: Record, part: Part) -> None:
    if _may_call_directly(record):
        record.wide_linears += wide_linears.join(part.module)


def _may_call_directly(record: Record) -> bool:
    options = record.settings.options
    by_inductor = any(content.compiled_bodies(each.module) for each in record.parts)
    return options is not None and options.may_call_directly and not by_inductor


def _tile(record: Record) -> None:
    if not _may_call_directly(record) or record.settings.options.memory == "fast":
        return
    checkpointed = [part.module for part in record.parts if any(nodes.checkpoints(record.module, part.module))]
    if checkpointed:
        places = record.module.graph.find_nodes(op="placeholder")
        values = (value for value in map(nodes.example, places) if isinstance(value, torch.Tensor))
        given = sum(traffic.size_of(value, traffic.judged) for value in values)
        record.tiled = tiles.tile(checkpointed, given)


def _hoist_merges(record: Record, part: Part) -> None:
    merges.hoist(part.module, {tail.returned for tail in part.tails.values()})


def _add_views(record: Record, part: Part) -> None:
    part.views = complexes.add_views(part.module)


def _import(record: Record, part: Part) -> None:
    part.imported = import_graph(part.module)


def _match(record: Record, part: Part) -> None:
    part.answer = library.context().match(part.imported.text)


def _check(record: Record, part: Part) -> None:
    part.decision = matches.check(part.module, part.imported, part.answer)


def _take_heads(record: Record, part: Part) -> str | None:
    options = record.settings.options
    again = options is None or options.memory != "fast"
    matches.take_heads(part.decision, part.imported, part.returned, part.tails, _budget(record), again)
    used = {region.head.linear for region in part.decision.regions if region.head is not None}
    unused = [linear for linear in part.tails if linear not in used]
    several = [each for each in part.sums if each.node not in used]
    tails.restore(part.module, [part.tails.pop(linear) for linear in unused])
    sums.restore(part.module, several)
    part.sums = [each for each in part.sums if each.node in used]
    restored = bool(unused or several)
    kept = {operand for region in part.decision.regions for operand in region.operands} if not restored else ()
    complexes.drop_views(part.module, part.views, kept)
    if restored:  # the loss reads what the graph returns again, or each layer's result
        return "views"
    for error in part.decision.failures:
        record.failed(error, "a match")
    return None


def _measure_rest(record: Record, part: Part) -> None:
    part.left = content.of(part.decision)


def _choose(record: Record) -> None:
    if record.settings.options is not None:
        record.inductor = record.choice.remainder == "inductor"


def _drop_losses(record: Record, part: Part) -> None:
    options = record.settings.options
    if options is not None:
        gains.drop(part.decision, record.inductor, options.autotune)


def _compile_all(record: Record) -> None:
    record.preparation = preparation.Preparation(key for part in record.parts for key in _keys(record, part))
    if not record.settings.overlapped:
        with contextlib.suppress(Exception):  # whose fault it was is found below
            record.preparation.wait()


def _compile(record: Record, part: Part) -> None:
    if not record.settings.overlapped:
        preparation.prepare(_keys(record, part))


def _keys(record: Record, part: Part) -> list[tuple[int, torch.device]]:
    """What a graph's regions will launch, on which devices."""
    if part.decision is None or not record.settings.launched:
        return []
    return [(key, region.device) for region in part.decision.regions for key in region.keys()]


def _describe(record: Record, part: Part) -> None:
    if record.settings.describe is not None:
        part.findings = record.settings.describe(part.decision)


def _replace(record: Record, part: Part) -> None:
    part.replaced = replacement.apply(part.decision)


def _draw_seeds(record: Record) -> None:
    record.dropouts = dropouts.draw(record.module)


def _release(record: Record) -> None:
    if record.settings.functional:
        record.released = packed.release(record.module, record.regions)


def _pass(name: str, run: Callable[..., str | None], needs: str = "", promises: str = "", **kind: bool) -> Pass:
    return Pass(name, run, frozenset(needs.split()), frozenset(promises.split()), **kind)


PASSES = (
    # Of the graph and its bodies: sizes, attention.
    _pass("sizes", _unify_sizes),
    _pass("attentions", _call_attentions),
    _pass("masks", _find_masks, promises="masks"),
    _pass("variants", _make_variants, needs="masks"),
    _pass("unmask", _unmask, needs="masks", promises="unmasked"),
    _pass("groups", _group_heads),
    _pass("compact", _compact, needs="unmasked", alone=False),
    _pass("forms", _shape_masks),
    _pass("warming", _warm_up),
    _pass("rates", _lift_rates),
    # Of each of them: which regions it will have.
    _pass("dropouts", _seed_dropouts, each=True),
    _pass("rows", _keep_rows, each=True),
    _pass("sums", _join_sums, each=True),
    _pass("tails", _separate_tails, each=True),
    _pass("layers", _join_layers, each=True),
    _pass("tiles", _tile),
    _pass("merges", _hoist_merges, each=True),
    _pass("views", _add_views, each=True),
    _pass("import", _import, promises="text", each=True),
    _pass("match", _match, needs="text", promises="matches", each=True),
    _pass("check", _check, needs="matches", promises="checked", each=True),
    _pass("heads", _take_heads, needs="checked", promises="regions", each=True),
    _pass("rest", _measure_rest, needs="regions", each=True),
    # Of each: whether that gains over who would run it otherwise.
    _pass("choice", _choose, alone=False),
    _pass("gains", _drop_losses, needs="regions", each=True),
    # What the regions launch, and putting them into the graphs.
    _pass("compile", _compile_all),
    _pass("kernels", _compile, needs="regions", promises="kernels", each=True),
    _pass("describe", _describe, needs="kernels", each=True),
    _pass("replace", _replace, needs="kernels", each=True),
    _pass("seeds", _draw_seeds, alone=False),
    _pass("release", _release),
)


# --- Running them ----------------------------------------------------------------------------------------------------


def run(module: fx.GraphModule, settings: Settings | None = None, until: str = "") -> Record:
    """Takes a graph at the Dynamo level through the passes, in place, up to the one that is called `until`."""
    record = Record(module, settings or Settings())
    if record.settings.launched:
        _compiled.add(module)
    passes.run(PASSES, record, until)
    return record


def finish(record: Record, since: str) -> Record:
    """Takes a record that `run` took up to `since` through the other passes."""
    passes.run(PASSES, record, since=since)
    return record


def compiled(module: fx.GraphModule) -> bool:
    """Whether a graph has been through the passes to be run."""
    return module in _compiled


def tally(record: Record) -> None:
    """Adds what was done to the process's counters, and logs what nearly was."""
    # Of a variant, the others are counted with the first graph.
    variant = record.settings.masks in (Masks.GIVEN, Masks.COMPACT, Masks.SEGMENTS)
    near_misses = [*([] if variant else record.masks.near_misses), *record.near_misses]
    count("graphs")
    count("regions", len(record.regions))
    count("near_misses", len(near_misses))
    count("released", record.released)
    count("grouped_attentions", record.grouped)
    count("grouped_products", record.grouped_products)
    count("written_out_attentions", record.written_out)
    count("dropouts", record.dropouts)
    count("wide_linears", record.wide_linears)
    count("tiled_parts", record.tiled)
    for mask in record.masks.masks if "unmasked" in record.have else ():
        count(f"{mask.meaning.value}s", _its_own(record, mask))
    for near_miss in near_misses:
        _log.info("near miss: %s", near_miss)
