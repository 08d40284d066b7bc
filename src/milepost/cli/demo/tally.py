"""Counts what truly happened, from the ledgers of the outside world alone. Pure: rows in, figures out."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from milepost.cli.demo.ledgers import Applied, Mail
from milepost.cli.demo.tickets import Ticket


@dataclass(frozen=True)
class Line:
    """One kind of effect.

    `applied` counts all that was done; `duplicates` what was done beyond once for the same thing; `lost` what should
    have been done and was not; `waiting` what is not done and is in a person's hands, so not lost; `wrong` what nobody
    should have done at all, or with another amount.
    """

    what: str
    expected: int
    applied: int
    duplicates: int
    lost: int
    waiting: int
    wrong: int


@dataclass(frozen=True)
class Tally:
    """What the outside world says at the end of a demo."""

    refunds: Line
    vouchers: Line
    mails: Line

    @property
    def lines(self) -> tuple[Line, Line, Line]:
        """The three kinds, money first."""
        return (self.refunds, self.vouchers, self.mails)

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
    tickets: Sequence[Ticket], applied: Sequence[Applied], mails: Sequence[Mail], *, waiting: Collection[str] = ()
) -> Tally:
    """The tally of a desk.

    `waiting` names the tickets whose last open effect waits for a person: what such a ticket lacks is not lost.
    """
    return Tally(
        refunds=_money("refund", tickets, applied, waiting),
        vouchers=_money("voucher", tickets, applied, waiting),
        mails=_line("mail", {t.id: t.email for t in tickets}, [(m.ticket, m.recipient) for m in mails], waiting),
    )


def _money(kind: str, tickets: Iterable[Ticket], applied: Iterable[Applied], waiting: Collection[str]) -> Line:
    expected = {ticket.order: ticket.cents for ticket in tickets if ticket.label == kind}
    held = {ticket.order for ticket in tickets if ticket.id in waiting}
    return _line(kind, expected, [(row.order, row.cents) for row in applied if row.kind == kind], held)


def _line(
    what: str,
    expected: Mapping[str, int] | Mapping[str, str],
    seen: Sequence[tuple[str, int | str]],
    waiting: Collection[str],
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
    )
