"""The mail server, as a real process over SMTP."""

import smtplib
from collections.abc import Iterator
from itertools import count

import pytest

from milepost.cli.demo.clients import connect_mail, letter
from milepost.cli.demo.faults import mail_behaviour
from milepost.cli.demo.ledgers import Mail
from milepost.cli.demo.outside import Outside
from milepost.cli.demo.tickets import Ticket

SEED = 5


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    with Outside(tmp_path_factory.mktemp("mail"), SEED) as running:
        yield running


def a_ticket(test: str, *, dropped: bool) -> Ticket:
    """A ticket, of this test alone, whose first mail is dropped or not."""
    names = (f"{test}-{number}" for number in count())
    name = next(name for name in names if mail_behaviour(SEED, name, 1).drops is dropped)
    return Ticket(name, "Zoë Example", "zoe@example.com", f"A-{name}", 100, "refuse", "…")


def send(outside: Outside, ticket: Ticket) -> None:
    with connect_mail(outside.mail_port) as smtp:
        smtp.send_message(letter(ticket, "Dear Zoë,\n\nno.\n"))


def mails_of(outside: Outside, ticket: Ticket) -> list[Mail]:
    return [mail for mail in outside.mails() if mail.ticket == ticket.id]


def test_a_mail_is_in_the_ledger_with_its_ticket_recipient_and_subject(outside: Outside) -> None:
    ticket = a_ticket("taken", dropped=False)

    send(outside, ticket)
    (mail,) = mails_of(outside, ticket)

    assert (mail.recipient, mail.message_id) == ("zoe@example.com", f"<{ticket.id}@shop.example>")
    assert mail.subject == f"Your letter about order {ticket.order}"
    assert not mail.dropped


def test_a_dropped_mail_was_taken_although_the_client_never_hears_so(outside: Outside) -> None:
    ticket = a_ticket("dropped", dropped=True)

    with pytest.raises(smtplib.SMTPServerDisconnected):
        send(outside, ticket)

    assert [mail.dropped for mail in mails_of(outside, ticket)] == [True]


def test_the_same_mail_sent_twice_is_two_mails(outside: Outside) -> None:
    ticket = next(
        ticket
        for ticket in (a_ticket(f"twice-{number}", dropped=False) for number in count())
        if not mail_behaviour(SEED, ticket.id, 2).drops
    )

    send(outside, ticket)
    send(outside, ticket)

    assert len(mails_of(outside, ticket)) == 2


def test_the_server_still_answers_after_it_hung_up(outside: Outside) -> None:
    with pytest.raises(smtplib.SMTPServerDisconnected):
        send(outside, a_ticket("before", dropped=True))

    send(outside, a_ticket("after", dropped=False))
