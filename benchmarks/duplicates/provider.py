"""Who is paid: a payment provider with a ledger of its own, in the process that kills the workers.

It takes no idempotency key, as much of the world does not. It can be asked which charges an order has. The first
request of each order is held until its sender is dead, and then has one of three fates:

* `request lost`   it never reaches the books;
* `response lost`  it was applied before the sender died, and only the answer is missing;
* `late`           it is applied `LATE_S` after whoever continues has asked about it or sent it again.
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

FATES = ("response lost", "request lost", "late")

LATE_S = 0.3
"""How long after the first question a late request lands; well within the bound that the careful tools declare."""

PATIENCE_S = 60.0
"""After this time everything that waits here gives up."""


@dataclass
class Order:
    """What became of one order: its charges, and how far its first request has come."""

    charges: int = 0
    requests: int = 0
    held: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)
    landed: threading.Event = field(default_factory=threading.Event)


class Provider:
    """The ledger of one scenario. `released` is set once the first worker is dead."""

    def __init__(self, orders: tuple[str, ...], fate: str) -> None:
        self.orders = {order: Order() for order in orders}
        self.fate = fate
        self.released = threading.Event()
        self._lock = threading.Lock()

    def charge(self, name: str) -> dict[str, Any] | None:
        """Charge an order; None where the request was held, so that nobody is there to be answered."""
        order = self.orders[name]
        with self._lock:
            order.requests += 1
            first = order.requests == 1
        if not first:
            order.asked.set()
            return self._apply(order)
        try:
            if self.fate == "response lost":
                self._apply(order)
            order.held.set()
            self.released.wait(PATIENCE_S)
            if self.fate == "late":
                order.asked.wait(PATIENCE_S)
                time.sleep(LATE_S)
                self._apply(order)
        finally:
            order.landed.set()
        return None

    def find(self, name: str) -> dict[str, Any]:
        """The charges of an order, as anybody may ask."""
        order = self.orders[name]
        answer = {"charges": order.charges}
        order.asked.set()
        return answer

    def settled(self) -> list[int]:
        """How often each order was charged, once no request can land any more."""
        for order in self.orders.values():
            order.asked.set()  # a held request whose order nobody came back for lands too
            order.landed.wait(PATIENCE_S)
        return [order.charges for order in self.orders.values()]

    def _apply(self, order: Order) -> dict[str, Any]:
        with self._lock:
            order.charges += 1
            return {"charges": order.charges}


class _Desk(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    provider: ClassVar[Provider]

    def do_GET(self) -> None:
        """`/ORDER`: its charges."""
        self._answer(self.provider.find)

    def do_POST(self) -> None:
        """`/ORDER`: charge it."""
        self._answer(self.provider.charge)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the ledger is the log."""

    def _answer(self, serve: Callable[[str], dict[str, Any] | None]) -> None:
        answer = serve(self.path.strip("/"))
        if answer is None:
            self.close_connection = True
            return
        payload = json.dumps(answer).encode()
        with contextlib.suppress(ConnectionError):  # a caller that was killed no longer listens
            self.send_response(200)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that died with their worker."""


@contextlib.contextmanager
def serving(provider: Provider) -> Generator[int]:
    """The provider on a free loopback port, for the length of the block."""
    desk = type("Desk", (_Desk,), {"provider": provider})
    with _Server(("127.0.0.1", 0), desk) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
