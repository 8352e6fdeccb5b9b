"""What attention masks mean: which keys a query attends to, for all inputs, all batch entries, all heads and all sizes
that the traced symbols may have.

That is proved by evaluating how the graph computes the mask (questions.py). Some meanings hold under a condition that
each call looks at: that some inputs are one everywhere, as the padding mask of a batch without padding is (`given`), or
that tensors of integers are of a kind (`segments`).
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable

import torch
import torch.fx as fx

from ..graph.nodes import example
from ..ops.attending import CAUSAL, FULL, TOLD, Band
from ..text import INTEGERS
from . import blocks, segments
from .proof.functions import Functions
from .proof.linear import Facts, Linear
from .questions import Question, Unproved
from .ranges import Ranges, ranges
from .segments import Segments

_MAX_LIMITS = 4


class Meaning(enum.Enum):
    """Which keys a query attends to, by the name of the sites in a report."""

    CAUSAL = "causal_mask"  # those that do not come after it
    FULL = "full_mask"  # all
    WINDOW = "window_mask"  # those near to it
    DOCUMENT = "document_mask"  # those of its own document, or the near ones among them
    PADDING = "padding_mask"  # those that are no padding
    LENGTH = "length_mask"  # those that are there so far, of a buffer

    def __str__(self) -> str:
        return self.name.lower()


@dataclasses.dataclass(frozen=True)
class Proof:
    """What a mask means, and under what."""

    meaning: Meaning
    given: tuple[fx.Node, ...] = ()  # inputs of the outermost graph that must be one everywhere
    limits: tuple[torch.SymInt, ...] = ()  # sizes that must be at least zero, as they are in what was traced
    band: Band = FULL
    segments: Segments | None = None
    ranges: Ranges | None = None

    @property
    def always(self) -> bool:
        """Whether nothing must hold of the inputs."""
        return not self.given and self.segments is None


def proofs(functions: Functions, mask: fx.Node, attention: fx.Node) -> list[Proof] | Unproved | None:
    """What the mask means: always, or under conditions, the better meaning first; or why nothing is known of it. None
    where it treats keys before and after a query alike, and means nothing that there could be a kernel for."""
    functions = functions.assuming()
    first = _within_limits(functions, (), mask, attention)
    if isinstance(first, Proof):
        return [first]
    both_ways = _both_ways(functions, mask)
    found: list[Proof] = []
    for prove in (_window, _length):
        proof = _understood(lambda: prove(functions, mask, attention))
        if proof is not None:
            return [proof]
    for candidate in _paddings(functions):
        padded = functions.assuming(ones=frozenset([candidate]))
        proof = _within_limits(padded, (candidate,), mask, attention)
        for prove in (_window, _length):
            if not isinstance(proof, Proof):
                proof = _understood(lambda: prove(padded, mask, attention, (candidate,)))
        if proof is not None and (proof.meaning is not Meaning.FULL or _of_keys(functions, mask)):
            found.append(proof)
            break
        both_ways = both_ways or _both_ways(padded, mask)
    by_data = (Meaning.DOCUMENT, segments.documents), (Meaning.PADDING, segments.padding), (Meaning.DOCUMENT, _blocks)
    for meaning, prove in by_data:
        proof = _understood(lambda: _by_data(functions, mask, attention, meaning, prove))
        if proof is not None:
            found.append(proof)
            break
    return found or (None if both_ways else first)


def _understood(prove: Callable[[], Proof]) -> Proof | None:
    try:
        return prove()
    except Exception:  # Unproved, or of our own: the mask stays, and the first reason says why
        return None


# --- Under conditions of the data ------------------------------------------------------------------------------------


def _by_data(
    functions: Functions,
    mask: fx.Node,
    attention: fx.Node,
    meaning: Meaning,
    prove: Callable[[Question], tuple[Segments, Band]],
) -> Proof:
    try:
        found, band = prove(Question(functions.assuming(), mask, attention))
    except Unproved:  # inputs that may be any integers may wrap
        found, band = prove(Question(functions.assuming(small=True), mask, attention))
    return Proof(meaning, band=band, segments=found)


def _blocks(question: Question) -> tuple[Segments, Band]:
    return Segments(mask=blocks.handed_in(question)), TOLD


def _window(functions: Functions, mask: fx.Node, attention: fx.Node, given: tuple[fx.Node, ...] = ()) -> Proof:
    question = Question(functions, mask, attention)
    band = segments.band(question)
    if question.queries != question.keys or band in (CAUSAL, FULL):
        raise Unproved("it is no window")
    return Proof(Meaning.WINDOW, given, band=band)


def _length(functions: Functions, mask: fx.Node, attention: fx.Node, given: tuple[fx.Node, ...] = ()) -> Proof:
    return Proof(Meaning.LENGTH, given, ranges=ranges(Question(functions, mask, attention)))


# --- Padding that is not there ---------------------------------------------------------------------------------------


def _paddings(functions: Functions) -> list[fx.Node]:
    """Inputs of the outermost graph that the proof came upon and that can be a padding mask."""
    return [
        node
        for node in functions.inputs
        if node in functions.reached
        and not functions.writes(node)
        and example(node).dim() <= 2
        and example(node).dtype in (*INTEGERS, torch.bool)
    ]


def _both_ways(functions: Functions, mask: fx.Node) -> bool:
    """Whether, for every query, keys that are equally far before and after it are provably treated alike."""
    try:
        shape = functions.shape(mask)
        places = [functions.new(name) for name in ("batch", "head", "query")[-len(shape) + 1 :]]
        distance = functions.new("distance")
        query, keys = places[-1], shape[-1]
        facts = functions.inside(Facts(frozenset({distance - 1})), tuple(places), (*shape[:-2], keys))
        facts = functions.inside(facts, (query + distance, query - distance), (keys, keys))
        outer = tuple(Linear(0) if size == Linear(1) else place for size, place in zip(shape, places))
        after, before = (functions.element(mask, (*outer, key), facts) for key in (query + distance, query - distance))
        return keys != Linear(1) and after == before
    except Exception:  # nothing is known then, which the reason that is reported says
        return False


def _of_keys(functions: Functions, mask: fx.Node) -> bool:
    """Whether a mask is the same for every query, as one of padding is and one of positions is not."""
    shape = functions.shape(mask)
    places = tuple(functions.new("place") for _ in shape)
    other = (*places[:-2], functions.new("query"), places[-1])
    facts = functions.inside(Facts(), (*places, other[-2]), (*shape, shape[-2]))
    ways = [
        tuple(Linear(0) if size == Linear(1) else place for size, place in zip(shape, at)) for at in (places, other)
    ]
    first, second = (functions.element(mask, way, facts) for way in ways)
    return first == second


# --- Causal and full -------------------------------------------------------------------------------------------------


def _within_limits(
    functions: Functions, given: tuple[fx.Node, ...], mask: fx.Node, attention: fx.Node
) -> Proof | Unproved:
    """Causal or full, with what is missing taken to hold if it is about sizes alone and held for those that were
    traced: a window is wide enough for all sequences that are no longer than it."""
    limits: dict[Linear, torch.SymInt] = {}
    while True:
        try:
            meaning = _meaning(functions, mask, attention, frozenset(limits))
            band = CAUSAL if meaning is Meaning.CAUSAL else FULL
            return Proof(meaning, given, tuple(limits.values()), band)
        except Unproved as reason:
            fitting = {form: size for form in reason.missing if (size := _as_size(functions, form)) is not None}
            if not fitting.keys() - limits.keys() or len(limits) >= _MAX_LIMITS:
                return reason
            limits |= fitting


def _as_size(functions: Functions, form: Linear) -> torch.SymInt | None:
    """A form over symbols as a traced number, if that is at least zero."""
    total: int | torch.SymInt = form.constant
    hint = form.constant
    for atom, factor in form.terms:
        size = functions.symbols.get(atom)
        if size is None or not size.node.has_hint():
            return None
        total = total + size * factor
        hint += size.node.hint * factor
    if form.fixed:
        return None
    return total if hint >= 0 else None  # type: ignore[return-value]


def _meaning(functions: Functions, mask: fx.Node, attention: fx.Node, limits: frozenset[Linear]) -> Meaning:
    """What the mask means. Raises Unproved, with the reason, where it is neither causal nor full."""
    try:
        question = Question(functions, mask, attention, limits)
        before, missing = question.answer(question.behind)
        if before - {True}:
            raise Unproved("it is not provable from the graph that every key up to the query is attended to", missing)
        after, missing = question.answer(-question.behind - 1)
        if after == {True}:
            return Meaning.FULL
        if after - {False}:
            raise Unproved("it is not provable from the graph that no key after the query is attended to", missing)
        if question.queries != question.keys:
            raise Unproved(f"there are {_text(question.queries)} queries and {_text(question.keys)} keys")
        return Meaning.CAUSAL
    except Unproved:
        raise
    except Exception as error:  # of our own: the mask stays
        raise Unproved(f"the mask was not understood: {type(error).__name__}: {error}") from error


def _text(size: Linear) -> str:
    terms = [f"{coefficient} * {atom.key[-1]}" if coefficient != 1 else str(atom.key[-1])
             for atom, coefficient in size.terms]
    return " + ".join([*terms, *([str(size.constant)] if size.constant or not terms else [])])
