"""The outside world: a bank in a process of its own, whose state survives every worker.

It runs a suite's banking functions on an environment kept in SQLite. Each call that changes something is applied and
written to the bank's own ledger in one transaction, so that the ledger says what truly happened, however often and in
whatever state the caller died.

What the bank offers a careful caller differs by function, as it does in the world:

* `send_money` carries a reference, and the bank can be asked about a reference. It does *not* refuse a second payment
  with the same reference: a blind resend pays twice.
* `schedule_transaction` treats the reference as an idempotency key: the second request gets the first one's answer.
* the updates carry the version of the record that they were based on (If-Match); another version is refused with 412.

A trap makes the moment of the kill exact. It is set on the n-th call and holds that request, unanswered, while the test
kills the caller:

* `lost`     the request never reaches the books, as if the network had dropped it;
* `applied`  it is applied first, and only the answer is missing;
* `late`     a proxy holds it back: it arrives `LATE` seconds after whoever continues has first asked about it, or sent
             it again.
"""

import argparse
import contextlib
import json
import sqlite3
import sys
import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from evaluation.task import READS, Functions, canonical

LATE = 0.3
"""Seconds between the first question after a caller's death and the arrival of its held request, in a `late` trap."""

PATIENCE = 60.0
"""Seconds after which a held request, or a wait for a trap, gives up: nothing here waits for ever."""

_SCHEMA = """
CREATE TABLE account (name TEXT PRIMARY KEY, environment TEXT NOT NULL, version INTEGER NOT NULL);
CREATE TABLE ledger (
    number INTEGER PRIMARY KEY AUTOINCREMENT, account TEXT NOT NULL, reference TEXT NOT NULL,
    function TEXT NOT NULL, args TEXT NOT NULL, answer TEXT NOT NULL
);
"""


class RefusedError(Exception):
    """The bank will not execute a request: `status` says why, and nothing was changed."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Trap:
    """Holds the `nth` call to one account.

    `sprung` once a request is held, `released` once it may go, `asked` once somebody continues for its dead caller,
    `landed` once it can change nothing any more.
    """

    def __init__(self, nth: int, moment: str) -> None:
        self.nth = nth
        self.moment = moment
        self.function = ""
        self.sprung = threading.Event()
        self.released = threading.Event()
        self.asked = threading.Event()
        self.landed = threading.Event()


class Books:
    """Accounts and the ledger in one SQLite file, changed under one lock, durable before any answer."""

    def __init__(self, file: Path, functions: Functions) -> None:
        self._functions = functions
        self._lock = threading.RLock()
        self._db = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        self._db.executescript(_SCHEMA)

    def open_account(self, account: str, environment: str) -> None:
        """A new account in the given environment. Raises `RefusedError` (409) if there is one of that name."""
        try:
            self._db.execute("INSERT INTO account VALUES (?, ?, 1)", (account, environment))
        except sqlite3.IntegrityError:
            raise RefusedError(409, f"account {account} exists") from None

    def statement(self, account: str) -> dict[str, Any]:
        """All that is known of an account: environment, version and ledger, oldest first."""
        with self._lock:
            environment, version = self._account(account)
            rows = self._db.execute(
                "SELECT reference, function, args FROM ledger WHERE account = ? ORDER BY number", (account,)
            ).fetchall()
        ledger = [{"reference": one, "function": function, "args": json.loads(args)} for one, function, args in rows]
        return {"environment": environment, "version": version, "ledger": ledger}

    def found(self, account: str, reference: str) -> list[Any]:
        """The answers of every request with this reference that was applied."""
        with self._lock:
            rows = self._db.execute(
                "SELECT answer FROM ledger WHERE account = ? AND reference = ? ORDER BY number", (account, reference)
            ).fetchall()
        return [json.loads(answer) for (answer,) in rows]

    def call(self, account: str, function: str, args: dict[str, Any], reference: str, based_on: int | None) -> Any:
        """Run one function and record it, in one transaction. Raises `RefusedError`; then nothing was changed."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                answer = self._apply(account, function, args, reference, based_on)
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
        return answer

    def _apply(self, account: str, function: str, args: dict[str, Any], reference: str, based_on: int | None) -> Any:
        environment, version = self._account(account)
        if function == "schedule_transaction" and (earlier := self.found(account, reference)):
            return earlier[0]
        if based_on is not None and based_on != version:
            raise RefusedError(412, f"the record is at version {version}, not {based_on}")
        try:
            after, answer = self._functions.call_function(environment, function, args)
        except Exception as error:
            raise RefusedError(422, f"{type(error).__name__}: {error}") from error
        if function not in READS:
            self._db.execute(
                "UPDATE account SET environment = ?, version = version + 1 WHERE name = ?", (after, account)
            )
            self._db.execute(
                "INSERT INTO ledger (account, reference, function, args, answer) VALUES (?, ?, ?, ?, ?)",
                (account, reference, function, canonical(args), canonical(answer)),
            )
        return answer

    def _account(self, account: str) -> tuple[str, int]:
        row = self._db.execute("SELECT environment, version FROM account WHERE name = ?", (account,)).fetchone()
        if row is None:
            raise RefusedError(404, f"no account {account}")
        return row[0], row[1]


class Counter(BaseHTTPRequestHandler):
    """The bank's counter: who comes in over HTTP is served from the books, or held by a trap."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    books: ClassVar[Books]
    traps: ClassVar[dict[str, Trap]] = {}
    calls: ClassVar[dict[str, int]] = {}

    def do_GET(self) -> None:
        """`/ACCOUNT` statement, `/ACCOUNT/version`, `/ACCOUNT/references/R`, `/ACCOUNT/trap` (waits until sprung)."""
        self._answer(self._get)

    def do_POST(self) -> None:
        """`/ACCOUNT` opens one, `/ACCOUNT/calls` runs a function, `/ACCOUNT/trap` sets a trap."""
        self._answer(self._post)

    def do_DELETE(self) -> None:
        """`/ACCOUNT/trap` lets the held request go."""
        self._answer(self._delete)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the ledger is the log."""

    def _answer(self, serve: Any) -> None:
        path = self.path.strip("/").split("/")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            status, answer = 200, serve(path, json.loads(body) if body else None)
        except RefusedError as refusal:
            status, answer = refusal.status, {"why": str(refusal)}
        if answer is None:  # a held request whose caller is dead gets no answer
            self.close_connection = True
            return
        payload = json.dumps(answer).encode()
        with contextlib.suppress(ConnectionError):  # a caller that was killed no longer listens
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

    def _get(self, path: list[str], _: Any) -> dict[str, Any]:
        match path:
            case [account]:
                if trap := self.traps.get(account):
                    trap.landed.wait(PATIENCE)  # a statement that misses a late request would say too little
                return self.books.statement(account)
            case [account, "version"]:
                return {"version": self.books.statement(account)["version"]}
            case [account, "references", reference]:
                self._continued(account)
                return {"found": self.books.found(account, reference)}
            case [account, "trap"] if trap := self.traps.get(account):
                return {"sprung": trap.sprung.wait(PATIENCE), "function": trap.function}
            case _:
                raise RefusedError(404, self.path)

    def _post(self, path: list[str], body: Any) -> dict[str, Any] | None:
        match path:
            case [account]:
                self.books.open_account(account, body["environment"])
            case [account, "trap"]:
                self.traps[account] = Trap(body["nth"], body["moment"])
            case [account, "calls"]:
                return self._call(account, body["function"], body["args"])
            case _:
                raise RefusedError(404, self.path)
        return {"ok": True}

    def _delete(self, path: list[str], _: Any) -> dict[str, Any]:
        match path:
            case [account, "trap"] if trap := self.traps.get(account):
                trap.released.set()
                return {"ok": True}
            case _:
                raise RefusedError(404, self.path)

    def _call(self, account: str, function: str, args: dict[str, Any]) -> dict[str, Any] | None:
        reference = self.headers.get("Reference", "")
        match = self.headers.get("If-Match")
        self.calls[account] = self.calls.get(account, 0) + 1
        trap = self.traps.get(account)
        held = trap if trap is not None and self.calls[account] == trap.nth else None
        self._continued(account)
        if held is None:
            return {"answer": self.books.call(account, function, args, reference, _version(match))}
        try:
            if held.moment != "applied":
                self._hold(held, function)
            if held.moment == "late":
                held.asked.wait(PATIENCE)
                time.sleep(LATE)
            if held.moment != "lost":
                self.books.call(account, function, args, reference, _version(match))
        finally:
            held.landed.set()
        if held.moment == "applied":
            self._hold(held, function)
        return None

    def _continued(self, account: str) -> None:
        trap = self.traps.get(account)
        if trap is not None and trap.released.is_set():
            trap.asked.set()

    @staticmethod
    def _hold(trap: Trap, function: str) -> None:
        trap.function = function
        trap.sprung.set()
        trap.released.wait(PATIENCE)


def _version(match: str | None) -> int | None:
    return None if match is None else int(match)


def serve(functions: Functions, arguments: Sequence[str] | None = None) -> None:
    """Serve on a free loopback port, print it on the first line, and stop when standard input closes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("books", type=Path, help="a SQLite file that does not exist yet")
    chosen = parser.parse_args(arguments)
    Counter.books = Books(chosen.books, functions)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Counter)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()  # the parent holds the other end: when it is gone, for whatever reason, so is the bank
