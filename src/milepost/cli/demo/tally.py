"""Counts what truly happened, from the ledgers of the outside world alone. Pure: rows in, figures out."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from milepost.cli.demo.ledgers import Applied, Mail, Note
from milepost.cli.demo.tickets import Ticket


@dataclass(frozen=True)
class Line:
    """One kind of effect.

    `applied` counts all that was done; `duplicates` what was done beyond once for the same thing; `lost` what should
    have been done and was not; `waiting` what is not done and is in a person's hands, so not lost; `wrong` what nobody
    should have done at all, or with another amount. `seen` names the tickets for which it was done at all.
    """

    what: str
    expected: int
    applied: int
    duplicates: int
    lost: int
    waiting: int
    wrong: int
    seen: frozenset[str] = field(default=frozenset(), compare=False, repr=False)


@dataclass(frozen=True)
class Tally:
    """What the outside world says at the end of a demo, one line for each kind of effect, money first."""

    lines: tuple[Line, ...]

    def line(self, what: str) -> Line:
        """The line of one kind: refund, voucher, note or mail. KeyError when it was not counted."""
        return {line.what: line for line in self.lines}[what]

    @property
    def duplicates(self) -> int:
        """All effects that were applied more than once."""
        return sum(line.duplicates for line in self.lines)

    @property
    def lost(self) -> int:
        """All effects that were forgotten."""
        return sum(line.lost for line in self.lines)

    @property
    def wrong(self) -> int:
        """All effects that nobody should have made."""
        return sum(line.wrong for line in self.lines)


def count(
    tickets: Sequence[Ticket],
    applied: Sequence[Applied],
    mails: Sequence[Mail],
    notes: Sequence[Note] | None = None,
    *,
    waiting: Mapping[str, str] | None = None,
) -> Tally:
    """The tally of a desk. `notes` is None for a desk that keeps none.

    `waiting` names, by ticket, the kind of effect at which it waits for a person. That effect, and those that come
    after it, are in the person's hands where they are absent. What should have come before it is lost all the same.
    """
    held = waiting or {}
    lines = [_money("refund", tickets, applied, held), _money("voucher", tickets, applied, held)]
    if notes is not None:
        before_notes = {ticket for ticket, kind in held.items() if kind != "mail"}
        actions = {ticket.id: ticket.label for ticket in tickets}
        lines.append(_line("note", actions, [(note.ticket, note.action) for note in notes], before_notes))
    addresses = {ticket.id: ticket.email for ticket in tickets}
    lines.append(_line("mail", addresses, [(mail.ticket, mail.recipient) for mail in mails], held))
    return Tally(tuple(lines))


def _money(kind: str, tickets: Iterable[Ticket], applied: Iterable[Applied], held: Mapping[str, str]) -> Line:
    of_order = {ticket.order: ticket.id for ticket in tickets}
    expected = {ticket.id: ticket.cents for ticket in tickets if ticket.label == kind}
    waiting = {ticket for ticket, at in held.items() if at == kind}
    seen = [(of_order.get(row.order, row.order), row.cents) for row in applied if row.kind == kind]
    return _line(kind, expected, seen, waiting)


def _line(
    what: str,
    expected: Mapping[str, int] | Mapping[str, str],
    seen: Sequence[tuple[str, int | str]],
    waiting: Container[str],
) -> Line:
    times = Counter(name for name, _ in seen)
    absent = [name for name in expected if name not in times]
    return Line(
        what,
        expected=len(expected),
        applied=len(seen),
        duplicates=sum(number - 1 for number in times.values()),
        lost=sum(name not in waiting for name in absent),
        waiting=sum(name in waiting for name in absent),
        wrong=sum(name not in expected or expected[name] != content for name, content in seen),
        seen=frozenset(times),
    )
