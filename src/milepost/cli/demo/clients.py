"""How a desk reaches the outside world. These clients never retry: who retries, and when, is the whole question."""

import smtplib
from email.message import EmailMessage
from types import TracebackType
from typing import Self

import httpx
import msgspec

from milepost.cli.demo.service import LOOPBACK
from milepost.cli.demo.tickets import TICKET_HEADER, Ticket

_ANSWER_SECONDS = 2.0


class Receipt(msgspec.Struct, frozen=True):
    """The payment service's word that it moved the money."""

    receipt: str
    order: str
    cents: int


class _Found(msgspec.Struct, frozen=True):
    found: list[Receipt]


class Payments:
    """The payment service. Each method raises an httpx error, which says how little is known."""

    def __init__(self, port: int) -> None:
        self._http = httpx.Client(base_url=f"http://{LOOPBACK}:{port}", timeout=_ANSWER_SECONDS, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._http.close()

    def refund(self, order: str, cents: int, *, key: str) -> Receipt:
        """Send money back. The same key never sends it twice."""
        return self._post("/refunds", order, cents, {"Idempotency-Key": key})

    def voucher(self, order: str, cents: int, *, apply_before_ms: int | None = None) -> Receipt:
        """Make a voucher. Two calls make two; past `apply_before_ms` of Unix time none is made."""
        headers = {} if apply_before_ms is None else {"Apply-Before": str(apply_before_ms)}
        return self._post("/vouchers", order, cents, headers)

    def refunds_of(self, order: str) -> list[Receipt]:
        """The refunds of an order."""
        return self._list("/refunds", order)

    def vouchers_of(self, order: str) -> list[Receipt]:
        """The vouchers of an order that show already."""
        return self._list("/vouchers", order)

    def _post(self, path: str, order: str, cents: int, headers: dict[str, str]) -> Receipt:
        response = self._http.post(path, json={"order": order, "cents": cents}, headers=headers)
        response.raise_for_status()
        return msgspec.json.decode(response.content, type=Receipt)

    def _list(self, path: str, order: str) -> list[Receipt]:
        response = self._http.get(path, params={"order": order})
        response.raise_for_status()
        return msgspec.json.decode(response.content, type=_Found).found


def connect_mail(port: int) -> smtplib.SMTP:
    """A connection to the mail server. What fails here was not sent."""
    return smtplib.SMTP(LOOPBACK, port, local_hostname="localhost", timeout=_ANSWER_SECONDS)


def letter(ticket: Ticket, body: str) -> EmailMessage:
    """The answer to a ticket."""
    message = EmailMessage()
    message["From"] = "desk@shop.example"
    message["To"] = ticket.email
    message["Subject"] = f"Your letter about order {ticket.order}"
    message["Message-ID"] = f"<{ticket.id}@shop.example>"
    message[TICKET_HEADER] = ticket.id
    message.set_content(body)
    return message
