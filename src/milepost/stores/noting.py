"""Notes: what an append changes in tables that nobody looks at meanwhile, kept beside its last entry.

To write a row of a table costs a commit a page of it, and these tables stand apart from those that every append writes:
what a step has reserved, what was spent under a ceiling, how an approval was answered. A store may note such changes in
the row of the entry, which is written anyway, and write them where they belong later, many at once. The note is in the
transaction of what it is about, as the row itself would be. Until the tables have caught up they say what they said
before the first note that is left; whoever reads them reads the notes as well, or lets them catch up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from milepost.core.pools import NOTHING, Row

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from milepost.stores.pools import PoolRows

Amount = tuple[str, int, str, Decimal]  # pool, UTC day or EVER, unit, amount
Answer = tuple[str, str, str]  # id, verdict, by whom


class Note(msgspec.Struct, array_like=True, gc=False):
    """What one append changes: steps that let go, then those that hold, what was spent, and answers to approvals."""

    gone: list[str]
    held: list[tuple[str, list[Amount]]]
    spent: list[Amount]
    answers: list[Answer] = []


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Note)


def encode(note: Note) -> str:
    """Return a note as text."""
    return _ENCODER.encode(note).decode()


@dataclass(slots=True)
class Folded:
    """Several notes as one: what is written where they belong."""

    gone: dict[tuple[int, str], None] = field(default_factory=dict)
    held: dict[tuple[int, str], Sequence[Amount]] = field(default_factory=dict)
    spent: dict[Row, Decimal] = field(default_factory=dict)
    answers: dict[str, Answer] = field(default_factory=dict)


def fold(noted: Iterable[tuple[int, str]]) -> Folded:
    """Return what notes, given with the number of their run, change together; in the order of writing.

    A step that was not held before the first of them, and is not after the last, is nothing to the tables.
    """
    folded = Folded()
    for run, text in noted:
        note = _DECODER.decode(text)
        for step in note.gone:
            if folded.held.pop((run, step), None) is None:
                folded.gone[run, step] = None
        for step, amounts in note.held:
            folded.held[run, step] = amounts
        _add(folded.spent, note.spent)
        for answer in note.answers:
            folded.answers[answer[0]] = answer
    return folded


def lay_over(rows: PoolRows, noted: Iterable[tuple[str, str]]) -> None:
    """Bring rows that were read up to what notes say, given with the id of their run."""
    for run_id, text in noted:
        note = _DECODER.decode(text)
        for step in note.gone:
            rows.held.pop((run_id, step), None)
        for step, amounts in note.held:
            rows.held[run_id, step] = {(pool, day, unit): amount for pool, day, unit, amount in amounts}
        _add(rows.spent, note.spent)


def _add(spent: dict[Row, Decimal], amounts: Iterable[Amount]) -> None:
    for pool, day, unit, amount in amounts:
        spent[pool, day, unit] = spent.get((pool, day, unit), NOTHING) + amount
