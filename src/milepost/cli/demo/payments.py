"""A payment service in a process of its own, which misbehaves on purpose: `python -m milepost.cli.demo.payments`.

It speaks HTTP on a free port of 127.0.0.1 and offers two kinds of effect, as real services do:

* `POST /refunds` wants an `Idempotency-Key`. The same key with the same body moves the money once, however often it is
  sent, and is answered with the same receipt. The same key with another body is answered 422.
* `POST /vouchers` takes no key: two requests are two vouchers. It may carry `Apply-Before`, a moment in milliseconds of
  Unix time: a request that is not applied by then is answered 503 and never will be.
* `GET /refunds?order=…` and `GET /vouchers?order=…` list what was done for an order. A voucher shows there only
  `VOUCHER_SHOWS_AFTER_MS` after it was made: the list is read from a copy that lags behind, as lists often are.

What a client may believe follows from that. A lost answer, a 500 or a 503 says nothing about whether money moved. A
voucher that is still not listed `VOUCHER_SHOWS_AFTER_MS` after its `Apply-Before` was never made.
"""

import hashlib
import re
import socketserver
import sys
import time
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, Any, cast
from urllib.parse import parse_qs, urlsplit

import msgspec

from milepost.cli.demo.faults import Behaviour, Fault, payment_behaviour
from milepost.cli.demo.ledgers import Applied, Payment, PaymentsLedger, unix_ms
from milepost.cli.demo.service import LOOPBACK, announce, arguments, end_with_stdin

VOUCHER_SHOWS_AFTER_MS = 150
_MOST_BODY_BYTES = 16_384
_KINDS = {"/refunds": "refund", "/vouchers": "voucher"}


class PaymentBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of both kinds of request."""

    order: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    cents: Annotated[int, msgspec.Meta(gt=0)]


class _Refused(Exception):
    """The request cannot be understood."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class PaymentServer(ThreadingHTTPServer):
    """Listens, and hands each connection to a thread that may sleep."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, ledger: PaymentsLedger, seed: int) -> None:
        self.ledger = ledger
        self.seed = seed
        super().__init__((LOOPBACK, 0), _Handler)

    def server_bind(self) -> None:
        """Bind without the look-up of a host name that HTTPServer makes: it may take seconds, and nobody needs it."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed leaves a broken connection: that is the demo, not an error worth a traceback."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # one write for head and body, else the second waits for the acknowledgement of the first
    disable_nagle_algorithm = True

    @property
    def _service(self) -> PaymentServer:
        return cast("PaymentServer", self.server)

    def do_GET(self) -> None:
        """List what was done for an order."""
        url = urlsplit(self.path)
        kind = _KINDS.get(url.path)
        if kind is None:
            self._answer(HTTPStatus.NOT_FOUND, {"error": "no such path"})
            return
        order = parse_qs(url.query).get("order", [""])[0]
        until_ms = unix_ms() - (VOUCHER_SHOWS_AFTER_MS if kind == "voucher" else 0)
        found = self._service.ledger.find_order(kind, order, applied_until_ms=until_ms)
        self._answer(HTTPStatus.OK, {"found": [_shown(applied) for applied in found]})

    def do_POST(self) -> None:
        """Move money, and then perhaps say so."""
        arrived_ms = unix_ms()
        try:
            payment = self._payment()
        except _Refused as refused:
            self.close_connection = True  # the body may not have been read
            self._answer(refused.status, {"error": refused.why})
            return
        earlier = self._service.ledger.find_key(payment.key) if payment.key is not None else None
        if earlier is not None and earlier.body_hash != payment.body_hash:
            self._answer(HTTPStatus.UNPROCESSABLE_ENTITY, {"error": "this key was used with another body"})
            return
        attempt, behaviour = self._note(payment, arrived_ms)
        time.sleep(behaviour.before_ms / 1_000)
        self._settle(payment, attempt, arrived_ms, behaviour)

    def _payment(self) -> Payment:
        """What is asked for. `_Refused` when nothing can be: no money moves, and no fault is played."""
        kind = _KINDS.get(urlsplit(self.path).path)
        if kind is None:
            raise _Refused(HTTPStatus.NOT_FOUND, "no such path")
        length = _number(self.headers.get("Content-Length", "0"))
        if length is None or length > _MOST_BODY_BYTES:
            raise _Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body must say its length, at most {_MOST_BODY_BYTES}"
            )
        data = self.rfile.read(length)
        try:
            body = msgspec.json.decode(data, type=PaymentBody)
        except msgspec.DecodeError as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, str(error)) from error
        key = self.headers.get("Idempotency-Key") if kind == "refund" else None
        if kind == "refund" and not key:
            raise _Refused(HTTPStatus.BAD_REQUEST, "a refund needs an Idempotency-Key")
        before = self.headers.get("Apply-Before")
        if before is not None and _number(before) is None:
            raise _Refused(HTTPStatus.BAD_REQUEST, "Apply-Before is in milliseconds of Unix time")
        return Payment(
            kind,
            key,
            body_hash=hashlib.sha256(data).hexdigest(),
            order=body.order,
            cents=body.cents,
            apply_before_ms=None if before is None else _number(before),
        )

    def _note(self, payment: Payment, arrived_ms: int) -> tuple[int, Behaviour]:
        def behaviour(attempt: int) -> Behaviour:
            return payment_behaviour(self._service.seed, payment.kind, payment.order, attempt)

        attempt = self._service.ledger.add_request(
            payment.kind, payment.order, arrived_ms, lambda number: behaviour(number).fault
        )
        return attempt, behaviour(attempt)

    def _settle(self, payment: Payment, attempt: int, arrived_ms: int, behaviour: Behaviour) -> None:
        if behaviour.fault is Fault.BUSY:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "busy"})
            return
        if behaviour.fault is Fault.ERROR_BEFORE:
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "something went wrong"})
            return
        applied = self._service.ledger.apply(payment, attempt, arrived_ms)
        time.sleep(behaviour.after_ms / 1_000)
        if applied is None:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "too late to be applied"})
        elif applied.body_hash != payment.body_hash:  # two requests with one key met here
            self._answer(HTTPStatus.UNPROCESSABLE_ENTITY, {"error": "this key was used with another body"})
        elif behaviour.fault is Fault.LOST_ANSWER:
            self.close_connection = True
        elif behaviour.fault is Fault.ERROR_AFTER:
            self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "something went wrong"})
        else:
            self._answer(HTTPStatus.OK, _shown(applied))

    def _answer(self, status: HTTPStatus, content: dict[str, Any]) -> None:
        body = msgspec.json.encode(content)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if status is HTTPStatus.SERVICE_UNAVAILABLE:
            self.send_header("Retry-After", "0")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the ledger holds every request."""


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,15}", text) else None


def _shown(applied: Applied) -> dict[str, Any]:
    return {"receipt": applied.receipt, "order": applied.order, "cents": applied.cents}


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until killed."""
    options = arguments("A payment service that misbehaves on purpose.").parse_args(argv)
    if options.end_with_stdin:
        end_with_stdin()
    with PaymentServer(PaymentsLedger(options.ledger), options.seed) as server:
        announce(options.port_file, server.server_port)
        server.serve_forever()


if __name__ == "__main__":
    main()
