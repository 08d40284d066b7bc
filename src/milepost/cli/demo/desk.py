"""The refund desk as a Milepost workflow: one tool of each kind that such a desk needs.

The workflow has no word about crashes, retries, lost answers or duplicates. What each effect may be asked, and for how
long an answer can be trusted, stands at its tool; the rest is the runtime's.
"""

import asyncio
import smtplib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

import milepost as mp
from milepost.cli.demo.clients import Payments, Receipt, connect_mail, letter
from milepost.cli.demo.ledgers import named_statements, unix_ms
from milepost.cli.demo.model import Verdict, decide, thinking_ms
from milepost.cli.demo.tickets import Action, Ticket

_APPLY_WITHIN_MS = 500
_CRM = named_statements("crm.sql")


@dataclass(frozen=True)
class Case:
    """A ticket as it comes in, with the seed of the scripted model."""

    ticket: Ticket
    seed: int


@dataclass(frozen=True)
class Decided:
    """A ticket on which the model has decided."""

    ticket: Ticket
    verdict: Verdict


@dataclass(frozen=True)
class Answered:
    """A ticket that is done. `receipt` is the payment service's, when money moved."""

    action: Action
    receipt: str | None


@dataclass(frozen=True)
class Closing:
    """A ticket whose money has moved, or never will: what is left is the note and the letter."""

    decided: Decided
    receipt: str | None


@dataclass(frozen=True)
class MailDoor:
    """Where the mail server listens."""

    port: int


@mp.tool(effect="read")
async def ask_model(text: str, customer: str, seed: int) -> Verdict:
    """Ask the scripted model what to do."""
    await asyncio.sleep(thinking_ms(text, seed) / 1_000)
    return decide(text, customer, seed)


# The service may fail three times in a row: five tries are enough, three would leave some refunds to a person.
@mp.tool(effect="keyed", key_ttl="1h", once="order", timeout="5s", retry=mp.Retry(5))
def refund(call: mp.Call, order: str, cents: int) -> Receipt:
    """Send money back. The payment service deduplicates by key."""
    with _known_outcomes():
        return call.resource(Payments).refund(order, cents, key=call.key)


# A voucher is applied within `_APPLY_WITHIN_MS` or never, and shows in the list 150 ms later: see payments.py.
@mp.tool(effect="queryable", visible_within="750ms", once="order", timeout="5s", retry=mp.Retry(5))
def voucher(call: mp.Call, order: str, cents: int) -> Receipt:
    """Make a voucher. The payment service takes no key, but can be asked."""
    with _known_outcomes():
        return call.resource(Payments).voucher(order, cents, apply_before_ms=unix_ms() + _APPLY_WITHIN_MS)


@voucher.reconcile
def find_voucher(call: mp.Call, order: str, cents: int) -> mp.Finding[Receipt]:
    """Ask the payment service what it did for this order."""
    match call.resource(Payments).vouchers_of(order):
        case []:
            return mp.did_not_happen()
        case [found] if found.cents == cents:
            return mp.happened(found)
        case more:
            return mp.conflict([receipt.receipt for receipt in more])


@mp.tool(effect="transactional")
def note_in_crm(tx: mp.Tx, ticket: str, action: str) -> None:
    """Note in the desk's own table what was done. The note and its outcome are one transaction of the run's store."""
    tx.execute(_CRM["schema"])
    tx.execute(_CRM["add_note"], (ticket, action))


@mp.tool(timeout="5s")
def send_mail(call: mp.Call, ticket: Ticket, body: str) -> None:
    """Send the answer. Mail has neither keys nor questions, so this is irreversible: the default."""
    try:
        smtp = connect_mail(call.resource(MailDoor).port)
    except OSError as error:  # smtplib's own errors are OSErrors
        raise mp.NotSent(str(error)) from error
    with smtp:
        try:
            smtp.send_message(letter(ticket, body))
        except smtplib.SMTPRecipientsRefused as error:
            raise mp.Rejected(str(error)) from error


desk = mp.Workflow(
    "refund-desk",
    version="1",
    input=Case,
    result=Answered,
    tools=[ask_model, refund, voucher, note_in_crm, send_mail],
)


@desk.segment
async def triage(_run: mp.Run, case: Case) -> mp.Next[Answered]:
    """Let the model decide."""
    verdict = await ask_model(case.ticket.text, case.ticket.customer, case.seed)
    decided = Decided(case.ticket, verdict)
    if verdict.action in {"refund", "voucher"}:
        return mp.go(pay, decided)
    return mp.go(answer, Closing(decided, None))


@desk.segment
async def pay(_run: mp.Run, decided: Decided) -> mp.Next[Answered]:
    """Move the money."""
    ticket = decided.ticket
    move = refund if decided.verdict.action == "refund" else voucher
    receipt = await move(ticket.order, ticket.cents)
    return mp.go(answer, Closing(decided, receipt.receipt))


@desk.segment
async def answer(_run: mp.Run, closing: Closing) -> mp.Next[Answered]:
    """Note what was done, and write to the customer."""
    ticket, verdict = closing.decided.ticket, closing.decided.verdict
    await note_in_crm(ticket.id, verdict.action)
    await send_mail(ticket, verdict.reply)
    return mp.done(Answered(verdict.action, closing.receipt))


def steps_of(ticket: Ticket) -> int:
    """How many steps a ticket takes: the model, perhaps money, the note, the mail."""
    return 4 if ticket.label in {"refund", "voucher"} else 3


def desk_app(store: str, payments_port: int, mail_port: int) -> mp.App:
    """The App of the desk: its store, its workflow, and how its tools reach the outside."""

    @asynccontextmanager
    async def open_payments() -> AsyncIterator[Payments]:
        with Payments(payments_port) as payments:
            yield payments

    @asynccontextmanager
    async def open_mail() -> AsyncIterator[MailDoor]:
        yield MailDoor(mail_port)

    resources: dict[type[Any], Callable[[], AbstractAsyncContextManager[Any]]] = {
        Payments: open_payments,
        MailDoor: open_mail,
    }
    return mp.App(store, workflows=[desk], resources=resources)


@contextmanager
def _known_outcomes() -> Iterator[None]:
    """Turn the httpx errors that prove something into outcomes. All others pass through, and mean unknown."""
    try:
        yield
    except httpx.HTTPError as error:
        known = mp.http.classify(error)
        if known is None:
            raise
        raise known from error
