"""The desk without a killer: each way in which the outside misbehaves, and what becomes of the ticket that meets it."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from milepost.cli.demo.desk import desk_app
from milepost.cli.demo.desk_record import DeskRecord, Record
from milepost.cli.demo.desk_worker import work
from milepost.cli.demo.faults import Fault, mail_behaviour, payment_behaviour
from milepost.cli.demo.ledgers import Applied, Mail, Note, crm_notes
from milepost.cli.demo.outside import Outside
from milepost.cli.demo.tally import count as tally_of
from milepost.cli.demo.tickets import Ticket, load_tickets


@dataclass(frozen=True)
class Met:
    """One ticket of each kind of trouble, under one seed."""

    seed: int
    refund_answer_lost: Ticket
    voucher_answer_lost: Ticket
    voucher_error_before: Ticket
    mail_dropped: Ticket

    @property
    def tickets(self) -> list[Ticket]:
        return [self.refund_answer_lost, self.voucher_answer_lost, self.voucher_error_before, self.mail_dropped]


@dataclass(frozen=True)
class Worked:
    """What was done for them, outside and in the record."""

    met: Met
    applied: Sequence[Applied]
    mails: Sequence[Mail]
    notes: Sequence[Note]
    record: Record

    def made(self, ticket: Ticket) -> list[Applied]:
        return [row for row in self.applied if row.order == ticket.order]


def find_troubles() -> Met:
    """The first seed under which each trouble is met by a ticket that meets no other."""
    for seed in count(1):
        refunds = meeting(seed, "refund", Fault.LOST_ANSWER, Fault.NONE)
        lost, never = (
            meeting(seed, "voucher", Fault.LOST_ANSWER),
            meeting(seed, "voucher", Fault.ERROR_BEFORE, Fault.NONE),
        )
        refused = [t for t in load_tickets() if t.label == "refuse" and mail_behaviour(seed, t.id, 1).drops]
        if refunds and lost and never and refused:
            return Met(seed, refunds[0], lost[0], never[0], refused[0])
    raise AssertionError("unreachable")


def meeting(seed: int, kind: str, *faults: Fault) -> list[Ticket]:
    """The tickets of a kind whose first payments meet exactly these faults, and whose mail is not dropped."""
    return [
        ticket
        for ticket in load_tickets()
        if ticket.label == kind
        and [payment_behaviour(seed, kind, ticket.order, n + 1).fault for n in range(len(faults))] == list(faults)
        and not mail_behaviour(seed, ticket.id, 1).drops
    ]


def serve(outside: Outside, tickets: Sequence[Ticket]) -> None:
    """Let the desk work on tickets until nothing moves any more."""
    store = f"sqlite:///{outside.folder / 'desk.db'}"
    serving, asking = (desk_app(store, outside.payments_port, outside.mail_port) for _ in range(2))
    asyncio.run(work(serving, asking, tickets, outside.seed))


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worked]:
    met, folder = find_troubles(), tmp_path_factory.mktemp("desk")
    with Outside(folder, met.seed) as outside:
        serve(outside, met.tickets)
        with DeskRecord(folder / "desk.db") as desk:
            yield Worked(met, outside.applied(), outside.mails(), crm_notes(folder / "desk.db"), desk.read())


def test_a_refund_whose_answer_was_lost_is_sent_again_under_its_key_and_made_once(worked: Worked) -> None:
    (refund,) = worked.made(worked.met.refund_answer_lost)

    assert (refund.attempt, refund.cents) == (1, worked.met.refund_answer_lost.cents)


def test_a_voucher_whose_answer_was_lost_is_found_by_asking_and_not_made_again(worked: Worked) -> None:
    (voucher,) = worked.made(worked.met.voucher_answer_lost)

    assert voucher.attempt == 1


def test_a_voucher_that_was_never_made_is_proven_absent_and_then_made(worked: Worked) -> None:
    (voucher,) = worked.made(worked.met.voucher_error_before)

    assert voucher.attempt == 2


def test_a_mail_whose_answer_was_lost_waits_for_a_person_and_is_not_sent_again(worked: Worked) -> None:
    ticket = worked.met.mail_dropped

    assert [mail.dropped for mail in worked.mails if mail.ticket == ticket.id] == [True]
    assert [(held.ticket, held.path, held.kind) for held in worked.record.held] == [
        (ticket.id, "answer/send_mail#1", "mail")
    ]


def test_every_ticket_is_noted_once_in_the_table_that_lies_in_the_store(worked: Worked) -> None:
    assert sorted(worked.notes) == sorted((ticket.id, ticket.label) for ticket in worked.met.tickets)


def test_the_record_counts_what_was_unknown_and_what_was_settled_without_a_person(worked: Worked) -> None:
    assert (worked.record.unknown, worked.record.reconciled) == (4, 3)
    assert (worked.record.stuck, worked.record.damaged) == ((), ())


def test_the_record_and_the_ledgers_tell_the_same_story(worked: Worked) -> None:
    waiting = {held.ticket: held.kind for held in worked.record.held}
    tally = tally_of(worked.met.tickets, worked.applied, worked.mails, worked.notes, waiting=waiting)

    assert (tally.duplicates, tally.lost, tally.wrong) == (0, 0, 0)
    assert worked.record.done == {
        "refund": tally.line("refund").seen,
        "voucher": tally.line("voucher").seen,
        "note": tally.line("note").seen,
        "mail": tally.line("mail").seen - {worked.met.mail_dropped.id},
    }


def test_a_worker_that_is_started_again_finds_its_runs_and_does_nothing_twice(tmp_path: Path) -> None:
    """Requirement 19. Replay repeats no payment and no mail."""
    ticket = find_troubles().refund_answer_lost
    with Outside(tmp_path, find_troubles().seed) as outside:
        for _ in range(2):
            serve(outside, [ticket])
        applied, mails = outside.applied(), outside.mails()

    assert (len(applied), len(mails)) == (1, 1)
