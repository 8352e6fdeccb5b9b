"""Masks that tensors of integers decide: documents that lie behind one another in a row, and padding.

Nothing is known of such a tensor while a graph is compiled. What is proved is what the mask means if the tensor is of a
certain kind; each call looks at it (readings.py). A tensor is a Numbered: which of its dimensions is the row of the
batch and which the place in the sequence.

Documents: `mask[q, k] = (number[q] == number[k]) and a band`, where equal numbers lie beside one another. Other tensors
that the mask compares (positions that restart) count by one within each document. Padding: `mask[q, k] = shown[k] and a
band`, where what is shown of a row is one piece.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import torch
import torch.fx as fx

from ..graph.nodes import example
from ..ops.attending import CAUSAL, FULL, Band
from ..text import INTEGERS
from .proof.linear import Atom, AtLeastZero, Flag, IsZero, Linear
from .questions import Question, Unproved

ROW, PLACE = "row", "place"
_MOST = 4  # candidates of each kind


@dataclasses.dataclass(frozen=True)
class Numbered:
    """A tensor with a number for each place of each row. `axes`: of each of its dimensions which that is, or the one
    index that is meant."""

    node: fx.Node
    axes: tuple[str | int, ...]


@dataclasses.dataclass(frozen=True)
class Segments:
    """The tensors that say which segments rows have; of `documents`, `shown` and `mask` one."""

    documents: Numbered | None = None
    counted: tuple[Numbered, ...] = ()
    shown: Numbered | None = None
    mask: fx.Node | None = None  # one that is handed in (blocks.py): its data say which band it is, too
    small: tuple[fx.Node, ...] = ()  # inputs whose numbers must have fewer than 32 bits
    causal: bool = False
    from_first: bool = False  # the first place of each row must be shown
    compact: bool = False  # the graph has the places that are shown alone (compaction.py): a row is a segment

    @property
    def calls(self) -> int:
        """Calls that attention becomes: under a causal mask, queries behind what is shown attend to all of it."""
        return 2 if self.shown is not None and self.causal and not self.compact else 1

    @property
    def one_sided(self) -> bool:
        """Whether keys may end elsewhere than queries."""
        return self.shown is not None and not self.compact

    def __str__(self) -> str:
        """What must hold of them."""
        if self.mask is not None:
            return f"{self.mask.name} is one of documents and a band"
        if self.shown is not None:
            return f"what {self.shown.node.name} shows of each row is one piece"
        counting = "".join(f", and {each.node.name} counts by one among them" for each in self.counted)
        return f"equal numbers of {self.documents.node.name} lie beside one another{counting}"

    @property
    def tensors(self) -> list[Numbered]:
        return [each for each in (self.documents, *self.counted, self.shown) if each is not None]


# --- Bands -----------------------------------------------------------------------------------------------------------


def band(question: Question, assumed: Sequence[Linear] = (), flags: frozenset[tuple[Flag, bool]] = frozenset()) -> Band:
    """The band of keys that queries attend to, under forms that are assumed. Raises Unproved where it is none."""
    reach = _reaches(question)
    return Band(
        _reach(question, question.behind, reach, assumed, flags, 0),
        _reach(question, -question.behind, reach, assumed, flags, 1),
    )


def _reach(
    question: Question,
    distance: Linear,
    candidates: Sequence[int],
    assumed: Sequence[Linear],
    flags: frozenset[tuple[Flag, bool]],
    least: int,
) -> int:
    """Up to which distance keys on one side of a query are attended to; -1 for all."""

    def says(*forms: Linear) -> set[bool | None]:
        return question.ask(*forms, *assumed, flags=flags)

    everywhere = says(distance - least)
    if everywhere <= {True}:
        return -1
    if least and everywhere == {False}:
        return 0
    for reach in candidates:
        if reach >= least and says(distance - least, -distance + reach) <= {True}:
            if says(distance - reach - 1) <= {False}:
                return reach
    raise Unproved("it is not provable from the graph that queries attend to the keys of a band around them")


def _reaches(question: Question) -> list[int]:
    """Distances at which a mask's comparisons change, the smallest first."""
    found = set()
    for comparison in question.comparisons():
        if isinstance(comparison, AtLeastZero):
            constant = comparison.form.constant
            found |= {constant, -constant - 1}
    return sorted(reach for reach in found if reach >= 0)[: 2 * _MOST]


# --- Documents -------------------------------------------------------------------------------------------------------


def documents(question: Question) -> tuple[Segments, Band]:
    """The documents of a mask, and the band within them. Raises Unproved where it has none."""
    if question.queries != question.keys:
        raise Unproved("there are other keys than queries")
    pairs = dict(_pairs(question))
    for left, right in list(pairs)[:_MOST]:
        apart = Linear.of(left) - Linear.of(right)
        if question.ask(apart - 1) | question.ask(-apart - 1) != {False}:
            continue
        others = [pair for pair in pairs if pair != (left, right)]
        counting = [Linear.of(one) - Linear.of(other) - question.behind for one, other in others]
        for counted in ([], counting):  # that nothing counts asks less of the data
            if counted is counting and not counting:
                continue
            assumed = [apart, -apart, *counted, *(-form for form in counted)]
            try:
                found = band(question, assumed)
            except Unproved:
                continue
            columns = tuple(dict.fromkeys(pairs[pair] for pair in others)) if counted else ()
            return Segments(pairs[left, right], columns, small=_small(question), causal=found.right == 0), found
    raise Unproved("it is not provable from the graph that queries attend to keys of their own document alone")


def _pairs(question: Question) -> Iterator[tuple[tuple[Atom, Atom], Numbered]]:
    """Elements of one tensor at the query and at the key that the mask compares."""
    for comparison in question.comparisons():
        if not isinstance(comparison, (IsZero, AtLeastZero)):
            continue
        atoms = [(atom, factor) for atom, factor in comparison.form.terms if atom.key[0] == "element"]
        if sorted(factor for _, factor in atoms) != [-1, 1]:
            continue
        if isinstance(comparison, IsZero) and (len(comparison.form.terms), comparison.form.constant) != (2, 0):
            continue
        (first, _), (second, _) = atoms
        for left, right in ((first, second), (second, first)):
            at_query, at_key = (_numbered(question, atom, place) for atom, place in
                                ((left, question.query), (right, question.key)))
            if at_query is not None and at_query == at_key:
                yield (left, right), at_query


def _numbered(question: Question, atom: Atom | Flag, place: Linear) -> Numbered | None:
    """The tensor whose element this is, if its place in the sequence is `place`."""
    _, node, coordinates, levels = atom.key
    axes: list[str | int] = []
    for coordinate in coordinates:
        if coordinate == place:
            axes.append(PLACE)
        elif question.row is not None and coordinate == question.row:
            axes.append(ROW)
        elif coordinate.fixed:
            axes.append(coordinate.constant)
        else:
            return None
    if levels or axes.count(PLACE) != 1 or axes.count(ROW) > 1 or not is_small(node):
        return None
    return Numbered(node, tuple(axes))


def is_small(node: fx.Node) -> bool:
    """Whether a value is a tensor of integers or truths that something can be computed of before the graph runs."""
    value = example(node)
    return isinstance(value, torch.Tensor) and value.dtype in (*INTEGERS, torch.bool) and not value.requires_grad


def _small(question: Question) -> tuple[fx.Node, ...]:
    return tuple(sorted(question.functions.assumed_small, key=lambda node: node.name))


# --- Padding ---------------------------------------------------------------------------------------------------------


def padding(question: Question) -> tuple[Segments, Band]:
    """The tensor that says which keys are shown, and the band of a mask. Raises Unproved where it has none."""
    if question.queries != question.keys:
        raise Unproved("there are other keys than queries")
    for atom in list(_of_keys(question))[:_MOST]:
        shown = _numbered(question, atom, question.key)
        if shown is None:
            continue
        forms, flags = _are(atom, True)
        hidden, hiding = _are(atom, False)
        if question.ask(*hidden, flags=hiding) != {False}:
            continue
        try:
            found = band(question, forms, flags)
        except Unproved:
            continue
        if found in (CAUSAL, FULL):
            causal = found == CAUSAL
            from_first = causal and not question.ends_rows  # queries whose keys a finite number hides attend to all
            return Segments(shown=shown, small=_small(question), causal=causal, from_first=from_first), found
    raise Unproved("it is not provable from the graph that keys are hidden by padding alone")


def _of_keys(question: Question) -> Iterator[Atom | Flag]:
    """Elements at the key that the mask depends on; those of the graph's inputs before what is made of them."""
    question.element(question.facts)
    found = [
        atom for atom in question.functions.atoms if atom.key[0] == "element" and question.key in atom.key[2]
    ]
    yield from sorted(found, key=lambda atom: atom.key[1].op != "placeholder")


def _are(atom: Atom | Flag, shown: bool) -> tuple[list[Linear], frozenset[tuple[Flag, bool]]]:
    """That a tensor of zeros and ones shows, as forms and as flags."""
    if isinstance(atom, Flag):
        return [], frozenset({(atom, shown)})
    apart = Linear.of(atom) - int(shown)
    return [apart, -apart], frozenset()


