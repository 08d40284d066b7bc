"""The books of the outside world, one SQLite file for each service, written by that service and read by the demo.

A ledger is opened by one process for writing. Readers open it read-only, while the service runs or after it ended.
Each write is a transaction of its own, so a ledger is whole whenever its process dies.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import apsw

_BUSY_MS = 5_000


class Payment(NamedTuple):
    """What a request asks for. Past `apply_before_ms` of Unix time, if given, it must not be applied any more."""

    kind: str
    key: str | None
    body_hash: str
    order: str
    cents: int
    apply_before_ms: int | None


class Applied(NamedTuple):
    """One movement of money that the payment service made. `applied_ms` is in milliseconds of Unix time."""

    kind: str
    seq: int
    order: str
    cents: int
    attempt: int
    applied_ms: int
    key: str | None
    body_hash: str

    @property
    def receipt(self) -> str:
        """The name by which the service calls it in its answers."""
        return f"{self.kind}-{self.seq:05d}"


class Mail(NamedTuple):
    """One mail that the mail server took."""

    seq: int
    ticket: str
    message_id: str
    recipient: str
    subject: str
    dropped: bool


class Note(NamedTuple):
    """One note in the desk's own table: what was done about a ticket."""

    ticket: str
    action: str


class _Ledger:
    """One SQLite file and its named statements. Threads of the service take turns."""

    def __init__(self, path: Path, sql_file: str, *, read_only: bool) -> None:
        self._sql = named_statements(sql_file)
        self._lock = Lock()
        flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        self._connection = apsw.Connection(str(path), flags=flags)
        self._connection.set_busy_timeout(_BUSY_MS)
        if not read_only:
            self._rows("PRAGMA journal_mode = WAL")
            self._rows(self._sql["schema"])

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _query(self, name: str, *args: Any) -> list[tuple[Any, ...]]:
        return self._rows(self._sql[name], args)

    def _rows(self, sql: str, args: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return list(self._connection.execute(sql, args))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            self._rows("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._rows("ROLLBACK")
                raise
            self._rows("COMMIT")


class PaymentsLedger(_Ledger):
    """What the payment service was asked for and what it did."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        super().__init__(path, "payments.sql", read_only=read_only)

    def add_request(self, kind: str, order: str, arrived_ms: int, fault_of: Callable[[int], str]) -> int:
        """The number of this request among those of its kind for this order; the first is 1.

        Noted in one transaction with the fault that `fault_of` gives that number, so that two requests at once never
        get the same one.
        """
        with self._transaction():
            attempt = int(self._query("attempts_so_far", kind, order)[0][0]) + 1
            self._query("add_request", kind, order, attempt, arrived_ms, fault_of(attempt))
        return attempt

    def find_key(self, key: str) -> Applied | None:
        """What was applied under an idempotency key."""
        with self._lock:
            return _first(self._query("find_key", key))

    def apply(self, payment: Payment, attempt: int, arrived_ms: int) -> Applied | None:
        """Move the money, or find that this key has moved it before. None, and nothing moved, past the latest moment.

        The clock is read inside the transaction: that is what makes the promise about lateness a promise.
        """
        with self._transaction():
            found = _first(self._query("find_key", payment.key)) if payment.key is not None else None
            if found is not None:
                return found
            now_ms = unix_ms()
            if payment.apply_before_ms is not None and now_ms >= payment.apply_before_ms:
                return None
            kind, key, body_hash, order, cents = payment[:5]
            return _first(self._query("apply", kind, key, body_hash, order, cents, attempt, arrived_ms, now_ms))

    def find_order(self, kind: str, order: str, *, applied_until_ms: int) -> list[Applied]:
        """What was applied for an order up to a moment, oldest first."""
        with self._lock:
            return [Applied(*row) for row in self._query("find_order", kind, order, applied_until_ms)]

    def all_applied(self) -> list[Applied]:
        """Every movement of money, oldest first."""
        with self._lock:
            return [Applied(*row) for row in self._query("all_applied")]

    def faults_met(self) -> dict[str, int]:
        """How many requests met each fault."""
        with self._lock:
            return {str(fault): int(count) for fault, count in self._query("faults_met")}


class MailLedger(_Ledger):
    """What the mail server took."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        super().__init__(path, "mail.sql", read_only=read_only)

    def received_so_far(self, ticket: str) -> int:
        """How many mails came for a ticket."""
        with self._lock:
            return int(self._query("received_so_far", ticket)[0][0])

    def add_mail(self, mail: Mail, received_ms: int) -> None:
        """Take a mail; `mail.seq` is given by the ledger."""
        with self._transaction():
            self._query(
                "add_mail", mail.ticket, mail.message_id, mail.recipient, mail.subject, received_ms, mail.dropped
            )

    def all_mails(self) -> list[Mail]:
        """Every mail, oldest first."""
        with self._lock:
            rows = self._query("all_mails")
        return [Mail(row[0], row[1], row[2], row[3], row[4], dropped=bool(row[5])) for row in rows]


def crm_notes(store: Path) -> list[Note]:
    """Every note of the desk. Its table lies in the store of its runs, and is read there as any other program would."""
    connection = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_timeout(_BUSY_MS)
        sql = named_statements("crm.sql")
        if not list(connection.execute(sql["is_there"])):
            return []
        return [Note(str(ticket), str(action)) for ticket, action in connection.execute(sql["all_notes"])]
    finally:
        connection.close()


def unix_ms() -> int:
    """Milliseconds of Unix time, by this machine's clock."""
    return time.time_ns() // 1_000_000


def _first(rows: list[tuple[Any, ...]]) -> Applied | None:
    return Applied(*rows[0]) if rows else None


def named_statements(file: str) -> dict[str, str]:
    """The statements of a .sql file of this folder, by the name in front of each."""
    text = resources.files(__package__).joinpath(file).read_text()
    blocks = (block.partition("\n") for block in text.split("-- name: ")[1:])
    return {name.strip(): sql for name, _, sql in blocks}
